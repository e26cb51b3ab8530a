"""Measured points of a file beside what is predicted for each, and how far off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from cost.calibration.correction import correction_with, shipped_correction
from cost.calibration.errors import ErrorOf, error_behind, unrecorded_band
from cost.calibration.serving import calibrated
from cost.resolve import resolve_model
from cost.validation.predict import Prediction, predict, timed_engine
from cost.validation.read import OF_STEPS, Point
from cost.validation.statistics import Errors, errors_of, errors_of_rows, inside
from cost.validation.under_load import with_first_tokens
from topology.base.shown import Shown
from topology.base.units import plural
from topology.files.resolve import resolve_cluster


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


def with_bands(
    points: Sequence[Point], predictions: Sequence[Prediction], *, physics: bool = False
) -> list[Prediction]:
    """Return predictions of steps and of throughput with the interval that holds four of five measured rows.

    Where the correction's own spread says none it is that of similar rows.
    """
    return [_with_band(*row, physics=physics) for row in zip(points, predictions, strict=True)]


def _with_band(point: Point, prediction: Prediction, *, physics: bool) -> Prediction:
    value = prediction.value
    if value is None or prediction.low is not None or point.quantity not in OF_STEPS:
        return prediction
    error = error_of_similar(point.cluster, point.engine, point.model, physics=physics)
    if error is None:
        return prediction
    band = error.band if point.drafts_recorded else max(error.band, unrecorded_band(physics=physics))
    return replace(prediction, low=value / band, high=value * band)


@cache
def error_of_similar(cluster: str, engine: str, model: str, *, physics: bool = False) -> ErrorOf | None:
    """Return the error of predictions like a point's; None where no similar run was measured."""
    efficiency = calibrated(resolve_cluster(cluster).spec.domains[0].gpu, timed_engine(engine))
    model_seen = shipped_correction().has_seen(resolve_model(model))
    return error_behind(efficiency, model_seen=model_seen, physics=physics)
