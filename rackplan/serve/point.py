"""Details of one point of the plot: figures, step by part, HBM, and the order to plan it."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost.calibration.errors import errors_in
from cost.layouts import Sweep
from cost.layouts.contexts import context_widths
from cost.serving.serving import TWO_POOLS
from cost.step.score import Score
from placement.layouts.price import fitted_row
from rackplan.report.doc import Doc, Note, Picture, Record, Shape
from rackplan.report.pictures.memory import memory_picture
from rackplan.report.pictures.overlay import layout_overlay
from rackplan.report.pictures.step import waterfall
from rackplan.report.shared import band_row
from rackplan.report.sweep import configuration_rows, match_rows
from rackplan.serve.blocks import page_data
from rackplan.serve.commands import plan_command
from rackplan.serve.question import FieldError, PlanOrder, Point, PointRequest
from rackplan.serve.ways import Side, Way, explored
from topology.base.figures import Evidence
from topology.draw import cluster_svg

NOT_PLANNED = (
    "This configuration cannot be planned, since it slices experts or has fewer sequences than GPUs. The step shown "
    "is that of the sweep; choose another point to place experts."
)
BALANCED = "Experts are assumed perfectly balanced; place them to see the effect of uneven loads."


def point_data(request: PointRequest) -> dict[str, Any]:
    """Return the data that the page shows for a point: the nearest batch of its layout at the current settings.

    Raises
    ------
    FieldError
        If an input cannot be used, or nothing fits.
    """
    side, point = explored(request.asked)[0][request.point.cluster], request.point
    if side.reason:
        raise FieldError({f"clusters.{point.cluster}": side.reason})
    configuration = _nearest(side, point)
    name = side.deployment.cluster.name
    if configuration is None:
        return {"gone": f"{point.layout} does not fit {name} with the current settings."}
    way, row = configuration
    at = int(way.in_sweep(row))
    data = {
        "cluster": name,
        "layout": way.label(row),
        "batch": float(way.sweep.batch[at]),
        "moved": bool(abs(way.sweep.batch[at] / point.batch - 1) > 1e-4),
    }
    pictures, note, order = _inside(request, way, at)
    doc = Doc(POINT, way.label(row), [], [_figures(side, way, row), *pictures, Note(note)])
    return data | order | page_data(doc)


def _nearest(side: Side, point: Point) -> tuple[Way, int] | None:
    """Return the configuration of that layout with the nearest batch; None if there is none."""
    for way in side.ways.values():
        batch = way.sweep.batch[way.in_sweep(np.arange(len(way.speeds[0])))]
        nearest = np.argsort(np.abs(np.log(batch / point.batch)), kind="stable")
        row = next((row for row in nearest.tolist() if way.label(row) == point.layout), None)
        if row is not None:
            return way, row
    return None


FIGURES = Record.of(
    "",
    "tok_s_per_user tok_s_per_gpu low_tok_s_per_gpu high_tok_s_per_gpu tok_s step_s lower_step_s batch max_batch "
    "bound_by requests_per_s ttft_s gpus_used prefill_gpus",
)
POINT = Shape("point", "A configuration of a sweep.", (FIGURES,))


def _figures(side: Side, way: Way, row: int) -> Record:
    if way.matches is None or side.pools is None:
        (cells,) = configuration_rows(way.sweep, [row])
    else:
        (cells,) = match_rows(side.pools, [way.matches.row(row)])
    band = band_row(cells["tok_s_per_gpu"], errors_in(side.deployment, near=way.near(row)))
    return FIGURES(FIGURES.row(None, **cells, **band))


def _inside(request: PointRequest, way: Way, at: int) -> tuple[list[Picture], str, dict[str, Any]]:
    """Return the pictures of a configuration, what is to be known of it, and the order to plan it."""
    sweep, pooled = way.sweep, way.matches is not None
    fit = fitted_row(sweep, at)
    if fit is None:
        return [_terms(sweep, at)], NOT_PLANNED, {}
    score = fit.scorer.at(fit.batch)
    # the experts of pools are not counted as balanced, so theirs is the step of the sweep
    step = _terms(sweep, at) if pooled else waterfall(score)
    experts = sweep.deployment.model.moe is not None
    pictures = [step, memory_picture(sweep.deployment, fit.layout, score)]
    if pooled:
        return pictures, "", {"experts": experts}
    searched = len(context_widths(sweep.deployment, fit.layout.tp)) > 1
    order = PlanOrder(
        cluster=request.point.cluster,
        ep=fit.layout.ep if experts else None,
        tp=fit.layout.tp,
        stages=fit.layout.stages,
        dcp=fit.layout.dcp if searched else None,
        batch=fit.batch,
    )
    data = {
        "experts": experts,
        "order": order.model_dump(exclude={"loads", "seconds"}),
        "command": plan_command(request.asked, sweep.deployment, order),
    }
    return pictures, BALANCED if experts else "", data


def drawing(request: PointRequest) -> dict[str, Any]:
    """Return the cluster of a point as SVG, with the replica and the stage that each GPU belongs to."""
    side = explored(request.asked)[0][request.point.cluster]
    cluster, fit = side.deployment.cluster, None
    configuration = _nearest(side, request.point)
    if configuration is not None and configuration[0].name != TWO_POOLS:
        way, row = configuration
        fit = fitted_row(way.sweep, int(way.in_sweep(row)))
    overlay = None if fit is None else layout_overlay(fit.layout, len(cluster.gpus))
    return {"svg": cluster_svg(cluster, overlay)}


def _terms(sweep: Sweep, at: int) -> Picture:
    """Return the waterfall of a configuration of a sweep, of which the parts are known and not what binds each."""
    names = ("step_s", "lower_step_s", "tok_s_per_gpu", "tok_s_per_gpu_used", "tok_s_per_user")
    figures: dict[str, Any] = {name: float(getattr(sweep, name)[at]) for name in names}
    return waterfall(
        Score(
            **figures,
            parts_s={(name, ""): float(seconds[at]) for name, seconds in sweep.terms_s.items()},
            floor_s={},
            hbm_bytes={},
            batch=0,
            max_batch=0,
            evidence=Evidence.ASSUMED,
            tokens_per_step=sweep.deployment.workload.tokens_per_step,
        )
    )
