"""The order of stages as a CP-SAT model: a circuit over the groups in use, cut points, and the step that follows.

One integer for the layers of each kind on each group, a circuit through a depot for the order, and two lower bounds
on the step: ``stages`` times each stage, and the sum of all with the hops. Each rule is one function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from cost.layouts.order_search import split_in_order
from cost.layouts.partition import Split
from cost.layouts.stage_order import OrderProblem
from placement.arrays import Floats, Ints
from placement.budget import Budget
from placement.cp_solver import solve_within
from placement.layouts.order_bounds import least_tour, most_seconds

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Ordered = tuple[tuple[int, ...], Split]

STEPS = 1e10
"""Integer steps of the time of the best known step: rounding is lost in the figures."""
MEMORY_STEPS = 1e9
"""The same of the largest capacity; needs are rounded up, so that what is accepted does fit."""
MOST_RUNS = 8
"""Runs of equal layers up to which it is said how often they may meet: of layers in turns it is no help."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """The problem in whole numbers: seconds rounded down (bounds stay bounds), bytes needed up."""

    unit_s: float
    least_s: float
    most_s: float
    seconds: Ints
    first_seconds: Ints
    last_seconds: Ints
    hop_seconds: Ints
    back_seconds: Ints
    memory: Ints
    first_memory: Ints
    last_memory: Ints
    room: Ints


def scaled(problem: OrderProblem, least_s: float, most_s: float) -> Scaled:
    """Return the whole numbers for a problem whose step is between the two."""
    unit_s = max(most_s, 1e-300) / STEPS
    largest = float(max(problem.capacity.max(), 1.0))
    unit = largest / MEMORY_STEPS

    def down(values: Floats) -> Ints:
        # what takes longer than the step that is known is out anyhow
        return np.floor(np.minimum(values / unit_s, 2 * STEPS)).astype(np.int64)

    def up(values: Floats) -> Ints:
        return np.ceil(np.minimum(values / unit, 4 * MEMORY_STEPS)).astype(np.int64)

    room = np.floor((problem.capacity - problem.fixed_memory) / unit).astype(np.int64)
    return Scaled(
        unit_s,
        least_s,
        most_s,
        down(problem.seconds),
        down(problem.first_seconds),
        down(problem.last_seconds),
        down(problem.hop_seconds),
        down(problem.back_seconds),
        up(problem.memory),
        up(problem.first_memory),
        up(problem.last_memory),
        room,
    )


@dataclass(frozen=True, eq=False)
class OrderModel:
    """The model and its variables.

    Attributes
    ----------
    count:
        Layers of each kind on each group, ``[kinds][groups]``.
    used, first, last:
        Whether a group is a stage, the first one, the last one.
    arcs:
        Whether one group hands over to another, by the pair.
    start, stop:
        Cuts before and after a group's run; empty where layers are all of a kind and their place does not matter.
    """

    model: cp_model.CpModel
    count: list[list[cp_model.IntVar]]
    used: list[cp_model.IntVar]
    first: list[cp_model.IntVar]
    last: list[cp_model.IntVar]
    arcs: dict[tuple[int, int], cp_model.IntVar]
    start: list[cp_model.IntVar]
    stop: list[cp_model.IntVar]
    back: cp_model.IntVar
    step: cp_model.IntVar
    before: list[tuple[cp_model.IntVar, cp_model.IntVar, int]]


def build(problem: OrderProblem, whole: Scaled, hint: Ordered | None) -> OrderModel:
    """Return the model with all its constraints, its objective and a split in order as a hint."""
    built = variables(problem, whole)
    share_layers(built, problem)
    meet_once(built, problem)
    order_groups(built, problem)
    if built.start:
        follow_on(built, problem)
    keep_in_memory(built, problem, whole)
    bound_step(built, problem, whole)
    if hint is not None:
        give_hint(built, problem, whole, hint)
    built.model.minimize(built.step)
    return built


def build_counts(problem: OrderProblem, whole: Scaled) -> OrderModel:
    """Return the model without the order: how many layers of each kind on which group, hops as short as any are.

    A step that it has no answer for, no order has. Of layers in two runs at most, any answer can be put in order:
    only hops may be longer.
    """
    built = variables(problem, whole, ordered=False)
    share_layers(built, problem)
    meet_once(built, problem)
    name_ends(built, problem)
    share_of_runs(built, problem)
    keep_in_memory(built, problem, whole)
    bound_step(built, problem, whole)
    return built


def variables(problem: OrderProblem, whole: Scaled, *, ordered: bool = True) -> OrderModel:
    """Make the variables; without those of the order unless ``ordered``."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    groups, kinds = range(problem.groups), range(len(problem.seconds))
    totals = problem.before[:, -1]
    count = [[model.new_int_var(0, int(totals[k]), f"layers{k}_on{g}") for g in groups] for k in kinds]
    used, first, last = (
        [model.new_bool_var(f"{word}{g}") for g in groups] for word in ("used", "first", "last")
    )
    pairs = ((g, h) for g in groups for h in groups if g != h and ordered)
    arcs = {(g, h): model.new_bool_var(f"arc{g}_{h}") for g, h in pairs}
    start, stop = [], []
    if ordered and np.count_nonzero(totals) > 1:
        start = [model.new_int_var(0, problem.layers, f"start{g}") for g in groups]
        stop = [model.new_int_var(0, problem.layers, f"stop{g}") for g in groups]
    back = model.new_int_var(int(whole.back_seconds.min()), int(whole.back_seconds.max()), "back")
    least = math.floor(whole.least_s / whole.unit_s)
    step = model.new_int_var(least, max(least, math.floor(whole.most_s / whole.unit_s)), "step")
    return OrderModel(model, count, used, first, last, arcs, start, stop, back, step, [])


