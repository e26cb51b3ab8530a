"""What a re-plan looks at: kinds of windows, how far they go on as they were, weights, alike scenarios once."""

from __future__ import annotations

import numpy as np
import pytest

from placement.arrays import Floats
from placement.online.memory import Memory
from placement.online.portable import logarithm, power_of_e
from placement.online.votes import LAST, LEARNT, MOST, SEEN, STORED, relative, votes, workloads

LAYERS, EXPERTS = 2, 8


def loads(count: int, seed: int = 0) -> Floats:
    return relative(np.random.default_rng(seed).lognormal(size=(count, LAYERS, EXPERTS)))


def remembered(windows: Floats, most: int = 8) -> Memory:
    memory, last = Memory.empty(LAYERS, EXPERTS), np.zeros((LAYERS, EXPERTS))
    for window in windows:
        memory, last = memory.with_window(window, last, most), window
    return memory


def test_alike_windows_are_one_kind_and_the_oldest_is_forgotten() -> None:
    first, second, third = loads(3)
    memory = remembered(np.array([first, second, first * 1.001, first]))
    assert memory.windows.tolist() == [1, 3]
    assert memory.age.tolist() == [2, 0]
    assert memory.loads[1] == pytest.approx(first, rel=1e-3)
    assert remembered(np.array([first, second, third]), most=2).loads.tolist() == [
        second.tolist(),
        third.tolist(),
    ]


def test_a_window_without_tokens_in_a_layer_adds_nothing_there() -> None:
    first = loads(1)[0]
    half = first.copy()
    half[1] = 0
    memory = remembered(np.array([half, first, half]))
    assert len(memory.loads) == 1
    assert memory.loads[0] == pytest.approx(first)


def test_windows_that_go_on_surprise_less_than_independent_ones() -> None:
    rng = np.random.default_rng(3)
    walk = relative(np.exp(np.cumsum(0.2 * rng.normal(size=(20, LAYERS, EXPERTS)), axis=0)))
    independent = loads(20)
    assert remembered(walk).surprise < 0.5
    assert remembered(independent).surprise > 0.8
    assert remembered(walk[:1]).surprise == 0.5


@pytest.mark.parametrize("windows", [1, 4, 16])
def test_windows_of_one_kind_over_and_over_do_not_outvote_the_current_one(windows: int) -> None:
    old, new = loads(2)
    noise = np.random.default_rng(2).uniform(0.95, 1.05, size=(windows, *old.shape))
    memory = remembered(np.concatenate([relative(old * noise), new[None]]))
    _, weights = votes(new, memory, loads(0))
    assert weights[[0, -1]].sum() > 0.7 * weights.sum()


def test_weights_are_those_promised() -> None:
    known, seen = loads(3), loads(2, seed=1)
    memory = remembered(seen)
    _, weights = votes(seen[-1], memory, known)
    trust = 4 / (4 + LEARNT**2)
    assert weights.shape == (1 + 2 + 3, LAYERS)
    assert weights[0] == pytest.approx(trust * LAST * (1 - memory.surprise))
    assert weights[1:3].sum(axis=0) == pytest.approx(trust * SEEN)
    assert weights[3:] == pytest.approx(STORED / 3)


def test_what_is_unknown_has_no_vote() -> None:
    known, seen = loads(2), loads(2, seed=1)
    known[0, 1] = 0
    seen[-1, 0] = 0
    _, weights = votes(seen[-1], remembered(seen), known)
    assert (weights[:, 0] == 0).all()  # no tokens in the last window: nothing moves
    assert weights[-2:, 1].tolist() == [0, STORED]


def test_alike_scenarios_are_one_and_many_are_joined() -> None:
    three = loads(3)
    near = relative(three * np.random.default_rng(1).uniform(0.98, 1.02, size=three.shape))
    assert len(workloads(np.concatenate([three, near]))) == 3
    assert len(workloads(loads(30))) <= MOST


def test_powers_and_logarithms_are_near_those_of_numpy() -> None:
    exponent = np.linspace(-30, 30, 201)
    assert power_of_e(exponent) == pytest.approx(np.exp(exponent), rel=1e-6)
    assert np.isfinite(power_of_e(np.array([-300.0, 300.0]))).all()
    value = np.geomspace(1e-6, 1e6, 201)
    assert logarithm(value) == pytest.approx(np.log(value), abs=1e-12)
