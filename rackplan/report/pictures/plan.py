"""What a page shows of a plan: its place among all layouts, its step, memory, cluster, experts, and failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cost.serving.points import layout_points
from placement.plan import Plan
from rackplan.report.doc import Block, Chart, Layer, Note, Picture, Table
from rackplan.report.frontier import POINTS, frontier_chart
from rackplan.report.notes import UNITS, baseline_name
from rackplan.report.pictures.experts import expert_map
from rackplan.report.pictures.memory import memory_picture
from rackplan.report.pictures.overlay import drawn_plan
from rackplan.report.pictures.step import step_picture
from topology.base.units import mean_of
from topology.draw import cluster_svg


def plan_pictures(plan: Plan, sides: Sequence[tuple[str, Plan]]) -> Iterator[Block]:
    """Yield what a page shows of a plan: its place among all layouts, step, memory, cluster, experts, failures."""
    deployment, short = plan.deployment, plan.layout.short(moe=plan.deployment.model.moe is not None)
    points = map(vars, layout_points(deployment, plan.request.copies))
    yield frontier_chart(points, [POINTS.row(plan.score, None, layout=short)], [deployment], word="this plan")
    yield Note("Experts are taken as perfectly balanced, but in the plan.", kind="method")
    for role, side in sides:
        of, key = (f" of {role}", f"-{role}") if len(sides) > 1 else ("", "")
        for picture, title in (
            (step_picture(side), "Step"),
            (memory_picture(side.deployment, side.layout, side.score), "HBM of the fullest GPU"),
        ):
            yield replace(picture, title=f"{title}{of}", key=f"{picture.key}{key}")
    (cluster, overlay), experts = drawn_plan(plan), expert_map(plan)
    svg = cluster_svg(cluster, overlay)
    yield Picture("cluster", f"{cluster.name} with the plan on it", svg, title="Cluster and plan", scene=True)
    if experts is not None:
        yield replace(experts, title="Expert map")
    yield from _balance(plan)
    yield from _failures(plan)


def _balance(plan: Plan) -> Iterator[Chart]:
    """Yield balancedness by layer: of the plan, and of other placements."""
    placed = {"plan": plan.balancedness}
    placed |= {baseline_name(name): entry.balancedness for name, entry in plan.baselines.items()}
    rows = [(layer, value, name) for name, layers in placed.items() for layer, value in layers.items()]
    if rows:
        table = Table.of("", "layer balancedness placement")(rows)
        alt = "; ".join(
            f"{name}: {mean_of(layers.values()):.3f} on average, {min(layers.values()):.3f} at worst"
            for name, layers in placed.items()
            if layers
        )
        dots = Layer("point", table, "layer", "balancedness", "placement")
        yield Chart("Balance of each layer", [dots], alt=alt)


def _failures(plan: Plan) -> Iterator[Chart]:
    """Yield the throughput after each single failure that was tried, the worst first, beside that without one."""
    rates = {
        UNITS[row.unit]: (row.each.tok_s_per_gpu, row.each.names)
        for row in (plan.failures.what_if if plan.failures else ())
        if row.each.names
    }
    if not rates:
        return
    rows = [
        (rank, rate, unit, name)
        for unit, (remaining, names) in rates.items()
        for rank, (rate, name) in enumerate(sorted(zip(remaining, names, strict=True)), 1)
    ]
    intact = plan.score.tok_s_per_gpu
    ends = [(rank, intact, "", "") for rank in (1, max(rank for rank, *_ in rows))]
    table = Table.of("", "rank tok_s_per_gpu failure name")
    alt = "; ".join(
        f"without a {unit} {min(remaining) / intact:.0%} remain at worst"
        for unit, (remaining, _) in rates.items()
    )
    line = Layer("line", table(rows), "rank", "tok_s_per_gpu", "failure")
    none = Layer("rule", table(ends), "rank", "tok_s_per_gpu", name="no failure")
    yield Chart("Throughput after a failure", [line, none], alt=alt)
