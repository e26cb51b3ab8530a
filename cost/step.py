"""One step: its parts, what each rests on, and which resource binds; for one stage, or for many shapes at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cost.model import MoeFfn
from cost.shape import StepShape
from cost.step_cost import SENDING, StepCost, smooth_max, work_seconds
from cost.terms.all_reduce import all_reduce_part
from cost.terms.alltoall_parts import alltoall_parts, even_alltoall_parts
from cost.terms.attention import attention_works
from cost.terms.dense import dense_work
from cost.terms.experts import even_expert_work, expert_columns, expert_times
from cost.terms.work import Work

if TYPE_CHECKING:
    from cost.expert_use import ExpertUse
    from cost.layout import StageSpec
    from cost.machine import Machine
    from cost.model import Layer, Model
    from cost.quantity import Quantity
    from cost.rates import Rates
    from cost.setting import Setting

__all__ = ["batch_cost", "even_step", "hop_seconds", "overlapped", "stage_cost"]


def even_step(
    model: Model, shape: StepShape, machine: Machine, *, layers: range | None = None, head: bool = True
) -> StepCost:
    """Return what a step of ``layers`` costs where experts are loaded evenly but for ``shape.imbalance``.

    Every attribute of ``shape`` may be an array: all configurations are computed at once.
    """
    cost = StepCost()
    chosen = range(len(model.layers)) if layers is None else layers
    for layer, count in model.kind_counts(chosen):
        _add_layer(cost, model, layer, count, shape, machine)
        if isinstance(layer.ffn, MoeFfn):
            work = even_expert_work(
                layer.ffn,
                shape,
                hidden=model.hidden,
                weights=model.precision["experts"],
                rates=machine.rates,
            )
            cost.add_work(replace(work, layers=count), machine.efficiency)
            for part in even_alltoall_parts(model, layer.ffn, shape, machine):
                cost.add_links(replace(part, layers=count), machine.rates.up_fabric, machine.rates.out_fabric)
    _add_head(cost, model, shape, machine, head=head)
    return cost


def batch_cost(
    setting: Setting, stage: StageSpec, sequences: float, tp: int, use: ExpertUse | None, *, last: bool
) -> StepCost:
    """Return what a micro-batch of ``sequences`` per GPU costs on one stage, in two halves where that was asked for."""
    workload, gpus = setting.workload, len(stage.gpus)
    whole = StepShape(tp=tp, attention_dp=gpus / tp, ep=gpus, domain_gpus=setting.smallest_part(stage))
    if workload.decodes:
        shape = replace(
            whole, sequences=sequences, context=workload.context, queries=1.0 + workload.draft_tokens
        )
    else:
        shape = replace(whole, prompt_tokens=sequences * workload.context, prompt_length=workload.context)
    cost = stage_cost(setting, stage, shape=shape, use=use, last=last)
    if not workload.overlap:
        return cost
    half = replace(shape, sequences=shape.sequences / 2, prompt_tokens=shape.prompt_tokens / 2)
    halved = stage_cost(setting, stage, shape=half, use=use, last=last)
    return overlapped(cost, halved, setting.machine(stage).efficiency["overlap"])


def stage_cost(
    setting: Setting, stage: StageSpec, *, shape: StepShape, use: ExpertUse | None, last: bool
) -> StepCost:
    """Return what one micro-batch costs on ``stage``.

    Parameters
    ----------
    shape:
        What the micro-batch processes per GPU, over the GPUs of the stage.
    use:
        The experts' part of the stage's MoE layers, in order; None for a dense stage.
    last:
        Whether the stage holds the output head.
    """
    model, machine = setting.model, setting.machine(stage)
    cost = StepCost()
    for layer, count in model.kind_counts(stage.layers):
        _add_layer(cost, model, layer, count, shape, machine)
    if use is not None:
        moe = next(ffn for i in stage.layers if isinstance(ffn := model.layers[i].ffn, MoeFfn))
        _add_experts(cost, model, moe, use, float(shape.tokens), machine)
        weight = use.repeats / use.share.shape[0]
        if np.any(np.asarray(shape.attention_dp) > 1):
            domain = setting.domains(stage)
            for part in alltoall_parts(
                model, use, tokens=float(shape.tokens), domain=domain, machine=machine
            ):
                _add_spread(cost, part.term, part.up_s, part.out_s, part.expected_s, weight, machine.rates)
    _add_head(cost, model, shape, machine, head=last)
    return cost


def overlapped(whole: StepCost, half: StepCost, share: float) -> StepCost:
    """Return the step of two half batches that compute and send in turns.

    Parameters
    ----------
    whole, half:
        The step at the full and at half the batch.
    share:
        Part of the shorter of computing and sending that stays hidden.

    Notes
    -----
    ``2 (compute + send) - share * min(2 compute, 2 send)``: halves read all weights twice, which is why it pays
    at large batch alone (both ablations of SGLang's two-batch overlap are matched by ``share = 0.6``).
    """
    sending = sum((half.terms_s.get(term, 0.0) for term in SENDING), 0.0)
    computing = half.total_s - sending
    hidden = share * 2 * np.minimum(sending, computing)
    exposed = 1 - np.divide(
        hidden, 2 * sending, out=np.zeros_like(hidden * 1.0), where=np.asarray(sending) > 0
    )
    result = StepCost(floor_s=dict(whole.floor_s))
    for term, seconds in half.terms_s.items():
        result.terms_s[term] = 2 * seconds * (exposed if term in SENDING else 1.0)
    ratio = np.divide(result.total_s, 2 * half.total_s)
    result.limits_s = {name: 2 * seconds * ratio for name, seconds in half.limits_s.items()}
    return result


def _add_layer(
    cost: StepCost, model: Model, layer: Layer, count: int, shape: StepShape, machine: Machine
) -> None:
    """Everything of ``count`` equal layers but routed experts and their all-to-all."""
    rates, efficiency, precision = machine.rates, machine.efficiency, model.precision
    works = attention_works(
        layer.attention,
        shape,
        hidden=model.hidden,
        kv_dtype=machine.kv_dtype,
        weights=precision["attention"],
        rates=rates,
    )
    ffn, moe = layer.ffn, isinstance(layer.ffn, MoeFfn)
    if isinstance(ffn, MoeFfn):
        parts = [
            (ffn.shared_params, shape.tp, precision["shared"]),
            (ffn.router_params, 1.0, precision["router"]),
        ]
    else:
        parts = [(ffn.params, shape.tp, precision["dense"])]
    works += [
        dense_work(params, tokens=shape.tokens, tp=tp, hidden=model.hidden, weights=weights, rates=rates)
        for params, tp, weights in parts
    ]
    for work in works:
        cost.add_work(replace(work, layers=count), efficiency)
    if np.any(np.asarray(shape.tp) > 1):
        reduced = _all_reduces(layer, shape)
        part = all_reduce_part(
            model.hidden, shape, times=reduced, rates=rates, efficiency=efficiency, layers=count
        )
        cost.add_links(part, rates.up_fabric, rates.out_fabric)
    fixed = efficiency["delay.layer"] + moe * efficiency["delay.moe_layer"]
    cost.add("overhead", "fixed overhead", count * fixed)


def _all_reduces(layer: Layer, shape: StepShape) -> Quantity:
    """All-reduces of one layer: after attention, and after a feed-forward part that tensor parallelism cuts.

    Experts of several attention groups return their sums by the combine; of one group, by the all-reduce.
    """
    if not isinstance(layer.ffn, MoeFfn) or layer.ffn.shared_params:
        return 2.0
    return np.where(np.asarray(shape.attention_dp) > 1, 1.0, 2.0)


def _add_head(cost: StepCost, model: Model, shape: StepShape, machine: Machine, *, head: bool) -> None:
    """Output head (decoding tokens, last token of each prompt) and what a step costs whatever it does."""
    efficiency = machine.efficiency
    if head:
        tokens = shape.sequences * shape.queries + shape.prompt_tokens / np.maximum(shape.prompt_length, 1.0)
        work = dense_work(
            model.head_params,
            tokens=tokens,
            tp=shape.tp,
            hidden=model.hidden,
            weights=model.precision["head"],
            rates=machine.rates,
            term="head",
        )
        cost.add_work(work, efficiency)
        requests = shape.sequences * shape.tp
        cost.add(
            "overhead",
            "fixed overhead",
            efficiency["delay.step"] + efficiency["delay.sequence"] * requests,
        )


def _add_experts(
    cost: StepCost, model: Model, moe: MoeFfn, use: ExpertUse, tokens: float, machine: Machine
) -> None:
    """Experts of each layer: the step waits for the GPU that has most; the mean over scenarios is counted."""
    rates, weights = machine.rates, model.precision["experts"]
    compute_s, read_s = expert_times(moe, use, tokens=tokens * use.gpus, weights=weights, rates=rates)
    work = Work(
        "experts",
        f"experts.{rates.unit[weights]}",
        "hbm.experts",
        compute_s,
        read_s,
        columns=expert_columns(moe, model.hidden),
    )
    compute, read = work_seconds(work, machine.efficiency)
    seconds = np.max(smooth_max(compute, read), axis=2)
    weight = use.repeats / use.share.shape[0]
    by_compute = np.max(compute, axis=2) >= np.max(read, axis=2)
    cost.add("experts", "compute", float(seconds[by_compute].sum()) * weight)
    cost.add("experts", "HBM bandwidth", float(seconds[~by_compute].sum()) * weight)
    cost.busy("compute", float(compute_s.max(axis=2).sum()) * weight)
    cost.busy("HBM bandwidth", float(read_s.max(axis=2).sum()) * weight)


def _add_spread(
    cost: StepCost,
    term: str,
    up_s: Quantity,
    out_s: Quantity,
    expected_s: Quantity,
    weight: float,
    rates: Rates,
) -> None:
    """Dispatch or combine of every layer in every scenario, ``[scenarios, layers]``."""
    up, out, seconds = (np.asarray(value) for value in (up_s, out_s, expected_s))
    over_out = out > up
    cost.add(term, rates.up_fabric, float(seconds[~over_out].sum()) * weight)
    cost.busy(rates.up_fabric, float(up.sum()) * weight)
    if out.any():
        cost.add(term, rates.out_fabric, float(seconds[over_out].sum()) * weight)
        cost.busy(rates.out_fabric, float(out.sum()) * weight)


def hop_seconds(
    setting: Setting, sender: StageSpec, receiver: StageSpec, *, moved: float
) -> tuple[str, float, float]:
    """Return the fabric of a pipeline hop, its expected seconds and its seconds at peak.

    ``moved`` bytes pass the busiest GPU: over the scale-up fabric where both stages lie in one domain, else
    over the scale-out one.
    """
    rates, reached = setting.rates(sender), setting.machine(sender).efficiency["links.hop"]
    if len(setting.domain_set(sender) | setting.domain_set(receiver)) == 1:
        peak_s = moved / rates.up_bytes_per_s
        return rates.up_fabric, peak_s / reached + rates.up_latency_s, peak_s
    rates.require_scale_out()
    peak_s = moved / rates.out_bytes_per_s
    return rates.out_fabric, peak_s / reached + rates.out_latency_s, peak_s
