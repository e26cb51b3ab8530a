"""One placement for several scenarios: against all placements of tiny cases, baselines, and what must not matter."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.budget import Budget
from placement.experts.problem import make_problem
from placement.experts.solve import solve
from placement.verify import verify_experts
from topology.base.errors import InputError

if TYPE_CHECKING:
    from placement.experts.problem import Objective, Problem
    from placement.experts.result import ExpertResult

TINY = np.array([2, 2, 2])


def placed(problem: Problem, time_limit_s: float = 0.0) -> ExpertResult:
    return solve(problem, Budget(time_limit_s))


def optimum(problem: Problem) -> np.ndarray:
    """Smallest objective of any placement of 4 experts on 3 GPUs with 2 slots each, ``[layers]``."""
    pairs = list(combinations(range(4), 2))
    rows = [sum(choice, ()) for choice in product(pairs, repeat=3) if len(set(sum(choice, ()))) == 4]
    best = np.full(problem.average.layers, np.inf)
    for row in rows:
        tiled = np.tile(np.array(row, dtype=np.int32), (problem.average.layers, 1))
        best = np.minimum(best, problem.evaluate(problem.average.assignment(tiled)))
    return best


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("speed", [None, np.array([1.0, 2.0, 1.0])])
def test_close_to_the_best_of_all_placements_and_never_below(
    objective: Objective, speed: np.ndarray | None
) -> None:
    tokens = np.random.default_rng(5).lognormal(0, 0.8, (3, 60, 4))
    problem = make_problem(tokens, TINY, speed=speed, objective=objective)
    found, best = placed(problem), optimum(problem)
    assert (found.max_load >= best * (1 - 1e-9)).all()
    assert (found.bound <= best * (1 + 1e-9)).all()
    assert (found.max_load / best).mean() < 1.03
    assert (found.max_load / best).max() < 1.25


@pytest.mark.parametrize("copies", [1, 3])
def test_one_scenario_or_several_identical_ones_are_the_ordinary_placement(copies: int) -> None:
    tokens = np.random.default_rng(1).lognormal(0, 1, (6, 32))
    slots = np.full(8, 5)
    ordinary = solve(make_problem(tokens, slots))
    found = placed(make_problem(np.stack([tokens] * copies), slots))
    np.testing.assert_array_equal(found.assignment.slot_expert, ordinary.assignment.slot_expert)
    np.testing.assert_array_equal(found.bound, ordinary.bound)


@pytest.mark.wide
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), objective=st.sampled_from(["mean", "worst"]))
def test_legal_recomputed_bounded_and_not_behind_a_legal_baseline(seed: int, objective: Objective) -> None:
    rng = np.random.default_rng(seed)
    gpus, slots = int(rng.integers(2, 9)), int(rng.integers(2, 6))
    experts = int(rng.integers(slots, gpus * slots + 1))
    tokens = rng.lognormal(0, rng.uniform(0.2, 2), (3, 4, experts))
    problem = make_problem(tokens, np.full(gpus, slots), objective=objective)
    found = placed(problem)
    assert verify_experts(found.assignment, problem.average) == []
    each = np.stack([1 / found.assignment.balancedness(load) for load in problem.loads])
    recount = each.mean(axis=0) if objective == "mean" else each.max(axis=0)
    np.testing.assert_allclose(found.max_load, recount)
    assert (found.bound <= found.max_load).all()
    for rival in found.baselines.values():
        if rival.assignment is None:
            continue
        rows = rival.assignment.slot_expert.reshape(4, gpus, slots)
        legal = [all(len(set(here)) == slots for here in row.tolist()) for row in rows]
        behind = problem.evaluate(rival.assignment) < found.max_load * (1 - 1e-9)
        assert not (behind & np.array(legal)).any()


def test_the_worst_of_single_slots_is_optimal() -> None:
    tokens = np.random.default_rng(3).lognormal(0, 1, (3, 5, 12))
    found = placed(make_problem(tokens, np.ones(20, dtype=int), objective="worst"))
    assert found.status == "OPTIMAL"
    assert found.gap == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_copies_are_spread_over_failure_domains(objective: Objective) -> None:
    tokens = np.random.default_rng(6).lognormal(0, 1.2, (3, 8, 24))
    spread = np.repeat([0, 1, 2, 3], 2)
    problem = make_problem(tokens, np.full(8, 9), spread=spread, objective=objective)
    found = placed(problem)
    assert verify_experts(found.assignment, problem.average) == []
    assert found.assignment.copies.min() == 2
    assert found.assignment.copies.max() > 4
    for row in found.assignment.slot_expert:
        for expert in range(24):
            there = np.bincount(spread[found.assignment.slot_gpu[row == expert]], minlength=4)
            assert there.max() <= np.ceil(there.sum() / 4)


def test_unequal_slots_and_gpus_without_one() -> None:
    tokens = np.random.default_rng(7).lognormal(0, 1, (2, 4, 10))
    problem = make_problem(tokens, np.array([5, 0, 3, 4, 1]))
    assert verify_experts(placed(problem).assignment, problem.average) == []


@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_extreme_loads(objective: Objective) -> None:
    tokens = np.ones((3, 2, 16))
    tokens[0, 0] = [1] + [0] * 15  # all on one expert
    tokens[1, 0] = [0] + [2**60 + 1] * 15  # a dead one, beside integers above 2^53
    problem = make_problem(tokens, np.full(8, 3), objective=objective)
    found = placed(problem)
    assert verify_experts(found.assignment, problem.average) == []
    assert np.isfinite(found.max_load).all()
    if objective == "mean":
        assert found.max_load[0] < 2.2


def test_refuses_what_are_not_scenarios() -> None:
    with pytest.raises(InputError, match=r"scenarios, layers, experts"):
        make_problem(np.ones((1, 3, 1, 4)), TINY)
    with pytest.raises(InputError, match="expected mean or worst"):
        make_problem(np.ones((2, 1, 4)), TINY, objective="best")  # type: ignore[arg-type]
