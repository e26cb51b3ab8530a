"""Measured points of a file beside what is predicted for each, and how far off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cost.calibration.correction import correction_with
from cost.validation.bands import with_bands
from cost.validation.predict import Prediction, predict
from cost.validation.read import Point
from cost.validation.statistics import Errors, errors_of, errors_of_rows, inside
from cost.validation.under_load import with_first_tokens
from topology.base.shown import Shown
from topology.base.units import plural


@dataclass(frozen=True, repr=False)
class Validation(Shown):
    """Points of one file, a row each, and predictions in the same order.

    ``corrected``: whether measured runs corrected the predictions.
    """

    name: str
    points: Sequence[Point]
    predictions: Sequence[Prediction]
    corrected: bool

    def brief(self) -> str:
        """Return the file, its rows, and the prediction errors."""
        texts = (
            f"{quantity} median error {error.median_abs_error:.1%} ({error.rows_predicted} of {error.rows} predicted)"
            for quantity, error in self.errors.items()
            if error.median_abs_error is not None
        )
        return f"{self.name}: {plural(len(self.points), 'row')}; {', '.join(texts) or 'none predicted'}"

    @cached_property
    def errors(self) -> dict[str, Errors]:
        """Errors by quantity."""
        return errors_of(self.points, self.predictions)

    @cached_property
    def groups(self) -> dict[tuple[str, str], Errors]:
        """Errors of the rows with an interval by cluster and model, by name."""
        rows: dict[tuple[str, str], list[tuple[Point, Prediction]]] = {}
        for point, prediction in zip(self.points, self.predictions, strict=True):
            if inside(point, prediction) is not None:
                rows.setdefault((point.cluster, point.model), []).append((point, prediction))
        return {group: errors_of_rows(rows[group]) for group in sorted(rows)}


def validation(name: str, points: Sequence[Point], *, physics: bool = False) -> Validation:
    """Predict ``points`` (:func:`cost.validation.predict.predict`)."""
    predictions = with_first_tokens(
        points, predict(points, correction_with(physics=physics)), physics=physics
    )
    return Validation(name, points, with_bands(points, predictions, physics=physics), not physics)
