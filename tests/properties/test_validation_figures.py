"""Errors and who predicts what: against hand-counted and brute-force answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cost.validation.predict import Prediction, predict
from cost.validation.read import Point, Pool
from cost.validation.statistics import errors_of

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
