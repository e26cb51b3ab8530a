"""Pair exchanges under all scenarios: the product of matrices against loads added up, and never a step up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from placement.copy_exchange import exchange_drawn
from placement.scenario_search import SHARPNESS, _State, descend, smooth_load
from tiny_cases import unlike_gpus

if TYPE_CHECKING:
    from placement.problem import Objective


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("fast", [1.0, 1.7])
def test_the_product_is_the_change_that_an_exchange_makes(objective: Objective, fast: float) -> None:
    problem, start = unlike_gpus(objective, fast=fast)
    state = _State(problem, start, hot_gpus=5)
    every = np.arange(4)
    slots = problem.average.slots
    price = state._price(every)
    mine = np.tile(np.arange(slots), (4, 1))
    change = state._changes(every, price, mine)
    theta = SHARPNESS[objective]
    gpu = problem.average.slot_gpu
    for layer in range(4):
        for i, j in [(0, 5), (3, 17), (9, 1), (12, 16)]:
            swapped = start.copy()
            swapped[layer, [i, j]] = swapped[layer, [j, i]]
            load = [
                np.stack([problem.average.assignment(row).gpu_load(load)[layer] for load in problem.loads])
                * (5 / 14)
                / problem.average.speed
                for row in (start, swapped)
            ]
            moved = (price[:, layer] * np.expm1(theta * (load[1] - load[0]))).sum()
            assert gpu[i] != gpu[j]
            assert change[layer, i, j] == pytest.approx(moved, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_every_step_lowers_what_it_minimises(objective: Objective) -> None:
    problem, start = unlike_gpus(objective, fast=1.3)
    state = _State(problem, start.copy(), hot_gpus=2)
    active, before = np.arange(4), smooth_load(problem, start)
    steps = 0
    while active.size:
        active = state.step(active)
        after = smooth_load(problem, state.slot_expert)
        assert (after[active] < before[active]).all()
        # What is kept up to date swap by swap is what the placement says.
        fresh = _State(problem, state.slot_expert, hot_gpus=2)
        np.testing.assert_allclose(state.gpu_load, fresh.gpu_load)
        np.testing.assert_allclose(state.slot_load, fresh.slot_load)
        np.testing.assert_array_equal(state.on_gpu, fresh.on_gpu)
        before, steps = after, steps + 1
    assert steps > 2


def test_no_single_exchange_helps_at_the_end() -> None:
    problem, start = unlike_gpus(
        "worst"
    )  # of the mean the tangent is followed, and that may stop a little sooner
    end = descend(problem, start)
    load = smooth_load(problem, end)
    gpu, slots = problem.average.slot_gpu, problem.average.slots
    for i in range(slots):
        for j in range(i):
            swapped = end.copy()
            swapped[:, [i, j]] = swapped[:, [j, i]]
            for layer in range(4):
                places = list(zip(swapped[layer].tolist(), gpu.tolist(), strict=True))
                if len(set(places)) == len(places):
                    assert smooth_load(problem, swapped)[layer] > load[layer] - 1e-4


def test_exchanges_are_legal_and_never_worse() -> None:
    problem, start = unlike_gpus("mean")
    row = descend(problem, start)
    before, counts = smooth_load(problem, row), problem.average.assignment(row).copies
    better = exchange_drawn(problem, row, np.random.default_rng(0), rounds=40)
    after = problem.average.assignment(row)
    assert better > 0
    assert (smooth_load(problem, row) <= before).all()
    assert (after.copies != counts).any()
    assert after.copies.min() == 1
    for layer in row:
        places = list(zip(layer.tolist(), after.slot_gpu.tolist(), strict=True))
        assert len(set(places)) == len(places)
