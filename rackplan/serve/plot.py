"""What the page plots: the frontier of each cluster, runners-up, measured runs, and the best at the service level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.calibration.errors import errors_in, widest
from cost.inputs.deployment import Deployment
from cost.layouts.front import pareto
from cost.money.prices import PRICE_BASES, PriceBook
from cost.serving.serving import ONE_POOL, TWO_POOLS
from rackplan.serve.commands import explore_command
from rackplan.serve.pricing import Side, Way, explored, limits_s, model_of
from rackplan.serve.question import MOST_DRAFTS, Question
from rackplan.views.blocks import thinned
from rackplan.views.measured import MeasuredPoint, measured_points
from rackplan.views.plotting import series
from rackplan.views.pools import turns_words
from rackplan.views.settings import set_words
from rackplan.views.words import cluster_doubts, factor_words, recipe_lines
from topology.base.errors import MissingFigureError
from topology.spec import GpuSpec

MOST_POINTS = 240
"""Points of a frontier that are sent: more lie on one another on a screen."""
RUNNERS, RUNNER_POINTS = 6, 24
"""Layouts shown beside the frontier of one cluster, and points of each."""


def plot(question: Question) -> dict[str, Any]:
    """Return what the page draws: a frontier for each cluster, runners-up of one alone, measured runs, the command.

    Columns are arrays of one length. Money is the page's own: it is given the GPUs that are paid for, at the prices
    of each basis and the powers that the catalog has.

    Raises
    ------
    FieldError
        If something asked cannot be used: what, by field.
    """
    found = explored(question)
    first = found.sides[0].deployment
    tpot_s, _ = limits_s(question)
    many = len(found.sides) > 1
    measured, others = _measured(question, found.sides)
    recipes = recipe_lines(*(side.deployment for side in found.sides))
    said = (
        found.model.beyond(first.workload.context),
        *found.model.notes,
        *recipes,
        _not_of_command(question),
    )
    return {
        "model": found.model.name,
        "title": f"{found.model.name}, {_lengths(question)}",
        "clusters": [
            _side_data(side, tpot_s, runners=not many) | {"colour": colour}
            for side, colour in zip(found.sides, series(len(found.sides)), strict=True)
        ],
        "measured": measured,
        "others": others,
        "tpot_ms": None if tpot_s is None else tpot_s * 1e3,
        "usual_tpot": question.tpot_ms is None,
        "osl": question.osl if question.whole else None,
        "notes": found.notes,
        "said": [note for note in said if note],
        "command": explore_command(question, [side.deployment for side in found.sides]),
    }


PHASES = {"decode": "decode", ONE_POOL: "aggregated", TWO_POOLS: "disaggregated"}
"""Phase of measured runs that are served each way."""
_WAYS = {"better": "one pool or two"}


def _measured(question: Question, sides: Sequence[Side]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return measured runs under what is asked, and other lengths, formats and drafts under which there are some."""
    dots: dict[str, dict[str, Any]] = {}
    others: dict[str, dict[str, Any]] = {}
    for place, side in enumerate(sides):
        work, model = side.deployment.workload, side.deployment.model
        for run in measured_points(side.deployment):
            if run.drafts > MOST_DRAFTS or not run.isl or run.id in dots:
                continue  # the page cannot ask for it, or has it
            asked = _conditions(run)
            whole = asked["serving"] != "decode"
            alike = (
                question.serving in (asked["serving"], "better" if whole else "")
                and (not whole or (run.isl, run.osl) == (question.isl, question.osl))
                and (whole or run.isl + run.osl // 2 == question.context)
                and run.drafts == work.draft_tokens
                and model_of(question.model, run.weights or None).precision == model.precision
            )
            if alike:
                dots[run.id] = {
                    "cluster": place,
                    "user": _short(run.tok_s_per_user),
                    "gpu": _short(run.tok_s_per_gpu),
                    "words": run.words,
                    "source": run.source,
                    "asked": asked,
                }
            else:
                words = f"{asked['serving']}, {run.isl:,} + {run.osl:,}, {run.weights or 'checkpoint'}"
                words += f", {run.drafts} drafted" if run.drafts else ""
                others.setdefault(words, {"words": words, "runs": 0, "asked": asked})["runs"] += 1
    return list(dots.values()), [others[words] for words in sorted(others)]


def _conditions(run: MeasuredPoint) -> dict[str, Any]:
    """Return what to ask for the conditions of a run."""
    return {
        "isl": run.isl,
        "osl": max(1, run.osl),
        "weights": run.weights or None,
        "draft_tokens": run.drafts,
        "serving": next(way for way, phase in PHASES.items() if run.phase == phase),
    }


def _lengths(question: Question) -> str:
    isl, osl = f"{question.isl:,}", f"{question.osl:,}"
    what = f"decode alone at {question.context:,} tokens ({isl} + half of {osl})"
    if question.whole:
        what = f"whole requests of {isl} + {osl} tokens, {_WAYS.get(question.serving, question.serving)}"
    return ", ".join([what, *_widths(question)])


def _not_of_command(question: Question) -> str:
    """Return what the command to copy cannot ask for."""
    if not _widths(question):
        return ""
    return f"{' and '.join(_widths(question))} of GPUs that decode, or of one pool; the command prices all widths"


def _widths(question: Question) -> list[str]:
    return [
        f"{name.upper()} {width}" for name in ("tp", "ep") if (width := getattr(question, name)) is not None
    ]


def _side_data(side: Side, tpot_s: float | None, *, runners: bool) -> dict[str, Any]:
    deployment, cluster = side.deployment, side.deployment.cluster
    names = [part.name for part in deployment.bill.gpu_parts]
    data: dict[str, Any] = {
        "name": cluster.name,
        "gpus": len(cluster.gpus),
        "bill": _bill(deployment),
        "left_out": [
            one
            for one in deployment.bill.missing
            if not any(one.startswith(f"{name}: no ") for name in names)
        ],
        "doubt": cluster_doubts(cluster),
        "set": set_words(cluster),
        "reason": side.reason,
    }
    if side.reason:
        return data
    best = None if tpot_s is None else side.best(1 / tpot_s)
    shown = (best[0] if best else side.shown[0]).name
    errors = errors_in(deployment, phase=PHASES[shown])
    near = widest(errors)
    lines: dict[str, Rows] = {"frontier": thinned(_frontier(side.shown), MOST_POINTS)}
    if best is not None:
        lines["best"] = [best]
    rivals: dict[str, Rows] = {}
    if side.serving is None:
        (way,) = side.shown
        for row in _runners(way) if runners else []:
            rivals[way.sweep.label(int(row[0]))] = [(way, at) for at in thinned(row.tolist(), RUNNER_POINTS)]
    else:
        for way in side.ways.values():
            at = way.best(0.0 if tpot_s is None else 1 / tpot_s)
            lines |= {} if at is None else {f"best of {way.name}": [(way, at)]}
            if runners and side.drawn != (way.name,):
                rivals[way.name] = [(way, row) for row in thinned(way.frontier.tolist(), MOST_POINTS)]
        data |= {"turns": turns_words(side.serving), "refused": side.serving.refused}
    points, layouts, bounds = _columns(lines | rivals)
    if side.serving is not None:
        at_limit = [{"name": name, "points": points.get(f"best of {name}")} for name in side.ways]
        data["ways"] = [one for one in at_limit if one["points"]]
    return data | {
        "configurations": sum(len(way.speeds[0]) for way in side.shown),
        "frontier": points["frontier"],
        "runners": [{"name": name, "points": points[name]} for name in rivals],
        "runner_colours": series(len(rivals) + 1)[1:],
        "factor": factor_words(errors),
        "band": None if near is None else near.band,
        "best": points.get("best"),
        "layouts": layouts,
        "bounds": bounds,
    }


def _bill(deployment: Deployment) -> list[dict[str, Any]]:
    """Return what is paid for and draws power: GPUs, at prices by basis, and the network where it is not theirs."""
    gpus = {domain.gpu.name: domain.gpu for domain in deployment.cluster.spec.domains}

    def price(basis: str, gpu: GpuSpec) -> float | None:
        try:
            return PriceBook(basis).price(gpu).value
        except MissingFigureError:
            return None

    return [
        {
            "name": part.name,
            "count": part.count,
            "usd": {basis: price(basis, gpus[part.name]) for basis in PRICE_BASES}
            if part.name in gpus
            else {},
            "power_w": None if part.power_w is None else part.power_w.value,
            "all_in": part.all_in,
            "gpu": part.name in gpus,
        }
        for part in deployment.bill.parts
    ]


Rows = Sequence[tuple[Way, int]]
"""Configurations of several ways."""


def _frontier(ways: Sequence[Way]) -> Rows:
    """Return the configurations of any of the ways that none beats, slowest per user first."""
    rows = [(way, row) for way in ways for row in way.frontier.tolist()]
    user, gpu = (np.array([way.speeds[kind][row] for way, row in rows]) for kind in (0, 1))
    return [rows[at] for at in pareto(user, gpu).tolist()]


def _columns(lines: Mapping[str, Rows]) -> tuple[dict[str, dict[str, list[Any]]], list[str], list[str]]:
    """Return the points of each line; and the layouts and resources, which points have as numbers of these lists.

    ``step`` and ``ttft`` are milliseconds, ``ttft`` None of decode alone.
    """
    layouts: dict[str, int] = {}
    bounds: dict[str, int] = {}
    points: dict[tuple[str, int], tuple[Any, ...]] = {}
    every = [one for rows in lines.values() for one in rows]
    for way in {way.name: way for way, _ in every}.values():
        which = np.unique([row for one, row in every if one is way])
        sweep = way.sweep.rows(way.in_sweep(which))  # what binds is found of these alone, and once
        first = None if way.matches is None else (way.matches.prefill_s + way.matches.transfer_s)[which]
        for at, row in enumerate(which.tolist()):
            points[way.name, row] = (
                _short(float(way.speeds[0][row])),
                _short(float(way.speeds[1][row])),
                float(f"{sweep.batch[at]:.6g}"),
                _short(float(sweep.step_s[at]) * 1e3),
                None if first is None else _short(float(first[at]) * 1e3),
                layouts.setdefault(way.label(row), len(layouts)),
                bounds.setdefault(sweep.bound(at), len(bounds)),
            )
    names = ("user", "gpu", "batch", "step", "ttft", "layout", "bound")
    found = {
        line: dict(
            zip(
                names, map(list, zip(*(points[way.name, row] for way, row in rows), strict=True)), strict=True
            )
        )
        for line, rows in lines.items()
    }
    return found, list(layouts), list(bounds)


def _runners(way: Way) -> list[NDArray[np.int64]]:
    """Return the points of layouts that come nearest to the frontier but are seldom on it, a row for each."""
    sweep, edge = way.sweep, way.frontier
    user, gpu = way.speeds
    keys = np.stack([sweep.layout, sweep.tp, sweep.moe_tp])
    layout = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    rival = edge[np.minimum(np.searchsorted(user[edge], user), len(edge) - 1)]
    loss = np.full(int(layout.max(initial=-1)) + 1, np.inf)
    np.minimum.at(loss, layout, gpu[rival] / gpu)
    on_edge = np.bincount(layout[edge], minlength=len(loss))
    order = np.lexsort((loss, -on_edge))
    found: list[NDArray[np.int64]] = []
    seen: set[str] = set()
    for key in order.tolist():
        rows = np.flatnonzero(layout == key)
        rows = rows[np.argsort(user[rows], kind="stable")]
        name = sweep.label(int(rows[0]))
        if len(rows) < 2 or name in seen:
            continue
        seen.add(name)
        found.append(rows)
        if len(found) == RUNNERS:
            break
    return found


def _short(value: float) -> float:
    """Return a figure with as many digits as a plot shows."""
    return float(f"{value:.5g}")
