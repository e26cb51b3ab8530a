"""Curves of coefficients over figures of a chip, and figures of errors: by hand, and rates that never fall."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.calibration.serving import fraction_at, value_at
from cost.validation.predict import Prediction, predict
from cost.validation.read import Point, Pool
from cost.validation.statistics import errors_of

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
def test_a_better_figure_never_gives_a_lower_rate_or_a_longer_delay(figures, data, figure, factor):
    rates = sorted(data.draw(st.floats(1e-3, 1e16)) for _ in figures)
    points = [(x, rate / x) for x, rate in zip(figures, rates, strict=True)]
    slow, fast = (peak * fraction_at(points, peak) for peak in (figure, figure * factor))
    assert fast >= slow * (1 - 1e-9)
    delays = [1 / rate for rate in rates]
    before, after = (value_at([*zip(figures, delays, strict=True)], x) for x in (figure, figure * factor))
    assert after <= before * (1 + 1e-9)
    assert min(delays) * (1 - 1e-9) <= before <= max(delays) * (1 + 1e-9)


POINT = Point(
    *("a", "test", "tpot_ms", 10.0, "decode", "hgx-h100", "deepseek-v3"),
    pool=Pool(attention_dp=8, ep=8),
    batch=8,
    context=1000,
)


def points(*measured, **changes):
    return [replace(POINT, id=str(i), measured=value, **changes) for i, value in enumerate(measured)]


def predictions(*values):
    return [Prediction(value, "" if value else "no reason") for value in values]


def test_errors_by_hand():
    figures = errors_of(points(10, 10, 10, 10, 10), predictions(11, 8, 12, 20, None))["tpot_ms"]
    assert (figures.rows, figures.rows_predicted, figures.coverage) == (5, 4, 0.8)
    assert figures.median_abs_error == pytest.approx(0.2)
    assert figures.mean_abs_error == pytest.approx((0.1 + 0.2 + 0.2 + 1.0) / 4)
    assert figures.bias == pytest.approx(0.15)
    assert figures.within_20_percent == pytest.approx(3 / 4)
    nothing = errors_of(points(10, 10), predictions(None, None))["tpot_ms"]
    assert (nothing.coverage, nothing.median_abs_error, nothing.bias) == (0.0, None, None)
    apart = errors_of([*points(10, 20), *points(5, quantity="ttft_ms")], predictions(10, 30, 6))
    assert [errors.mean_abs_error for errors in apart.values()] == pytest.approx([0.25, 0.2])


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_values_that_are_no_time_are_no_predictions(value, monkeypatch):
    monkeypatch.setattr("cost.validation.predict.predict_serving", lambda *_, **__: [Prediction(value)])
    (figures,) = predict([POINT])
    assert figures.value is None
    assert "the model gives" in figures.reason
