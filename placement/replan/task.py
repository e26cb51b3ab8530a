"""Old name of :mod:`placement.migrate.task`."""

from __future__ import annotations

import warnings

from cost.dispatch import DispatchPolicy
from placement.arrays import Experts, Floats, Ints
from placement.migrate.task import MigrationTask, migration_task
from placement.options import Objective
from placement.problem import Problem, make_problem

__all__ = ["ReplanTask", "replan_task"]

ReplanTask = MigrationTask

warnings.warn(
    "placement.replan.task is placement.migrate.task; replan_task is migration_task, whose problem says all",
    DeprecationWarning,
    stacklevel=2,
)


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
