"""What a page shows of a plan: its place among all layouts, its step, memory, cluster, experts, and failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from cost.serving.points import frontier, layout_points
from cost.validation.measured import comparable_points
from placement.plan import Plan
from rackplan.report.doc import Block, Chart, Layer, Note, Picture, Row, Table
from rackplan.report.notes import baseline_name
from rackplan.report.pictures.experts import expert_map
from rackplan.report.pictures.memory import memory_picture
from rackplan.report.pictures.overlay import plan_overlay
from rackplan.report.pictures.step import step_picture
from rackplan.report.pictures.strips import balance_picture, failures_picture
from topology.draw import cluster_svg

_FRONT = "layout batch tok_s_per_user tok_s_per_gpu step_s bound_by"
FRONT = Table.of("frontier", _FRONT)


def plan_pictures(plan: Plan, sides: Sequence[tuple[str, Plan]]) -> Iterator[Block]:
    """Yield what a page shows of a plan: its place among all layouts, step, memory, cluster, experts, failures."""
    yield from plan_front(plan, "" if len(sides) == 1 else f", {sides[-1][0]} alone")
    for role, side in sides:
        of, key = (f" of {role}", f"-{role}") if len(sides) > 1 else ("", "")
        for picture, title in (
            (step_picture(side), "Step"),
            (memory_picture(side), "HBM of the fullest GPU"),
        ):
            yield replace(picture, title=f"{title}{of}", key=f"{picture.key}{key}")
    cluster, experts = plan.deployment.cluster, expert_map(plan)
    svg = cluster_svg(cluster, plan_overlay(plan))
    yield Picture("cluster", f"{cluster.name} with the plan on it", svg, title="Cluster and plan", scene=True)
    if experts is not None:
        yield replace(experts, title="Expert map")
    layers = {
        "plan": plan.balancedness,
        **{name: entry.balancedness for name, entry in plan.baselines.items()},
    }
    if plan.balancedness:
        drawn = {baseline_name(name): values for name, values in layers.items() if values}
        yield replace(balance_picture(drawn), title="Balance of each layer")
    if plan.failures is not None and plan.failures.what_if:
        yield replace(
            failures_picture(plan.failures, plan.score.tok_s_per_gpu), title="Throughput after a failure"
        )


def plan_front(plan: Plan, of: str) -> Iterator[Block]:
    """Yield the plan among all layouts, with measured runs at its conditions."""
    points, runs = layout_points(plan.deployment, plan.request.copies), comparable_points(plan.deployment)
    mine = {key: getattr(plan.score, key) for key in _FRONT.split()[1:]}
    published = ({**dict.fromkeys(_FRONT.split()), **vars(run), "layout": run.words} for run in runs)
    marks: tuple[tuple[Any, str, Iterable[Row]], ...] = (
        ("point", "other layouts", map(vars, points)),
        ("line", "frontier", map(vars, frontier(points))),
        ("ring", "measured runs", published),
        (
            "star",
            "this plan",
            [{**mine, "layout": plan.layout.short(moe=plan.deployment.model.moe is not None)}],
        ),
    )
    layers = [
        Layer(mark, FRONT(rows), "tok_s_per_user", "tok_s_per_gpu", name=name) for mark, name, rows in marks
    ]
    yield Chart(f"Throughput against speed per user{of}", layers, log="xy", height=460)
    yield Note("Layouts other than the plan are priced with perfectly balanced experts.", kind="method")
