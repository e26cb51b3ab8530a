"""Search copy counts by what a quick packing of them comes to: a copy of one expert becomes one of another.

Greedy counts are optimal for the largest copy, not for the largest GPU load; with two or three slots per GPU, or
very skewed loads, other counts pack better. With two slots on each of equal GPUs the packing is exact but for
copies that meet: the largest with the smallest (fold). Else it is largest first, which best swaps improve later.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placement.apart import domain_slots
from placement.bounds import most_copies
from placement.problem import ExpertProblem
from placement.replicate import counts_fit, room

Floats = NDArray[np.float64]


_SQUARINGS = 6  # counts rank by the norm of order 2 ** 6 of GPU loads: near the largest, but sees the others
_HEAT = 0.06  # of the search at its start, in units of the norm's logarithm: it falls to 0 with what is spent
_CELLS = 1 << 20  # copies of all counts looked at together


def search_counts(
    problem: ExpertProblem,
    copies: NDArray[np.int64],
    *,
    tried: int,
    spent: Callable[[], float],
    seed: int = 0,
) -> NDArray[np.int64]:
    """Return better copy counts than ``copies`` ``[layers, experts]``, by the packing that goes with them.

    Simulated annealing over exchanges: each step draws ``tried`` of them a layer, takes the best where it helps,
    and else with a chance that falls to 0 while ``spent`` (the part of the time used, asked once a step) rises to
    1. The draws are the same in every layer, over experts by falling load: deterministic for a given ``spent``,
    and independent of the experts' names.
    """
    order = np.argsort(-problem.loads, axis=1, kind="stable")
    search = _Search(problem, np.take_along_axis(problem.loads, order, axis=1))
    rng = np.random.default_rng(seed)
    best = search.anneal(np.take_along_axis(copies, order, axis=1), tried, spent, rng)
    found = np.empty_like(copies)
    np.put_along_axis(found, order, best, axis=1)
    return found


class _Search:
    """The layers of a problem with their experts by falling load."""

    def __init__(self, problem: ExpertProblem, loads: Floats) -> None:
        self.problem = problem
        self.loads = loads
        slots = domain_slots(problem)
        self.most = most_copies(problem)
        self.limit = None if int(slots.max() - slots.min()) <= 1 else room(slots)

    def anneal(
        self, copies: NDArray[np.int64], tried: int, spent: Callable[[], float], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Search from ``copies`` ``[layers, experts]`` and return the best counts met."""
        now, best = copies.copy(), copies.copy()
        rows = np.arange(now.shape[0])
        value = self._values(now[:, None, :])[:, 0]
        least = value.copy()
        while (part := spent()) < 1.0:
            tries = self._exchanges(now, rng.random((2, tried)))
            values = self._values(tries)
            pick = values.argmin(axis=1)
            found = values[rows, pick]
            heat = _HEAT * (1.0 - part) ** 2
            taken = found < value - heat * np.log(1.0 - rng.random())
            now[taken], value[taken] = tries[rows, pick][taken], found[taken]
            better = value < least
            best[better], least[better] = now[better], value[better]
        return best

    def _exchanges(self, copies: NDArray[np.int64], draws: Floats) -> NDArray[np.int64]:
        """Return ``[layers, tried, experts]``: one copy more of one expert, one fewer of another.

        ``draws`` ``[2, tried]`` say which, in parts of 1. An expert drawn against itself gets no copy at all:
        such counts are illegal, so that no step stands still.
        """
        layers, experts = copies.shape
        several = np.argsort(copies <= 1, axis=1, kind="stable")
        count = (copies > 1).sum(axis=1)[:, None]
        more = np.broadcast_to((draws[0] * experts).astype(np.int64), (layers, draws.shape[1]))
        fewer = np.take_along_axis(several, (draws[1] * count).astype(np.int64), axis=1)
        tries = np.repeat(copies[:, None, :], draws.shape[1], axis=1)
        rows, columns = np.indices((layers, draws.shape[1]))
        tries[rows, columns, fewer] -= 1
        tries[rows, columns, more] += 1
        same = more == fewer
        tries[rows[same], columns[same], more[same]] = 0
        return tries

    def _values(self, copies: NDArray[np.int64]) -> Floats:
        """Rank counts ``[layers, tried, experts]``: the logarithm of the norm of GPU loads; infinite if illegal."""
        layers, tried, experts = copies.shape
        flat = copies.reshape(-1, experts)
        legal = (flat.min(axis=1) > 0) & (flat.max(axis=1) <= self.most)
        if self.limit is not None:
            legal &= counts_fit(flat, self.limit)
        values = np.full(flat.shape[0], np.inf)
        row = np.repeat(np.arange(layers), tried)
        which = np.flatnonzero(legal)
        for start in range(0, which.size, max(1, _CELLS // self.problem.slots)):
            part = which[start : start + max(1, _CELLS // self.problem.slots)]
            share = self.loads[row[part]] / flat[part]
            items = np.repeat(share.ravel(), flat[part].ravel()).reshape(part.size, -1)
            load = packed_loads(self.problem, items)
            peak = load.max(axis=1)
            load /= peak[:, None]
            for _ in range(_SQUARINGS):
                load *= load
            values[part] = 2**_SQUARINGS * np.log(peak) + np.log(load.sum(axis=1))
        return values.reshape(layers, tried)


def packed_loads(problem: ExpertProblem, items: Floats) -> Floats:
    """Return the loads over speed of the used GPUs, ``[rows, GPUs]``, of copies ``[rows, slots]`` packed quickly.

    Two copies of an expert may meet on a GPU: this ranks counts, and is not a placement.
    """
    used = problem.slots_per_gpu > 0
    slots, speed = problem.slots_per_gpu[used], problem.speed[used]
    alike = bool((speed == speed[0]).all())
    if exact_fold(problem):
        sizes = np.sort(items, axis=1)
        fold: Floats = (sizes[:, : slots.size] + sizes[:, : slots.size - 1 : -1]) / speed[0]
        return fold
    return _largest_first(-np.sort(-items, axis=1), slots, speed, alike=alike)


def exact_fold(problem: ExpertProblem) -> bool:
    """Whether all GPUs that have slots have two and are as fast: the largest copy with the smallest is best."""
    used = problem.slots_per_gpu > 0
    speed = problem.speed[used]
    return bool((problem.slots_per_gpu[used] == 2).all() and (speed == speed[0]).all())


def _largest_first(sizes: Floats, slots: NDArray[np.int64], speed: Floats, *, alike: bool) -> Floats:
    """Give each copy in turn to the GPU with a free slot that would be done first."""
    rows = np.arange(sizes.shape[0])
    order = np.argsort(slots, kind="stable")
    slots, speed = slots[order], speed[order]
    load = np.zeros((rows.size, slots.size))
    free = np.tile(slots, (rows.size, 1))
    start = 0
    if alike:
        start = slots.size
        load += sizes[:, :start]
        free -= 1
    key = np.where(free > 0, load, np.inf)
    for i in range(start, sizes.shape[1]):
        gpu = (key if alike else (key + sizes[:, [i]]) / speed).argmin(axis=1)
        load[rows, gpu] += sizes[:, i]
        free[rows, gpu] -= 1
        key[rows, gpu] = np.where(free[rows, gpu] > 0, load[rows, gpu], np.inf)
    return load / speed
