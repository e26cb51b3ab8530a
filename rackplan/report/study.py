"""Document of a study: how its points fared, the best of each option, the frontier, and why points failed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from cost.layouts.front import pareto
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Record, Shape, Table
from rackplan.report.fields import FIELDS, phrase
from rackplan.studies.rows import OK, STATUSES, Row, cell_of, column_of, columns_of, rows_digest
from rackplan.studies.run import StudyResult
from rackplan.studies.spec import Study, Value
from topology.base.units import plural, read_number

COST, RATE, SPEED = "usd_per_million_tokens", "tok_s_per_gpu", "tok_s_per_user"

MAX_COLOURS, MAX_GROUPS, MAX_POINTS, MAX_REASONS = 6, 20, 2000, 8
"""Values of an option in a chart and in a table, points of a chart, and reasons of a table."""
_DIGITS = re.compile(r"[0-9][0-9.,]*")
_NOUNS = {"score": "layouts", "sweep": "sweeps", "plan": "plans"}
_SHOWN = "options tok_s_per_gpu tok_s_per_user usd_per_million_tokens layout batch"
_MORE = (
    "point step_s lower_step_s bound_by tok_s requests_per_s tok_s_per_gpu_used gpus gpus_idle usd_per_hour power_w "
    "tok_s_per_mw balancedness gap sha256"
)
ROOT = Record.of(
    "",
    "points varied fixed results rows_sha256 | study_kind rows priced interrupted file",
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
    rows, study = result.rows, result.study
    solved = [row for row in rows if row["status"] == OK]
    best, counts = _best_row(solved), Counter(row["status"] for row in rows)
    chosen = None if best is None else _row(study, best)
    goal, sign = study.goal, 1 if study.least else -1
    able = [row for row in solved if goal and row[goal] is not None]
    optima = {
        (name, value): min(group, key=lambda row: (sign * row[goal], row["point"]))
        for name, value, group in (_groups(study, able) if study.grid else [("", None, able)])
        if group and (name in study.grid or not study.grid)
    }
    curve = CURVE(_row(study, row, setting=_number_of(value)) for (_, value), row in optima.items())
    speeds = [row for row in solved if row[SPEED] is not None and row[RATE] is not None]
    best_speeds = (
        pareto([row[SPEED] for row in speeds], [row[RATE] for row in speeds]).tolist() if speeds else []
    )
    frontier = FRONTIER((_row(study, speeds[at]) for at in best_speeds), max_rows=8)
    groups = [(name, _best_row(group)) for name, _, group in _groups(study, solved) if group]
    root = {
        "study_kind": study.kind,
        "rows": len(rows),
        "points": result.total,
        "priced": result.priced,
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
        [_best(chosen, solved), f"{plural(len(rows), 'point')} ended: {fared}.", _progress(result)],
        [
            ROOT(root),
            STATUS(ended),
            BEST(chosen),
            curve,
            frontier,
            Late(lambda: list(_charts(study, solved, curve, frontier))),
            REASONS(_reasons(rows)),
            Note(_free(study)),
        ],
        [
            GROUPS(_row(study, row, option=name) for name, row in groups if row),
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


def _progress(result: StudyResult) -> str:
    """Return what is missing, and what runs before this one did."""
    done = len(result.rows)
    missing = result.total - done
    hint = f"; {missing:,} are missing, the same command goes on" if missing else ""
    return f"{result.priced:,} were priced in this run, {done - result.priced:,} in earlier runs{hint}."


def _best_row(rows: Sequence[Row]) -> Row | None:
    """Return the cheapest row where all have a price, else that of most tokens/s/GPU."""
    if all(row[COST] is not None for row in rows):
        return min(rows, key=lambda row: row[COST], default=None)
    return max(rows, key=lambda row: row[RATE])


def _groups(study: Study, rows: Sequence[Row]) -> Iterator[tuple[str, Value, list[Row]]]:
    """Yield the rows at each value of each varied option that has few, in the order of the study."""
    kinds = columns_of(study)
    for name in _listed(study):
        column, values = column_of(name), study.values[name]
        if 1 < len(values) <= MAX_GROUPS:
            for value in values:
                cell = cell_of(value, kinds[column])
                yield name, value, [row for row in rows if row[column] == cell]


def _listed(study: Study) -> list[str]:
    """Return the varied options with a list of values, which points have in common."""
    return [name for name in study.varied if name in study.grid or study.ranges[name].ends is None]


def _number_of(value: object) -> float | None:
    """Return a number, or that which a text means (``2x``, ``500 GB/s``); None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    return float(value) if isinstance(value, int | float) else (read_number(str(value)) or (None,))[0]


def _reasons(rows: Sequence[Row]) -> list[tuple[int, str, str]]:
    """Return how many points have no figure, how they ended, and why, but for the numbers in it."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["status"] != OK:
            alike.setdefault((row["status"], _DIGITS.sub("#", row["reason"])), []).append(row["reason"])
    told = [
        (len(texts), status, "such as " * (len(set(texts)) > 1) + texts[0])
        for (status, _), texts in alike.items()
    ]
    return sorted(told, key=lambda reason: -reason[0])[:MAX_REASONS]


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
    listed = ((name, {shown(row[column_of(name)]) for row in able}) for name in _listed(study))
    by = next((name for name, values in listed if 1 < len(values) <= MAX_COLOURS), "")
    points = _POINTS(
        _row(study, row, option=f"{by}={shown(row.get(column_of(by)))}" if by else "points")
        for row in able[:: 1 + len(able) // MAX_POINTS]
    )
    lines = Layer("line", frontier, SPEED, RATE, name="frontier")
    yield Chart("Speed against throughput", [lines, Layer("point", points, SPEED, RATE, "option")], log="xy")
