"""From a completed cluster to its specification: domains and a fabric where it is homogeneous, else a raw graph.

The commonest host, leaf and spine give the cluster as it was meant. It is built, and the graph compared with it link
by link: what is missing or slow is broken, and anything else that differs leaves the graph as it was found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from networkx.utils import UnionFind

from topology.base.errors import InputError
from topology.base.units import format_quantity
from topology.build import build_cluster, check_cluster, raw_cluster_spec
from topology.cluster import ClusterSpec
from topology.fabrics.fabric import ScaleOutSpec
from topology.fabrics.fat_tree import FatTreeFabric
from topology.fabrics.leaf_spine import LeafSpineFabric
from topology.fabrics.rail import RailFabric
from topology.files.plausible import check_raw_links
from topology.graph import SCALE_UP_KINDS
from topology.importers.completed import Completed, bytes_per_s, rate_of
from topology.importers.found import commonest
from topology.spec import FabricSpec, Fault, RawLink, RawTopology
from topology.structures.domain import DomainSpec
from topology.structures.mesh import MeshDomain
from topology.structures.switch import ChipDomain, SwitchDomain

_MOST_LACKING = 0.02
"""Maximum share of missing GPUs, and of missing links, for a graph that counts as regular with faults."""
_MOST_LISTED = 8
_SAME = 1e-9
_ABSENT = "(absent)"
_LEVELS = ("leaf", "spine", "core")


@dataclass(frozen=True)
class Built:
    """A cluster's specification.

    ``hosts`` gives the hosts of a regular form in its order, ``anomalies`` what is broken or unusual in it;
    ``rates_unusual`` is set where rates are not those that the catalog knows for such parts.
    """

    spec: ClusterSpec
    hosts: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    rates_unusual: bool = False


def build(completed: Completed) -> Built:
    """Return the specification of a cluster.

    Raises
    ------
    InputError
        If its GPUs are not all connected, or its hosts differ where nothing says how they are cabled.
    """
    raw, place, notes = completed.raw, completed.place, list[str]()
    unjoined = not completed.switched and len(completed.domains) > 1
    try:
        short = _homogeneous(completed, notes)
        if short is not None and not unjoined:
            check_cluster(short[0], place)
    except InputError:
        short = None
    if unjoined:
        if short is None or short[0].faults:
            raise InputError(
                f"{place}: names no switches, and its hosts differ or have only PCIe; add the fabric's file."
            )
        short = check_cluster(replace(short[0], scale_out=_design(completed)), place), short[1]
    try:
        check_raw_links(raw, "rates")
    except InputError as error:
        notes.append(f"{error.problem} Kept as in the file.")
        unusual = True
    else:
        unusual = False
    spec, hosts = short or (raw_cluster_spec(completed.name, raw, _unlinked(raw, notes), place), [])
    return Built(spec, tuple(hosts), tuple(notes), unusual)


def _unlinked(raw: RawTopology, notes: list[str]) -> tuple[Fault, ...]:
    """Return as broken the GPUs without a scale-up link where all others of their domain are joined by some."""
    domains = {node.id: node.domain for node in raw.nodes if node.kind in SCALE_UP_KINDS}
    gpus = {node.id for node in raw.nodes if node.kind == "gpu"}
    joined: UnionFind[str] = UnionFind(domains)
    for link in raw.links:
        if domains.keys() >= set(link.between):
            joined.union(*link.between)
    faults = []
    for domain in dict.fromkeys(domains.values()):
        groups = [group & gpus for group in joined.to_sets() if domains[min(group)] == domain]
        alone = sorted(gpu for group in groups if len(group) == 1 for gpu in group)
        if alone and sum(len(group) > 1 for group in groups) == 1:
            faults += [Fault(gpu=gpu) for gpu in alone]
            notes += [
                f"{gpu} has no scale-up link, unlike other GPUs of its domain: broken." for gpu in alone
            ]
    return tuple(faults)


def _design(completed: Completed) -> ScaleOutSpec | None:
    """Return the fabric between domains that no file cables: the design of the named system."""
    answers, design = completed.answers, completed.answers.parts.design
    if design is None or answers.nic is None:
        return None
    ratio = answers.options.oversubscription
    if answers.nic == design.fabric and ratio is None:
        return design
    return replace(
        design,
        fabric=_as_read(design.kind, answers.nic),
        nic_links_per_gpu=answers.nics_per_gpu,
        oversubscription=design.oversubscription if ratio is None else ratio,
    )


@dataclass
class _Graph:
    """A graph by hosts and domains, with links by their lower end.

    ``up`` has the scale-up links of a GPU, ``nics`` those to leaves, ``above`` those of a switch to the level above.
    """

    gpus: dict[str, list[str]]
    domains: dict[str, list[str]]
    kinds: dict[str, str]
    up: dict[str, dict[str, RawLink]] = field(default_factory=lambda: defaultdict(dict))
    nics: dict[str, dict[str, RawLink]] = field(default_factory=lambda: defaultdict(dict))
    above: dict[str, dict[str, RawLink]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def per_node(self) -> int:
        return commonest(map(len, self.gpus.values())) or 0

    def of_kind(self, kind: str) -> list[str]:
        return [name for name, own in self.kinds.items() if own == kind]


@dataclass(frozen=True)
class _Shape:
    """A fabric, its hosts in order (absent ones too), and what its switches are called in the short form."""

    out: ScaleOutSpec | None
    hosts: list[str]
    names: dict[str, str]


def _homogeneous(completed: Completed, notes: list[str]) -> tuple[ClusterSpec, list[str]] | None:
    """Return a short form, whose domains nothing may join, and the hosts in its order."""
    graph = _graph(completed)
    unit = None if graph is None else _unit(graph, completed)
    if graph is None or unit is None:
        return None
    shape: _Shape | None = _Shape(None, list(graph.gpus), {})
    if graph.nics:
        shape = None if len(graph.domains) == 1 else _rails(graph) or _tree(graph)
    if shape is None:
        return None
    spec, names = _spec_of(completed.name, graph, unit, shape)
    faults = _faults(spec, completed.raw.links, names, notes)
    if faults:
        spec = replace(spec, faults=faults)
        build_cluster(spec)
    return None if faults is None else (spec, shape.hosts)


def _graph(completed: Completed) -> _Graph | None:
    """Return a graph by hosts and domains, None where it has what no short form has."""
    kinds = {node.id: node.kind for node in completed.raw.nodes}
    gpus: dict[str, list[str]] = defaultdict(list)
    domains: dict[str, dict[str, None]] = defaultdict(dict)
    for node in completed.raw.nodes:
        if node.kind == "gpu" and node.node and node.domain:
            gpus[node.node].append(node.id)
            domains[node.domain][node.node] = None
        elif node.kind not in ("switch", *_LEVELS):
            return None
    if not gpus or sum(map(len, domains.values())) != len(gpus):
        return None
    # a domain's hosts follow each other
    ordered = {host: gpus[host] for own in domains.values() for host in own}
    graph = _Graph(ordered, {label: list(own) for label, own in domains.items()}, kinds)
    for link in completed.raw.links:
        for one, other in (link.between, link.between[::-1]):
            if kinds[one] == "gpu":
                (graph.nics if kinds[other] in _LEVELS else graph.up)[one][other] = link
            elif (kinds[one], kinds[other]) in (("leaf", "spine"), ("spine", "core")):
                graph.above[one][other] = link
    return graph


def _commonest_link(ends: Mapping[str, Mapping[str, RawLink]]) -> RawLink | None:
    """Return a link of the commonest rate and count."""
    links = {(link.count, *rate_of(link.fabric)): link for own in ends.values() for link in own.values()}
    usual = commonest((link.count, *rate_of(link.fabric)) for own in ends.values() for link in own.values())
    return None if usual is None else links[usual]


def _unit(graph: _Graph, completed: Completed) -> DomainSpec | None:
    """Return the domain that most are, None where the GPUs of no domain are linked alike."""
    seen: Counter[tuple[str, tuple[int, ...], int]] = Counter()
    for hosts in graph.domains.values():
        own = [gpu for host in hosts for gpu in graph.gpus[host]]
        if kind := _structure(graph, own):
            seen[(*kind, len(own))] += 1
    link, parts = _commonest_link(graph.up), completed.answers.parts
    if not seen or link is None:
        return None
    (structure, counts, gpus), _ = seen.most_common(1)[0]
    system, per_node, fabric = parts.system, graph.per_node, link.fabric
    if (
        system is not None
        and parts.name is not None
        and (system.structure, system.gpus_per_node) == (structure, per_node)
        and rate_of(system.fabric) == rate_of(fabric)
        and counts == _links_of(system)
    ):
        return replace(system, gpus=gpus)
    rate = format_quantity(fabric.link_bytes_per_s.value, "byte/s")
    known: dict[str, Any] = {
        "part": "custom",
        "title": f"domain of {gpus} {parts.gpu.title}",
        "status": "user",
        "gpu": parts.gpu,
        "gpus": gpus,
        "gpus_per_node": per_node,
        "fabric": replace(fabric, name=f"scale-up {rate}"),
        "nodes_per_rack": system.nodes_per_rack if system and system.gpus_per_node == per_node else None,
    }
    if structure == "mesh":
        return MeshDomain(**known, links_per_neighbour=counts[0])
    return SwitchDomain(**known, links_per_switch=counts)


def _links_of(system: DomainSpec) -> tuple[int, ...]:
    """Return the links of a GPU to each chip, most first, or to a peer."""
    if isinstance(system, MeshDomain):
        return (system.links_per_neighbour,)
    return tuple(sorted(system.links_per_switch, reverse=True)) if isinstance(system, ChipDomain) else ()


def _structure(graph: _Graph, gpus: Sequence[str]) -> tuple[str, tuple[int, ...]] | None:
    """Return the structure of some GPUs with the links of each to a chip or peer, None where they differ."""
    ends: dict[str, list[int]] = defaultdict(list)
    for gpu in gpus:
        for other, link in graph.up.get(gpu, {}).items():
            ends[other].append(link.count)
    if not ends or any(len(set(counts)) > 1 for counts in ends.values()):
        return None
    counts = tuple(sorted((own[0] for own in ends.values()), reverse=True))
    if ends.keys().isdisjoint(gpus) and all(len(own) == len(gpus) for own in ends.values()):
        return "switch", counts
    mesh = ends.keys() == set(gpus) and all(len(own) == len(gpus) - 1 for own in ends.values())
    return ("mesh", counts[:1]) if mesh and len(set(counts)) == 1 else None


def _filled(graph: _Graph, groups: Iterable[Sequence[str]], size: int) -> list[str]:
    """Return the hosts of groups; where a host is a domain, all groups but the last are filled up to ``size``."""
    rows = list(groups)
    pad = len(graph.domains) == len(graph.gpus)
    return [
        host
        for number, row in enumerate(rows)
        for host in (*row, *[_ABSENT] * (pad and number < len(rows) - 1) * (size - len(row)))
    ]


def _uplinks(graph: _Graph, switches: Iterable[str], nic: RawLink) -> float | None:
    """Return how many links like a NIC's most of some switches have up: those of other rates count by their rate."""
    one = nic.fabric.link_bytes_per_s.value
    return commonest(
        round(sum(bytes_per_s(link) / one for link in own.values()), 6)
        for name in switches
        if (own := graph.above.get(name))
    )


