"""The price of a fast mode."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cost.lecture import Roofline, cache_over_weights, fast_mode, fast_mode_for_price
from topology import InputError, load_domain

DOMAIN = load_domain("lecture-72")
LINE = Roofline(DOMAIN, 800e9, 100e9, "fp8", 1.0, 32 / 256, 2000.0, 200_000.0)
WITHOUT_CACHES = replace(LINE, context=0.0)


@pytest.mark.wide
def test_two_and_a_half_times_the_speed_for_six_times_the_price() -> None:
    mode = fast_mode_for_price(LINE, 2.5, 6.0)
    # caches of 400 MB a sequence take 1.8 times as long as 800 GB of weights at 3,600 sequences
    assert (mode.regular_batch, mode.fast_batch) == pytest.approx((3600, 240), rel=1e-4)
    assert (mode.speed, mode.price) == pytest.approx((2.5, 6.0), rel=1e-4)
    assert LINE.step_s(3600.0) / LINE.step_s(240.0) == pytest.approx(2.5)
    assert LINE.cost_per_token(240.0) / LINE.cost_per_token(3600.0) == pytest.approx(6.0)
    assert cache_over_weights(2.5, 6.0) == pytest.approx(1.8)


def test_from_the_batch_to_the_price() -> None:
    mode = fast_mode(LINE, 3600.0, 2.5)
    assert (mode.fast_batch, mode.price) == pytest.approx((240, 6), rel=1e-4)


@pytest.mark.wide
def test_where_compute_binds_speed_is_free() -> None:
    # 6,000 tokens compute 2.5 times as long as weights are read; 2,400 cost the same each
    mode = fast_mode(WITHOUT_CACHES, 6000.0, 2.5)
    assert (mode.fast_batch, mode.price) == pytest.approx((2400, 1), rel=1e-4)
    with pytest.raises(InputError, match="no batch has both"):
        fast_mode_for_price(WITHOUT_CACHES, 2.5, 6.0)


@pytest.mark.wide
@given(
    st.floats(1e9, 1e13),
    st.floats(200_000, 2e6),
    st.floats(1.05, 20),
    st.floats(1.05, 20),
)
@settings(deadline=None, max_examples=4)
def test_where_caches_bind_a_dense_model_has_the_closed_form(
    params: float, context: float, speed: float, price: float
) -> None:
    # caches of a sequence take at least as long as computing its token
    line = Roofline(DOMAIN, params, params, "fp8", 1.0, 1.0, params * 2 / (600 * 200_000), context)
    regular = cache_over_weights(speed, price) * line.weights_s / line.cache_s_per_sequence
    assume(regular / (speed * price) >= 1)  # at least one sequence in the fast mode
    mode = fast_mode_for_price(line, speed, price)
    assert mode.regular_batch == pytest.approx(regular, rel=1e-2)
    assert mode.price * mode.speed == pytest.approx(mode.regular_batch / mode.fast_batch)
    assert (mode.speed, mode.price) == pytest.approx((speed, price), rel=2e-3)


@given(st.floats(10, 1e6), st.floats(1.01, 3), st.floats(1.01, 2))
@settings(deadline=None, max_examples=40)
def test_more_speed_never_costs_less(batch: float, speed: float, times: float) -> None:
    line = replace(LINE, routed_fraction=1.0, active_params=800e9, context=4e6)
    try:
        faster = fast_mode(line, batch, speed * times)
    except InputError:  # beyond the floor of latency
        return
    slower = fast_mode(line, batch, speed)
    assert faster.price >= slower.price * (1 - 1e-6)
    assert slower.price >= 1 - 1e-6


def test_beyond_the_floor_of_latency() -> None:
    dense = replace(LINE, active_params=800e9, routed_fraction=1.0, context=4e6)
    limit = dense.step_s(3600.0) / dense.step_s(1.0)
    with pytest.raises(InputError, match=rf"only {limit:.3g} times as fast"):
        fast_mode(dense, 3600.0, limit * 1.01)
    assert fast_mode(dense, 3600.0, limit * 0.99).fast_batch >= 1


@pytest.mark.parametrize(
    ("speed", "price"), [(1.0, 6.0), (2.5, 1.0), (float("nan"), 6.0), (2.5, float("inf"))]
)
def test_ratios_that_are_none(speed: float, price: float) -> None:
    with pytest.raises(InputError, match="expected a ratio above 1"):
        fast_mode_for_price(LINE, speed, price)
    with pytest.raises(InputError, match="expected a ratio above 1"):
        cache_over_weights(speed, price)
