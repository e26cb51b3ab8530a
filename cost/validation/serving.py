"""What the cost model says about measured points of served models: step, TPOT, TTFT and rate of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.calibration.first_token import FirstToken, first_token
from cost.calibration.residual import PHASES, kinds_of, residual, step_features
from cost.calibration.serving import calibrated
from cost.inputs.machine import Efficiency, Machine, kernels_for
from cost.inputs.workload import CHUNK_TOKENS, StepShape, with_imbalance
from cost.quantity import Quantity
from cost.serving.steady_state import Served, aggregated, disaggregated
from cost.step.memory import largest_batch
from cost.step.step import even_step
from cost.validation.point import Point, Prediction
from cost.validation.serving_groups import Group, group_points


@dataclass(frozen=True, eq=False)
class Times:
    """One value for each point of a group; ``ttft_s`` is unloaded, ``first_token`` what load makes of it.

    ``batch``: sequences per GPU that decode at a time, where requests are served.
    """

    tpot_s: Quantity
    ttft_s: Quantity
    step_s: Quantity
    tokens_per_s: Quantity
    input_per_s: Quantity
    first_token: FirstToken | None = None
    batch: Quantity = 0.0


def machines(group: Group, efficiency: Efficiency) -> tuple[Machine, Machine]:
    """Return what the group's decode and prefill run on."""
    rates, kv_dtype = group.rates, group.workload.kv_dtype
    decode = Machine(rates, efficiency, kernels_for(rates, "decode", group.kernel), kv_dtype)
    named = group.kernel if group.phase == "prefill" else ""
    return decode, Machine(rates, efficiency, kernels_for(rates, "prefill", named), kv_dtype)


@dataclass(frozen=True, eq=False)
class stepper:  # noqa: N801 - called like a function
    """Seconds of a step of a group's model on a machine, in two halves where the group overlaps."""

    group: Group
    machine: Machine

    def __call__(self, shape: StepShape) -> Quantity:
        """Return the expected seconds of a step."""
        return even_step(self.group.model, shape, self.machine, overlap=self.group.overlap).total_s


def with_accepted(group: Group, efficiency: Efficiency) -> Group:
    """Return the group with the calibrated tokens a step where a row gives its drafts alone."""
    drafts, given = np.asarray(group.requests.draft_tokens), np.asarray(group.requests.accept_length)
    lengths = np.array([1.0, *(efficiency[f"accept.{k}"] for k in (1, 2, 3))])
    accepted = np.where(given > 0, given, lengths[np.minimum(drafts, 3).astype(int)])
    accepted = np.where(group.recorded, accepted, efficiency["accept.unrecorded"])
    return replace(group, requests=replace(group.requests, accept_length=accepted))


def group_times(
    group: Group, efficiency: Efficiency, decode: stepper | None = None, factor: Quantity = 1.0
) -> Times:
    """Return the times of a group of points.

    Parameters
    ----------
    decode:
        What gives the seconds of a step of the pool that decodes (or of the only one); the cost model's own if None.
    factor:
        What measured decode steps of served requests took over the model's (:func:`group_residual`).
    """
    on_decode, on_prefill = machines(group, efficiency)
    pool = with_imbalance(group.pool, "decode")
    prefill_pool = with_imbalance(group.prefill_pool, "prefill")
    step = decode or stepper(group, on_prefill if group.phase == "prefill" else on_decode)
    if group.phase == "prefill":
        return _prefill(group, step, prefill_pool)
    group = with_accepted(group, efficiency)
    requests = group.requests
    context = replace(pool, context=requests.context)
    most = largest_batch(group.model, group.workload, context, group.rates.hbm_bytes)
    if group.phase == "decode":
        return _decode(group, step, pool)
    if group.phase == "aggregated":
        share = np.where(group.in_step, efficiency["prefill_share.in_step"], efficiency["prefill_share"])
        served = aggregated(
            step, pool, requests, workers=group.workers, most=most, share=share, factor=factor
        )
    else:
        served = disaggregated(
            step,
            pool,
            stepper(group, on_prefill),
            prefill_pool,
            requests,
            workers=group.workers,
            prefill_workers=group.prefill_workers,
            most=most,
            factor=factor,
        )
    return _served(group, served)


def _served(group: Group, served: Served) -> Times:
    requests = group.requests
    output, given = served.requests_per_s * requests.osl, served.requests_per_s * requests.isl
    first = first_token(
        served.prefill_s,
        served.waiting_s,
        requests.concurrency / (group.workers * group.pool.attention_dp),
        engine=group.engine,
        phase=group.phase,
    )
    return Times(served.tpot_s, first.unloaded_s, served.step_s, output, given, first, served.batch)