def _rails(graph: _Graph) -> _Shape | None:
    """Return rails: GPU i of each host of a pod on its leaf i, all leaves on all spines."""
    nic = _commonest_link(graph.nics)
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    pods: UnionFind[str] = UnionFind()
    together = 0
    for host, members in graph.gpus.items():
        own = [leaf for member in members for leaf in graph.nics.get(member, ())]
        together += len(own) != len(set(own))
        pods.union(f"host {host}", *(f"leaf {leaf}" for leaf in own))
        for place, member in enumerate(members):
            for leaf in graph.nics.get(member, ()):
                votes[leaf][place] += 1
    rail = {leaf: counts.most_common(1)[0][0] for leaf, counts in votes.items()}
    spines = graph.of_kind("spine")
    if graph.per_node < 2 or together > _MOST_LACKING * len(graph.gpus) or graph.of_kind("core"):
        return None
    if nic is None or (up := _uplinks(graph, rail, nic)) is None:
        return None
    groups: dict[str, list[str]] = defaultdict(list)
    for host in graph.gpus:
        groups[pods[f"host {host}"]].append(host)
    size = commonest(map(len, groups.values())) or 0
    number = {root: place for place, root in enumerate(groups)}
    names = {leaf: f"f.p{number[pods[f'leaf {leaf}']]}.l{place}" for leaf, place in rail.items()}
    names |= {spine: f"f.s{place}" for place, spine in enumerate(spines)}
    out = RailFabric(
        fabric=_as_read("rail", nic.fabric),
        nic_links_per_gpu=nic.count,
        nodes_per_pod=size,
        spines=len(spines),
        oversubscription=size * nic.count / up,
    )
    return _Shape(out, _filled(graph, groups.values(), size), names)


