"""Measured against predicted: rows of a file and how far off they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic.dataclasses import dataclass

from cost.calibration.correction import correction_with
from cost.validation.frontier import Frontier, errors_of_frontiers, frontiers
from cost.validation.read import Point
from cost.validation.statistics import Errors, inside, signed_error
from cost.validation.validation import Validation
from rackplan.views.blocks import Block, Chart, Heading, Page, Table, Text, View, labelled, sections
from rackplan.views.data import taken
from topology.base.units import plural

_SHORT_FILE, _WORST, _MOST_REASONS = 200, 20, 10
"""Rows of a file that is printed whole; rows and reasons that are printed of a longer one."""
_LONGEST_ID = 46
_WORST_FRONTIERS = 5
_FRONTIER_LEGEND = (
    "Output tokens/s/GPU of the best measured runs and of the best deployable layouts under the same "
    "engines, at equal "
    "requests per GPU and at equal tokens/s/user. At equal speed a small error in time is a large error "
    "in throughput, "
    "so that comparison is also made among the measured layouts only."
)


@dataclass(frozen=True, kw_only=True)
class ErrorsData:
    """Errors of the predicted rows of one quantity, as fractions of the measured values.

    Attributes
    ----------
    rows, predicted, coverage:
        Measured rows, those of them with a prediction, and their share.
    median_abs_error, mean_abs_error:
        Of ``|predicted - measured| / measured``; null where nothing was predicted, like all that follow.
    bias:
        Median of ``(predicted - measured) / measured``: below 0, predictions are too small.
    within_20_percent:
        Share of the predicted rows within 20 percent.
    intervals, inside_interval:
        Rows with an interval, and the share of them whose measured value it holds.
    """

    rows: int
    predicted: int
    median_abs_error: float | None
    mean_abs_error: float | None
    bias: float | None
    within_20_percent: float | None
    intervals: int
    inside_interval: float | None
    coverage: float


@dataclass(frozen=True, kw_only=True)
class PointData:
    """A measured point.

    Attributes
    ----------
    id, quantity, measured:
        Which, what of it, and the figure in the unit of the quantity's name.
    predicted, error, reason:
        The prediction and its signed error; null where there is none, and why.
    low, high, inside:
        The interval where one is given, and whether it holds the measured figure.
    chosen:
        What was chosen where the point does not say it.
    """

    id: str
    quantity: str
    measured: float
    predicted: float | None
    error: float | None
    reason: str
    low: float | None
    high: float | None
    inside: bool | None
    chosen: str


@dataclass(frozen=True, kw_only=True)
class ValidatedGroup:
    """Rows of one cluster and model that have an interval.

    Attributes
    ----------
    cluster, model, rows:
        Which, and how many.
    median_abs_error:
        Of those with a prediction; null where none has one.
    inside:
        Share whose measured figure lies in the interval.
    """

    cluster: str
    model: str
    rows: int
    median_abs_error: float | None
    inside: float


@dataclass(frozen=True, kw_only=True)
class ValidationData:
    """A file of measured points.

    Attributes
    ----------
    rows, corrected:
        Its rows, and whether measured runs corrected the predictions.
    quantities:
        Errors by quantity.
    groups:
        Errors and intervals by cluster and model.
    points:
        Each.
    """

    rows: int
    corrected: bool
    quantities: dict[str, ErrorsData]
    groups: list[ValidatedGroup]
    points: list[PointData]


@dataclass(frozen=True, kw_only=True)
class FrontiersData:
    """Measured frontiers of a file, beside layouts that the model chooses (``--frontier``).

    Attributes
    ----------
    left_out:
        Runs whose rows do not give both speed and throughput.
    errors:
        Of each chip and of ``all``: ``at_load`` (as many requests per GPU), ``at_speed``, and ``of_run`` (at that
        speed, among the layouts that ran).
    frontiers:
        Each.
    """

    left_out: int
    errors: dict[str, dict[str, ErrorsData]]
    frontiers: list[Frontier]


@dataclass(frozen=True, kw_only=True)
class ValidateResult:
    """What ``rackplan validate`` prints: predictions of measured points, or frontiers.

    Attributes
    ----------
    files:
        By name.
    """

    files: Mapping[str, ValidationData | FrontiersData]


def points_of(found: Validation) -> list[PointData]:
    """Return the points beside their predictions."""
    return [
        taken(
            PointData,
            prediction,
            id=point.id,
            quantity=point.label,
            measured=point.measured,
            predicted=prediction.value,
            error=signed_error(point, prediction),
            inside=inside(point, prediction),
        )
        for point, prediction in zip(found.points, found.predictions, strict=True)
    ]


def file_names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each file, with as much of its folder as makes it unique."""
    counts = Counter(path.name for path in paths)
    names = [path.name if counts[path.name] == 1 else str(path) for path in paths]
    seen: Counter[str] = Counter()
    for i, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[i] = f"{name} ({seen[name]})"
    return names


