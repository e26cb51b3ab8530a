"""A raw graph: the nodes and links of a file, as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology.builders.nodes import add_gpus
from topology.graph import edge_attributes, node_attributes
from topology.spec import RawTopology

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def add_raw(graph: nx.Graph[str], raw: RawTopology, gpus: Sequence[Gpu]) -> None:
    """Add the GPUs, then the other nodes, then the links; several links alike between two nodes are one edge."""
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
