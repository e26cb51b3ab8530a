"""From a completed graph to its specification: domains and a fabric where it is homogeneous, else a raw graph.

The commonest host, leaf and spine give the cluster as it was meant. It is built, and the graph compared with it link
by link: what is missing or slow is broken, and anything else that differs leaves the graph as it was found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from topology.base.errors import InputError
from topology.base.units import format_quantity
from topology.build import build_cluster, check_cluster, raw_cluster_spec
from topology.cluster import ClusterSpec
from topology.fabrics.fabric import ScaleOutSpec
from topology.fabrics.fat_tree import FatTreeFabric
from topology.fabrics.leaf_spine import LeafSpineFabric
from topology.fabrics.rail import RailFabric
from topology.graph import SCALE_UP_KINDS
from topology.importers.answers import Answers
from topology.importers.draft import Draft, bytes_per_s, rate_of
from topology.importers.found import commonest, groups_of
from topology.spec import FabricSpec, Fault, RawLink, RawNode, RawTopology
from topology.structures.domain import DomainSpec
from topology.structures.mesh import MeshDomain
from topology.structures.switch import ChipDomain, SwitchDomain

_MAX_LACKING_SHARE = 0.02
"""Maximum share of missing GPUs, and of missing links, for a graph that counts as regular with faults."""
_MAX_LISTED = 8
"""Faults that are named one by one."""
_RATE_TOLERANCE = 1e-9
"""Relative difference of rates and latencies that rounding leaves."""
_ABSENT = "(absent)"
_ABOVE = {"gpu": "leaf", "leaf": "spine", "spine": "core"}


def build(name: str, draft: Draft, raw: RawTopology, *, cabled: bool) -> tuple[ClusterSpec, tuple[str, ...]]:
    """Return the specification of a cluster, ``raw`` its graph, and the hosts of a regular form in its order.

    ``cabled`` is unset where no file says how domains are connected, which then are as in the named system.

    Raises
    ------
    InputError
        If its GPUs are not all connected, or its hosts differ where nothing says how they are cabled.
    """
    answers = draft.answers
    by_design = not cabled and len(draft.domains) > 1
    try:
        short = _regular(name, draft, raw)
        if short is not None and not by_design:
            check_cluster(short[0], answers.place)
    except InputError:
        short = None
    if by_design:
        if short is None or short[0].faults:
            problem = "names no switches, and its hosts differ or have only PCIe; add the fabric's file"
            raise InputError(f"{answers.place}: {problem}.")
        short = check_cluster(replace(short[0], scale_out=_design(answers)), answers.place), short[1]
    if short is not None:
        return short[0], tuple(short[1])
    return raw_cluster_spec(name, raw, _unlinked(raw, answers), answers.place), ()


def scale_up_groups(raw: RawTopology) -> list[list[RawNode]]:
    """Return the GPUs of a graph by the groups that scale-up links join."""
    nodes = {node.id: node for node in raw.nodes if node.kind in SCALE_UP_KINDS}
    joins = (link.between for link in raw.links if nodes.keys() >= set(link.between))
    groups = groups_of((name for name, node in nodes.items() if node.kind == "gpu"), joins)
    return [[nodes[name] for name in group] for group in groups]


def _unlinked(raw: RawTopology, answers: Answers) -> tuple[Fault, ...]:
    """Return as broken the GPUs without a scale-up link where all others of their domain are joined by some."""
    groups = scale_up_groups(raw)
    several = Counter(group[0].domain for group in groups if len(group) > 1)
    alone = [group[0] for group in groups if len(group) == 1 == several[group[0].domain]]
    for gpu in alone:
        answers.say("irregular", f"{gpu.id} has no scale-up link, unlike other GPUs of its domain: broken.")
    return tuple(Fault(gpu=gpu.id) for gpu in alone)


def _design(answers: Answers) -> ScaleOutSpec | None:
    """Return the fabric between domains that no file cables: the design of the named system."""
    design, ratio = answers.design, answers.options.oversubscription
    if design is None or (answers.nic == design.fabric and ratio is None):
        return design
    return replace(
        design,
        fabric=_as_read(design.kind, answers.nic),
        nic_links_per_gpu=answers.nics_per_gpu,
        oversubscription=design.oversubscription if ratio is None else answers.oversubscription,
    )


class _Graph:
    """A graph by hosts and domains, whose hosts follow each other.

    ``inside`` has the scale-up links of each GPU, ``above`` those of each node to the switches one level above.
    """

    def __init__(self, draft: Draft, raw: RawTopology) -> None:
        self.kinds = {node.id: node.kind for node in raw.nodes}
        domains = draft.domains.values()
        self.domains = [list(hosts) for hosts in domains]
        self.gpus = {
            host: [gpu.id for gpu in members] for hosts in domains for host, members in hosts.items()
        }
        self.per_node = commonest(map(len, self.gpus.values())) or 0
        self.inside: dict[str, dict[str, RawLink]] = {name: {} for name in self.kinds}
        self.above: dict[str, dict[str, RawLink]] = {name: {} for name in self.kinds}
        for link in raw.links:
            for name, neighbour in (link.between, link.between[::-1]):
                if self.kinds[name] == "gpu" and self.kinds[neighbour] in SCALE_UP_KINDS:
                    self.inside[name][neighbour] = link
                elif _ABOVE.get(self.kinds[name]) == self.kinds[neighbour]:
                    self.above[name][neighbour] = link

    def of_kind(self, kind: str) -> list[str]:
        """Return the nodes of a kind."""
        return [name for name, node_kind in self.kinds.items() if node_kind == kind]

    def over(self, names: Iterable[str]) -> list[str]:
        """Return the switches above some nodes, each once."""
        return list(dict.fromkeys(switch for name in names for switch in self.above[name]))

    def uplinks(self, switches: Iterable[str], nic: RawLink) -> float | None:
        """Return how many links like a NIC's most switches have up: those of other rates count by their rate."""
        rate = nic.fabric.link_bytes_per_s.value
        return commonest(
            round(sum(bytes_per_s(link) / rate for link in links.values()), 6)
            for name in switches
            if (links := self.above[name])
        )


