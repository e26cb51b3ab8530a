"""Copy counts: how many copies each expert gets.

Greedy, the next copy to the largest load per copy, is optimal for the largest copy, not for the largest GPU load.
With two slots on each of equal GPUs the packing of counts is known: the largest copy with the smallest (fold), so
that counts can be searched by themselves. With more slots, or GPUs of unequal speed, a family of divisor methods has
other counts to pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from placement.arrays import Floats, Index, Ints, falling, starts
from placement.budget import evenly
from placement.experts.problem import EQUAL, Problem

ROUNDINGS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7)
"""Of the divisor methods besides greedy (:func:`divided`)."""

_ROOTS = 3  # square roots of the load, one of the other, for counts where GPUs differ in speed
_LONG = 64  # copies given one by one; of more, most are given at once
_BISECTIONS = 12

_FOLD_ROUNDINGS = (0.1, 0.3)  # where the search begins, besides greedy
_TRIED = 4  # exchanges of a copy in each layer and step
_STEPS, _SLOTS_A_STEP = 60, 20  # of a search on the fast path, and one more for so many slots
_PATIENCE = 0.25  # of the steps without a gain: a layer is done
_HEAT = 2e-3  # of the value: by so much a step may be worse at the start; it falls to 0 with what is spent
_LEAST_GAIN = 1e-6
_MEETS = 1.05  # times the load, where a fold would put two copies of an expert on one GPU
_LARGER = 0.75  # of the draws: one more copy of the larger of the two on the fullest GPU
_SQUARINGS = 6  # counts rank by the norm of order 2 ** 6 of GPU loads: near the largest, but sees the others


def replicate(problem: Problem) -> Ints:
    """Return the copies of each expert, int64 ``[layers, experts]``, ``slots`` in all, within their range.

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
    loads = problem.mean
    if even_domains(problem):
        return divided(problem, loads, np.zeros(problem.layers))
    least, most = problem.copies_range
    copies = np.full(loads.shape, least, dtype=np.int64)
    share = loads / least
    rows = np.arange(problem.layers)
    left = np.full(problem.layers, problem.slots - least * problem.experts)
    while (open_rows := rows[left > 0]).size:
        best = np.argmax(share[open_rows], axis=1)
        copies[open_rows, best] += 1
        legal = problem.counts_fit(copies[open_rows]) & (copies[open_rows, best] <= most)
        fit, full = open_rows[legal], open_rows[~legal]
        share[fit, best[legal]] = loads[fit, best[legal]] / copies[fit, best[legal]]
        copies[full, best[~legal]] -= 1
        share[full, best[~legal]] = -1.0  # once blocked, always blocked: the limit is submodular
        left[fit] -= 1
    return copies


def even_domains(problem: Problem) -> bool:
    """Whether slots of failure domains differ by one at most: any counts up to their number can be placed."""
    slots = problem.domain_slots
    return int(slots.max() - slots.min()) <= 1


def divided(problem: Problem, loads: Floats, rounding: Floats, limits: tuple[int, int] | None = None) -> Ints:
    """Return counts ``[rows, experts]`` by a divisor method: the next copy to the largest load / (copies + rounding).

    ``rounding`` ``[rows]``: 0 is the greedy of :func:`replicate`; more of it gives the heaviest experts fewer copies
    than that and those in the middle more. Counts lie within ``limits``; None: :attr:`Problem.copies_range`.
    """
    (least, most), rounding = limits or problem.copies_range, rounding[:, None]
    spare = problem.slots - least * problem.experts
    copies = np.full(loads.shape, least, dtype=np.int64)
    if spare > _LONG:
        high = loads.max(axis=1, keepdims=True)
        low = loads.sum(axis=1, keepdims=True) / (2 * problem.slots)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            fits = np.clip(np.ceil(loads / middle - rounding), least, most).sum(axis=1) <= problem.slots
            high, low = np.where(fits[:, None], middle, high), np.where(fits[:, None], low, middle)
        copies = np.clip(np.ceil(loads / high - rounding), least, most).astype(np.int64)
    left = problem.slots - copies.sum(axis=1)
    rows = np.flatnonzero(left)
    if not rows.size:
        return copies
    score = np.where(copies < most, loads / (copies + rounding), -1.0)
    capped = least + spare > most  # else no expert can have more than there are domains
    first, rounding = np.arange(len(loads)) * problem.experts, rounding[:, 0]
    flat_copies, flat_loads, flat_score = copies.ravel(), loads.ravel(), score.ravel()
    while rows.size:  # the layers with a copy left
        some = slice(None) if rows.size == len(loads) else rows
        turns = int(left[rows].min())
        for _ in range(turns):
            best = score[some].argmax(axis=1) + first[some]
            count = flat_copies.take(best) + 1
            flat_copies[best] = count
            share = flat_loads.take(best) / (count + rounding[some])
            flat_score[best] = np.where(count < most, share, -1.0) if capped else share
        left -= turns
        rows = np.flatnonzero(left > 0)
    return copies


