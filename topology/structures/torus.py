"""A grid of GPUs, each linked to its neighbours, closed to rings where it wraps: TPU and Trainium."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.spec import DomainSpec
from topology.structures.structure import DETOUR, Structure, Way
from topology.wiring import Ints, Laying


class Torus(Structure):
    """A grid of ``shape``; hosts are blocks of ``node_shape``."""

    whole = True
    picture = "grid"
    ways = ((Way.DIMENSION_ORDER, ""), DETOUR)

    def check(self, domain: DomainSpec, where: str) -> None:
        """Refuse a shape that its GPUs do not fill, or fields that do not fit it."""
        shape = " x ".join(str(size) for size in domain.shape)
        if not domain.shape or prod(domain.shape) != domain.gpus:
            raise InputError(
                f"{where}: the shape {shape or '[]'} has {prod(domain.shape)} places, but there are {domain.gpus} "
                "GPUs."
            )
        dimensions = len(domain.shape)
        if len(domain.wrap) != dimensions:
            raise InputError(f"{where}: wrap has {len(domain.wrap)} entries for {dimensions} dimensions.")
        if domain.dimension_fabrics and len(domain.dimension_fabrics) != dimensions:
            raise InputError(
                f"{where}: {len(domain.dimension_fabrics)} link rates for {dimensions} dimensions."
            )
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

    def lay(self, domain: DomainSpec) -> Laying:
        """Link each GPU to the next along each dimension.

        A wrapped dimension of two reaches its one neighbour both ways round: two links.
        """
        places = torus_places(domain)
        laying = Laying(domain.gpus, [tuple(place) for place in places.T.tolist()])
        at = np.zeros(domain.gpus, dtype=np.int64)
        at[np.ravel_multi_index(tuple(places), domain.shape)] = np.arange(domain.gpus)
        size, wrap = np.array(domain.shape), np.array(domain.wrap)
        steps = places[:, :, None] + np.eye(len(size), dtype=np.int64)[:, None, :]
        following = at[np.ravel_multi_index(tuple(steps), domain.shape, mode="wrap")]
        # the last of a line has none after it; of a ring of two, its one neighbour is linked already
        there = (size > places.T + 1) | (wrap & (size > 2))
        links = domain.links_per_neighbour * np.where((size == 2) & wrap, 2, 1) * there
        laying.link(domain.fabric_of_dimension, np.arange(domain.gpus)[:, None], following, links)
        return laying

    def read(self, row: Fields, known: Sequence[DomainSpec]) -> dict[str, Any]:
        """Return the fields of a domain that a cluster YAML writes out; hosts as in a known system where not said."""
        shape = row.counts("shape")
        wrap = row.flags("wrap", len(shape))
        usual = [
            system.node_shape for system in known if system.shape and len(system.node_shape) == len(shape)
        ]
        if "node_shape" in row:
            block = row.counts("node_shape")
        elif "gpus_per_node" in row or not usual:
            block = default_node_shape(shape, row.count("gpus_per_node"), row.at("gpus_per_node"))
        else:
            block = usual[0]
        return {
            "gpus": prod(shape),
            "gpus_per_node": prod(block),
            "links_per_switch": (),
            "shape": shape,
            "wrap": wrap,
            "node_shape": block,
            "links_per_neighbour": row.count("links_per_neighbour", 1),
        }

    def keys(self, domain: DomainSpec) -> dict[str, object]:
        """Return them in its keys."""
        row: dict[str, object] = {"shape": domain.shape, "wrap": domain.wrap, "node_shape": domain.node_shape}
        return row | {"links_per_neighbour": domain.links_per_neighbour}

    def brief(self, domain: DomainSpec) -> str:
        """Say it in a few words."""
        return f", torus {' x '.join(map(str, domain.shape))}"

    def words(self, domain: DomainSpec) -> str:
        """Say which dimensions are not closed to rings."""
        size = " x ".join(map(str, domain.shape))
        long = [
            (name, wrap) for name, n, wrap in zip("xyzuvw", domain.shape, domain.wrap, strict=False) if n > 1
        ]
        opened = [name for name, wrap in long if not wrap]
        if opened and len(opened) == len(long):
            return f"grid {size}, no rings"
        return f"torus {size}" + (f", open along {', '.join(opened)}" if opened else "")


def torus_places(domain: DomainSpec) -> Ints:
    """Return the place of each GPU of a torus, ``[dimensions, gpus]``.

    Hosts are blocks of ``node_shape``; they are numbered with the last dimension fastest, and so are the GPUs
    inside one.
    """
    block = np.array(domain.node_shape, dtype=np.int64)[:, None]
    hosts = np.indices([size // step for size, step in zip(domain.shape, domain.node_shape, strict=True)])
    inside = np.indices(domain.node_shape)
    first, within = (part.reshape(len(domain.shape), -1) for part in (hosts, inside))
    return ((first * block)[:, :, None] + within[:, None, :]).reshape(len(domain.shape), -1)


def default_node_shape(shape: Sequence[int], gpus_per_node: int, where: str) -> tuple[int, ...]:
    """Return hosts of ``gpus_per_node`` GPUs as runs along the last dimensions of a torus.

    Raises
    ------
    InputError
        If no such run fills the torus.
    """
    block: list[int] = []
    left = gpus_per_node
    for size in reversed(shape):
        step = size if left % size == 0 else left
        if size % step:
            raise InputError(
                f"{where}: hosts of {gpus_per_node} GPUs do not run along the last dimensions of {list(shape)}; say "
                "which block a host has, like `node_shape: [2, 2, 1]`."
            )
        block.append(step)
        left //= step
    if left > 1:
        raise InputError(f"{where}: hosts of {gpus_per_node} GPUs are larger than the torus {list(shape)}.")
    return tuple(reversed(block))