@dataclass(frozen=True)
class _Shape:
    """A fabric, its hosts in order (absent ones too), and what its switches are called in the short form."""

    out: ScaleOutSpec | None
    hosts: list[str]
    names: dict[str, str]


def _regular(name: str, draft: Draft, raw: RawTopology) -> tuple[ClusterSpec, list[str]] | None:
    """Return the short form of a graph, whose domains nothing may join, and the hosts in its order."""
    graph, answers = _Graph(draft, raw), draft.answers
    strange = set(graph.kinds.values()) - {"switch", *_ABOVE, *_ABOVE.values()}
    if strange or sum(map(len, graph.domains)) != len(graph.gpus):
        return None
    unit = _unit(graph, answers)
    shape: _Shape | None = _Shape(None, list(graph.gpus), {})
    if graph.over(graph.of_kind("gpu")):
        shape = _fabric(graph) if len(graph.domains) > 1 else None
    if unit is None or shape is None:
        return None
    spec, names = _named(name, graph, unit, shape)
    faults = _faults(spec, raw.links, names, answers)
    if faults:
        spec = replace(spec, faults=faults)
        build_cluster(spec)
    return None if faults is None else (spec, shape.hosts)


def _commonest_link(links: Iterable[RawLink]) -> RawLink | None:
    """Return a link of the commonest rate and count."""
    alike = [((link.count, *rate_of(link.fabric)), link) for link in links]
    usual = commonest(key for key, _ in alike)
    return dict(alike)[usual] if usual is not None else None


