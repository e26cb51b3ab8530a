"""A file of measured points with what the model says about each, and the figures that sum it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cost.validation.point import Point, Prediction
from cost.validation.predict import Predictor, predict
from cost.validation.statistics import (
    Errors,
    Ordering,
    errors_by,
    errors_of,
    named_orderings,
    served_orderings,
)

STRATA = ("labelled", "unlabelled")
"""Points whose row says whether tokens were drafted (or whose model cannot), and points where nobody recorded it."""


@dataclass(frozen=True)
class Validation:
    """Points of one file of ``rows`` rows, predictions in the same order, errors and order of pairs by quantity.

    ``named`` compares rows that share the name of a pair, ``served`` rows of the same model, cluster and requests;
    both by the physics alone, whose order a correction of single rows could turn over. ``residual`` says whether
    predictions have the learned correction, ``physics`` has the errors without it.
    """

    name: str
    rows: int
    points: tuple[Point, ...]
    predictions: tuple[Prediction, ...]
    errors: Mapping[str, Errors]
    physics: Mapping[str, Errors]
    residual: bool
    named: Mapping[str, Ordering]
    served: Mapping[str, Ordering]

    @property
    def strata(self) -> dict[str, dict[str, Errors]]:
        """Errors by stratum (:data:`STRATA`) and quantity; a stratum without points is empty."""
        return self._strata(self.predictions)

    @property
    def physics_strata(self) -> dict[str, dict[str, Errors]]:
        """As :attr:`strata`, without the learned correction."""
        return self._strata(_uncorrected(self.predictions))

    def _strata(self, predictions: Sequence[Prediction]) -> dict[str, dict[str, Errors]]:
        found = errors_by(self.points, predictions, stratum)
        return {
            name: {quantity: errors for (quantity, one), errors in found.items() if one == name}
            for name in STRATA
        }

    @property
    def corrected(self) -> int:
        """Figures that the learned correction changed."""
        return sum(one.physics is not None for one in self.predictions)


def stratum(point: Point) -> str:
    """Which of :data:`STRATA` a point is of."""
    return STRATA[0] if point.drafts_recorded else STRATA[1]


def validate(
    name: str,
    points: Sequence[Point],
    rows: int,
    predictors: Mapping[str, Predictor] | None = None,
    *,
    residual: bool = True,
) -> Validation:
    """Predict ``points`` (:func:`cost.validation.predict.predict`) and sum up how far off that is."""
    predictions = predict(points, predictors, residual=residual)
    physics = _uncorrected(predictions)
    return Validation(
        name,
        rows,
        tuple(points),
        tuple(predictions),
        errors_of(points, predictions),
        errors_of(points, physics),
        residual,
        named_orderings(points, physics),
        served_orderings(points, physics),
    )


def _uncorrected(predictions: Sequence[Prediction]) -> list[Prediction]:
    """The predictions of the physics alone."""
    return [one if one.physics is None else replace(one, value=one.physics) for one in predictions]
