"""A good order of stages without a solver, the same every time: some orders worth a try, then exchanges of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from cost.layouts.arrays import Array
from cost.layouts.partition import Split, best_cuts, ranges_of
from cost.layouts.stage_order import Order, OrderProblem, StageOrder

SEARCH_STEPS = 8e6
"""Steps of dynamic programmes, a few nanoseconds each, that exchanges are worth."""
MIN_ORDERS, MAX_ORDERS = 16, 400
"""Orders tried at least and at most."""


def split_in_order(problem: OrderProblem, order: Sequence[int]) -> Split | None:
    """Return the split whose step is shortest with the groups in this order, or None where none has room: exact.

    Notes
    -----
    A step is the larger of ``stages`` times the slowest stage and of the sum with the hops. With the slowest stage
    at most ``m`` the dynamic programme (:func:`cost.layouts.partition.best_cuts`) finds the least sum; a smaller
    ``m`` never makes that smaller. So the best lies where the two cross, found by bisection over the times that
    stages can have, from the least ``m`` on.
    """
    seconds, tour, depth = _runs(problem, order), problem.tour_seconds(order), len(order)
    slowest, ranges = _best_split(seconds, np.maximum)
    if ranges is None:
        return None
    best: tuple[float, Split] = problem.step_seconds(order, ranges), ranges
    # a stage slower than the best step allows is in no better split
    times = np.unique(seconds[(seconds >= slowest) & (depth * seconds <= best[0])])
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2 if low else 0
        total, ranges = _best_split(np.where(seconds <= times[middle], seconds, np.inf), np.add)
        if ranges is None:
            low = middle + 1
            continue
        step = problem.step_seconds(order, ranges)
        if step < best[0]:
            best = step, ranges
        if total + tour <= depth * float(problem.stage_seconds(order, ranges).max()):
            high = middle  # a slower slowest stage only makes it worse
        else:
            low = middle + 1
    return best[1]


def _runs(problem: OrderProblem, order: Sequence[int]) -> Array:
    """Seconds of runs of layers on each stage (:func:`best_cuts`), infinite where they have no room."""
    groups, cumulative, layers = list(order), problem.before.astype(np.float64), problem.layers
    held = cumulative[:, None, :] - cumulative[:, :, None]
    seconds = np.einsum("kij,ks->sij", held, problem.seconds[:, groups])
    memory = np.einsum("kij,ks->sij", held, problem.memory[:, groups])
    memory += problem.fixed_memory[groups][:, None, None]
    seconds[0] += problem.first_seconds[groups[0]]
    seconds[-1] += problem.last_seconds[groups[-1]]
    memory[0] += problem.first_memory[groups[0]]
    memory[-1] += problem.last_memory[groups[-1]]
    seconds[memory > problem.capacity[groups][:, None, None]] = np.inf
    stop = np.arange(layers + 1)
    start = stop - layers + np.arange(layers)[:, None]
    return np.where(start < 0, np.inf, seconds[:, np.maximum(start, 0), stop])[:, :, None]


def _best_split(runs: Array, combine: np.ufunc) -> tuple[float, Split | None]:
    """The least largest stage, or sum of all, and the split; None where none has room."""
    value, stops = best_cuts(runs, range(len(runs)), combine)
    best = float(value[0])
    return best, ranges_of(stops[:, 0].tolist()) if np.isfinite(best) else None


def exchanged_order(problem: OrderProblem, known: Sequence[Sequence[int]] = ()) -> StageOrder | None:
    """Return a good order and its best split, none worse than those of ``known``; None where none had room.

    Tours along short hops, fast or roomy groups first or last; then two groups change places, one goes out for an
    idle one, or a part of the order turns round, as long as the step gets shorter. How many orders are tried depends
    on the size alone, not on the clock.
    """
    steps = problem.stages * (problem.layers + 1) ** 2 * 4
    search = _Exchange(problem, int(np.clip(SEARCH_STEPS / steps, MIN_ORDERS, MAX_ORDERS)))
    for order in known:
        search.better(tuple(order))
    for order in _first_orders(problem):
        if search.left() <= 0:
            break
        search.better(order)
    search.exchange()
    return search.best


class _Exchange:
    """The best of the orders that were tried; orders that differ in exchangeable groups count as one."""

    def __init__(self, problem: OrderProblem, limit: int) -> None:
        self.problem, self.limit = problem, limit
        self.best: StageOrder | None = None
        self.tried: set[Order] = set()

    def left(self) -> int:
        """Orders that may still be tried."""
        return self.limit - len(self.tried)

    def better(self, order: Order) -> bool:
        """Try an order; whether it is better than all before."""
        key = tuple(self.problem.alike[group] for group in order)
        if key in self.tried:
            return False
        self.tried.add(key)
        ranges = split_in_order(self.problem, order)
        if ranges is None:
            return False
        candidate = StageOrder.of(self.problem, order, ranges)
        if self.best is not None and candidate.step_s >= self.best.step_s:
            return False
        self.best = candidate
        return True

    def exchange(self) -> None:
        """Go from one order to a better neighbour as long as there is one, and orders may be tried."""
        while self.best is not None:
            around = self._neighbours(self.best.order)
            if not any(self.better(order) for order in around if self.left() > 0):
                return

    def _neighbours(self, order: Order) -> Iterator[Order]:
        stages = len(order)
        idle = [group for group in range(self.problem.groups) if group not in set(order)]
        for i in range(stages):
            for group in idle:
                yield (*order[:i], group, *order[i + 1 :])
        for i in range(stages):
            for j in range(i + 1, stages):
                swapped = list(order)
                swapped[i], swapped[j] = order[j], order[i]
                yield tuple(swapped)
                yield (*order[:i], *order[i : j + 1][::-1], *order[j + 1 :])


def _first_orders(problem: OrderProblem) -> Iterator[Order]:
    """Yield orders worth a try: as given, fast or roomy groups first or last, and tours along short hops."""
    if problem.stages <= 4 and problem.groups <= 5:
        yield from permutations(range(problem.groups), problem.stages)
        return
    totals = problem.before[:, -1, None]
    mean = (totals * problem.seconds).sum(axis=0)
    room = (problem.capacity - problem.fixed_memory) / np.maximum(
        (totals * problem.memory).sum(axis=0), 1e-300
    )
    fast = np.argsort(mean, kind="stable")[: problem.stages]
    roomy = np.argsort(-room, kind="stable")[: problem.stages]
    for chosen in (fast, roomy):
        yield tuple(sorted(chosen.tolist()))
        yield tuple(chosen.tolist())
        yield tuple(chosen[::-1].tolist())
        for begin in range(len(chosen)):
            tour = _nearest(problem, sorted(chosen.tolist()), begin)
            yield tour
            yield tour[::-1]


def _nearest(problem: OrderProblem, groups: list[int], begin: int) -> Order:
    """Return a tour that always goes to the nearest group left."""
    unvisited, tour = list(groups), [groups[begin]]
    unvisited.remove(tour[0])
    while unvisited:
        tour.append(min(unvisited, key=lambda group: problem.hop_seconds[tour[-1], group]))
        unvisited.remove(tour[-1])
    return tuple(tour)
