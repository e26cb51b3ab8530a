"""A bound on the largest GPU load from prices of load and slots: where skewed loads and few spare slots bind.

For any T and ``0 <= p <= T / k`` (k: most slots of a GPU), give a copy of load s the weight

    f(s) = max(s - (T - (k - 1) p), 0) - max(p - s, 0).

The copies of a GPU of k slots whose load is at most T weigh 0 together at most. With m copies above
``T - (k - 1) p`` and the others at loads t: their loads sum to ``T - sum(t)`` at most, and ``t + max(p - t, 0)``
is at least p, so that the weight is at most ``(m - 1)(k p - T) <= 0`` for m from 1 up; without any it is not
positive either. A slot that a GPU lacks counts as a copy of load 0. So if T is reached, over all GPUs

    sum over experts of c f(w / c)  <=  p (k GPUs - slots),    sum over experts of c = slots.

For any q >= 0 the left side is at least the sum over experts of the smallest ``c f(w/c) + q c``, less ``q slots``:
where that exceeds the right side, no assignment reaches T (Lagrangian duality in the slots).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.bounds import fastest, most_copies
from placement.problem import ExpertProblem

Floats = NDArray[np.float64]


_PRICES = np.linspace(0.0, 1.0, 13)[1:]  # p, in units of T / k
_RENTS = np.concatenate(([0.0], np.geomspace(0.02, 4.0, 19)))  # q, in units of p
_HALVINGS = 8
_LEAST = 2e-3  # of the lower bound: a layer where not even that can be added is left
_CELLS = 1 << 17
_ROUNDING = 1e-9


def priced(problem: ExpertProblem, low: Floats, high: Floats) -> Floats:
    """Return the largest T that the prices tried prove out of reach, ``[layers]``, between ``low`` and ``high``.

    ``low`` and ``high`` ``[layers]`` are a bound and an answer, in multiples of the mean GPU load; ``low`` is
    returned where nothing better is found. Unequal GPUs count as if all were as fast as the fastest.
    """
    size = max(1, _CELLS // (_PRICES.size * _RENTS.size * problem.experts))
    bound = low.copy()
    for start in range(0, problem.layers, size):
        part = np.arange(start, min(start + size, problem.layers))
        first = low[part] * (1 + _LEAST)
        part = part[(first < high[part]) & _out_of_reach(problem, _scaled(problem, part), first)]
        if part.size:
            bound[part] = _bisect(problem, _scaled(problem, part), low[part], high[part])
    return bound


def _scaled(problem: ExpertProblem, layers: NDArray[np.intp]) -> Floats:
    """Loads in multiples of the mean GPU load, over the speed of the fastest GPU."""
    loads = problem.loads[layers]
    scaled: Floats = loads * (problem.gpus / loads.sum(axis=1, keepdims=True)) / fastest(problem)[0]
    return scaled


def _bisect(problem: ExpertProblem, scaled: Floats, low: Floats, high: Floats) -> Floats:
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        out = _out_of_reach(problem, scaled, middle)
        low, high = np.where(out, middle, low), np.where(out, high, middle)
    return low


def _out_of_reach(problem: ExpertProblem, loads: Floats, target: Floats) -> NDArray[np.bool_]:
    """Whether prices prove that no assignment has all GPU loads at ``target`` ``[layers]`` or below."""
    used = int((problem.slots_per_gpu > 0).sum())
    slots = int(problem.slots_per_gpu.max())
    price = (target[:, None] / slots * _PRICES)[:, :, None, None]
    rent = price * _RENTS[None, None, :, None]
    top = target[:, None, None, None] - (slots - 1) * price
    load, most = loads[:, None, None, :], most_copies(problem)
    least = np.full(np.broadcast_shapes(load.shape, rent.shape), np.inf)
    near = np.clip(load / top, 1, most)
    # Convex up to load / price copies and concave from there: the smallest is at one of these counts.
    for copies in (1.0, np.floor(near), np.ceil(near), float(most)):
        weight = np.maximum(load - copies * top, 0.0) - np.maximum(copies * price - load, 0.0)
        np.minimum(least, weight + rent * copies, out=least)
    total = least.sum(axis=3) - rent[..., 0] * problem.slots
    allowed = price[..., 0] * (slots * used - problem.slots)
    out: NDArray[np.bool_] = (total > allowed + _ROUNDING * problem.gpus).any(axis=(1, 2))
    return out
