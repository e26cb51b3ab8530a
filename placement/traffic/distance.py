"""Static placement by load times distance: experts with the most tokens nearest to where their tokens come from.

With a limit of experts a GPU, in a layer and over all layers, the limits of ``(layer, GPU)`` lie inside those of the
GPU: a network flow from expert to ``(layer, GPU)`` to GPU, whose optimum is whole without asking for it. A
minimum-cost flow is therefore a proof.

References
----------
Sivtsov, Katrutsa and Oseledets, "Cluster Topology-Driven Placement of Experts" (arXiv 2508.09229), who solve the same
as an integer programme.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from placement.arrays import Floats, Ints
from placement.traffic.min_cost_flow import Arcs, least_cost_flow
from topology.cluster import Cluster
from topology.errors import InfeasibleError, InputError
from topology.routes import Router
from topology.units import plural

_UNITS = 2**40
"""Costs are whole numbers up to this in the flow; those that are whole and below it stay what they are."""
_PAIRS = 2**14


@dataclass(frozen=True, eq=False)
class DistancePlacement:
    """Where each expert of each layer lies, and what its tokens travel.

    Attributes
    ----------
    gpu:
        int64 ``[layers, experts]``: the GPU of each expert.
    cost:
        Sum over layers and experts of load times distance.
    bound:
        No placement under the same limits costs less.
    contiguous, round_robin:
        Cost of experts in order, GPU by GPU, and dealt one by one; None where that breaks a limit.
    """

    gpu: Ints
    cost: float
    bound: float
    contiguous: float | None
    round_robin: float | None

    @property
    def status(self) -> str:
        """OPTIMAL where cost and bound differ by no more than rounding, else FEASIBLE."""
        return "OPTIMAL" if self.cost <= self.bound + 1e-7 * abs(self.cost) else "FEASIBLE"


def gpu_distances(cluster: Cluster, unit: Literal["hops", "seconds"] = "hops") -> Floats:
    """Return links passed, or their latency in seconds, from GPU to GPU ``[gpus, gpus]``: the mean of equal routes.

    Routes are those that traffic takes (:mod:`topology.routes`), through faults where there are some.

    Raises
    ------
    InputError
        If GPUs cannot reach each other, or ``unit`` is neither.
    """
    if unit not in {"hops", "seconds"}:
        raise InputError(f"`unit` {unit!r}: expected 'hops' or 'seconds'.")
    router = Router(cluster)
    gpus = len(cluster.gpus)
    types = router.network.types
    per_link = np.ones(router.network.links) if unit == "hops" else types.latency_s[router.network.type]
    distance = np.zeros((gpus, gpus))
    step = max(1, _PAIRS // gpus)
    for first in range(0, gpus, step):
        some = np.arange(first, min(gpus, first + step))
        source, target = np.repeat(some, gpus), np.tile(np.arange(gpus), some.size)
        away = source != target
        distance[source[away], target[away]] = per_link @ router.shares(source[away], target[away])
    return distance


def place_by_distance(
    loads: ArrayLike,
    distance: ArrayLike,
    *,
    per_gpu: int | ArrayLike | None = None,
    per_layer: int | None = None,
) -> DistancePlacement:
    """Place every expert of every layer so that load times distance is least.

    Parameters
    ----------
    loads:
        ``[layers, experts]`` tokens of each expert.
    distance:
        ``[gpus]``, or ``[layers, gpus]`` where layers start from different GPUs: hops or seconds to each GPU from
        where the layer's tokens are; a row or a mean of rows of :func:`gpu_distances`.
    per_gpu:
        Most experts of all layers on a GPU, one number or ``[gpus]``; None: as even as it gets.
    per_layer:
        Most experts of one layer on a GPU; None: as even as it gets, which balances their number.

    Raises
    ------
    InputError
        If an array has another shape or a number below 0.
    InfeasibleError
        If the limits hold fewer experts than there are.
    """
    load, far = _checked(loads, distance)
    layers, experts = load.shape
    gpus = far.shape[1]
    most = -(-experts // gpus) if per_layer is None else int(per_layer)
    room = np.asarray(-(-layers * experts // gpus) if per_gpu is None else per_gpu)
    if room.dtype.kind not in "iu" or room.shape not in {(), (gpus,)} or room.min() < 0:
        raise InputError(
            f"`per_gpu`: expected a whole number from 0, or one for each of {plural(gpus, 'GPU')}."
        )
    room = np.broadcast_to(room, (gpus,)).astype(np.int64)
    if most < 1:
        raise InputError(f"`per_layer` {most}: expected 1 or more.")
    if most * gpus < experts or int(np.minimum(room, most * layers).sum()) < layers * experts:
        raise InfeasibleError(
            f"{plural(gpus, 'GPU')} with up to {most} experts of a layer and {int(room.sum()):,} in all cannot hold "
            f"{layers} layers of {experts} experts: {most * gpus} a layer of {experts}, "
            f"{int(np.minimum(room, most * layers).sum()):,} in all of {layers * experts:,}."
        )
    place, units, scale = _solved(load, far, room, most)
    bound = (units - (0.0 if scale == 1.0 else layers * experts / 2)) / scale
    cost = _cost(load, far, place)
    each = np.arange(experts)
    baselines = [
        _cost(load, far, np.broadcast_to(gpu, load.shape)) if _fits(gpu, gpus, layers, room, most) else None
        for gpu in (each * gpus // experts, each % gpus)
    ]
    return DistancePlacement(place, cost, min(cost, bound), *baselines)


def _checked(loads: ArrayLike, distance: ArrayLike) -> tuple[Floats, Floats]:
    load, far = np.asarray(loads, dtype=np.float64), np.asarray(distance, dtype=np.float64)
    if load.ndim != 2 or load.size == 0:
        raise InputError(f"loads have shape {list(load.shape)}; expected [layers, experts].")
    if far.ndim == 1:
        far = np.broadcast_to(far, (len(load), far.size))
    if far.ndim != 2 or len(far) != len(load) or far.size == 0:
        raise InputError(
            f"distances have shape {list(far.shape)}; expected [gpus] or [{len(load)} layers, gpus]."
        )
    for name, array in (("loads", load), ("distances", far)):
        if not (np.isfinite(array).all() and array.min() >= 0):
            raise InputError(
                f"{name}: expected finite numbers from 0, found {array.min():g} to {array.max():g}."
            )
    return load, far


def _cost(load: Floats, far: Floats, place: Ints) -> float:
    return float((load * np.take_along_axis(far, place, axis=1)).sum())


def _fits(gpu: Ints, gpus: int, layers: int, room: Ints, most: int) -> bool:
    held = np.bincount(gpu, minlength=gpus)
    return bool(held.max() <= most and (held * layers <= room).all())


def _solved(load: Floats, far: Floats, room: Ints, most: int) -> tuple[Ints, int, float]:
    """Return the optimal placement, its cost in whole units, and units of 1."""
    layers, experts = load.shape
    gpus = far.shape[1]
    costs = load[:, :, None] * far[:, None, :]
    largest = float(costs.max())
    whole = largest < _UNITS and bool((load == np.rint(load)).all() and (far == np.rint(far)).all())
    scale = 1.0 if whole or largest == 0 else _UNITS / largest
    units = np.rint(costs * scale).astype(np.int64).ravel()
    del costs
    # nodes: experts of layers, GPUs of layers, GPUs, sink
    at_layer, at_gpu = layers * experts, layers * (experts + gpus)
    sink = at_gpu + gpus
    source = np.repeat(np.arange(layers * experts), gpus)
    target = (at_layer + np.arange(layers)[:, None, None] * gpus + np.arange(gpus)).repeat(experts, axis=1)
    layered = np.arange(layers * gpus)
    supply = np.zeros(sink + 1, dtype=np.int64)
    supply[: layers * experts] = 1
    supply[sink] = -layers * experts
    total, used = least_cost_flow(
        [
            Arcs(source, target.ravel(), 1, units),
            Arcs(at_layer + layered, at_gpu + layered % gpus, most, 0),
            Arcs(at_gpu + np.arange(gpus), sink, room, 0),
        ],
        supply,
    )
    place = np.flatnonzero(used) % gpus
    return place.reshape(layers, experts).astype(np.int64), total, scale
