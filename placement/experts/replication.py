"""Replication: how many copies each expert gets.

Greedy, the next copy to the largest load per copy, is optimal for the largest copy, not for the largest GPU load;
with two or three slots per GPU, or very skewed loads, other counts pack better:
:mod:`placement.experts.count_search`.
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats, Ints
from placement.experts.problem import Problem


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
    loads = problem.mean
    if even_domains(problem):
        return divided(problem, loads, np.zeros(problem.layers), least=least)
    copies = np.full(loads.shape, least, dtype=np.int64)
    share = loads / least
    rows = np.arange(problem.layers)
    left = np.full(problem.layers, problem.slots - least * problem.experts)
    while (open_rows := rows[left > 0]).size:
        best = np.argmax(share[open_rows], axis=1)
        copies[open_rows, best] += 1
        legal = problem.counts_fit(copies[open_rows])
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


_LONG = 64  # copies given one by one; of more, most are given at once
_BISECTIONS = 12


def divided(problem: Problem, loads: Floats, rounding: Floats, *, least: int = 1) -> Ints:
    """Return counts ``[rows, experts]`` by a divisor method: the next copy to the largest load / (copies + rounding).

    ``rounding`` ``[rows]``: 0 is the greedy of :func:`replicate`; more of it gives the heaviest experts fewer copies
    than that and those in the middle more. Counts up to the failure domains there are (:func:`even_domains`).
    """
    most, rounding = int(problem.room[0]), rounding[:, None]
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
    score = np.where(copies < most, loads / (copies + rounding), -1.0)
    rows = np.flatnonzero(left > 0)
    while rows.size:
        best = (score if rows.size == len(score) else score[rows]).argmax(axis=1)
        count = copies[rows, best] + 1
        copies[rows, best] = count
        score[rows, best] = np.where(count < most, loads[rows, best] / (count + rounding[rows, 0]), -1.0)
        left[rows] -= 1
        if left.max() == 0 or left.min() == 0:
            rows = rows[left[rows] > 0]
    return copies