def _unit(graph: _Graph, answers: Answers) -> DomainSpec | None:
    """Return the domain that most are, None where the GPUs of no domain are linked alike."""
    votes: Counter[tuple[bool, tuple[int, ...], int]] = Counter()
    for hosts in graph.domains:
        gpus = [gpu for host in hosts for gpu in graph.gpus[host]]
        alike = {
            tuple(sorted((link.count for link in graph.inside[gpu].values()), reverse=True)) for gpu in gpus
        }
        counts, direct = alike.pop(), graph.inside[gpus[0]].keys() <= set(gpus)
        if counts and not alike and not (direct and len(set(counts)) > 1):
            votes[direct, counts[:1] if direct else counts, len(gpus)] += 1
    link = _commonest_link(link for links in graph.inside.values() for link in links.values())
    if not votes or link is None:
        return None
    (direct, counts, size), _ = votes.most_common(1)[0]
    system = answers.system if answers.system and answers.system.gpus_per_node == graph.per_node else None
    rate = format_quantity(link.fabric.link_bytes_per_s.value, "byte/s")
    known: dict[str, Any] = {
        "part": "custom",
        "title": f"domain of {size} {answers.gpu.title}",
        "status": "user",
        "gpu": answers.gpu,
        "gpus": size,
        "gpus_per_node": graph.per_node,
        "fabric": replace(link.fabric, name=f"scale-up {rate}"),
        "nodes_per_rack": None if system is None else system.nodes_per_rack,
    }
    if direct:
        custom: DomainSpec = MeshDomain(**known, links_per_neighbour=counts[0])
    else:
        custom = SwitchDomain(**known, links_per_switch=counts)
    is_named = system is not None and answers.name is not None and _links(system) == _links(custom)
    return replace(system, gpus=size) if system is not None and is_named else custom


def _links(domain: DomainSpec) -> tuple[object, ...]:
    """Return what tells the links of a mesh or of switch chips from others."""
    counts = domain.links_per_neighbour if isinstance(domain, MeshDomain) else 0
    chips = sorted(domain.links_per_switch) if isinstance(domain, SwitchDomain) else []
    return domain.structure, counts, chips, rate_of(domain.fabric)


def _fabric(graph: _Graph) -> _Shape | None:
    """Return rails (GPU i of each host of a pod on its leaf i), a leaf-spine of two levels, or a fat tree."""
    leaves_of = {
        host: [leaf for gpu in members for leaf in graph.above[gpu]] for host, members in graph.gpus.items()
    }
    together = sum(len(members) != len(set(members)) for members in leaves_of.values())
    cores = graph.of_kind("core")
    rails = graph.per_node > 1 and not cores and together <= _MAX_LACKING_SHARE * len(graph.gpus)
    if not rails:
        leaves_of = {
            host: [leaf] for host, members in leaves_of.items() if (leaf := commonest(members)) is not None
        }
    host_of = {members[0]: host for host, members in graph.gpus.items() if host in leaves_of}
    joins = ([gpu, *leaves_of[host]] for gpu, host in host_of.items())
    groups = [[host_of[gpu] for gpu in members] for members in groups_of(host_of, joins)]
    leaves = list(dict.fromkeys(leaf for members in groups for host in members for leaf in leaves_of[host]))
    nic = _commonest_link(link for gpu in graph.of_kind("gpu") for link in graph.above[gpu].values())
    up = None if nic is None else graph.uplinks(leaves, nic)
    if nic is None or up is None or len(host_of) < len(graph.gpus):
        return None
    size = commonest(map(len, groups)) or 0
    known: dict[str, Any] = {
        "nic_links_per_gpu": nic.count,
        "oversubscription": size * nic.count / up * (1 if rails else graph.per_node),
    }
    if cores:
        return _fat_tree(graph, known, dict(zip(leaves, groups, strict=True)), cores, up, nic)
    spines = graph.over(leaves)
    known |= {"nodes_per_pod": size, "spines": len(spines)}
    names = {spine: f"f.s{place}" for place, spine in enumerate(spines)}
    hosts = _filled(graph, groups, size)
    if not rails:
        names |= {leaf: f"f.l{place}" for place, leaf in enumerate(leaves)}
        return _Shape(LeafSpineFabric(fabric=_as_read("leaf-spine", nic.fabric), **known), hosts, names)
    for pod, members in enumerate(groups):
        places: dict[str, list[int]] = defaultdict(list)
        for host in members:
            for place, gpu in enumerate(graph.gpus[host]):
                for leaf in graph.above[gpu]:
                    places[leaf].append(place)
        names |= {leaf: f"f.p{pod}.l{commonest(of_gpus)}" for leaf, of_gpus in places.items()}
    return _Shape(RailFabric(fabric=_as_read("rail", nic.fabric), **known), hosts, names)


