"""Measured frontiers: the best tokens/s per GPU at each speed, beside what the model's own layouts reach there."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from cost.calibration.correction import PHYSICS, Correction
from cost.layouts.batches import batch_grid
from cost.layouts.deployable import deployable_stage
from cost.layouts.front import pareto
from cost.validation.predict import (
    Array,
    Prediction,
    at_batch,
    domain_of,
    fitting,
    gpus_of,
    group_points,
    label_of,
    legal_pools,
    prefill_alone,
    unpredictable,
    values_of,
)
from cost.validation.read import Point, Pool
from cost.validation.statistics import Errors, errors_of
from topology.files.resolve import resolve_cluster

OPEN_LAYOUT = Pool(tp=0, attention_dp=0, ep=0, moe_tp=0, workers=0, best=True)
_NO_TIME = 1e-9  # ms: no layout is as fast
STEPS_PER_OCTAVE = 2
"""Numbers of requests priced between one and its double; between them a layout's curve is interpolated."""
CHOSEN_FIELDS = ("engine", "draft_tokens", "accept_length", "drafts_recorded", "kv_dtype")
"""What is chosen with the layout, among what ran; an engine as of its newest run."""
WIDTH_FIELDS = ("tp", "attention_dp", "ep", "moe_tp")
"""What tells layouts of one engine apart."""

MEASURES = ("at_load", "at_speed", "of_run")
FORMATS = ("weights", "experts_dtype")
SHARED_FIELDS = ("model", *FORMATS, "isl", "osl", "context", "cache_hit", "in_step", "gpus_per_domain")
"""What the runs of a frontier have in common, beside phase and cluster."""


@dataclass(frozen=True)
class FrontierPoint:
    """A measured run that no other beats in both speed and throughput; the model's best beside it.

    Attributes
    ----------
    id, tok_s_per_user, requests_per_gpu, tok_s_per_gpu, measured_layout:
        The run: tokens/s of a user (1 / time per token), requests in the system, output, pools and requests.
    at_load, at_speed, of_run:
        The most tok/s/GPU predicted at its requests per GPU, at its speed and no more requests than a run had (0:
        nothing is as fast), and so by a layout that some run of the frontier had.
    chosen_layout:
        The layout of ``at_speed``.
    """

    id: str
    tok_s_per_user: float
    requests_per_gpu: float
    tok_s_per_gpu: float
    measured_layout: str
    at_load: float = 0.0
    at_speed: float = 0.0
    of_run: float = 0.0
    chosen_layout: str = ""


@dataclass(frozen=True)
class Frontier:
    """Runs of one model, cluster, format, phase and lengths.

    Attributes
    ----------
    name, chip, runs, most_gpus, most_requests:
        Which, how many, and the most GPUs and the most requests of a run; what is chosen exceeds neither.
    points:
        The best of them, slowest first.
    """

    name: str
    chip: str
    runs: int
    most_gpus: int
    most_requests: float
    points: list[FrontierPoint]


def frontiers(
    points: Sequence[Point], correction: Correction = PHYSICS, *, engines: bool = True
) -> tuple[list[Frontier], int]:
    """Return the frontiers of measured runs, and how many runs do not give both speed and throughput.

    Parameters
    ----------
    correction:
        That of :func:`cost.validation.predict.predict`.
    engines:
        Whether the engine is chosen among those that ran; else none is named.
    """
    rows: dict[Point, dict[str, Point]] = defaultdict(dict)
    for point in points:
        if point.phase in ("decode", "aggregated", "disaggregated"):
            shared = replace(point, quantity="", measured=1.0, token_kind="", pair="", notes="")
            rows[shared][point.quantity] = point
    runs = {point: figure for point, figures in rows.items() if (figure := _measured(point, figures))}
    members: dict[tuple[Point, str], dict[Point, FrontierPoint]] = defaultdict(dict)
    listed = list(runs.items())
    for group in group_points(list(runs))[0]:
        for i in group.index.tolist():
            point, figure = listed[i]
            run = replace(point, kv_dtype=group.workload.kv_dtype)
            if not engines:
                run = replace(run, engine="", engine_version="")
            members[_question(run), group.gpu.name][run] = figure
    all_frontiers = [_frontier(*key, of_runs, correction) for key, of_runs in members.items()]
    return all_frontiers, len(rows) - len(runs)


