"""The split of experts' tokens over their copies with the least load on the busiest GPU: a linear programme."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.assignment import Assignment

_FLOW_UNITS = 1 << 30
"""Whole units that a layer's load is cut into: the flow is one of integers below 2 ** 31."""
_LEVEL_TOLERANCE = 1e-12


def lp_shares(
    assignment: Assignment, load: NDArray[np.float64], speed: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the best split of ``load`` ``[layers, experts]`` over the copies, and a lower bound.

    The LP ``min z: sum over copies of f = load, sum on a GPU of f <= z * speed`` has, by max-flow min-cut, the value
    ``max over sets S of GPUs: load of the experts with all copies in S / speed of S``. Newton's method on z finds it:
    the min cut of the flow that z admits is a set S with a larger ratio, until all load flows.

    Returns
    -------
    shares:
        Fraction of its expert's load that each slot takes, ``[layers, slots]``. The largest load over speed is
        within a few parts in 10^7 of the bound: flows are whole numbers.
    level:
        The bound, exact but for rounding, ``[layers]``: in units of ``load`` over ``speed``.
    """
    shares = np.empty((assignment.layers, assignment.slots))
    level = np.empty(assignment.layers)
    for layer, graph in enumerate(_graphs(assignment, load, speed)):
        level[layer] = graph.best_level()
        shares[layer] = graph.shares()
    return shares, level


def lp_level(
    assignment: Assignment, load: NDArray[np.float64], speed: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the largest load over speed under the best split, ``[layers]``."""
    if assignment.gpus <= _MAX_SET_GPUS:
        return _level_by_sets(assignment, load, speed)
    return np.array([graph.best_level() for graph in _graphs(assignment, load, speed)])


_MAX_SET_GPUS = 8
"""Up to so many the load that stays in each set of GPUs is summed: 256 sets cost less than a flow."""
_SET_CELLS = 1 << 22


def _level_by_sets(
    assignment: Assignment, load: NDArray[np.float64], speed: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return the maximum over sets of GPUs of the load that cannot leave them over their speed, ``[layers]``."""
    gpus, sets = assignment.gpus, 1 << assignment.gpus
    pace = np.zeros(sets)
    for gpu, rate in enumerate(np.ones(gpus) if speed is None else speed):
        pace[1 << gpu : 2 << gpu] = pace[: 1 << gpu] + rate
    level = np.empty(assignment.layers)
    size = max(1, _SET_CELLS // sets)
    for start in range(0, assignment.layers, size):
        rows = np.arange(len(assignment.slot_expert[start : start + size]))
        holders = np.zeros((rows.size, assignment.experts), dtype=np.int64)  # a bit for each GPU
        for slot, gpu in enumerate(assignment.slot_gpu.tolist()):
            holders[rows, assignment.slot_expert[start + rows, slot]] |= 1 << gpu
        stays = np.bincount(
            (rows[:, None] * sets + holders).ravel(), load[start + rows].ravel(), minlength=rows.size * sets
        ).reshape(rows.size, sets)
        for gpu in range(gpus):  # what stays in a set stays in a larger one
            pairs = stays.reshape(rows.size, -1, 2, 1 << gpu)
            pairs[:, :, 1] += pairs[:, :, 0]
        level[start + rows] = (stays[:, 1:] / pace[1:]).max(axis=1)
    return level


def _graphs(
    assignment: Assignment, load: NDArray[np.float64], speed: NDArray[np.float64] | None
) -> Iterator[_Graph]:
    pace = np.ones(assignment.gpus) if speed is None else speed
    for slot_expert, row in zip(assignment.slot_expert, load, strict=True):
        yield _Graph(slot_expert, assignment.slot_gpu, row, pace)


class _Graph:
    """The flow network of one layer: source, experts with a load, GPUs, sink; an edge for each copy."""

    def __init__(
        self,
        slot_expert: NDArray[np.int32],
        slot_gpu: NDArray[np.int32],
        load: NDArray[np.float64],
        speed: NDArray[np.float64],
    ) -> None:
        self.load, self.speed = load / load.max(), speed
        self.scale, self.unit = float(load.max()), _FLOW_UNITS / float(self.load.sum())
        self.supply = np.floor(self.load * self.unit).astype(np.int32)
        experts, gpus = load.size, speed.size
        pair = slot_expert.astype(np.int64) * gpus + slot_gpu
        edges, first_slot, self.edge_of_slot = np.unique(pair, return_index=True, return_inverse=True)
        self.expert, self.gpu = edges // gpus, edges % gpus
        self.first = np.zeros(slot_expert.size, dtype=bool)
        self.first[first_slot] = True  # a second copy on the same GPU takes nothing
        self.slot_expert = slot_expert
        self.nodes = experts + gpus + 2
        copies = np.bincount(self.expert, minlength=experts)
        ends = np.arange(1, gpus + 1) + experts + edges.size
        self.indptr = np.concatenate(([0, experts], experts + np.cumsum(copies), ends, ends[-1:]))
        self.indices = np.concatenate(
            (np.arange(1, experts + 1), 1 + experts + self.gpu, np.full(gpus, self.nodes - 1))
        )
        self.flow: Any = None

    def best_level(self) -> float:
        """Raise the level from below until all load flows; return it in units of load over speed."""
        held = np.bincount(self.gpu, minlength=self.speed.size) > 0
        level = float(self.load.sum() / self.speed[held].sum())
        while True:
            experts, gpus = self._cut(level)
            if gpus.size == 0:
                break
            denser = float(self.load[experts].sum() / self.speed[gpus].sum())
            if denser <= level * (1 + _LEVEL_TOLERANCE):
                break
            level = denser
        return level * self.scale

    def _cut(self, level: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Send what fits below ``level``; return the experts that have load left, with their GPUs, all full."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        experts, sink = self.load.size, self.nodes - 1
        room = np.ceil(level * self.speed * self.unit)
        data = np.concatenate((self.supply, self.supply[self.expert], np.minimum(room, _FLOW_UNITS)))
        network = csr_array(
            (data.astype(np.int32), self.indices, self.indptr), shape=(self.nodes, self.nodes)
        )
        result = maximum_flow(network, 0, sink)
        self.flow = result.flow
        if result.flow_value == self.supply.sum(dtype=np.int64):
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        residual = network - result.flow
        residual.eliminate_zeros()
        reached = breadth_first_order(residual, 0, return_predecessors=False).astype(np.intp)
        return (
            reached[(reached > 0) & (reached <= experts)] - 1,
            reached[(reached > experts) & (reached < sink)] - 1 - experts,
        )

    def shares(self) -> NDArray[np.float64]:
        """Turn the last flow into shares of the slots; an expert without load splits evenly."""
        experts = self.load.size
        rows = self.flow[1 : experts + 1].tocoo()  # the solver's matrix holds each edge in both directions
        ahead = rows.col > experts
        flow = np.zeros((experts, self.speed.size))
        flow[rows.row[ahead], rows.col[ahead] - experts - 1] = rows.data[ahead]
        sent = flow.sum(axis=1)[self.expert]
        even = 1.0 / np.bincount(self.expert, minlength=experts)[self.expert]
        part = np.where(sent > 0, flow[self.expert, self.gpu] / np.maximum(sent, 1.0), even)
        share: NDArray[np.float64] = np.where(self.first, part[self.edge_of_slot], 0.0)
        return share
