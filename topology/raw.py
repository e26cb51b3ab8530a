"""From a raw graph to a cluster specification: which GPUs share a domain, and how fast they are joined.

Domains are those the file names. A GPU that names none is in one with every GPU that it reaches over scale-up
links alone (to GPUs and switch chips). Scale-up links of a GPU are those to GPUs and switch chips; where it has
none but shares its domain, those to PCIe switches and the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topology.check import check_cluster
from topology.cluster import Gpu, build_cluster
from topology.errors import InputError
from topology.figures import UNPUBLISHED, Evidence, Figure
from topology.graph import NODE_KINDS
from topology.islands import refuse_islands
from topology.spec import (
    ClusterSpec,
    DomainSpec,
    FabricSpec,
    Fault,
    GpuSpec,
    RawLink,
    RawNode,
    RawTopology,
    ScaleOutSpec,
)

if TYPE_CHECKING:
    import networkx as nx


_UP = ("gpu", "switch")
_INSIDE = ("pcie", "host")


def raw_cluster_spec(
    name: str, raw: RawTopology, faults: Sequence[Fault] = (), where: str = "cluster"
) -> ClusterSpec:
    """Return the specification of a raw graph, checked.

    Raises
    ------
    InputError
        If an id is there twice or unknown, a link joins a node to itself or contradicts another, a GPU has no
        type, or the GPUs are not connected.
    """
    import networkx as nx

    from topology.builders.raw import add_raw

    check_raw(raw, where)
    gpus = raw_gpus(raw)
    graph: nx.Graph[str] = nx.Graph()
    add_raw(graph, raw, gpus)
    domains = tuple(_domain(label, members, raw, graph, where) for label, members in _gpus_by_domain(raw))
    scale_out = raw_scale_out(graph, raw) if len(domains) > 1 else None
    if len(domains) > 1 and scale_out is None:
        raise InputError(
            f"{where}: its GPUs are not all connected: {len(domains)} domains and no link that leaves one; add links "
            "to leaves, or between GPUs or switch chips of one domain."
        )
    spec = ClusterSpec(name, domains, scale_out, tuple(faults), raw)
    refuse_islands(build_cluster(check_cluster(spec, where)))
    return spec


def check_raw(raw: RawTopology, where: str) -> None:
    """Check the nodes and links of a raw graph one by one.

    Raises
    ------
    InputError
        See :func:`raw_cluster_spec`.
    """
    ids = Counter(node.id for node in raw.nodes)
    for node in raw.nodes:
        if ids[node.id] > 1:
            raise InputError(
                f"{where}: nodes: the id {node.id!r} is there {ids[node.id]} times; ids must differ."
            )
        if node.kind not in NODE_KINDS:
            raise InputError(
                f"{where}: node {node.id}: kind {node.kind!r} is not one of {', '.join(NODE_KINDS)}."
            )
        if node.kind == "gpu" and node.gpu is None:
            raise InputError(f"{where}: node {node.id}: needs the key `gpu`, its type, like h100-sxm.")
        if node.kind != "gpu" and node.gpu is not None:
            raise InputError(f"{where}: node {node.id}: is a {node.kind}, so it cannot have the key `gpu`.")
    if not any(node.kind == "gpu" for node in raw.nodes):
        raise InputError(f"{where}: nodes: none has the kind gpu.")
    seen: dict[frozenset[str], FabricSpec] = {}
    for link in raw.links:
        _check_link(link, ids, seen, where)


def _check_link(link: RawLink, ids: Counter[str], seen: dict[frozenset[str], FabricSpec], where: str) -> None:
    """Check one link; ``seen`` are those before it."""
    a, b = link.between
    for end in (a, b):
        if end not in ids:
            raise InputError(f"{where}: link [{a}, {b}]: no node has the id {end!r}.")
    if a == b:
        raise InputError(f"{where}: link [{a}, {b}]: joins a node to itself.")
    other = seen.setdefault(frozenset((a, b)), link.fabric)
    if other != link.fabric:
        raise InputError(
            f"{where}: link [{a}, {b}]: two links of different fabric or rate join these nodes ({other.name}, "
            f"{link.fabric.name}); write them as one with their common rate, or put a switch between."
        )


def raw_gpus(raw: RawTopology) -> tuple[Gpu, ...]:
    """Return the GPUs of a raw graph: grouped by domain in order of first appearance, otherwise as written.

    A GPU that names no node is in one with its domain; one that names no rack, in that of its node; one that
    names no rail has its position in its node.
    """
    gpus: list[Gpu] = []
    for number, (label, members) in enumerate(_gpus_by_domain(raw)):
        rails: Counter[str] = Counter()
        for node in members:
            host = node.node or label
            rail = rails[host] if node.rail is None else node.rail
            rails[host] += 1
            gpus.append(Gpu(node.id, number, host, node.rack or host, rail))
    return tuple(gpus)


def _gpus_by_domain(raw: RawTopology) -> list[tuple[str, list[RawNode]]]:
    """Return (label, GPUs) of each domain in order of first appearance."""
    inferred = _components(raw)
    groups: dict[str, list[RawNode]] = {}
    for node in raw.nodes:
        if node.kind == "gpu":
            groups.setdefault(node.domain or inferred[node.id], []).append(node)
    return list(groups.items())


def _components(raw: RawTopology) -> dict[str, str]:
    """Return a label of the scale-up component of each GPU: the domain named in it, else its first GPU."""
    import networkx as nx

    kinds = {node.id: node.kind for node in raw.nodes}
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(node.id for node in raw.nodes if node.kind in _UP)
    graph.add_edges_from(
        link.between for link in raw.links if all(kinds.get(end) in _UP for end in link.between)
    )
    named = {node.id: node.domain for node in raw.nodes if node.domain}
    order = {node.id: place for place, node in enumerate(raw.nodes)}
    labels = {}
    for part in nx.connected_components(graph):
        members = sorted(part, key=order.__getitem__)
        names = {named[member] for member in members if member in named}
        first = next((member for member in members if kinds[member] == "gpu"), members[0])
        label = names.pop() if len(names) == 1 else first
        labels.update(dict.fromkeys(members, label))
    return labels


def _domain(
    label: str, members: Sequence[RawNode], raw: RawTopology, graph: nx.Graph[str], where: str
) -> DomainSpec:
    """Return one domain; its rate is that of the GPU that has least."""
    kinds: dict[str, GpuSpec] = {node.gpu.name: node.gpu for node in members if node.gpu is not None}
    if len(kinds) > 1:
        raise InputError(
            f"{where}: domain {label}: has GPUs of several types ({', '.join(sorted(kinds))}); give each type its "
            "own `domain`."
        )
    gpu = next(iter(kinds.values()))
    hosts = {node.node or label for node in members}
    racks = {node.rack or node.node or label for node in members}
    return DomainSpec(
        part="raw",
        title=f"{label}: {len(members)} {gpu.title}",
        status="user",
        gpu=gpu,
        gpus=len(members),
        gpus_per_node=max(Counter(node.node or label for node in members).values()),
        structure="raw",
        fabric=_fabric(members, raw, graph),
        links_per_switch=(),
        nodes_per_rack=-(-len(hosts) // len(racks)),
        raw_bytes_per_s=min(scale_up_of(graph, node.id) for node in members),
    )


def _fabric(members: Sequence[RawNode], raw: RawTopology, graph: nx.Graph[str]) -> FabricSpec:
    """Return the fabric that most scale-up links of a domain have; of a GPU alone, that of any of its links."""
    used: Counter[tuple[str, float]] = Counter()
    for node in members:
        for other in _scale_up_neighbours(graph, node.id) or graph[node.id]:
            used[_key(graph.edges[node.id, other])] += 1
    if not used:
        unknown = Figure(UNPUBLISHED, "byte/s", Evidence.USER, "a GPU without links")
        return FabricSpec("none", "none", unknown, Figure(UNPUBLISHED, "s", Evidence.USER, unknown.source))
    return raw.fabrics[used.most_common(1)[0][0]]


def _key(edge: Mapping[str, Any]) -> tuple[str, float]:
    """Return the name and rate of an edge's fabric."""
    return edge["fabric"], edge["link_bytes_per_s"]


