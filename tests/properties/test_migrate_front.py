"""Budgets against every choice of points."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.migrate import front as front_module
from placement.migrate.front import Front, Point, paying, reaching, within

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = np.zeros(0, dtype=np.int32)


@st.composite
def fronts(draw: st.DrawFn) -> Front:
    """Up to four layers of up to four points, moves rising and objective falling."""
    layers = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 4))
        moves = sorted(draw(st.lists(st.integers(0, 12), min_size=count, max_size=count, unique=True)))
        values = sorted(
            draw(st.lists(st.integers(100, 300), min_size=count, max_size=count, unique=True)), reverse=True
        )
        layers.append([Point(m, v / 100, 100 / v, NOTHING) for m, v in zip(moves, values, strict=True)])
    return Front(layers)


def totals(front: Front, chosen: Sequence[int]) -> tuple[int, float, float]:
    """Moves, objective and balancedness of a choice."""
    picked = [points[index] for points, index in zip(front.points, chosen, strict=True)]
    return (
        sum(point.moves for point in picked),
        sum(point.value for point in picked),
        sum(point.balancedness for point in picked) / len(picked),
    )


@settings(deadline=None, max_examples=30)
@given(front=fronts(), spare=st.integers(0, 30))
def test_a_budget_is_spent_as_well_as_it_can_be(front: Front, spare: int) -> None:
    most = sum(points[0].moves for points in front.points) + spare
    every = [totals(front, chosen) for chosen in product(*(range(len(points)) for points in front.points))]
    best = min(value for moves, value, _ in every if moves <= most)
    moves, value, _ = totals(front, within(front, most))
    assert moves <= most
    assert value == pytest.approx(best, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(front=fronts(), spare=st.integers(0, 30))
def test_along_the_hulls_the_budget_holds_and_more_is_never_worse(front: Front, spare: int) -> None:
    most = sum(points[0].moves for points in front.points) + spare
    cells = front_module._CELLS
    front_module._CELLS = 0
    try:
        moves, value, _ = totals(front, within(front, most))
    finally:
        front_module._CELLS = cells
    assert moves <= most
    assert value <= totals(front, [0] * len(front.points))[1]
    assert value >= totals(front, within(front, most))[1] - 1e-9


@settings(deadline=None, max_examples=60)
@given(front=fronts(), price=st.floats(1e-3, 1.0))
def test_every_move_is_made_that_is_worth_its_price(front: Front, price: float) -> None:
    def cost(chosen: Sequence[int]) -> float:
        moves, value, _ = totals(front, chosen)
        return value / len(front.points) + price * moves

    every = product(*(range(len(points)) for points in front.points))
    assert cost(paying(front, price)) == pytest.approx(min(map(cost, every)), abs=1e-9)


def test_a_budget_below_the_fewest_moves_is_refused() -> None:
    front = Front([[Point(3, 1.5, 0.6, NOTHING)]])
    with pytest.raises(ValueError, match="at least 3"):
        within(front, 2)


@settings(deadline=None, max_examples=30)
@given(front=fronts(), part=st.floats(0.0, 1.0))
def test_a_balancedness_within_reach_is_reached_and_no_layer_could_go_back(front: Front, part: float) -> None:
    low = totals(front, [0] * len(front.points))[2]
    high = totals(front, [len(points) - 1 for points in front.points])[2]
    wanted = low + part * (high - low)
    chosen = reaching(front, wanted)
    assert totals(front, chosen)[2] >= wanted - 1e-9
    for layer, index in enumerate(chosen):
        if index:
            less = [*chosen[:layer], index - 1, *chosen[layer + 1 :]]
            assert totals(front, less)[2] < wanted + 1e-9
