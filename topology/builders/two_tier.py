"""A two-tier switched domain: planes of first-tier chips, one in each host, under shared second-tier chips.

CloudMatrix384 is built so: each host of 8 packages has seven first-tier chips, one a plane, and each of them one
link to each of the 16 second-tier chips of its plane (arXiv 2506.12708, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from topology.builders.nodes import add_gpus
from topology.builders.spread import spread
from topology.graph import edge_attributes, node_attributes
from topology.spec import DomainSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def add_two_tier_domain(graph: nx.Graph[str], number: int, domain: DomainSpec, gpus: Sequence[Gpu]) -> None:
    """Add the GPUs, the chips of each host and the chips above them.

    A first-tier chip has as many uplinks as downlinks from the GPUs of its host (non-blocking). A partial domain
    keeps all its second-tier chips.
    """
    add_gpus(graph, gpus)
    for plane in range(len(domain.links_per_switch)):
        for upper in range(domain.upper_switches):
            graph.add_node(
                f"d{number}.s{plane}.u{upper}", **node_attributes("switch", domain=number, plane=plane)
            )
    for turn, (node, members) in enumerate(groupby(gpus, key=lambda gpu: gpu.node)):
        host = [gpu.id for gpu in members]
        for plane, links in enumerate(domain.links_per_switch):
            chip = f"{node}.s{plane}"
            graph.add_node(chip, **node_attributes("switch", domain=number, node=node, plane=plane))
            down = edge_attributes(domain.fabric, links)
            graph.add_edges_from((gpu_id, chip, down) for gpu_id in host)
            uplinks = spread(links * domain.gpus_per_node, domain.upper_switches, turn)
            for upper, count in enumerate(uplinks):
                if count:
                    graph.add_edge(
                        chip, f"d{number}.s{plane}.u{upper}", **edge_attributes(domain.fabric, count)
                    )