def errors_of_frontiers(all_frontiers: Sequence[Frontier]) -> dict[str, dict[str, Errors]]:
    """Return the errors of tok/s/GPU by :data:`MEASURES`, of each chip and of ``all`` together.

    Notes
    -----
    Where a frontier is steep, a small error of time is a large one of throughput at one speed: 4 and 32 requests on a
    node often differ by a fifth in speed. At one number of requests throughput is off by what time is off.
    """
    errors = {}
    for chip in (*sorted({frontier.chip for frontier in all_frontiers}), "all"):
        members = [frontier for frontier in all_frontiers if chip in (frontier.chip, "all")]
        pairs = [(name, point) for name in MEASURES for frontier in members for point in frontier.points]
        measured = [Point("", "", name, point.tok_s_per_gpu, "", "") for name, point in pairs]
        errors[chip] = errors_of(measured, [Prediction(getattr(point, name)) for name, point in pairs])
    return errors


def _measured(point: Point, figures: dict[str, Point]) -> FrontierPoint | None:
    """The run of which the figures are; None where they do not give speed and throughput."""
    if unpredictable(point):
        return None
    tpot, ttft, rate = (
        figures[name].measured if name in figures else 0.0 for name in ("tpot_ms", "ttft_ms", "tok_s_per_gpu")
    )
    load = point.requests / gpus_of(point)
    if point.phase == "decode":
        tpot, rate = tpot or (rate and 1e3 * load / rate), rate or (tpot and 1e3 * load / tpot)
    elif rate:
        kind = figures["tok_s_per_gpu"].token_kind
        rate *= point.osl / {"output": point.osl, "total": point.isl + point.osl}.get(kind, point.isl)
    elif tpot and ttft:
        rate = 1e3 * load * point.osl / (ttft + point.osl * tpot)
    if not (tpot and rate > 0 and math.isfinite(tpot * rate)):
        return None
    return FrontierPoint(point.id, 1e3 / tpot, load, rate, _layout(point))


def _layout(point: Point) -> str:
    prefill = f"prefill {label_of(point.stated_prefill)}; decode " if point.stated_prefill else ""
    return f"{prefill}{label_of(point.pool)}, {point.requests:.0f} requests"


def _question(point: Point) -> Point:
    """What the runs of one frontier share."""
    shared = {name: getattr(point, name) for name in SHARED_FIELDS}
    prefill = OPEN_LAYOUT if point.prefill_pool else None
    return Point(
        "", "", "", 1.0, point.phase, point.cluster, pool=OPEN_LAYOUT, prefill_pool=prefill, **shared
    )


def _frontier(
    question: Point, chip: str, runs: dict[Point, FrontierPoint], correction: Correction
) -> Frontier:
    points, gpus = list(runs.values()), int(max(map(gpus_of, runs)))
    requests = max(run.requests for run in runs)
    edge = pareto([entry.tok_s_per_user for entry in points], [entry.tok_s_per_gpu for entry in points])
    by_age = sorted(runs, key=lambda run: (run.date, run.engine_version))
    newest = {run.engine: (run.date, run.engine_version) for run in by_age}
    ran = {_chosen(run): newest[run.engine] for run in runs}
    questions = [
        replace(question, **dict(zip(CHOSEN_FIELDS, entry, strict=True)), date=day, engine_version=version)
        for entry, (day, version) in sorted(ran.items())
    ]
    rows = [replace(row, quantity="tpot_ms") for entry in questions for row in _rows(entry, gpus)]
    formats = "/".join(filter(None, (getattr(question, name) for name in FORMATS)))
    lengths = f"{question.isl:,} + {question.osl:,}" if question.osl else f"{question.context:,.0f}"
    name = f"{question.model} {formats} on {question.cluster}, {lengths} tokens, {question.phase}"
    best = _beside([points[i] for i in edge.tolist()], rows, set(map(_curve, runs)), requests, correction)
    return Frontier(name.replace("  ", " "), chip, len(runs), gpus, requests, best)


def _chosen(point: Point) -> tuple[Any, ...]:
    return tuple(getattr(point, name) for name in CHOSEN_FIELDS)


def _curve(point: Point) -> tuple[object, ...]:
    """What rows that differ in requests, and pools in workers, have in common."""
    return *(getattr(point.pool, name) for name in WIDTH_FIELDS), *_chosen(point)


