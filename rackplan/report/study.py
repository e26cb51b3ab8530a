"""Document of a study: how its points fared, the best of each option, the frontier, and why points failed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Record, Shape, Table
from rackplan.report.fields import FIELDS, phrase
from rackplan.studies import result as results
from rackplan.studies.result import COST, RATE, SPEED, Progress, StudyResult
from rackplan.studies.rows import OK, STATUSES, Row, column_of, rows_digest
from rackplan.studies.spec import Study
from topology.base.units import plural

MAX_GROUPS, MAX_POINTS = 6, 2000
"""Values of an option that have colours, and points that a chart has."""
_NOUNS = {"score": "layouts", "sweep": "sweeps", "plan": "plans"}
_SHOWN = "options tok_s_per_gpu tok_s_per_user usd_per_million_tokens layout batch"
_MORE = (
    "point step_s lower_step_s bound_by tok_s requests_per_s tok_s_per_gpu_used gpus gpus_idle usd_per_hour power_w "
    "tok_s_per_mw balancedness gap sha256"
)
ROOT = Record.of(
    "",
    "points varied fixed results rows_sha256 | study_kind rows priced replaced_workers interrupted file",
    tiles="rows",
)
STATUS = Table.of("statuses", "status points", "How points ended", max_rows=0)
BEST = Record.of("best", f"{_SHOWN} | {_MORE}", "Best point", tiles="tok_s_per_gpu usd_per_million_tokens")
CURVE = Table.of("curve", f"{_SHOWN} | setting {_MORE}", "Optimum")
FRONTIER = Table.of("frontier", f"{_SHOWN} | {_MORE}", "Frontier in tok/s/GPU and tok/s/user", even=True)
GROUPS = Table.of("groups", f"{_SHOWN} | option {_MORE}", "Best by option", per="option", max_rows=None)
REASONS = Table.of("reasons", "points status reason", "Points without a result")
STUDY = Shape(
    "study",
    "How the points of a study fared, and the best of them.",
    (ROOT, STATUS, BEST, CURVE, FRONTIER, GROUPS, REASONS),
)
_POINTS = Table.of("", f"point {SPEED} {RATE} {COST} layout options option")
_METHOD = "The best point is the cheapest where all have a price, else that of most tok/s/GPU."


def study_doc(result: StudyResult, file: str = "") -> Doc:
    """Return the document of ``rackplan study``; ``file`` is the page that was written."""
    rows, study, progress = result.rows, result.study, result.progress
    solved = [row for row in rows if row["status"] == OK]
    best, counts = results.best_row(solved), Counter(row["status"] for row in rows)
    chosen = None if best is None else _row(study, best)
    curve = CURVE(
        _row(study, row, setting=results.number_of(value)) for value, row in results.optima(study, solved)
    )
    frontier = FRONTIER((_row(study, row) for row in results.front(solved)), max_rows=8)
    groups = results.best_by_option(study, solved).items()
    root = {
        "study_kind": study.kind,
        "rows": len(rows),
        "points": progress and progress.total,
        "priced": progress and progress.here,
        "replaced_workers": progress and progress.replaced,
        "interrupted": result.interrupted,
        "varied": study.varied,
        "fixed": [f"{name}={shown(value)}" for name, value in study.fixed.items()],
        "results": str(result.folder / "results"),
        "rows_sha256": rows_digest(rows),
        "file": file or None,
    }
    ended = [(status, counts[status]) for status in STATUSES if counts[status]]
    fared = ", ".join(f"{count:,} {status}" for status, count in ended) or "none yet"
    return Doc(
        STUDY,
        f"Study of {len(rows):,} {_NOUNS[study.kind]}",
        [_best(chosen, solved), f"{plural(len(rows), 'point')} ended: {fared}.", _progress_words(progress)],
        [
            ROOT(root),
            STATUS(ended),
            BEST(chosen),
            curve,
            frontier,
            Late(lambda: list(_charts(study, solved, curve, frontier))),
            REASONS(results.reasons(rows)),
            Note(_free(study)),
        ],
        [
            GROUPS(_row(study, row, option=name) for name, best_rows in groups for row in best_rows),
            Note(_METHOD, kind="method"),
        ],
        frame=lambda: rows,
    )


def _row(study: Study, row: Row, **cells: object) -> Row:
    """Return a point as documents have it: its options as name and value, and its figures."""
    named = {"options": [f"{name}={shown(row.get(column_of(name)))}" for name in study.varied]}
    figures = {key: row.get(key) for key in f"{_SHOWN} {_MORE}".split()}
    return {**figures, **named, "batch": row.get("layout_batch"), "sha256": row.get("digest"), **cells}


def shown(value: object) -> str:
    """Return a value of a row in few letters: lists and mappings, which are JSON there, as words."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    match value:
        case list():
            return " + ".join(map(shown, value))
        case dict():
            return ", ".join(f"{name} {shown(part)}" for name, part in value.items())
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return "none" if value is None else str(value)


def _best(best: Row | None, solved: Sequence[Row]) -> str:
    if best is None:
        return "No point has a result."
    priced = best[COST] is not None and all(row.get(COST) is not None for row in solved)
    which = f"{'cheapest' if priced else 'best'} of {plural(len(solved), 'point')}"
    costs = "" if best[COST] is None else f", {phrase(best, COST)}"
    speed = "" if best[SPEED] is None else f" at {phrase(best, SPEED)}"
    options = f" ({', '.join(best['options'])})" if best["options"] else ""
    return f"The {which} is point {best['point']}{options}: {phrase(best, RATE)}{speed}{costs}."


def _progress_words(progress: Progress | None) -> str:
    """Return what is missing, and what runs before this one did."""
    if progress is None:
        return ""
    remaining = progress.total - progress.done
    hint = f"; {remaining:,} are missing, the same command goes on" if remaining else ""
    earlier = progress.done - progress.here
    return f"{progress.here:,} were priced in this run, {earlier:,} in earlier runs{hint}."


def _free(study: Study) -> str:
    """Return which options of the tuner cost nothing in the study."""
    if study.goal != COST:
        return ""
    free = [name for name in study.ranges if name not in study.worth and name.startswith("set.")]
    why = "no cost is set (usd_per_h of the study), so increases are free."
    return f"{', '.join(free)}: {why}" if free else ""


def _charts(study: Study, solved: Sequence[Row], curve: Table, frontier: Table) -> Iterator[Block]:
    """Yield the optimum along an option, and both speeds of the points by the first option of few values."""
    if study.goal and len(curve.rows) > 1:
        title = f"Best {FIELDS[study.goal].label} at each {next(iter(study.grid))}"
        yield Chart(title, [Layer("line", curve, "setting", study.goal)], log="x")
    able = [row for row in solved if row.get(SPEED) is not None]
    if len(able) < 2:
        return
    values = (
        (name, {shown(row.get(column_of(name))) for row in able}) for name in results.common_options(study)
    )
    by = next((name for name, settings in values if 1 < len(settings) <= MAX_GROUPS), "")
    points = _POINTS(
        _row(study, row, option=f"{by}={shown(row.get(column_of(by)))}" if by else "points")
        for row in able[:: 1 + len(able) // MAX_POINTS]
    )
    lines = Layer("line", frontier, SPEED, RATE, name="frontier")
    yield Chart("Speed against throughput", [lines, Layer("point", points, SPEED, RATE, "option")], log="xy")
