"""Documents of measured against predicted: rows of files, and frontiers of measured runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cost.calibration.correction import correction_with
from cost.validation.frontier import MEASURES, Frontier, errors_of_frontiers, frontiers
from cost.validation.read import Point
from cost.validation.statistics import inside, signed_error
from cost.validation.validation import Validation
from rackplan.report.doc import Doc, Note, Row, Shape, Table
from rackplan.report.fields import FIELDS, phrase
from rackplan.report.frontier import measured_charts
from rackplan.report.shared import missing
from topology.base.errors import input_name
from topology.base.units import plural

_SHOWN = "median_abs_error mean_abs_error bias within_20_percent"
QUANTITIES = Table.of(
    "quantities",
    f"file quantity rows rows_predicted {_SHOWN} inside_interval | coverage intervals corrected",
    "Errors",
    max_rows=None,
)
GROUPS = Table.of(
    "groups", "file cluster model rows median_abs_error inside_interval", "Rows with a band", max_rows=8
)
REASONS = Table.of("left_out", "file reason rows", "Rows without a prediction", max_rows=6)
_POINT = "id quantity measured predicted error low high inside"
POINTS = Table.of("points", f"file {_POINT} reason chosen", "All rows", max_rows=None)
LARGEST = Table.of("largest_errors", _POINT, "Largest errors", max_rows=None)
ERRORS = Table.of(
    "errors", f"file gpu measure rows {_SHOWN} | rows_predicted coverage", "Errors of tok/s/GPU"
)
FRONTIERS = Table.of(
    "frontiers", "file frontier gpu runs most_gpus most_requests median_abs_error", "Frontiers", max_rows=5
)
_REACHED = "at_load_tok_s_per_gpu at_speed_tok_s_per_gpu of_run_tok_s_per_gpu measured_layout chosen_layout"
RUNS = Table.of(
    "frontier_points",
    f"tok_s_per_user tok_s_per_gpu {_REACHED} | file frontier id requests_per_gpu",
    "Measured runs that no other beats",
    max_rows=None,
    per="frontier",
)
LEFT_OUT = Table.of("frontier_files", "file frontiers runs_left_out", "Files")
VALIDATE = Shape(
    "validate",
    "Predictions of measured points, or measured frontiers beside layouts that are chosen.",
    (QUANTITIES, GROUPS, REASONS, POINTS, LARGEST, ERRORS, FRONTIERS, RUNS, LEFT_OUT),
)
_WORDS = ("same requests", "same speed", "same speed with a layout that ran")
_MAX_LARGEST = 8
"""Rows of the table of largest errors."""
_UNPREDICTED, _NO_BAND = "No row was predicted.", "There is no band."
_METHOD = (
    "The best deployable layouts have the engines of the measured runs, and no more GPUs and requests. At equal "
    "speed a small error in time is a large one in throughput, so that is also compared among measured layouts alone."
)


def validate_doc(files: Validation | Sequence[Validation]) -> Doc:
    """Return the document of ``rackplan validate``: errors by file and quantity, and each row."""
    validations = [files] if isinstance(files, Validation) else files
    quantities = QUANTITIES(
        QUANTITIES.row(errors, validation, file=validation.name, quantity=quantity)
        for validation in validations
        for quantity, errors in validation.errors.items()
    )
    groups = GROUPS(
        GROUPS.row(errors, file=validation.name, cluster=cluster, model=model)
        for validation in validations
        for (cluster, model), errors in validation.groups.items()
    )
    points = POINTS(row for validation in validations for row in _points(validation))
    known = [row for row in points.rows if row["error"] is not None]
    reasons = Counter((row["file"], row["reason"]) for row in points.rows if row["error"] is None)
    bare = any(not validation.corrected for validation in validations)
    return Doc(
        VALIDATE,
        f"Measured and predicted: {', '.join(validation.name for validation in validations)}",
        [
            f"{len(known):,} of {len(points.rows):,} measured rows are predicted.",
            _ends(quantities.rows, "median_abs_error", "The median error is {}."),
            _ends(quantities.rows, "inside_interval", "The band of a plan holds {} of the rows."),
        ],
        [
            *measured_charts(points, "predicted", "measured", "quantity"),
            quantities,
            LARGEST(sorted(known, key=lambda row: -abs(row["error"]))[:_MAX_LARGEST]),
            REASONS((*key, count) for key, count in reasons.most_common()),
            Note(f"Measured runs did not correct the predictions ({input_name('physics')})." if bare else ""),
            *missing(quantities, _UNPREDICTED, inside_interval=_NO_BAND),
        ],
        [
            groups,
            points,
            *missing(points, "Not predicted: its reason says why.", low=_NO_BAND, high=_NO_BAND),
            *missing(groups, _UNPREDICTED),
        ],
        frame=lambda: points.data,
    )


def _points(validation: Validation) -> Iterator[Row]:
    for point, prediction in zip(validation.points, validation.predictions, strict=True):
        off = {"error": signed_error(point, prediction), "inside": inside(point, prediction)}
        values = {"quantity": point.label, "predicted": prediction.value}
        yield POINTS.row(prediction, point, file=validation.name, **values, **off)


def _ends(rows: Sequence[Row], key: str, words: str) -> str:
    """Return the least and the largest of a figure, never one over several quantities; empty where nobody has it."""
    known = sorted((row[key], row["quantity"]) for row in rows if row[key] is not None)
    ends = dict.fromkeys((known[0], known[-1])) if known else {}
    texts = [f"{FIELDS[key].text(value)} ({quantity})" for value, quantity in ends]
    return words.format(" to ".join(texts)) if texts else ""


def frontiers_doc(files: Mapping[str, Sequence[Point]], *, physics: bool) -> Doc:
    """Return the document of ``rackplan validate --frontier``: errors by GPU, and each frontier."""
    by_file = {name: frontiers(points, correction_with(physics=physics)) for name, points in files.items()}
    entries = [
        (name, frontier, errors_of_frontiers([frontier])["all"]["at_load"].median_abs_error)
        for name, (group, _) in by_file.items()
        for frontier in group
    ]
    entries.sort(key=lambda entry: -(entry[2] or 0.0))
    errors = ERRORS(row for name, (group, _) in by_file.items() for row in _errors(name, group))
    listed = FRONTIERS(
        FRONTIERS.row(frontier, file=name, frontier=frontier.name, gpu=frontier.chip, median_abs_error=error)
        for name, frontier, error in entries
    )
    runs = RUNS(row for name, frontier, _ in entries for row in _runs(name, frontier))
    medians = ", ".join(
        f"{phrase(row, 'median_abs_error')} at the {row['measure']}" for row in errors.rows[:3]
    )
    return Doc(
        VALIDATE,
        f"Measured frontiers: {', '.join(files)}",
        [
            f"{plural(len(entries), 'measured frontier')} with {plural(len(runs.rows), 'run')}.",
            f"The median error of tok/s/GPU is {medians}." if medians else "",
        ],
        [
            errors,
            listed,
            LEFT_OUT((name, len(group), out) for name, (group, out) in by_file.items()),
            *missing(errors, _UNPREDICTED),
        ],
        [runs, Note(_METHOD, kind="method")],
    )


def _runs(name: str, frontier: Frontier) -> Iterator[Row]:
    for point in frontier.points:
        reached = {f"{at}_tok_s_per_gpu": getattr(point, at) for at in MEASURES}
        yield RUNS.row(point, file=name, frontier=frontier.name, **reached)


def _errors(name: str, group: Sequence[Frontier]) -> Iterator[Row]:
    """Yield errors of all GPUs together, then of each."""
    errors = errors_of_frontiers(group) if group else {}
    for gpu in sorted(errors, key=lambda gpu: (gpu != "all", gpu)):
        for key, measure in zip(MEASURES, _WORDS, strict=True):
            yield ERRORS.row(errors[gpu][key], file=name, gpu=gpu, measure=measure)
