"""The best order of stages: a start by exchange, then CP-SAT, which proves how far it is from the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from placement.arrays import Ints
from placement.stage_order import (
    OrderProblem,
    Split,
    StageOrder,
    least_seconds,
    most_seconds,
    split_in_order,
)
from placement.stop import Stop
from topology.errors import InfeasibleError

Order = tuple[int, ...]

START_S = 1.0
"""Seconds of exchanges before CP-SAT takes over, at most."""
FIRST = 8
"""Orders tried in any case while none of them has room."""
CLOSE = 1e-6
"""Part of the step that integers of the solver may lose: nearer to the bound than this is the best there is."""


def solve_order(
    problem: OrderProblem,
    stop: Stop | None = None,
    *,
    known: Sequence[Sequence[int]] = (),
    seed: int = 0,
) -> StageOrder:
    """Return the order of groups and the split of the layers whose step is shortest, with a proven bound.

    Parameters
    ----------
    stop:
        Deadline and Ctrl-C; None: ten seconds. The best so far is returned, never worse than those of ``known``.
    known:
        Orders to begin with.

    Raises
    ------
    InfeasibleError
        If no order and no split has room, proven; or none was found in time.
    """
    from placement.stage_order_cpsat import search_counts, search_order

    stop = Stop(10.0) if stop is None else stop
    best, least_s = _start(problem, stop, known), least_seconds(problem)
    if best is not None and (best.step_s <= least_s * (1 + CLOSE) or not stop.goes_on()):
        return _answer(best, least_s, "exchanges of groups alone")
    most_s = most_seconds(problem) if best is None else best.step_s
    bound_s, counts = search_counts(problem, most_s, stop.within(max(0.1, stop.left() / 3)), seed=seed)
    if np.isinf(bound_s):
        raise InfeasibleError(_no_room(problem, proven=True))
    least_s = max(least_s, bound_s)
    put = None if counts is None else in_order(problem, counts)
    if put is not None and (best is None or put.step_s < best.step_s):
        best = put
    if best is not None and best.step_s <= least_s * (1 + CLOSE):
        return _answer(best, least_s, "CP-SAT: how many layers on which group; any order does")
    known_best = None if best is None else (best.order, best.ranges)
    found = search_order(problem, known_best, stop, least_s=least_s, seed=seed)
    if found.best is None:
        raise InfeasibleError(_no_room(problem, proven=found.proven))
    return _answer(_of(problem, *found.best), max(least_s, found.bound_s), found.search)


def _of(problem: OrderProblem, order: Order, ranges: Split) -> StageOrder:
    """Return a split in order, of which nothing is proven yet."""
    return StageOrder(order, ranges, problem.step_seconds(order, ranges), 0.0, "FEASIBLE")


def _answer(best: StageOrder, bound_s: float, search: str) -> StageOrder:
    status = "OPTIMAL" if best.step_s <= bound_s * (1 + CLOSE) else "FEASIBLE"
    return replace(best, bound_s=min(best.step_s, bound_s), status=status, search=search)


def in_order(problem: OrderProblem, counts: Ints) -> StageOrder | None:
    """Return an order in which groups may hold so many layers of each kind, and its best split, or None.

    Parameters
    ----------
    counts:
        Layers of each kind on each group, then 1 for the first group and for the last, int64 ``[kinds + 2, groups]``.
    """
    first, last = int(counts[-2].argmax()), int(counts[-1].argmax())
    middle = (1 + np.arange(problem.layers)) / problem.layers
    kinds = np.arange(len(counts) - 2)[:, None]
    # where in the model a kind lies: groups follow each other by that of what they hold
    place = (np.where(problem.kind_of == kinds, middle, 0.0).sum(axis=1)) / np.maximum(
        problem.before[:, -1], 1
    )
    held = counts[:-2].sum(axis=0)
    groups = [g for g in np.flatnonzero(held).tolist() if g not in (first, last)]
    key = {g: round(float(place @ counts[:-2, g]) / float(held[g]), 9) for g in groups}
    order = [first]
    while groups:
        least = min(key[g] for g in groups)
        order.append(
            min((g for g in groups if key[g] == least), key=lambda g: problem.hop_seconds[order[-1], g])
        )
        groups.remove(order[-1])
    tour = tuple(order if first == last else [*order, last])
    ranges = split_in_order(problem, tour)
    return None if ranges is None else _of(problem, tour, ranges)


def _no_room(problem: OrderProblem, *, proven: bool) -> str:
    smallest = problem.capacity.min() / 1e9
    order = f"any order of {problem.groups} groups"
    what = f"{problem.layers} layers into {problem.stages} consecutive stages, in {order},"
    if proven:
        return f"no split of {what} fits in HBM ({smallest:.1f} GB usable on the smallest GPU)."
    return f"no split of {what} that fits in HBM was found in time ({smallest:.1f} GB usable on the smallest GPU)."


def _start(problem: OrderProblem, stop: Stop, known: Sequence[Sequence[int]]) -> StageOrder | None:
    """Return a good order and split: of some orders, then of exchanges; None where none had room."""
    start = _Start(problem, stop)
    with stop:
        for order in known:
            start.better(tuple(order))
        for order in _first_orders(problem):
            start.better(order)
            if not start.goes_on():
                break
        start.exchange()
    return start.best


class _Start:
    """The best of the orders that were tried; each is tried once."""

    def __init__(self, problem: OrderProblem, stop: Stop) -> None:
        self.problem, self.stop, self.begun = problem, stop, stop.spent()
        self.best: StageOrder | None = None
        self.tried: set[Order] = set()

    def goes_on(self) -> bool:
        """Whether there is time left, or nothing yet after the first few orders."""
        if self.best is None and len(self.tried) < FIRST:
            return True
        return self.stop.goes_on() and self.stop.spent() - self.begun < START_S

    def better(self, order: Order) -> bool:
        """Try an order; whether it is better than all before."""
        if order in self.tried:
            return False
        self.tried.add(order)
        ranges = split_in_order(self.problem, order)
        if ranges is None:
            return False
        found = _of(self.problem, order, ranges)
        if self.best is not None and found.step_s >= self.best.step_s:
            return False
        self.best = found
        return True

    def exchange(self) -> None:
        """Exchange two groups, one for an idle one, or turn a part, while it gets better and there is time."""
        while self.best is not None and self.goes_on():
            if not any(self.goes_on() and self.better(order) for order in self._neighbours(self.best.order)):
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
    mean = problem.before[:, -1] @ problem.seconds
    room = (problem.capacity - problem.fixed_memory) / np.maximum(
        problem.before[:, -1] @ problem.memory, 1e-300
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