def _tree(graph: _Graph) -> _Shape | None:
    """Return a leaf-spine of two levels, or a fat tree of three."""
    nic = _commonest_link(graph.nics)
    on_leaf: dict[str, list[str]] = defaultdict(list)
    for host, members in graph.gpus.items():
        leaf = commonest(leaf for member in members for leaf in graph.nics.get(member, ()))
        if leaf is None:
            return None
        on_leaf[leaf].append(host)
    size = commonest(map(len, on_leaf.values()))
    if nic is None or not size or (up := _uplinks(graph, on_leaf, nic)) is None:
        return None
    kind = "fat-tree" if graph.of_kind("core") else "leaf-spine"
    spines = dict.fromkeys(spine for leaf in on_leaf for spine in graph.above.get(leaf, ()))
    known: dict[str, Any] = {
        "fabric": _as_read(kind, nic.fabric),
        "nic_links_per_gpu": nic.count,
        "oversubscription": size * graph.per_node * nic.count / up,
    }
    if kind == "fat-tree":
        return _fat_tree(graph, known, size, on_leaf, up, nic)
    out = LeafSpineFabric(**known, nodes_per_pod=size, spines=len(spines))
    names = {leaf: f"f.l{place}" for place, leaf in enumerate(on_leaf)}
    names |= {spine: f"f.s{place}" for place, spine in enumerate(spines)}
    return _Shape(out, _filled(graph, on_leaf.values(), size), names)


