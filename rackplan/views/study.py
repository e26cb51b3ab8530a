"""A study: how its points fared, the best of each group, the Pareto-optimal points, and why points failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic.dataclasses import dataclass

from rackplan.studies.columns import Row, column_of, rows_digest
from rackplan.studies.summary import (
    COST,
    RATE,
    SPEED,
    best_by_option,
    best_row,
    common_options,
    front,
    optima,
    reasons,
)
from rackplan.views.blocks import (
    Block,
    Chart,
    Heading,
    Items,
    Page,
    Table,
    Text,
    Tiles,
    View,
    labelled,
    sections,
    thinned,
)
from rackplan.views.data import LEFT_OUT, Maybe
from rackplan.views.money import dollars
from rackplan.views.study_charts import (
    MOST_GROUPS,
    WORDS,
    curve_chart,
    parallel_chart,
    shown,
    speeds_chart,
)
from topology.base.units import plural

if TYPE_CHECKING:
    from rackplan.studies.result import StudyResult

MOST_FRONT = 20
_NAMES = ("model", "cluster")
"""Options with self-explanatory values."""
_NOUNS = {"score": "layouts", "sweep": "sweeps", "plan": "plans", "fleet": "fleets"}


RowData = dict[str, Any]
"""A row of the dataset without nulls; the columns follow from the study's options."""


@dataclass(frozen=True, kw_only=True)
class ReasonData:
    """Points that have no figure for one reason.

    Attributes
    ----------
    reason:
        Status and words; of reasons that differ in numbers alone one is shown.
    points:
        How many.
    """

    reason: str
    points: int


@dataclass(frozen=True, kw_only=True)
class CurveData:
    """The best that a tuner found at one value of the option that it went along.

    Attributes
    ----------
    value:
        Of that option; null where there is one optimum.
    best:
        The row.
    """

    value: Any
    best: RowData


@dataclass(frozen=True, kw_only=True)
class StudyResultData:
    """What ``rackplan study`` prints: how points fared, and the best of them.

    Attributes
    ----------
    kind:
        What a point is: score, sweep, plan or fleet.
    rows:
        Points on disk.
    statuses:
        How many of them have each status.
    varied:
        Options that differ between points.
    best:
        The cheapest row where all have a price, else that of most tokens per second and GPU; null without one.
    groups:
        By varied option of few values, the best row at each.
    pareto:
        Pareto-optimal rows in both speeds, slowest for the user first.
    reasons:
        Why points have no figure, most first.
    results:
        The folder of the Parquet dataset.
    rows_sha256:
        SHA-256 of the rows without times and hosts: the same on every machine.
    files:
        What was written besides, by what it is.
    points, priced:
        Points of the study, and those that this run priced; absent where nothing was left to price.
    replaced_workers:
        Workers and machines that died and were replaced.
    interrupted:
        Whether Ctrl-C ended the run.
    curve:
        The optimum at each value of the tuner's curve; of studies with ``optimize``.
    """

    kind: str
    rows: int
    statuses: dict[str, int]
    varied: list[str]
    best: RowData | None
    groups: dict[str, list[RowData]]
    pareto: list[RowData]
    reasons: list[ReasonData]
    results: str
    rows_sha256: str
    files: dict[str, str]
    points: Maybe[int] = LEFT_OUT
    priced: Maybe[int] = LEFT_OUT
    replaced_workers: Maybe[int] = LEFT_OUT
    interrupted: Maybe[bool] = LEFT_OUT
    curve: Maybe[list[CurveData]] = LEFT_OUT


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """``study.json``: what the study of a folder is, enough to go on with it.

    Attributes
    ----------
    rackplan:
        The version that began it.
    base:
        The folder from which names of files are read first.
    study:
        The content of the ``STUDY.yaml``.
    """

    rackplan: str
    base: str
    study: dict[str, Any]


def study_view(found: StudyResult, files: Mapping[str, str]) -> View:
    """Return the blocks and the data of ``rackplan study``; ``files`` are those written, by what they are."""
    rows, study = found.rows, found.study
    good = [row for row in rows if row["status"] == "ok"]
    best, progress = best_row(good), found.progress
    run: dict[str, Any] = {}
    if progress is not None:
        run = {
            "points": progress.total,
            "priced": progress.here,
            "replaced_workers": progress.replaced,
            "interrupted": found.interrupted,
        }
    if study.search is not None:
        run["curve"] = [CurveData(value=value, best=_plainly(row)) for value, row in optima(study, good)]
    data = StudyResultData(
        kind=study.kind,
        rows=len(rows),
        statuses=dict(Counter(row["status"] for row in rows)),
        varied=study.varied,
        best=None if best is None else _plainly(best),
        groups={name: [_plainly(row) for row in some] for name, some in best_by_option(study, good).items()},
        pareto=[_plainly(row) for row in front(good)],
        reasons=[ReasonData(reason=reason, points=count) for reason, count in reasons(rows)],
        results=str(found.folder / "results"),
        rows_sha256=rows_digest(rows),
        files=dict(files),
        **run,
    )
    written = labelled("Written", ", ".join(files.values()))
    return View([*study_blocks(found), *written], data)


