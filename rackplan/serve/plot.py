"""What the page plots: the frontier of each cluster, runners-up, measured runs, and the best at the service level."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.calibration.errors import errors_in, widest
from cost.layouts import best_at
from cost.layouts.front import pareto
from rackplan.serve.commands import explore_command
from rackplan.serve.pricing import Side, explored, limits_s
from rackplan.serve.question import MOST_DRAFTS, Question
from rackplan.views.blocks import thinned
from rackplan.views.measured import ONE_POOL, POOLS, MeasuredPoint, measured_points
from rackplan.views.plotting import series
from rackplan.views.settings import set_words
from rackplan.views.words import cluster_doubts, factor_words, recipe_lines

MOST_POINTS = 240
"""Points of a frontier that are sent: more lie on one another on a screen."""
RUNNERS, RUNNER_POINTS = 6, 24
"""Layouts shown beside the frontier of one cluster, and points of each."""


def plot(question: Question) -> dict[str, Any]:
    """Return what the page draws: a frontier for each cluster, runners-up of one alone, measured runs, the command.

    Columns are arrays of one length; ``usd`` and ``mw`` are dollars per million tokens and tok/s per megawatt where
    one GPU makes one token a second: divided by it, and multiplied with it.

    Raises
    ------
    FieldError
        If something asked cannot be used: what, by field.
    """
    found = explored(question)
    first = found.sides[0].deployment
    tpot_s, _ = limits_s(question)
    dots: dict[str, dict[str, Any]] = {}
    for place, side in enumerate(found.sides):
        for dot in measured_points(side.deployment, POOLS if question.pools else ONE_POOL):
            dots.setdefault(dot.id, _dot(place, dot))
    many = len(found.sides) > 1
    recipes = recipe_lines(*(side.deployment for side in found.sides))
    said = (found.model.beyond(first.workload.context), *found.model.notes, *recipes)
    return {
        "model": found.model.name,
        "title": f"{found.model.name}, {_lengths(question)}",
        "clusters": [
            _side_data(side, tpot_s, runners=not many) | {"colour": colour}
            for side, colour in zip(found.sides, series(len(found.sides)), strict=True)
        ],
        "measured": list(dots.values()),
        "tpot_ms": None if tpot_s is None else tpot_s * 1e3,
        "usual_tpot": question.tpot_ms is None,
        "notes": found.notes,
        "said": [note for note in said if note],
        "command": explore_command(question, [side.deployment for side in found.sides]),
    }


def _dot(place: int, run: MeasuredPoint) -> dict[str, Any]:
    """Return a measured run, with what to ask for its conditions."""
    return {
        "cluster": place,
        "user": _short(run.tok_s_per_user),
        "gpu": _short(run.tok_s_per_gpu),
        "words": run.words,
        "source": run.source,
        "asked": {
            "isl": max(1, run.isl),
            "osl": max(1, run.osl),
            "weights": run.weights or None,
            "draft_tokens": min(run.drafts, MOST_DRAFTS),
            "pools": run.phase in POOLS,
        },
    }


def _lengths(question: Question) -> str:
    isl, osl = f"{question.isl:,}", f"{question.osl:,}"
    if question.pools:
        return f"prompts of {isl} and answers of {osl} tokens, prefill and decode pools"
    return f"decode at {question.context:,} tokens ({isl} + half of {osl})"


def _side_data(side: Side, tpot_s: float | None, *, runners: bool) -> dict[str, Any]:
    deployment, cluster = side.deployment, side.deployment.cluster
    bill, gpus = deployment.bill, len(cluster.gpus)
    data: dict[str, Any] = {
        "name": cluster.name,
        "gpus": gpus,
        "usd_per_h": bill.usd_per_hour,
        "power_w": bill.power_w,
        "usd": None if bill.usd_per_hour is None else bill.usd_per_hour / 3600 * 1e6 / gpus,
        "mw": None if bill.power_w is None else 1e6 * gpus / bill.power_w,
        "left_out": list(bill.missing),
        "doubt": cluster_doubts(cluster),
        "set": set_words(cluster),
        "reason": side.reason,
    }
    if side.reason:
        return data
    labels = _Labels(side)
    user, gpu = side.speeds
    edge = pareto(user, gpu)
    runner_up = _runners(side, edge) if runners else []
    errors = errors_in(deployment)
    near = widest(errors)
    data |= {
        "configurations": len(user),
        "frontier": labels.columns(np.array(thinned(edge.tolist(), MOST_POINTS))),
        "runners": [labels.columns(row) for row in runner_up],
        "runner_colours": series(len(runner_up) + 1)[1:],
        "factor": factor_words(errors),
        "band": None if near is None else near.band,
    }
    if tpot_s is not None:
        best = _best(side, 1 / tpot_s)
        data["best"] = None if best is None else labels.columns(np.array([best]))
    return data | {"layouts": list(labels.layouts), "bounds": list(labels.bounds)}


def _best(side: Side, target: float) -> int | None:
    """Return the configuration with most throughput of those as fast as ``target``."""
    if side.pools is None:
        return best_at(side.decoding, target)
    user, gpu = side.speeds
    fast = np.flatnonzero(user >= target * (1 - 1e-12))
    return int(fast[np.argmax(gpu[fast])]) if len(fast) else None


class _Labels:
    """Columns of points, with layouts and resources as numbers of a list that is sent once."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.layouts: dict[str, int] = {}
        self.bounds: dict[str, int] = {}

    def columns(self, rows: NDArray[np.int64]) -> dict[str, list[Any]]:
        """Return the points of ``rows``."""
        side, sweep = self._side, self._side.decoding
        user, gpu = side.speeds
        decode = side.in_sweep(rows)

        def places(known: dict[str, int], names: Iterable[str]) -> list[int]:
            return [known.setdefault(name, len(known)) for name in names]

        return {
            "user": [_short(value) for value in user[rows].tolist()],
            "gpu": [_short(value) for value in gpu[rows].tolist()],
            "batch": [float(f"{value:.6g}") for value in sweep.batch[decode].tolist()],
            "step": [_short(value * 1e3) for value in sweep.step_s[decode].tolist()],
            "layout": places(self.layouts, map(side.label, rows.tolist())),
            "bound": places(self.bounds, map(sweep.bound, decode.tolist())),
        }


def _runners(side: Side, edge: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the points of layouts that come nearest to the frontier but are seldom on it, a row for each."""
    if side.pools is not None:
        return []
    sweep = side.decoding
    user, gpu = side.speeds
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
        found.append(np.array(thinned(rows.tolist(), RUNNER_POINTS)))
        if len(found) == RUNNERS:
            break
    return found


def _short(value: float) -> float:
    """Return a figure with as many digits as a plot shows."""
    return float(f"{value:.5g}")
