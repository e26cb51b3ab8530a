"""Several scenarios: what a placement reaches in each of them, and rivals that are better there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placement.baselines import Baseline
from placement.bounds import lower_bound
from placement.experts import ExpertResult, place_experts
from placement.problem import expert_problem
from placement.scenarios import over_scenarios
from placement.verify import verify_experts

TWO = np.array([2, 2])
# Experts 0 and 1 are busy together, then 2 and 3; their mean tells nothing of that.
TOGETHER = np.array([[[3.0, 3.0, 1.0, 1.0]], [[1.0, 1.0, 3.0, 3.0]]])


def placed(tokens: np.ndarray, slots: np.ndarray, time_limit_s: float = 0.0) -> ExpertResult:
    problem = expert_problem(tokens.mean(axis=0), slots)
    return place_experts(problem, time_limit_s=time_limit_s, seed=0, eplb_groups=None, nodes=1)


def with_rows(result: ExpertResult, rows: list[list[int]], **rivals: list[list[int]]) -> ExpertResult:
    problem = expert_problem(np.ones((len(rows), 4)), TWO)
    return replace(
        result,
        assignment=problem.assignment(np.array(rows)),
        baselines={name: Baseline(problem.assignment(np.array(row))) for name, row in rivals.items()},
    )


def test_the_objective_is_the_mean_over_scenarios_not_of_the_mean() -> None:
    unlucky = with_rows(placed(TOGETHER, TWO), [[0, 1, 2, 3]])
    found = over_scenarios(unlucky, TOGETHER, TWO)
    # 6 of 8 tokens on one GPU in each scenario; on the mean of both the GPUs are alike
    assert found.max_load == pytest.approx([1.5])
    assert found.bound == pytest.approx([1.0])
    assert found.status == "FEASIBLE"
    assert found.gap == pytest.approx(1 / 3)


def test_a_rival_that_is_better_over_the_scenarios_is_taken_where_it_is() -> None:
    tokens = np.concatenate([TOGETHER, TOGETHER], axis=1)
    ours = with_rows(
        placed(tokens, TWO), [[0, 1, 2, 3], [0, 2, 1, 3]], eplb_global=[[0, 2, 1, 3], [0, 1, 2, 3]]
    )
    found = over_scenarios(ours, tokens, TWO)
    np.testing.assert_array_equal(found.assignment.slot_expert, [[0, 2, 1, 3], [0, 2, 1, 3]])
    assert found.max_load == pytest.approx([1.0, 1.0])
    assert found.status == "OPTIMAL"
    assert any("eplb_global is better over the scenarios and taken in 1 layers" in note for note in found.log)


def test_a_rival_with_two_copies_on_a_gpu_is_made_legal_before_it_is_taken() -> None:
    slots = np.array([3, 3])
    tokens = np.array([[[4.0, 1.0, 1.0, 1.0]], [[4.0, 1.0, 1.0, 1.5]]])
    problem = expert_problem(tokens.mean(axis=0), slots)
    result = placed(tokens, slots)
    illegal = {"eplb_global": Baseline(problem.assignment(np.array([[0, 0, 1, 2, 3, 1]])))}
    found = over_scenarios(replace(result, baselines=illegal), tokens, slots)
    assert verify_experts(found.assignment, problem) == []


@pytest.mark.parametrize("seed", range(5))
def test_never_behind_eplb_and_never_below_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.lognormal(0, 1.0, (3, 8, 32))
    slots = np.full(8, 5)
    found = over_scenarios(placed(tokens, slots), tokens, slots)
    problems = [expert_problem(scenario, slots) for scenario in tokens]
    recount = np.mean([problem.max_load(found.assignment) for problem in problems], axis=0)
    np.testing.assert_allclose(found.max_load, recount)
    rival = found.baselines["eplb_global"].assignment
    assert rival is not None
    behind = np.mean([problem.max_load(rival) for problem in problems], axis=0) < recount - 1e-9
    for layer in np.flatnonzero(behind):  # only where that one is not legal
        rows = np.array(rival.slot_expert[layer]).reshape(8, 5)
        assert any(len(set(row.tolist())) < 5 for row in rows)
    assert (found.bound <= found.max_load).all()
    assert found.bound == pytest.approx(np.mean([lower_bound(problem) for problem in problems], axis=0))
    assert verify_experts(found.assignment, problems[0]) == []
