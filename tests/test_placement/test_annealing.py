"""Annealing: the change that it weighs is the one that a swap makes, and what it returns is legal and no worse."""

from __future__ import annotations

import numpy as np
import pytest

from placement.budget import evenly
from placement.experts.annealing import Annealing
from placement.experts.counts import replicate
from placement.experts.excess import ExcessAnnealing
from placement.experts.pack import pack
from placement.experts.problem import make_problem
from placement.experts.soft_max import STEPS, _SoftMax, anneal
from placement.options import Objective
from placement.verify import verify_experts
from tiny_cases import unlike_gpus


@pytest.mark.parametrize("judge", ["excess", "mean", "worst"])
@pytest.mark.parametrize("fast", [1.0, 1.7])
def test_a_change_weighed_is_the_change_made(judge: str, fast: float) -> None:
    problem, start = unlike_gpus("worst" if judge == "worst" else "mean", fast=fast)
    rng = np.random.default_rng(0)
    target = np.full((problem.scenarios, problem.layers), 1.05)
    annealing: Annealing = (
        ExcessAnnealing(problem, start, target, rng) if judge == "excess" else _SoftMax(problem, start, rng)
    )
    annealing.look(1.0)
    for left, right in ((0, 4), (1, 3), (2, 4)):
        rows = annealing.gpus * np.arange(problem.layers)
        one, two = rows + left, rows + right
        mine, other = annealing.table[:, one], annealing.table[:, two]
        change = np.zeros((*mine.shape[:1], *other.shape), dtype=np.float32)
        annealing.add_swaps(change, (one, mine), (two, other))
        made = np.zeros_like(change)
        moved = annealing.of_copies(two, other)[:, None, :, :] - annealing.of_copies(one, mine)[:, :, None, :]
        for scenario, over in enumerate(annealing.over):
            for gpu, sign in ((one, 1), (two, -1)):
                after = over[gpu] + sign * moved[scenario] * annealing.pace[gpu]
                layer = annealing.layer[gpu]
                made += annealing.energy(after, scenario, layer) - annealing.energy(
                    over[gpu], scenario, layer
                )
        np.testing.assert_allclose(change, made, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("fast", [1.0, 1.7])
def test_legal_no_worse_and_the_same_every_time(objective: Objective, fast: float) -> None:
    problem, start = unlike_gpus(objective, fast=fast)
    first, second = start.copy(), start.copy()
    better = anneal(problem, first, rounds=evenly(20))
    anneal(problem, second, rounds=evenly(20))
    assert better > 0
    np.testing.assert_array_equal(first, second)
    assert verify_experts(problem.assignment(first), problem.average) == []
    assert problem.evaluate(first).mean() < problem.evaluate(start).mean()
    np.testing.assert_array_equal(problem.assignment(first).copies, problem.assignment(start).copies)


def test_loads_kept_step_by_step_are_those_of_the_placement() -> None:
    problem, start = unlike_gpus("mean", fast=1.3)
    annealing = _SoftMax(problem, start, np.random.default_rng(3))
    for _ in range(3 * STEPS):
        annealing.swap(1.0, 1e-2)
        annealing.exchange(1.0, 1e-2, 4)
    kept = annealing.over.copy()
    annealing.refresh(np.arange(problem.layers))
    np.testing.assert_allclose(kept, annealing.over, atol=1e-4)
    load = annealing.over + annealing.goal
    peaks = load.reshape(problem.scenarios, problem.layers, -1).max(axis=2)
    np.testing.assert_allclose(peaks, problem.peaks(annealing.slot_expert), rtol=1e-5)


def test_copies_stay_spread_over_failure_domains() -> None:
    tokens = np.random.default_rng(6).lognormal(0, 0.8, (3, 5, 24))
    problem = make_problem(tokens, np.full(8, 4), spread=np.repeat([0, 1, 2, 3], 2))
    start = pack(problem.average, replicate(problem.highest))
    end = start.copy()
    assert anneal(problem, end, rounds=evenly(30)) > 0
    assert verify_experts(problem.assignment(end), problem.average) == []
    assert (problem.over_cap(end) == 0).all()
