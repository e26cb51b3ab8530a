"""Counts of copies that pack better than greedy ones: a family of divisor methods, then exchanges that relieve a GPU.

Counts are judged by a quick estimate of the largest GPU load that comes of them. With two slots on each of equal GPUs
that is exact but for copies that meet: the largest with the smallest (fold). With other slots it is what no packing
can be below: the j largest copies lie on j GPUs at best, and the smallest there are fill their other slots. On GPUs
that differ in speed it is largest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from placement.arrays import Experts, Floats, Index, Ints, falling
from placement.experts.bounds import fastest
from placement.experts.local_search import swap_down
from placement.experts.pack import pack
from placement.experts.problem import Problem
from placement.experts.replication import divided, even_domains

ROUNDINGS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7)
"""Of the divisor methods looked at (:func:`placement.experts.replication.divided`)."""

_SQUARINGS = 6  # counts rank by the norm of order 2 ** 6 of GPU loads: near the largest, but sees the others
_HEAT = 2e-3  # of the value: by so much a step may be worse at the start; it falls to 0 with what is spent
_LEAST_GAIN = 1e-6
_LARGER = 0.75  # of the draws: one more copy of the larger of the two on the fullest GPU
_CELLS = 1 << 15  # copies of all counts looked at together: arrays that stay in the cache, and in the heap


def exact_fold(problem: Problem) -> bool:
    """Whether all GPUs that have slots have two and are as fast: the largest copy with the smallest is best."""
    used = problem.slots_per_gpu > 0
    speed = problem.speed[used]
    return bool((problem.slots_per_gpu[used] == 2).all() and (speed == speed[0]).all())


def best_divided(problem: Problem, copies: Ints) -> Ints:
    """Return the best of ``copies`` ``[layers, experts]`` and of what the divisor methods give, by the estimate."""
    if not even_domains(problem):
        return copies
    count = len(ROUNDINGS) - 1
    many = np.tile(problem.mean, (count, 1))
    found = divided(problem, many, np.repeat(ROUNDINGS[1:], problem.layers))
    all_counts = np.concatenate([copies, found]).reshape(count + 1, problem.layers, -1)
    value = np.stack([Estimate(problem).peaks(problem.mean, each) for each in all_counts])
    best: Ints = all_counts[value.argmin(axis=0), np.arange(problem.layers)]
    return best


def search_counts(
    problem: Problem,
    copies: Ints,
    *,
    tried: int,
    spent: Callable[[], float],
    seed: int = 0,
    patience: int | None = None,
) -> Ints:
    """Return better counts than ``copies`` ``[layers, experts]``: a :class:`CountSearch` until ``spent`` is 1.

    ``spent``, asked once a step, is the part of the work that is done, rising to 1.
    """
    search = CountSearch(problem, copies, tried=tried, seed=seed, patience=patience)
    while search.active and (done := spent()) < 1.0:
        search.advance(1, done)
    return search.found()


class CountSearch:
    """A search for better counts than ``copies`` ``[layers, experts]``, by the estimate.

    Each step tries ``tried`` exchanges a layer: one more copy of an expert on the fullest GPU, one fewer of another.
    The best is taken where it helps, or is worse by a little, which falls to 0 while the part of the work that is
    done rises to 1. A layer without a gain in ``patience`` steps is done. Draws are the same in every layer, over
    experts by falling load: deterministic, layer by layer, and independent of the experts' names.
    """

    def __init__(
        self, problem: Problem, copies: Ints, *, tried: int, seed: int = 0, patience: int | None = None
    ) -> None:
        self._order = falling(problem.mean)
        ranked = np.take_along_axis(problem.mean, self._order, axis=1)
        start = np.take_along_axis(copies, self._order, axis=1)
        self._search = _Search(problem, ranked, start, tried, np.random.default_rng(seed), patience)

    @property
    def active(self) -> bool:
        """Whether there are layers left that may gain."""
        return self._search.rows.size > 0

    def advance(self, steps: int, done: float) -> None:
        """Make some steps; ``done`` is the part of the work, from 0 to 1."""
        for _ in range(steps):
            if not self.active:
                return
            self._search.step(done)

    def found(self) -> Ints:
        """Return the best counts met, ``[layers, experts]``."""
        found = np.empty_like(self._search.best)
        np.put_along_axis(found, self._order, self._search.best, axis=1)
        return found


class Estimate:
    """The largest GPU load that counts come to, estimated for many counts at once."""

    def __init__(self, problem: Problem) -> None:
        self.slots = problem.slots
        self.fold = exact_fold(problem)
        used = np.sort(problem.slots_per_gpu[problem.slots_per_gpu > 0])
        self.gpus = int(used.size)
        self.speed = fastest(problem)
        self.beside = np.cumsum(
            used - 1
        )  # of the j GPUs with the fewest slots: those beside their largest copies
        self.alike = problem.equal_speeds
        self.problem = problem

    def items(self, loads: Floats, copies: Ints) -> Floats:
        """Return the load of each copy, ``[rows, slots]``, those of an expert together."""
        return np.repeat((loads / copies).reshape(-1), copies.reshape(-1)).reshape(len(loads), -1)

    def levels(self, rising: Floats) -> Floats:
        """Return GPU loads, or what the j fullest have on average, ``[rows, GPUs]``, of copies by rising load."""
        gpus = self.gpus
        if not self.alike:
            return self._largest_first(rising)[0]
        if self.fold:
            folded: Floats = (rising[:, :gpus] + rising[:, : gpus - 1 : -1]) / self.speed[0]
            return folded
        sums = np.zeros((len(rising), self.slots + 1))
        np.cumsum(rising, axis=1, out=sums[:, 1:])
        heavy = sums[:, -1:] - sums[:, self.slots - gpus : self.slots][:, ::-1]
        level: Floats = (heavy + sums[:, self.beside]) / (np.arange(1, gpus + 1) * self.speed[0])
        return level

    def peaks(self, loads: Floats, copies: Ints) -> Floats:
        """Return the largest load, ``[rows]``, of counts ``[rows, experts]``."""
        items = self.items(loads, copies)
        items.sort(axis=1)
        peak: Floats = self.levels(items).max(axis=1)
        return peak

    def norms(self, loads: Floats, copies: Ints) -> tuple[Floats, Floats]:
        """Return a norm of the loads, ``[rows]``, that is near the largest, and the largest."""
        items = self.items(loads, copies)
        items.sort(axis=1)
        level = self.levels(items)
        peak: Floats = level.max(axis=1)
        level /= peak[:, None]
        for _ in range(_SQUARINGS):
            level *= level
        norm: Floats = level.sum(axis=1)
        for _ in range(_SQUARINGS):  # a root by square roots, which all CPUs round alike
            norm = np.sqrt(norm)
        return peak * norm, peak

    def fullest(self, loads: Floats, copies: Ints, draws: Floats) -> Index:
        """Draw experts of the fullest GPU (or of the j fullest), ``[rows, draws]``, by ``draws`` from 0 to 1."""
        rows = np.arange(len(loads))[:, None]
        experts = np.repeat(np.tile(np.arange(loads.shape[1]), len(loads)), copies.reshape(-1))
        items = self.items(loads, copies)
        order = falling(items)
        rising = np.take_along_axis(items, order, axis=1)[:, ::-1]
        level, gpu = (self.levels(rising), None) if self.alike else self._largest_first(rising)
        full = level.argmax(axis=1)[:, None]
        if gpu is not None:
            on_it = np.cumsum(gpu == full, axis=1)
            nth = (draws * on_it[:, -1:]).astype(np.int64) + 1
            place = (on_it[:, None, :] >= nth[:, :, None]).argmax(axis=2)
        elif self.fold:  # GPU i has the i-th smallest copy and the i-th largest
            place = np.where(draws < _LARGER, full, self.slots - 1 - full)
        else:
            place = (draws * (full + 1)).astype(np.int64)
        drawn: Index = experts.reshape(len(loads), -1)[rows, order[rows, place]]
        return drawn

    def _largest_first(self, rising: Floats) -> tuple[Floats, Ints]:
        """Give each copy in turn to the GPU with a free slot that would be done first.

        Return the loads over speed, ``[rows, used GPUs]``, and the GPU of each copy by falling load.
        """
        used = np.flatnonzero(self.problem.slots_per_gpu)
        slots, speed = self.problem.slots_per_gpu[used], self.problem.speed[used]
        order = np.argsort(slots, kind="stable")
        slots, speed = slots[order], speed[order]
        rows = np.arange(len(rising))
        load, free = np.zeros((rows.size, used.size)), np.tile(slots, (rows.size, 1))
        key = load.copy()
        gpu = np.empty(rising.shape, dtype=np.int64)
        for i, size in enumerate(rising[:, ::-1].T):
            best = ((key + size[:, None]) / speed).argmin(axis=1)
            gpu[:, i] = best
            load[rows, best] += size
            free[rows, best] -= 1
            key[rows, best] = np.where(free[rows, best] > 0, load[rows, best], np.inf)
        return load / speed, gpu


@dataclass(eq=False)
class _Search:
    """The layers of a problem with their experts by falling load."""

    problem: Problem
    loads: Floats
    start: Ints
    tried: int
    rng: np.random.Generator
    patience: int | None

    def __post_init__(self) -> None:
        self.estimate = Estimate(self.problem)
        self.most = self.problem.most_copies
        self.even = even_domains(self.problem)
        self.now, self.best = self.start.copy(), self.start.copy()
        self.rows = np.arange(len(self.now))
        self.value, self.least = self._values(self.rows, self.now)
        self.gained, self.steps = np.zeros(len(self.now), dtype=np.int64), 0

    def step(self, part: float) -> None:
        """Try exchanges of all layers that are left; ``part`` of the work is done."""
        now, best, rows, value, least = self.now, self.best, self.rows, self.value, self.least
        tried, rng = self.tried, self.rng
        self.steps += 1
        draws, chance = rng.random((2, tried)), rng.random()
        tries = self._exchanges(rows, now[rows], draws).reshape(-1, now.shape[1])
        values, peaks = self._values(np.repeat(rows, tried), tries)
        first = np.arange(rows.size) * tried
        pick = first + values.reshape(-1, tried).argmin(axis=1)
        taken = pick[values[pick] < value[rows] * (1.0 + _HEAT * (1.0 - part) ** 2 * chance)]
        mine = rows[taken // tried]
        now[mine], value[mine] = tries[taken], values[taken]
        better = peaks[taken] < least[mine] * (1 - _LEAST_GAIN)
        best[mine[better]], least[mine[better]] = tries[taken[better]], peaks[taken[better]]
        self.gained[mine[better]] = self.steps
        if self.patience is not None:
            self.rows = rows[self.steps - self.gained[rows] < self.patience]

    def _exchanges(self, rows: Index, copies: Ints, draws: Floats) -> Ints:
        """Return ``[rows, tried, experts]``: one copy more of one expert, one fewer of another; or illegal counts."""
        tried = draws.shape[1]
        more = self.estimate.fullest(self.loads[rows], copies, draws[0][None, :])
        several = copies > 1
        count: Ints = several.sum(axis=1, keepdims=True)
        nth: Ints = (draws[1] * count).astype(np.int64) + 1  # of those with several copies
        rank: Ints = np.cumsum(several, axis=1)
        fewer = (rank[:, None, :] >= nth[:, :, None]).argmax(axis=2)
        tries = np.repeat(copies[:, None, :], tried, axis=1)
        at, which = np.arange(rows.size)[:, None], np.arange(tried)
        tries[at, which, fewer] -= 1
        tries[at, which, more] += 1
        tries[more == fewer] = 0  # the same counts again: no step stands still
        return tries

    def _values(self, row: Index, copies: Ints) -> tuple[Floats, Floats]:
        """Rank counts ``[n, experts]`` of the layers ``row`` ``[n]``: norm and largest load; infinite if illegal."""
        legal = (copies.min(axis=1) > 0) & (copies.max(axis=1) <= self.most)
        if not self.even:
            legal &= self.problem.counts_fit(copies)
        norms, peaks = np.full(len(copies), np.inf), np.full(len(copies), np.inf)
        which = np.flatnonzero(legal)
        size = max(1, _CELLS // self.problem.slots)
        for start in range(0, which.size, size):
            part = which[start : start + size]
            norms[part], peaks[part] = self.estimate.norms(self.loads[row[part]], copies[part])
        return norms, peaks


_FEW = 8000  # ways to share out the copies
_PACKED = 128  # of them, those that promise most, are packed
_ROWS_AT_ONCE = 20_000  # placements at once


def few_counts(problem: Problem) -> bool:
    """Whether there are few enough ways to give each expert a copy or more to look at them all."""
    return math.comb(problem.slots - 1, problem.experts - 1) <= _FEW


def best_of_all_counts(problem: Problem) -> Experts:
    """Look at every legal choice of counts and return the best placement of each layer, ``[layers, slots]``.

    Those that promise most (:class:`Estimate`) are packed and swapped, which is not proven to
    find the best of all.
    """
    bars = np.array(list(combinations(range(1, problem.slots), problem.experts - 1)), dtype=np.int64)
    ways = math.comb(problem.slots - 1, problem.experts - 1)
    edges = np.pad(bars.reshape(ways, problem.experts - 1), ((0, 0), (1, 1)))
    edges[:, -1] = problem.slots
    counts = np.diff(edges, axis=1)
    counts = counts[problem.counts_fit(counts)]
    estimate = Estimate(problem)
    most = min(_PACKED, len(counts))
    size = max(1, _ROWS_AT_ONCE // most)
    best = []
    for start in range(0, problem.layers, size):
        layers = np.arange(start, min(start + size, problem.layers))
        promise = np.stack(
            [estimate.peaks(np.tile(load, (len(counts), 1)), counts) for load in problem.mean[layers]]
        )
        first = np.argsort(promise, axis=1, kind="stable")[:, :most]
        many = problem.rows(np.repeat(layers, most))
        rows = swap_down(many, pack(many, counts[first.reshape(-1)]))
        load = many.evaluate(rows).reshape(layers.size, -1)
        best.append(rows.reshape(layers.size, -1, problem.slots)[np.arange(layers.size), load.argmin(axis=1)])
    return np.concatenate(best)
