"""Time to first token of measured runs, simulated with the measured number of requests in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.calibration.correction import Correction, correction_with
from cost.calibration.first_token import first_token_calibration, shipped_waits, wait_logs
from cost.inputs.machine import Efficiency
from cost.inputs.workload import StepShape, with_imbalance
from cost.quantity import Quantity
from cost.queueing.engine import BOTH, DECODE, PREFILL
from cost.queueing.pools import EnginePool, EnginePools
from cost.queueing.requests import Requests
from cost.queueing.schedulers import scheduler_of
from cost.queueing.steps import Seconds
from cost.serving.steady_state import IN_STEP, prefill_rate
from cost.serving.steady_state import Requests as Asked
from cost.terms.experts import EXPERTS
from cost.terms.work import StepCost
from cost.validation.predict import (
    BENCHMARK_ROUNDS,
    Group,
    Prediction,
    Settled,
    group_points,
    machines,
    room_of,
    stepper,
    stepping,
    unpredictable,
    with_accepted,
)
from cost.validation.read import Point

Array = NDArray[np.float64]
MIN_LENGTH_SHARE = 0.8
"""Lengths in it are evenly from this part of the nominal ones to all of them."""
MAX_REQUESTS, ROUNDS_SIMULATED = 500, 2
"""Requests simulated where there are many users: so many, or so many a user; the rest counts as the later ones."""
PARALLEL_ROWS = 200
"""Rows from which they are simulated on all cores."""
BATCHING_STEPS = 50
"""Steps that TensorRT-LLM waits with prompts for other attention groups to have some, so that they start together
(``attention_dp_config``: ``batching_wait_iters``, ``timeout_iters``, of most recipes)."""
MAX_WORKERS = 64
"""Prefill workers where a row does not say how many: enough for any of them."""


def with_first_tokens(
    points: Sequence[Point], predictions: Sequence[Prediction], *, physics: bool = False
) -> list[Prediction]:
    """Return predictions with the time to the first token of served requests, and the interval of four rows in five.

    ``physics``: without what measured runs near them took over the simulation.
    """
    result, correction = list(predictions), correction_with(physics=physics)
    band = first_token_calibration().band
    simulated = [
        i
        for i, point in enumerate(points)
        if point.quantity == "ttft_ms" and point.phase in band and not unpredictable(point)
    ]
    groups, _ = group_points([points[i] for i in simulated])
    run = partial(_simulated, correction=correction, physics=physics)
    if len(simulated) > PARALLEL_ROWS:
        from joblib import Parallel, delayed

        seconds_by_group = Parallel(n_jobs=-1)(map(delayed(run), groups))
    else:
        seconds_by_group = map(run, groups)
    for group, seconds in zip(groups, seconds_by_group, strict=True):
        wide = band[group.phase]
        for place, ms in zip(group.index.tolist(), (seconds * 1e3).tolist(), strict=True):
            result[simulated[place]] = Prediction(ms, "", ms / wide, ms * wide)
    return result


def _simulated(group: Group, correction: Correction, *, physics: bool) -> Array:
    """Seconds to the first token of a group's runs, ``[points]``."""
    settled = Settled.of(group, correction)
    first_s = first_tokens(group, settled.efficiency, settled.factor)
    if physics:
        return first_s
    return first_s * np.exp(wait_logs(shipped_waits(), settled.kind, settled.features))


def first_tokens(group: Group, efficiency: Efficiency, factor: Array) -> Array:
    """Return the mean seconds to the first token of a group's runs, ``[points]``.

    ``factor``: what measured decode steps took over the model's, ``[points]``.
    """
    group = with_accepted(group, efficiency)
    means = [
        _measured(group, at, _pools(group, efficiency, at, value)) for at, value in enumerate(factor.tolist())
    ]
    return np.array(means) + _in_step_s(group, efficiency)


def _in_step_s(group: Group, efficiency: Efficiency) -> Quantity:
    """Seconds that users who go on in step wait for each other in a pool that prefills, ``[points]``.

    Simulated users have lengths that differ and drift apart (:data:`cost.serving.steady_state.IN_STEP`).
    """
    if group.phase == "aggregated":
        return 0.0
    step = stepper(group, machines(group, efficiency)[1])
    pool = with_imbalance(group.prefill_pool, "prefill")
    prompts_per_s = group.prefill_workers * prefill_rate(step, pool, group.requests)
    return np.where(
        group.column(lambda point: point.in_step), 0.0, IN_STEP * group.requests.concurrency / prompts_per_s
    )


