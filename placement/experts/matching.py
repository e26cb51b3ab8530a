"""Copies to GPUs by sorting: a copy of each GPU is taken out, and the largest goes where least is left.

Of all ways to give back as many copies as GPUs, one to each, that has the smallest largest load (an exchange
argument: two copies in another order make the larger of their two GPUs no smaller). So a round never makes a layer
worse, and it is two short sorts for all layers at once. Packing is the same with new copies instead of those taken
out: the largest first, a round for each slot.
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Experts, Floats, Index, Ints, rising, tag_mask, tagged
from placement.experts.pack import distinct_copies
from placement.experts.problem import Problem

ROUNDS = 8
"""Of copies taken out and given back, at most so many for each slot of a GPU."""

_GAIN = 1e-4  # of the largest load: what a round is worth


def matched(problem: Problem, copies: Ints, enough: Floats, rounds: int) -> Experts:
    """Place ``copies`` ``[layers, experts]`` and return the expert of each slot, int32 ``[layers, slots]``.

    Each GPU is a failure domain of its own (:attr:`Problem.each_alone`), and there are no more copies of an expert
    than GPUs with slots. A layer is done where its largest load is at most ``enough`` ``[layers]``, in multiples of
    the mean, or where ``rounds`` bring nothing more. Deterministic, and layer by layer.
    """
    table = _Table(problem, copies)
    table.pack()
    table.exchange(
        enough * problem.mean.sum(axis=1) / problem.gpus, rounds * int(problem.slots_per_gpu.max())
    )
    return table.apart()


class _Table:
    """Copies by slot as numbers whose lowest bits name their expert: their order is that of their loads."""

    def __init__(self, problem: Problem, copies: Ints) -> None:
        self.problem = problem
        self.mask = tag_mask(problem.experts)
        self.used = np.flatnonzero(problem.slots_per_gpu > 0)
        self.slots = problem.slots_per_gpu[self.used]
        self.first = problem.first_slot[self.used]
        self.speed, self.alike = problem.speed[self.used], problem.equal_speeds
        self.row = np.arange(problem.layers)[:, None]
        key = tagged(problem.mean / copies, np.arange(problem.experts), self.mask)
        self.rising = np.repeat(key.reshape(-1), copies.reshape(-1)).reshape(problem.layers, -1)
        self.rising.sort(axis=1)
        self.keys = np.empty_like(self.rising)
        self.load = np.zeros((problem.layers, self.used.size))

    def pack(self) -> None:
        """Put copies into one slot of each GPU after the other, the largest first."""
        level = self.problem.mean.sum(axis=1) / self.speed.sum()
        left = self.problem.slots
        for turn in range(int(self.slots.max())):
            some = np.flatnonzero(self.slots > turn)
            part = self.rising[:, left - some.size : left]
            room = level[:, None] * self.speed[some] - self.load[:, some]
            gpu = some.take(rising(room))
            self.keys[self.row, self.first.take(gpu) + turn] = part
            self.load[self.row, gpu] += part.view(np.float64)
            left -= some.size

    def exchange(self, enough: Floats, rounds: int) -> None:
        """Take a copy out of each GPU and give them back until the largest load is ``enough`` ``[layers]``."""
        slots, patience = self._slots(rounds), 2 * int(self.slots.max()) + 2
        rows, keys, load = np.arange(self.problem.layers), self.keys, self.load
        peak = self._peak(load)
        stale = np.zeros(rows.size, dtype=np.int64)
        for which in range(rounds + 1):
            going = (peak > enough[rows]) & (stale < patience)
            if not going.all() or which == rounds:
                if keys is not self.keys:
                    self.keys[rows], self.load[rows] = keys, load
                some = np.flatnonzero(going)
                rows, peak, stale = rows[some], peak[some], stale[some]
                keys, load = self.keys[rows], self.load[rows]
            if not rows.size or which == rounds:
                break
            self._round(keys, load, peak, slots[which])
            now = self._peak(load)
            stale = np.where(now < peak * (1 - _GAIN), 0, stale + 1)
            peak = now

    def _slots(self, rounds: int) -> Index:
        """Return from which slot of each GPU a copy is taken, ``[rounds, GPUs]``.

        All the same slot, each slot once; then the slots in turn with GPUs out of step, further each time; and again.
        """
        turn, most_slots = np.arange(rounds)[:, None], int(self.slots.max())
        block, gpu = turn // most_slots, np.arange(self.used.size)
        step = np.where(block % 2, gpu + gpu // most_slots * ((block + 1) // 2), 0)
        slots: Index = self.first + (step + turn) % self.slots
        return slots

    def _peak(self, load: Floats) -> Floats:
        peak: Floats = (load if self.alike else load / self.speed).max(axis=1)
        return peak

    def _round(self, keys: Ints, load: Floats, peak: Floats, slot: Index) -> None:
        """Take out what is in one ``slot`` of each GPU; the largest copy comes where it leaves most room."""
        part = keys.take(slot, axis=1)
        rest = load - part.view(np.float64)
        level = peak[:, None]
        gpu = rising((level if self.alike else level * self.speed) - rest)
        part.sort(axis=1)
        first = self.row[: len(keys)]
        keys.reshape(-1)[slot.take(gpu) + first * keys.shape[1]] = part
        gpu += first * load.shape[1]
        load.reshape(-1)[gpu] = rest.take(gpu) + part.view(np.float64)

    def apart(self) -> Experts:
        """Return ``[layers, slots]`` with the second copies of an expert on a GPU swapped with others."""
        slot_expert = self._placed()
        rows = again = np.flatnonzero(~self.problem.apart(slot_expert))
        while again.size:
            again = self._swap_second(again)
        if rows.size:
            slot_expert = self._placed()
            wrong = rows[~self.problem.apart(slot_expert[rows])]
            if wrong.size:  # where no swap does it copies move along a chain
                slot_expert[wrong] = distinct_copies(self.problem.rows(wrong), slot_expert[wrong])[0]
        return slot_expert

    def _placed(self) -> Experts:
        return (self.keys & self.mask).astype(np.int32)

    def _swap_second(self, rows: Index) -> Index:
        """Swap a second copy in each of ``rows`` for the copy that keeps both loads smallest; return where that went.

        Rows without a second copy are left out.
        """
        problem, row = self.problem, np.arange(rows.size)
        gpu = problem.slot_gpu.astype(np.int64)
        keys = self.keys[rows]
        placed, size = keys & self.mask, keys.view(np.float64)
        lies = placed + gpu * problem.experts
        order = np.argsort(lies, axis=1, kind="stable")
        lies = np.take_along_axis(lies, order, axis=1)
        again = lies[:, 1:] == lies[:, :-1]
        mine = order[row, again.argmax(axis=1) + 1]
        expert, here, moved = placed[row, mine], gpu[mine], size[row, mine][:, None]
        speed = problem.speed
        load = np.zeros((rows.size, problem.gpus))
        load[:, self.used] = np.add.reduceat(size, self.first, axis=1)
        there = (load[:, gpu] - size + moved) / speed[gpu]
        value = np.maximum(there, (load[row, here][:, None] - moved + size) / speed[here][:, None])
        held = np.logical_or.reduceat(placed == expert[:, None], self.first, axis=1)
        value[np.repeat(held, self.slots, axis=1)] = np.inf
        for turn in range(int(self.slots.max())):  # what lies beside the second copy
            beside = placed[
                row, np.minimum(problem.first_slot[here] + turn, problem.first_slot[here + 1] - 1)
            ]
            value[placed == beside[:, None]] = np.inf
        other = value.argmin(axis=1)
        goes = np.flatnonzero(again.any(axis=1) & np.isfinite(value[row, other]))
        some, mine, other = rows[goes], mine[goes], other[goes]
        self.keys[some, mine], self.keys[some, other] = keys[goes, other], keys[goes, mine]
        return some