def scale_up_of(graph: nx.Graph[str], gpu: str) -> float:
    """Return scale-up bytes/s per direction of one GPU in a graph; of a GPU alone in its domain, of all its links."""
    return float(sum(graph.edges[gpu, other]["bytes_per_s"] for other in _scale_up_neighbours(graph, gpu)))


def _scale_up_neighbours(graph: nx.Graph[str], gpu: str) -> list[str]:
    """Return the neighbours of a GPU that its scale-up links go to."""
    domain = graph.nodes[gpu]["domain"]
    kinds = {other: graph.nodes[other]["kind"] for other in graph[gpu]}
    up = [o for o, kind in kinds.items() if kind in _UP and graph.nodes[o]["domain"] == domain]
    return up or [other for other, kind in kinds.items() if kind in _INSIDE]


def raw_scale_out(graph: nx.Graph[str], raw: RawTopology) -> ScaleOutSpec | None:
    """Return the fabric between the domains of a raw graph, None where no link leaves a domain.

    Its rate is that of the host that has least: the links of its NICs (or of its GPUs themselves) to leaves and
    routers, over its GPUs. Its oversubscription is that of the leaf that has most.
    """
    kind = {node: data["kind"] for node, data in graph.nodes(data=True)}
    domain = {node: data["domain"] for node, data in graph.nodes(data=True)}
    rates: list[float] = []
    used: Counter[tuple[str, float]] = Counter()
    for part in _hosts(graph, kind):
        own = {domain[node] for node in part if kind[node] == "gpu"}
        leaving = [(a, b) for a in part for b in graph[a] if b not in part and domain[b] not in own]
        used.update(_key(graph.edges[edge]) for edge in leaving)
        gpus = sum(kind[node] == "gpu" for node in part)
        if gpus and leaving:
            rates.append(sum(graph.edges[edge]["bytes_per_s"] for edge in leaving) / gpus)
    if not rates:
        return None
    fabric = raw.fabrics[used.most_common(1)[0][0]]
    ratios = [ratio for node in graph if kind[node] == "leaf" if (ratio := _down_over_up(graph, node)) > 0]
    return ScaleOutSpec(
        kind="raw",
        fabric=replace(fabric, link_bytes_per_s=replace(fabric.link_bytes_per_s, value=min(rates))),
        nic_links_per_gpu=1,
        nodes_per_pod=1,
        spines=0,
        oversubscription=max(1.0, *ratios) if ratios else 1.0,
    )


