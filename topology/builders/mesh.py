"""A full mesh: every GPU of the domain linked to every other, no switch between."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from topology.builders.nodes import add_gpus
from topology.graph import edge_attributes
from topology.spec import DomainSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def add_mesh_domain(graph: nx.Graph[str], domain: DomainSpec, gpus: Sequence[Gpu]) -> None:
    """Add the GPUs of one domain and an edge between each two."""
    add_gpus(graph, gpus)
    attributes = edge_attributes(domain.fabric, domain.links_per_neighbour)
    graph.add_edges_from((a.id, b.id, attributes) for a, b in combinations(gpus, 2))
