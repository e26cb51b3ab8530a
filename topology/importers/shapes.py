"""The fabric between the domains of a graph that was found: its commonest leaf and spine, as it was meant."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

from networkx.utils import UnionFind

from topology.importers.found import commonest
from topology.importers.graph_found import MOST_LACKING, GraphFound, rate_of
from topology.spec import (
    DomainSpec,
    FabricSpec,
    RawLink,
    ScaleOutSpec,
)
from topology.units import format_quantity

_UNEVEN = 0.25
"""Part of the places on leaves that may be missing or too many: a regular cluster with all the faults it may have has
an eighth."""


@dataclass(frozen=True)
class Shape:
    """A fabric, the hosts of each domain in its order (an empty name for one that lacks), and its switches' names."""

    out: ScaleOutSpec | None
    hosts: list[list[str]]
    names: dict[str, str]


def _nic(graph: GraphFound) -> RawLink | None:
    """Return the link to a leaf that most GPUs have."""
    links = [link for own in graph.nics.values() for link in own.values()]
    usual = commonest((link.count, *rate_of(link.fabric)) for link in links)
    return next((link for link in links if (link.count, *rate_of(link.fabric)) == usual), None)


def _uplinks(graph: GraphFound, names: Iterable[str], nic: RawLink) -> tuple[float, int] | None:
    """Return how many links most of some switches have up, and to how many switches, of those that have any.

    Of bundles as many links like a NIC's as make up their rate.
    """
    one = rate_of(nic.fabric)[0]
    return commonest(
        (
            round(
                sum(
                    link.count * (rate_of(link.fabric)[0] / one if graph.bundles else 1)
                    for link in own.values()
                ),
                6,
            ),
            len(own),
        )
        for name in names
        if (own := graph.above.get(name))
    )


