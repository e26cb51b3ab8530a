"""Time to the first token of measured runs: each is simulated as it was measured, so many requests in flight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.calibration.first_token import FirstTokenCalibration, first_token_calibration
from cost.inputs.machine import Efficiency
from cost.inputs.workload import StepShape, with_imbalance
from cost.quantity import Quantity
from cost.queueing.engine import BOTH, DECODE, PREFILL
from cost.queueing.pools import MOST_PRICED, EnginePool, EnginePools
from cost.queueing.requests import Requests
from cost.queueing.schedulers import scheduler_of
from cost.queueing.steps import Seconds, StepTable
from cost.serving.steady_state import Requests as Asked
from cost.step.memory import batch_room, even_memory
from cost.terms.experts import EXPERTS
from cost.terms.work import StepCost
from cost.validation.predict import Group, machines, stepping, with_accepted

Array = NDArray[np.float64]
ROUNDS = 10
"""Requests of a user in a benchmark: InferenceX sends ten for each in flight, all users start at once."""
SHORTEST = 0.8
"""Lengths in it are evenly from this part of the nominal ones to all of them."""
MOST, ROUNDS_SIMULATED = 600, 3
"""Requests simulated where there are many users: so many, or so many a user; the rest counts as the later ones."""
MOST_WORKERS = 64
"""Prefill workers where a row does not say how many: enough for any of them."""


def first_tokens(
    group: Group,
    efficiency: Efficiency,
    factor: Quantity = 1.0,
    calibration: FirstTokenCalibration | None = None,
    which: NDArray[np.int64] | None = None,
) -> tuple[Array, Array]:
    """Return the mean seconds to the first token and per output token of a group's runs, ``[2, points]``.

    Parameters
    ----------
    factor:
        What measured decode steps took over the model's.
    which:
        Points of the group to simulate; None: all.
    """
    known = calibration or first_token_calibration()
    group = with_accepted(group, efficiency)
    factors = np.broadcast_to(np.asarray(factor, dtype=np.float64), group.index.shape)
    found = np.full((2, len(group.index)), np.nan)
    for at in range(len(group.index)) if which is None else which.tolist():
        pools = _pools(group, efficiency, at, float(factors[at]), known)
        found[:, at] = _measured(group, at, pools)
    return found[0], found[1]


def _pools(
    group: Group, efficiency: Efficiency, at: int, factor: float, known: FirstTokenCalibration
) -> EnginePools:
    on_decode, on_prefill = machines(group, efficiency)
    asked = _at(group.requests, at)
    held = replace(with_imbalance(group.pool, "decode"), context=asked.context)
    memory = even_memory(group.model, group.workload, held)
    room = float(
        np.broadcast_to(np.asarray(batch_room(memory, group.rates.hbm_bytes)), group.index.shape)[at]
    )
    loaded = known.loaded(group.engine, group.phase)

    def pool(role: str, shape: StepShape, step: Callable[[StepShape], StepCost], workers: int) -> EnginePool:
        gpus = round(float(shape.gpus))
        groups = max(1, round(float(shape.attention_dp)))
        most = min(MOST_PRICED, max(2.0, 1.3 * asked.concurrency / workers / groups))
        table = StepTable.of(
            _seconds(step, shape, 1.0 + asked.draft_tokens),
            groups=groups,
            most=most,
            context=asked.context,
            decodes=role != PREFILL,
        )
        decodes = role != PREFILL
        return EnginePool(
            role,
            table,
            scheduler_of(group.engine),
            workers,
            gpus,
            max(room * gpus * asked.context, asked.isl + asked.osl) if decodes else np.inf,
            asked.accept_length if decodes else 1.0,
            1.0 + asked.draft_tokens if decodes else 1.0,
            factor,
            getattr(loaded, "prompt_factor", 1.0),
        )

    workers = max(1, round(float(group.workers[at])))
    decode = _at(with_imbalance(group.pool, "decode"), at)
    if group.phase == "aggregated":
        return EnginePools((pool(BOTH, decode, stepping(group, on_decode), workers),), None, loaded.fixed_s)
    prefill = _at(with_imbalance(group.prefill_pool, "prefill"), at)
    first = pool(
        PREFILL, prefill, stepping(group, on_prefill), min(MOST_WORKERS, int(group.prefill_workers[at]))
    )
    return EnginePools(
        (first, pool(DECODE, decode, stepping(group, on_decode), workers)), None, loaded.fixed_s
    )


Arrays = TypeVar("Arrays", StepShape, Asked)


def _at(arrays: Arrays, at: int) -> Arrays:
    """One of many."""
    one = {name: float(value[at]) if np.ndim(value) else float(value) for name, value in vars(arrays).items()}
    return replace(arrays, **one)


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


def _measured(group: Group, at: int, pools: EnginePools) -> tuple[float, float]:
    """Mean seconds to the first token and per output token of one benchmark."""
    asked = _at(group.requests, at)
    users, in_step = max(1, round(float(asked.concurrency))), bool(group.in_step[at])
    total = max(2 * ROUNDS, min(ROUNDS * users, max(MOST, ROUNDS_SIMULATED * users)))
    random = np.random.default_rng(0)
    parts = np.ones((2, total)) if in_step else random.uniform(SHORTEST, 1.0, (2, total))
    isl, osl = (
        np.maximum(least, np.rint(tokens * part)).astype(np.int64).tolist()
        for least, tokens, part in ((1, asked.isl, parts[0]), (2, asked.osl, parts[1]))
    )
    starts = np.zeros(users)
    if in_step:
        last = pools.pools[-1]
        step_s = last.factor * last.table.decode(users / last.workers, float(asked.context))
        starts = np.arange(users) / users * step_s * float(asked.steps)
    outcome = pools.simulate(Requests(starts.tolist(), isl, osl, [0] * total, users))
    later = (ROUNDS - 1) * users / max(1, total - users) if total > users else 1.0
    weight = np.where(np.arange(total) < users, 1.0, later)
    first_s = outcome.first_s - outcome.arrival_s
    token_s = (outcome.done_s - outcome.first_s) / (outcome.osl - 1)
    return float(np.average(first_s, weights=weight)), float(np.average(token_s, weights=weight))
