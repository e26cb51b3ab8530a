"""Lower bounds on the largest GPU load, valid for every legal assignment.

Copy counts are free, and copies sit on distinct GPUs. Failure domains are left out: with copies spread evenly an
expert may have more of them than there are domains. All values are multiples of the mean GPU load, so that 1 is
perfect balance; a GPU's load counts over its speed.

==========================  =====================================  ==============================================
bound                       holds for                              is reached where
==========================  =====================================  ==============================================
:func:`mean_load`           any split                              loads are mild and slots many
:func:`copy_under`          any split                              GPUs have one slot, or one expert is very hot
:func:`neighbours`          any split                              copies are few: others sit beside the hottest
:func:`priced`              an even split of one load              two to four slots a GPU, skewed loads
CP-SAT                      a few experts and GPUs                 it ends (:mod:`placement.experts.exact`)
==========================  =====================================  ==============================================
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats, Ints
from placement.experts.counts import replicate
from placement.experts.problem import WIDE_GAP, Problem


def lower_bound(problem: Problem, reached: Floats | None = None) -> Floats:
    """Return a lower bound for all placements, ``[layers]``, under the loads, objective and split of ``problem``.

    Over scenarios: the mean, or the worst, of their own bounds. With an even split the mean over scenarios is also at
    least the largest load under their mean, and the worst at least the mean; and one set of counts serves all
    scenarios: the worst is at least the largest copy under each expert's highest load. Of c copies one has at least a
    c-th of the load under any split. Quota slots count as slots that each scenario fills in its own way.

    ``reached`` ``[layers]`` is an answer: prices raise the bound where that is far above it.
    """
    problem = (problem.with_quota if problem.split == "quota" else problem).without_spread()
    parts = [of_one_load(part, replicate(part)) for part in problem.each()]
    bound = problem.over_scenarios(np.stack(parts))
    if problem.split != "even":
        return bound
    if problem.scenarios > 1:
        average = problem.average
        bound = np.maximum(bound, of_one_load(average, replicate(average)))
        if problem.objective == "worst":
            highest = problem.highest
            copy = copy_under(highest, replicate(highest)) * highest.mean.mean(axis=1)
            bound = np.maximum(bound, copy)
    elif reached is not None:
        wide = np.flatnonzero(reached > bound * (1 + WIDE_GAP))
        if wide.size:
            bound[wide] = priced(problem.rows(wide), bound[wide], reached[wide])
    return bound


def of_one_load(problem: Problem, copies: Ints) -> Floats:
    """Return a lower bound for placements of one load, ``[layers]``; ``copies`` are its greedy counts."""
    return np.maximum(mean_load(problem), np.maximum(copy_under(problem, copies), neighbours(problem)))


def mean_load(problem: Problem) -> Floats:
    """Spread each layer over the GPUs that have a slot: no largest load is below the mean."""
    used = problem.slots_per_gpu > 0
    return np.full(problem.layers, problem.gpus / float(problem.speed[used].sum()))


def copy_under(problem: Problem, copies: Ints) -> Floats:
    """Return the largest copy under counts ``[layers, experts]`` on the fastest GPU, ``[layers]``.

    Greedy counts (:func:`placement.experts.counts.replicate`) have the smallest of all. With one slot on each of
    equally fast GPUs, a GPU's load is that of its copy, so that the bound is reached.
    """
    return relative(problem, (problem.mean / copies).max(axis=1) / fastest(problem)[0])


def neighbours(problem: Problem) -> Floats:
    """For each expert: its load and the least that must sit beside its copies, over as many GPUs.

    Let expert i have c of the ``spare + 1`` copies it could have. Its c GPUs have at least ``s`` other slots
    (the fewest of any c GPUs that have slots). Experts with several copies fill at most ``2 (spare - c + 1)``
    slots in all, since each takes a spare; the other ``s - 2 (spare - c + 1)`` hold single copies of distinct
    experts, with their whole load. The largest of the c GPU loads is at least the mean of them; of unequal GPUs
    load over speed, where no c GPUs are faster than the fastest c. The heaviest expert gives the largest such bound:
    with the lightest others beside it, and none of them twice, no count is better for it than for a lighter one.
    """
    loads = problem.mean
    experts, spare = problem.experts, problem.slots - problem.experts
    lightest = np.zeros((problem.layers, experts))
    np.cumsum(np.sort(loads, axis=1)[:, :-1], axis=1, out=lightest[:, 1:])
    others = np.cumsum(np.sort(problem.slots_per_gpu[problem.slots_per_gpu > 0]) - 1)
    speed = np.cumsum(fastest(problem))
    copies = np.arange(1, problem.most_copies + 1)
    single = np.maximum(0, others[copies - 1] - 2 * (spare - copies + 1))
    possible = single <= experts - 1  # else more single copies of other experts than there are
    beside = lightest[:, single[possible]]
    best = ((loads.max(axis=1)[:, None] + beside) / speed[copies[possible] - 1]).min(axis=1)
    return relative(problem, best)


def fastest(problem: Problem) -> Floats:
    """Relative speeds of the GPUs that have a slot, fastest first."""
    speed: Floats = -np.sort(-problem.speed[problem.slots_per_gpu > 0])
    return speed


def relative(problem: Problem, load: Floats) -> Floats:
    """Return loads ``[layers]`` as multiples of the mean GPU load."""
    ratio: Floats = load * problem.gpus / problem.mean.sum(axis=1)
    return ratio


_PRICES, _RENTS = (
    grid.reshape(-1)
    for grid in np.meshgrid(
        np.linspace(0.0, 1.0, 13)[1:],  # p, in units of T / k
        np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0]),  # q, from p to T - (k - 1) p
        indexing="ij",
    )
)
_KEPT = 8  # pairs of prices that prove most, tried on
_HALVINGS = 6
_MIN_ADDED_LOAD = 2e-3  # of the lower bound: a layer where not even that can be added is left
_PRICE_CELLS = 1 << 15
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

    For any q the left side is at least the sum over experts of the smallest ``c f(w/c) + q c``, less
    ``q slots``: where that exceeds the right side, no assignment reaches T (Lagrangian duality in the slots). Below
    p all experts would take all the copies they can have, above ``T - (k - 1) p`` one each: q lies between.
    """
    bound = low.copy()
    # by falling size, in multiples of the mean GPU load, over the speed of the fastest GPU
    whole = problem.mean.sum(axis=1, keepdims=True)
    loads = np.sort(problem.mean * (problem.gpus / whole) / fastest(problem)[0], axis=1)[:, ::-1]
    first = low * (1 + _MIN_ADDED_LOAD)
    part = np.flatnonzero(first < high)
    first = first[part]
    prices, rents = np.tile(_PRICES, (part.size, 1)), np.tile(_RENTS, (part.size, 1))
    for _ in range(2):
        proof = _excess(problem, loads[part], first, prices, rents)
        out = proof.max(axis=1, initial=-np.inf) > 0
        part = part[out]
        first, proof, prices, rents = (array[out] for array in (first, proof, prices, rents))
        if part.size == 0:
            break
        best = np.argsort(-proof, axis=1, kind="stable")[:, :_KEPT]
        few = tuple(np.take_along_axis(array, best, axis=1) for array in (prices, rents))
        above = high[part]
        for _ in range(_HALVINGS):
            middle = (first + above) / 2
            out = _excess(problem, loads[part], middle, *few).max(axis=1) > 0
            first, above = np.where(out, middle, first), np.where(out, above, middle)
        bound[part] = first
    return bound


