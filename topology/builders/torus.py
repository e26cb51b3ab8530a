"""A torus: GPUs on a grid, each linked to its neighbours along each dimension, closed to rings where it wraps.

Places are tuples of one number a dimension. Hosts are blocks of ``node_shape``; they are numbered with the last
dimension fastest, and so are the GPUs inside one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from topology.builders.nodes import add_gpus
from topology.graph import edge_attributes
from topology.spec import DomainSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def torus_coordinates(domain: DomainSpec) -> list[tuple[int, ...]]:
    """Return the place of each GPU of a torus, in the order of its GPUs."""
    blocks = [range(size // step) for size, step in zip(domain.shape, domain.node_shape, strict=True)]
    inside = list(product(*(range(step) for step in domain.node_shape)))
    return [
        tuple(b * step + i for b, step, i in zip(block, domain.node_shape, place, strict=True))
        for block in product(*blocks)
        for place in inside
    ]


def torus_neighbours(
    place: tuple[int, ...], shape: Sequence[int], wrap: Sequence[bool]
) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """Yield (dimension, place of the next GPU along it, how many links that is).

    A wrapped dimension of two reaches its one neighbour both ways round: two links, yielded once.
    """
    for dimension, size in enumerate(shape):
        at = place[dimension]
        if size == 1:
            continue
        following = (*place[:dimension], (at + 1) % size, *place[dimension + 1 :])
        if at + 1 < size:
            yield dimension, following, 2 if size == 2 and wrap[dimension] else 1
        elif wrap[dimension] and size > 2:
            yield dimension, following, 1


def add_torus_domain(graph: nx.Graph[str], domain: DomainSpec, gpus: Sequence[Gpu]) -> None:
    """Add the GPUs of one domain and their links."""
    places = torus_coordinates(domain)
    add_gpus(graph, gpus, places)
    ids = {place: gpu.id for place, gpu in zip(places, gpus, strict=True)}
    fabrics = domain.fabric_of_dimension
    known = {
        (dimension, ends): edge_attributes(fabric, ends * domain.links_per_neighbour)
        for dimension, fabric in enumerate(fabrics)
        for ends in (1, 2)
    }
    for place, gpu_id in ids.items():
        graph.add_edges_from(
            (gpu_id, ids[other], known[dimension, ends])
            for dimension, other, ends in torus_neighbours(place, domain.shape, domain.wrap)
        )
