"""Curves of coefficients over a chip's figures: values between points by hand, outside, and rates that never fall."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.calibration.serving import fraction_at, value_at

RISING = [(100.0, 0.8), (400.0, 0.4), (1600.0, 0.4)]
"""Rates 80, 160 and 640."""


@pytest.mark.parametrize(
    ("peak", "fraction"),
    [
        (400.0, 0.4),
        (200.0, math.sqrt(80 * 160) / 200),  # halfway in the logarithm: the geometric mean of both rates
        (100 * 4**0.25, 80 * 2**0.25 / (100 * 4**0.25)),
        (10.0, 0.8),  # outside the nearest fraction holds
        (3200.0, 0.4),
    ],
)
def test_fractions_and_delays_by_hand(peak, fraction):
    assert fraction_at(RISING, peak) == pytest.approx(fraction, rel=1e-12)
    delays = [(10.0, 8.0), (40.0, 2.0), (160.0, 2.0)]
    assert [value_at(delays, figure) for figure in (1, 20, 80, 400)] == pytest.approx([8.0, 4.0, 2.0, 2.0])


FIGURES = st.lists(st.floats(1.0, 1e16), min_size=1, max_size=5, unique=True).map(sorted)


@given(FIGURES, st.data(), st.floats(0.1, 1e17), st.floats(1.0, 1e3))
def test_a_higher_peak_never_gives_a_lower_rate(peaks, data, peak, factor):
    rates = sorted(data.draw(st.floats(1e-3, 1e16)) for _ in peaks)
    points = [(x, rate / x) for x, rate in zip(peaks, rates, strict=True)]
    slow, fast = peak * fraction_at(points, peak), peak * factor * fraction_at(points, peak * factor)
    assert fast >= slow * (1 - 1e-9)


@given(FIGURES, st.data(), st.floats(0.1, 1e17), st.floats(1.0, 1e3))
def test_a_better_figure_never_gives_a_longer_delay(figures, data, figure, factor):
    delays = sorted((data.draw(st.floats(1e-9, 1.0)) for _ in figures), reverse=True)
    points = list(zip(figures, delays, strict=True))
    before, after = value_at(points, figure), value_at(points, figure * factor)
    assert after <= before * (1 + 1e-9)
    assert min(delays) * (1 - 1e-9) <= before <= max(delays) * (1 + 1e-9)