def _beside(
    points: Sequence[FrontierPoint],
    rows: Sequence[Point],
    ran: Collection[tuple[object, ...]],
    max_requests: float,
    correction: Correction,
) -> list[FrontierPoint]:
    """The points with the most that layouts of ``rows`` reach, at one speed with at most ``max_requests`` requests.

    ``ran``: the curves of measured runs.
    """
    tpots = values_of(rows, correction)
    rates = values_of([replace(row, quantity="tok_s_per_gpu") for row in rows], correction)
    requests = np.array([row.requests for row in rows])
    loads = requests / np.array([gpus_of(row) for row in rows])
    curves: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i in np.flatnonzero(np.isfinite(tpots * rates)).tolist():
        curves[_curve(rows[i])].append(i)
    limits, loads_of_points = np.array(
        [(1e3 / entry.tok_s_per_user, entry.requests_per_gpu) for entry in points]
    ).T
    at_load, at_speed, of_run = np.zeros((3, len(points)))
    fastest = np.zeros(len(points), int)
    for kind, curve in curves.items():
        slower = np.maximum.accumulate(tpots[curve])
        held = _between(np.array(max_requests), np.maximum.accumulate(requests[curve]), slower)
        within = np.minimum(limits, np.maximum(held, _NO_TIME))
        rate = _between(within, slower, rates[curve])
        fastest_row = np.array(curve)[np.maximum(np.searchsorted(slower, within, side="right") - 1, 0)]
        fastest, at_speed = np.where(rate > at_speed, fastest_row, fastest), np.maximum(rate, at_speed)
        of_run = np.maximum(of_run, rate * (kind in ran))
        at_load = np.maximum(
            at_load, _between(loads_of_points, np.maximum.accumulate(loads[curve]), rates[curve])
        )
    return [
        replace(
            point, at_load=load, at_speed=speed, of_run=run, chosen_layout=_layout(rows[i]) if speed else ""
        )
        for point, load, speed, run, i in zip(
            points, at_load.tolist(), at_speed.tolist(), of_run.tolist(), fastest.tolist(), strict=True
        )
    ]


def _between(at: Array, x: Array, y: Array) -> Array:
    """``y`` at some ``x``, linear in both logarithms; 0 below the least ``x``, the last beyond the largest."""
    return np.exp(np.interp(np.log(at), np.log(x), np.log(y), left=-np.inf))


def _rows(question: Point, gpus: int) -> list[Point]:
    """Every legal layout of one engine that the memory holds, each at growing numbers of requests."""
    rows = [
        at_batch(replace(row, batch=0.0), requests / row.pool.gpus)
        for row, most_each in fitting(
            [replace(question, pool=pool, batch=math.inf) for pool in _pools(question, gpus)]
        )
        for requests in batch_grid(most_each * row.pool.gpus, STEPS_PER_OCTAVE).tolist()
    ]
    return _with_prefill(rows, gpus) if rows and question.prefill_pool else rows


def _pools(question: Point, gpus: int) -> list[Pool]:
    """Engines that operators deploy (:mod:`cost.layouts.deployable`), as ``sweep`` prices them."""
    node = resolve_cluster(question.cluster).spec.domains[0].gpus_per_node
    sizes = [n for n in range(1, gpus + 1) if deployable_stage(n, node=node, domain=domain_of(question))]
    return [pool for n in sizes for pool in legal_pools(question, OPEN_LAYOUT, n, [1]) if pool.gpus == n]


def _with_prefill(rows: Sequence[Point], max_gpus: int) -> list[Point]:
    """The rows with as many workers in both pools as give the most per GPU, on ``max_gpus`` GPUs in all."""
    prefill_rows = [prefill_alone(rows[0], pool, gpus=1) for pool in _pools(rows[0], max_gpus)]
    prompts = [row for row, _ in fitting(prefill_rows)]
    prompt_rates = values_of(prompts)
    output = values_of(
        [replace(row, phase="decode", batch=row.concurrency / row.pool.gpus, gpus=1) for row in rows]
    )
    gpus, prompt_need = np.array([row.pool.gpus for row in rows]), output * rows[0].isl / rows[0].osl
    best, workers = np.zeros(len(rows)), np.zeros((3, len(rows)), int)
    for kind, count in product(range(len(prompts)), range(1, max_gpus // int(gpus.min()) + 1)):
        prefill = np.ceil(count * prompt_need / prompt_rates[kind])
        used = count * gpus + prefill * prompts[kind].pool.gpus
        rate = np.where(used <= max_gpus, count * output / used, 0.0)
        workers = np.where(
            rate > best, np.stack(np.broadcast_arrays(kind, count, prefill.astype(int))), workers
        )
        best = np.maximum(best, rate)
    return [
        replace(
            row,
            pool=replace(row.pool, workers=count),
            prefill_pool=replace(prompts[kind].pool, workers=prefill),
            concurrency=count * row.concurrency,
        )
        for row, rate, kind, count, prefill in zip(rows, best, *workers.tolist(), strict=True)
        if rate > 0
    ]
