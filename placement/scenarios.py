"""Old names of planning for several loads, with a warning; they go in the next version."""

from __future__ import annotations

import warnings

from placement.cross_validation import scenario_report
from placement.problem import Problem
from placement.problem import make_problem as scenario_problem
from placement.result import ExpertResult
from placement.solve import solve
from placement.stop import OnProgress, Stop

warnings.warn(
    "placement.scenarios: scenario_problem is placement.problem.make_problem, place_over_scenarios is "
    "placement.solve.solve, scenario_report is in placement.cross_validation",
    DeprecationWarning,
    stacklevel=2,
)

__all__ = ["place_over_scenarios", "scenario_problem", "scenario_report"]


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