def _filled(
    graph: GraphFound, groups: Iterable[Sequence[str]], size: int, per_domain: int
) -> list[list[str]] | None:
    """Return the hosts of each domain, groups of ``size`` hosts one after the other; empty names fill them up.

    A domain is not split between groups, and the last group need not be full.
    """
    domain_of = {host: label for label, hosts in graph.domains.items() for host in hosts}
    groups = list(groups)
    if {len(group) for group in groups[:-1]} == {size} and len(groups[-1]) <= size:
        runs = [list(run) for _, run in groupby(chain.from_iterable(groups), domain_of.__getitem__)]
        if len(runs) == len(graph.domains) and {len(run) for run in runs} == {per_domain}:
            return runs
    filled: list[list[str]] = []
    for number, group in enumerate(groups):
        labels = dict.fromkeys(domain_of[host] for host in group)
        own = [[*graph.domains[label], *[""] * (per_domain - len(graph.domains[label]))] for label in labels]
        short = size - sum(map(len, own))
        if short and (number < len(groups) - 1 or short < 0):
            if short < 0 or short % per_domain:
                return None
            own += [[""] * per_domain] * (short // per_domain)
        filled += own
    if sum(map(len, filled)) < len(graph.gpus) or any(len(own) != per_domain for own in filled):
        return None
    return filled


def uneven(on_leaf: Mapping[str, Sequence[str]], *, one_each: bool) -> bool:
    """Whether leaves, with the hosts on each in order, are those of no regular fabric.

    There none but the last has fewer hosts than most, but for a few that lack, and none more; of hosts on several
    leaves each some may have a cable on a wrong one.
    """
    sizes = [len(hosts) for hosts in on_leaf.values()]
    size = commonest(sizes) or 0
    if one_each or not sizes:
        lacking = sum(size - hosts for hosts in sizes[:-1])
        return max(sizes, default=0) > size or lacking > MOST_LACKING * (sum(sizes) + lacking)
    last = list(on_leaf.values())[-1][-1]
    whole = sorted(len(hosts) for hosts in on_leaf.values() if last not in hosts) or sorted(sizes)
    usual = whole[len(whole) // 2]
    more = sum(max(0, len(hosts) - usual) for hosts in on_leaf.values() if last in hosts)
    return more + sum(abs(hosts - usual) for hosts in whole) > _UNEVEN * sum(sizes)


def _planes(graph: GraphFound) -> list[GraphFound]:
    """Return the graph with the switches of one plane each: parts that most GPUs reach and no link joins."""
    joined: UnionFind[str] = UnionFind(graph.levels)
    for below, uppers in graph.above.items():
        joined.union(below, *uppers)
    parts: dict[str, dict[str, dict[str, RawLink]]] = defaultdict(dict)
    for gpu, links in graph.nics.items():
        for leaf, link in links.items():
            parts[joined[leaf]].setdefault(gpu, {})[leaf] = link
    levels: dict[str, dict[str, str]] = defaultdict(dict)
    for name, kind in graph.levels.items():
        levels[joined[name]][name] = kind
    above: dict[str, dict[str, dict[str, RawLink]]] = defaultdict(dict)
    for name, uppers in graph.above.items():
        above[joined[name]][name] = uppers
    roots = list(dict.fromkeys(joined[name] for name in graph.levels))
    planes = [
        replace(graph, nics=parts[root], levels=levels[root], above=above[root])
        for root in roots
        if root in parts
    ]
    gpus = sum(map(len, graph.gpus.values()))
    return planes if all(2 * len(one.nics) > gpus for one in planes) else [graph]


def shape_of(graph: GraphFound, unit: DomainSpec) -> Shape | None:
    """Return the fabric, of several planes where all are alike."""
    found = [_rails(one, unit) or _tree(one, unit) for one in _planes(graph)]
    shapes = [one for one in found if one is not None]
    first = shapes[0] if shapes else None
    if first is None or first.out is None or len(shapes) < len(found) or len(shapes) == 1:
        return first if len(found) == 1 else None
    alike = all(
        one.out is not None
        and one.hosts == first.hosts
        and replace(one.out, fabric=first.out.fabric) == first.out
        and rate_of(one.out.fabric) == rate_of(first.out.fabric)
        for one in shapes
    )
    if not alike:
        return None
    links = len(shapes) * first.out.nic_links_per_gpu
    names = {long: f"f{n}{short[1:]}" for n, one in enumerate(shapes) for long, short in one.names.items()}
    return Shape(replace(first.out, planes=len(shapes), nic_links_per_gpu=links), first.hosts, names)


def _rails(graph: GraphFound, unit: DomainSpec) -> Shape | None:
    """Return rails: in each pod one leaf a rail, every host on all of them, leaves on all spines."""
    nic = _nic(graph)
    rail = _rail_of_leaves(graph, unit.gpus_per_node)
    if nic is None or rail is None or "core" in graph.levels.values():
        return None
    joined = _pods(graph)
    pods: dict[str, list[str]] = defaultdict(list)
    for host in chain.from_iterable(graph.domains.values()):
        pods[joined[f"host {host}"]].append(host)
    size = commonest(map(len, pods.values())) or 0
    hosts = _filled(graph, pods.values(), size, unit.nodes)
    spines = [name for name, kind in graph.levels.items() if kind == "spine"]
    up = _uplinks(graph, rail, nic)
    if hosts is None or up is None or not spines:
        return None
    numbers = {root: number for number, root in enumerate(pods)}
    names = {leaf: f"f.p{numbers[joined[f'leaf {leaf}']]}.l{number}" for leaf, number in rail.items()}
    names |= {spine: f"f.s{number}" for number, spine in enumerate(spines)}
    out = ScaleOutSpec(
        kind="rail",
        fabric=as_read("rail", nic.fabric),
        nic_links_per_gpu=nic.count,
        nodes_per_pod=size,
        spines=len(spines),
        oversubscription=size * nic.count / up[0],
    )
    return Shape(out, hosts, names) if len(set(names.values())) == len(names) else None


def _pods(graph: GraphFound) -> UnionFind[str]:
    """Return which hosts and leaves are of one pod; hosts on other leaves than any other are of that of most."""
    joined: UnionFind[str] = UnionFind()
    leaves: dict[str, list[str]] = defaultdict(list)
    for leaf, below in graph.leaves.items():
        for host in below:
            leaves[host].append(leaf)
    often = Counter(map(tuple, leaves.values()))
    rare = [host for host, own in leaves.items() if often[tuple(own)] == 1 < max(often.values())]
    known = {leaf for host in leaves.keys() - set(rare) for leaf in leaves[host]}
    for host in leaves.keys() - set(rare):
        joined.union(f"host {host}", *(f"leaf {leaf}" for leaf in leaves[host]))
    for host in rare:
        pod = commonest(joined[f"leaf {leaf}"] for leaf in leaves[host] if leaf in known)
        joined.union(pod or f"leaf {leaves[host][0]}", f"host {host}")
    for leaf in graph.leaves.keys() - known:
        joined.union(f"leaf {leaf}", f"host {graph.leaves[leaf][0]}")
    return joined


def _rail_of_leaves(graph: GraphFound, per_node: int) -> dict[str, int] | None:
    """Return the rail of each leaf: the place in their hosts of most of its GPUs; None where there are none."""
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    together = 0
    for members in graph.gpus.values():
        own = [leaf for member in members for leaf in graph.nics.get(member, ())]
        together += len(own) != len(set(own))
        for number, member in enumerate(members):
            votes_of = graph.nics.get(member, ())
            for leaf in votes_of:
                votes[leaf][number] += 1
    if per_node < 2 or not graph.few(together * per_node):
        return None
    return {leaf: counts.most_common(1)[0][0] for leaf, counts in votes.items()}


def _tree(graph: GraphFound, unit: DomainSpec) -> Shape | None:
    """Return a leaf-spine of two levels, or a fat tree of three."""
    nic = _nic(graph)
    of_host = {
        host: commonest(leaf for member in members for leaf in graph.nics.get(member, ()))
        for host, members in graph.gpus.items()
    }
    on_leaf: dict[str, list[str]] = defaultdict(list)
    for host in chain.from_iterable(graph.domains.values()):
        leaf = of_host[host]
        if leaf is None:
            return None
        on_leaf[leaf].append(host)
    size = commonest(map(len, on_leaf.values())) or 0
    up = _uplinks(graph, on_leaf, nic) if nic is not None else None
    if nic is None or up is None or not size:
        return None
    down = size * unit.gpus_per_node * nic.count
    base = ScaleOutSpec("leaf-spine", as_read("leaf-spine", nic.fabric), nic.count, size, up[1], down / up[0])
    if "core" not in graph.levels.values():
        hosts = _filled(graph, on_leaf.values(), size, unit.nodes)
        spines = dict.fromkeys(name for leaf in on_leaf for name in graph.above.get(leaf, ()))
        names = {leaf: f"f.l{number}" for number, leaf in enumerate(on_leaf)}
        names |= {spine: f"f.s{number}" for number, spine in enumerate(spines)}
        return None if hosts is None else Shape(replace(base, spines=len(spines)), hosts, names)
    return _fat_tree(graph, base, on_leaf, unit, nic)


def _fat_tree(
    graph: GraphFound, base: ScaleOutSpec, on_leaf: Mapping[str, list[str]], unit: DomainSpec, nic: RawLink
) -> Shape | None:
    """Return a fat tree: leaves on the spines of their pod, the same spine of every pod on the same cores."""
    joined: UnionFind[str] = UnionFind()
    for leaf in on_leaf:
        joined.union(leaf, *graph.above.get(leaf, ()))
    pods: dict[str, list[str]] = defaultdict(list)
    for leaf in on_leaf:
        pods[joined[leaf]].append(leaf)
    per_pod = commonest(map(len, pods.values())) or 0
    spines = {
        root: list(dict.fromkeys(spine for leaf in own for spine in graph.above.get(leaf, ())))
        for root, own in pods.items()
    }
    up = _uplinks(graph, chain.from_iterable(spines.values()), nic)
    if up is None:
        return None
    # cores that a spine of one pod and one of another have in common make these the same spine
    groups: UnionFind[str] = UnionFind()
    for spine in chain.from_iterable(spines.values()):
        groups.union(spine, *graph.above.get(spine, ()))
    roots = list(dict.fromkeys(groups[spine] for own in spines.values() for spine in own))
    number = {root: place for place, root in enumerate(roots)}
    cores: Counter[str] = Counter()
    names: dict[str, str] = {}
    for core in (name for name, kind in graph.levels.items() if kind == "core"):
        group = groups[core]
        if group not in number:
            return None
        names[core] = f"f.c{number[group]}.{cores[group]}"
        cores[group] += 1
    for pod, (root, own) in enumerate(pods.items()):
        names |= {leaf: f"f.p{pod}.l{place}" for place, leaf in enumerate(own)}
        names |= {spine: f"f.p{pod}.s{number[groups[spine]]}" for spine in spines[root]}
    leaves = [
        on_leaf[leaf] if leaf else []
        for own in pods.values()
        for leaf in (*own, *[""] * (per_pod - len(own)))
    ]
    while leaves and not leaves[-1]:
        leaves.pop()
    filled = _filled(graph, leaves, base.nodes_per_pod, unit.nodes)
    if filled is None or len(set(names.values())) != len(names) or len(set(cores.values())) != 1:
        return None
    up_leaf = base.nodes_per_pod * unit.gpus_per_node * base.nic_links_per_gpu / base.oversubscription
    out = replace(
        base,
        kind="fat-tree",
        fabric=replace(base.fabric, name=base.fabric.name.replace("leaf-spine", "fat-tree")),
        nodes_per_pod=base.nodes_per_pod * per_pod,
        leaves_per_pod=per_pod,
        spines=len(roots),
        cores=max(cores.values()),
        core_oversubscription=per_pod * up_leaf / len(roots) / up[0],
    )
    return Shape(out, filled, names)


def as_read(kind: str, nic: FabricSpec) -> FabricSpec:
    """Return a NIC as a cluster file describes it: by the kind of fabric and its rate."""
    figure = nic.link_bytes_per_s
    text = figure.text or format_quantity(figure.value, "byte/s", 12)
    return FabricSpec(f"{kind} {text}", "scale-out", replace(figure, text=text), nic.latency_s)
