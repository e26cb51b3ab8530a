"""How small the largest GPU load can be at best: bounds that hold for every legal assignment.

Copy counts are free, an expert's load splits evenly over its copies, and copies sit on distinct GPUs.
All values are multiples of the mean GPU load, so that 1 is perfect balance; a GPU's load counts over its speed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.apart import domain_slots
from placement.problem import ExpertProblem
from placement.replicate import replicate


def lower_bound(problem: ExpertProblem) -> NDArray[np.float64]:
    """Return the largest of the quick bounds here, ``[layers]``."""
    copies = np.maximum(largest_copy(problem), neighbours(problem))
    return np.maximum(mean_load(problem), copies)


def mean_load(problem: ExpertProblem) -> NDArray[np.float64]:
    """Spread each layer over the GPUs that have a slot: no largest load is below the mean."""
    used = problem.slots_per_gpu > 0
    return np.full(problem.layers, problem.gpus / float(problem.speed[used].sum()))


def largest_copy(problem: ExpertProblem) -> NDArray[np.float64]:
    """Return the smallest possible largest copy (:func:`placement.replicate.replicate` is optimal for it).

    With one slot on each of equally fast GPUs, a GPU's load is that of its copy, so that the bound is reached.
    """
    share = problem.loads / replicate(problem)
    return relative(problem, share.max(axis=1) / fastest(problem)[0])


def neighbours(problem: ExpertProblem) -> NDArray[np.float64]:
    """For each expert: its load and the least that must sit beside its copies, over as many GPUs.

    Let expert i have c of the ``spare + 1`` copies it could have. Its c GPUs have at least ``s`` other slots
    (the fewest of any c GPUs that have slots). Experts with several copies fill at most ``2 (spare - c + 1)``
    slots in all, since each takes a spare; the other ``s - 2 (spare - c + 1)`` hold single copies of distinct
    experts, with their whole load. The largest of the c GPU loads is at least the mean of them; of unequal GPUs
    load over speed, where no c GPUs are faster than the fastest c.
    """
    loads = problem.loads
    layers, experts = loads.shape
    spare = problem.slots - experts
    order = np.argsort(loads, axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    lightest = np.zeros((layers, experts + 1))
    np.cumsum(np.take_along_axis(loads, order, axis=1), axis=1, out=lightest[:, 1:])
    others = np.cumsum(np.sort(problem.slots_per_gpu[problem.slots_per_gpu > 0]) - 1)
    speed = np.cumsum(fastest(problem))
    best = np.full(loads.shape, np.inf)
    for c in range(1, most_copies(problem) + 1):
        single = max(0, int(others[c - 1]) - 2 * (spare - c + 1))
        if single > experts - 1:
            continue  # more single copies of other experts than there are: c copies are impossible
        beside = np.where(rank >= single, lightest[:, single][:, None], lightest[:, [single + 1]] - loads)
        best = np.minimum(best, (loads + beside) / speed[c - 1])
    return relative(problem, best.max(axis=1))


def most_copies(problem: ExpertProblem) -> int:
    """Most copies that an expert can have: one a failure domain, and one of each other expert."""
    return min(problem.slots - problem.experts + 1, int((domain_slots(problem) > 0).sum()))


def fastest(problem: ExpertProblem) -> NDArray[np.float64]:
    """Relative speeds of the GPUs that have a slot, fastest first."""
    speed: NDArray[np.float64] = -np.sort(-problem.speed[problem.slots_per_gpu > 0])
    return speed


def relative(problem: ExpertProblem, load: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return loads ``[layers]`` as multiples of the mean GPU load."""
    ratio: NDArray[np.float64] = load * problem.gpus / problem.loads.sum(axis=1)
    return ratio
