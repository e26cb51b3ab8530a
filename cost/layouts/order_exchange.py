"""A good order of stages without a solver, the same every time: some orders worth a try, then exchanges of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from cost.layouts.stage_order import Order, OrderProblem, StageOrder, split_in_order

WORK = 8e6
"""Steps of dynamic programmes, a few nanoseconds each, that exchanges are worth."""
FEWEST, MOST = 16, 400
"""Orders tried at least and at most."""


def exchanged_order(problem: OrderProblem, known: Sequence[Sequence[int]] = ()) -> StageOrder | None:
    """Return a good order and its best split, none worse than those of ``known``; None where none had room.

    Tours along short hops, fast or roomy groups first or last; then two groups change places, one goes out for an
    idle one, or a part of the order turns round, as long as the step gets shorter. How many orders are tried depends
    on the size alone, not on the clock.
    """
    each = problem.stages * (problem.layers + 1) ** 2 * 4
    search = _Exchange(problem, int(np.clip(WORK / each, FEWEST, MOST)))
    for order in known:
        search.better(tuple(order))
    for order in _first_orders(problem):
        if search.left() <= 0:
            break
        search.better(order)
    search.exchange()
    return search.best


class _Exchange:
    """The best of the orders that were tried; those that differ in groups alike count as one."""

    def __init__(self, problem: OrderProblem, most: int) -> None:
        self.problem, self.most = problem, most
        self.best: StageOrder | None = None
        self.tried: set[Order] = set()

    def left(self) -> int:
        """Orders that may still be tried."""
        return self.most - len(self.tried)

    def better(self, order: Order) -> bool:
        """Try an order; whether it is better than all before."""
        key = tuple(self.problem.alike[group] for group in order)
        if key in self.tried:
            return False
        self.tried.add(key)
        ranges = split_in_order(self.problem, order)
        if ranges is None:
            return False
        found = StageOrder.of(self.problem, order, ranges)
        if self.best is not None and found.step_s >= self.best.step_s:
            return False
        self.best = found
        return True

    def exchange(self) -> None:
        """Go from one order to a better neighbour as long as there is one, and orders may be tried."""
        while self.best is not None:
            around = self._neighbours(self.best.order)
            if not any(self.better(order) for order in around if self.left() > 0):
                return

    def _neighbours(self, order: Order) -> Iterator[Order]:
        many = len(order)
        idle = [group for group in range(self.problem.groups) if group not in set(order)]
        for i in range(many):
            for group in idle:
                yield (*order[:i], group, *order[i + 1 :])
        for i in range(many):
            for j in range(i + 1, many):
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
    left, tour = list(groups), [groups[begin]]
    left.remove(tour[0])
    while left:
        tour.append(min(left, key=lambda group: problem.hop_seconds[tour[-1], group]))
        left.remove(tour[-1])
    return tuple(tour)