def study_blocks(found: StudyResult, command: str = "") -> list[Block]:
    """Return what a terminal and the page show of a study; tiles, charts and ``command`` are of a page alone."""
    rows = found.rows
    good = [row for row in rows if row["status"] == "ok"]
    failures = _failures(rows)
    title = f"Study of {len(rows):,} {_NOUNS[found.study.kind]}"
    return sections(
        [Heading(title), Page(lambda: _tiles(found, best_row(good))), *_state(found)],
        [*_search_blocks(found, good), Page(lambda: _curve_chart(found, good))],
        [Page(lambda: _charts(found, good))],
        [_front_table(found, good)] if len(good) > 1 else [],
        [Heading("Best by group", 2)],
        *([table] for table in _group_tables(found, good)),
        [Heading("Points without a result", 2), *failures] if failures else [],
        [
            Heading("Location of the rows", 2),
            *labelled(
                "Rows", f"{found.folder / 'results'} (Parquet, readable with pandas, DuckDB and polars)"
            ),
            *labelled(
                "SHA-256", f"{rows_digest(rows)} (of the rows without times; identical on every machine)"
            ),
            Page([Text(command, "Command")] if command else []),
        ],
    )


def _curve_chart(found: StudyResult, good: Sequence[Row]) -> list[Block]:
    """Return the optimum along the option that the tuner goes along; nothing without such an option."""
    search, curve = found.study.search, optima(found.study, good)
    if search is None or search.curve is None or len(curve) < 2:
        return []
    option, goal = search.curve[0], search.goal
    word = WORDS.get(goal, goal)
    figure = curve_chart([value for value, _ in curve], [row[goal] for _, row in curve], option, word)
    return [Chart("curve", figure, f"best {word} found at each {option}; see the table for figures", 380)]


def _charts(found: StudyResult, good: Sequence[Row]) -> list[Block]:
    """Return every point across its options, and by both speeds."""
    if len(good) < 2:
        return []
    axes = _axes(found, good)
    colour = COST if all(row.get(COST) is not None for row in good) else RATE
    across = ", ".join(WORDS.get(axis, axis) for axis in axes)
    says = f"{len(good):,} points across {across}; see the tables for figures"
    speeds = "tok/s/GPU against tok/s/user of all points; the table lists the Pareto-optimal ones"
    return [
        Heading("All points", 2),
        Text(f"Each line is a point, coloured by quintile of {WORDS[colour]}."),
        Chart("parallel", parallel_chart(good, axes, colour), says, 460),
        Heading("Speed against throughput", 2),
        Chart("speeds", speeds_chart(_by_group(found, good), front(good), _tokens(found)), speeds, 420),
    ]


def _state(found: StudyResult) -> list[Block]:
    counts = Counter(row["status"] for row in found.rows)
    said = ", ".join(
        f"{counts[status]:,} {status}"
        for status in ("ok", "infeasible", "failed", "timeout")
        if counts[status]
    )
    blocks = labelled("Points", said or "none yet")
    progress = found.progress
    if progress is not None:
        here = f"{progress.here:,} priced in this run, {progress.done - progress.here:,} in earlier runs"
        more = (
            f"{progress.total - progress.done:,} are missing; run the same command to resume"
            if progress.done < progress.total
            else ""
        )
        again = f"{plural(progress.replaced, 'worker')} restarted after a crash" if progress.replaced else ""
        blocks += labelled("Run", *filter(None, (here, more, again)))
    fixed = ", ".join(f"{name} {shown(value)}" for name, value in found.study.fixed.items())
    return [
        *blocks,
        *labelled("Varied", ", ".join(found.study.varied)),
        *labelled("Fixed", fixed),
    ]


