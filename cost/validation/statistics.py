"""How far predictions are off (figures per quantity, never over several)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost.validation.predict import Prediction
from cost.validation.read import Point

_CLOSE_ERROR = 0.20


@dataclass(frozen=True)
class Errors:
    """Errors of the predicted rows of one quantity, as fractions of the measured values.

    Attributes
    ----------
    rows, rows_predicted:
        Measured rows, and those of them with a prediction.
    median_abs_error, mean_abs_error:
        Of ``|predicted - measured| / measured``; None where nothing was predicted, like all that follow.
    bias:
        Median of ``(predicted - measured) / measured``: below 0, most predictions are too small.
    within_20_percent:
        Share of the predicted rows with ``|predicted - measured| <= 0.2 measured``.
    intervals, inside_interval:
        Rows with an interval (also those without a value), and the share of them whose measured value it holds.
    """

    rows: int
    rows_predicted: int
    median_abs_error: float | None = None
    mean_abs_error: float | None = None
    bias: float | None = None
    within_20_percent: float | None = None
    intervals: int = 0
    inside_interval: float | None = None

    @property
    def coverage(self) -> float:
        """Share of the rows with a prediction."""
        return self.rows_predicted / self.rows if self.rows else 0.0


def signed_error(point: Point, prediction: Prediction) -> float | None:
    """Return ``(predicted - measured) / measured``, None where nothing was predicted."""
    if prediction.value is None:
        return None
    return (prediction.value - point.measured) / point.measured


def inside(point: Point, prediction: Prediction) -> bool | None:
    """Whether the interval of a prediction holds the measured value, None where it has no interval."""
    if prediction.low is None or prediction.high is None:
        return None
    return prediction.low <= point.measured <= prediction.high


def errors_of(points: Sequence[Point], predictions: Sequence[Prediction]) -> dict[str, Errors]:
    """Return the errors by quantity, saturated runs apart, in the order in which the quantities first come."""
    members: dict[str, list[tuple[Point, Prediction]]] = {}
    for point, prediction in zip(points, predictions, strict=True):
        members.setdefault(point.label, []).append((point, prediction))
    return {quantity: errors_of_rows(rows) for quantity, rows in members.items()}


def errors_of_rows(rows: Sequence[tuple[Point, Prediction]]) -> Errors:
    """Return the errors of rows, each a point and its prediction."""
    signed = np.array([error for row in rows if (error := signed_error(*row)) is not None])
    held = [held_flag for row in rows if (held_flag := inside(*row)) is not None]
    share = sum(held) / len(held) if held else None
    if not signed.size:
        return Errors(len(rows), 0, intervals=len(held), inside_interval=share)
    size = np.abs(signed)
    return Errors(
        len(rows),
        size.size,
        median_abs_error=float(np.median(size)),
        mean_abs_error=float(size.mean()),
        bias=float(np.median(signed)),
        within_20_percent=float((size <= _CLOSE_ERROR).mean()),
        intervals=len(held),
        inside_interval=share,
    )
