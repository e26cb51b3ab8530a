"""Results as Python shows them: views as HTML, drawings as SVG, figures as a frame, reports as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topology.base.errors import InputError

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from placement.analysis.compare import CompareRow
    from placement.analysis.levers import Levers
    from placement.plan import Plan
    from rackplan.views.blocks import Block, View
    from rackplan.views.compare import Comparison
    from rackplan.views.validate import Validation
    from topology.cluster import Cluster
    from topology.draw import Overlay


def html(result: object) -> str | None:
    """Return the view of a result as a piece of HTML; None where there is none."""
    from rackplan.render.html import fragment

    view = view_of(result)
    return None if view is None else fragment(view.blocks, svg(result) or "")


def svg(result: object) -> str | None:
    """Return the drawing of a cluster, or of a plan's with the plan on it; None of others."""
    from placement.migrate.replan import Replanned
    from placement.plan import Plan
    from rackplan.views.overlay import plan_overlay
    from topology.cluster import Cluster

    shown = result.plan if isinstance(result, Replanned) else result
    if not isinstance(shown, Cluster | Plan):
        return None
    if isinstance(shown, Plan):
        return drawing(shown.deployment.cluster, plan_overlay(shown))
    return drawing(shown)


def drawing(cluster: Cluster, overlay: Overlay | None = None) -> str:
    """Return the SVG file of a cluster, with what each GPU does on it."""
    from topology.draw import cluster_svg

    return cluster_svg(cluster, overlay)


def text(result: object) -> str:
    """Return the view of a result as lines; empty where there is none."""
    from rackplan.render.text import text_lines

    view = view_of(result)
    return "" if view is None else "\n".join(text_lines(view.blocks))


def draw_on(result: Cluster | Plan, path: Path, level: str = "auto") -> None:
    """Draw a cluster, or a plan's with the plan on it, into a file.

    Raises
    ------
    InputError
        If it cannot be drawn or written.
    """
    from placement.plan import Plan
    from rackplan.views.overlay import plan_overlay
    from topology.draw import draw_cluster

    if isinstance(result, Plan):
        draw_cluster(result.deployment.cluster, path, level=level, overlay=plan_overlay(result))
    else:
        draw_cluster(result, path, level=level)


def frame(result: object) -> Any:
    """Return the rows of a result as a pandas ``DataFrame``.

    Raises
    ------
    InputError
        If pandas is not installed, or such a result has no rows.
    """
    found = rows_of(result)
    if found is None:
        name = type(result).__name__
        raise InputError(
            f"{name} has no rows; only plans, sweeps, comparisons, simulations, levers, validations and studies have."
        )
    try:
        import pandas as pd
    except ImportError:
        raise InputError("to_frame() needs pandas: pip install pandas.") from None
    return pd.DataFrame(found)


def view_of(result: object) -> View | None:
    """Return what a command says of such a result; None where no command does."""
    for kind, view in _views().items():
        if isinstance(result, kind):
            return view(result)
    return None


def _views() -> Mapping[type, Callable[[Any], View]]:
    from cost.layouts import Sweep
    from cost.serving.sizing import Size
    from placement.analysis.levers import Levers
    from placement.fleet.fleet import Fleet
    from placement.migrate.replan import Replanned, ReplanOptions
    from placement.plan import Plan
    from rackplan.studies.result import StudyResult
    from rackplan.views.compare import Comparison, compare_view
    from rackplan.views.fleet import fleet_view
    from rackplan.views.levers import levers_view
    from rackplan.views.plan import plan_view
    from rackplan.views.pools import Pools
    from rackplan.views.replan import replan_view
    from rackplan.views.replay import Replayed, replay_view
    from rackplan.views.simulate import Simulated, simulate_view
    from rackplan.views.size import Sizes, size_view
    from rackplan.views.study import study_view
    from rackplan.views.sweep import sweep_view
    from rackplan.views.validate import Validation, validate_view

    return {
        Plan: lambda plan: plan_view(plan, {}),
        Replanned: lambda found: replan_view(found, ReplanOptions(), {}),
        Comparison: compare_view,
        Sweep: sweep_view,
        Replayed: replay_view,
        Pools: sweep_view,
        Size: size_view,
        Sizes: size_view,
        Simulated: simulate_view,
        Levers: levers_view,
        Validation: lambda one: validate_view([one]),
        StudyResult: lambda found: study_view(found, {}),
        Fleet: lambda fleet: fleet_view(fleet, {}),
    }


def rows_of(result: object) -> Any:
    """Return the table of a result: columns by name, or a mapping a row; None where it has none.

    Of a plan a row is a slot: layer, slot, GPU, expert, and how many copies that has.
    """
    from cost.layouts import Sweep
    from placement.analysis.levers import Levers
    from placement.plan import Plan
    from rackplan.studies.result import StudyResult
    from rackplan.views.compare import Comparison
    from rackplan.views.simulate import Simulated
    from rackplan.views.validate import Validation

    if isinstance(result, Sweep | Simulated):
        return result.columns()
    if isinstance(result, StudyResult):
        return result.rows
    if isinstance(result, Comparison):
        return [_row(result, row) for row in result.rows]
    if isinstance(result, Validation | Levers):
        return _listed(result)
    return _slots(result) if isinstance(result, Plan) else None


