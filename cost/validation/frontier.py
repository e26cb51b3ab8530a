"""Measured frontiers: the most tokens/s per GPU at each speed, and what the model reaches there by its own layout."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost.calibration.correction import Correction
from cost.layouts.batches import batch_grid
from cost.layouts.front import pareto
from cost.serving.steady_state import PREFILL_KEEPS_BUSY
from cost.validation.predict import (
    Array,
    Prediction,
    at_batch,
    domain_of,
    gpus_of,
    group_points,
    label_of,
    largest_batches,
    legal_pools,
    prefill_alone,
    unpredictable,
    values_of,
)
from cost.validation.read import Point, Pool
from cost.validation.statistics import Errors, errors_of

OPEN = Pool(tp=0, attention_dp=0, ep=0, moe_tp=0, workers=0, best=True)
STEPS = 2
"""Numbers of requests priced between one and its double; between them a layout's curve is interpolated."""


@dataclass(frozen=True)
class Run:
    """A measured run: ``tok_s_user`` tokens/s of a user (1 / time per token), ``tok_s_per_gpu`` output of a GPU."""

    point: Point
    tok_s_user: float
    tok_s_per_gpu: float

    @property
    def requests_per_gpu(self) -> float:
        """Requests in the system."""
        return _requests(self.point) / gpus_of(self.point)

    @property
    def layout(self) -> str:
        """Both pools, and the requests."""
        return _layout(self.point)


@dataclass(frozen=True)
class Best:
    """What the model reaches beside one run: output tokens/s/GPU by the layouts that give most of it.

    ``at_speed`` at the run's speed (0: nothing is as fast), by ``layout``; ``at_load`` at its requests per GPU.
    """

    at_speed: float
    at_load: float
    layout: str


@dataclass(frozen=True)
class Frontier:
    """Runs that share ``question``, whose layout is open.

    Attributes
    ----------
    chip:
        Name of its GPUs.
    gpus:
        The most GPUs that a run has, and that a layout may have.
    runs:
        All of them; ``best`` are those that no other beats in speed and tokens/s/GPU, slowest first.
    predicted:
        The model beside each of ``best``.
    """

    question: Point
    chip: str
    gpus: int
    runs: int
    best: Sequence[Run]
    predicted: Sequence[Best]


def frontiers(points: Sequence[Point], correction: Correction | None = None) -> tuple[list[Frontier], int]:
    """Return the frontiers of measured runs, and how many runs do not give both speed and tokens/s/GPU.

    Runs of one model, cluster, format, phase and lengths make one. Drafts and cache are chosen among those that ran;
    the engine is not named. ``correction`` is that of :func:`cost.validation.predict.predict`.
    """
    rows: dict[Point, dict[str, Point]] = defaultdict(dict)
    for point in points:
        if point.phase in ("decode", "aggregated", "disaggregated"):
            shared = replace(point, quantity="", measured=1.0, token_kind="", pair="", notes="")
            rows[shared][point.quantity] = point
    runs = [run for figures in rows.values() if (run := _run(figures)) is not None]
    members: dict[tuple[Point, str], list[Run]] = defaultdict(list)
    for group in group_points([run.point for run in runs])[0]:
        for i in group.index.tolist():
            point = replace(runs[i].point, kv_dtype=group.workload.kv_dtype)
            members[_question(point), group.gpu.name].append(replace(runs[i], point=point))
    found = [_frontier(*one, those, correction) for one, those in members.items()]
    return found, len(rows) - len(runs)