def powered_counts(problem: Problem) -> Iterator[Ints]:
    """Yield counts ``[layers, experts]`` by powers of the load, that may pack better on GPUs of unequal speed.

    Greedy ones make copies equal, so that GPUs with equally many slots get equal loads however fast they are; lower
    powers leave heavy copies for fast GPUs and light ones for slow GPUs.
    """
    flat = problem.mean
    for _ in range(_ROOTS):
        flat = np.sqrt(flat)  # which all CPUs round the same way
        yield replicate(replace(problem, loads=flat))


def divided_counts(problem: Problem, copies: Ints, enough: Floats) -> Ints:
    """Return ``copies`` ``[layers, experts]``, the greedy ones, or those of a divisor method that can pack better.

    They do by :func:`least_peak`, in layers where that of the greedy ones is above ``enough`` ``[layers]``.
    """
    found = copies.copy()
    peak = least_peak(problem, copies) * problem.gpus / problem.mean.sum(axis=1)
    rows = np.flatnonzero(peak > enough)
    if rows.size and even_domains(problem):
        found[rows] = _best_divided(problem.rows(rows), copies[rows], ROUNDINGS, least_peak)
    return found


def _best_divided(
    problem: Problem,
    copies: Ints,
    roundings: tuple[float, ...],
    peak: Callable[[Problem, Ints], Floats],
) -> Ints:
    """Return the best of ``copies`` and of the divisor methods in each layer, by ``peak``."""
    many = np.tile(problem.mean, (len(roundings), 1))
    found = divided(problem, many, np.repeat(roundings, problem.layers))
    every = np.concatenate([copies, found]).reshape(len(roundings) + 1, problem.layers, -1)
    value = np.stack([peak(problem, each) for each in every])
    value[1:] *= 1 + EQUAL  # none for a digit
    best: Ints = every[value.argmin(axis=0), np.arange(problem.layers)]
    return best


def _rising(loads: Floats, copies: Ints) -> Floats:
    items = np.repeat((loads / copies).reshape(-1), copies.reshape(-1)).reshape(len(loads), -1)
    items.sort(axis=1)
    return items


def least_peak(problem: Problem, copies: Ints) -> Floats:
    """Return what no packing of counts ``[layers, experts]`` on equally fast GPUs can be below, ``[layers]``.

    The j largest copies lie on j GPUs at best, and the smallest there are fill their other slots.
    """
    rising = _rising(problem.mean, copies)
    used = np.sort(problem.slots_per_gpu[problem.slots_per_gpu > 0])
    sums = np.zeros((len(rising), problem.slots + 1))
    np.cumsum(rising, axis=1, out=sums[:, 1:])
    heavy = sums[:, -1:] - sums[:, problem.slots - used.size : problem.slots][:, ::-1]
    level: Floats = (heavy + sums[:, np.cumsum(used - 1)]) / np.arange(1, used.size + 1)
    peak: Floats = level.max(axis=1)
    return peak


