"""Runs of layers of many kinds in turn, by CP-SAT: one variable for each run that a group may hold within a step.

Where kinds alternate, counts of layers say little: what a group can hold depends on where its run begins. Each
run that has room and is fast enough is a variable; runs follow each other as a path through the cuts, with each
group on it once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cost.layouts.partition import Split
from cost.layouts.stage_order import Order, OrderProblem
from placement.arrays import Bools, Floats
from placement.budget import Budget
from placement.cp_solver import solve_within
from placement.layouts.order_bounds import least_tour
from placement.layouts.order_model import STEPS

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

MOST_RUNS = 6000
"""Runs in a model at most: 1,200 (36 layers on 8 groups) are decided in 0.4 s, 16,000 not in 10 s (measured)."""


def runs_that_fit(problem: OrderProblem, step_s: float) -> tuple[Floats, Bools]:
    """Return seconds of layers ``i`` to ``j - 1`` on each group, ``[groups, i, j]``, and which fit in a step.

    ``step_s``: seconds of the step.
    """
    before, layers = problem.before.astype(np.float64), problem.layers
    held = before[:, None, :] - before[:, :, None]
    seconds = np.einsum("kij,kg->gij", held, problem.seconds)
    memory = np.einsum("kij,kg->gij", held, problem.memory) + problem.fixed_memory[:, None, None]
    for table, first, last in (
        (seconds, problem.first_seconds, problem.last_seconds),
        (memory, problem.first_memory, problem.last_memory),
    ):
        table[:, 0, :] += first[:, None]
        table[:, :, layers] += last[:, None]
    cuts = np.arange(layers + 1)
    fits = (memory <= problem.capacity[:, None, None]) & (cuts[:, None] < cuts[None, :])
    return seconds, fits & (problem.stages * seconds <= step_s)


def runs_within(
    problem: OrderProblem, step_s: float, budget: Budget, *, seed: int
) -> tuple[bool, tuple[Order, Split] | None]:
    """Return whether no order has a step of ``step_s`` or less, proven; and an order that may have, but for hops.

    The order and its split are exact in all but that hops are as short as any are; None where none was found.
    """
    from ortools.sat.python import cp_model

    seconds, fits = runs_that_fit(problem, step_s)
    groups, begins, ends = (axis.tolist() for axis in np.nonzero(fits))
    model = cp_model.CpModel()
    runs = [model.new_bool_var(f"group{g}_{i}_{j}") for g, i, j in zip(groups, begins, ends, strict=True)]
    own: list[list[cp_model.IntVar]] = [[] for _ in range(problem.groups)]
    out: list[list[cp_model.IntVar]] = [[] for _ in range(problem.layers + 1)]
    into: list[list[cp_model.IntVar]] = [[] for _ in range(problem.layers + 1)]
    for run, g, i, j in zip(runs, groups, begins, ends, strict=True):
        own[g].append(run)
        out[i].append(run)
        into[j].append(run)
    model.add_exactly_one(out[0])
    model.add_exactly_one(into[-1])
    for cut in range(1, problem.layers):
        model.add(sum(out[cut]) == sum(into[cut]))
        model.add_at_most_one(out[cut])
    for row in own:
        model.add_at_most_one(row)
    model.add(sum(runs) == problem.stages)
    unit_s = step_s / STEPS
    weights = np.floor(seconds[fits] / unit_s).astype(np.int64).tolist()
    room = math.floor((step_s - least_tour(problem) * (1 - 1e-9)) / unit_s)
    model.add(sum(weight * run for weight, run in zip(weights, runs, strict=True)) <= room)
    solver, status = solve_within(model, budget, seed=seed)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return status == cp_model.INFEASIBLE, None
    taken = [k for k, run in enumerate(runs) if solver.boolean_value(run)]
    taken.sort(key=lambda k: begins[k])
    return False, (tuple(groups[k] for k in taken), tuple(range(begins[k], ends[k]) for k in taken))
