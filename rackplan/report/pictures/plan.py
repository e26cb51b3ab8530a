"""What a page shows of a plan: its place among all layouts, its step, memory, cluster, experts, and failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cost.serving.points import layout_points
from placement.plan import Plan
from rackplan.report.doc import Block, Note, Picture
from rackplan.report.frontier import frontier_chart, point_row
from rackplan.report.notes import baseline_name
from rackplan.report.pictures.experts import expert_map
from rackplan.report.pictures.memory import memory_picture
from rackplan.report.pictures.overlay import plan_overlay
from rackplan.report.pictures.step import step_picture
from rackplan.report.pictures.strips import balance_picture, failures_picture
from topology.draw import cluster_svg


def plan_pictures(plan: Plan, sides: Sequence[tuple[str, Plan]]) -> Iterator[Block]:
    """Yield what a page shows of a plan: its place among all layouts, step, memory, cluster, experts, failures."""
    deployment, short = plan.deployment, plan.layout.short(moe=plan.deployment.model.moe is not None)
    points = map(vars, layout_points(deployment, plan.request.copies))
    yield frontier_chart(points, [point_row(plan.score, layout=short)], [deployment], word="this plan")
    yield Note("Experts are taken as perfectly balanced, but in the plan.", kind="method")
    for role, side in sides:
        of, key = (f" of {role}", f"-{role}") if len(sides) > 1 else ("", "")
        for picture, title in (
            (step_picture(side), "Step"),
            (memory_picture(side), "HBM of the fullest GPU"),
        ):
            yield replace(picture, title=f"{title}{of}", key=f"{picture.key}{key}")
    cluster, experts = deployment.cluster, expert_map(plan)
    svg = cluster_svg(cluster, plan_overlay(plan))
    yield Picture("cluster", f"{cluster.name} with the plan on it", svg, title="Cluster and plan", scene=True)
    if experts is not None:
        yield replace(experts, title="Expert map")
    if plan.balancedness:
        others = {baseline_name(name): entry.balancedness for name, entry in plan.baselines.items()}
        drawn = {name: values for name, values in others.items() if values}
        yield replace(balance_picture({"plan": plan.balancedness, **drawn}), title="Balance of each layer")
    if plan.failures is not None and plan.failures.what_if:
        yield replace(
            failures_picture(plan.failures, plan.score.tok_s_per_gpu), title="Throughput after a failure"
        )