def folds(problem: Problem) -> bool:
    """Whether the best packing is a fold: all GPUs that have slots have two, and are equally fast."""
    used = problem.slots_per_gpu > 0
    speed = problem.speed[used]
    return bool((problem.slots_per_gpu[used] == 2).all() and (speed == speed[0]).all())


def folded_peak(problem: Problem, copies: Ints) -> Floats:
    """Return the largest of the folded loads of counts ``[layers, experts]`` over the mean GPU load, ``[layers]``."""
    rising, gpus = _rising(problem.mean, copies), problem.slots // 2
    level = rising[:, :gpus] + rising[:, : gpus - 1 : -1]
    peak: Floats = level.max(axis=1) / problem.speed.max() * problem.gpus / problem.mean.sum(axis=1)
    return peak


def fold_counts(
    problem: Problem,
    copies: Ints,
    enough: Floats | None = None,
    *,
    rounds: Iterable[float] | None = None,
    seed: int = 0,
) -> Ints:
    """Return better counts than ``copies`` ``[layers, experts]`` for GPUs of two slots (:func:`folds`).

    A search by exchanges of one copy, a step for each of ``rounds``, which say how much is done; without them a fixed
    number of steps, and in a layer until its :func:`folded_peak` is at most ``enough`` ``[layers]``. Draws are the
    same in every layer, over experts by falling load: deterministic, layer by layer, and independent of the experts'
    names.
    """
    order = falling(problem.mean)
    ranked = replace(problem, loads=np.take_along_axis(problem.mean, order, axis=1))
    start = np.take_along_axis(copies, order, axis=1)
    steps = _STEPS + problem.slots // _SLOTS_A_STEP
    if even_domains(problem):
        start = _best_divided(ranked, start, _FOLD_ROUNDINGS, folded_peak)
    search = _FoldSearch(ranked, start, seed, enough)
    patience = int(_PATIENCE * steps) if rounds is None else None
    for done in (evenly(steps) if rounds is None else rounds) if search.rows.size else ():
        search.step(done, patience)
        if not search.rows.size:
            break
    found = np.empty_like(copies)
    np.put_along_axis(found, order, search.best, axis=1)
    return found


