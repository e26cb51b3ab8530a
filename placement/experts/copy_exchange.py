"""Other copy counts, in the placement itself: a copy of one expert becomes a copy of another, swaps follow.

Greedy counts are optimal for the largest copy, not for the largest GPU load: with two or three slots a GPU, GPUs of
unlike speed or very skewed loads other counts pack better. For one load the exchanges are those that promise most
(:func:`recount`), for several loads they are drawn (:func:`exchange_drawn`).
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Experts, Floats, Index, least_of_each
from placement.experts.local_search import swap_down
from placement.experts.problem import Problem
from placement.experts.scenario_search import descend, smooth_load

_SQUARINGS = (
    5  # exchanges rank by the norm of order 2 ** 5 of GPU loads: near the largest, but sees the others
)
_LEAST_GAIN = 1e-9
_PAIR_CELLS = 1 << 21  # loads of all GPUs after each exchange that a layer looks at
_HOLDER_CELLS = (
    1 << 25
)  # of the table of who holds what, [layers, GPUs, experts]: more layers go in several parts


def recount(
    problem: Problem,
    slot_expert: Experts,
    layers: Index,
    *,
    rounds: int,
    tried: int = 6,
) -> None:
    """Exchange copies in some ``layers`` of ``slot_expert`` ``[layers, slots]`` while it helps, in place.

    Each round tries, in each layer still improving, the ``tried`` best exchanges that relieve its hottest GPU: one
    more copy of an expert there, or one fewer, at the cost or to the good of another; swaps follow. Legal and
    never worse in any layer. Deterministic.
    """
    size = max(1, _HOLDER_CELLS // (tried * problem.gpus * problem.experts))
    for start in range(0, layers.size, size):
        part = layers[start : start + size]
        for _ in range(rounds):
            if part.size == 0:
                break
            part = _exchange_round(problem, slot_expert, part, tried)


def _exchange_round(problem: Problem, slot_expert: Experts, layers: Index, tried: int) -> Index:
    """Take the best exchange in each of ``layers``, in place; return the layers where one helped."""
    starts = [_promising(problem, slot_expert, int(layer), tried) for layer in layers]
    owner = np.repeat(np.arange(layers.size), [len(rows) for rows in starts])
    if owner.size == 0:
        return layers[:0]
    many = problem.rows(layers[owner])
    ends = swap_down(many, np.concatenate(starts))
    after = _norm(many.assignment(ends).gpu_load(many.mean) / many.speed)
    here = problem.rows(layers)
    before = _norm(here.assignment(slot_expert[layers]).gpu_load(here.mean) / here.speed)
    peak_before = here.evaluate(here.assignment(slot_expert[layers]))
    peak_after = many.evaluate(many.assignment(ends))
    best = least_of_each(owner, after)
    mine = owner[best]
    won = (after[best] < before[mine] * (1 - _LEAST_GAIN)) & (peak_after[best] <= peak_before[mine])
    slot_expert[layers[mine[won]]] = ends[best[won]]
    return layers[mine[won]]


def _promising(problem: Problem, slot_expert: Experts, layer: int, tried: int) -> Experts:
    """Return the rows ``[up to tried, slots]`` after the exchanges in one layer that promise most."""
    row, load = slot_expert[layer], problem.mean[layer]
    gpu = problem.slot_gpu
    copies = np.bincount(row, minlength=problem.experts)
    holds = problem.on_gpus(row[None, :])[0]
    domain = problem.failure_domain
    held = problem.in_domains(row[None, :])[0] > 0
    gpu_load = np.bincount(gpu, weights=(load / copies)[row], minlength=problem.gpus)
    busy = gpu_load / problem.speed
    hot = int(np.argmax(busy))
    spare = np.flatnonzero(copies[row] > 1)
    on_hot = row[gpu == hot]
    most = _PAIR_CELLS // (problem.gpus * on_hot.size)
    if spare.size > most:  # those of the least busy GPUs, and all of the hottest
        gain = np.where(gpu[spare] == hot, -np.inf, busy[gpu[spare]])
        spare = np.sort(spare[np.argsort(gain, kind="stable")[:most]])
    # One more copy of an expert of the hottest GPU, elsewhere; or any expert instead of a copy on it.
    more = np.array([(expert, slot) for expert in on_hot for slot in spare if gpu[slot] != hot]).reshape(
        -1, 2
    )
    fewer = np.array(
        [(expert, slot) for slot in spare if gpu[slot] == hot for expert in range(problem.experts)]
    ).reshape(-1, 2)
    pairs = np.concatenate([more, fewer]).astype(np.int64)
    new, slot = pairs[:, 0], pairs[:, 1]
    fine = ~held[domain[gpu[slot]], new] & (copies[new] < problem.most_copies)
    new, slot = new[fine], slot[fine]
    if new.size == 0:
        return np.empty((0, row.size), dtype=np.int32)
    old, at = row[slot], gpu[slot]
    share = load / copies
    thinner, thicker = load / (copies + 1), load / np.maximum(copies - 1, 1)
    less, extra = (thinner - share)[new], (thicker - share)[old]
    after = gpu_load + holds.T[new] * less[:, None] + holds.T[old] * extra[:, None]
    after[np.arange(new.size), at] = gpu_load[at] - share[old] + thinner[new]
    best = np.argsort(_norm(after / problem.speed), kind="stable")[:tried]
    rows = np.tile(row, (best.size, 1))
    rows[np.arange(best.size), slot[best]] = new[best]
    return rows


def _norm(gpu_load: Floats) -> Floats:
    peak = gpu_load.max(axis=1)
    level = gpu_load / peak[:, None]
    for _ in range(_SQUARINGS):
        level *= level
    norm: Floats = level.sum(axis=1)
    for _ in range(_SQUARINGS):  # roots of squares, which all CPUs round alike
        norm = np.sqrt(norm)
    found: Floats = peak * norm
    return found


_DRAW_POWER = 8  # of the odds in a draw: the likely exchanges first
_TRIES = 30  # draws of a copy and its replacement in a layer before it is left out of a round


def exchange_drawn(
    problem: Problem,
    slot_expert: Experts,
    rng: np.random.Generator,
    *,
    rounds: int,
) -> int:
    """Try one exchange of copies in every layer in each of ``rounds``, in place; return how many were better.

    ``slot_expert`` ``[layers, slots]`` is legal and never worse
    (:func:`placement.experts.scenario_search.smooth_load`). The expert that gains a copy is drawn by its largest
    load per copy, the one that loses one by what is left over; both to a high power.
    """
    if int(problem.average.slots) == problem.average.experts or not len(slot_expert):
        return 0
    best = smooth_load(problem, slot_expert)
    better = 0
    for _ in range(rounds):
        rows, trial = _drawn(problem, slot_expert, rng)
        if rows.size:
            part = problem.rows(rows)
            trial = descend(part, trial)
            after = smooth_load(part, trial)
            won = after < best[rows]
            slot_expert[rows[won]], best[rows[won]] = trial[won], after[won]
            better += int(won.sum())
    return better


def _drawn(problem: Problem, slot_expert: Experts, rng: np.random.Generator) -> tuple[Index, Experts]:
    """Draw an exchange in each layer; return the layers where there was a legal one, and their new rows."""
    average = problem.average
    copies = average.assignment(slot_expert).copies
    highest = problem.highest.mean
    domain = average.failure_domain[average.slot_gpu]
    tiny = 0.05  # of the mean load: experts below it are alike
    rows, drawn = [], []
    for layer, row in enumerate(slot_expert):
        more = _odds((highest[layer] / copies[layer]) ** _DRAW_POWER)
        left = highest[layer] / np.maximum(copies[layer] - 1, 1) + tiny
        fewer = _odds((copies[layer] > 1) * (tiny / left) ** _DRAW_POWER)
        for _ in range(_TRIES):
            new = int(rng.choice(average.experts, p=more))
            old = int(rng.choice(average.experts, p=fewer))
            slot = int(rng.choice(np.flatnonzero(row == old)))
            held = domain[row == new]
            if (
                copies[layer, old] > 1
                and new != old
                and domain[slot] not in held
                and held.size < average.most_copies
            ):
                changed = row.copy()
                changed[slot] = new
                rows.append(layer)
                drawn.append(changed)
                break
    return np.array(rows, dtype=np.intp), np.array(drawn, dtype=np.int32).reshape(len(rows), average.slots)


def _odds(weight: Floats) -> Floats:
    odds: Floats = weight / weight.sum()
    return odds
