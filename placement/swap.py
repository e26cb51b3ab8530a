"""Best swaps between the hottest GPU of a layer and any other, until none helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement.problem import ExpertProblem

__all__ = ["swap_down"]

# A gain below this part of the hottest GPU's load is rounding, and could go on for ever.
_LEAST_GAIN = 1e-12


def swap_down(problem: ExpertProblem, slot_expert: NDArray[np.int32]) -> NDArray[np.int32]:
    """Swap copies until no swap with the hottest GPU helps, and return the new ``[layers, slots]``.

    All layers at once. Each step takes, in every layer still moving, the legal swap after which the larger of
    the two GPU loads is smallest; copies of an expert stay on distinct GPUs if they were. Deterministic.
    """
    state = _State(problem, slot_expert.copy())
    active = np.arange(problem.layers)
    while active.size:
        active = state.step(active)
    return state.slot_expert


class _State:
    """Loads and membership that go with ``slot_expert``, kept up to date swap by swap."""

    def __init__(self, problem: ExpertProblem, slot_expert: NDArray[np.int32]) -> None:
        assignment = problem.assignment(slot_expert)
        self.problem = problem
        self.slot_expert = slot_expert
        self.slot_load = assignment.slot_load(problem.loads)
        self.gpu_load = assignment.gpu_load(problem.loads)
        self.multi = assignment.copies > 1
        self.holds = np.zeros((problem.layers, problem.gpus, problem.experts), dtype=bool)
        rows = np.arange(problem.layers)[:, None]
        self.holds[rows, problem.slot_gpu[None, :], slot_expert] = True
        self.offsets = np.arange(int(problem.slots_per_gpu.max()))

    def step(self, active: NDArray[np.int64]) -> NDArray[np.int64]:
        """Make the best swap in each of the ``active`` layers; return those where one helped."""
        problem = self.problem
        hot = np.argmax(self.gpu_load[active], axis=1)
        peak = self.gpu_load[active, hot]
        hot_slots = np.minimum(problem.first_slot[hot][:, None] + self.offsets, problem.slots - 1)
        gain = self._gains(active, hot, peak, hot_slots)
        best = np.argmax(gain.reshape(active.size, -1), axis=1)
        helps = gain.reshape(active.size, -1)[np.arange(active.size), best] > _LEAST_GAIN * peak
        active, best, hot_slots = active[helps], best[helps], hot_slots[helps]
        mine = hot_slots[np.arange(active.size), best // problem.slots]
        self._swap(active, mine, best % problem.slots)
        return active

    def _gains(
        self,
        active: NDArray[np.int64],
        hot: NDArray[np.int64],
        peak: NDArray[np.float64],
        hot_slots: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """By how much the larger of two GPU loads falls, ``[active, hot slots, slots]``; -inf if illegal."""
        problem = self.problem
        rows = active[:, None]
        room = peak[:, None] - self.gpu_load[active][:, problem.slot_gpu]
        # The other copy may not come to the hottest GPU where that holds its expert.
        room[self.holds[rows, hot[:, None], self.slot_expert[active]]] = -np.inf
        mine = self.slot_load[rows, hot_slots]
        mine[self.offsets >= problem.slots_per_gpu[hot][:, None]] = 0.0  # not a slot: never a gain
        moved = mine[:, :, None] - self.slot_load[active][:, None, :]
        gain: NDArray[np.float64] = np.minimum(moved, room[:, None, :] - moved)
        # Nor mine to a GPU that holds its expert; only experts with several copies can be elsewhere.
        expert = self.slot_expert[rows, hot_slots]
        at, which = np.nonzero(self.multi[rows, expert])
        elsewhere = self.holds[active[at][:, None], problem.slot_gpu[None, :], expert[at, which][:, None]]
        gain[at, which] = np.where(elsewhere, -np.inf, gain[at, which])
        return gain

    def _swap(self, layers: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]) -> None:
        gpu = self.problem.slot_gpu
        for table in (self.slot_expert, self.slot_load):
            table[layers, left], table[layers, right] = table[layers, right], table[layers, left]
        for here, there in ((left, right), (right, left)):
            self.holds[layers, gpu[here], self.slot_expert[layers, there]] = False
            self.holds[layers, gpu[here], self.slot_expert[layers, here]] = True
            moved = self.slot_load[layers, here] - self.slot_load[layers, there]
            self.gpu_load[layers, gpu[here]] += moved
