"""Skew and drift of windows, against figures worked out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cost.experts.traces.statistics import chance_distance, distance, load_statistics


def test_skew_by_hand() -> None:
    tokens = np.array(
        [[[0, 0, 0, 0], [1, 1, 1, 5], [2, 2, 2, 2]], [[0, 0, 0, 0], [1, 1, 1, 5], [2, 2, 2, 2]]]
    )
    found = load_statistics(tokens.astype(float))
    assert found.rows == (1, 2)
    assert found.max_over_mean.tolist() == [2.5, 1]
    assert found.variation == pytest.approx([np.sqrt(3) / 2, 0])  # 1, 1, 1, 5 have mean 2 and variance 3
    assert found.over_mean.tolist() == [[0.5, 0.5, 0.5, 2.5], [1, 1, 1, 1]]
    assert found.consecutive is not None
    assert found.consecutive.moved_share == 0
    assert found.consecutive.correlation == pytest.approx(1)


def test_drift_by_hand() -> None:
    one, two = np.array([[6.0, 2, 0, 0]]), np.array([[0.0, 1, 1, 2]])
    assert distance(one, two).tolist() == [0.75]
    found = load_statistics(np.stack([one, two, one]))
    assert found.consecutive is not None
    assert found.first_to_last is not None
    assert found.consecutive.moved_share == pytest.approx(0.75)
    assert found.first_to_last.moved_share == 0
    # shares minus 1/4: (2, 0, -1, -1) / 4 and (-1, 0, 0, 1) / 4
    assert found.consecutive.correlation == pytest.approx(-3 / np.sqrt(6 * 2))


def test_one_window_has_no_drift_and_even_loads_no_correlation() -> None:
    assert load_statistics(np.ones((1, 2, 4))).consecutive is None
    assert load_statistics(np.ones((1, 2, 4))).first_to_last is None
    even = load_statistics(np.ones((2, 2, 4))).first_to_last
    assert even is not None
    assert even.correlation is None


def test_the_distance_that_chance_gives() -> None:
    rng = np.random.default_rng(2)
    shares = rng.lognormal(0, 0.6, 256)
    shares /= shares.sum()
    a, b = rng.multinomial(20_000, shares, 40), rng.multinomial(5_000, shares, 40)
    assert distance(a, b).mean() == pytest.approx(chance_distance(a, b).mean(), rel=0.03)


def test_a_row_far_below_the_largest_one_is_not_lost() -> None:
    tokens = np.full((2, 2, 4), 1e308)
    tokens[:, 1] = [5e-324, 0, 0, 5e-324]
    found = load_statistics(tokens)
    assert found.rows == (0, 1)
    assert found.max_over_mean.tolist() == [1, 2]


def test_means_over_windows_are_exact_sums() -> None:
    """Python 3.12 sums floats in another way than 3.11; printed figures must not depend on it."""
    tokens = np.random.default_rng(0).lognormal(0, 1, (30, 3, 16))
    found = load_statistics(tokens).consecutive
    assert found is not None
    each = [float(distance(a, b).mean()) for a, b in itertools.pairwise(tokens)]
    assert found.moved_share == math.fsum(each) / len(each)