def errors_of_frontiers(found: Sequence[Frontier]) -> dict[str, Errors]:
    """Return the errors of output tokens/s/GPU over all best runs, ``at_speed`` and ``at_load`` (:class:`Best`).

    Notes
    -----
    Where a frontier is steep, a small error of time is a large one of throughput at one speed: 4 and 32 requests on a
    node often differ by a fifth in speed. At one number of requests throughput is off by what time is off.
    """
    pairs = [(run, best) for one in found for run, best in zip(one.best, one.predicted, strict=True)]
    names = ("at_load", "at_speed")
    points = [
        replace(run.point, quantity=name, measured=run.tok_s_per_gpu) for name in names for run, _ in pairs
    ]
    return errors_of(points, [Prediction(getattr(best, name)) for name in names for _, best in pairs])


def _run(figures: dict[str, Point]) -> Run | None:
    """The run of which the figures are; None where they do not give speed and throughput."""
    point = next(iter(figures.values()))
    if unpredictable(point):
        return None
    tpot, ttft, rate = (
        figures[name].measured if name in figures else 0.0 for name in ("tpot_ms", "ttft_ms", "tok_s_per_gpu")
    )
    per_gpu = 1e3 * _requests(point) / gpus_of(point)
    if point.phase == "decode":
        tpot, rate = tpot or (rate and per_gpu / rate), rate or (tpot and per_gpu / tpot)
    elif rate:
        kind = figures["tok_s_per_gpu"].token_kind
        rate *= point.osl / {"output": point.osl, "total": point.isl + point.osl}.get(kind, point.isl)
    elif tpot and ttft:
        rate = per_gpu * point.osl / (ttft + point.osl * tpot)
    return Run(point, 1e3 / tpot, rate) if tpot and rate > 0 and math.isfinite(tpot * rate) else None


def _requests(point: Point) -> float:
    return point.concurrency or point.batch * point.pool.gpus


def _layout(point: Point) -> str:
    prefill = f"prefill {label_of(point.stated_prefill)}; decode " if point.stated_prefill else ""
    return f"{prefill}{label_of(point.pool)}, {_requests(point):.0f} requests"


def _question(point: Point) -> Point:
    """What the runs of one frontier share."""
    names = ("cluster", "model", "phase", "weights", "experts_dtype", "isl", "osl", "context", "cache_hit")
    shared = {name: getattr(point, name) for name in (*names, "in_step", "gpus_per_domain")}
    prefill = OPEN if point.prefill_pool else None
    return Point("", "", "", 1.0, **shared, pool=OPEN, prefill_pool=prefill)


def _frontier(question: Point, chip: str, runs: Sequence[Run], correction: Correction | None) -> Frontier:
    edge = pareto([run.tok_s_user for run in runs], [run.tok_s_per_gpu for run in runs])
    best, most = [runs[i] for i in edge.tolist()], int(max(gpus_of(run.point) for run in runs))
    names = ("draft_tokens", "accept_length", "drafts_recorded", "kv_dtype")
    ran = sorted({tuple(getattr(run.point, name) for name in names) for run in runs})
    rows = [
        replace(row, quantity="tpot_ms")
        for one in ran
        for row in _rows(replace(question, **dict(zip(names, one, strict=True))), most)
    ]
    return Frontier(question, chip, most, len(runs), best, _best(rows, best, correction))


def _best(rows: Sequence[Point], runs: Sequence[Run], correction: Correction | None) -> list[Best]:
    """The most that any layout of ``rows`` reaches beside each run."""
    tpots = values_of(rows, correction)
    rates = values_of([replace(row, quantity="tok_s_per_gpu") for row in rows], correction)
    loads = np.array([_requests(row) / gpus_of(row) for row in rows])
    curves: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i in np.flatnonzero(np.isfinite(tpots * rates)).tolist():
        one = rows[i]
        curves[replace(one.pool, workers=1), one.draft_tokens, one.drafts_recorded, one.kv_dtype].append(i)
    limits = 1e3 / np.array([run.tok_s_user for run in runs])
    asked = np.array([run.requests_per_gpu for run in runs])
    at_speed, at_load, chosen = np.zeros(len(runs)), np.zeros(len(runs)), np.zeros(len(runs), int)
    for curve in curves.values():
        slowest = np.maximum.accumulate(tpots[curve])
        rate = _between(limits, slowest, rates[curve])
        nearest = np.array(curve)[np.maximum(np.searchsorted(slowest, limits, side="right") - 1, 0)]
        chosen, at_speed = np.where(rate > at_speed, nearest, chosen), np.maximum(rate, at_speed)
        rising = np.maximum.accumulate(loads[curve])
        at_load = np.maximum(at_load, _between(asked, rising, rates[curve]))
    return [
        Best(speed, load, _layout(rows[i]) if speed else "")
        for speed, load, i in zip(at_speed.tolist(), at_load.tolist(), chosen.tolist(), strict=True)
    ]