def _fat_tree(
    graph: _Graph,
    known: Mapping[str, Any],
    hosts_on: Mapping[str, list[str]],
    cores: Sequence[str],
    up: float,
    nic: RawLink,
) -> _Shape | None:
    """Return a fat tree: leaves on the spines of their pod, spine i of every pod on the same cores."""
    pods = groups_of(hosts_on, ([leaf, *graph.above[leaf]] for leaf in hosts_on))
    spines = [spine for pod in pods for spine in graph.over(pod)]
    planes = groups_of([*spines, *cores], ([spine, *graph.above[spine]] for spine in spines))
    up_spine, per_pod = graph.uplinks(spines, nic), commonest(map(len, pods)) or 0
    lone = any(plane[0] in cores for plane in planes)
    if up_spine is None or lone or any(len(pod) != per_pod for pod in pods[:-1]):
        return None
    plane_of = {name: number for number, plane in enumerate(planes) for name in plane}
    names: dict[str, str] = {}
    for number, pod in enumerate(pods):
        names |= {leaf: f"f.p{number}.l{place}" for place, leaf in enumerate(pod)}
        names |= {spine: f"f.p{number}.s{plane_of[spine]}" for spine in graph.over(pod)}
    of_planes = [[name for name in plane if name not in names] for plane in planes]
    names |= {
        core: f"f.c{plane_of[core]}.{place}"
        for plane_cores in of_planes
        for place, core in enumerate(plane_cores)
    }
    per_leaf = commonest(map(len, hosts_on.values())) or 0
    out = FatTreeFabric(
        **known,
        fabric=_as_read("fat-tree", nic.fabric),
        nodes_per_pod=per_leaf * per_pod,
        leaves_per_pod=per_pod,
        spines=len(planes),
        cores=max(map(len, of_planes)),
        core_oversubscription=per_pod * up / len(planes) / up_spine,
    )
    return _Shape(out, _filled(graph, [hosts_on[leaf] for pod in pods for leaf in pod], per_leaf), names)


def _filled(graph: _Graph, groups: Sequence[Sequence[str]], size: int) -> list[str]:
    """Return the hosts of groups; where a host is a domain, all groups but the last are filled up to ``size``."""
    pad = len(graph.domains) == len(graph.gpus)
    full = [[*members, *[_ABSENT] * (pad * (size - len(members)))] for members in groups[:-1]]
    return [host for members in (*full, groups[-1]) for host in members]


def _as_read(kind: str, nic: FabricSpec) -> FabricSpec:
    """Return a NIC as a cluster file describes it: by the kind of fabric and its rate."""
    figure = nic.link_bytes_per_s
    text = figure.text or format_quantity(figure.value, "byte/s", 12)
    return replace(nic, name=f"{kind} {text}", kind="scale-out", link_bytes_per_s=replace(figure, text=text))


