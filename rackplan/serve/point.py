"""One point of the plot in detail: its figures, the step by part, HBM, and how a plan of it is made."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost.calibration.errors import errors_in
from cost.layouts import Sweep
from cost.step.score import Score
from placement.layouts.fitting import Fitted, fitted_layouts
from rackplan.serve.asked import Asked, FieldError, PlanOrder, Point
from rackplan.serve.command import plan_command
from rackplan.serve.plot import label_of
from rackplan.serve.pricing import Side, explored, may_be_planned
from rackplan.views.blocks import Diagram, ExpertMap
from rackplan.views.money import dollars, rate_words
from rackplan.views.overlay import layout_overlay
from rackplan.views.pictures.memory import memory_of
from rackplan.views.pictures.step import waterfall
from rackplan.views.words import range_words
from topology.base.figures import Evidence
from topology.draw import cluster_svg

NOT_PLANNED = (
    "No plan has this configuration: it cuts experts into parts, or has fewer sequences than GPUs. Its step is that "
    "of the sweep; choose another point to place experts."
)

BALANCED = "Experts perfectly balanced: place them to see what loads make of it."


def point_data(asked: Asked, point: Point) -> dict[str, Any]:
    """Return what the page shows of a point: the nearest batch of its layout that there is under what is asked.

    Raises
    ------
    FieldError
        If something asked cannot be used, or nothing fits.
    """
    found = explored(asked)
    side = found.sides[point.cluster]
    if side.reason:
        raise FieldError({f"clusters.{point.cluster}": side.reason})
    row = _row(side, point)
    if row is None:
        name = side.deployment.cluster.name
        return {"gone": f"{point.layout} does not fit {name} under what is asked now."}
    assert side.sweep is not None  # noqa: S101 - there is no reason why not
    at = row if side.pools is None else int(side.pools.matches.decode[row])
    data = {
        "cluster": side.deployment.cluster.name,
        "layout": label_of(side, row),
        "batch": float(side.sweep.batch[at]),
        "moved": bool(abs(side.sweep.batch[at] / point.batch - 1) > 1e-4),
        "figures": _figures(side, row, at),
    }
    return data | _inside(asked, point, side, at)


def _row(side: Side, point: Point) -> int | None:
    """Return the configuration of that layout nearest in batch, None where there is none."""
    assert side.sweep is not None  # noqa: S101 - there is no reason why not
    user, _ = side.speeds
    decode = np.arange(len(user)) if side.pools is None else side.pools.matches.decode
    batch = side.sweep.batch[decode]
    nearest = np.argsort(np.abs(np.log(batch / point.batch)), kind="stable")
    return next((row for row in nearest.tolist() if label_of(side, row) == point.layout), None)


def _figures(side: Side, row: int, at: int) -> list[dict[str, Any]]:
    """Return the figures of a point: what, the number for differences, and how it is said."""
    sweep, deployment = side.sweep, side.deployment
    assert sweep is not None  # noqa: S101 - there is no reason why not
    user, gpu = (float(values[row]) for values in side.speeds)
    gpus = len(deployment.cluster.gpus)
    totals = deployment.bill.totals(gpu * gpus)
    errors = errors_in(deployment)
    rows: list[tuple[str, float | None, str]] = [
        ("tok/s per user", user, f"{user:,.1f}"),
        ("tok/s per GPU", gpu, f"{gpu:,.0f}"),
    ]
    if band := range_words(gpu, errors):
        rows.append(("80% range of tok/s per GPU", None, band))
    rows.append(("tok/s of all GPUs", totals.tok_s, f"{totals.tok_s:,.0f}"))
    if totals.usd_per_million_tokens is not None:
        rows.append(
            ("$ per million tokens", totals.usd_per_million_tokens, dollars(totals.usd_per_million_tokens))
        )
    if totals.tok_s_per_mw is not None:
        rows.append(("tok/s per MW", totals.tok_s_per_mw, rate_words(totals.tok_s_per_mw)))
    step, lower = float(sweep.step_s[at]) * 1e3, float(sweep.lower_step_s[at]) * 1e3
    rows += [
        ("step, ms", step, f"{step:,.2f}"),
        ("step at best, ms", lower, f"{lower:,.2f}"),
        ("sequences per GPU", float(sweep.batch[at]), f"{sweep.batch[at]:,.4g}"),
        ("most that fit", float(sweep.max_batch[at]), f"{sweep.max_batch[at]:,.4g}"),
        ("bound by", None, sweep.bound(at)),
    ]
    if side.pools is not None:
        match = side.pools.matches.row(row)
        rows += [
            ("first token, ms", match.ttft_s * 1e3, f"{match.ttft_s * 1e3:,.0f}"),
            ("GPUs that prefill", match.prefill_gpus, f"{match.prefill_gpus:,}"),
            ("GPUs that decode", match.decode_gpus, f"{match.decode_gpus:,}"),
        ]
    return [{"what": what, "value": value, "said": said} for what, value, said in rows]


def _inside(asked: Asked, point: Point, side: Side, at: int) -> dict[str, Any]:
    """Return the pictures of a configuration, and the plan to order."""
    sweep = side.sweep
    assert sweep is not None  # noqa: S101 - there is no reason why not
    fit = _fitted(sweep, at)
    if fit is None:
        return {"pictures": [picture_data(_terms(sweep, at))], "note": NOT_PLANNED}
    score = fit.scorer.at(fit.batch)
    # the experts of pools are not counted as balanced, so theirs is the step of the sweep
    step = _terms(sweep, at) if asked.pools else waterfall(score)
    pictures = [step, memory_of(sweep.deployment, fit.layout, fit.slots, score)]
    experts = side.deployment.model.moe is not None
    order = PlanOrder(
        point.cluster, fit.layout.ep if experts else None, fit.layout.tp, fit.layout.stages, fit.batch
    )
    data: dict[str, Any] = {
        "pictures": [picture_data(one) for one in pictures],
        "experts": experts,
        "note": BALANCED if experts and not asked.pools else "",
        "kind": f"weakest figure: {score.evidence.label}",
    }
    if not asked.pools:
        data["order"] = {"cluster": point.cluster, **{name: getattr(order, name) for name in _ORDERED}}
        data["command"] = plan_command(asked, point.cluster, side.deployment, order)
    return data


def drawing(asked: Asked, point: Point) -> dict[str, Any]:
    """Return the cluster of a point as SVG, with the replica and the stage that each GPU belongs to."""
    side = explored(asked).sides[point.cluster]
    cluster = side.deployment.cluster
    row = None if side.reason else _row(side, point)
    fit = None
    if row is not None and side.sweep is not None:
        at = row if side.pools is None else int(side.pools.matches.decode[row])
        fit = _fitted(side.sweep, at)
    overlay = None if fit is None or side.pools is not None else layout_overlay(fit.layout, len(cluster.gpus))
    return {"svg": cluster_svg(cluster, overlay)}


_ORDERED = ("ep", "tp", "stages", "batch")


def _fitted(sweep: Sweep, at: int) -> Fitted | None:
    """Return the layout of a configuration, with the slots of its GPUs; None of one that no plan has."""
    if not may_be_planned(sweep, at):
        return None
    deployment = sweep.deployment.with_batch(int(sweep.batch[at]))
    arrangement = sweep.variants[sweep.layout[at]].arrangement
    offered = fitted_layouts(deployment, None, "gpu", [arrangement])
    return next((fit for fit in offered if fit.layout.tp == int(sweep.tp[at])), None)


def _terms(sweep: Sweep, at: int) -> Diagram:
    """Return the waterfall of a configuration of a sweep, of which the parts are known and not what binds each."""
    parts = {(name, ""): float(seconds[at]) for name, seconds in sweep.terms_s.items()}
    score = Score(
        step_s=float(sweep.step_s[at]),
        lower_step_s=float(sweep.lower_step_s[at]),
        tok_s_per_gpu=float(sweep.tok_s_per_gpu[at]),
        tok_s_per_gpu_used=float(sweep.tok_s_per_gpu_used[at]),
        tok_s_per_user=float(sweep.tok_s_per_user[at]),
        parts_s=parts,
        floor_s={},
        hbm_bytes={},
        batch=0,
        max_batch=0,
        evidence=Evidence.ASSUMED,
        tokens_per_step=sweep.deployment.workload.tokens_per_step,
    )
    return waterfall(score)


def picture_data(picture: Diagram | ExpertMap) -> dict[str, Any]:
    """Return a picture as the page shows it: an SVG, or the data that a script draws."""
    if isinstance(picture, Diagram):
        return {"name": picture.name, "svg": picture.svg, "says": picture.says}
    return {"name": picture.name, "data": picture.data, "says": picture.says}