class _FoldSearch:
    """Counts of layers whose experts fall by load; copies are numbers whose lowest bits name their expert.

    Each step tries some exchanges a layer: one more copy of an expert on the fullest GPU, one fewer of another. The
    best is taken where it helps, or is worse by a little, which falls to 0 while the part of the work that is done
    rises to 1.
    """

    def __init__(self, problem: Problem, start: Ints, seed: int, enough: Floats | None) -> None:
        self.problem, self.loads, self.rng = problem, problem.mean, np.random.default_rng(seed)
        self.mask = (1 << problem.experts.bit_length()) - 1
        self.fewest, most = problem.copies_range
        self.most = min(most, problem.most_copies)
        self.all_fit = even_domains(problem)
        self.now, self.best = start.copy(), start.copy()
        self.enough = np.zeros(len(start))
        if enough is not None:
            self.enough = enough * problem.mean.sum(axis=1) * problem.speed.max() / problem.gpus
        keys = self._key(self.loads / start, np.arange(problem.experts))
        self.keys = np.repeat(keys.ravel(), start.ravel()).reshape(len(start), -1)
        self.keys.sort(axis=1)
        self.value, self.least = self._values(self.keys)
        self.gained, self.steps = np.zeros(len(start), dtype=np.int64), 0
        self.rows = np.flatnonzero(self.least > self.enough)

    def _key(self, load: Floats, expert: Index) -> Ints:
        key: Ints = (load.view(np.int64) & ~self.mask) | expert
        return key

    def step(self, done: float, patience: int | None) -> None:
        """Try exchanges in all layers that are left; ``done`` of the work is done."""
        self.steps += 1
        rows = self.rows
        draws, chance = self.rng.random((2, _TRIED)), self.rng.random()
        row, more, fewer = self._drawn(rows, draws)
        if row.size:
            keys = self._exchanged(row, more, fewer)
            values, peaks = self._values(keys)
            first = starts(row)
            least = np.minimum.reduceat(values, first)
            pick = np.flatnonzero(values == np.repeat(least, np.diff(first, append=row.size)))
            pick = pick[starts(row[pick])]
            pick = pick[values[pick] < self.value[row[pick]] * (1.0 + _HEAT * (1.0 - done) ** 2 * chance)]
            mine = row[pick]
            self.now[mine, more[pick]] += 1
            self.now[mine, fewer[pick]] -= 1
            self.keys[mine], self.value[mine] = keys[pick], values[pick]
            better = peaks[pick] < self.least[mine] * (1 - _LEAST_GAIN)
            won = mine[better]
            self.best[won], self.least[won], self.gained[won] = self.now[won], peaks[pick[better]], self.steps
        if patience is not None:
            self.rows = rows[
                (self.steps - self.gained[rows] < patience) & (self.least[rows] > self.enough[rows])
            ]

    def _drawn(self, rows: Index, draws: Floats) -> tuple[Index, Index, Index]:
        """Draw legal exchanges: the layer, the expert that gets a copy and the one that loses one, by layer."""
        keys, now, gpus = self.keys[rows], self.now[rows], self.problem.slots // 2
        load = keys.view(np.float64)
        full = (load[:, :gpus] + load[:, : gpus - 1 : -1]).argmax(axis=1)[:, None]  # the i-th smallest copy
        place = np.where(draws[0] < _LARGER, self.problem.slots - 1 - full, full)
        more = np.take_along_axis(keys, place, axis=1) & self.mask
        rank = np.cumsum(np.maximum(now - self.fewest, 0), axis=1)  # of the copies that can go
        nth = (draws[1] * rank[:, -1:]).astype(np.int64) + 1
        fewer = (rank[:, None, :] >= nth[:, :, None]).argmax(axis=2)
        at = np.arange(rows.size)[:, None]
        legal = (more != fewer) & (now[at, fewer] > self.fewest) & (now[at, more] < self.most)
        row, which = np.nonzero(legal)
        more, fewer = more[row, which], fewer[row, which]
        if not self.all_fit:
            tries, each = now[row], np.arange(row.size)
            tries[each, more] += 1
            tries[each, fewer] -= 1
            fits = self.problem.counts_fit(tries)
            row, more, fewer = row[fits], more[fits], fewer[fits]
        return rows[row], more, fewer

    def _exchanged(self, row: Index, more: Index, fewer: Index) -> Ints:
        """Return the copies after each exchange, ``[exchanges, slots]`` by rising load."""
        keys, each = self.keys[row], np.arange(row.size)
        expert = keys & self.mask
        smaller = self._key(self.loads[row, more] / (self.now[row, more] + 1), more)
        larger = self._key(self.loads[row, fewer] / (self.now[row, fewer] - 1), fewer)
        gone = expert == fewer[:, None]
        np.copyto(keys, larger[:, None], where=gone)
        np.copyto(keys, smaller[:, None], where=expert == more[:, None])
        keys[each, gone.argmax(axis=1)] = smaller
        keys.sort(axis=1, kind="stable")  # merges what is in order but for two runs
        return keys

    def _values(self, keys: Ints) -> tuple[Floats, Floats]:
        """Return a norm of the GPU loads, near the largest, and the largest, ``[rows]``."""
        load, gpus = keys.view(np.float64), self.problem.slots // 2
        level = load[:, :gpus] + load[:, : gpus - 1 : -1]
        peak: Floats = level.max(axis=1)
        # copies of an expert follow each other: two of one meet where the two in the middle are of one
        peak *= np.where((keys[:, gpus - 1] ^ keys[:, gpus]) & self.mask, 1.0, _MEETS)
        part = (level / peak[:, None]).astype(np.float32)
        for _ in range(_SQUARINGS):
            part *= part
        norm: Floats = part.sum(axis=1).astype(np.float64)
        for _ in range(_SQUARINGS):  # a root by square roots, which all CPUs round the same way
            norm = np.sqrt(norm)
        return peak * norm, peak
