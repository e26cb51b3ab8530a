"""Scenarios that make a search of the smooth stand-in stumble: loads all on one expert, heterogeneous GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from placement.experts.problem import make_problem
from placement.experts.solve import solve

if TYPE_CHECKING:
    from placement.experts.problem import Objective


@pytest.mark.wide
@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_scenarios_all_on_one_expert_each(objective: Objective) -> None:
    loads = np.zeros((5, 2, 256))
    loads[np.arange(5), :, [3, 90, 120, 200, 255]] = 1.0
    problem = make_problem(loads, np.full(72, 4), objective=objective)
    found = solve(problem, eplb_groups=8)
    best = 72 / (1 + 32 // 5)  # 32 spare copies for five experts: one has seven copies at most
    assert found.max_load.max() < best * 1.2


@pytest.mark.wide
@pytest.mark.parametrize(("objective", "seed"), [("mean", 0), ("worst", 1)])
def test_never_worse_than_the_placement_for_the_mean_load(objective: Objective, seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = rng.lognormal(0, 0.63, (2, 64))
    loads = base * rng.lognormal(0, 0.3, (3, 2, 64))
    speed = rng.choice([0.5, 1.0, 1.0, 1.0], 16)
    problem = make_problem(loads, np.full(16, 7), speed=speed, objective=objective)
    found = solve(problem)
    ordinary = solve(problem.average)
    assert (found.max_load <= problem.evaluate(ordinary.assignment) * (1 + 1e-9)).all()
