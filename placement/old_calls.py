"""Functions by their old names, with the parameters that those had (:mod:`topology.old_names`)."""

from __future__ import annotations

from collections.abc import Sequence

from cost.dispatch import DispatchPolicy
from placement.arrays import Experts, Floats, Ints
from placement.migrate.migration import Migration, migrate
from placement.migrate.task import MigrationTask, migration_task
from placement.options import Objective
from placement.problem import Problem, make_problem
from placement.result import ExpertResult
from placement.solve import solve
from placement.stop import OnProgress, Stop


def few_moves(
    tasks: Sequence[MigrationTask],
    *,
    max_moves: int | None = None,
    only_restore: bool = False,
    time_limit_s: float = 0.0,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Migration:
    """Call :func:`placement.migrate.migration.migrate`."""
    stop = Stop(time_limit_s, on_progress)
    return migrate(tasks, max_moves=max_moves, only_restore=only_restore, stop=stop, seed=seed)


def place_over_scenarios(
    problem: Problem,
    *,
    time_limit_s: float,
    seed: int,
    eplb_groups: int | None,
    nodes: int,
    on_progress: OnProgress | None = None,
) -> ExpertResult:
    """Call :func:`placement.solve.solve`."""
    stop = Stop(time_limit_s, on_progress)
    return solve(problem, stop, seed=seed, eplb_groups=eplb_groups, nodes=nodes)


def replan_task(
    problem: Problem,
    tokens: Floats,
    old: Experts,
    objective: Objective = "mean",
    *,
    split: DispatchPolicy = "even",
    nodes: Ints | None = None,
) -> MigrationTask:
    """Return the task of placing ``tokens`` ``[scenarios, layers, experts]`` in the slots of ``problem``."""
    slots, speed, spread = problem.slots_per_gpu, problem.gpu_speed, problem.spread
    return migration_task(
        make_problem(tokens, slots, speed, spread, objective=objective, split=split, nodes=nodes), old
    )