def _pools(group: Group, efficiency: Efficiency, at: int, factor: float) -> EnginePools:
    on_decode, on_prefill = machines(group, efficiency)
    requests = _at(group.requests, at)
    context, queries = float(requests.context), 1.0 + float(requests.draft_tokens)
    held = replace(with_imbalance(group.pool, "decode"), context=group.requests.context)
    room = float(np.broadcast_to(np.asarray(room_of(group, held)), group.index.shape)[at])
    fixed_s = first_token_calibration().seconds(group.engine, group.phase)

    def pool(role: str, shape: StepShape, step: Callable[[StepShape], StepCost], workers: int) -> EnginePool:
        gpus = round(float(shape.engine_gpus))
        groups = max(1, round(float(shape.attention_dp * shape.stages)))
        return EnginePool.of(
            role,
            _seconds(step, shape, queries),
            scheduler_of(group.engine),
            groups=groups,
            workers=workers,
            gpus=gpus,
            room=max(room * gpus * context, float(requests.isl + requests.osl)),
            max_sequences=1.3 * float(requests.concurrency) / workers / groups,
            context=context,
            accept=float(requests.accept_length),
            queries=queries,
            stages=round(float(shape.stages)),
            # runs say what steps that decode took, prompts beside them too; a pool that prefills alone has none
            factor=1.0 if role == PREFILL else factor,
        )

    workers = max(1, round(float(group.workers[at])))
    decode = _at(with_imbalance(group.pool, "decode"), at)
    if group.phase == "aggregated":
        return EnginePools((pool(BOTH, decode, stepping(group, on_decode), workers),), None, fixed_s)
    prefill = _at(with_imbalance(group.prefill_pool, "prefill"), at)
    prefill_pool = pool(
        PREFILL, prefill, stepping(group, on_prefill), min(MAX_WORKERS, int(group.prefill_workers[at]))
    )
    return EnginePools(
        (prefill_pool, pool(DECODE, decode, stepping(group, on_decode), workers)), None, fixed_s
    )


Arrays = TypeVar("Arrays", StepShape, Asked)


def _at(arrays: Arrays, at: int) -> Arrays:
    """One of many, its figures plain numbers."""
    figures = {
        name: float(value[at]) if np.ndim(value) else float(value) for name, value in vars(arrays).items()
    }
    return replace(arrays, **figures)


def _seconds(step: Callable[[StepShape], StepCost], shape: StepShape, queries: float) -> Seconds:
    def seconds(sequences: Array, tokens: Array, cached: float, context: float) -> Array:
        mixed = replace(
            shape,
            sequences=sequences / shape.tp,
            queries=queries,
            context=context,
            prompt_tokens=tokens / shape.tp,
            prompt_length=np.maximum(tokens + cached, 1.0),
            prompt_cached=cached,
            prompt_share=1.0,
        )
        cost = step(mixed)
        return np.stack(np.broadcast_arrays(cost.total_s, cost.terms_s.get(EXPERTS.name, 0.0), sequences)[:2])

    return seconds


def _measured(group: Group, at: int, pools: EnginePools) -> float:
    """Mean seconds to the first token of one benchmark."""
    requests = _at(group.requests, at)
    users, in_step = max(1, round(float(requests.concurrency))), group.points[at].in_step
    total = max(
        2 * BENCHMARK_ROUNDS, min(BENCHMARK_ROUNDS * users, max(MAX_REQUESTS, ROUNDS_SIMULATED * users))
    )
    random = np.random.default_rng(0)
    parts = np.ones((2, total)) if in_step else random.uniform(MIN_LENGTH_SHARE, 1.0, (2, total))
    isl, osl = (
        np.maximum(least, np.rint(tokens * part)).astype(np.int64).tolist()
        for least, tokens, part in ((1, requests.isl, parts[0]), (2, requests.osl, parts[1]))
    )
    decode_pool = pools.pools[-1]
    step_s = decode_pool.factor * decode_pool.table.decode(
        users / decode_pool.workers, float(requests.context)
    )
    starts = np.arange(users) / users * step_s * float(requests.steps) if in_step else np.zeros(users)
    outcome = pools.simulate(Requests(starts.tolist(), isl, osl, [0] * total, users))
    later = (BENCHMARK_ROUNDS - 1) * users / max(1, total - users) if total > users else 1.0
    weight = np.where(np.arange(total) < users, 1.0, later)
    waits = (
        group.engine == "trtllm"
        and decode_pool.role == BOTH
        and decode_pool.table.groups > decode_pool.table.stages
    )
    first_s = outcome.first_s - outcome.arrival_s + waits * BATCHING_STEPS * step_s
    return float(np.average(first_s, weights=weight))
