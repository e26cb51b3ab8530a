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