def _excess(problem: Problem, loads: Floats, target: Floats, prices: Floats, rents: Floats) -> Floats:
    """Return by how much each pair of prices ``[layers, pairs]`` proves that ``target`` ``[layers]`` is out of reach.

    ``loads`` ``[layers, experts]`` fall. Up to ``top`` an expert is cheapest with one copy, above it with about
    ``load / top``: its weight is convex there. Sums run expert by expert, so that layers do not depend on each other.
    """
    size = max(1, _PRICE_CELLS // (prices.shape[1] * problem.experts))
    if len(loads) > size:
        parts = (slice(start, start + size) for start in range(0, len(loads), size))
        arrays = loads, target, prices, rents
        return np.concatenate([_excess(problem, *(array[part] for array in arrays)) for part in parts])
    used = int((problem.slots_per_gpu > 0).sum())
    slots = int(problem.slots_per_gpu.max())
    price = target[:, None] / slots * prices
    top = target[:, None] - (slots - 1) * price
    rent = price + (top - price) * rents
    light = loads.shape[1] - (loads[:, :, None] > top[:, None]).sum(axis=1)
    cheap = (loads[:, :, None] < price[:, None]).sum(axis=1)  # those pay less than the price
    below = np.zeros((len(loads), loads.shape[1] + 1))
    np.cumsum(loads[:, ::-1], axis=1, out=below[:, 1:])
    paid = np.take_along_axis(below, cheap, axis=1) - price * cheap
    heaviest = int((loads > top.min(axis=1)[:, None]).sum(axis=1).max(initial=0))
    load = loads.T[:heaviest, :, None]
    near = np.clip(load / top, 1, problem.most_copies)
    few, many = np.floor(near), np.ceil(near)
    least = np.minimum(load - few * (top - rent), load - top + rent)
    more = np.maximum(load - many * top, 0.0) - np.maximum(many * price - load, 0.0) + rent * many
    weight = np.where(load > top, np.minimum(least, more), 0.0).sum(axis=0)
    total = weight + rent * (light - problem.slots) + paid
    excess: Floats = total - price * (slots * used - problem.slots) - _ROUNDING * problem.gpus
    return excess
