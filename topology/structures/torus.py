"""A grid of GPUs, each linked to its neighbours, closed to rings where it wraps: TPU and Trainium."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from topology.base.errors import InputError
from topology.base.schema import Count, Flag, MaybeCount, checked, keyword_spec
from topology.base.values import wrong
from topology.spec import FabricSpec
from topology.structures.domain import DETOUR, DomainRow, DomainSpec, Way
from topology.wiring import Ints, Laying


@keyword_spec
class TorusDomain(DomainSpec):
    """A grid of ``shape``.

    Attributes
    ----------
    wrap:
        Whether each dimension is closed to a ring.
    node_shape:
        The block of GPUs under one host (TPU v5p: ``(2, 2, 1)``).
    links_per_neighbour:
        Parallel links between two neighbours.
    dimension_fabrics:
        The fabric of each dimension where they differ; empty where ``fabric`` is that of all.
    rack_shape:
        The block of GPUs in one cabinet; empty where cabinets are runs of ``nodes_per_rack`` hosts.
    """

    structure: Literal["torus"] = "torus"
    shape: tuple[Count, ...]
    wrap: tuple[Flag, ...]
    node_shape: tuple[Count, ...]
    links_per_neighbour: Count = 1
    dimension_fabrics: tuple[FabricSpec, ...] = ()
    rack_shape: tuple[Count, ...] = ()

    whole: ClassVar = True
    picture: ClassVar = "grid"
    keys: ClassVar = {key: key for key in ("shape", "wrap", "node_shape", "links_per_neighbour")}
    ways: ClassVar = ((Way.DIMENSION_ORDER, ""), DETOUR)

    def check(self) -> None:
        """Reject a shape that its GPUs do not fill, or fields that do not fit it."""
        super().check()
        shape = _times(self.shape)
        if not self.shape or prod(self.shape) != self.gpus:
            raise InputError(
                f"the shape {shape or '[]'} has {prod(self.shape)} places, but there are {self.gpus} GPUs."
            )
        dimensions = len(self.shape)
        if len(self.wrap) != dimensions:
            raise InputError(f"wrap has {len(self.wrap)} entries for {dimensions} dimensions.")
        if self.dimension_fabrics and len(self.dimension_fabrics) != dimensions:
            raise InputError(f"{len(self.dimension_fabrics)} link rates for {dimensions} dimensions.")
        if self.rack_shape and len(self.rack_shape) != dimensions:
            raise InputError(f"rack_shape has {len(self.rack_shape)} entries for {dimensions} dimensions.")
        block = _times(self.node_shape)
        if len(self.node_shape) != dimensions or prod(self.node_shape) != self.gpus_per_node:
            raise InputError(
                f"node_shape {block or '[]'} is not {self.gpus_per_node} GPUs in {dimensions} dimensions."
            )
        if any(size % step for size, step in zip(self.shape, self.node_shape, strict=True)):
            raise InputError(f"hosts of {block} GPUs do not fill a torus of {shape}; each size must divide.")

    def lay(self) -> Laying:
        """Link each GPU to the next along each dimension.

        A wrapped dimension of two reaches its one neighbour both ways round: two links.
        """
        places = torus_places(self)
        laying = Laying(self.gpus, [tuple(place) for place in places.T.tolist()])
        at = np.zeros(self.gpus, dtype=np.int64)
        at[np.ravel_multi_index(tuple(places), self.shape)] = np.arange(self.gpus)
        size, wrap = np.array(self.shape), np.array(self.wrap)
        steps = places[:, :, None] + np.eye(len(size), dtype=np.int64)[:, None, :]
        following = at[np.ravel_multi_index(tuple(steps), self.shape, mode="wrap")]
        # the last of a line has none after it; of a ring of two, its one neighbour is linked already
        linked = (size > places.T + 1) | (wrap & (size > 2))
        links = self.links_per_neighbour * np.where((size == 2) & wrap, 2, 1) * linked
        laying.link(self.fabric_of_dimension, np.arange(self.gpus)[:, None], following, links)
        return laying

    def words(self) -> str:
        """Return which dimensions do not wrap around."""
        size = _times(self.shape)
        long = [(name, wrap) for name, n, wrap in zip("xyzuvw", self.shape, self.wrap, strict=False) if n > 1]
        opened = [name for name, wrap in long if not wrap]
        if opened and len(opened) == len(long):
            return f"grid {size}, no rings"
        return f"torus {size}" + (f", open along {', '.join(opened)}" if opened else "")

    @property
    def rack_of_host(self) -> list[int]:
        """The rack of each host: blocks of ``rack_shape``, else runs."""
        if not self.rack_shape:
            return super().rack_of_host
        places = torus_places(self)[:, :: self.gpus_per_node]
        blocks = places // np.array(self.rack_shape)[:, None]
        numbers: list[int] = np.unique(blocks, axis=1, return_inverse=True)[1].reshape(-1).tolist()
        return numbers

    @property
    def links_per_dimension(self) -> tuple[int, ...]:
        """Links of one GPU along each dimension (of an inner one, where it does not wrap)."""
        # a ring of two has one neighbour, reached both ways round: two links where it wraps
        ends = [
            0 if size == 1 else 1 if size == 2 and not wrap else 2
            for size, wrap in zip(self.shape, self.wrap, strict=True)
        ]
        return tuple(self.links_per_neighbour * end for end in ends)

    @property
    def fabric_of_dimension(self) -> tuple[FabricSpec, ...]:
        """The fabric of each dimension."""
        return self.dimension_fabrics or (self.fabric,) * len(self.shape)

    @property
    def fabrics(self) -> tuple[FabricSpec, ...]:
        """That of most links, then those of the dimensions where they differ."""
        return (self.fabric, *self.dimension_fabrics)

    @property
    def scale_up_links(self) -> list[tuple[int, FabricSpec]]:
        """Scale-up links of one GPU along each dimension, of an inner GPU."""
        return list(zip(self.links_per_dimension, self.fabric_of_dimension, strict=True))


def _wraps(value: object, where: str) -> object:
    if isinstance(value, list) and all(isinstance(flag, bool) for flag in value):
        return tuple(value)
    if not isinstance(value, bool):
        raise wrong(value, where, "true, false, or a list of true and false")
    return value


@keyword_spec
class TorusRow(DomainRow):
    """It as a row of a cluster YAML: one ``wrap`` may be that of all dimensions, hosts as in the catalog's tori."""

    structure: Literal["torus"] = "torus"
    shape: tuple[Count, ...]
    wrap: Annotated[bool | tuple[bool, ...], checked(_wraps)]
    node_shape: tuple[Count, ...] = ()
    gpus_per_node: MaybeCount = None
    links_per_neighbour: Count = 1

    domain: ClassVar = TorusDomain

    def sizes(self, known: Sequence[DomainSpec]) -> dict[str, Any]:
        """Return its fields; hosts that are not given are those of the first of ``known`` with as many dimensions.

        Raises
        ------
        InputError
            If its hosts are not given and not known, or do not fill it.
        """
        tori = [domain.node_shape for domain in known if isinstance(domain, TorusDomain)]
        block = self.node_shape
        if not block and self.gpus_per_node is not None:
            block = default_node_shape(self.shape, self.gpus_per_node)
        elif not block:
            block = next((shape for shape in tori if len(shape) == len(self.shape)), ())
            if not block:
                raise InputError("needs the key `gpus_per_node`.")
        return {
            "shape": self.shape,
            "wrap": (self.wrap,) * len(self.shape) if isinstance(self.wrap, bool) else self.wrap,
            "node_shape": block,
            "links_per_neighbour": self.links_per_neighbour,
            "gpus": prod(self.shape),
            "gpus_per_node": prod(block),
        }


