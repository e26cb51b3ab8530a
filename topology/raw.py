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

from topology.cluster import Gpu
from topology.errors import InputError
from topology.figures import UNPUBLISHED, Evidence, Figure
from topology.graph import (
    INSIDE_KINDS,
    NODE_KINDS,
    SCALE_UP_KINDS,
    edge_attributes,
    node_attributes,
    scale_up_neighbours,
    scale_up_of,
)
from topology.spec import (
    DomainSpec,
    FabricSpec,
    GpuSpec,
    RawLink,
    RawNode,
    RawTopology,
    ScaleOutSpec,
)
from topology.structures import add_gpus
from topology.units import added

if TYPE_CHECKING:
    import networkx as nx


def check_raw(raw: RawTopology, where: str) -> None:
    """Check the nodes and links of a raw graph one by one.

    Raises
    ------
    InputError
        If an id is a duplicate or unknown, a link joins a node to itself or contradicts another, or a GPU has no
        type.
    """
    ids = Counter(node.id for node in raw.nodes)
    for node in raw.nodes:
        if ids[node.id] > 1:
            raise InputError(
                f"{where}: nodes: duplicate id {node.id!r} ({ids[node.id]} nodes have it); ids must differ."
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
    graph.add_nodes_from(node.id for node in raw.nodes if node.kind in SCALE_UP_KINDS)
    graph.add_edges_from(
        link.between for link in raw.links if all(kinds.get(end) in SCALE_UP_KINDS for end in link.between)
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


def raw_domains(raw: RawTopology, graph: nx.Graph[str], where: str) -> tuple[DomainSpec, ...]:
    """Return the domains of a raw graph, ``graph`` the one that :func:`add_raw` made of it.

    Raises
    ------
    InputError
        If the GPUs of one domain are of several types.
    """
    return tuple(_domain(label, members, raw, graph, where) for label, members in _gpus_by_domain(raw))


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
        for other in scale_up_neighbours(graph, node.id) or graph[node.id]:
            used[_key(graph.edges[node.id, other])] += 1
    if not used:
        unknown = Figure(UNPUBLISHED, "byte/s", Evidence.USER, "a GPU without links")
        return FabricSpec("none", "none", unknown, Figure(UNPUBLISHED, "s", Evidence.USER, unknown.source))
    return raw.fabrics[used.most_common(1)[0][0]]


def _key(edge: Mapping[str, Any]) -> tuple[str, float]:
    """Return the name and rate of an edge's fabric."""
    return edge["fabric"], edge["link_bytes_per_s"]


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
            rates.append(added(graph.edges[edge]["bytes_per_s"] for edge in leaving) / gpus)
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

    inside = {"gpu", "nic", *INSIDE_KINDS}
    hosts: nx.Graph[str] = nx.Graph()
    hosts.add_nodes_from(node for node in graph if kind[node] in inside)
    hosts.add_edges_from(
        (a, b) for a, b in graph.edges if {kind[a], kind[b]} <= inside and kind[a] != kind[b]
    )
    hosts.add_edges_from((a, b) for a, b in graph.edges if kind[a] == kind[b] and kind[a] in INSIDE_KINDS)
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


def add_raw(graph: nx.Graph[str], raw: RawTopology, gpus: Sequence[Gpu]) -> None:
    """Add the GPUs, then the other nodes, then the links; several equal links between two nodes are one edge."""
    add_gpus(graph, gpus)
    domains = _domains_of(raw, gpus)
    for node in raw.nodes:
        if node.kind != "gpu":
            known = {"domain": domains.get(node.id), "node": node.node, "rack": node.rack, "rail": node.rail}
            graph.add_node(node.id, **node_attributes(node.kind, **known))
    counts: dict[tuple[str, str], int] = {}
    for link in raw.links:
        pair = (min(link.between), max(link.between))
        counts[pair] = counts.get(pair, 0) + link.count
        a, b = link.between
        graph.add_edge(a, b, **edge_attributes(link.fabric, counts[pair]))


def _domains_of(raw: RawTopology, gpus: Sequence[Gpu]) -> dict[str, int]:
    """Return the domain number of each switch chip: of its name, else of a GPU that it is linked to."""
    of_gpu = {gpu.id: gpu.domain for gpu in gpus}
    named = {node.domain: of_gpu[node.id] for node in raw.nodes if node.kind == "gpu" and node.domain}
    switches = {node.id: node.domain for node in raw.nodes if node.kind == "switch"}
    found = {chip: named[name] for chip, name in switches.items() if name in named}
    # a switch above switches has the domain of those below it, so go on until nothing is new
    while True:
        new = {
            chip: of_gpu.get(other, found.get(other))
            for link in raw.links
            for chip, other in (link.between, link.between[::-1])
            if chip in switches and chip not in found and (other in of_gpu or other in found)
        }
        if not new:
            return found
        found.update({chip: number for chip, number in new.items() if number is not None})
