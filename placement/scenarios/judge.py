"""Judge a placement over several scenarios: what it reaches, what none can be below, and no rival ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from placement.bounds import lower_bound
from placement.problem import expert_problem
from placement.repair import distinct_copies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cost.assignment import Assignment
    from placement.experts import ExpertResult
    from placement.problem import ExpertProblem

__all__ = ["over_scenarios"]

_EQUAL = 1e-9  # relative: the objective is the bound up to rounding


def over_scenarios(
    result: ExpertResult, tokens: NDArray[np.float64], slots_per_gpu: NDArray[np.int64]
) -> ExpertResult:
    """Return ``result``, found for the mean of the scenarios, as it fares in ``tokens`` themselves.

    A layer where a baseline, its copies moved to distinct GPUs, has the smaller mean over scenarios of largest
    over mean GPU load takes that one's placement. The bound is the mean of the scenarios' own: what none can
    be below in any of them, none can be below on average.

    Parameters
    ----------
    tokens:
        ``[scenarios, layers, experts]``, of the layers of ``result``.
    """
    problems = [expert_problem(scenario, slots_per_gpu) for scenario in tokens]
    slot_expert = result.assignment.slot_expert.copy()
    max_load = _mean_load(problems, result.assignment)
    log = [*result.log, f"searched on the mean of {len(problems)} scenarios, scored in each of them"]
    for name, rival in result.baselines.items():
        if rival.assignment is None:
            continue
        apart, fits = distinct_copies(problems[0], rival.assignment.slot_expert)
        rival_load = _mean_load(problems, problems[0].assignment(apart))
        ahead = fits & (rival_load < max_load * (1 - _EQUAL))
        slot_expert[ahead], max_load[ahead] = apart[ahead], rival_load[ahead]
        if ahead.any():
            log.append(f"{name} is better over the scenarios and taken in {int(ahead.sum())} layers")
    bound = np.mean([lower_bound(problem) for problem in problems], axis=0)
    proven = bool((max_load <= bound * (1 + _EQUAL)).all())
    return replace(
        result,
        assignment=problems[0].assignment(slot_expert),
        status="OPTIMAL" if proven else "FEASIBLE",
        max_load=max_load,
        bound=np.minimum(bound, max_load),  # a bound above the answer is rounding
        log=tuple(log),
    )


def _mean_load(problems: Sequence[ExpertProblem], assignment: Assignment) -> NDArray[np.float64]:
    """Largest over mean GPU load, ``[layers]``, the mean over scenarios."""
    mean: NDArray[np.float64] = np.mean([problem.max_load(assignment) for problem in problems], axis=0)
    return mean