def _fat_tree(
    graph: _Graph,
    known: Mapping[str, Any],
    per_leaf: int,
    on_leaf: Mapping[str, list[str]],
    up: float,
    nic: RawLink,
) -> _Shape | None:
    """Return a fat tree: leaves on the spines of their pod, spine i of every pod on the same cores."""
    pods: UnionFind[str] = UnionFind(on_leaf)
    planes: UnionFind[str] = UnionFind()
    spines: dict[str, dict[str, None]] = defaultdict(dict)
    leaves: dict[str, list[str]] = defaultdict(list)
    for leaf in on_leaf:
        pods.union(leaf, *graph.above.get(leaf, ()))
    for leaf in on_leaf:
        leaves[pods[leaf]].append(leaf)
        for spine in graph.above.get(leaf, ()):
            spines[pods[leaf]][spine] = None
            planes.union(spine, *graph.above.get(spine, ()))
    every = list(chain(*spines.values()))
    plane = {root: place for place, root in enumerate(dict.fromkeys(planes[spine] for spine in every))}
    per_pod, names, cores = commonest(map(len, leaves.values())) or 0, dict[str, str](), Counter[int]()
    for core in graph.of_kind("core"):
        if (root := planes[core]) not in plane:
            return None
        names[core] = f"f.c{plane[root]}.{cores[plane[root]]}"
        cores[plane[root]] += 1
    for number, (pod, own) in enumerate(leaves.items()):
        names |= {leaf: f"f.p{number}.l{place}" for place, leaf in enumerate(own)}
        names |= {spine: f"f.p{number}.s{plane[planes[spine]]}" for spine in spines[pod]}
    up_spine = _uplinks(graph, every, nic)
    if up_spine is None or any(len(own) != per_pod for own in list(leaves.values())[:-1]):
        return None
    out = FatTreeFabric(
        **known,
        nodes_per_pod=per_leaf * per_pod,
        leaves_per_pod=per_pod,
        spines=len(plane),
        cores=max(cores.values()),
        core_oversubscription=per_pod * up / len(plane) / up_spine,
    )
    groups = [on_leaf[leaf] for own in leaves.values() for leaf in own]
    return _Shape(out, _filled(graph, groups, per_leaf), names)


def _as_read(kind: str, nic: FabricSpec) -> FabricSpec:
    """Return a NIC as a cluster file describes it: by the kind of fabric and its rate."""
    figure = nic.link_bytes_per_s
    text = figure.text or format_quantity(figure.value, "byte/s", 12)
    return replace(nic, name=f"{kind} {text}", kind="scale-out", link_bytes_per_s=replace(figure, text=text))


