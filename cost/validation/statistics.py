"""How far predictions are off (figures per quantity, never over several), and whether their order is right."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np

from cost.validation.point import Point, Prediction

_WITHIN = 0.20


@dataclass(frozen=True)
class Errors:
    """Errors of the predicted rows of one quantity, as fractions of the measured values.

    Attributes
    ----------
    rows, predicted:
        Measured rows, and those of them with a prediction.
    median_abs_error, mean_abs_error:
        Of ``|predicted - measured| / measured``; None where nothing was predicted, like all that follow.
    bias:
        Median of ``(predicted - measured) / measured``: below 0, most predictions are too small.
    mean_error:
        Mean of the same.
    within_20_percent:
        Share of the predicted rows with ``|predicted - measured| <= 0.2 measured``.
    intervals, inside_interval:
        Rows with an interval (also those without a value), and the share of them whose measured value it holds.
    """

    rows: int
    predicted: int
    median_abs_error: float | None = None
    mean_abs_error: float | None = None
    bias: float | None = None
    mean_error: float | None = None
    within_20_percent: float | None = None
    intervals: int = 0
    inside_interval: float | None = None

    @property
    def coverage(self) -> float:
        """Share of the rows with a prediction."""
        return self.predicted / self.rows if self.rows else 0.0


def signed_error(point: Point, prediction: Prediction) -> float | None:
    """Return ``(predicted - measured) / measured``, None where nothing was predicted."""
    if prediction.value is None:
        return None
    return (prediction.value - point.measured) / point.measured


def errors_of(points: Sequence[Point], predictions: Sequence[Prediction]) -> dict[str, Errors]:
    """Return the errors by quantity, in the order in which the quantities first come."""
    found = errors_by(points, predictions, lambda _: "")
    return {quantity: errors for (quantity, _), errors in found.items()}


def errors_by(
    points: Sequence[Point], predictions: Sequence[Prediction], group: Callable[[Point], str]
) -> dict[tuple[str, str], Errors]:
    """Return the errors by quantity and by what ``group`` says of a point, in the order of first appearance."""
    members: dict[tuple[str, str], list[tuple[Point, Prediction]]] = {}
    for point, prediction in zip(points, predictions, strict=True):
        members.setdefault((point.quantity, group(point)), []).append((point, prediction))
    return {key: _errors(rows) for key, rows in members.items()}


def inside(point: Point, prediction: Prediction) -> bool | None:
    """Whether the interval of a prediction holds the measured value, None where it has no interval."""
    if prediction.low is None or prediction.high is None:
        return None
    return prediction.low <= point.measured <= prediction.high


def _errors(rows: Sequence[tuple[Point, Prediction]]) -> Errors:
    signed = [signed_error(point, prediction) for point, prediction in rows]
    held = [one for one in (inside(point, prediction) for point, prediction in rows) if one is not None]
    share = sum(held) / len(held) if held else None
    known = np.array([value for value in signed if value is not None])
    if not known.size:
        return Errors(len(signed), 0, intervals=len(held), inside_interval=share)
    size = np.abs(known)
    return Errors(
        len(signed),
        known.size,
        float(np.median(size)),
        float(size.mean()),
        float(np.median(known)),
        float(known.mean()),
        float((size <= _WITHIN).mean()),
        len(held),
        share,
    )


# Whether predictions put measured configurations in the right order, two by two.

_NAMED_GAP = 0.02
_SERVED_GAP = 0.05  # repeated runs of one configuration differ by up to 2 % in three cases of four
_LIST_AT_MOST = 1000


@dataclass(frozen=True)
class Pair:
    """Two rows whose order was compared: the positions of both, and whether the predicted order is the measured."""

    first: int
    second: int
    right: bool


@dataclass(frozen=True)
class Ordering:
    """How many pairs were compared and how many of them were in the right order.

    ``pairs`` lists the pairs themselves where there are few of them (up to 1,000).
    """

    compared: int
    right: int
    pairs: tuple[Pair, ...] = ()

    @property
    def share(self) -> float | None:
        """Share in the right order, None where nothing was compared."""
        return self.right / self.compared if self.compared else None


def named_orderings(points: Sequence[Point], predictions: Sequence[Prediction]) -> dict[str, Ordering]:
    """Compare, by quantity, all rows that share the name of a pair and differ by more than 2 %."""
    return _orderings(points, predictions, [point.pair or None for point in points], _NAMED_GAP)


def served_orderings(points: Sequence[Point], predictions: Sequence[Prediction]) -> dict[str, Ordering]:
    """Compare, by quantity, served rows of the same model, cluster and requests that differ by more than 5 %.

    They differ in layout, engine, precision or phase: the choice that a user makes. Rows of one and the same
    configuration are not compared (they differ in what their source does not say).
    """
    keys: list[Hashable | None] = [
        (point.model, point.cluster, point.isl, point.osl, point.concurrency)
        if point.concurrency and point.isl and point.osl
        else None
        for point in points
    ]
    return _orderings(points, predictions, keys, _SERVED_GAP)


def _orderings(
    points: Sequence[Point],
    predictions: Sequence[Prediction],
    keys: Sequence[Hashable | None],
    gap: float,
) -> dict[str, Ordering]:
    groups: dict[str, dict[Hashable, list[int]]] = {}
    for i, (point, prediction, key) in enumerate(zip(points, predictions, keys, strict=True)):
        if key is not None and prediction.value is not None:
            groups.setdefault(point.quantity, {}).setdefault(key, []).append(i)
    configurations = [_configuration(point) for point in points]
    return {
        quantity: _ordering(points, predictions, configurations, by_key, gap)
        for quantity, by_key in groups.items()
    }


_OF_THE_ROW = (
    *("id", "source", "quantity", "measured", "pair", "notes", "engine_version"),
    *("tpot_limit_ms", "prefill_gpus", "in_step", "drafts_recorded"),
)
_configuration = attrgetter(*(one.name for one in fields(Point) if one.name not in _OF_THE_ROW))
"""What makes two rows the same configuration, ids and sources aside."""


def _ordering(
    points: Sequence[Point],
    predictions: Sequence[Prediction],
    configurations: Sequence[Hashable],
    by_key: Mapping[Hashable, Sequence[int]],
    gap: float,
) -> Ordering:
    compared, right = 0, 0
    pairs: list[Pair] = []
    for members in by_key.values():
        if len(members) < 2:
            continue
        first, second = np.triu_indices(len(members), 1)
        measured = np.array([points[i].measured for i in members])
        predicted = np.array([predictions[i].value for i in members], dtype=float)
        numbers: dict[Hashable, int] = {}
        same = np.array([numbers.setdefault(configurations[i], len(numbers)) for i in members])
        low = np.minimum(measured[first], measured[second])
        kept = (np.abs(measured[first] - measured[second]) > gap * low) & (same[first] != same[second])
        first, second = first[kept], second[kept]
        agree = (measured[first] - measured[second]) * (predicted[first] - predicted[second]) > 0
        compared += len(first)
        right += int(agree.sum())
        room = _LIST_AT_MOST - len(pairs)
        pairs += [
            Pair(members[a], members[b], bool(ok))
            for a, b, ok in zip(first[:room], second[:room], agree[:room], strict=True)
        ]
    return Ordering(compared, right, tuple(pairs) if compared <= _LIST_AT_MOST else ())
