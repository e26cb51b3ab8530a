"""What the model says about measured points: one list of predictions, whatever the points measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from typing import cast

from cost.validation.point import Point, Prediction
from cost.validation.pool_cells import NO_LAYOUT
from topology.errors import InputError

Predictor = Callable[[Sequence[Point]], Sequence[Prediction]]


ALLTOALL, SERVING = "alltoall", "serving"
"""The two kinds of predictors: of all-to-all times, and of everything a served model does."""


def predict(
    points: Sequence[Point], predictors: Mapping[str, Predictor] | None = None, *, residual: bool = True
) -> list[Prediction]:
    """Return a prediction for each point, in their order; one without a value says why.

    Parameters
    ----------
    predictors:
        By :data:`ALLTOALL` and :data:`SERVING`, what predicts such points; None: the model's own.
    residual:
        Whether the model's own adds the learned correction (:mod:`cost.calibration.residual`).
    """
    points, chosen_by_model, reasons = _as_stated(points)
    found = [Prediction(None, reason) for reason in reasons]
    for kind in (ALLTOALL, SERVING):
        chosen = [
            i
            for i, point in enumerate(points)
            if not reasons[i] and (point.phase == ALLTOALL) == (kind == ALLTOALL)
        ]
        if chosen:
            predictor = predictors[kind] if predictors is not None else _own_predictor(kind)
            if predictors is None and kind == SERVING and not residual:
                predictor = partial(cast("Callable[..., Sequence[Prediction]]", predictor), residual=False)
            for i, prediction in zip(chosen, predictor([points[i] for i in chosen]), strict=True):
                found[i] = replace(_finite(prediction), chosen=chosen_by_model[i])
    return found


def _as_stated(points: Sequence[Point]) -> tuple[list[Point], list[str], list[str]]:
    """Return the points with what the model chooses for them, what that was, and why one cannot be predicted."""
    stated, texts = list(points), [""] * len(points)
    reasons = [_unpredictable(point) for point in points]
    left = [i for i, point in enumerate(points) if point.is_open and not reasons[i]]
    if left:
        from cost.validation.choices import choices

        for i, choice in zip(left, choices([points[i] for i in left]), strict=True):
            if choice.point is None:
                reasons[i] = choice.text
            else:
                stated[i], texts[i] = choice.point, choice.text
    return stated, texts, reasons


def _finite(prediction: Prediction) -> Prediction:
    """A value that is no time and no rate is no prediction."""
    if prediction.value is None or (math.isfinite(prediction.value) and prediction.value > 0):
        return prediction
    return Prediction(None, f"the model gives {prediction.value:g}")


def _own_predictor(kind: str) -> Predictor:
    """The model's own predictor, imported when it is needed: it brings the whole cost model with it."""
    name = f"predict_{kind}"
    return cast("Predictor", getattr(import_module(f"cost.validation.{name}"), name))


def unpredictable(point: Point) -> str:
    """Return why nobody could predict a point from what its row says alone; empty if it says enough."""
    return "the row leaves its layout or its batch to the model" if point.is_open else _unpredictable(point)


def _unpredictable(point: Point) -> str:
    """As :func:`unpredictable`, but for what the row leaves to the model."""
    reason = _unknown_cluster(point.cluster)
    if reason or point.phase == ALLTOALL:
        return reason
    return _unknown_model(point.model) or _unknown_dtype(point) or _incomplete(point)


def _incomplete(point: Point) -> str:
    """Return what a row of a served model leaves out that every prediction of its phase needs."""
    served = point.phase in ("aggregated", "disaggregated")
    lacks = {
        "the row gives no parallel layout (tp, attention_dp, ep, moe_tp are all blank)": point.pool
        == NO_LAYOUT,
        "the row gives neither batch_per_gpu nor concurrency": (
            point.phase != "prefill" and not point.batch and not point.concurrency
        ),
        "the row does not give isl and osl": served and not (point.isl and point.osl),
        "the row gives neither context nor isl": not (point.context or point.isl),
    }
    return next((reason for reason, lacking in lacks.items() if lacking), "")


@lru_cache(maxsize=256)
def _unknown_cluster(name: str) -> str:
    from topology.catalog import cluster_names
    from topology.reading import nearest
    from topology.resolve import resolve_cluster

    if name in cluster_names():
        return ""
    if not name.lower().endswith((".yaml", ".yml")):
        return f"cluster {name!r} is not in the catalog; {nearest(name, cluster_names())}"
    try:
        resolve_cluster(name)
    except InputError as error:
        return str(error)
    return ""


@lru_cache(maxsize=256)
def _unknown_model(name: str) -> str:
    from cost.resolve import model_names, resolve_model
    from topology.reading import nearest

    if name not in model_names() and not name.lower().endswith(".json"):
        return f"model {name!r} is not in the catalog; {nearest(name, model_names())}"
    try:
        resolve_model(name)
    except InputError as error:
        return str(error)
    return ""


def _unknown_dtype(point: Point) -> str:
    from cost.dtypes import dtype

    try:
        for name in filter(None, (point.weights, point.experts_dtype)):
            dtype(name)
    except InputError as error:
        return str(error)
    return ""