def _between(at: Array, x: Array, y: Array) -> Array:
    """``y`` at some ``x``, linear in both logarithms; 0 below the least ``x``, the last beyond the largest."""
    return np.exp(np.interp(np.log(at), np.log(x), np.log(y), left=-np.inf))


def _rows(question: Point, most: int) -> list[Point]:
    """Every legal layout of one engine that the memory holds, each at growing numbers of requests."""
    pools = [pool for size in _sizes(question, most) for pool in _pools(question, size)]
    fit = largest_batches([replace(question, pool=pool, batch=1.0) for pool in pools]).tolist()
    rows = [
        at_batch(row, requests / pool.gpus)
        for pool, batch in zip(pools, fit, strict=True)
        for row in (replace(question, pool=pool),)
        for requests in batch_grid(batch * pool.gpus, STEPS).tolist()
    ]
    return _with_prefill(rows, most) if question.prefill_pool else rows


def _sizes(question: Point, most: int) -> list[int]:
    """GPUs of an engine: parts of a scale-up domain, powers of two, and whole domains."""
    domain = domain_of(question)
    return [n for n in range(1, most + 1) if domain % n == 0 or n % domain == 0 or n & (n - 1) == 0]


def _pools(question: Point, gpus: int) -> list[Pool]:
    return [pool for pool in legal_pools(question, OPEN, gpus, [1]) if pool.gpus == gpus]


def _with_prefill(rows: Sequence[Point], most: int) -> list[Point]:
    """The rows with as many workers in both pools as give the most per GPU, on ``most`` GPUs in all."""
    if not rows:
        return []
    first = rows[0]
    pools = [pool for size in _sizes(first, most - 1) for pool in _pools(first, size)]
    prompts = [prefill_alone(first, pool, gpus=1) for pool in pools]
    prompts = [row for row, batch in zip(prompts, largest_batches(prompts), strict=True) if batch > 0]
    each = PREFILL_KEEPS_BUSY * values_of(prompts)
    alone = [replace(row, phase="decode", batch=row.concurrency / row.pool.gpus, gpus=1) for row in rows]
    output, gpus = values_of(alone), np.array([row.pool.gpus for row in rows])
    best, chosen = np.zeros(len(rows)), np.zeros((3, len(rows)))
    for kind, (prompt, rate) in enumerate(zip(prompts, each.tolist(), strict=True)):
        for decoding in range(1, most // int(gpus.min()) + 1):
            prefilling = np.ceil(decoding * output * first.isl / first.osl / rate)
            used = decoding * gpus + prefilling * prompt.pool.gpus
            per_gpu = np.where(used <= most, decoding * output / used, 0.0)
            both = np.stack([np.full(len(rows), kind), np.full(len(rows), decoding), prefilling])
            chosen, best = np.where(per_gpu > best, both, chosen), np.maximum(per_gpu, best)
    return [
        replace(
            row,
            pool=replace(row.pool, workers=workers),
            prefill_pool=replace(prompts[kind].pool, workers=prefilling),
            concurrency=workers * row.concurrency,
        )
        for row, rate, kind, workers, prefilling in zip(rows, best, *chosen.astype(int).tolist(), strict=True)
        if rate > 0
    ]
