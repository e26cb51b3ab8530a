"""Throughput against speed per user, as a section of a page: the frontier, its runners-up, measured runs."""

from __future__ import annotations

from collections.abc import Sequence

from placement.plan import Plan
from rackplan.views.blocks import Block, Chart, Page, Table, Text, thinned
from rackplan.views.charts import pareto_chart
from rackplan.views.measured import beside_measured, comparable_points
from rackplan.views.points import ReportPoint, frontier, report_points

MOST_ROWS = 24
"""Points of a frontier that a page lists."""
HEIGHT = 480


def plan_pareto(plan: Plan) -> list[Block]:
    """Return the picture of a plan among all layouts, and its measured runs beside their predictions."""
    deployment = plan.deployment
    tokens = deployment.workload.token_word
    points = report_points(deployment, plan.request.copies)
    layout = plan.layout.short(moe=deployment.model.moe is not None)
    chart = pareto_chart(points, tokens, (layout, plan.score), comparable_points(deployment))
    return [
        *beside_measured(Chart("pareto", chart, says(points, tokens), HEIGHT), [deployment]),
        Text(note(tokens, "the star is this plan with its experts as placed"), style="note"),
        frontier_fold(points),
    ]


def says(points: Sequence[ReportPoint], tokens: str) -> str:
    """Return the chart in a sentence, for whoever does not see it."""
    best = frontier(points)
    head = f"{tokens.capitalize()} tok/s/GPU against {tokens} tok/s/user, layouts in a colour each"
    if not best:
        return f"{head}: no layout fits"
    most, fast = best[0], best[-1]
    return (
        f"{head}: from {most.tok_s_per_gpu:,.0f} tok/s/GPU at {most.tok_s_per_user:,.1f} tok/s/user ({most.layout}) "
        f"to {fast.tok_s_per_gpu:,.0f} at {fast.tok_s_per_user:,.1f} ({fast.layout})"
    )


def note(tokens: str, star: str) -> str:
    """Return what the marks are."""
    return (
        f"{tokens.capitalize()} tokens, over all GPUs; experts taken as perfectly balanced"
        f"{'; ' + star if star else ''}. Layout: EP and TP width, PP stages, x replicas."
    )


def frontier_fold(points: Sequence[ReportPoint]) -> Block:
    """Return the frontier as a table, folded."""
    best = thinned(frontier(points), MOST_ROWS)
    rows = Table(ReportPoint.COLUMNS, [point.cells for point in best], "On the frontier", words=(0, 5))
    return Page([rows] if best else [Text("No layout fits.")], fold="The frontier as a table")
