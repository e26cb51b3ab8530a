"""Structures of a scale-up domain (switch, two-tier, mesh, torus): its rules, its links, its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, groupby, product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from topology.cluster import Gpu
from topology.errors import InputError
from topology.graph import edge_attributes, node_attributes
from topology.spec import DomainSpec, FabricSpec
from topology.units import plural

if TYPE_CHECKING:
    import networkx as nx

LARGEST_MESH_GPUS = 256  # GPUs x GPUs links; nobody builds a full mesh as large


class Structure(NamedTuple):
    """How one structure is checked (domain, place for messages), added to a graph (number, domain, GPUs) and told."""

    check: Callable[[DomainSpec, str], None]
    add: Callable[[nx.Graph[str], int, DomainSpec, Sequence[Gpu]], None]
    words: Callable[[DomainSpec], str]


def check_domain(domain: DomainSpec, where: str) -> DomainSpec:
    """Return ``domain`` if it can be built.

    Raises
    ------
    InputError
        If its structure is not known or lacks what it needs, or its GPUs do not fill whole nodes.
    """
    if domain.structure == "raw":
        return domain
    if domain.structure not in STRUCTURES:
        raise InputError(
            f"{where}: structure {domain.structure!r} is not known; {', '.join(STRUCTURES)} are."
        )
    step = domain.gpus_per_node
    if domain.gpus % step:
        below, above = domain.gpus // step * step, -(-domain.gpus // step) * step
        raise InputError(
            f"{where}: {domain.gpus} GPUs do not fill whole nodes of {step}; "
            f"use {f'{below} or {above}' if below else above}."
        )
    STRUCTURES[domain.structure].check(domain, where)
    return domain


def structure_words(domain: DomainSpec) -> str:
    """Return how the GPUs of a domain are joined; those of a raw graph as its file says."""
    return "as in its file" if domain.structure == "raw" else STRUCTURES[domain.structure].words(domain)


def add_gpus(
    graph: nx.Graph[str], gpus: Sequence[Gpu], coordinates: Sequence[tuple[int, ...]] | None = None
) -> None:
    """Add GPUs as nodes, in order; ``coordinates`` are their places in a torus."""
    for number, gpu in enumerate(gpus):
        place = None if coordinates is None else coordinates[number]
        known = {"domain": gpu.domain, "node": gpu.node, "rack": gpu.rack, "rail": gpu.rail}
        graph.add_node(gpu.id, **node_attributes("gpu", **known, coordinate=place))


def spread(links: int, switches: int, turn: int) -> list[int]:
    """Spread ``links`` over ``switches`` as evenly as whole links allow; ``turn`` moves the odd ones round."""
    each, odd = divmod(links, switches)
    return [each + ((number - turn * odd) % switches < odd) for number in range(switches)]


def check_even(uplinks: int, above: int, what: str, others: str, where: str) -> None:
    """Refuse uplinks that do not spread evenly: some switches would then share no switch above them.

    Raises
    ------
    InputError
        If ``above`` does not divide ``uplinks``.
    """
    if uplinks % above:
        raise InputError(
            f"{where}: {uplinks} uplinks of {what} do not spread evenly over {above} {others}; use a "
            f"divisor of {uplinks}."
        )


def _check_switched(domain: DomainSpec, where: str) -> None:
    if domain.gpus > 1 and not domain.links_per_switch:
        raise InputError(f"{where}: links_per_switch is empty, so its GPUs cannot reach each other.")


def _add_switched(graph: nx.Graph[str], number: int, domain: DomainSpec, gpus: Sequence[Gpu]) -> None:
    """Link every GPU to every switch chip.

    A partial domain keeps all its switch chips: an NVL72 rack with 11 of 18 trays has 18 chips still.
    """
    add_gpus(graph, gpus)
    chips = [f"d{number}.s{plane}" for plane in range(len(domain.links_per_switch))]
    for plane, chip in enumerate(chips):
        graph.add_node(chip, **node_attributes("switch", domain=number, plane=plane))
    for chip, links in zip(chips, domain.links_per_switch, strict=True):
        attributes = edge_attributes(domain.fabric, links)
        graph.add_edges_from((gpu.id, chip, attributes) for gpu in gpus)


def _switched_words(domain: DomainSpec) -> str:
    if domain.links_bundled:
        return "switched; the number of chips and links is not published"
    return plural(len(domain.links_per_switch), "switch chip")


def _check_two_tier(domain: DomainSpec, where: str) -> None:
    _check_switched(domain, where)
    if domain.upper_switches < 1:
        raise InputError(
            f"{where}: a two-tier domain needs `upper_switches`, chips of the second tier per plane."
        )
    for links in dict.fromkeys(domain.links_per_switch):
        uplinks = links * domain.gpus_per_node
        check_even(uplinks, domain.upper_switches, "a first-tier chip", "`upper_switches`", where)


def _add_two_tier(graph: nx.Graph[str], number: int, domain: DomainSpec, gpus: Sequence[Gpu]) -> None:
    """Link GPUs to the chips of their host, one a plane, and those to all second-tier chips of their plane.

    CloudMatrix384 is built so: each host of 8 packages has seven first-tier chips, and each of them one link to
    each of the 16 second-tier chips of its plane (arXiv 2506.12708, section 3). A first-tier chip has as many
    uplinks as downlinks (non-blocking). A partial domain keeps all its second-tier chips.
    """
    add_gpus(graph, gpus)
    upper = range(domain.upper_switches)
    for plane in range(len(domain.links_per_switch)):
        for high in upper:
            graph.add_node(
                f"d{number}.s{plane}.u{high}", **node_attributes("switch", domain=number, plane=plane)
            )
    for turn, (node, members) in enumerate(groupby(gpus, key=lambda gpu: gpu.node)):
        host = [gpu.id for gpu in members]
        for plane, links in enumerate(domain.links_per_switch):
            chip = f"{node}.s{plane}"
            graph.add_node(chip, **node_attributes("switch", domain=number, node=node, plane=plane))
            down = edge_attributes(domain.fabric, links)
            graph.add_edges_from((gpu_id, chip, down) for gpu_id in host)
            above = [f"d{number}.s{plane}.u{high}" for high in upper]
            cable(graph, domain.fabric, chip, above, links * domain.gpus_per_node, turn)


def _two_tier_words(domain: DomainSpec) -> str:
    planes, chips = len(domain.links_per_switch), domain.upper_switches
    return f"{planes} planes of {domain.nodes} + {chips} switch chips in two tiers"


def cable(
    graph: nx.Graph[str], fabric: FabricSpec, below: str, above: Sequence[str], links: int, turn: int
) -> None:
    """Spread ``links`` from one switch evenly over those above it; ``turn`` moves the odd ones round."""
    for upper, count in zip(above, spread(links, len(above), turn), strict=True):
        if count:
            graph.add_edge(below, upper, **edge_attributes(fabric, count))


def _check_mesh(domain: DomainSpec, where: str) -> None:
    if domain.links_per_neighbour < 1:
        raise InputError(
            f"{where}: a mesh needs `links_per_peer`, links between each two GPUs, of at least one."
        )
    if domain.gpus > LARGEST_MESH_GPUS:
        raise InputError(
            f"{where}: a full mesh of {domain.gpus} GPUs; at most {LARGEST_MESH_GPUS} are supported in one."
        )


def _add_mesh(graph: nx.Graph[str], _number: int, domain: DomainSpec, gpus: Sequence[Gpu]) -> None:
    """Link every GPU to every other, no switch between."""
    add_gpus(graph, gpus)
    attributes = edge_attributes(domain.fabric, domain.links_per_neighbour)
    graph.add_edges_from((a.id, b.id, attributes) for a, b in combinations(gpus, 2))


def _mesh_words(_domain: DomainSpec) -> str:
    return "full mesh without a switch"


def _check_torus(domain: DomainSpec, where: str) -> None:
    shape = " x ".join(str(size) for size in domain.shape)
    if not domain.shape or prod(domain.shape) != domain.gpus:
        raise InputError(
            f"{where}: the shape {shape or '[]'} has {prod(domain.shape)} places, but there are {domain.gpus} GPUs."
        )
    dimensions = len(domain.shape)
    if len(domain.wrap) != dimensions:
        raise InputError(f"{where}: wrap has {len(domain.wrap)} entries for {dimensions} dimensions.")
    if domain.dimension_fabrics and len(domain.dimension_fabrics) != dimensions:
        raise InputError(f"{where}: {len(domain.dimension_fabrics)} link rates for {dimensions} dimensions.")
    if domain.rack_shape and len(domain.rack_shape) != dimensions:
        raise InputError(
            f"{where}: rack_shape has {len(domain.rack_shape)} entries for {dimensions} dimensions."
        )
    if domain.links_per_neighbour < 1:
        raise InputError(f"{where}: a torus needs at least one link to each neighbour.")
    block = " x ".join(str(size) for size in domain.node_shape)
    if len(domain.node_shape) != dimensions or prod(domain.node_shape) != domain.gpus_per_node:
        raise InputError(
            f"{where}: node_shape {block or '[]'} is not {domain.gpus_per_node} GPUs in "
            f"{dimensions} dimensions."
        )
    if any(size % step for size, step in zip(domain.shape, domain.node_shape, strict=True)):
        raise InputError(
            f"{where}: hosts of {block} GPUs do not fill a torus of {shape}; each size must divide."
        )


def torus_coordinates(domain: DomainSpec) -> list[tuple[int, ...]]:
    """Return the place of each GPU of a torus, one number a dimension, in the order of its GPUs.

    Hosts are blocks of ``node_shape``; they are numbered with the last dimension fastest, and so are the GPUs
    inside one.
    """
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


def _add_torus(graph: nx.Graph[str], _number: int, domain: DomainSpec, gpus: Sequence[Gpu]) -> None:
    """Link each GPU to its neighbours along each dimension, closed to rings where it wraps."""
    places = torus_coordinates(domain)
    add_gpus(graph, gpus, places)
    ids = {place: gpu.id for place, gpu in zip(places, gpus, strict=True)}
    known = {
        (dimension, ends): edge_attributes(fabric, ends * domain.links_per_neighbour)
        for dimension, fabric in enumerate(domain.fabric_of_dimension)
        for ends in (1, 2)
    }
    for place, gpu_id in ids.items():
        graph.add_edges_from(
            (gpu_id, ids[other], known[dimension, ends])
            for dimension, other, ends in torus_neighbours(place, domain.shape, domain.wrap)
        )


def _torus_words(domain: DomainSpec) -> str:
    kinds = ("ring" if wrap else "line" for wrap in domain.wrap)
    rings = (f"{size} {kind}" for size, kind in zip(domain.shape, kinds, strict=True))
    return f"torus {' x '.join(map(str, domain.shape))} ({', '.join(rings)})"


STRUCTURES = {
    "switch": Structure(_check_switched, _add_switched, _switched_words),
    "two-tier": Structure(_check_two_tier, _add_two_tier, _two_tier_words),
    "mesh": Structure(_check_mesh, _add_mesh, _mesh_words),
    "torus": Structure(_check_torus, _add_torus, _torus_words),
}
