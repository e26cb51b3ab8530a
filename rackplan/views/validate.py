"""Measured against predicted: rows of a file and how far off they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cost.validation.predict import Prediction, predict
from cost.validation.read import Point
from cost.validation.statistics import Errors, errors_of, inside, signed_error
from rackplan.schemas.records import PointData, ValidationData
from rackplan.views.blocks import Block, Heading, Table, Text, View, labelled, sections
from topology.base.shown import Shown
from topology.base.units import plural

_SHORT_FILE = 200
_WORST = 20
_LONGEST_ID = 46
_MOST_REASONS = 10
"""Points whose row says whether tokens were drafted (or whose model cannot), and points where nobody recorded it."""


@dataclass(frozen=True, repr=False)
class Validation(Shown):
    """Points of one file, a row each, and predictions in the same order.

    ``residual`` says whether predictions have the correction that was learned from measured runs.
    """

    name: str
    points: Sequence[Point]
    predictions: Sequence[Prediction]
    residual: bool

    def brief(self) -> str:
        """Return the file, its rows, and how far off predictions are."""
        told = (
            f"{quantity} median error {one.median_abs_error:.1%} ({one.predicted} of {one.rows} predicted)"
            for quantity, one in self.errors.items()
            if one.median_abs_error is not None
        )
        return f"{self.name}: {plural(len(self.points), 'row')}; {', '.join(told) or 'none predicted'}"

    @cached_property
    def errors(self) -> dict[str, Errors]:
        """Errors by quantity."""
        return errors_of(self.points, self.predictions)


def validation(name: str, points: Sequence[Point], *, residual: bool = True) -> Validation:
    """Predict ``points`` (:func:`cost.validation.predict.predict`)."""
    return Validation(name, points, predict(points, residual=residual), residual)


def file_names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each file: its own, with as much of its folder as tells it from the others."""
    counts = Counter(path.name for path in paths)
    names = [path.name if counts[path.name] == 1 else str(path) for path in paths]
    seen: Counter[str] = Counter()
    for i, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[i] = f"{name} ({seen[name]})"
    return names


def validate_view(validations: Sequence[Validation], *, show_all: bool = False) -> View:
    """Return what ``rackplan validate`` says of each file: rows and errors by quantity.

    In the data errors are fractions of the measured values, bias is the median signed one.
    """
    blocks = sections(*(_file_blocks(one, show_all=show_all) for one in validations))
    return View(blocks, {"files": {one.name: _file_data(one) for one in validations}})


def _file_data(validation: Validation) -> ValidationData:
    return {
        "rows": len(validation.points),
        "residual": validation.residual,
        "quantities": {name: _errors_data(one) for name, one in validation.errors.items()},
        "points": points_data(validation),
    }


def _errors_data(errors: Errors) -> Any:
    return {**asdict(errors), "coverage": errors.coverage}


def points_data(validation: Validation) -> list[PointData]:
    """Return the points beside their predictions, a mapping each."""
    found = zip(validation.points, validation.predictions, strict=True)
    return [
        {
            "id": point.id,
            "quantity": point.quantity,
            "measured": point.measured,
            "predicted": prediction.value,
            "error": signed_error(point, prediction),
            "reason": prediction.reason,
            "low": prediction.low,
            "high": prediction.high,
            "inside": inside(point, prediction),
            "chosen": prediction.chosen,
        }
        for point, prediction in found
    ]


def _file_blocks(validation: Validation, *, show_all: bool) -> list[Block]:
    title = f"{validation.name}: {len(validation.points):,} rows"
    said = "Errors are |predicted - measured| / measured; bias is the median signed error (< 0: too small)."
    return sections(
        [Heading(title)],
        *([_rows(validation, quantity, show_all=show_all)] for quantity in validation.errors),
        [Text(said), _error_table("quantity", validation.errors)],
        labelled("Residual", "off: the physics alone (--physics)") if not validation.residual else [],
        _intervals(validation),
        _chosen(validation),
        _refused(validation),
    )


