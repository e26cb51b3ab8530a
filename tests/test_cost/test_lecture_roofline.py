"""Latency and cost against batch: the floors, and arrays of batches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.lecture import Roofline
from topology import InputError, load_domain

DOMAIN = load_domain("lecture-72")
LINE = Roofline(DOMAIN, 800e9, 100e9, "fp8", 1.0, 32 / 256, 2000.0, 200_000.0)


@st.composite
def rooflines(draw: st.DrawFn) -> Roofline:
    total = draw(st.floats(1e9, 1e13))
    share = draw(st.floats(0.01, 1.0))
    active = total * draw(st.floats(share, 1.0))
    kv, context = draw(st.floats(0, 1e6)), draw(st.floats(0, 1e6))
    return Roofline(DOMAIN, total, active, "fp8", 1.0, share, kv, context)


def test_curve_by_hand() -> None:
    # 72 GPUs of 4.8 PFLOP/s and 8 TB/s; a dense model of 57.6 GB with caches of 5.76 MB a sequence
    line = Roofline(DOMAIN, 57.6e9, 57.6e9, "fp8", 1.0, kv_bytes_per_token=57.6, context=1e5)
    batches = np.array([1.0, 10.0, 1e4])
    # a token: 115.2 Gflop at 345.6 Pflop/s = 1/3 us; weights 100 us; caches 10 ns
    assert line.step_s(batches) == pytest.approx([100.01e-6, 100.1e-6, 1e4 / 3 * 1e-6])
    assert line.cost_per_token(batches) == pytest.approx([72 * 100.01e-6, 72 * 10.01e-6, 72 * 1e-6 / 3])
    assert (line.latency_floor_s(), line.weights_s) == pytest.approx((100e-6, 100e-6))
    assert line.best_cost_per_token() == pytest.approx(72 * 1e-6 / 3)


def test_floor_of_cost_is_caches_where_they_take_longer_than_compute() -> None:
    assert LINE.best_cost_per_token() == pytest.approx(72 * 4e8 / (72 * 8e12))
    assert replace(LINE, context=100_000.0).best_cost_per_token() == pytest.approx(2e11 / 4.8e15)


@given(rooflines(), st.floats(1, 1e7), st.floats(1, 1e3))
@settings(deadline=None, max_examples=60)
def test_larger_batches_are_slower_and_cheaper_and_never_below_the_floors(
    line: Roofline, batch: float, times: float
) -> None:
    batches = np.array([batch, batch * times])
    step_s, cost = line.step_s(batches), line.cost_per_token(batches)
    slack = 1 + 1e-9
    assert step_s[1] * slack >= step_s[0] >= line.latency_floor_s() / slack
    assert cost[0] * slack >= cost[1] >= line.best_cost_per_token() / slack
    assert step_s[0] == pytest.approx(line.step_s(batch))  # an array and its numbers agree


def test_all_experts_used_by_each_token_and_a_batch_of_billions() -> None:
    assert replace(LINE, routed_fraction=1.0).params_read(np.array([1e9, 1e18])) == pytest.approx(
        LINE.total_params
    )


def test_both_floors_are_reached() -> None:
    assert LINE.step_s(1.0) == pytest.approx(LINE.latency_floor_s(), rel=0.01)
    assert LINE.cost_per_token(1e9) == pytest.approx(LINE.best_cost_per_token(), rel=1e-5)


@pytest.mark.parametrize("batch", [0.5, -1.0, math.nan, math.inf])
def test_one_batch_that_is_none_refuses_the_curve(batch: float) -> None:
    with pytest.raises(InputError, match="batch"):
        LINE.step_s(np.array([1.0, batch]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("total_params", 0.0),
        ("active_params", math.nan),
        ("active_params", 801e9),
        ("param_bytes", -1.0),
        ("routed_fraction", 1.5),
        ("context", -1.0),
        ("kv_bytes_per_token", math.inf),
    ],
)
def test_a_figure_that_cannot_be_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        replace(LINE, **{name: value})
