"""Copy counts: how many copies each expert gets.

Greedy, the next copy to the largest load per copy, is optimal for the largest copy, not for the largest GPU load.
Other counts are those of :func:`other_counts`. With two slots on each of equal GPUs the packing of counts is known:
the largest copy with the smallest (fold), so that counts can be searched by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from placement.arrays import Floats, Index, Ints, starts, tag_mask, tagged
from placement.budget import evenly
from placement.experts.problem import EQUAL, Problem

_ROOTS = 3  # square roots of the load, one of the other, for counts where GPUs differ in speed
_SORTED = 512  # copies given by sorting, where loads fall with the expert
_LONG = 64  # copies given one by one; of more, most are given at once
_BISECTIONS = 12

_LIGHTER = ((0, 0), (1, 0), (2, 0), (5, 1))  # copies that go to the lightest experts; two to so many of those
_DRAWN, _DRAWN_LIGHTER = 2, (0, 2)  # loads are larger by so many times that of the priced expert
_OUTER_EXPERTS = 24  # experts above and below those of middle load
_PRICED = 16  # the expert of that rank from the end has the load that a copy beside a large one may have
_DONORS = (
    4  # experts tried that lose a copy, those whose copies then are smallest; some more where none helps
)
_WIDER_DONORS = 2
_STEPS_A_SPARE = 0.375  # exchanges of a copy in each layer for each spare one, on the fast path
_LEAST_GAIN = 1e-6
_FEW_SPARE_DIVISOR = 2  # spare copies are few up to a half of the experts
_WIDER = 4  # steps, of which the last looks at more exchanges where fewer brought nothing
_MAX_WIDENINGS = 2  # with few donors, and with twice as many
_CELLS = 1 << 22  # copies in the layers looked at together
_ROUNDINGS = (0.1, 0.3)  # of the divisor methods where a search begins, besides greedy
_STEPS, _MORE_STEPS = 60, 20  # of a search on the fast path, and one more for so many slots
_EXCHANGES_TRIED = 4  # exchanges of a copy in each layer and step
_PATIENCE = 0.25  # of the steps without a gain: a layer is done
_HEAT = 2e-3  # of the value: by so much a step may be worse at the start; it falls to 0 with what is spent
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
    least, most = problem.copies_range
    if even_domains(problem):
        spare = problem.slots - problem.experts
        if least == 1 and 0 < spare <= _SORTED and (loads[:, 1:] <= loads[:, :-1]).all():
            return _counted(_given(loads, spare, most), problem.experts)
        return divided(problem, loads, np.zeros(problem.layers))
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


def other_counts(problem: Problem) -> Ints:
    """Return counts that may pack better than greedy ones, ``[ways, layers, experts]``; loads fall with the expert.

    Greedy counts for loads that are all larger by the same: the heaviest have fewer copies, those of middle load and
    the lightest more. Any counts up to the failure domains can be placed (:func:`even_domains`).
    """
    loads, spare = problem.mean, problem.slots - problem.experts
    given = _given(loads + _DRAWN * _priced(loads), spare, problem.most_copies)
    ways = [_lighter(given, problem.experts, fewer) for fewer in _DRAWN_LIGHTER if fewer < spare]
    return _counted(np.stack(ways), problem.experts)


def _folding_counts(loads: Floats, spare: int, most: int) -> Ints:
    """Return counts that may fold better than greedy ones, ``[ways, layers, experts]``; loads fall with the expert.

    A large copy fills its GPU with the lightest there are, and those are few. Let p be the load that may lie beside
    one. An expert of load w whose c copies are to be at most U, or p in all above it, needs ``(w - p) / U`` copies:
    greedy counts for what loads are above p give the heaviest more, and those of middle size fewer. What that saves
    goes to the lightest: copies of one are more that fit beside a large one. (The prices of
    :func:`placement.experts.bounds.priced` say the same.)
    """
    given = _given(np.maximum(loads - _priced(loads), 0.0), spare, most)
    ways = [
        _lighter(given, loads.shape[1], *way)
        for way in _LIGHTER
        if way[0] < spare and way[0] <= loads.shape[1]
    ]
    return _counted(np.stack(ways), loads.shape[1])


def _priced(loads: Floats) -> Floats:
    """Return the load that a copy beside a large one may have, ``[layers, 1]``."""
    return loads[:, max(0, loads.shape[1] - _PRICED)][:, None]


def _lighter(given: Index, experts: int, fewer: int, twice: int = 0) -> Index:
    """Return ``given`` ``[layers, spare]`` with the last ``fewer`` copies to the lightest; ``twice``: two to one."""
    lighter = given.copy()
    lighter[:, given.shape[1] - fewer :] = (
        experts - 1 - np.concatenate([np.arange(twice), np.arange(fewer - twice)])
    )
    return lighter


def _counted(given: Index, experts: int) -> Ints:
    """Return the copies of each expert, ``[.., experts]``, one and as many as are ``given`` ``[.., spare]``."""
    rows = given.reshape(-1, given.shape[-1])
    cells = rows + (np.arange(len(rows)) * experts)[:, None]
    counts = np.bincount(cells.reshape(-1), minlength=len(rows) * experts)
    counts += 1
    return counts.reshape(*given.shape[:-1], experts)


def _given(loads: Floats, spare: int, most: int) -> Index:
    """Return which expert gets the first, second... copy above one each by the greedy, ``[layers, spare]``.

    Loads fall, so that an expert gets its c-th only after all before it have theirs: few can be among the first.
    """
    ranks = np.arange(1, min(loads.shape[1], spare) + 1)
    many = np.minimum(spare // ranks, most - 1)
    expert = np.repeat(ranks - 1, many)
    copies = np.arange(expert.size) - np.repeat(np.cumsum(many) - many, many) + 1
    mask = tag_mask(expert.size)
    key = tagged(loads[:, expert] / copies, mask - np.arange(expert.size), mask)
    key.sort(axis=1)
    given: Index = expert[mask - (key[:, : -spare - 1 : -1] & mask)]
    return given


def least_peak(problem: Problem, copies: Ints) -> Floats:
    """Return what no packing of counts ``[layers, experts]`` on equally fast GPUs can be below, ``[layers]``.

    In multiples of the mean load. The j largest copies lie on j GPUs at best, and the smallest there are fill their
    other slots.
    """
    rising = np.repeat((problem.mean / copies).reshape(-1), copies.reshape(-1)).reshape(problem.layers, -1)
    rising.sort(axis=1)
    used = np.sort(problem.slots_per_gpu[problem.slots_per_gpu > 0])
    sums = np.zeros((len(rising), problem.slots + 1))
    np.cumsum(rising, axis=1, out=sums[:, 1:])
    heavy = sums[:, -1:] - sums[:, problem.slots - used.size : problem.slots][:, ::-1]
    level: Floats = (heavy + sums[:, np.cumsum(used - 1)]) / np.arange(1, used.size + 1)
    peak: Floats = level.max(axis=1) * problem.gpus / problem.mean.sum(axis=1)
    return peak


def folds(problem: Problem) -> bool:
    """Whether the best packing is a fold: all GPUs that have slots have two, and are equally fast."""
    used = problem.slots_per_gpu > 0
    speed = problem.speed[used]
    return bool((problem.slots_per_gpu[used] == 2).all() and (speed == speed[0]).all())


def folded_peak(problem: Problem, copies: Ints) -> Floats:
    """Return the largest of the folded loads of counts ``[layers, experts]`` over the mean GPU load, ``[layers]``."""
    return _folded(problem.mean / copies, copies, problem.slots // 2) * _unit(problem)


def _unit(problem: Problem) -> Floats:
    """Return by what loads become multiples of the mean GPU load on GPUs that are equally fast, ``[layers]``."""
    unit: Floats = problem.gpus / problem.speed.max() / problem.mean.sum(axis=1)
    return unit


def _single(values: Floats | Ints) -> Floats:
    half: Floats = values.astype(np.float32)  # as much to sort
    return half


def _folded(share: Floats, copies: Ints, pairs: int) -> Floats:
    """Return the largest of the outer ``pairs`` of the folded copies, ``[..]``, of ``[.., experts]``."""
    items: Floats = np.repeat(share.reshape(-1), copies.reshape(-1)).reshape(*copies.shape[:-1], -1)
    items.sort(axis=-1)
    peak: Floats = (items[..., :pairs] + items[..., : -pairs - 1 : -1]).max(axis=-1)
    return peak


def fold_counts(problem: Problem, copies: Ints, enough: Floats) -> tuple[Ints, Floats]:
    """Return better counts than ``copies`` ``[layers, experts]`` for GPUs of two slots, and their folded peaks.

    Loads fall with the expert, so that names decide nothing. Of few spare copies one is exchanged after the other,
    the best of some tried; of many, :func:`searched_counts` tries more, at random. A layer is done where its folded
    peak is at most ``enough`` ``[layers]``, or where no more is to be gained. Deterministic, and layer by layer.
    """
    best, least = copies.copy(), folded_peak(problem, copies)
    rows = np.flatnonzero(least > enough)
    if problem.slots == problem.experts or not rows.size:
        return best, least
    if problem.slots - problem.experts > problem.experts // _FEW_SPARE_DIVISOR:
        best = searched_counts(problem, copies, enough)
        return best, folded_peak(problem, best)
    search = _Exchanges(problem, best)
    if search.all_fit and not problem.seconds_first:
        search.start(rows)
    for turn in range(max(_WIDER, int(_STEPS_A_SPARE * (problem.slots - problem.experts)))):
        search.step(rows, int(turn % _WIDER == _WIDER - 1))
        rows = rows[(search.stuck[rows] < _MAX_WIDENINGS) & (search.peak[rows] > enough[rows])]
        if not rows.size:
            break
    _keep_lower(problem, best, least, search.now, np.arange(problem.layers))
    return best, least


def searched_counts(
    problem: Problem,
    copies: Ints,
    enough: Floats | None = None,
    *,
    rounds: Iterable[float] | None = None,
    seed: int = 0,
) -> Ints:
    """Return better counts than ``copies`` ``[layers, experts]`` for GPUs of two slots (:func:`folds`).

    A search by exchanges of one copy, a step for each of ``rounds``, which say how much is done; without them a fixed
    number of steps, and in a layer until its :func:`folded_peak` is at most ``enough`` ``[layers]``. Loads fall with
    the expert, and draws are the same in every layer: deterministic, layer by layer.
    """
    start = copies
    if even_domains(problem):
        many = np.tile(problem.mean, (len(_ROUNDINGS), 1))
        found = divided(problem, many, np.repeat(_ROUNDINGS, problem.layers)).reshape(-1, *copies.shape)
        every = np.concatenate([copies[None], found])
        peaks = np.stack([folded_peak(problem, each) for each in every])
        peaks[1:] *= 1 + EQUAL  # none for a digit
        start = every[peaks.argmin(axis=0), np.arange(problem.layers)]
    steps = _STEPS + problem.slots // _MORE_STEPS
    search = _FoldSearch(problem, start, seed, enough)
    patience = int(_PATIENCE * steps) if rounds is None else None
    for done in (evenly(steps) if rounds is None else rounds) if search.rows.size else ():
        search.step(done, patience)
        if not search.rows.size:
            break
    return search.best


def _keep_lower(problem: Problem, best: Ints, least: Floats, now: Ints, rows: Index) -> None:
    """Take the ``rows`` of ``now`` whose folded peak is below ``least``, in place."""
    if not rows.size:
        return
    peak = _folded(problem.mean[rows] / now[rows], now[rows], problem.slots // 2) * _unit(problem)[rows]
    lower = np.flatnonzero(peak < least[rows] * (1 - _LEAST_GAIN))
    best[rows[lower]], least[rows[lower]] = now[rows[lower]], peak[lower]


class _Exchanges:
    """Exchanges of one copy in many layers; experts of middle load, one copy each, lie with each other: left out.

    ``now`` ``[layers, experts]`` are the counts, ``peak`` ``[layers]`` the folded peaks of what is not left out, and
    ``stuck`` ``[layers]`` how many kinds of exchange brought nothing.
    """

    def __init__(self, problem: Problem, start: Ints) -> None:
        self.problem, self.now = problem, start.copy()
        self.least, most = problem.copies_range
        self.most = min(most, problem.most_copies)
        self.stuck, self.peak = np.zeros(len(start), dtype=np.int64), np.full(len(start), np.inf)
        spare = problem.slots - problem.experts
        heavy, light = spare + _OUTER_EXPERTS, spare + _OUTER_EXPERTS // 2
        self.pairs = problem.slots // 2
        self.chosen = np.arange(problem.experts)
        if heavy + light < problem.experts and (start[:, heavy:-light] == 1).all():
            self.chosen, self.pairs = np.delete(self.chosen, slice(heavy, -light)), light
        self.loads = problem.mean[:, self.chosen]
        self.unit = _unit(problem)
        self.all_fit = even_domains(problem)

    def start(self, rows: Index) -> None:
        """Take other counts in ``rows`` where they fold better."""
        spare, now = self.problem.slots - self.problem.experts, self.now[rows[:, None], self.chosen]
        loads = self.loads[rows]
        every = np.concatenate([now[None], _folding_counts(loads, spare, self.most)])
        peaks = _folded(_single(loads) / _single(every), every, self.pairs)
        peaks[1:] *= 1 + EQUAL  # none for a digit
        self.now[rows[:, None], self.chosen] = every[peaks.argmin(axis=0), np.arange(rows.size)]

    def step(self, rows: Index, wider: int) -> None:
        """Exchange a copy in those of ``rows`` where that may help; ``wider``: look at more where it did not."""
        some = rows[self.stuck[rows] == wider]
        size = max(1, _CELLS // (self.problem.slots * _DONORS << (1 + 2 * wider)))
        for start in range(0, some.size, size):
            self._exchange(some[start : start + size], wider)

    def _exchange(self, rows: Index, wider: int) -> None:
        copies = self.now[rows[:, None], self.chosen]
        peak, helps, more, fewer = _best_exchange(
            self.loads[rows], copies, self.pairs, (self.least, self.most), wider
        )
        got, gave = self.chosen[more], self.chosen[fewer]
        self.now[rows[helps], got] += 1
        self.now[rows[helps], gave] -= 1
        self.stuck[rows] += 1
        self.stuck[rows[helps]] = 0
        self.peak[rows] = peak * self.unit[rows]
        if not self.all_fit:
            wrong = np.flatnonzero(~self.problem.counts_fit(self.now[rows[helps]]))
            self.now[rows[helps[wrong]], got[wrong]] -= 1
            self.now[rows[helps[wrong]], gave[wrong]] += 1
            self.stuck[rows[helps[wrong]]] = _MAX_WIDENINGS


def _best_exchange(
    loads: Floats, copies: Ints, pairs: int, limits: tuple[int, int], wider: int
) -> tuple[Floats, Index, Index, Index]:
    """Find the exchange of a copy that lowers the largest of the outer ``pairs`` of the fold most.

    ``loads`` and ``copies`` ``[rows, experts]``, these within ``limits``. Returns that largest load after it,
    ``[rows]``; the rows where it is lower, and the experts that get and lose a copy there.
    """
    (rows, experts), (least, most) = loads.shape, limits
    layer, mask, flat = np.arange(rows), tag_mask(experts), copies.reshape(-1)
    key = tagged(loads / copies, np.arange(experts), mask)
    keys = np.repeat(key.reshape(-1), flat).reshape(rows, -1)
    plain = keys.view(np.float64).astype(np.float32)
    keys.sort(axis=1)
    level = keys.view(np.float64)[:, :pairs] + keys.view(np.float64)[:, : -pairs - 1 : -1]
    fullest = level.argmax(axis=1)
    peak = level[layer, fullest]
    gets = [keys[layer, keys.shape[1] - 1 - fullest] & mask, keys[layer, fullest] & mask]
    if wider:  # and two that are single, and in halves as light as the lighter copy there
        halves = (copies == 1) & (loads <= 2 * keys[layer, fullest].view(np.float64)[:, None])
        for _ in range(2):
            gets.append(halves.argmax(axis=1))
            halves[layer, gets[-1]] = False
    more = np.stack(gets, axis=1)
    left = np.where(copies > least, loads / np.maximum(copies - 1, 1), np.inf)
    order = tagged(left, np.arange(experts), mask)
    order.sort(axis=1)
    fewer = order[:, : _DONORS + wider * _WIDER_DONORS] & mask
    gains, gives = (which + (layer * experts)[:, None] for which in (more, fewer))
    larger, smaller = (
        left.take(gives).astype(np.float32),
        (loads.take(gains) / (flat.take(gains) + 1)).astype(np.float32),
    )
    first = np.cumsum(flat) - flat - np.repeat(layer * keys.shape[1], experts)
    legal = (flat.take(gives) > least)[:, None] & (flat.take(gains) < most)[:, :, None]
    legal &= more[:, :, None] != fewer[:, None]
    items = np.empty((*legal.shape, keys.shape[1]), dtype=np.float32)
    items[:] = plain[:, None, None]
    which, slot = _copies_of(first.take(gives), flat.take(gives))
    row, nth = np.divmod(which, fewer.shape[1])
    items[row, :, nth, slot] = larger.reshape(-1)[which, None]
    items[
        layer[:, None, None],
        np.arange(more.shape[1])[:, None],
        np.arange(fewer.shape[1]),
        first.take(gives)[:, None],
    ] = smaller[:, :, None]
    which, slot = _copies_of(first.take(gains), flat.take(gains))
    row, nth = np.divmod(which, more.shape[1])
    items[row, nth, :, slot] = smaller.reshape(-1)[which, None]
    items.sort(axis=-1)
    value = (items[..., :pairs] + items[..., : -pairs - 1 : -1]).max(axis=-1)
    value[~legal] = np.inf
    value = value.reshape(rows, -1)
    best = value.argmin(axis=1)
    helps = np.flatnonzero(value[layer, best] < peak * (1 - _LEAST_GAIN))
    which, other = np.divmod(best[helps], fewer.shape[1])
    peak[helps] = value[helps, best[helps]]
    return peak, helps, more[helps, which], fewer[helps, other]


def _copies_of(first: Index, many: Ints) -> tuple[Index, Index]:
    """Return of each copy of several runs, in order, which run it is of and where it lies."""
    many = many.reshape(-1)
    which = np.repeat(np.arange(many.size), many)
    return which, np.arange(which.size) + np.repeat(first.reshape(-1) - np.cumsum(many) + many, many)


class _FoldSearch:
    """Counts of layers whose experts fall by load; copies are numbers whose lowest bits name their expert.

    Each step tries some exchanges a layer: one more copy of an expert on the fullest GPU, one fewer of another. The
    best is taken where it helps, or is worse by a little, which falls to 0 while the part of the work that is done
    rises to 1.
    """

    def __init__(self, problem: Problem, start: Ints, seed: int, enough: Floats | None) -> None:
        self.problem, self.loads, self.rng = problem, problem.mean, np.random.default_rng(seed)
        self.mask = tag_mask(problem.experts)
        self.fewest, most = problem.copies_range
        self.most = min(most, problem.most_copies)
        self.all_fit = even_domains(problem)
        self.now, self.best = start.copy(), start.copy()
        self.enough = np.zeros(len(start))
        if enough is not None:
            self.enough = enough * problem.mean.sum(axis=1) * problem.speed.max() / problem.gpus
        keys = tagged(self.loads / start, np.arange(problem.experts), self.mask)
        self.keys = np.repeat(keys.ravel(), start.ravel()).reshape(len(start), -1)
        self.keys.sort(axis=1)
        self.value, self.least = self._values(self.keys)
        self.gained, self.steps = np.zeros(len(start), dtype=np.int64), 0
        self.rows = np.flatnonzero(self.least > self.enough)

    def step(self, done: float, patience: int | None) -> None:
        """Try exchanges in all layers that are left; ``done`` of the work is done."""
        self.steps += 1
        rows = self.rows
        draws, chance = self.rng.random((2, _EXCHANGES_TRIED)), self.rng.random()
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
        smaller = tagged(self.loads[row, more] / (self.now[row, more] + 1), more, self.mask)
        larger = tagged(self.loads[row, fewer] / (self.now[row, fewer] - 1), fewer, self.mask)
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