def _tiles(found: StudyResult, best: Row | None) -> list[Block]:
    tiles = [(f"{len(found.rows):,}", "points")]
    bad = sum(row["status"] != "ok" for row in found.rows)
    tiles += [(f"{bad:,}", "without a result")] * bool(bad)
    if best is not None:
        if best.get(COST) is not None:
            tiles.append((dollars(best[COST]), "lowest USD per million tokens"))
        tiles.append(
            (f"{max(row[RATE] for row in found.rows if row.get(RATE) is not None):,.0f}", "highest tok/s/GPU")
        )
    return [Tiles(tiles)]


def _tokens(found: StudyResult) -> str:
    return "input" if found.study.fixed.get("phase") == "prefill" else "output"


def _by_group(found: StudyResult, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by the first option that has few values; all of them where none has."""
    able = [row for row in rows if row.get(SPEED) is not None]
    for name in common_options(found.study):
        cell = _cell(name)[1]
        values = list(dict.fromkeys(map(cell, able)))
        if 1 < len(values) <= MOST_GROUPS:
            before = "" if name in _NAMES else f"{name} "
            return {f"{before}{value}": [row for row in able if cell(row) == value] for value in values}
    return {"points": able}


def _apart(found: StudyResult, rows: Sequence[Row]) -> list[str]:
    """Return the varied options in which some rows differ."""
    return [name for name in found.study.varied if len(set(map(_cell(name)[1], rows))) > 1]


def _axes(found: StudyResult, rows: Sequence[Row]) -> list[str]:
    varied = [column_of(name) for name in _apart(found, rows)]
    figures = [name for name in (SPEED, RATE, COST) if all(row.get(name) is not None for row in rows)]
    return [*varied, *figures]


def _table(rows: Sequence[Row], first: Sequence[tuple[str, Callable[[Row], str]]], title: str) -> Table:
    """Return a table with some columns of ours before the figures of rows."""
    columns: list[tuple[str, Callable[[Row], str]]] = [
        *first,
        ("tok/s/GPU", lambda row: _number(row.get(RATE))),
        ("tok/s/user", lambda row: _number(row.get(SPEED))),
        ("$/Mtok", lambda row: "-" if row.get(COST) is None else dollars(row[COST])),
        ("layout", lambda row: row.get("layout") or "-"),
        ("batch", lambda row: _number(row.get("layout_batch"))),
    ]
    words = list(range(len(first)))
    words += [len(columns) - 2] * any(";" in (row.get("layout") or "") for row in rows)  # of several pools
    return Table.of(rows, *columns, title=title, words=words)


def _cell(name: str) -> tuple[str, Callable[[Row], str]]:
    """Return a column of a row's own."""
    column = column_of(name)
    return name, lambda row: shown(row.get(column))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 100 else f"{value:,.0f}"


def _group_tables(found: StudyResult, rows: Sequence[Row]) -> list[Block]:
    what = "cheapest" if rows and all(row.get(COST) is not None for row in rows) else "highest tok/s/GPU"
    groups = best_by_option(found.study, rows)
    return [_table(best, [_cell(name)], f"By {name}, {what}:") for name, best in groups.items()]


def _front_table(found: StudyResult, rows: Sequence[Row]) -> Table:
    names = _apart(found, rows)[:4]
    return _table(
        thinned(front(rows), MOST_FRONT),
        [_cell(name) for name in names or ["point"]],
        "Pareto-optimal in tok/s/GPU and tok/s/user:",
    )


def _failures(rows: Sequence[Row]) -> list[Block]:
    found = reasons(rows)
    if not found:
        return []
    rest = sum(row["status"] != "ok" for row in rows) - sum(count for _, count in found)
    texts = [f"{count:,} {reason}" for reason, count in found]
    texts += [f"{rest:,} for other reasons (see column `reason`)"] * bool(rest)
    return [Text("points without a result", "Why"), Items(texts, hanging=True)]


def _search_blocks(found: StudyResult, rows: Sequence[Row]) -> list[Block]:
    search = found.study.search
    if search is None:
        return []
    curve = optima(found.study, rows)
    free = [name for name in search.ranges if name not in search.worth and name.startswith("set.")]
    said = (
        f"{', '.join(free)}: no cost is set (`usd_per_h`), so increases are free"
        if free and search.goal == COST
        else ""
    )
    names = ([search.curve[0]] if search.curve else []) + list(search.ranges)
    first = [_cell(name) for name in names]
    goal = f"{'lowest' if search.least else 'highest'} {WORDS.get(search.goal, search.goal)}"
    return [
        Heading("Optimum", 2),
        _table([row for _, row in curve], first, f"Optimum, {goal}:"),
        *labelled("Free", said),
    ]


def _plainly(row: Row) -> dict[str, Any]:
    """Return a row as JSON has it."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row.items()
        if value is not None
    }
