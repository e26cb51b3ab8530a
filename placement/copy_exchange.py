"""Other copy counts for several loads, in the placement itself: a copy of one expert becomes a copy of another."""

from __future__ import annotations

import numpy as np

from placement.arrays import Experts, Floats, Index
from placement.problem import Problem
from placement.scenario_search import descend, smooth_load

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

    ``slot_expert`` ``[layers, slots]`` is legal and never worse (:func:`placement.scenario_search.smooth_load`). The
    expert that gains a copy is drawn by its largest load per copy, the one
    that loses one by what is left over; both to a high power.
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
