"""How many copies each expert gets: the next one goes to the expert with the largest load per copy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.apart import domain_slots
from placement.problem import ExpertProblem


def replicate(problem: ExpertProblem, *, least: int = 1) -> NDArray[np.int64]:
    """Return the copies of each expert, int64 ``[layers, experts]``, at least ``least`` each and ``slots`` in all.

    Greedy: the next copy goes to the expert with the largest load per copy (ties: the lowest id) among those
    whose next copy can still be placed with no two in one failure domain. The legal counts are the bases of a
    polymatroid (:func:`room`), on which this greedy makes the largest load per copy as small as any legal
    counts can: counts that did better would give the worst expert a copy more, and so another expert a copy
    fewer than the greedy gave it, when its load per copy was no smaller than the worst one's.

    Raises
    ------
    InfeasibleError
        If a failure domain has more slots than there are experts.
    """
    slots = domain_slots(problem)
    loads, limit = problem.loads, room(slots)
    copies = np.full(loads.shape, least, dtype=np.int64)
    share = loads / least
    rows = np.arange(problem.layers)
    left = np.full(problem.layers, problem.slots - least * problem.experts)
    even = int(slots.max() - slots.min()) <= 1
    while (open_rows := rows[left > 0]).size:
        best = np.argmax(share[open_rows], axis=1)
        copies[open_rows, best] += 1
        # Where slots differ by one at most, any counts up to the number of domains can be placed.
        legal = copies[open_rows, best] <= limit[0] if even else counts_fit(copies[open_rows], limit)
        fit, full = open_rows[legal], open_rows[~legal]
        share[fit, best[legal]] = loads[fit, best[legal]] / copies[fit, best[legal]]
        copies[full, best[~legal]] -= 1
        share[full, best[~legal]] = -1.0  # once blocked, always blocked: the limit is submodular
        left[fit] -= 1
    return copies


def room(slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Most copies that any 1, 2, 3... experts can have together, ``slots`` being those of each failure domain.

    Entry ``k - 1`` is the sum over domains of ``min(slots, k)``: a domain holds one copy of each at most.
    """
    ks = np.arange(1, int(slots.max()) + 1)
    total: NDArray[np.int64] = np.minimum(slots[None, :], ks[:, None]).sum(axis=1)
    return total


def counts_fit(copies: NDArray[np.int64], limit: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether counts ``[layers, experts]`` can be placed, ``[layers]`` (Gale and Ryser's condition)."""
    most = np.cumsum(-np.sort(-copies, axis=1), axis=1)
    bound = np.full(copies.shape[1], limit[-1])
    bound[: limit.size] = limit[: copies.shape[1]]
    fits: NDArray[np.bool_] = np.all(most <= bound, axis=1)
    return fits
