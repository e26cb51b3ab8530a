"""The GPUs of a domain as graph nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology.graph import node_attributes

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def add_gpus(
    graph: nx.Graph[str], gpus: Sequence[Gpu], coordinates: Sequence[tuple[int, ...]] | None = None
) -> None:
    """Add GPUs as nodes, in order; ``coordinates`` are their places in a torus."""
    for number, gpu in enumerate(gpus):
        place = None if coordinates is None else coordinates[number]
        graph.add_node(
            gpu.id,
            **node_attributes(
                "gpu", domain=gpu.domain, node=gpu.node, rack=gpu.rack, rail=gpu.rail, coordinate=place
            ),
        )