def _times(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def torus_places(domain: TorusDomain) -> Ints:
    """Return the place of each GPU of a torus, ``[dimensions, gpus]``.

    Hosts are blocks of ``node_shape``; they are numbered with the last dimension fastest, and so are the GPUs
    inside one.
    """
    block = np.array(domain.node_shape, dtype=np.int64)[:, None]
    hosts = np.indices([size // step for size, step in zip(domain.shape, domain.node_shape, strict=True)])
    inside = np.indices(domain.node_shape)
    host_places, within = (part.reshape(len(domain.shape), -1) for part in (hosts, inside))
    return ((host_places * block)[:, :, None] + within[:, None, :]).reshape(len(domain.shape), -1)


def default_node_shape(shape: Sequence[int], gpus_per_node: int) -> tuple[int, ...]:
    """Return hosts of ``gpus_per_node`` GPUs as runs along the last dimensions of a torus.

    Raises
    ------
    InputError
        If no such run fills the torus.
    """
    block: list[int] = []
    remaining = gpus_per_node
    for size in reversed(shape):
        step = size if remaining % size == 0 else remaining
        if size % step:
            raise InputError(
                f"hosts of {gpus_per_node} GPUs do not match the last dimensions of {list(shape)}; give "
                "the block per host, like `node_shape: [2, 2, 1]`."
            )
        block.append(step)
        remaining //= step
    if remaining > 1:
        raise InputError(f"hosts of {gpus_per_node} GPUs are larger than the torus {list(shape)}.")
    return tuple(reversed(block))
