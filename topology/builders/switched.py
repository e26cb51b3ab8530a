"""A switched scale-up domain: every GPU linked to every switch chip, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology.builders.nodes import add_gpus
from topology.graph import edge_attributes, node_attributes
from topology.spec import DomainSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def add_switched_domain(graph: nx.Graph[str], number: int, domain: DomainSpec, gpus: Sequence[Gpu]) -> None:
    """Add the GPUs and switch chips of one domain, one edge for each (GPU, chip) with its count of links.

    A partial domain keeps all its switch chips: an NVL72 rack with 11 of 18 trays has 18 chips still.
    """
    add_gpus(graph, gpus)
    chips = [(f"d{number}.s{s}", links) for s, links in enumerate(domain.links_per_switch)]
    for s, (chip, _) in enumerate(chips):
        graph.add_node(chip, **node_attributes("switch", domain=number, plane=s))
    for chip, links in chips:
        attributes = edge_attributes(domain.fabric, links)
        graph.add_edges_from((gpu.id, chip, attributes) for gpu in gpus)
