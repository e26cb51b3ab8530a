"""The order of stages as one CP-SAT model: a circuit over the groups in use, cut points, and the step that follows.

One integer for the layers of each kind on each group, a circuit through a depot for the order, and two lower bounds
on the step: ``stages`` times each stage, and the sum of all with the hops. Each rule is one function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

from cost.layouts.order_search import split_in_order
from cost.layouts.stage_order import OrderProblem, StageOrder
from placement.arrays import Floats, Ints
from placement.budget import Budget
from placement.cp_solver import solve_within

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

STEPS = 1e10
"""Integer steps of the time of the best known step: rounding is lost in the figures."""
MEMORY_STEPS = 1e9
"""The same of the largest capacity; needs are rounded up, so that what is accepted does fit."""
MOST_RUNS = 8
"""Runs of equal layers up to which it is stated how often they may meet: of layers in turns it is no help."""
HEADROOM = 1.03
"""The step may rise this far above the best known: a tight bound on it loses the hint (solver rule)."""


def least_tour(problem: OrderProblem) -> float:
    """Seconds of hops that no order is below.

    Its hops forward are at least the nearest of each group, of as many groups as there are stages; and they are a
    tree, so at least as long as the shortest edges of the minimum spanning tree (Kruskal: of all forests of so many
    edges the first ones are the least).
    """
    if problem.stages == 1:
        return 0.0
    hop_count, none = problem.stages - 1, np.where(np.eye(problem.groups, dtype=bool), np.inf, 0.0)
    hops = problem.hop_seconds + none
    nearest = max(float(np.sort(hops.min(axis=axis))[:hop_count].sum()) for axis in (0, 1))
    # scipy takes 0 for no edge
    edges = minimum_spanning_tree(np.maximum(np.minimum(hops, hops.T), 1e-300)).data
    return max(nearest, float(np.sort(edges)[:hop_count].sum())) + float((problem.back_seconds + none).min())


def least_seconds(problem: OrderProblem) -> float:
    """Seconds of a step that no order and split is below, as if each layer were on the group that is best at it."""
    totals, depth = problem.before[:, -1], problem.stages
    fastest = problem.seconds.min(axis=1)
    total = float((totals * fastest).sum()) + float(problem.first_seconds.min() + problem.last_seconds.min())
    return max(total + least_tour(problem), depth * float(fastest[totals > 0].max()))


def most_seconds(problem: OrderProblem) -> float:
    """Return seconds that no step exceeds: every layer on the slowest group, over the longest hops."""
    depth, totals = problem.stages, problem.before[:, -1]
    work_s = float((totals * problem.seconds.max(axis=1)).sum())
    work_s += float(problem.first_seconds.max() + problem.last_seconds.max())
    return depth * (work_s + float(problem.hop_seconds.max() + problem.back_seconds.max()))


@dataclass(eq=False)
class OrderModel:
    """The model and its variables.

    Attributes
    ----------
    least_s, most_s:
        Seconds that the step is between.
    ordered:
        Whether the groups are put in order. Without it hops are as short as any are: a bound, far sooner.
    count:
        Layers of each kind on each group, ``[kinds][groups]``.
    used, first, last:
        Whether a group is a stage, the first one, the last one.
    arcs:
        Whether one group hands over to another, by the pair.
    cuts:
        Cuts before and after a group's run, ``[groups]`` each.
    """

    problem: OrderProblem
    model: cp_model.CpModel
    least_s: float
    most_s: float
    ordered: bool
    count: list[list[cp_model.IntVar]] = field(default_factory=list)
    used: list[cp_model.IntVar] = field(default_factory=list)
    first: list[cp_model.IntVar] = field(default_factory=list)
    last: list[cp_model.IntVar] = field(default_factory=list)
    arcs: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    step: Any = None

    @property
    def unit_s(self) -> float:
        """Seconds of an integer step: seconds are rounded down, so that bounds stay bounds."""
        return max(self.most_s, 1e-300) / STEPS

    def whole(self, seconds: Floats) -> Ints:
        """Seconds in whole steps; what takes longer than the step may is out anyhow."""
        return np.floor(np.minimum(seconds / self.unit_s, 2 * STEPS)).astype(np.int64)


def build(problem: OrderProblem, least_s: float, most_s: float, *, ordered: bool = True) -> OrderModel:
    """Return the model with all its constraints; the shortest step is its objective if it is ``ordered``.

    Without order it is asked only whether a step is possible: the best takes the solver far longer to prove.
    """
    from ortools.sat.python import cp_model

    built = OrderModel(problem, cp_model.CpModel(), least_s, most_s, ordered)
    variables(built)
    share_layers(built)
    name_ends(built)
    meet_once(built)
    share_of_runs(built)
    if ordered:
        order_groups(built)
        follow_on(built)
    keep_in_memory(built)
    bound_step(built)
    if ordered:
        built.model.minimize(built.step)
    return built


def variables(built: OrderModel) -> None:
    """Make the variables."""
    problem, model = built.problem, built.model
    groups = range(problem.groups)
    built.count = [
        [model.new_int_var(0, total, f"layers{kind}_on{g}") for g in groups]
        for kind, total in enumerate(problem.before[:, -1].tolist())
    ]
    built.used, built.first, built.last = (
        [model.new_bool_var(f"{word}{g}") for g in groups] for word in ("used", "first", "last")
    )
    if built.ordered:
        pairs = ((g, h) for g in groups for h in groups if g != h)
        built.arcs = {(g, h): model.new_bool_var(f"arc{g}_{h}") for g, h in pairs}
    least = math.floor(built.least_s / built.unit_s)
    built.step = model.new_int_var(least, max(least, math.floor(built.most_s / built.unit_s)), "step")


def share_layers(built: OrderModel) -> None:
    """Give every layer to one group, a stage at least one layer and an idle group none."""
    problem, model = built.problem, built.model
    for row, total in zip(built.count, problem.before[:, -1].tolist(), strict=True):
        model.add(sum(row) == total)
    for g, used in enumerate(built.used):
        held = sum(row[g] for row in built.count)
        model.add(held >= used)
        model.add(held <= problem.layers * used)
    model.add(sum(built.used) == problem.stages)


def name_ends(built: OrderModel) -> None:
    """Make one stage the first and one the last, which is another unless there is one alone."""
    for used, begins, ends in zip(built.used, built.first, built.last, strict=True):
        built.model.add_implication(begins, used)
        built.model.add_implication(ends, used)
        if built.problem.stages > 1:
            built.model.add_at_most_one(begins, ends)
    built.model.add_exactly_one(built.first)
    built.model.add_exactly_one(built.last)


def meet_once(built: OrderModel) -> None:
    """Let runs of unlike layers meet inside a stage no more often than they meet at all."""
    problem, model = built.problem, built.model
    runs = int(np.count_nonzero(np.diff(problem.kind_of))) + 1
    if runs == 1 or runs > MOST_RUNS:
        return
    holds: dict[int, list[cp_model.IntVar]] = {}
    for kind in np.unique(problem.kind_of).tolist():
        holds[kind] = [model.new_bool_var(f"has{kind}_{g}") for g in range(problem.groups)]
        for flag, count in zip(holds[kind], built.count[kind], strict=True):
            model.add(count <= int(problem.before[kind, -1]) * flag)
            model.add(count >= flag)
    model.add(sum(flag for row in holds.values() for flag in row) <= problem.stages + runs - 1)
    for ends, kind in ((built.first, problem.kind_of[0]), (built.last, problem.kind_of[-1])):
        for end, flag in zip(ends, holds[int(kind)], strict=True):
            model.add_implication(end, flag)


def share_of_runs(built: OrderModel) -> None:
    """State how far the share of a kind in any run can be from its share of all layers: it tightens relaxations."""
    problem = built.problem
    layers, cuts = problem.layers, np.arange(problem.layers + 1)
    for kind, total in enumerate(problem.before[:, -1].tolist()):
        drift = problem.before[kind] * layers - total * cuts
        widest = int(drift.max() - drift.min())
        for g, count in enumerate(built.count[kind]):
            uneven = layers * count - total * sum(row[g] for row in built.count)
            built.model.add_linear_constraint(uneven, -widest, widest)


def order_groups(built: OrderModel) -> None:
    """Make the stages one circuit through a depot, which comes before the first and after the last."""
    depot = built.problem.groups
    arcs: list[tuple[int, int, Any]] = [(g, h, literal) for (g, h), literal in built.arcs.items()]
    for g, used in enumerate(built.used):
        arcs += [(depot, g, built.first[g]), (g, depot, built.last[g]), (g, g, used.negated())]
    built.model.add_circuit(arcs)


def follow_on(built: OrderModel) -> None:
    """Make runs follow each other without a gap, and count the layers of each kind between their cuts."""
    problem, model = built.problem, built.model
    totals = problem.before[:, -1].tolist()
    if np.count_nonzero(totals) == 1:
        return  # where a run begins makes no difference
    start, stop = (
        [model.new_int_var(0, problem.layers, f"{word}{g}") for g in range(problem.groups)]
        for word in ("start", "stop")
    )
    for g in range(problem.groups):
        model.add(stop[g] - start[g] == sum(row[g] for row in built.count))
        model.add(start[g] == 0).only_enforce_if(built.first[g])
        model.add(stop[g] == problem.layers).only_enforce_if(built.last[g])
        model.add(start[g] == 0).only_enforce_if(built.used[g].negated())
    for (g, h), literal in built.arcs.items():
        model.add(start[h] == stop[g]).only_enforce_if(literal)
    # the kind with most layers is what is left of the length
    commonest = int(np.argmax(totals))
    for kind, total in enumerate(totals):
        if kind == commonest or not total:
            continue
        table = problem.before[kind].tolist()
        for g in range(problem.groups):
            low, high = (model.new_int_var(0, total, f"{word}{kind}_{g}") for word in ("before", "after"))
            model.add_element(start[g], table, low)
            model.add_element(stop[g], table, high)
            model.add(built.count[kind][g] == high - low)


def keep_in_memory(built: OrderModel) -> None:
    """Keep what each group holds within its memory."""
    problem = built.problem
    unit = float(max(problem.capacity.max(), 1.0)) / MEMORY_STEPS

    def up(values: Floats) -> Ints:
        return np.ceil(np.minimum(values / unit, 4 * MEMORY_STEPS)).astype(np.int64)

    room = np.floor((problem.capacity - problem.fixed_memory) / unit).astype(np.int64).tolist()
    used = _on_groups(built, up(problem.memory), up(problem.first_memory), up(problem.last_memory))
    for g, held in enumerate(used):
        built.model.add(built.used[g] == 0 if room[g] < 0 else held <= room[g])


def bound_step(built: OrderModel) -> None:
    """Keep the step at or above each stage times their number, and the sum of stages and hops."""
    problem, model, in_steps = built.problem, built.model, built.whole
    stages = _on_groups(
        built, in_steps(problem.seconds), in_steps(problem.first_seconds), in_steps(problem.last_seconds)
    )
    for stage in stages:
        model.add(built.step >= problem.stages * stage)
    if problem.stages == 1:
        return
    least = math.floor(least_tour(problem) / built.unit_s)
    model.add(built.step >= sum(stages) + max(0, least - 2 * problem.stages))
    if not built.ordered:
        return
    hop_s, back_s = in_steps(problem.hop_seconds), in_steps(problem.back_seconds)
    back = model.new_int_var(int(back_s.min()), int(back_s.max()), "back")
    for g, ends in enumerate(built.last):
        hop_steps = sum(int(back_s[g, h]) * begins for h, begins in enumerate(built.first))
        model.add(back >= hop_steps).only_enforce_if(ends)
    hops = sum(int(hop_s[g, h]) * literal for (g, h), literal in built.arcs.items())
    model.add(built.step >= sum(stages) + hops + back)


def _on_groups(built: OrderModel, layer: Ints, first_extra: Ints, last_extra: Ints) -> list[Any]:
    """What the layers on each group take (``layer[kind, group]`` each), and the first and the last stage besides."""
    return [
        sum(int(layer[kind, g]) * row[g] for kind, row in enumerate(built.count))
        + int(first_extra[g]) * built.first[g]
        + int(last_extra[g]) * built.last[g]
        for g in range(built.problem.groups)
    ]


def give_hint(built: OrderModel, hint: StageOrder) -> None:
    """Start from a split in order."""
    model, place = built.model, {g: p for p, g in enumerate(hint.order)}
    counts, next_of = built.problem.counts(hint.ranges), dict(pairwise(hint.order))
    for g in range(built.problem.groups):
        p = place.get(g)
        for kind, row in enumerate(built.count):
            model.add_hint(row[g], 0 if p is None else int(counts[kind, p]))
        model.add_hint(built.used[g], p is not None)
        model.add_hint(built.first[g], g == hint.order[0])
        model.add_hint(built.last[g], g == hint.order[-1])
    for (g, h), literal in built.arcs.items():
        model.add_hint(literal, next_of.get(g) == h)


def none_within(problem: OrderProblem, step_s: float, budget: Budget, *, seed: int) -> bool:
    """Whether it is proven, with hops as short as any are, that no order has a step of ``step_s`` or less."""
    from ortools.sat.python import cp_model

    built = build(problem, 0.0, step_s, ordered=False)
    return bool(solve_within(built.model, budget, seed=seed)[1] == cp_model.INFEASIBLE)


def search_order(
    problem: OrderProblem, known: StageOrder | None, budget: Budget, *, least_s: float = 0.0, seed: int = 0
) -> tuple[StageOrder | None, float, str]:
    """Search within ``budget`` for an order and split with a shorter step than ``known``.

    Return it, a bound, and what ran.

    ``least_s`` is a bound that is proven already. The new one is infinite where no order and split is proven to fit.
    """
    from ortools.sat.python import cp_model

    built = build(problem, least_s, most_seconds(problem) if known is None else known.step_s * HEADROOM)
    if known is not None:
        give_hint(built, known)
    solver, status = solve_within(built.model, budget, seed=seed)
    search = f"CP-SAT: {solver.status_name(status)}, 1 worker, seed {seed}"
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return known, np.inf if status == cp_model.INFEASIBLE else least_s, search
    orders = [_read(built, solver), *([] if known is None else [known])]
    resplit = split_in_order(problem, orders[0].order)  # may be better within the rounding
    if resplit is not None:
        orders.append(StageOrder.of(problem, orders[0].order, resplit))
    best = min(
        (split for split in orders if problem.fits(split.order, split.ranges)), key=lambda split: split.step_s
    )
    return best, max(least_s, solver.best_objective_bound * built.unit_s), search


def _read(built: OrderModel, solver: cp_model.CpSolver) -> StageOrder:
    """Return the order along the arcs, and the runs by how many layers each group has."""
    follows = {g: h for (g, h), literal in built.arcs.items() if solver.boolean_value(literal)}
    order = [next(g for g, begins in enumerate(built.first) if solver.boolean_value(begins))]
    while order[-1] in follows:
        order.append(follows[order[-1]])
    counts = [sum(solver.value(row[g]) for row in built.count) for g in order]
    stops = np.cumsum([0, *counts]).tolist()
    return StageOrder.of(built.problem, order, tuple(range(a, b) for a, b in pairwise(stops)))
