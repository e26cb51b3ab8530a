"""Replication: how many copies each expert gets.

Greedy, the next copy to the largest load per copy, is optimal for the largest copy, not for the largest GPU load;
with two or three slots per GPU, or very skewed loads, other counts pack better. :func:`search_counts` looks for
them by a quick packing. With two slots on each of equal GPUs that is exact but for copies that meet: the largest
with the smallest (fold). Else it is largest first, which pair exchanges improve later.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placement.arrays import Floats, Ints
from placement.problem import Problem


def replicate(problem: Problem, *, least: int = 1) -> Ints:
    """Return the copies of each expert, int64 ``[layers, experts]``, at least ``least`` each and ``slots`` in all.

    Greedy: the next copy goes to the expert with the largest load per copy (ties: the lowest id) among those
    whose next copy can still be placed with no two in one failure domain. The legal counts are the bases of a
    polymatroid (:attr:`Problem.room`), on which this greedy makes the largest load per copy as small as any legal
    counts can: counts that did better would give the worst expert a copy more, and so another expert a copy
    fewer than the greedy gave it, when its load per copy was no smaller than the worst one's.

    Raises
    ------
    InfeasibleError
        If a failure domain has more slots than there are experts.
    """
    slots = problem.domain_slots
    loads = problem.mean
    copies = np.full(loads.shape, least, dtype=np.int64)
    share = loads / least
    rows = np.arange(problem.layers)
    left = np.full(problem.layers, problem.slots - least * problem.experts)
    even = int(slots.max() - slots.min()) <= 1
    while (open_rows := rows[left > 0]).size:
        best = np.argmax(share[open_rows], axis=1)
        copies[open_rows, best] += 1
        # Where slots differ by one at most, any counts up to the number of domains can be placed.
        legal = copies[open_rows, best] <= problem.room[0] if even else problem.counts_fit(copies[open_rows])
        fit, full = open_rows[legal], open_rows[~legal]
        share[fit, best[legal]] = loads[fit, best[legal]] / copies[fit, best[legal]]
        copies[full, best[~legal]] -= 1
        share[full, best[~legal]] = -1.0  # once blocked, always blocked: the limit is submodular
        left[fit] -= 1
    return copies


_SQUARINGS = 6  # counts rank by the norm of order 2 ** 6 of GPU loads: near the largest, but sees the others
_HEAT = 0.06  # of the search at its start, in units of the norm's logarithm: it falls to 0 with what is spent
_CELLS = 1 << 20  # copies of all counts looked at together


def search_counts(
    problem: Problem, copies: Ints, *, tried: int, spent: Callable[[], float], seed: int = 0
) -> Ints:
    """Return better copy counts than ``copies`` ``[layers, experts]``, by the packing that goes with them.

    Simulated annealing over exchanges: each step draws ``tried`` of them a layer, takes the best where it helps,
    and else with a chance that falls to 0 while ``spent`` (the part of the time used, asked once a step) rises to
    1. The draws are the same in every layer, over experts by falling load: deterministic for a given ``spent``,
    and independent of the experts' names.
    """
    order = np.argsort(-problem.mean, axis=1, kind="stable")
    search = _Search(problem, np.take_along_axis(problem.mean, order, axis=1))
    rng = np.random.default_rng(seed)
    best = search.anneal(np.take_along_axis(copies, order, axis=1), tried, spent, rng)
    found = np.empty_like(copies)
    np.put_along_axis(found, order, best, axis=1)
    return found


class _Search:
    """The layers of a problem with their experts by falling load."""

    def __init__(self, problem: Problem, loads: Floats) -> None:
        self.problem = problem
        self.loads = loads
        slots = problem.domain_slots
        self.most = problem.most_copies
        self.even = int(slots.max() - slots.min()) <= 1

    def anneal(self, copies: Ints, tried: int, spent: Callable[[], float], rng: np.random.Generator) -> Ints:
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

    def _exchanges(self, copies: Ints, draws: Floats) -> Ints:
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

    def _values(self, copies: Ints) -> Floats:
        """Rank counts ``[layers, tried, experts]``: the logarithm of the norm of GPU loads; infinite if illegal."""
        layers, tried, experts = copies.shape
        flat = copies.reshape(-1, experts)
        legal = (flat.min(axis=1) > 0) & (flat.max(axis=1) <= self.most)
        if not self.even:
            legal &= self.problem.counts_fit(flat)
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


def packed_loads(problem: Problem, items: Floats) -> Floats:
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


def exact_fold(problem: Problem) -> bool:
    """Whether all GPUs that have slots have two and are as fast: the largest copy with the smallest is best."""
    used = problem.slots_per_gpu > 0
    speed = problem.speed[used]
    return bool((problem.slots_per_gpu[used] == 2).all() and (speed == speed[0]).all())


def _largest_first(sizes: Floats, slots: Ints, speed: Floats, *, alike: bool) -> Floats:
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
