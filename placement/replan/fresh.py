"""A placement made without regard to the old one, for the split that runs, on the GPUs that hold most of it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.replan.relabel import relabel
from placement.replan.task import ReplanTask
from placement.result import ExpertResult
from placement.scenarios.problem import ScenarioProblem

_NOTABLY = 1e-3  # of the objective


class Fresh(NamedTuple):
    """Fresh placements near the old one, ``[layers, slots]``: for an even split, and for the one that runs."""

    even: NDArray[np.int32]
    fitted: NDArray[np.int32]


def fresh_placement(task: ReplanTask, *, seed: int = 0) -> NDArray[np.int32]:
    """Return a placement for the loads alone, ``[layers, slots]``: that of a plan's fast path, under its split."""
    from placement.under_split import under_split

    result, problem = _even(task, seed)
    return under_split(result, problem, task.split, task.nodes).assignment.slot_expert


def fresh_near(task: ReplanTask, *, seed: int = 0) -> Fresh:
    """Return fresh placements whose groups lie on the GPUs that hold most of them already.

    By source the split depends on which GPU is on which node, so the even placement is relabelled first and then
    fitted; a layer that a plan without relabelling fits notably better takes that one. An LP split does not ask
    where GPUs are: the fitted placement is relabelled.
    """
    from placement.under_split import under_split

    result, problem = _even(task, seed)
    even = relabel(task, result.assignment.slot_expert)
    if task.split == "even":
        return Fresh(even, even)
    plan = under_split(result, problem, task.split, task.nodes).assignment.slot_expert
    if task.split == "lp":
        return Fresh(even, relabel(task, plan))
    result = replace(result, assignment=task.problem.assignment(even))
    near = under_split(result, problem, task.split, task.nodes).assignment.slot_expert
    better = task.value(plan) * (1 + _NOTABLY) < task.value(near)
    return Fresh(even, np.where(better[:, None], plan, near))


def _even(task: ReplanTask, seed: int) -> tuple[ExpertResult, ScenarioProblem]:
    """Return the fast path's answer for an even split, and the problem it was found for."""
    from placement.scenarios.place import place_over_scenarios
    from placement.scenarios.problem import scenario_problem

    problem = task.problem
    scenarios = scenario_problem(
        task.tokens,
        problem.slots_per_gpu,
        speed=problem.gpu_speed,
        spread=problem.spread,
        objective=task.objective,
    )
    result = place_over_scenarios(scenarios, time_limit_s=0.0, seed=seed, eplb_groups=None, nodes=1)
    return result, scenarios