def validate_view(validations: Sequence[Validation], *, show_all: bool = False) -> View:
    """Return the blocks and the data of ``rackplan validate``: rows and errors by quantity of each file."""
    files = {
        one.name: ValidationData(
            rows=len(one.points),
            corrected=one.corrected,
            quantities={name: taken(ErrorsData, errors) for name, errors in one.errors.items()},
            groups=[
                taken(ValidatedGroup, errors, cluster=cluster, model=model, inside=errors.inside_interval)
                for (cluster, model), errors in one.groups.items()
            ],
            points=points_of(one),
        )
        for one in validations
    }
    blocks = sections(*(_file_blocks(*one, show_all=show_all) for one in files.items()))
    return View(blocks, ValidateResult(files=files))


def frontiers_view(files: Mapping[str, Sequence[Point]], *, physics: bool, show_all: bool) -> View:
    """Return the blocks and the data of ``rackplan validate --frontier``: errors by chip, the worst frontiers."""
    found = {}
    for name, points in files.items():
        edges, left_out = frontiers(points, correction_with(physics=physics))
        errors = {
            chip: {at: taken(ErrorsData, one) for at, one in both.items()}
            for chip, both in errors_of_frontiers(edges).items()
        }
        found[name] = FrontiersData(left_out=left_out, errors=errors, frontiers=edges)
    blocks = sections(*(_frontiers_blocks(*one, show_all=show_all) for one in found.items()))
    return View(blocks, ValidateResult(files=found))


def _frontiers_blocks(name: str, found: FrontiersData, *, show_all: bool) -> list[Block]:
    title = Heading(f"{name}: {plural(len(found.frontiers), 'measured frontier')}")
    if not found.frontiers:
        return [title]
    chips = Table.of(
        found.errors.items(),
        ("chip", lambda one: one[0]),
        ("points", lambda one: f"{one[1]['at_load'].rows:,}"),
        ("same requests: median", lambda one: _share(one[1]["at_load"].median_abs_error)),
        ("mean", lambda one: _share(one[1]["at_load"].mean_abs_error)),
        ("bias", lambda one: _share(one[1]["at_load"].bias, "+")),
        ("within 20 %", lambda one: _share(one[1]["at_load"].within_20_percent)),
        ("same speed: median", lambda one: _share(one[1]["at_speed"].median_abs_error)),
        ("mean", lambda one: _share(one[1]["at_speed"].mean_abs_error)),
        ("bias", lambda one: _share(one[1]["at_speed"].bias, "+")),
        ("within 20 %", lambda one: _share(one[1]["at_speed"].within_20_percent)),
        ("measured layouts only: median", lambda one: _share(one[1]["of_run"].median_abs_error)),
    )
    worst = sorted(found.frontiers, key=lambda one: -(_worst(one).median_abs_error or 0.0))
    shown = worst if show_all else worst[:_WORST_FRONTIERS]
    return sections(
        [title, Text(_FRONTIER_LEGEND), chips],
        labelled("Left out", f"{plural(found.left_out, 'run')} without speed or throughput"),
        *([_frontier_table(one)] for one in shown),
        labelled(
            "Not shown", f"{plural(len(worst) - len(shown), 'frontier')} with smaller errors (--details)"
        ),
    )


def _worst(one: Frontier) -> Errors:
    return errors_of_frontiers([one])["all"]["at_load"]


def _frontier_table(one: Frontier) -> Table:
    return Table.of(
        one.points,
        ("tok/s/user", lambda point: _number(point.tok_s_user)),
        ("measured tok/s/GPU", lambda point: _number(point.tok_s_per_gpu)),
        ("same requests", lambda point: _number(point.at_load)),
        ("same speed", lambda point: _number(point.at_speed)),
        ("measured layout", lambda point: point.layout),
        ("chosen layout", lambda point: point.chosen or "none reaches this speed"),
        title=f"{one.name}: median error {_share(_worst(one).median_abs_error)} at the same requests",
    )


