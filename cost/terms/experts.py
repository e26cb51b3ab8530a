"""Routed experts of one layer: flop by the tokens received, bytes by the experts used, and the speed of each GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cost.dtypes import bytes_per_param
from cost.experts.tokens.reach import ExpertUse
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import Efficiency, Rates
from cost.inputs.workload import StepShape
from cost.model import MoeFfn
from cost.quantity import Quantity, positive
from cost.terms.work import (
    COMPUTE,
    FIXED,
    HBM,
    LayerStep,
    Parts,
    PlacedExperts,
    StepCost,
    Term,
    Work,
    kernel_seconds,
    weight_work,
)

_POINTS = 7
"""Gauss-Hermite points over the use of experts: within 1 % of the mean for 8 of 256 experts at a skew of 1.4."""
DRAFT_SPREAD = 0.5
"""Part of a token's experts that a further token of the same sequence adds, where use is unequal: of 1, 0.5 and 0.25
the middle one meets published times of 1, 6 and 12 sequences an engine with three drafts (InferenceX, GB200) within
8 %."""


def _work(
    moe: MoeFfn,
    pairs: Quantity,
    touched: Quantity,
    *,
    parts: Quantity = 1.0,
    weights: str,
    rates: Rates,
) -> Work:
    """Work for ``pairs`` of tokens and experts on a GPU that reads ``touched`` experts, each cut into ``parts``."""
    return weight_work(
        "experts",
        "experts",
        "hbm.experts",
        flop=2 * moe.expert_params * pairs / parts,
        read=touched * moe.expert_params * bytes_per_param(weights) / parts,
        columns=moe.columns / parts,
        weights=weights,
        rates=rates,
    )


def placed_expert_work(moe: MoeFfn, use: ExpertUse, *, tokens: float, weights: str, rates: Rates) -> Work:
    """Work of each GPU for the experts that it holds, ``[scenarios, layers, gpus]``.

    Parameters
    ----------
    tokens:
        Tokens of the step over the whole EP group.

    Notes
    -----
    A GPU computes ``2 * expert_params`` flop for each pair it receives, ``tokens * top_k * share``, and reads
    the weights of each slot that some token uses.
    """
    pairs = tokens * moe.top_k * use.share
    touched = use.touched_slots(tokens)
    return _work(moe, pairs, touched, weights=weights, rates=rates)


@cache
def _normal_points(count: int) -> tuple[tuple[float, float], ...]:
    """Points of a standard normal variable, and the weights by which a mean over it is found (Gauss-Hermite)."""
    points, weights = np.polynomial.hermite_e.hermegauss(count)
    return tuple(zip(points.tolist(), (weights / weights.sum()).tolist(), strict=True))


def _touched(chance: Quantity, tokens: Quantity, skew: Quantity) -> Quantity:
    """Return the part of the slots that some of ``tokens`` tokens use, each with ``chance`` on average."""
    untouched: Quantity = 0.0
    for point, weight in _normal_points(_POINTS if positive(skew) else 1):
        slot_chance = np.minimum(chance * np.exp(skew * point - skew**2 / 2), 1 - 1e-15)
        untouched = untouched - weight * np.expm1(tokens * np.log1p(-slot_chance))
    return untouched


def even_expert_work(moe: MoeFfn, shape: StepShape, *, weights: str, rates: Rates) -> Work:
    """Work of the busiest GPU of a group whose experts are equally loaded but for ``shape.imbalance``.

    Notes
    -----
    Each expert is cut into ``moe_tp`` parts and each GPU holds ``slots`` of ``ep`` such shares. A slot is read if
    one of the group's tokens uses it, with chance ``1 - (1 - top_k / slots) ** tokens``: few at small batch, all
    of them soon after. Experts of unequal use (``shape.skew``, log-normal) are touched less often: the mean chance,
    and drafted tokens use experts of their sequence again.
    """
    group = shape.tokens * shape.gpus
    slots = np.maximum(shape.slots, moe.experts)
    fresh = shape.sequences * (1 + DRAFT_SPREAD * (shape.queries - 1)) + shape.prompt_tokens
    tokens = np.where(np.asarray(shape.skew) > 0, fresh * shape.gpus, group)
    touched = slots / shape.ep * _touched(moe.top_k / slots, tokens, shape.skew)
    pairs = shape.imbalance * group * moe.top_k / shape.ep
    return _work(moe, pairs, touched, parts=shape.moe_tp, weights=weights, rates=rates)


def expert_speed(
    deployment: Deployment, stage: StageSpec, moe: MoeFfn, use: ExpertUse, tokens: float
) -> NDArray[np.float64] | None:
    """Return the speed of each GPU of ``stage``, float64 ``[gpus]`` with mean 1; None where all are alike.

    The speed is one over the seconds that a GPU takes for the experts of ``use`` (an even part of the load, say) at
    ``tokens`` tokens per GPU: what binds it, computing or reading, is the same as in the step.
    """
    rates = deployment.gpu_rates(stage)
    if rates is None:
        return None
    model, machine = deployment.model, deployment.machine(stage)
    work = placed_expert_work(
        moe,
        use,
        tokens=tokens * use.gpus,
        weights=model.precision["experts"],
        rates=machine.rates,
    )
    compute_s, memory_s = np.mean(work.compute_s, axis=(0, 1)), np.mean(work.memory_s, axis=(0, 1))
    efficiency = machine.efficiency
    compute, read = replace(work, compute_s=compute_s, memory_s=memory_s).seconds(efficiency)
    compute, read = np.asarray(compute), np.asarray(read)
    busy = (compute > 0) | (read > 0)
    # the same slots and load on every GPU, so that neither counts as speed
    seconds = kernel_seconds(compute[busy].mean() / rates.compute, read[busy].mean() / rates.read, efficiency)
    per_second = 1.0 / np.asarray(seconds)
    speed: NDArray[np.float64] = per_second / per_second.mean()
    return speed


def _add(parts: Parts, at: LayerStep) -> None:
    model, ffn = at.model, at.layer.ffn
    if isinstance(ffn, MoeFfn):
        weights, rates = model.precision["experts"], at.machine.rates
        work = even_expert_work(ffn, at.shape, weights=weights, rates=rates)
        parts.works.append(replace(work, layers=at.count))


def _add_placed(cost: StepCost, at: PlacedExperts, shape: StepShape, efficiency: Efficiency) -> None:
    """Experts of each layer: the step waits for the GPU that takes longest; the mean over scenarios is counted."""
    model, use, machine = at.deployment.model, at.use, at.deployment.machine(at.stage)
    moe = next(ffn for i in at.stage.layers if isinstance(ffn := model.layers[i].ffn, MoeFfn))
    rates, weights, gpu_rates = machine.rates, model.precision["experts"], at.deployment.gpu_rates(at.stage)
    tokens = float(shape.tokens) * use.gpus
    work = placed_expert_work(moe, use, tokens=tokens, weights=weights, rates=rates)
    compute, read = work.seconds(efficiency)
    compute_s, read_s = work.least_compute_s, work.memory_s
    if gpu_rates is not None:
        compute, read = compute / gpu_rates.compute, read / gpu_rates.read
        compute_s, read_s = compute_s / gpu_rates.peak_compute, read_s / gpu_rates.peak_read
    seconds = np.max(kernel_seconds(compute, read, efficiency), axis=2)
    weight = use.repeats / use.share.shape[0]
    by_compute = np.max(compute, axis=2) >= np.max(read, axis=2)
    cost.add("experts", COMPUTE, float(seconds[by_compute].sum()) * weight)
    cost.add("experts", HBM, float(seconds[~by_compute].sum()) * weight)
    cost.add("engine", FIXED, efficiency["engine.share"] * float(seconds.sum()) * weight)
    cost.busy(COMPUTE, float(np.max(compute_s, axis=2).sum()) * weight)
    cost.busy(HBM, float(np.max(read_s, axis=2).sum()) * weight)


EXPERTS = Term(
    "experts",
    "#d55e00",
    behind=("experts", "hbm"),
    formula="sum over layers of the slowest GPU's hypot(2 x weights x its tokens / flop/s, bytes of its slots that "
    "some token uses / HBM rate)",
    of_layer=_add,
    of_placement=_add_placed,
)