def share_layers(built: OrderModel, problem: OrderProblem) -> None:
    """Give every layer to one group, a stage at least one layer and an idle group none."""
    for row, total in zip(built.count, problem.before[:, -1], strict=True):
        built.model.add(sum(row) == int(total))
    for g, used in enumerate(built.used):
        held = sum(row[g] for row in built.count)
        built.model.add(held >= used)
        built.model.add(held <= problem.layers * used)
    built.model.add(sum(built.used) == problem.stages)


def meet_once(built: OrderModel, problem: OrderProblem) -> None:
    """Let runs of unlike layers meet inside a stage no more often than they meet at all."""
    model = built.model
    runs = int(np.count_nonzero(np.diff(problem.kind_of))) + 1
    held = [kind for kind, total in enumerate(problem.before[:, -1].tolist()) if total]
    if runs == 1 or runs > MOST_RUNS:
        return
    has = [[model.new_bool_var(f"has{kind}_{g}") for g in range(problem.groups)] for kind in held]
    for kind, row in zip(held, has, strict=True):
        for g, flag in enumerate(row):
            model.add(built.count[kind][g] <= int(problem.before[kind, -1]) * flag)
            model.add(built.count[kind][g] >= flag)
    model.add(sum(flag for row in has for flag in row) <= problem.stages + runs - 1)
    for ends, kind in ((built.first, problem.kind_of[0]), (built.last, problem.kind_of[-1])):
        for g, end in enumerate(ends):
            model.add_implication(end, has[held.index(int(kind))][g])


def name_ends(built: OrderModel, problem: OrderProblem) -> None:
    """Make one stage the first and one the last, which is another unless there is one alone."""
    for used, first, last in zip(built.used, built.first, built.last, strict=True):
        built.model.add_implication(first, used)
        built.model.add_implication(last, used)
        if problem.stages > 1:
            built.model.add_at_most_one(first, last)
    built.model.add_exactly_one(built.first)
    built.model.add_exactly_one(built.last)


def order_groups(built: OrderModel, problem: OrderProblem) -> None:
    """Make the stages one circuit through a depot, which stands before the first and after the last."""
    depot = problem.groups
    arcs: list[tuple[int, int, Any]] = [(g, h, literal) for (g, h), literal in built.arcs.items()]
    for g, used in enumerate(built.used):
        arcs += [(depot, g, built.first[g]), (g, depot, built.last[g]), (g, g, used.negated())]
    built.model.add_circuit(arcs)


