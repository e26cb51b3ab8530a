"""The fewest moves that give every expert a legal copy, proven with CP-SAT.

Without failure domains restoring is exact by itself. With them the cap of a domain depends on the count of an expert,
and cycles of copies may take more moves than are needed: before a budget is refused, the layers that may do with
fewer are solved. The model says which copies stay and how many of an expert come to a domain; which GPU of the domain
takes which is a flow. Where there is none, as with GPUs of very unlike slots, the GPUs are in the model too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from placement.arrays import Bools, Experts, Ints
from placement.budget import Budget
from placement.cp_solver import solve_within
from placement.experts.pack import EMPTY
from placement.experts.problem import Problem
from placement.migrate.task import MigrationTask

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_WORK = 4.0
"""CP-SAT's own seconds for a layer: counted in steps, so that answers do not depend on the machine."""

_QUICK = 20_000  # experts x (GPUs + domains) x layers


def least_moves(task: MigrationTask) -> Ints:
    """Return what no restoring can do with fewer moves than, ``[layers]``: empty slots and experts without a copy."""
    empty = (task.old == EMPTY).sum(axis=1)
    homeless = (task.held.sum(axis=1) == 0).sum(axis=1)
    least: Ints = np.maximum(empty, homeless)
    return least


def is_quick(task: MigrationTask) -> bool:
    """Whether solving all layers takes a fraction of a second."""
    problem = task.problem
    return problem.layers * problem.experts * (problem.gpus + 4 * problem.domains_used) <= _QUICK


def fewest_moves(
    task: MigrationTask, start: Experts, budget: Budget, keep_on: Callable[[], bool] = lambda: True
) -> tuple[Experts, Ints]:
    """Return legal ``[layers, slots]`` after no more moves than ``start``, and a bound of the moves, ``[layers]``.

    Where moves are the bound, none can do with fewer; where CP-SAT's work ran out, they are above it. Deterministic
    while ``keep_on``, asked before each layer, says yes; the clock of ``budget`` and Ctrl-C end a layer too.
    """
    nearest, bound, moves = start.copy(), least_moves(task), task.moves(start)
    for layer in np.flatnonzero(moves > bound).tolist():
        if not keep_on():
            break
        held = task.held[layer]
        on, least = _by_domain(task.problem, held, budget)
        if on is None and least < moves[layer]:
            on, least = _by_gpu(task.problem, held, budget)
        bound[layer] = max(int(bound[layer]), min(least, int(moves[layer])))
        if on is not None:
            row = np.nonzero(on)[1].astype(np.int32)  # GPU by GPU
            if int((on & ~held).sum()) < moves[layer]:
                nearest[layer] = row
    return nearest, bound


def _by_domain(problem: Problem, held: Bools, budget: Budget) -> tuple[Bools | None, int]:
    """Return who holds what, ``[gpus, experts]`` (None if nothing was found), and a bound of the moves."""
    from ortools.sat.python import cp_model

    model, domain = cp_model.CpModel(), problem.failure_domain
    stays = {(gpu, expert): model.new_bool_var("") for gpu, expert in np.argwhere(held).tolist()}
    used = problem.slots_per_gpu > 0
    gpus = np.bincount(domain[used], minlength=problem.domains).tolist()
    comes = [[model.new_int_var(0, limit, "") for limit in gpus] for _ in range(problem.experts)]
    there: list[list[cp_model.LinearExpr]] = [list(row) for row in comes]
    for (gpu, expert), variable in stays.items():
        there[expert][int(domain[gpu])] += variable
    slots = np.bincount(domain, weights=problem.slots_per_gpu, minlength=problem.domains).astype(int).tolist()
    for number, count in enumerate(slots):
        model.add(sum(row[number] for row in there) == count)
    for row in there:
        for copies, limit in zip(row, gpus, strict=True):
            model.add(copies <= limit)
    _spread(model, there, problem.domains_used)
    model.maximize(sum(stays.values()))
    solver, bound = _solved(model, problem, budget)
    if solver is None:
        return None, bound
    kept = np.zeros_like(held)
    for place, variable in stays.items():
        kept[place] = solver.boolean_value(variable)
    return _filled(
        problem, kept, np.array([[solver.value(copies) for copies in row] for row in comes])
    ), bound


def _filled(problem: Problem, kept: Bools, comes: Ints) -> Bools | None:
    """Bring ``comes`` ``[experts, domains]`` to GPUs that lack them, in a copy of ``kept``; None if that fails."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    on, domain = kept.copy(), problem.failure_domain
    for place in np.flatnonzero(comes.sum(axis=0)).tolist():
        gpus, experts = np.flatnonzero(domain == place), np.flatnonzero(comes[:, place])
        free = problem.slots_per_gpu[gpus] - kept[gpus].sum(axis=1)
        size = 2 + experts.size + gpus.size
        capacity = np.zeros((size, size), dtype=np.int32)
        inner = slice(1, 1 + experts.size), slice(1 + experts.size, size - 1)
        capacity[0, inner[0]], capacity[inner[1], size - 1] = comes[experts, place], free
        capacity[inner] = ~kept[np.ix_(gpus, experts)].T
        flow = maximum_flow(csr_array(capacity), 0, size - 1)
        if flow.flow_value < comes[:, place].sum():
            return None
        expert, gpu = np.nonzero(flow.flow.toarray()[inner] > 0)
        on[gpus[gpu], experts[expert]] = True
    return on


def _by_gpu(problem: Problem, held: Bools, budget: Budget) -> tuple[Bools | None, int]:
    """As :func:`_by_domain`, with a variable for each expert on each GPU."""
    from ortools.sat.python import cp_model

    model, domain = cp_model.CpModel(), problem.failure_domain
    x = [[model.new_bool_var("") for _ in range(problem.gpus)] for _ in range(problem.experts)]
    for gpu, slots in enumerate(problem.slots_per_gpu.tolist()):
        model.add(sum(row[gpu] for row in x) == slots)
    members = [np.flatnonzero(domain == place).tolist() for place in range(problem.domains)]
    _spread(
        model,
        [[cp_model.LinearExpr.sum([row[gpu] for gpu in gpus]) for gpus in members] for row in x],
        problem.domains_used,
    )
    model.maximize(sum(x[expert][gpu] for gpu, expert in np.argwhere(held).tolist()))
    solver, bound = _solved(model, problem, budget)
    if solver is None:
        return None, bound
    return np.array([[solver.boolean_value(variable) for variable in row] for row in x]).T, bound


def _spread(model: cp_model.CpModel, there: Sequence[Sequence[cp_model.LinearExpr]], used: int) -> None:
    """Keep the copies of each expert ``there``, by domain, to :func:`placement.experts.problem.most_in_domain`."""
    for row in there:
        copies = sum(row)
        model.add(copies >= 1)
        if used == 1:
            most: cp_model.IntVar | int = 1
        else:
            most = model.new_int_var(1, 1 << 16, "")
            model.add(used * most >= copies)
            model.add(used * (most - 1) <= copies - 1)
        for here in row:
            model.add(here <= most)


def _solved(
    model: cp_model.CpModel, problem: Problem, budget: Budget
) -> tuple[cp_model.CpSolver | None, int]:
    """Return a solver with the most copies that stay (None if none was found), and a bound of the moves."""
    from ortools.sat.python import cp_model

    solver, status = solve_within(model, budget.always(_WORK), seed=0)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return None, 0
    return solver, problem.slots - round(solver.best_objective_bound)
