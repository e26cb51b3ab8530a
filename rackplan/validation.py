"""A file of measured points with what the model says about each, and the figures that sum it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cost.measured.ordering import Ordering, named_orderings, served_orderings
from cost.measured.predict import predict
from cost.measured.statistics import Errors, errors_by, errors_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost.measured.point import Point, Prediction
    from cost.measured.predict import Predictor

__all__ = ["STRATA", "Validation", "stratum", "validate"]

STRATA = ("labelled", "unlabelled")
"""Points whose row says whether tokens were drafted (or whose model cannot), and points where nobody recorded it."""


@dataclass(frozen=True)
class Validation:
    """Points of one file of ``rows`` rows, predictions in the same order, errors and order of pairs by quantity.

    ``named`` compares rows that share the name of a pair, ``served`` rows of the same model, cluster and requests.
    """

    name: str
    rows: int
    points: tuple[Point, ...]
    predictions: tuple[Prediction, ...]
    errors: Mapping[str, Errors]
    named: Mapping[str, Ordering]
    served: Mapping[str, Ordering]

    @property
    def strata(self) -> dict[str, dict[str, Errors]]:
        """Errors by stratum (:data:`STRATA`) and quantity; a stratum without points is empty."""
        found = errors_by(self.points, self.predictions, stratum)
        return {
            name: {quantity: errors for (quantity, one), errors in found.items() if one == name}
            for name in STRATA
        }


def stratum(point: Point) -> str:
    """Which of :data:`STRATA` a point is of."""
    return STRATA[0] if point.drafts_recorded else STRATA[1]


def validate(
    name: str, points: Sequence[Point], rows: int, predictors: Mapping[str, Predictor] | None = None
) -> Validation:
    """Predict ``points`` (:func:`cost.measured.predict.predict`) and sum up how far off that is."""
    predictions = predict(points, predictors)
    return Validation(
        name,
        rows,
        tuple(points),
        tuple(predictions),
        errors_of(points, predictions),
        named_orderings(points, predictions),
        served_orderings(points, predictions),
    )