def follow_on(built: OrderModel, problem: OrderProblem) -> None:
    """Make runs follow each other without a gap, and count the layers of each kind between their cuts."""
    model, kinds = built.model, range(len(problem.seconds))
    for g in range(problem.groups):
        model.add(built.stop[g] - built.start[g] == sum(row[g] for row in built.count))
        model.add(built.start[g] == 0).only_enforce_if(built.first[g])
        model.add(built.stop[g] == problem.layers).only_enforce_if(built.last[g])
        model.add(built.start[g] == 0).only_enforce_if(built.used[g].negated())
    for (g, h), literal in built.arcs.items():
        model.add(built.start[h] == built.stop[g]).only_enforce_if(literal)
    share_of_runs(built, problem)
    # the kind with most layers is what is left of the length
    most = int(np.argmax(problem.before[:, -1]))
    for kind in kinds:
        total = int(problem.before[kind, -1])
        if kind == most or not total:
            continue
        table = problem.before[kind].tolist()
        for g in range(problem.groups):
            before = model.new_int_var(0, total, f"before{kind}_{g}")
            after = model.new_int_var(0, total, f"after{kind}_{g}")
            model.add_element(built.start[g], table, before)
            model.add_element(built.stop[g], table, after)
            model.add(built.count[kind][g] == after - before)
            built.before.extend([(built.start[g], before, kind), (built.stop[g], after, kind)])


def share_of_runs(built: OrderModel, problem: OrderProblem) -> None:
    """Say how far the share of a kind in any run can be from its share of all layers: it tightens relaxations."""
    layers, cuts = problem.layers, np.arange(problem.layers + 1)
    for kind, total in enumerate(problem.before[:, -1].tolist()):
        drift = problem.before[kind] * layers - total * cuts
        widest = int(drift.max() - drift.min())
        for g, count in enumerate(built.count[kind]):
            uneven = layers * count - total * sum(row[g] for row in built.count)
            built.model.add_linear_constraint(uneven, -widest, widest)


def keep_in_memory(built: OrderModel, problem: OrderProblem, whole: Scaled) -> None:
    """Keep what each group holds within its memory."""
    for g in range(problem.groups):
        held = sum(int(whole.memory[k, g]) * row[g] for k, row in enumerate(built.count))
        ends = int(whole.first_memory[g]) * built.first[g] + int(whole.last_memory[g]) * built.last[g]
        if whole.room[g] < 0:
            built.model.add(built.used[g] == 0)
        else:
            built.model.add(held + ends <= int(whole.room[g]))


def bound_step(built: OrderModel, problem: OrderProblem, whole: Scaled) -> None:
    """Keep the step at or above each stage times their number, and the sum of stages and hops."""
    model = built.model
    each: list[Any] = []
    for g in range(problem.groups):
        held = sum(int(whole.seconds[k, g]) * row[g] for k, row in enumerate(built.count))
        ends = int(whole.first_seconds[g]) * built.first[g] + int(whole.last_seconds[g]) * built.last[g]
        each.append(held + ends)
        model.add(built.step >= problem.stages * each[g])
    if problem.stages == 1:
        return
    least = math.floor(least_tour(problem) / whole.unit_s)
    model.add(built.step >= sum(each) + max(0, least - 2 * problem.stages))
    if not built.arcs:
        return
    hops = sum(int(whole.hop_seconds[g, h]) * literal for (g, h), literal in built.arcs.items())
    for g, last in enumerate(built.last):
        here = sum(int(whole.back_seconds[g, h]) * first for h, first in enumerate(built.first))
        model.add(built.back >= here).only_enforce_if(last)
    model.add(built.step >= sum(each) + hops + built.back)


