"""The page of a comparison: which cluster, by how much and how surely; then why, cluster beside cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cost.calibration.errors import widest
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.money.bill import Totals
from cost.step.score import Score
from placement.analysis.compare import CompareRow
from rackplan.views.blocks import Block, Chart, Drawing, Heading, Items, Page, Table, Text
from rackplan.views.charts import frontier_chart, memories_chart, speed_chart, steps_chart
from rackplan.views.compare import (
    LEGEND,
    compare_verdict,
    error_rows,
    money_table,
    reached_by_speed,
    row_table,
    row_totals,
    speed_to_compare,
)
from rackplan.views.evidence import deployment_figures
from rackplan.views.forward import bound_words, machine_words, price, summary, summary_blocks
from rackplan.views.measured import MeasuredPoint, measured_points
from rackplan.views.money import bill_blocks, dollars, rate_words
from rackplan.views.pareto import HEIGHT, measured_fold
from rackplan.views.points import ReportPoint, frontier, report_points
from rackplan.views.provenance import deployment_rows, figures_section, inputs_section
from rackplan.views.settings import set_blocks
from rackplan.views.words import doubts
from topology.base.units import plural

BAR = 46
"""Pixels of a bar of one cluster, and of what is around the bars."""
AROUND = 130


def compare_page(
    rows: Sequence[CompareRow],
    deployments: Sequence[Deployment],
    loads: ExpertLoads | None,
    *,
    command: str,
    drawings: Mapping[str, str] | None = None,
) -> list[Block]:
    """Return the page of a comparison.

    ``deployments`` has each cluster with the model and the workload, ``drawings`` the SVG file of each by its name.
    """
    first = deployments[0]
    tokens, bills = first.workload.token_word, {one.cluster.name: one.bill for one in deployments}
    reasons = {
        (row.cluster, row.reason): f"{row.cluster}: {row.reason}" for row in rows if row.tok_s_per_gpu is None
    }
    sizes = {len(one.cluster.gpus) for one in deployments}
    of = f" of {plural(sizes.pop(), 'GPU')}" if len(sizes) == 1 else ""
    return [
        Heading(f"{first.model.name} on {plural(len(deployments), 'cluster')}{of}"),
        *compare_lines(rows, deployments),
        Text(compare_verdict(rows, tokens), style="verdict"),
        *_ranking(rows, deployments),
        Items(list(reasons.values())),
        *_frontiers(deployments, rows, tokens),
        *_steps(rows),
        Heading("At the same speed for the user", 2),
        Chart(
            "speeds", speed_chart(rows, tokens), f"{tokens} tok/s/GPU of each cluster by speed per user", 400
        ),
        Page(
            [
                row_table(rows),
                Text(
                    f"{tokens.capitalize()} tokens; tok/s/GPU over all GPUs of a cluster, ratio at the same speed to "
                    f"{rows[0].cluster}; {LEGEND}",
                    style="note",
                ),
            ],
            fold="Every row",
        ),
        Heading("What it costs", 2),
        *bill_blocks(bills),
        Page([money_table(rows, bills, first.workload)], fold="Costs as a table"),
        *_pictures(drawings or {}),
        *_grounds(rows, deployments, loads, command),
    ]


def compare_lines(rows: Sequence[CompareRow], deployments: Sequence[Deployment]) -> list[Block]:
    """Return the summary that is sent on: the cheapest cluster, and how near the next one is."""
    ranked = _ranked(rows, deployments)
    if not ranked:
        return [Text("No cluster reaches a required speed.", style="forward")]
    row, one, totals = ranked[0]
    which = "Cheapest" if totals.usd_per_million_tokens is not None else "Most tokens"
    speed = f" at {row.target_tok_s_per_user:g} tok/s/user" if row.target_tok_s_per_user else ""
    bound = row.bound_by or "" if row.score is None else bound_words(row.score)
    return summary_blocks(
        [
            (which, f"{row.cluster}{speed}"),
            *summary(machine_words(one.cluster), totals, row.errors, bound),
            ("Next", _second(ranked)),
        ]
    )


_Ranked = tuple[CompareRow, Deployment, Totals]


def _ranked(rows: Sequence[CompareRow], deployments: Sequence[Deployment]) -> list[_Ranked]:
    """Return the clusters that reach the speed compared at, cheapest token first."""
    reached = reached_by_speed(rows)
    if not reached:
        return []
    where = {one.cluster.name: one for one in deployments}
    bills = {name: one.bill for name, one in where.items()}
    found = [
        (row, where[row.cluster], row_totals(row, bills, where[row.cluster].workload))
        for row in reached[speed_to_compare(rows)]
    ]
    if all(totals.usd_per_million_tokens is not None for _, _, totals in found):
        return sorted(found, key=lambda one: (one[2].usd_per_million_tokens or 0.0, one[0].cluster))
    return sorted(found, key=lambda one: (-(one[0].tok_s_per_gpu or 0.0), one[0].cluster))


def _second(ranked: Sequence[_Ranked]) -> str:
    """Return the next one, and whether it is nearer to the first than both are known."""
    if len(ranked) < 2:
        return ""
    (first, _, ours), (second, _, theirs) = ranked[:2]
    if ours.usd_per_million_tokens is None or theirs.usd_per_million_tokens is None:
        ratio = (first.tok_s_per_gpu or 0.0) / (second.tok_s_per_gpu or 1.0)
        text = f"Next is {second.cluster} with {second.tok_s_per_gpu or 0.0:,.0f} tok/s/GPU"
    else:
        ratio = theirs.usd_per_million_tokens / ours.usd_per_million_tokens
        text = f"Next is {second.cluster}: {price(theirs)}"
    band = max((one.band for one in map(widest, (first.errors, second.errors)) if one), default=None)
    if band is None:
        return f"{text}, {ratio:.2f} times as much." if ratio else ""
    verdict = "closer than the factor: not decided" if ratio < band else "further than the factor"
    return f"{text}, a ratio of {ratio:.2f}: {verdict}."


def _ranking(rows: Sequence[CompareRow], deployments: Sequence[Deployment]) -> list[Block]:
    """Return the clusters in their order with what decides, narrow enough for a phone."""
    ranked = _ranked(rows, deployments)
    if not ranked:
        return []

    def factor(one: _Ranked) -> str:
        found = widest(one[0].errors)
        return "unknown" if found is None else f"{found.band:.2f}"

    def usd(one: _Ranked) -> str:
        each = one[2].usd_per_million_tokens
        return "-" if each is None else dollars(each)

    def per_mw(one: _Ranked) -> str:
        each = one[2].tok_s_per_mw
        return "-" if each is None else rate_words(each)

    table = Table.of(
        ranked,
        ("cluster", lambda one: one[0].cluster),
        ("$/Mtok", usd),
        ("tok/s/GPU", lambda one: f"{one[0].tok_s_per_gpu or 0.0:,.0f}"),
        ("tok/s/MW", per_mw),
        ("factor", factor),
        words=(0,),
    )
    return [table]


def _frontiers(deployments: Sequence[Deployment], rows: Sequence[CompareRow], tokens: str) -> list[Block]:
    points = {one.cluster.name: report_points(one, None) for one in deployments}
    measured: dict[str, list[MeasuredPoint]] = {
        one.cluster.name: measured_points(one) if one.workload.decodes else [] for one in deployments
    }
    columns = ("cluster", *ReportPoint.COLUMNS)
    cells = [(cluster, *point.cells) for cluster, mine in points.items() for point in frontier(mine)]
    note = (
        "The best of all layouts and batches of each cluster down to its fastest point, experts taken as perfectly "
        "balanced; stars: the rows above, experts as placed."
    )
    runs = list({run.id: run for mine in measured.values() for run in mine}.values())
    if runs:
        note += " Ringed dots: runs of this model on such chips, measured by others at lengths of their own."
    ends = [
        f"{name} {best[0].tok_s_per_gpu:,.0f} to {best[-1].tok_s_per_gpu:,.0f} tok/s/GPU up to "
        f"{best[-1].tok_s_per_user:,.0f} tok/s/user"
        for name, mine in points.items()
        if (best := frontier(mine))
    ]
    chart = frontier_chart(points, rows, tokens, measured)
    return [
        Heading("Throughput against speed per user", 2),
        Chart("frontiers", chart, f"Frontier of each cluster: {'; '.join(ends) or 'no layout fits'}", HEIGHT),
        Text(note, style="note"),
        Page([Table(columns, cells, words=(0, 1, 6))], fold="The frontiers as a table"),
        *measured_fold(runs),
    ]


def _steps(rows: Sequence[CompareRow]) -> list[Block]:
    """Return where the step of each cluster goes, and what is in its HBM."""
    reached = reached_by_speed(rows)
    if not reached:
        return []
    scored: list[tuple[str, Score]] = [
        (row.cluster, row.score) for row in reached[speed_to_compare(rows)] if row.score is not None
    ]
    if not scored:
        return []
    height = BAR * len(scored) + AROUND
    says = "; ".join(f"{name} {score.step_s * 1e3:,.1f} ms, {score.bound_by} binds" for name, score in scored)
    names = list(dict.fromkeys(term for _, score in scored for term in score.terms_s))
    table = Table(
        ("part of the step, ms", *(name for name, _ in scored)),
        [
            (name.replace("_", " "), *(f"{score.terms_s.get(name, 0.0) * 1e3:,.2f}" for _, score in scored))
            for name in names
        ],
    )
    return [
        Heading("Where a step goes, and what fills HBM", 2),
        Chart(
            "steps",
            steps_chart([(name, score.terms_s) for name, score in scored]),
            f"Step of each cluster by part: {says}",
            height,
        ),
        Chart(
            "memories",
            memories_chart([(name, score.hbm_bytes) for name, score in scored]),
            "HBM of the fullest GPU of each cluster by use",
            height,
        ),
        Page([table], fold="The steps as a table"),
    ]


def _pictures(drawings: Mapping[str, str]) -> list[Block]:
    if not drawings:
        return []
    return [
        Heading("The clusters", 2),
        *(Page([Drawing(svg)], fold=name) for name, svg in drawings.items()),
    ]


def _grounds(
    rows: Sequence[CompareRow], deployments: Sequence[Deployment], loads: ExpertLoads | None, command: str
) -> list[Block]:
    first = deployments[0]
    by_cluster = {row.cluster: row for row in rows if row.evidence} or {row.cluster: row for row in rows}
    evidence = [(name, row.evidence or "-", doubts(row.status) or "-") for name, row in by_cluster.items()]
    asked = list(dict.fromkeys(row.target_tok_s_per_user for row in rows))
    speeds = ", ".join("as much as fits" if speed is None else f"{speed:g}" for speed in asked)
    inputs = [
        *(row for row in deployment_rows(first, loads) if row[0] != "cluster"),
        *(("cluster", f"{one.cluster.name}: {plural(len(one.cluster.gpus), 'GPU')}") for one in deployments),
        ("tok/s/user", speeds),
    ]
    figures = [used for one in deployments for used in deployment_figures(one)]
    notes = ["The loads are synthetic: nobody measured them."] if loads and loads.synthetic else []
    return [
        *inputs_section(command, inputs),
        *set_blocks("Set", *(one.cluster for one in deployments)),
        *figures_section(figures, [one.bill for one in deployments], notes, []),
        Page(
            [Table(("cluster", "weakest evidence", "note"), evidence, words=(0, 1, 2)), *error_rows(rows)],
            fold="How far off each cluster may be",
        ),
    ]