def group_residual(
    group: Group, efficiency: Efficiency, times: Times
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what measured runs near each point took over ``times``, and how near they are: factor and weight.

    Weight 0 for one phase alone, for half batches that overlap and where nobody recorded whether tokens were drafted:
    no run that it was learned from is like them.
    """
    if group.phase not in PHASES or group.overlap:
        return np.ones(group.index.shape), np.zeros(group.index.shape)
    kind = kinds_of(group.phase, group.engine, group.gpu.name)
    factor, weight = residual(kind, group_features(group, efficiency, times))
    return np.where(group.recorded, factor, 1.0), np.where(group.recorded, weight, 0.0)


def group_features(group: Group, efficiency: Efficiency, times: Times) -> NDArray[np.float64]:
    """Return the features of the decode step of each point of a group of served requests, ``[points, features]``."""
    on_decode, _ = machines(group, efficiency)
    requests, pool = with_accepted(group, efficiency).requests, with_imbalance(group.pool, "decode")
    shape = replace(
        pool, sequences=times.batch, context=requests.context, queries=1.0 + requests.draft_tokens
    )
    return step_features(
        even_step(group.model, shape, on_decode).terms_s,
        batch=times.batch * pool.tp,
        tp=pool.tp,
        attention_dp=pool.attention_dp,
        hidden=group.model.hidden,
        queries=shape.queries,
    )


def _decode(group: Group, step: stepper, pool: StepShape) -> Times:
    requests, gpus = group.requests, np.asarray(pool.gpus)
    batch = np.where(group.batch > 0, group.batch, requests.concurrency / (gpus * group.workers))
    shape = replace(pool, sequences=batch, queries=1.0 + requests.draft_tokens, random=0.0)
    step_s = step(shape)
    tpot_s = step_s / requests.accept_length
    output = group.workers * gpus * batch / tpot_s
    return Times(tpot_s, np.full_like(batch, np.nan), step_s, output, np.full_like(batch, np.nan))


def _prefill(group: Group, step: stepper, pool: StepShape) -> Times:
    isl = group.requests.isl
    per_gpu = np.maximum(np.maximum(isl, CHUNK_TOKENS) / pool.tp, 1.0)
    tokens: NDArray[np.float64] = np.where(group.tokens > 0, group.tokens, per_gpu)
    step_s = step(replace(pool, prompt_tokens=tokens, prompt_length=isl, sequences=0.0))
    nothing = np.full_like(isl, np.nan)
    rate = group.workers * np.asarray(pool.gpus) * tokens / step_s
    return Times(nothing, step_s, step_s, nothing, rate)


def predict_serving(
    points: Sequence[Point],
    efficiency_of: Callable[[Group], Efficiency] | None = None,
    *,
    residual: bool = True,
) -> list[Prediction]:
    """Return a prediction for each point, in the order of ``points``; one without a value says why.

    Parameters
    ----------
    efficiency_of:
        What kernels reach on a group's machine; None: as calibrated.
    residual:
        Correct the time per token of served requests, and the throughput that follows from it, by what measured runs
        near them took over the physics. Never with ``efficiency_of``: the correction belongs to the calibration.
    """
    groups, refused = group_points(points)
    found = [refused.get(i, Prediction(None)) for i in range(len(points))]
    for group in groups:
        efficiency = efficiency_of(group) if efficiency_of else calibrated(group.gpu, group.engine)
        times = physics = group_times(group, efficiency)
        if residual and efficiency_of is None:
            factor, _ = group_residual(group, efficiency, physics)
            times = group_times(group, efficiency, factor=factor) if (factor != 1).any() else physics
        for position, i in enumerate(group.index.tolist()):
            if points[i].quantity == "ttft_ms" and physics.first_token is not None:
                found[i] = _first_token(physics.first_token, position)
                continue
            value = quantity_of(points[i], group, times, position)
            if not np.isfinite(value):
                found[i] = Prediction(None, "the phase has no such time")
                continue
            found[i] = Prediction(value)
    return found


def _first_token(first: FirstToken, position: int) -> Prediction:
    """The unloaded time with its interval; where waiting dominates the interval and the reason alone."""
    reason = first.reason(position)
    return Prediction(
        None if reason else float(first.unloaded_s[position]) * 1e3,
        reason,
        float(first.low_s[position]) * 1e3,
        float(first.high_s[position]) * 1e3,
    )


def quantity_of(point: Point, group: Group, times: Times, position: int) -> float:
    """Return the value of a point's quantity in its unit, NaN where its phase has none."""

    def at(values: Quantity) -> float:
        return float(np.broadcast_to(values, group.index.shape)[position])

    seconds = {"tpot_ms": times.tpot_s, "ttft_ms": times.ttft_s, "step_ms": times.step_s}
    if point.quantity in seconds:
        return at(seconds[point.quantity]) * 1e3
    output, given = at(times.tokens_per_s), at(times.input_per_s)
    if point.phase == "decode":
        rate = output
    elif point.phase == "prefill":
        rate = given
    else:
        rate = {"output": output, "input": given}.get(point.token_kind, output + given)
    if point.token_kind == "input_cached":  # noqa: S105 - tokens of text
        rate /= 1 - point.cache_hit
    return rate / float(group.gpus[position])