def _row(compared: Comparison, row: CompareRow) -> dict[str, Any]:
    totals = compared.totals(row)
    figures = {one.name: getattr(row, one.name) for one in fields(row) if one.name not in ("errors", "score")}
    return figures | {
        "tok_s": totals.tok_s,
        "usd_per_h": totals.usd_per_hour,
        "power_w": totals.power_w,
        "usd_per_million_tokens": totals.usd_per_million_tokens,
        "tok_s_per_mw": totals.tok_s_per_mw,
    }


def _listed(result: Validation | Levers) -> list[dict[str, Any]]:
    """Return points beside their predictions, or levers with what each brings as the layout is kept."""
    from rackplan.views.data import json_data
    from rackplan.views.validate import Validation

    if isinstance(result, Validation):
        return [json_data(row) for row in result.rows]
    return [
        {
            "lever": row.name,
            "kind": row.kind,
            "change": row.change,
            "to": row.to,
            "gain": row.gain if row.gain > -1 else None,
        }
        for row in result.rows
    ]


def _slots(plan: Any) -> dict[str, Any]:
    import numpy as np

    parts: list[tuple[Any, ...]] = []
    model, cluster = plan.deployment.model, plan.deployment.cluster
    ids = np.array([gpu.id for gpu in cluster.gpus])
    for stage, (place, experts) in enumerate(zip(plan.layout.replicas[0], plan.experts, strict=True)):
        if experts is None:
            continue
        layers = np.array([layer for layer in place.layers if layer in set(model.moe_layers)])
        rows, slots = experts.slot_expert.shape
        gpu = np.array(place.gpus)[experts.slot_gpu]
        copies = np.take_along_axis(experts.copies, experts.slot_expert.astype(np.int64), axis=1)
        parts.append(
            (
                np.full(rows * slots, stage),
                np.repeat(layers, slots),
                np.tile(np.arange(slots), rows),
                np.tile(ids[gpu], rows),
                experts.slot_expert.ravel(),
                copies.ravel(),
            )
        )
    names = ("stage", "layer", "slot", "gpu", "expert", "copies")
    return (
        {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}
        if parts
        else {name: [] for name in names}
    )


def page_of(result: object, command: str = "") -> str:
    """Return the self-contained page of a result; of one that has none of its own, the page of its view.

    ``command`` made it; empty: it was made from Python.

    Raises
    ------
    InputError
        If nothing is said of such a result.
    """
    from rackplan.render.html import page

    command = command or f"rackplan.write_report(<{type(result).__name__}>, 'report.html')"

    for kind, make in _pages().items():
        if isinstance(result, kind):
            return page(make(result, command))
    view = view_of(result)
    if view is None:
        raise InputError(f"{type(result).__name__}: no report is available for this type.")
    return page(view.blocks)


def _pages() -> Mapping[type, Callable[[Any, str], Sequence[Block]]]:
    """Return what makes the page of each kind of result, of the result and the command that makes it again."""
    from cost.layouts import Sweep
    from placement.fleet.fleet import Fleet
    from placement.migrate.replan import Replanned
    from placement.plan import Plan
    from rackplan.studies.result import StudyResult
    from rackplan.views.compare import Comparison, compare_blocks
    from rackplan.views.fleet import fleet_blocks, fleet_overlay
    from rackplan.views.plan import plan_blocks
    from rackplan.views.pools import Pools
    from rackplan.views.replan import replan_section
    from rackplan.views.replay import Replayed, replay_blocks
    from rackplan.views.simulate import Simulated, simulate_blocks
    from rackplan.views.study import study_blocks
    from rackplan.views.sweep import sweep_blocks, sweeps_of

    def of_plan(plan: Plan, command: str, **more: Any) -> Sequence[Block]:
        return plan_blocks(plan, drawing=svg(plan) or "", command=command, **more)

    def of_sweep(found: Sweep | Pools, command: str) -> Sequence[Block]:
        drawings = _drawn(one.deployment for one in sweeps_of(found))
        return sweep_blocks(found, command=command, drawings=drawings)

    return {
        Comparison: lambda one, command: compare_blocks(
            one, command=command, drawings=_drawn(one.deployments)
        ),
        Sweep: of_sweep,
        Pools: of_sweep,
        Fleet: lambda fleet, command: fleet_blocks(
            fleet, command=command, drawing=drawing(fleet.cluster, fleet_overlay(fleet))
        ),
        Replanned: lambda found, command: of_plan(found.plan, command, first=replan_section(found)),
        Plan: of_plan,
        Replayed: replay_blocks,
        Simulated: simulate_blocks,
        StudyResult: study_blocks,
    }


def _drawn(deployments: Iterable[Deployment]) -> dict[str, str]:
    """Return the SVG file of each cluster by its name."""
    return {one.cluster.name: drawing(one.cluster) for one in deployments}
