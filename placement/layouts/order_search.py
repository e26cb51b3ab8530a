"""The best order of stages: a start by exchange, then CP-SAT, which proves how far it is from the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cost.layouts.order_search import exchanged_order, split_in_order
from cost.layouts.stage_order import OrderProblem, StageOrder
from placement.arrays import Floats, Ints
from placement.budget import Budget
from placement.layouts.order_bounds import least_seconds, least_tour, most_seconds
from topology.base.errors import InfeasibleError

COUNTS = 0.6
"""Part of the time for how many layers lie on which group: in most cases the order follows from that."""
NEAR = 1e-3
"""Part of the step between best and bound at which a step just below the best is asked for again."""
CLOSE = 1e-6
"""Part of the step that integers of the solver may lose: nearer to the bound than this is the best there is."""


def solve_order(
    problem: OrderProblem,
    budget: Budget | None = None,
    *,
    known: Sequence[Sequence[int]] = (),
    seed: int = 0,
    worth_s: float = 10.0,
) -> StageOrder:
    """Return the order of groups and the split of the layers whose step is shortest, with a proven bound.

    Parameters
    ----------
    budget:
        Ctrl-C, and whether exchanges alone were asked for. The best so far is returned, never worse than those of
        ``known``.
    known:
        Orders to begin with.
    worth_s:
        Of the solver's own seconds, counted in steps: the same on every machine.

    Raises
    ------
    InfeasibleError
        If no order and no split has room, proven; or none was found in time.
    """
    from placement.layouts.order_model import search_order

    budget = (budget or Budget(None)).fixed(worth_s)
    best, least_s = exchanged_order(problem, known), least_seconds(problem)
    if best is not None and (best.step_s <= least_s * (1 + CLOSE) or not budget.goes_on()):
        return _answer(best, least_s, "exchanges of groups alone")
    best, least_s = _counted(problem, best, least_s, budget, seed=seed)
    if best is not None and best.step_s <= least_s * (1 + CLOSE):
        return _answer(best, least_s, "CP-SAT: which layers on which group; hops do not bind")
    if np.isinf(least_s):
        raise InfeasibleError(_no_room(problem, proven=True))
    known_best = None if best is None else (best.order, best.ranges)
    found = search_order(problem, known_best, budget, least_s=least_s, seed=seed)
    if found.best is None:
        raise InfeasibleError(_no_room(problem, proven=found.proven))
    return _answer(StageOrder.of(problem, *found.best), max(least_s, found.bound_s), found.search)


def _counted(
    problem: OrderProblem, best: StageOrder | None, least_s: float, budget: Budget, *, seed: int
) -> tuple[StageOrder | None, float]:
    """Return the best of what counts of layers give, put in order, and a bound; infinite where nothing has room.

    Asks for a step a hair shorter than the best; where there is one, halves what is left between it and the bound.
    """
    clock = budget.fixed(COUNTS * budget.left() / 1000)
    most_s, near = (most_seconds(problem), False) if best is None else (best.step_s, True)
    first, ask = best is None, _which(problem, most_s)
    while clock.goes_on() and (first or least_s < most_s * (1 - CLOSE / 2)):
        near |= most_s - least_s < NEAR * most_s
        target_s = most_s if first else most_s * (1 - CLOSE / 4) if near else (least_s + most_s) / 2
        none, found, found_s = ask(problem, target_s, clock.fixed(clock.left() / 2000), seed)
        if none and first:
            return None, np.inf
        if none:
            least_s = target_s
        elif found_s < np.inf:
            if found is not None and (best is None or found.step_s < best.step_s):
                best = found
            most_s = min(target_s, found_s)
        elif not near:
            break
        first = near = False
    return best, least_s


_Ask = Callable[[OrderProblem, float, Budget, int], tuple[bool, StageOrder | None, float]]


def _which(problem: OrderProblem, most_s: float) -> _Ask:
    """Whether to ask by counts of layers, or where many kinds come in turn by runs, if these are not too many."""
    from placement.layouts.order_model import MOST_RUNS as FEW_RUNS
    from placement.layouts.order_runs import MOST_RUNS, runs_that_fit

    in_turn = int(np.count_nonzero(np.diff(problem.kind_of))) + 1 > FEW_RUNS
    return _by_runs if in_turn and runs_that_fit(problem, most_s)[1].sum() <= MOST_RUNS else _by_counts


def _by_counts(
    problem: OrderProblem, step_s: float, budget: Budget, seed: int
) -> tuple[bool, StageOrder | None, float]:
    """Whether no step is so short, proven; an order, and its seconds but for longer hops, infinite where none is."""
    from placement.layouts.order_model import counts_within

    none, counts = counts_within(problem, step_s, budget, seed=seed)
    if counts is None:
        return none, None, np.inf
    each = (counts[:-2] * problem.seconds).sum(axis=0)
    each += counts[-2] * problem.first_seconds + counts[-1] * problem.last_seconds
    return False, in_order(problem, counts), _short_seconds(problem, each)


def _by_runs(
    problem: OrderProblem, step_s: float, budget: Budget, seed: int
) -> tuple[bool, StageOrder | None, float]:
    """The same, by runs of layers."""
    from placement.layouts.order_runs import runs_within

    none, found = runs_within(problem, step_s, budget, seed=seed)
    if found is None:
        return none, None, np.inf
    ranges = split_in_order(problem, found[0]) or found[1]
    return (
        False,
        StageOrder.of(problem, found[0], ranges),
        _short_seconds(problem, problem.stage_seconds(*found)),
    )


def _short_seconds(problem: OrderProblem, each: Floats) -> float:
    """Seconds of a step whose stages take ``each``, hops as short as any are."""
    return float(max(problem.stages * each.max(), each.sum() + least_tour(problem)))


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
    return None if ranges is None else StageOrder.of(problem, tour, ranges)


def _no_room(problem: OrderProblem, *, proven: bool) -> str:
    smallest = problem.capacity.min() / 1e9
    order = f"any order of {problem.groups} groups"
    what = f"{problem.layers} layers into {problem.stages} consecutive stages, in {order},"
    if proven:
        return f"no split of {what} fits in HBM ({smallest:.1f} GB usable on the smallest GPU)."
    return f"no split of {what} that fits in HBM was found in time ({smallest:.1f} GB usable on the smallest GPU)."