def _named(name: str, graph: _Graph, unit: DomainSpec, shape: _Shape) -> tuple[ClusterSpec, dict[str, str]]:
    """Return the cluster without faults, and what each node of the graph is called in it."""
    domains = [[host] for host in shape.hosts]
    if len(graph.domains) < len(graph.gpus):
        domain_of = {host: number for number, hosts in enumerate(graph.domains) for host in hosts}
        domains = [list(hosts) for _, hosts in groupby(shape.hosts, key=domain_of.get)]
    names = dict(shape.names)
    links = unit.links_per_switch if isinstance(unit, ChipDomain) else ()
    by_rank = sorted(range(len(links)), key=lambda chip: -links[chip])
    for number, hosts in enumerate(domains):
        chips: dict[str, int] = {}
        for place, host in enumerate(hosts):
            for position, gpu in enumerate(graph.gpus.get(host, ())):
                names[gpu] = f"d{number}.n{place}.g{position}"
                for chip, link in graph.inside[gpu].items() if links else ():
                    chips[chip] = max(link.count, chips.get(chip, 0))
        ranked = sorted(chips, key=lambda chip: -chips[chip])
        names |= {chip: f"d{number}.s{rank}" for rank, chip in zip(by_rank, ranked, strict=False)}
    specs = tuple(replace(unit, gpus=unit.gpus_per_node * len(hosts)) for hosts in domains)
    return ClusterSpec(name=name, domains=specs, scale_out=shape.out), names


def _faults(
    spec: ClusterSpec, links: Sequence[RawLink], names: Mapping[str, str], answers: Answers
) -> tuple[Fault, ...] | None:
    """Return what the graph lacks of the cluster, None where it has more, or lacks too much."""
    cluster = build_cluster(spec)
    wiring, ends = cluster.wiring, [tuple(names.get(end, "") for end in link.between) for link in links]
    known = np.array([a in wiring.number and b in wiring.number for a, b in ends], dtype=bool)
    at = np.full(len(links), -1)
    at[known] = wiring.find([(a, b) for (a, b), is_known in zip(ends, known, strict=True) if is_known])
    if (at < 0).any():
        stray = " to ".join(links[int(np.argmax(at < 0))].between)
        kind = spec.scale_out.kind if spec.scale_out else spec.domains[0].structure
        answers.say("irregular", f"Listed link by link: {stray} does not fit a regular {kind}.")
        return None
    rate, latency = np.zeros(len(wiring.a)), wiring.latency_s.copy()
    np.add.at(rate, at, [bytes_per_s(link) for link in links])
    latency[at] = [link.fabric.latency_s.value for link in links]
    present = set(names.values())
    gone = [gpu.id for gpu in cluster.gpus if gpu.id not in present]
    out = np.isin(np.arange(len(wiring.names)), [wiring.number[gpu] for gpu in gone])
    stays, factor = ~(out[wiring.a] | out[wiring.b]), rate / wiring.bytes_per_s
    if (
        stays & ((factor > 1 + _RATE_TOLERANCE) | (abs(latency / wiring.latency_s - 1) > _RATE_TOLERANCE))
    ).any():
        return None
    lacking = np.flatnonzero(stays & (factor < 1 - _RATE_TOLERANCE)).tolist()
    if len(lacking) > _MAX_LACKING_SHARE * len(factor) or len(gone) > _MAX_LACKING_SHARE * spec.gpus:
        return None
    long = {short: name for name, short in names.items()}
    faults = [Fault(gpu=gpu) for gpu in gone]
    lines = [f"a GPU is absent: {gpu} is broken." for gpu in gone]
    for link in lacking:
        a, b = wiring.names[wiring.a[link]], wiring.names[wiring.b[link]]
        faults.append(Fault(link=(a, b), factor=float(factor[link])))
        part = f"at {factor[link]:.3g} of the rate of the others" if factor[link] else "no link"
        lines.append(f"{long.get(a, a)} to {long.get(b, b)}: {part}: [{a}, {b}] is broken.")
    if len(lines) > _MAX_LISTED:
        lines[_MAX_LISTED:] = [f"{len(lines) - _MAX_LISTED} more lines of `broken:`."]
    if faults:
        entries = f"{len(faults)} entries under `broken:` (absent GPUs, missing or slow links)"
        lines.insert(0, f"Regular except for {entries}.")
    for line in lines:
        answers.say("irregular", line)
    return tuple(faults)
