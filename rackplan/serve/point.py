"""Details of one point of the plot: figures, step by part, HBM, and the order to plan it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cost.calibration.errors import ErrorOf, errors_in
from cost.layouts import Sweep
from cost.serving.serving import TWO_POOLS
from cost.step.score import Score
from placement.layouts.price import fitted_row
from rackplan.report.doc import Picture
from rackplan.report.notes import range_words
from rackplan.report.pictures.memory import memory_of
from rackplan.report.pictures.overlay import layout_overlay
from rackplan.report.pictures.step import waterfall
from rackplan.serve.commands import plan_command
from rackplan.serve.plot import PHASES
from rackplan.serve.question import AskedPoint, FieldError, PlanOrder, Point
from rackplan.serve.ways import Side, Way, explored
from topology.base.figures import Evidence
from topology.draw import cluster_svg

NOT_PLANNED = (
    "This configuration cannot be planned, since it slices experts or has fewer sequences than GPUs. The "
    "step shown is "
    "that of the sweep; choose another point to place experts."
)
BALANCED = "Experts are assumed perfectly balanced; place them to see the effect of uneven loads."
_ORDERED = ("ep", "tp", "stages", "batch")


def point_data(asked: AskedPoint) -> dict[str, Any]:
    """Return the data that the page shows for a point: the nearest batch of its layout at the current settings.

    Raises
    ------
    FieldError
        If an input cannot be used, or nothing fits.
    """
    side, point = explored(asked.asked).sides[asked.point.cluster], asked.point
    if side.reason:
        raise FieldError({f"clusters.{point.cluster}": side.reason})
    found = _found(side, point)
    name = side.deployment.cluster.name
    if found is None:
        return {"gone": f"{point.layout} does not fit {name} with the current settings."}
    way, row = found
    at = int(way.in_sweep(row))
    data = {
        "cluster": name,
        "layout": way.label(row),
        "batch": float(way.sweep.batch[at]),
        "moved": bool(abs(way.sweep.batch[at] / point.batch - 1) > 1e-4),
        "figures": _figures(side, way, row),
    }
    return data | _inside(asked, way, at)


def _found(side: Side, point: Point) -> tuple[Way, int] | None:
    """Return the configuration of that layout with the nearest batch; None if there is none."""
    for way in side.ways.values():
        batch = way.sweep.batch[way.in_sweep(np.arange(len(way.speeds[0])))]
        nearest = np.argsort(np.abs(np.log(batch / point.batch)), kind="stable")
        row = next((row for row in nearest.tolist() if way.label(row) == point.layout), None)
        if row is not None:
            return way, row
    return None


def _figures(side: Side, way: Way, row: int) -> list[dict[str, Any]]:
    deployment, at = side.deployment, int(way.in_sweep(row))
    match = None if way.matches is None else way.matches.row(row)
    sweep = way.sweep.rows([at])
    if match is not None:
        sweep = way.sweep.run([at], np.array([match.step_batch]), np.array([match.batch]))
    user, gpu = (float(values[row]) for values in way.speeds)
    errors = errors_in(deployment, phase=PHASES[way.name])
    rows = [
        *speed_rows("tok/s", user, gpu, gpu * len(deployment.cluster.gpus), errors),
        *step_rows(float(sweep.step_s[0]), float(sweep.lower_step_s[0])),
        ("sequences per GPU", float(sweep.batch[0]), f"{sweep.batch[0]:,.4g}"),
        ("largest batch that fits", float(sweep.max_batch[0]), f"{sweep.max_batch[0]:,.4g}"),
        ("bound by", None, sweep.bound(0)),
    ]
    if match is not None:
        rows += [
            ("requests/s", match.requests_per_s, f"{match.requests_per_s:,.3g}"),
            ("first token, ms", match.ttft_s * 1e3, f"{match.ttft_s * 1e3:,.0f}"),
            ("GPUs in use", match.gpus_used, f"{match.gpus_used:,}"),
        ]
        if not match.one_pool:
            rows.append(("prefill GPUs", match.prefill_gpus, f"{match.prefill_gpus:,}"))
    return figure_list(rows)


Row = tuple[str, float | None, str]
"""A figure: name, value for differences, and text."""


def figure_list(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return figures as shown on the page."""
    return [{"what": what, "value": value, "said": text} for what, value, text in rows]


def speed_rows(word: str, user: float, gpu: float, every: float, errors: Sequence[ErrorOf]) -> list[Row]:
    """Return speed, throughput per GPU with its range, and total throughput ``every``; ``word`` is the unit."""
    band = range_words(gpu, errors)
    return [
        (f"{word} per user", user, f"{user:,.1f}"),
        (f"{word} per GPU", gpu, f"{gpu:,.0f}"),
        *([("80% range of tok/s per GPU", None, band)] if band else []),
        ("total tok/s", every, f"{every:,.0f}"),
    ]


def step_rows(step_s: float, lower_step_s: float) -> list[Row]:
    """Return the step time and its lower bound."""
    return [
        ("step, ms", step_s * 1e3, f"{step_s * 1e3:,.2f}"),
        ("lower bound of step, ms", lower_step_s * 1e3, f"{lower_step_s * 1e3:,.2f}"),
    ]


def _inside(asked: AskedPoint, way: Way, at: int) -> dict[str, Any]:
    """Return the pictures of a configuration, and the order to plan it."""
    sweep, whole = way.sweep, way.matches is not None
    fit = fitted_row(sweep, at)
    if fit is None:
        return {"pictures": [picture_data(_terms(sweep, at))], "note": NOT_PLANNED}
    score = fit.scorer.at(fit.batch)
    # the experts of pools are not counted as balanced, so theirs is the step of the sweep
    step = _terms(sweep, at) if whole else waterfall(score)
    experts = sweep.deployment.model.moe is not None
    data: dict[str, Any] = {
        "pictures": [
            picture_data(one) for one in (step, memory_of(sweep.deployment, fit.layout, fit.slots, score))
        ],
        "experts": experts,
        "note": BALANCED if experts and not whole else "",
    }
    if not whole:
        order = PlanOrder(
            cluster=asked.point.cluster,
            ep=fit.layout.ep if experts else None,
            tp=fit.layout.tp,
            stages=fit.layout.stages,
            batch=fit.batch,
        )
        data["order"] = {"cluster": order.cluster, **{name: getattr(order, name) for name in _ORDERED}}
        data["command"] = plan_command(asked.asked, sweep.deployment, order)
    return data


def drawing(asked: AskedPoint) -> dict[str, Any]:
    """Return the cluster of a point as SVG, with the replica and the stage that each GPU belongs to."""
    side = explored(asked.asked).sides[asked.point.cluster]
    cluster, fit = side.deployment.cluster, None
    found = _found(side, asked.point)
    if found is not None and found[0].name != TWO_POOLS:
        way, row = found
        fit = fitted_row(way.sweep, int(way.in_sweep(row)))
    overlay = None if fit is None else layout_overlay(fit.layout, len(cluster.gpus))
    return {"svg": cluster_svg(cluster, overlay)}


def _terms(sweep: Sweep, at: int) -> Picture:
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


def picture_data(picture: Picture) -> dict[str, Any]:
    """Return a picture as the page shows it: an SVG, or the data that a script draws."""
    shown = {"data": picture.data} if picture.data else {"svg": picture.drawn}
    return {"name": picture.key, "says": picture.alt, **shown}
