"""The band of each prediction: that of the question its row asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost.calibration.correction import shipped_correction
from cost.calibration.errors import ErrorOf, error_behind, unrecorded_band
from cost.calibration.serving import calibrated, require_engine
from cost.resolve import resolve_model
from cost.validation.predict import Prediction
from cost.validation.read import OF_STEPS, Point
from topology.base.errors import InputError
from topology.files.resolve import resolve_cluster


def with_bands(
    points: Sequence[Point], predictions: Sequence[Prediction], *, physics: bool = False
) -> list[Prediction]:
    """Return predictions of steps and of throughput with the interval that holds four of five measured rows.

    Where the correction's own spread says none it is that of similar rows.
    """
    known: dict[tuple[object, ...], float | None] = {}
    with_intervals = []
    for point, prediction in zip(points, predictions, strict=True):
        value = prediction.value
        if value is None or prediction.low is not None or point.quantity not in OF_STEPS:
            with_intervals.append(prediction)
            continue
        key = point.cluster, point.engine, point.model, point.drafts_recorded
        if key not in known:
            known[key] = _band(point, physics=physics)
        band = known[key]
        with_intervals.append(
            prediction if band is None else replace(prediction, low=value / band, high=value * band)
        )
    return with_intervals


def _band(point: Point, *, physics: bool) -> float | None:
    error = error_of_point(point, physics=physics)
    if error is None:
        return None
    return error.band if point.drafts_recorded else max(error.band, unrecorded_band(physics=physics))


def error_of_point(point: Point, *, physics: bool = False) -> ErrorOf | None:
    """Return the error of similar predictions; None where no similar run was measured."""
    try:
        engine = require_engine(point.engine)
    except InputError:
        engine = ""
    gpu = resolve_cluster(point.cluster).spec.domains[0].gpu
    model_seen = shipped_correction().has_seen(resolve_model(point.model))
    return error_behind(calibrated(gpu, engine), model_seen=model_seen, physics=physics)
