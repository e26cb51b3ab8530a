"""The search of small problems from a poor start, against the best of all placements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from placement.exhaustive import few_placements
from placement.small_search import is_small, search_small

from placement.budget import Budget
from placement.problem import make_problem
from placement.result import checked_result
from placement.solve import solve
from placement.spread_feasibility import can_spread, spread_row
from tiny_cases import least_objective, tiny_problem


def from_a_poor_start(seed: int, budget: Budget | None = None) -> float | None:
    """How far the search is above the best placement; None where there is no placement or nothing to search."""
    problem = tiny_problem(seed)
    if not can_spread(problem.experts, problem.slots_per_gpu, problem.failure_domain):
        return None
    row = spread_row(problem.experts, problem.slots_per_gpu, problem.failure_domain)
    start = checked_result(problem, row[None], np.ones(1) * 0.1, (), {}, interrupted=False)
    found = search_small(start, problem, budget or Budget(), seed=0)
    best = least_objective(problem, second_first=False)
    assert best is not None
    assert found.objective >= best * (1 - 1e-9)
    return found.objective / best - 1


def test_near_the_best() -> None:
    found = [value for seed in range(8) if (value := from_a_poor_start(seed)) is not None]
    assert np.mean(found) < 0.01


@pytest.mark.wide
def test_near_the_best_of_many() -> None:
    found = [value for seed in range(1000, 1150) if (value := from_a_poor_start(seed)) is not None]
    assert np.mean(found) < 0.01


def test_seconds_are_kept_and_used() -> None:
    assert from_a_poor_start(4, Budget(0.2)) == pytest.approx(0, abs=1e-9)


def test_what_is_small() -> None:
    """Not 288 slots, nor 2,000 layers; where engines ask for some layers, the others change nothing."""
    one = tiny_problem(1)
    many = replace(one, loads=np.tile(one.loads, (1, 2000, 1)))
    large = make_problem(np.ones((1, 256)), np.full(72, 4))
    plain = make_problem(np.ones((2000, 4)), [2, 2, 2])
    for small in (is_small, few_placements):
        assert small(one)
        assert not small(many)
        assert not small(large)
        assert small(plain)


def test_names_of_experts_and_order_of_scenarios_decide_nothing() -> None:
    rng = np.random.default_rng(3)
    loads, slots, spread = (
        rng.lognormal(0, 1, (3, 1, 7)),
        np.array([4, 4, 3, 4, 3]),
        np.array([0, 0, 1, 1, 2]),
    )
    problem = replace(
        tiny_problem(0), loads=loads, slots_per_gpu=slots, spread=spread, gpu_speed=None, nodes=None
    )
    problem = replace(problem, objective="worst", split="source")
    assert is_small(problem)
    assert not few_placements(problem)
    found = solve(problem)
    names = rng.permutation(7)
    other = solve(replace(problem, loads=loads[[2, 0, 1]][:, :, names]), seed=1)
    np.testing.assert_array_equal(names[other.assignment.slot_expert], found.assignment.slot_expert)
