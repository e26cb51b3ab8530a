"""Annealing: the change that it weighs is the one that a swap makes, and what it returns is legal and no worse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from placement.experts.annealing import STEPS, _State, anneal
from placement.experts.counts import replicate
from placement.experts.pack import pack
from placement.experts.problem import make_problem
from placement.verify import verify_experts
from tiny_cases import unlike_gpus

if TYPE_CHECKING:
    from placement.options import Objective


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("fast", [1.0, 1.7])
def test_a_change_weighed_is_the_change_made(objective: Objective, fast: float) -> None:
    problem, start = unlike_gpus(objective, fast=fast)
    state = _State(problem, start, np.random.default_rng(0))
    state._price()
    price, before = state.price.copy(), state.gpu_load.copy()
    weighed = state.price[:, None] * state.leaves if state.equal_speeds else None
    state._weigh(weighed, slice(0, 2), slice(4, 2, -1), slice(0, 2))
    for pair, (left, right) in enumerate([(0, 4), (1, 3)]):
        for mine in range(3):
            for other in range(2):
                change = state.slot_load[:, other, right] - state.slot_load[:, mine, left]
                load = before.copy()
                load[:, left] += change / problem.speed[left]
                load[:, right] -= change / problem.speed[right]
                made = (price * np.expm1(state.theta * (load - before)))[:, [left, right]].sum(axis=(0, 1))
                np.testing.assert_allclose(state.change[mine, other, pair], made, rtol=2e-3, atol=1e-6)
    assert np.isinf(state.change[:, 2:, 0]).all()  # the last GPU has two slots


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("fast", [1.0, 1.7])
def test_legal_no_worse_and_the_same_every_time(objective: Objective, fast: float) -> None:
    problem, start = unlike_gpus(objective, fast=fast)
    first, second = start.copy(), start.copy()
    better = anneal(problem, first, spent=step_counter(20))
    anneal(problem, second, spent=step_counter(20))
    assert better > 0
    np.testing.assert_array_equal(first, second)
    assert verify_experts(problem.assignment(first), problem.average) == []
    assert problem.evaluate(first).mean() < problem.evaluate(start).mean()
    np.testing.assert_array_equal(problem.assignment(first).copies, problem.assignment(start).copies)


def step_counter(steps):
    count = iter(range(steps + 1))
    return lambda: next(count, steps) / steps


def test_loads_kept_swap_by_swap_are_those_of_the_placement() -> None:
    problem, start = unlike_gpus("mean", fast=1.3)
    state = _State(problem, start, np.random.default_rng(3))
    state.cool(1e-2)
    for _ in range(3 * STEPS):
        state.step()
    kept = state.slot_load.copy(), state.gpu_load.copy()
    state._load()
    np.testing.assert_allclose(kept[0], state.slot_load, rtol=1e-5)
    np.testing.assert_allclose(kept[1], state.gpu_load, rtol=1e-4)


def test_copies_stay_spread_over_failure_domains() -> None:
    tokens = np.random.default_rng(6).lognormal(0, 0.8, (3, 5, 24))
    problem = make_problem(tokens, np.full(8, 4), spread=np.repeat([0, 1, 2, 3], 2))
    start = pack(problem.average, replicate(problem.highest))
    end = start.copy()
    assert anneal(problem, end, spent=step_counter(30)) > 0
    assert verify_experts(problem.assignment(end), problem.average) == []
    assert (problem.over_cap(end) == 0).all()


@pytest.mark.parametrize("slots", [[1], [3, 0], [2, 1]])
def test_nothing_to_swap(slots: list[int]) -> None:
    problem = make_problem(np.ones((2, 1, 3 if sum(slots) > 1 else 1)), np.array(slots))
    start = pack(problem.average, replicate(problem.highest))
    end = start.copy()
    anneal(problem, end, spent=step_counter(2))
    np.testing.assert_array_equal(np.sort(end), np.sort(start))
