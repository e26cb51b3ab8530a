"""Comparison of clusters for one model: throughput at a speed per user, cost and reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

from pydantic.dataclasses import dataclass

from cost.calibration.errors import CalibrationData, error_to_dict, widest
from cost.money.bill import Totals
from cost.recipe import OtherRecipe
from cost.serving.points import LayoutPoint, frontier, layout_points, serving_points
from cost.step.score import Score
from cost.validation.measured import MeasuredPoint, comparable_points
from placement.analysis.compare import CompareRow
from placement.analysis.comparison import Comparison
from placement.analysis.evidence import deployment_figures
from placement.options import USUAL_TPOT
from rackplan.report.notes import (
    accuracy_words,
    doubts,
    near_words,
    phase_words,
    range_words,
    recipe_lines,
    serving_words,
)
from rackplan.views.blocks import (
    GAP,
    Block,
    Chart,
    Details,
    Drawing,
    Heading,
    Page,
    Table,
    Text,
    View,
    labelled,
    sections,
    thinned,
)
from rackplan.views.charts import frontier_chart, memories_chart, steps_chart
from rackplan.views.data import LEFT_OUT, Maybe, SetFigureData, taken
from rackplan.views.forward import leading
from rackplan.views.gains import GainData, gain_blocks, gain_chart, gain_words, gains_data
from rackplan.views.money import (
    bill_blocks,
    cost_words,
    dollars,
    money_columns,
    money_legend,
    power_scope,
    power_words,
    rate_words,
    watts,
)
from rackplan.views.pareto import COLUMNS, HEIGHT, MOST_ROWS, beside_measured, cells_of
from rackplan.views.provenance import deployment_rows, figures_section, inputs_section
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.words import error_blocks, load_blocks, other_recipe_blocks
from topology.base.figures import EvidenceLabel
from topology.base.units import plural

BAR, AROUND = 46, 130
"""Pixels of a bar of one cluster, and of what is around the bars."""
LEGEND = "batch: sequences per GPU in use; layout: EP and TP width, PP stages, x replicas."


@dataclass(frozen=True, kw_only=True)
class ShareData:
    """Throughput by GPU, megawatt or dollar-hour.

    Attributes
    ----------
    tok_s, requests_per_s, ratio:
        Of one of them; the ratio to the first cluster. Null where nothing is reached or there is no figure.
    reason:
        Why there is no figure; else empty.
    """

    tok_s: float | None
    requests_per_s: float | None
    ratio: float | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class CompareRowData:
    """A cluster at a speed per user, with its cost.

    Attributes
    ----------
    cluster, model, gpus, status:
        Names, the GPUs, and whether the system is sold.
    tok_s_per_user, reached_tok_s_per_user:
        The speed compared at (or reached, where none was given), and the one reached; null: it runs nothing.
    tokens, tok_s_per_gpu:
        Which tokens are counted, and throughput over all GPUs; null: the speed is out of reach.
    step_s, batch, bound_by, layout:
        Of the best layout; null: there is none.
    evidence, calibration:
        The weakest kind of figure behind it, and how far off it may be.
    measured_factor, measured_runs:
        What measured runs near it took over the physics, in the figures, and how many are near.
    reason:
        Why there is none; else empty.
    serving, requests_per_s, ttft_s, instead:
        Of whole requests: ``one pool`` or ``two pools``, requests per second of the cluster, the time to the first
        token without waiting, and tok/s/GPU of the other way (null: it does not keep the limits).
    loaded_requests_per_s:
        The most requests per second of the cluster at which 99 of 100 keep their limits (null: none, or no
        `--ttft-p99-ms`).
    totals:
        Of the cluster.
    per_gpu, per_mw, per_usd_h:
        Its throughput by each, beside the first cluster.
    """

    cluster: str
    model: str
    gpus: int
    tok_s_per_user: float | None
    reached_tok_s_per_user: float | None
    tokens: str
    tok_s_per_gpu: float | None
    step_s: float | None
    batch: float | None
    bound_by: str | None
    layout: str | None
    evidence: EvidenceLabel | None
    status: str
    reason: str
    calibration: CalibrationData | None
    measured_factor: float
    measured_runs: int
    serving: str | None
    requests_per_s: float | None
    ttft_s: float | None
    instead: float | None
    loaded_requests_per_s: float | None
    totals: Totals
    per_gpu: ShareData
    per_mw: ShareData
    per_usd_h: ShareData


@dataclass(frozen=True, kw_only=True)
class CompareResult:
    """Output of ``rackplan compare``, also written to ``compare.json``.

    Attributes
    ----------
    rows:
        A row for each cluster at each speed.
    gains:
        Of whole requests: what makes each cluster faster than the one before it, at each speed.
    other_recipe:
        What the recipe that is not in force would bring where that is 10 % or more; absent where it is nowhere.
    set:
        What the user set, by cluster; absent where nothing was.
    what_if:
        What was assumed that no engine does, in words; absent where nothing was.
    """

    rows: list[CompareRowData]
    gains: list[GainData]
    other_recipe: Maybe[list[OtherRecipe]] = LEFT_OUT
    what_if: Maybe[str] = LEFT_OUT
    set: Maybe[dict[str, list[SetFigureData]]] = LEFT_OUT


def compare_view(found: Comparison) -> View:
    """Return the blocks and the data of ``rackplan compare``."""
    first, workload = found.deployments[0], found.deployments[0].workload
    set_by = {one.cluster.name: set_data(one.cluster).get("set") for one in found.deployments}
    data = CompareResult(
        rows=[
            taken(
                CompareRowData,
                row,
                model=first.model.name,
                tok_s_per_user=row.target_tok_s_per_user or row.tok_s_per_user,
                reached_tok_s_per_user=row.tok_s_per_user,
                tokens=workload.token_word,
                calibration=error_to_dict(row.errors),
                totals=found.totals(row),
                **{f"per_{name}": share(found, row, name) for name in SHARES},
            )
            for row in found.rows
        ],
        gains=gains_data(found.gains),
        other_recipe=list(found.others) or LEFT_OUT,
        what_if=workload.what_if or LEFT_OUT,
        set={name: figures for name, figures in set_by.items() if figures} or LEFT_OUT,
    )
    return View(compare_blocks(found), data)


def compare_blocks(
    found: Comparison, *, command: str = "", drawings: Mapping[str, str] | None = None
) -> list[Block]:
    """Return the comparison as shown on a terminal and in the report: best clusters, accuracy and details.

    Of a page alone are charts, ``command``, and ``drawings``: the SVG file of each cluster by its name.
    """
    rows, first = found.rows, found.deployments[0]
    what = phase_words(first.workload) if found.lengths is None else found.lengths.brief()
    workload, clusters = first.workload, [one.cluster for one in found.deployments]
    sizes = {row.gpus for row in rows}
    each = found.budget or (plural(sizes.pop(), "GPU") if len(sizes) == 1 else "")
    of = f", {each} each" if each else ""
    reasons = {row.cluster: row.reason for row in rows if row.tok_s_per_gpu is None}
    notes = {row.cluster: doubt for row in rows if (doubt := doubts(row.status))}
    weakest = {row.cluster: f"{row.cluster} {row.evidence}" for row in rows if row.evidence}
    errors = list(dict.fromkeys((row.cluster, error) for row in rows for error in row.errors))
    speed = next((row.target_tok_s_per_user for row in compared_at(rows)), None)
    gains = [gain for gain in found.gains if gain.gain and gain.tok_s_per_user == speed]
    part = {
        name: f", scaled by {times:.3g} to the budget" for name, times in found.scales.items() if times != 1
    }
    layouts = [
        f"{row.cluster}{_at(row)}: {row.layout}{part.get(row.cluster, '')}"
        for row in _ordered(rows)
        if row.serving
    ]
    details = sections(
        [
            Heading("All results", 2, folded=True),
            *labelled("Serving", *_serving(found)),
            *labelled("Recipe", *recipe_lines(*found.deployments)),
            *labelled("Speed", _usual_words(rows) if found.usual else ""),
            *set_blocks("Set", *clusters),
            *load_blocks(found.loads),
        ],
        [row_table(rows), GAP, *labelled("Layouts", *layouts)],
        [
            Text(
                f"tok/s counts {workload.token_word} tokens, over all GPUs of the cluster; ratios are relative to "
                f"{rows[0].cluster}; {LEGEND}"
            ),
        ],
        gain_blocks([gain for gain in found.gains if gain.gain]),
        [
            Heading("Cost", 2, folded=True),
            *money_legend(found.bills.values()),
            *labelled("Total", *_whole_words(found)),
            *bill_blocks(found.bills),
        ],
        [Page(_drawings(drawings or {}))],
        [
            Heading("Accuracy by cluster", 2, folded=True),
            *labelled("Evidence", f"weakest figure: {', '.join(weakest.values())}" if weakest else ""),
        ],
        error_blocks(errors) if errors else [],
        _measured(rows),
    )
    return [
        *sections(
            [
                Heading(f"{first.model.name} on {plural(len(clusters), 'cluster')}{of}, {what}"),
                Page(lambda: [*_headline(found), *_frontiers(found)]),
            ],
            _answer(found),
            [share_table(found)],
            [
                *labelled("Under load", _loaded_words(found)),
                *labelled("Gains", *map(gain_words, gains)),
                *other_recipe_blocks(found.others),
                *(Text(reason, name) for name, reason in reasons.items()),
                *labelled(
                    "Note",
                    *(f"{name} is {doubt}" for name, doubt in notes.items()),
                    *_over(found),
                    _sizes(found),
                ),
            ],
            [Page(lambda: [*gain_chart(gains, workload.token_word), *_steps(rows)])],
        ),
        Details(details),
        Page(partial(_grounds, found, command)),
    ]


def _sizes(found: Comparison) -> str:
    """Say that the clusters have different numbers of GPUs, if nothing else is equal; else an empty text."""
    sizes = {row.cluster: row.gpus for row in found.rows}
    if found.budget or len({*sizes.values()}) == 1:
        return ""
    listed = ", ".join(f"{name} {gpus:,}" for name, gpus in sizes.items())
    return (
        f"the clusters differ in size ({listed} GPUs): read them per GPU, MW and USD/h; a larger one has more "
        "layouts to choose from. Names without @GPUS, or --gpus, compare equal sizes"
    )


def _over(found: Comparison) -> Iterator[str]:
    """Yield which clusters are over the budget with the domain that each has at least."""
    much, _, unit = found.budget.partition(" ")
    for name, bill in found.bills.items() if much else ():
        spent = bill.usd_per_hour if unit == "USD/h" else bill.power_w and bill.power_w / 1e6
        if spent and spent > float(much) * (1 + 1e-6):
            yield f"the smallest unit of {name} takes {spent:,.3g} {unit}, more than {found.budget}"


SHARES: Mapping[str, tuple[str, Callable[[Totals], float | None], Callable[[Totals], str]]] = {
    "gpu": ("GPU", lambda one: one.gpus, lambda _: ""),
    "mw": ("MW", lambda one: one.power_w and one.power_w / 1e6, power_words),
    "usd_h": ("USD/h", lambda one: one.usd_per_hour, cost_words),
}
"""Denominators of throughput: the word, the amount in a cluster, and the reason where it is unknown."""
SPELT = {"usd_h": "dollar", "mw": "megawatt"}
"""Their names in a sentence."""


def share(found: Comparison, row: CompareRow, by: str) -> ShareData:
    """Return the throughput of a row by GPU, megawatt or dollar-hour (:data:`SHARES`)."""
    _, amount, why = SHARES[by]
    totals, much = found.totals(row), amount(found.totals(row))
    if much is None or row.tok_s_per_gpu is None:
        return ShareData(
            tok_s=None, requests_per_s=None, ratio=None, reason=why(totals) if much is None else ""
        )
    at = (found.rows[0].cluster, row.target_tok_s_per_user)
    first = next(one for one in found.rows if (one.cluster, one.target_tok_s_per_user) == at)
    base = totals.tok_s / much if first is row else share(found, first, by).tok_s
    return ShareData(
        tok_s=totals.tok_s / much,
        requests_per_s=None if totals.requests_per_s is None else totals.requests_per_s / much,
        ratio=totals.tok_s / much / base if base else None,
        reason="",
    )


def _loaded_words(found: Comparison) -> str:
    """Return what each cluster serves while 99 % of requests meet the limits; empty if queueing is excluded."""
    if found.ttft_p99_s is None:
        return ""
    rates = (
        f"{row.cluster} {'none' if not row.loaded_requests_per_s else f'{row.loaded_requests_per_s:,.3g}'}{_at(row)}"
        for row in _ordered(found.rows)
        if row.tok_s_per_gpu
    )
    limit = f"a p99 time to first token of {found.ttft_p99_s:g} s"
    return f"requests/s within {limit} (simulated): {', '.join(rates)}"


def _at(row: CompareRow) -> str:
    return f" at {row.target_tok_s_per_user:g} tok/s/user" if row.target_tok_s_per_user else ""


def _answer(found: Comparison) -> list[Block]:
    """Return the best cluster by each of :data:`SHARES`, at which speed, and the accuracy."""
    rows = compared_at(found.rows)
    if not rows:
        return [Text("no cluster reaches any of the compared speeds", "Best")]
    word, lines = found.deployments[0].workload.token_word, list[Block]()
    speed = _at(rows[0]) + " (default)" * bool(found.usual and rows[0].target_tok_s_per_user)
    for by in _shares(found):
        texts, ranked = [], _ranked(found, rows, by)
        if ranked:
            best, rate = ranked[0]
            serving = next(row.serving for row in rows if row.cluster == best)
            how = "" if lines else f"{speed}{f', by {serving}' * bool(serving)}"
            texts.append(f"{best}: {rate_words(rate)} {word} tok/s{how}")
            texts += [f"{rate / other:.2f}x {name} (second)" for name, other in ranked[1:2]]
        texts += [f"{row.cluster} {reason}" for row in rows if (reason := share(found, row, by).reason)]
        lines.append(Text("; ".join(texts), f"Per {SHARES[by][0]}", "terminal"))
    return [*lines, *([Text(sure, "Accuracy", "terminal")] if (sure := _sure(found, rows)) else [])]


def _headline(found: Comparison) -> list[Block]:
    """Return at most three sentences: the best by what is equal, by the other shares, and the accuracy."""
    rows = compared_at(found.rows)
    if not rows:
        return [Text("No cluster reaches any of the compared speeds.", style="forward")]
    leads = []
    for by in _shares(found):
        for name, rate in _ranked(found, rows, by)[:1]:
            second = [f", {rate / other:.2f}x {name}" for name, other in _ranked(found, rows, by)[1:2]]
            leads.append((SPELT.get(by, "GPU"), name, rate, "".join(second)))
    (what, best, rate, ahead), *others = leads
    word, at = found.deployments[0].workload.token_word, _at(rows[0])
    first = f"{best} has the highest throughput per {what}{at}: {rate_words(rate)} {word} tok/s{ahead}"
    first = "; ".join([first, *_over(found)])
    each = "; ".join(f"per {what} {name} leads{ahead}" for what, name, _, ahead in others)
    return leading(first, each.replace("per", "Per", 1), _sure(found, rows))


def _shares(found: Comparison) -> list[str]:
    """Return the names of :data:`SHARES`, that of the budget first."""
    return sorted(SHARES, key=lambda by: not found.budget.endswith(f" {SHARES[by][0]}"))


def _ranked(found: Comparison, rows: Sequence[CompareRow], by: str) -> list[tuple[str, float]]:
    """Return clusters with their tokens per second by a share, the best first."""
    rates = ((row.cluster, share(found, row, by).tok_s) for row in rows)
    return sorted(((name, rate) for name, rate in rates if rate is not None), key=lambda one: -one[1])


def _sure(found: Comparison, rows: Sequence[CompareRow]) -> str:
    """Return the band of tok/s/GPU, and which leads of the best clusters exceed it."""
    errors = {row.cluster: row.errors for row in rows if row.errors}
    known = {name: band.band for name, some in errors.items() if (band := widest(some)) is not None}
    if not known:
        return ""
    text = "; ".join(f"{name}: {accuracy_words(errors[name])}" for name in known)
    if len(known) < max(2, len(rows)):
        return text
    exceeds = {}
    for by, (label, *_) in SHARES.items():
        for (best, rate), (second, other) in pairwise(_ranked(found, rows, by)[:2]):
            exceeds[label] = rate / other >= max(known[best], known[second])
    first = exceeds.pop("GPU")
    unlike = [label for label, one in exceeds.items() if one != first]
    text += (
        f"; the lead per GPU {'exceeds that' if first else 'does not exceed that, so the order is uncertain'}"
    )
    return f"{text}; per {' and '.join(unlike)} it {'does not' if first else 'does'}" if unlike else text


def share_table(found: Comparison) -> Table:
    """Return throughput per GPU, megawatt and dollar-hour of each cluster, with the ratio to the first one."""
    speeds = {row.target_tok_s_per_user for row in found.rows} - {None}

    def cell(row: CompareRow, by: str) -> str:
        one = share(found, row, by)
        if one.tok_s is None:
            return "unreachable" if row.tok_s_per_gpu is None and by == "gpu" else "-"
        return f"{rate_words(one.tok_s)} {'-' if one.ratio is None else f'{one.ratio:.2f}x'}"

    def whole(row: CompareRow) -> str:
        rate = row.requests_per_s if found.lengths else row.tok_s_per_gpu and found.totals(row).tok_s
        return "-" if rate is None else rate_words(rate)

    def reached(row: CompareRow) -> Totals | None:
        return None if row.tok_s_per_gpu is None else found.totals(row)

    return Table.of(
        _ordered(found.rows),
        ("cluster", lambda row: row.cluster),
        *([("tok/s/user", _speed)] if len(speeds) != 1 else []),
        *([("GPUs", lambda row: f"{row.gpus:,}")] if len({row.gpus for row in found.rows}) > 1 else []),
        *((f"tok/s/{label}", partial(cell, by=by)) for by, (label, *_) in SHARES.items()),
        *money_columns(reached, found.bills.values())[:1],
        ("80% band", lambda row: (row.tok_s_per_gpu and range_words(row.tok_s_per_gpu, row.errors)) or "-"),
        *([("serving", lambda row: row.serving or "-")] if found.lengths else []),
        ("requests/s" if found.lengths else "total tok/s", whole),
    ).narrowed()


def _serving(found: Comparison) -> Iterator[str]:
    """Yield serving options besides the phase, by cluster if they differ."""
    words = {
        one.cluster.name: "; ".join(serving_words(one.workload, one.engine)) for one in found.deployments
    }
    if len({*words.values()}) == 1:
        yield from {*words.values()}
        return
    yield from (f"{name}: {text or 'no drafts'}" for name, text in words.items())


def _measured(rows: Sequence[CompareRow]) -> list[Block]:
    """Return how measured runs corrected each row, and which rankings they reversed."""
    reached = [row for row in rows if row.tok_s_per_gpu]
    near = [
        f"{row.cluster} {near_words(row.measured_factor, row.measured_runs)}" for row in compared_at(reached)
    ]
    turned = [
        f"without correction {slow.cluster} is ahead of {fast.cluster}"
        f"{f' at {fast.target_tok_s_per_user:g} tok/s/user' if fast.target_tok_s_per_user else ''}; measured runs on "
        f"{' and '.join(one.cluster for one in (fast, slow) if one.measured_factor != 1)} reverse the order"
        for fast in reached
        for slow in reached
        if fast.target_tok_s_per_user == slow.target_tok_s_per_user and _turned(fast, slow)
    ]
    return [*labelled("Measured", *near), *labelled("Order", *turned)]


def _turned(fast: CompareRow, slow: CompareRow) -> bool:
    ours, theirs = fast.tok_s_per_gpu or 0.0, slow.tok_s_per_gpu or 0.0
    return ours > theirs and ours * fast.measured_factor < theirs * slow.measured_factor


def _usual_words(rows: Sequence[CompareRow]) -> str:
    """Return the default speed at which clusters are compared."""
    at = f"{USUAL_TPOT.text}, {USUAL_TPOT.value * 1e3:g} ms per token"
    if rows[0].target_tok_s_per_user is None:
        return (
            f"each cluster runs the largest batch that fits, since none reaches {at} (default; --tok-s-user)"
        )
    return f"{at} (default; set --tok-s-user, or --tok-s-user none for the largest batch that fits)"


def _ordered(rows: Sequence[CompareRow]) -> list[CompareRow]:
    return sorted(rows, key=lambda row: row.target_tok_s_per_user or 0.0)


def row_table(rows: Sequence[CompareRow]) -> Table:
    """Return the table of all rows; a speed that a cluster cannot reach is ``unreachable``."""
    middle: tuple[tuple[str, Callable[[CompareRow], str]], ...] = (
        ("step ms", lambda row: "-" if row.step_s is None else f"{row.step_s * 1e3:.2f}"),
        ("batch", lambda row: "-" if row.batch is None else f"{row.batch:g}"),
        ("layout", lambda row: row.layout or "-"),
    )
    words = (0, 5, 6)
    if any(row.serving for row in rows):
        words = (0, 4, 6)
        middle = (
            ("TTFT s", lambda row: "-" if row.ttft_s is None else f"{row.ttft_s:.2f}"),
            ("serving", lambda row: row.serving or "-"),
            ("alternative", lambda row: "-" if row.instead is None else f"{row.instead:,.0f}"),
        )
        if any(row.loaded_requests_per_s for row in rows):
            words = (0, 5, 7)
            middle = (
                middle[0],
                ("req/s at p99", lambda row: rate_words(row.loaded_requests_per_s or 0.0)),
                *middle[1:],
            )
    return Table.of(
        _ordered(rows),
        ("cluster", lambda row: row.cluster),
        ("tok/s/user", _speed),
        (
            "tok/s/GPU",
            lambda row: "unreachable" if row.tok_s_per_gpu is None else f"{row.tok_s_per_gpu:,.0f}",
        ),
        *middle,
        ("bound by", lambda row: row.bound_by or "-"),
        words=words,
    )


def _speed(row: CompareRow) -> str:
    if row.target_tok_s_per_user:
        return f"{row.target_tok_s_per_user:g}"
    return "-" if row.tok_s_per_user is None else f"{row.tok_s_per_user:.1f}"


def _whole_words(found: Comparison) -> Iterator[str]:
    """Yield known cost and power of all GPUs of each cluster."""
    for name, bill in found.bills.items():
        usd = [] if bill.usd_per_hour is None else [f"{dollars(bill.usd_per_hour)} USD/h"]
        power = [] if bill.power_w is None else [f"{watts(bill.power_w)} {power_scope(bill)}"]
        yield from [f"{name} {', '.join([*usd, *power])}"] if usd or power else []


def reached_by_speed(rows: Sequence[CompareRow]) -> dict[float, list[CompareRow]]:
    """Return the rows that reach each speed; key 0 is the largest batch that fits."""
    reached: dict[float, list[CompareRow]] = {}
    for row in rows:
        if row.tok_s_per_gpu is not None:
            reached.setdefault(row.target_tok_s_per_user or 0.0, []).append(row)
    return reached


def compared_at(rows: Sequence[CompareRow]) -> list[CompareRow]:
    """Return the rows at the highest speed that the first cluster and another one reach; else any two, or one."""
    reached = reached_by_speed(rows)
    several = {speed: some for speed, some in reached.items() if len(some) > 1} or reached
    common = {s: some for s, some in several.items() if any(row.cluster == rows[0].cluster for row in some)}
    return reached[max(common or several)] if reached else []


MOST_SERVED = 60
"""Maximum points of whole requests on a frontier, evenly spaced."""


def _frontiers(found: Comparison) -> list[Block]:
    tokens, whole = found.deployments[0].workload.token_word, found.lengths is not None
    points: dict[str, list[LayoutPoint]] = {}
    measured: dict[str, list[MeasuredPoint]] = {}
    for one in found.deployments:
        name = one.cluster.name
        serving = found.servings.get(name)
        if serving is None:
            points[name] = [] if whole else layout_points(one, None)
        else:
            points[name] = serving_points(serving, thinned(serving.frontier(), MOST_SERVED))
        measured[name] = comparable_points(one, found.lengths)
    best = {name: frontier(mine) for name, mine in points.items()}
    cells = [(name, *cells_of(point)) for name, mine in best.items() for point in thinned(mine, MOST_ROWS)]
    what = "with one pool or two" if whole else "with perfectly balanced experts"
    stars = "rows of the table" if whole else "rows of the table, with placed experts"
    note = f"Best layouts and batches of each cluster up to its fastest point, {what}; stars: {stars}."
    ends = (
        f"{name} {mine[0].tok_s_per_gpu:,.0f} to {mine[-1].tok_s_per_gpu:,.0f} tok/s/GPU at up to "
        f"{mine[-1].tok_s_per_user:,.0f} tok/s/user"
        for name, mine in best.items()
        if mine
    )
    figure = frontier_chart(points, found.rows, tokens, measured)
    says = f"Frontier of each cluster: {'; '.join(ends) or 'no layout fits'}"
    rows = Table(("cluster", *COLUMNS), cells, words=(0, 1, 6))
    return [
        *beside_measured(
            Chart("frontiers", figure, says, HEIGHT), found.deployments, "disaggregated" if whole else ""
        ),
        Text(note, style="note"),
        Page([rows], fold="Frontiers as a table"),
    ]


def _steps(rows: Sequence[CompareRow]) -> list[Block]:
    """Return step time by part and HBM by use for each cluster."""
    scored: list[tuple[str, Score]] = [
        (row.cluster, row.score) for row in compared_at(rows) if row.score is not None
    ]
    if not scored:
        return []
    height = BAR * len(scored) + AROUND
    says = "; ".join(f"{name} {score.step_s * 1e3:,.1f} ms, {score.bound_by} binds" for name, score in scored)
    steps = steps_chart([(name, score.terms_s) for name, score in scored])
    memories = memories_chart([(name, score.hbm_bytes) for name, score in scored])
    table = Table.of(
        dict.fromkeys(term for _, score in scored for term in score.terms_s),
        ("part of the step, ms", lambda term: term.replace("_", " ")),
        *(
            (name, lambda term, score=score: f"{score.terms_s.get(term, 0.0) * 1e3:,.2f}")
            for name, score in scored
        ),
    )
    return [
        Heading("Step time and HBM use", 2),
        Chart("steps", steps, f"Step of each cluster by part: {says}", height),
        Chart("memories", memories, "HBM of the fullest GPU of each cluster by use", height),
        Page([table], fold="Steps as a table"),
    ]


def _drawings(drawings: Mapping[str, str]) -> list[Block]:
    pictures = [Page([Drawing(svg)], fold=name) for name, svg in drawings.items()]
    return [Heading("Clusters", 2, folded=True), *pictures] if pictures else []


def _grounds(found: Comparison, command: str) -> list[Block]:
    """Return the command and every input, and every figure with its source."""
    speeds = dict.fromkeys(row.target_tok_s_per_user for row in found.rows)
    inputs = [
        *(row for row in deployment_rows(found.deployments[0], found.loads) if row[0] != "cluster"),
        *(
            ("cluster", f"{one.cluster.name}: {plural(len(one.cluster.gpus), 'GPU')}")
            for one in found.deployments
        ),
        ("tok/s/user", ", ".join("largest batch" if one is None else f"{one:g}" for one in speeds)),
    ]
    figures = [used for one in found.deployments for used in deployment_figures(one)]
    bills = [one.bill for one in found.deployments]
    return [*inputs_section(command, inputs), *figures_section(figures, bills, [], [])]
