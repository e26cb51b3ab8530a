"""How small the largest GPU load can be at best: bounds that hold for every legal assignment.

Copy counts are free, an expert's load splits evenly over its copies, and copies sit on distinct GPUs.
All values are multiples of the mean GPU load, so that 1 is perfect balance; a GPU's load counts over its speed.
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Bools, Floats, Index
from placement.problem import Problem
from placement.replication import replicate


def lower_bound(problem: Problem) -> Floats:
    """Return what no placement can be below, ``[layers]``, under the loads, objective and split of ``problem``.

    Over scenarios: the mean, or the worst, of their own bounds. With an even split the mean over scenarios is also at
    least the largest load under their mean, and the worst at least the mean; and one set of counts serves all
    scenarios: the worst is at least the largest copy under each expert's highest load. Mean load, largest copy and
    the single copies beside an expert hold for any split: of c copies one has at least a c-th of the load. Failure
    domains are left out then, since an expert may have more copies than domains.
    """
    if problem.split != "even":
        problem = problem.without_spread()
    bound = problem.over_scenarios(np.stack([_of_one_load(part) for part in problem.each()]))
    if problem.split != "even" or problem.scenarios == 1:
        return bound
    bound = np.maximum(bound, _of_one_load(problem.average))
    if problem.objective == "worst":
        above_mean = problem.highest.mean.mean(axis=1)
        bound = np.maximum(bound, largest_copy(problem.highest) * above_mean)
    return bound


def _of_one_load(problem: Problem) -> Floats:
    copies = np.maximum(largest_copy(problem), neighbours(problem))
    return np.maximum(mean_load(problem), copies)


def mean_load(problem: Problem) -> Floats:
    """Spread each layer over the GPUs that have a slot: no largest load is below the mean."""
    used = problem.slots_per_gpu > 0
    return np.full(problem.layers, problem.gpus / float(problem.speed[used].sum()))


def largest_copy(problem: Problem) -> Floats:
    """Return the smallest possible largest copy (:func:`placement.replication.replicate` is optimal for it).

    With one slot on each of equally fast GPUs, a GPU's load is that of its copy, so that the bound is reached.
    """
    share = problem.mean / replicate(problem)
    return relative(problem, share.max(axis=1) / fastest(problem)[0])


def neighbours(problem: Problem) -> Floats:
    """For each expert: its load and the least that must sit beside its copies, over as many GPUs.

    Let expert i have c of the ``spare + 1`` copies it could have. Its c GPUs have at least ``s`` other slots
    (the fewest of any c GPUs that have slots). Experts with several copies fill at most ``2 (spare - c + 1)``
    slots in all, since each takes a spare; the other ``s - 2 (spare - c + 1)`` hold single copies of distinct
    experts, with their whole load. The largest of the c GPU loads is at least the mean of them; of unequal GPUs
    load over speed, where no c GPUs are faster than the fastest c.
    """
    loads = problem.mean
    layers, experts = loads.shape
    spare = problem.slots - experts
    order = np.argsort(loads, axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    lightest = np.zeros((layers, experts + 1))
    np.cumsum(np.take_along_axis(loads, order, axis=1), axis=1, out=lightest[:, 1:])
    others = np.cumsum(np.sort(problem.slots_per_gpu[problem.slots_per_gpu > 0]) - 1)
    speed = np.cumsum(fastest(problem))
    best = np.full(loads.shape, np.inf)
    for c in range(1, problem.most_copies + 1):
        single = max(0, int(others[c - 1]) - 2 * (spare - c + 1))
        if single > experts - 1:
            continue  # more single copies of other experts than there are: c copies are impossible
        beside = np.where(rank >= single, lightest[:, single][:, None], lightest[:, [single + 1]] - loads)
        best = np.minimum(best, (loads + beside) / speed[c - 1])
    return relative(problem, best.max(axis=1))


def fastest(problem: Problem) -> Floats:
    """Relative speeds of the GPUs that have a slot, fastest first."""
    speed: Floats = -np.sort(-problem.speed[problem.slots_per_gpu > 0])
    return speed


def relative(problem: Problem, load: Floats) -> Floats:
    """Return loads ``[layers]`` as multiples of the mean GPU load."""
    ratio: Floats = load * problem.gpus / problem.mean.sum(axis=1)
    return ratio


_PRICES = np.linspace(0.0, 1.0, 13)[1:]  # p, in units of T / k
_RENTS = np.concatenate(([0.0], np.geomspace(0.02, 4.0, 19)))  # q, in units of p
_HALVINGS = 8
_LEAST = 2e-3  # of the lower bound: a layer where not even that can be added is left
_PRICE_CELLS = 1 << 17
_ROUNDING = 1e-9


def priced(problem: Problem, low: Floats, high: Floats) -> Floats:
    """Return the largest T that the prices tried prove out of reach, ``[layers]``, between ``low`` and ``high``.

    ``low`` and ``high`` ``[layers]`` are a bound and an answer, in multiples of the mean GPU load; ``low`` is
    returned where nothing better is found. Unequal GPUs count as if all were as fast as the fastest.

    Notes
    -----
    For any T and ``0 <= p <= T / k`` (k: most slots of a GPU), give a copy of load s the weight

        f(s) = max(s - (T - (k - 1) p), 0) - max(p - s, 0).

    The copies of a GPU of k slots whose load is at most T weigh 0 together at most. With m copies above
    ``T - (k - 1) p`` and the others at loads t: their loads sum to ``T - sum(t)`` at most, and ``t + max(p - t, 0)``
    is at least p, so that the weight is at most ``(m - 1)(k p - T) <= 0`` for m from 1 up; without any it is not
    positive either. A slot that a GPU lacks counts as a copy of load 0. So if T is reached, over all GPUs

        sum over experts of c f(w / c)  <=  p (k GPUs - slots),    sum over experts of c = slots.

    For any q >= 0 the left side is at least the sum over experts of the smallest ``c f(w/c) + q c``, less
    ``q slots``: where that exceeds the right side, no assignment reaches T (Lagrangian duality in the slots).
    """
    size = max(1, _PRICE_CELLS // (_PRICES.size * _RENTS.size * problem.experts))
    bound = low.copy()
    for start in range(0, problem.layers, size):
        part = np.arange(start, min(start + size, problem.layers))
        first = low[part] * (1 + _LEAST)
        part = part[(first < high[part]) & _out_of_reach(problem, _scaled(problem, part), first)]
        if part.size:
            bound[part] = _bisect(problem, _scaled(problem, part), low[part], high[part])
    return bound


def _scaled(problem: Problem, layers: Index) -> Floats:
    """Loads in multiples of the mean GPU load, over the speed of the fastest GPU."""
    loads = problem.mean[layers]
    scaled: Floats = loads * (problem.gpus / loads.sum(axis=1, keepdims=True)) / fastest(problem)[0]
    return scaled


def _bisect(problem: Problem, scaled: Floats, low: Floats, high: Floats) -> Floats:
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        out = _out_of_reach(problem, scaled, middle)
        low, high = np.where(out, middle, low), np.where(out, high, middle)
    return low


def _out_of_reach(problem: Problem, loads: Floats, target: Floats) -> Bools:
    """Whether prices prove that no assignment has all GPU loads at ``target`` ``[layers]`` or below."""
    used = int((problem.slots_per_gpu > 0).sum())
    slots = int(problem.slots_per_gpu.max())
    price = (target[:, None] / slots * _PRICES)[:, :, None, None]
    rent = price * _RENTS[None, None, :, None]
    top = target[:, None, None, None] - (slots - 1) * price
    load, most = loads[:, None, None, :], problem.most_copies
    least = np.full(np.broadcast_shapes(load.shape, rent.shape), np.inf)
    near = np.clip(load / top, 1, most)
    # Convex up to load / price copies and concave from there: the smallest is at one of these counts.
    for copies in (1.0, np.floor(near), np.ceil(near), float(most)):
        weight = np.maximum(load - copies * top, 0.0) - np.maximum(copies * price - load, 0.0)
        np.minimum(least, weight + rent * copies, out=least)
    total = least.sum(axis=3) - rent[..., 0] * problem.slots
    allowed = price[..., 0] * (slots * used - problem.slots)
    out: Bools = (total > allowed + _ROUNDING * problem.gpus).any(axis=(1, 2))
    return out