def give_hint(built: OrderModel, problem: OrderProblem, whole: Scaled, hint: Ordered) -> None:
    """Start from a split in order: every variable has its value there."""
    order, ranges = hint
    model, place = built.model, {g: p for p, g in enumerate(order)}
    counts, after = problem.counts(ranges), dict(pairwise(order))
    cuts: dict[int, int] = {}
    for g in range(problem.groups):
        p = place.get(g)
        for kind, row in enumerate(built.count):
            model.add_hint(row[g], 0 if p is None else int(counts[kind, p]))
        model.add_hint(built.used[g], p is not None)
        model.add_hint(built.first[g], g == order[0])
        model.add_hint(built.last[g], g == order[-1])
        if built.start:
            cuts[built.start[g].index] = 0 if p is None else ranges[p].start
            cuts[built.stop[g].index] = 0 if p is None else ranges[p].stop
            model.add_hint(built.start[g], cuts[built.start[g].index])
            model.add_hint(built.stop[g], cuts[built.stop[g].index])
    for cut, variable, kind in built.before:
        model.add_hint(variable, int(problem.before[kind, cuts[cut.index]]))
    for (g, h), literal in built.arcs.items():
        model.add_hint(literal, after.get(g) == h)
    model.add_hint(built.back, int(whole.back_seconds[order[-1], order[0]]))


HEADROOM = 1.03
"""The step may rise this far above that which is known."""


@dataclass(frozen=True, eq=False)
class Found:
    """What CP-SAT found: the best order and split, the bound in seconds, whether it proved that none has room."""

    best: Ordered | None
    bound_s: float
    proven: bool
    search: str


def counts_within(
    problem: OrderProblem, step_s: float, budget: Budget, *, seed: int
) -> tuple[bool, Ints | None]:
    """Return whether no order has a step of ``step_s`` or less, proven; and counts of layers that may have one.

    The counts are of layers of each kind on each group, then 1 for the first group and for the last, int64 ``[kinds
    + 2, groups]``; None where there are none, or none were found within ``budget``. There is no objective: asked for
    the best, the solver takes far longer to prove the same bound (measured: 6 s against 0.5 s).
    """
    from ortools.sat.python import cp_model

    built = build_counts(problem, scaled(problem, 0.0, step_s))
    solver, status = solve_within(built.model, budget, seed=seed)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return status == cp_model.INFEASIBLE, None
    rows = [*built.count, built.first, built.last]
    return False, np.array([[solver.value(one) for one in row] for row in rows], dtype=np.int64)


def search_order(
    problem: OrderProblem, known: Ordered | None, budget: Budget, *, least_s: float = 0.0, seed: int = 0
) -> Found:
    """Search until ``budget`` for an order and split with a shorter step than ``known``, and prove a bound.

    ``least_s``: a bound that is proven already.
    """
    from ortools.sat.python import cp_model

    # a tight bound on the step loses the hint (solver rule)
    most_s = most_seconds(problem) if known is None else problem.step_seconds(*known) * HEADROOM
    built = build(problem, whole := scaled(problem, least_s, most_s), known)
    solver, status = solve_within(built.model, budget, seed=seed)
    best, bound_s = known, least_s
    if status in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        bound_s = solver.best_objective_bound * whole.unit_s
        best = _better(problem, _read(built, solver), known)
    ran = f"CP-SAT: {solver.status_name(status)}, 1 worker, seed {seed}"
    return Found(best, bound_s, status == cp_model.INFEASIBLE, ran)


def _read(built: OrderModel, solver: cp_model.CpSolver) -> Ordered:
    """Return the order along the arcs, and the runs by how many layers each group has."""
    follows = {g: h for (g, h), literal in built.arcs.items() if solver.boolean_value(literal)}
    order = [next(g for g, first in enumerate(built.first) if solver.boolean_value(first))]
    while order[-1] in follows:
        order.append(follows[order[-1]])
    many = [sum(solver.value(row[g]) for row in built.count) for g in order]
    stops = np.cumsum([0, *many]).tolist()
    return tuple(order), tuple(range(a, b) for a, b in pairwise(stops))


def _better(problem: OrderProblem, found: Ordered, known: Ordered | None) -> Ordered:
    """The better of two, by the problem's own seconds; what CP-SAT found may be split better within its rounding."""
    again = split_in_order(problem, found[0])
    options = [one for one in (known, found, None if again is None else (found[0], again)) if one is not None]
    return min((one for one in options if problem.fits(*one)), key=lambda one: problem.step_seconds(*one))