def _file_blocks(name: str, found: ValidationData, *, show_all: bool) -> list[Block]:
    ranged = any(errors.intervals for errors in found.quantities.values())
    errors = Table.of(
        found.quantities.items(),
        ("quantity", lambda one: one[0]),
        ("rows", lambda one: f"{one[1].rows:,}"),
        ("predicted", lambda one: f"{one[1].predicted:,}"),
        ("coverage", lambda one: _share(one[1].coverage)),
        ("median", lambda one: _share(one[1].median_abs_error)),
        ("mean", lambda one: _share(one[1].mean_abs_error)),
        ("bias", lambda one: _share(one[1].bias, "+")),
        ("within 20 %", lambda one: _share(one[1].within_20_percent)),
        *[("in interval", lambda one: _share(one[1].inside_interval))] * ranged,
    )
    groups = Table.of(
        found.groups,
        ("cluster", lambda one: one.cluster),
        ("model", lambda one: one.model),
        ("rows", lambda one: f"{one.rows:,}"),
        ("median", lambda one: _share(one.median_abs_error)),
        ("in interval", lambda one: _share(one.inside)),
        words=(0, 1),
    )
    legend = "Errors are |predicted - measured| / measured; bias is the median signed error (< 0: too small)"
    legend += "; in interval: share of measured values within their predicted interval" * ranged
    chosen = {_short(row.id): row.chosen for row in found.points if row.chosen}
    reasons = Counter(row.reason for row in found.points if row.predicted is None)
    return sections(
        [Heading(f"{name}: {plural(found.rows, 'row')}"), Page(lambda: _chart(found.points))],
        *([_rows(found.points, quantity, show_all=show_all)] for quantity in found.quantities),
        [Text(f"{legend}."), errors],
        [groups] if len(found.groups) > 1 else [],
        [] if found.corrected else labelled("Correction", "off (--physics)"),
        _first([f"{row}: {text}" for row, text in chosen.items()], _WORST, "Chosen"),
        _first(
            [f"{n:,}: {why or 'no reason'}" for why, n in reasons.most_common()], _MOST_REASONS, "Left out"
        ),
    )


def _chart(rows: Sequence[PointData]) -> list[Block]:
    from rackplan.views.data_charts import validation_chart

    points: dict[str, list[tuple[str, float, float]]] = {}
    for row in rows:
        if row.predicted is not None:
            points.setdefault(row.quantity, []).append((row.id, row.measured, row.predicted))
    words = f"Measured against predicted: {', '.join(points)}"
    return [Chart("validation", validation_chart(points), words, 480)] if points else []


def _first(texts: Sequence[str], most: int, label: str) -> list[Block]:
    """Return the first texts under a label, and how many more there are."""
    rest = len(texts) - most
    return [
        *(Text(text, label) for text in texts[:most]),
        *[Text(f"{rest} more, see --json", label)] * (rest > 0),
    ]


def _rows(every: Sequence[PointData], quantity: str, *, show_all: bool) -> Table:
    """Return the rows of one quantity: all of a short file, else those with the largest errors."""
    rows = [row for row in every if row.quantity == quantity]
    title = f"{quantity}, all rows"
    if len(rows) > _SHORT_FILE and not show_all:
        rows = sorted((row for row in rows if row.error is not None), key=lambda row: -abs(row.error or 0.0))
        rows = rows[:_WORST]
        title = f"{quantity}, the {len(rows)} rows with the largest errors (--details prints all)"
    columns = [
        ("row", lambda row: _short(row.id)),
        ("measured", lambda row: _number(row.measured)),
        ("predicted", lambda row: "-" if row.predicted is None else _number(row.predicted)),
        ("error", lambda row: _share(row.error, "+")),
    ]
    if any(row.low is not None for row in rows):
        columns.append(
            ("interval", lambda row: "-" if row.low is None else f"{_number(row.low)} to {_number(row.high)}")
        )
    return Table.of(rows, *columns, title=title)


def _short(name: str) -> str:
    half = (_LONGEST_ID - 3) // 2
    return name if len(name) <= _LONGEST_ID else f"{name[:half]}...{name[-half:]}"


def _number(value: float) -> str:
    """Return four significant digits with thousands separators, never in scientific notation."""
    return f"{float(f'{value:.4g}'):,.10f}".rstrip("0").rstrip(".")


def _share(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1%}"
