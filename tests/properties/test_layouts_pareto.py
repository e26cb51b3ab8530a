"""The frontier against brute force, with ties, NaN and infinities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.layouts.front import pareto
from topology.base.errors import InputError

COORDINATE = st.one_of(
    st.integers(-3, 3).map(float), st.sampled_from([math.nan, math.inf, -math.inf, 0.5]), st.floats(-5, 5)
)


def brute(points: list[tuple[float, float]]) -> list[int]:
    """Every point against every other, by the definition."""
    kept = []
    for i, (x, y) in enumerate(points):
        if math.isnan(x) or math.isnan(y):
            continue
        beaten = any(
            (u >= x and v >= y and (u > x or v > y)) or ((u, v) == (x, y) and j < i)
            for j, (u, v) in enumerate(points)
            if j != i
        )
        if not beaten:
            kept.append(i)
    return sorted(kept, key=lambda i: points[i][0])


@given(st.lists(st.tuples(COORDINATE, COORDINATE), max_size=12))
@settings(max_examples=60, deadline=None)
def test_as_brute_force(points: list[tuple[float, float]]) -> None:
    x, y = [p[0] for p in points], [p[1] for p in points]
    assert pareto(x, y).tolist() == brute(points)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from([0.1, 0.2, 0.3, 7e9])), max_size=30
    )
)
@settings(max_examples=60, deadline=None)
def test_groups_do_not_beat_each_other(points: list[tuple[int, int, float]]) -> None:
    group, x, y = (np.array(each) for each in zip(*points, strict=True)) if points else (np.arange(0),) * 3
    alone: list[int] = []
    for one in range(4):
        rows = np.flatnonzero(group == one)
        alone += rows[pareto(x[rows], y[rows])].tolist()
    assert pareto(x, y, group).tolist() == alone


def test_lengths_must_agree() -> None:
    with pytest.raises(InputError, match="equal lengths"):
        pareto([1, 2], [1])