def _hosts(graph: nx.Graph[str], kind: Mapping[str, str]) -> list[set[str]]:
    """Return the sets of GPUs, NICs, PCIe switches and hosts that are of one machine, by name or by links."""
    import networkx as nx

    inside = {"gpu", "nic", *_INSIDE}
    hosts: nx.Graph[str] = nx.Graph()
    hosts.add_nodes_from(node for node in graph if kind[node] in inside)
    hosts.add_edges_from(
        (a, b) for a, b in graph.edges if {kind[a], kind[b]} <= inside and kind[a] != kind[b]
    )
    hosts.add_edges_from((a, b) for a, b in graph.edges if kind[a] == kind[b] and kind[a] in _INSIDE)
    first: dict[str, str] = {}
    for node in list(hosts):
        name = graph.nodes[node]["node"]
        if name is not None:
            hosts.add_edge(node, first.setdefault(name, node))
    return list(nx.connected_components(hosts))


def _down_over_up(graph: nx.Graph[str], leaf: str) -> float:
    """Return downlink over uplink rate of a leaf, 0 where it has no uplinks."""
    up = down = 0.0
    for other in graph[leaf]:
        rate = graph.edges[leaf, other]["bytes_per_s"]
        if graph.nodes[other]["kind"] in ("spine", "core", "router"):
            up += rate
        elif graph.nodes[other]["kind"] != "leaf":
            down += rate
    return down / up if up else 0.0
