"""What a re-plan looks at: kinds of windows, how far they go on as they were, weights, alike scenarios once."""

from __future__ import annotations

import numpy as np
import pytest

from placement.arrays import Floats
from placement.online.memory import Memory
from placement.online.votes import relative, votes

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


def test_windows_that_go_on_surprise_less_than_independent_ones() -> None:
    rng = np.random.default_rng(3)
    walk = relative(np.exp(np.cumsum(0.2 * rng.normal(size=(20, LAYERS, EXPERTS)), axis=0)))
    independent = loads(20)
    assert remembered(walk).surprise < 0.5
    assert remembered(independent).surprise > 0.8
    assert remembered(walk[:1]).surprise == 0.5


def test_the_surprise_of_a_window_by_hand() -> None:
    """The first window has no tokens in the second layer: the mean of the first two is 2, 2 and 2, 0."""
    first, second, third = np.array([[[1.0, 3], [0, 0]], [[3, 1], [2, 0]], [[2, 2], [0, 2]]])
    assert remembered(np.array([first, second])).surprise == pytest.approx(
        0.5
    )  # as far from last as from mean
    # mean squares: (1 + 1 + 4 + 4) / 4 from the last window, (4 + 4) / 4 from the mean
    found = remembered(np.array([first, second, third])).surprise
    assert found == pytest.approx(0.5 + 0.35 * (2.5 / (2 * 2.0) - 0.5))


@pytest.mark.parametrize("windows", [1, 4, 16])
def test_windows_of_one_kind_over_and_over_do_not_outvote_the_current_one(windows: int) -> None:
    old, new = loads(2)
    noise = np.random.default_rng(2).uniform(0.95, 1.05, size=(windows, *old.shape))
    memory = remembered(np.concatenate([relative(old * noise), new[None]]))
    _, weights = votes(new, memory, loads(0))
    assert weights[-1] > 0.7  # the last kind is the last window itself