def _intervals(validation: Validation) -> list[Block]:
    """How many rows with an interval are inside it."""
    return [
        Text(
            f"{quantity}: {_share(errors.inside_interval)} inside; {errors.intervals:,} of {errors.rows:,} rows have "
            "an interval",
            "Intervals",
        )
        for quantity, errors in validation.errors.items()
        if errors.intervals
    ]


def _chosen(validation: Validation) -> list[Block]:
    """What the model chose for rows that leave their layout or batch to it."""
    texts = {
        point.id: prediction.chosen
        for point, prediction in zip(validation.points, validation.predictions, strict=True)
        if prediction.chosen
    }
    said = [f"{_cut(name)}: {text}" for name, text in list(texts.items())[:_WORST]]
    return [Text(text, "Chosen") for text in _shortened(said, len(texts), "rows", "for ")]


def _shortened(said: list[str], count: int, what: str, before: str = "") -> list[str]:
    """Return ``said``, and how many there are besides."""
    rest = count - len(said)
    return [*said, f"{before}{rest} more {what}, see --json"] if rest > 0 else said


def _rows(validation: Validation, quantity: str, *, show_all: bool) -> Table:
    """The rows of one quantity: all of a short file, else the ones that are furthest off."""
    chosen = [i for i, point in enumerate(validation.points) if point.quantity == quantity]
    title = f"{quantity}, row by row"
    if len(chosen) > _SHORT_FILE and not show_all:
        chosen = _furthest(validation, chosen)
        title = f"{quantity}, the {len(chosen)} rows that are furthest off (--details prints every row)"
    ranged = any(validation.predictions[i].low is not None for i in chosen)
    rows = []
    for i in chosen:
        point, prediction = validation.points[i], validation.predictions[i]
        value = "-" if prediction.value is None else f"{prediction.value:.4g}"
        cells = (_cut(point.id), f"{point.measured:.4g}", value, _signed(signed_error(point, prediction)))
        rows.append((*cells, *([_range(prediction)] if ranged else [])))
    return Table(("row", "measured", "predicted", "error", *(["interval"] if ranged else [])), rows, title)


def _range(prediction: Prediction) -> str:
    if prediction.low is None or prediction.high is None:
        return "-"
    return f"{prediction.low:.3g} to {prediction.high:.3g}"


def _furthest(validation: Validation, chosen: Iterable[int]) -> list[int]:
    errors = {i: signed_error(validation.points[i], validation.predictions[i]) for i in chosen}
    known = {i: abs(error) for i, error in errors.items() if error is not None}
    return sorted(known, key=lambda i: (-known[i], i))[:_WORST]


def _cut(name: str) -> str:
    if len(name) <= _LONGEST_ID:
        return name
    half = (_LONGEST_ID - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


def _error_table(title: str, errors: Mapping[str, Errors]) -> Table:
    return Table.of(
        errors.items(),
        (title, lambda one: one[0]),
        ("rows", lambda one: f"{one[1].rows:,}"),
        ("predicted", lambda one: f"{one[1].predicted:,}"),
        ("coverage", lambda one: _share(one[1].coverage)),
        ("median", lambda one: _share(one[1].median_abs_error)),
        ("mean", lambda one: _share(one[1].mean_abs_error)),
        ("bias", lambda one: _signed(one[1].bias)),
        ("within 20 %", lambda one: _share(one[1].within_20_percent)),
    )


def _refused(validation: Validation) -> list[Block]:
    """Why rows have no prediction, the most frequent reason first."""
    reasons = Counter(one.reason for one in validation.predictions if one.value is None)
    said = [f"{count:,}: {why or 'no reason given'}" for why, count in reasons.most_common(_MOST_REASONS)]
    return [Text(text, "Left out") for text in _shortened(said, len(reasons), "reasons")]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
