"""GPUs of very unlike speed want unlike copies: heavy ones for the fast, light ones for the slow."""

from __future__ import annotations

import numpy as np
import pytest

from placement.problem import make_problem
from placement.solve import solve
from placement.verify import verify_experts


@pytest.mark.parametrize("sigma", [1.0, 1.5])
def test_speeds_far_apart_are_used(sigma: float) -> None:
    """Greedy counts make all copies alike: with equal slots the slowest GPU then sets the pace (1.7 to 2.4)."""
    rng = np.random.default_rng(0)
    speed = rng.choice([0.5, 0.7, 1.0, 1.0, 3.0], 144)
    problem = make_problem(rng.lognormal(0, sigma, (2, 256)), np.full(144, 6), speed)
    found = solve(problem)
    assert verify_experts(found.assignment, problem) == []
    assert found.max_load.max() < 1.25


def test_a_dead_expert_and_speeds_far_apart() -> None:
    rng = np.random.default_rng(1)
    loads = rng.lognormal(0, 0.6, (2, 32))
    loads[:, 5] = 0.0
    problem = make_problem(loads, np.full(8, 9), rng.choice([1.0, 3.0], 8))
    found = solve(problem)
    assert verify_experts(found.assignment, problem) == []
    assert (found.assignment.copies[:, 5] <= 9).all()
    assert found.max_load.max() < 1.1


def test_many_gpus_with_many_slots() -> None:
    rng = np.random.default_rng(0)
    problem = make_problem(rng.lognormal(0, 1.5, (4, 256)), np.full(576, 8))
    found = solve(problem, eplb_groups=8, nodes=2)
    assert found.max_load.max() < 1.02
