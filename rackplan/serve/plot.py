"""Data of the plot: frontiers by cluster and serving mode, measured runs, and the best at the service level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from cost.calibration.errors import errors_in, widest
from cost.inputs.deployment import Deployment
from cost.layouts.front import pareto
from cost.money.prices import PRICE_BASES, PriceBook
from cost.serving.serving import ONE_POOL, TWO_POOLS
from cost.validation.measured import measured_points
from rackplan.report.colours import series
from rackplan.report.notes import cluster_doubts, recipe_lines, set_words, turns_words
from rackplan.report.shared import accuracy_sentence
from rackplan.report.text import thinned
from rackplan.serve.commands import explore_command
from rackplan.serve.pricing import model_of
from rackplan.serve.question import MAX_DRAFTS, Question
from rackplan.serve.ways import Side, Way, explored
from topology.base.errors import MissingFigureError

MAX_POINTS = 240
"""Maximum points of a frontier that are sent; more would overlap on a screen."""


def plot(question: Question) -> dict[str, Any]:
    """Return the plot data: frontiers of each cluster or serving mode, measured runs and the command.

    Columns are arrays of one length. Money is the page's own: it is given the GPUs that are paid for, at the prices
    of each basis and the powers that the catalog has.

    Raises
    ------
    FieldError
        If something asked cannot be used: what, by field.
    """
    sides, notes = explored(question)
    deployment = sides[0].deployment
    tpot_s, model = question.tpot_s, deployment.model
    measured, settings = _measured(question, sides)
    recipes = recipe_lines(*(side.deployment for side in sides))
    remarks = [model.beyond(deployment.workload.context), *model.notes, *recipes]
    remarks += [f"{width}: {_ONLY_HERE}" for width in _widths(question)]
    return {
        "model": model.name,
        "title": f"{model.name}, {_lengths(question)}",
        "clusters": [
            _side_data(side, tpot_s, alone=len(sides) == 1) | {"colour": colour}
            for side, colour in zip(sides, series(len(sides)), strict=True)
        ],
        "measured": measured,
        "others": settings,
        "tpot_ms": None if tpot_s is None else tpot_s * 1e3,
        "usual_tpot": question.tpot_ms is None,
        "osl": question.osl if question.whole else None,
        "notes": notes,
        "said": [note for note in remarks if note],
        "command": explore_command(question, [side.deployment for side in sides]),
    }


PHASES = {"decode": "decode", ONE_POOL: "aggregated", TWO_POOLS: "disaggregated"}
"""Phase of measured runs by serving mode."""
_ONLY_HERE = "applies to the decode pool, or to one pool; the command prices all widths"


def _measured(question: Question, sides: Sequence[Side]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return measured runs at the current settings, and other settings that have measured runs."""
    dots: dict[str, dict[str, Any]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for place, side in enumerate(sides):
        work, model = side.deployment.workload, side.deployment.model
        for run in measured_points(side.deployment):
            row, drafts = run.row, run.row.draft_tokens
            if drafts > MAX_DRAFTS or not run.isl or row.id in dots:
                continue  # the page cannot ask for it, or has it
            way = next(way for way, phase in PHASES.items() if row.phase == phase)
            fields = {"serving": way, "isl": run.isl, "osl": max(1, row.osl), "weights": row.weights or None}
            fields["draft_tokens"] = drafts
            both_phases = way != "decode"
            alike = (
                question.serving in (way, "better" if both_phases else way)
                and (not both_phases or (run.isl, row.osl) == (question.isl, question.osl))
                and (both_phases or run.isl + row.osl // 2 == question.context)
                and drafts == work.draft_tokens
                and model_of(question.model, row.weights or None).precision == model.precision
            )
            if alike:
                dots[row.id] = {
                    "cluster": place,
                    "user": _short(run.tok_s_per_user),
                    "gpu": _short(run.tok_s_per_gpu),
                    "words": run.words,
                    "source": row.source,
                    "asked": fields,
                }
            else:
                drafted = f", {drafts} drafted" if drafts else ""
                words = f"{way}, {run.isl:,} + {row.osl:,}, {row.weights or 'checkpoint'}{drafted}"
                setting = {"words": words, "runs": 0, "asked": fields}
                settings.setdefault(words, setting)["runs"] += 1
    return list(dots.values()), [settings[words] for words in sorted(settings)]


def _lengths(question: Question) -> str:
    isl, osl = f"{question.isl:,}", f"{question.osl:,}"
    text = f"decode only at {question.context:,} tokens of context ({isl} + half of {osl})"
    if question.whole:
        way = "one pool or two" if question.serving == "better" else question.serving
        text = f"whole requests of {isl} + {osl} tokens, {way}"
    return ", ".join([text, *_widths(question)])


def _widths(question: Question) -> list[str]:
    return [
        f"{name.upper()} {width}" for name in ("tp", "ep") if (width := getattr(question, name)) is not None
    ]


def _side_data(side: Side, tpot_s: float | None, *, alone: bool) -> dict[str, Any]:
    deployment, cluster = side.deployment, side.deployment.cluster
    lacks = tuple(f"{part.name}: no " for part in deployment.bill.gpu_parts)  # which the page says itself
    data: dict[str, Any] = {
        "name": cluster.name,
        "gpus": len(cluster.gpus),
        "bill": _bill(deployment),
        "left_out": [entry for entry in deployment.bill.missing if not entry.startswith(lacks)],
        "doubt": cluster_doubts(cluster),
        "set": set_words(cluster),
        "reason": side.reason,
    }
    if side.reason:
        return data
    best = None if tpot_s is None else side.best(1 / tpot_s)
    errors = errors_in(deployment) if best is None else errors_in(deployment, near=best[0].near(best[1]))
    error = widest(errors)
    lines: dict[str, Rows] = {"frontier": thinned(_frontier(side.shown), MAX_POINTS, even=True)}
    if best is not None:
        lines["best"] = [best]
    rivals: dict[str, Rows] = {}
    for way in side.ways.values() if side.pools is not None else ():
        at = way.best(0.0 if tpot_s is None else 1 / tpot_s)
        lines |= {} if at is None else {f"best of {way.name}": [(way, at)]}
        if alone and side.drawn != (way.name,):
            rivals[way.name] = [(way, row) for row in thinned(way.frontier.tolist(), MAX_POINTS, even=True)]
    points, layouts, bounds = _columns(lines | rivals)
    if side.pools is not None:
        at_limit = [{"name": name, "points": points.get(f"best of {name}")} for name in side.ways]
        able = (entry for entry in at_limit if entry["points"])
        data["ways"] = sorted(able, key=lambda entry: -entry["points"]["gpu"][0])
        serving = side.pools.serving
        data |= {"turns": turns_words(serving.turns()), "refused": serving.refused}
    return data | {
        "configurations": sum(len(way.speeds[0]) for way in side.shown),
        "frontier": points["frontier"],
        "rivals": [{"name": name, "points": points[name]} for name in rivals],
        "rival_colours": series(len(rivals) + 1)[1:],
        "factor": accuracy_sentence(errors),
        "band": None if error is None else error.band,
        "best": points.get("best"),
        "layouts": layouts,
        "bounds": bounds,
    }


def _bill(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the parts with cost and power: GPUs, with prices by basis, and the network if not included."""
    usd: dict[str, dict[str, float]] = {}
    for gpu in {domain.gpu for domain in deployment.cluster.spec.domains}:
        usd[gpu.name] = {}
        for basis in PRICE_BASES:
            with suppress(MissingFigureError):
                usd[gpu.name][basis] = PriceBook(basis).price(gpu).value
    return [
        {
            "name": part.name,
            "count": part.count,
            "usd": usd.get(part.name),
            "power_w": None if part.power_w is None else part.power_w.value,
            "all_in": part.all_in,
        }
        for part in deployment.bill.parts
    ]


Rows = Sequence[tuple[Way, int]]
"""Configurations of several serving modes."""


def _frontier(ways: Sequence[Way]) -> Rows:
    """Return the Pareto-optimal configurations of all serving modes, slowest per user first."""
    rows = [(way, row) for way in ways for row in way.frontier.tolist()]
    user, gpu = (np.array([way.speeds[kind][row] for way, row in rows]) for kind in (0, 1))
    return [rows[at] for at in pareto(user, gpu).tolist()]


def _columns(lines: Mapping[str, Rows]) -> tuple[dict[str, dict[str, list[Any]]], list[str], list[str]]:
    """Return the points of each line, and the lists of layouts and resources that points index.

    ``step`` and ``ttft`` are milliseconds; ``ttft`` is None for decode only.
    """
    layouts: dict[str, int] = {}
    bounds: dict[str, int] = {}
    points: dict[tuple[Way, int], dict[str, Any]] = {}
    shown = dict.fromkeys(point for rows in lines.values() for point in rows)
    for way in dict.fromkeys(way for way, _ in shown):
        rows = [row for owner, row in shown if owner is way]
        sweep = way.sweep.rows(way.in_sweep(np.array(rows)))  # what binds is found of these alone, and once
        for at, row in enumerate(rows):
            match = None if way.matches is None else way.matches.row(row)
            points[way, row] = {
                "user": _short(way.speeds[0][row]),
                "gpu": _short(way.speeds[1][row]),
                "batch": float(f"{sweep.batch[at]:.6g}"),
                "step": _short(sweep.step_s[at] * 1e3),
                "ttft": match and _short(match.ttft_s * 1e3),
                "layout": layouts.setdefault(way.label(row), len(layouts)),
                "bound": bounds.setdefault(sweep.bound(at), len(bounds)),
            }
    columns = {
        line: {name: [points[point][name] for point in rows] for name in points[rows[0]]}
        for line, rows in lines.items()
    }
    return columns, list(layouts), list(bounds)


def _short(value: Any) -> float:
    """Return a figure with as many digits as a plot shows."""
    return float(f"{value:.5g}")