def _spec_of(name: str, graph: _Graph, unit: DomainSpec, shape: _Shape) -> tuple[ClusterSpec, dict[str, str]]:
    """Return the cluster without faults, and what each node of the graph is called in it."""
    label = {host: label for label, hosts in graph.domains.items() for host in hosts}
    domains: list[list[str]] = []
    before = None
    for host in shape.hosts:
        own = label.get(host)
        if own is None or own != before:
            domains.append([])
        domains[-1].append(host)
        before = own
    names = dict(shape.names)
    links = unit.links_per_switch if isinstance(unit, ChipDomain) else ()
    by_rank = sorted(range(len(links)), key=lambda chip: -links[chip])
    for number, hosts in enumerate(domains):
        chips: dict[str, int] = {}
        for place, host in enumerate(hosts):
            for position, member in enumerate(graph.gpus.get(host, ())):
                names[member] = f"d{number}.n{place}.g{position}"
                for chip, link in graph.up.get(member, {}).items() if unit.switched else ():
                    chips[chip] = max(link.count, chips.get(chip, 0))
        ranked = sorted(chips, key=lambda chip: -chips[chip])
        names |= {chip: f"d{number}.s{rank}" for rank, chip in zip(by_rank, ranked, strict=False)}
    specs = tuple(replace(unit, gpus=unit.gpus_per_node * len(hosts)) for hosts in domains)
    return ClusterSpec(name=name, domains=specs, scale_out=shape.out), names


def _faults(
    spec: ClusterSpec, links: Sequence[RawLink], names: Mapping[str, str], notes: list[str]
) -> tuple[Fault, ...] | None:
    """Return what the graph lacks of the cluster, None where it has more, or lacks too much."""
    cluster = build_cluster(spec)
    wiring = cluster.wiring
    ends = [tuple(names.get(end, "") for end in link.between) for link in links]
    at = np.full(len(links), -1)
    known = np.array([a in wiring.number and b in wiring.number for a, b in ends], dtype=bool)
    at[known] = wiring.find([(a, b) for (a, b), one in zip(ends, known, strict=True) if one])
    found = set(names.values())
    gone = [gpu.id for gpu in cluster.gpus if gpu.id not in found]
    if (at < 0).any():
        stray = links[int(np.argmax(at < 0))]
        kind = spec.scale_out.kind if spec.scale_out else spec.domains[0].structure
        notes.append(f"Listed link by link: {' to '.join(stray.between)} does not fit a regular {kind}.")
        return None
    rate, latency = np.zeros(len(wiring.a)), wiring.latency_s.copy()
    np.add.at(rate, at, [bytes_per_s(link) for link in links])
    latency[at] = [link.fabric.latency_s.value for link in links]
    out = np.isin(np.arange(len(wiring.names)), [wiring.number[gpu] for gpu in gone])
    stays, factor = ~(out[wiring.a] | out[wiring.b]), rate / wiring.bytes_per_s
    if (stays & ((factor > 1 + _SAME) | (abs(latency / wiring.latency_s - 1) > _SAME))).any():
        return None
    lacking = np.flatnonzero(stays & (factor < 1 - _SAME)).tolist()
    if len(lacking) > _MOST_LACKING * len(factor) or len(gone) > _MOST_LACKING * spec.gpus:
        return None
    called = {short: long for long, short in names.items()}
    faults = [Fault(gpu=gpu) for gpu in gone]
    lines = [f"a GPU is absent: {gpu} is broken." for gpu in gone]
    for link in lacking:
        a, b = wiring.names[wiring.a[link]], wiring.names[wiring.b[link]]
        faults.append(Fault(link=(a, b), factor=float(factor[link])))
        part = f"at {factor[link]:.3g} of the rate of the others" if factor[link] else "no link"
        lines.append(f"{called.get(a, a)} to {called.get(b, b)}: {part}: [{a}, {b}] is broken.")
    if faults:
        notes.append(
            f"Regular except for {len(faults)} entries under `broken:` (absent GPUs, missing or slow links)."
        )
        notes += lines[:_MOST_LISTED]
        if len(lines) > _MOST_LISTED:
            notes.append(f"{len(lines) - _MOST_LISTED} more lines of `broken:`.")
    return tuple(faults)
