"""What a person, and a program, reads after ``rackplan validate``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cost.validation.point import Point, Prediction
from cost.validation.statistics import Errors, Ordering, errors_by, inside, signed_error
from rackplan.validation import STRATA, Validation, stratum
from rackplan.words import table, underlined, wrapped

_SHORT_FILE = 200
_WORST = 20
_LONGEST_ID = 46
_LONGEST_GROUP = 32
_GROUPS: dict[str, Callable[[Point], str]] = {
    "cluster": lambda point: point.cluster,
    "model": lambda point: point.model,
    "engine": lambda point: point.engine,
    "phase": lambda point: point.phase,
    "kernel": lambda point: point.alltoall.kernel if point.alltoall else "",
    "layout and batch": lambda point: "left to the model" if point.is_open else "stated",
}
_ERROR_HEADER = ("rows", "predicted", "coverage", "median", "mean", "bias", "within 20 %")


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


def validate_json(validations: Iterable[Validation]) -> dict[str, Any]:
    """Return the object of ``--json``; errors are fractions of the measured values, bias is the median signed one."""
    return {"files": {one.name: _file_json(one) for one in validations}}


def _file_json(validation: Validation) -> dict[str, Any]:
    return {
        "rows": validation.rows,
        "residual": validation.residual,
        "corrected": validation.corrected,
        "quantities": _both_json(validation.errors, validation.physics),
        "strata": {
            name: _both_json(found, validation.physics_strata[name])
            for name, found in validation.strata.items()
        },
        "pairs": {name: _ordering_json(found, validation) for name, found in validation.named.items()},
        "served_pairs": {
            name: _ordering_json(found, validation) for name, found in validation.served.items()
        },
        "points": [
            {
                "id": point.id,
                "quantity": point.quantity,
                "measured": point.measured,
                "predicted": prediction.value,
                "physics": prediction.value if prediction.physics is None else prediction.physics,
                "error": signed_error(point, prediction),
                "reason": prediction.reason,
                "low": prediction.low,
                "high": prediction.high,
                "inside": inside(point, prediction),
                "chosen": prediction.chosen,
                "labelled": point.drafts_recorded,
            }
            for point, prediction in zip(validation.points, validation.predictions, strict=True)
        ],
    }


def _both_json(errors: Mapping[str, Errors], physics: Mapping[str, Errors]) -> dict[str, Any]:
    """Errors by quantity, those of the physics alone inside."""
    return {
        name: {**_errors_json(one), "physics": _errors_json(physics[name])} for name, one in errors.items()
    }


def _errors_json(errors: Errors) -> dict[str, Any]:
    return {
        "rows": errors.rows,
        "predicted": errors.predicted,
        "coverage": errors.coverage,
        "median_abs_error": errors.median_abs_error,
        "mean_abs_error": errors.mean_abs_error,
        "bias": errors.bias,
        "mean_error": errors.mean_error,
        "within_20_percent": errors.within_20_percent,
        "intervals": errors.intervals,
        "inside_interval": errors.inside_interval,
    }


def _ordering_json(found: Ordering, validation: Validation) -> dict[str, Any]:
    ids = [point.id for point in validation.points]
    pairs = [{"ids": [ids[one.first], ids[one.second]], "right": one.right} for one in found.pairs]
    return {"compared": found.compared, "right": found.right, "list": pairs}


def validate_summary(validation: Validation, *, show_all: bool = False) -> str:
    """Return the report of one file: rows, errors by quantity and by group, order of pairs, rows not predicted."""
    lines = underlined(
        f"{validation.name}: {validation.rows:,} rows, {len(validation.points):,} measured figures"
    )
    for quantity in validation.errors:
        lines += ["", *_rows(validation, quantity, show_all=show_all)]
    lines += [
        "",
        "Errors are |predicted - measured| / measured; bias is the median signed error (< 0: too small).",
    ]
    lines += table([["quantity", *_ERROR_HEADER], *_error_rows(validation.errors)])
    lines += _residual(validation)
    lines += _intervals(validation)
    lines += _strata(validation)
    for name, group in _GROUPS.items():
        lines += _breakdown(validation, name, group)
    lines += _orderings(validation) + _chosen(validation)
    return "\n".join(lines + _refused(validation))


def _residual(validation: Validation) -> list[str]:
    """Whether the learned correction is in the figures, and the errors without it where it is."""
    if not validation.residual:
        return ["", *wrapped("Residual", "off: the physics alone (--no-residual)")]
    if not validation.corrected:
        return []
    text = (
        f"on: {validation.corrected:,} {'figure has' if validation.corrected == 1 else 'figures have'} the learned "
        "correction; rows of the sample that it was learned from are in sample. Order is that of the physics. "
        "Physics alone (--no-residual):"
    )
    changed = {
        point.quantity
        for point, one in zip(validation.points, validation.predictions, strict=True)
        if one.physics is not None
    }
    found = {name: errors for name, errors in validation.physics.items() if name in changed}
    if validation.strata[STRATA[1]]:
        found |= {
            f"{quantity} {name}": errors
            for name, group in validation.physics_strata.items()
            for quantity, errors in group.items()
            if quantity in changed
        }
    return ["", *wrapped("Residual", text), *table([["physics alone", *_ERROR_HEADER], *_error_rows(found)])]


def _intervals(validation: Validation) -> list[str]:
    """How many rows with an interval are inside it."""
    lines: list[str] = []
    for quantity, errors in validation.errors.items():
        if errors.intervals:
            covered = f"{errors.intervals:,} of {errors.rows:,} rows have an interval"
            lines += wrapped("Intervals", f"{quantity}: {_share(errors.inside_interval)} inside; {covered}")
    return ["", *lines] if lines else []


def _strata(validation: Validation) -> list[str]:
    """Errors of the rows that say whether tokens were drafted, and of those that do not, where there are any."""
    if not validation.strata[STRATA[1]]:
        return []
    lines = ["", "Unlabelled rows are those where nobody recorded whether tokens were drafted."]
    return lines + _breakdown(validation, "stratum", stratum)


def _chosen(validation: Validation) -> list[str]:
    """What the model chose for rows that leave their layout or batch to it."""
    texts = {
        point.id: prediction.chosen
        for point, prediction in zip(validation.points, validation.predictions, strict=True)
        if prediction.chosen
    }
    lines: list[str] = []
    for name, text in list(texts.items())[:_WORST]:
        lines += wrapped("Chosen", f"{_cut(name)}: {text}")
    rest = len(texts) - _WORST
    more = wrapped("Chosen", f"for {rest} more rows, see --json") if rest > 0 else []
    return ["", *lines, *more] if lines else []


def _rows(validation: Validation, quantity: str, *, show_all: bool) -> list[str]:
    """The rows of one quantity: all of a short file, else the ones that are furthest off."""
    chosen = [i for i, point in enumerate(validation.points) if point.quantity == quantity]
    title = f"{quantity}, row by row"
    if len(chosen) > _SHORT_FILE and not show_all:
        chosen = _furthest(validation, chosen)
        title = f"{quantity}, the {len(chosen)} rows that are furthest off (--all prints every row)"
    ranged = any(validation.predictions[i].low is not None for i in chosen)
    found = [["row", "measured", "predicted", "error", *(["interval"] if ranged else [])]]
    for i in chosen:
        point, prediction = validation.points[i], validation.predictions[i]
        error = signed_error(point, prediction)
        value = "-" if prediction.value is None else f"{prediction.value:.4g}"
        cells = [_cut(point.id), f"{point.measured:.4g}", value, _signed(error)]
        found.append([*cells, _range(prediction)] if ranged else cells)
    return [title, *table(found)]


def _range(prediction: Prediction) -> str:
    if prediction.low is None or prediction.high is None:
        return "-"
    return f"{prediction.low:.3g} to {prediction.high:.3g}"


def _furthest(validation: Validation, chosen: Sequence[int]) -> list[int]:
    errors = {i: signed_error(validation.points[i], validation.predictions[i]) for i in chosen}
    known = {i: abs(error) for i, error in errors.items() if error is not None}
    return sorted(known, key=lambda i: (-known[i], i))[:_WORST]


def _cut(name: str, most: int = _LONGEST_ID) -> str:
    if len(name) <= most:
        return name
    half = (most - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


def _error_rows(errors: Mapping[str, Errors]) -> list[list[str]]:
    return [
        [
            name,
            f"{one.rows:,}",
            f"{one.predicted:,}",
            _share(one.coverage),
            _share(one.median_abs_error),
            _share(one.mean_abs_error),
            _signed(one.bias),
            _share(one.within_20_percent),
        ]
        for name, one in errors.items()
    ]


def _breakdown(validation: Validation, name: str, group: Callable[[Point], str]) -> list[str]:
    """Errors by ``group``, where the file has more than one."""
    lines: list[str] = []
    by_group = errors_by(validation.points, validation.predictions, group)
    for quantity in validation.errors:
        found = {
            _cut(key or "-", _LONGEST_GROUP): errors
            for (one, key), errors in sorted(by_group.items())
            if one == quantity
        }
        if len(found) > 1:
            lines += ["", *table([[f"{quantity} by {name}", *_ERROR_HEADER], *_error_rows(found)])]
    return lines


def _orderings(validation: Validation) -> list[str]:
    lines: list[str] = []
    for orderings, what in (
        (validation.named, "A/B pairs"),
        (validation.served, "same model, cluster and requests"),
    ):
        for quantity, found in orderings.items():
            if not found.compared:
                continue
            text = f"{quantity}: {found.right:,} of {found.compared:,} pairs ({_share(found.share)}), {what}"
            lines += wrapped("Order", text)
            wrong = [one for one in found.pairs if not one.right] if what == "A/B pairs" else []
            for one in wrong:
                ids = [validation.points[i].id for i in (one.first, one.second)]
                lines += wrapped("", f"wrong: {ids[0]} against {ids[1]}")
    return ["", *lines] if lines else []


def _refused(validation: Validation) -> list[str]:
    """Why rows have no prediction, the most frequent reason first."""
    reasons = Counter(one.reason for one in validation.predictions if one.value is None)
    if not reasons:
        return []
    lines = [""]
    for reason, count in reasons.most_common(10):
        lines += wrapped("Left out", f"{count:,}: {reason or 'no reason given'}")
    rest = len(reasons) - 10
    return [*lines, *(wrapped("Left out", f"{rest} more reasons, see --json") if rest > 0 else [])]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
