"""One step: its parts, what each rests on, and which resource binds; for one stage, or for many shapes at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from cost.deployment import Deployment
from cost.dispatch import ExpertUse
from cost.layout import StageSpec
from cost.machine import Machine
from cost.model import Held, Layer, Model, MoeFfn, whole_model
from cost.quantity import Quantity
from cost.terms.all_reduce import all_reduce_part
from cost.terms.alltoall import alltoall_parts, even_alltoall_parts
from cost.terms.attention import attention_works
from cost.terms.dense import dense_work
from cost.terms.experts import GpuRates, even_expert_work, expert_columns, expert_times, gpu_rates
from cost.terms.work import (
    FIXED,
    SENDING,
    Parts,
    StepCost,
    Work,
    filling,
    kernel_seconds,
    priced,
    work_seconds,
)
from cost.workload import StepShape

LATENT = ("mla", "dsa", "csa", "hca")
"""Kinds of attention that work on latents: their layers run more kernels than those of grouped queries."""
INDEXED = ("dsa", "csa", "bsa")
"""Kinds that pick the tokens they attend to by an index: logits, top-k and gather besides."""
COMPRESSED = ("csa", "hca")
"""Kinds whose cache holds compressed entries, in models with several residual streams (DeepSeek-V4)."""


def even_step(model: Model, shape: StepShape, machine: Machine, held: Held | None = None) -> StepCost:
    """Return what a step costs where experts are loaded evenly but for ``shape.imbalance``.

    Every attribute of ``shape`` and of ``held`` may be an array: all configurations are computed at once.
    ``held`` is what the stage holds of the model; None: all of it.
    """
    return priced(even_parts(model, shape, machine, held), machine.efficiency, machine.rates)


def even_parts(model: Model, shape: StepShape, machine: Machine, held: Held | None = None) -> Parts:
    """Return the parts of :func:`even_step`, before it is said what kernels reach."""
    held = held or whole_model(model)
    parts = Parts()
    _add_layers(parts, model, held.layers, shape, machine, experts=True)
    add_head(parts, model, shape, machine, held.last)
    _add_drafts(parts, model, shape, machine, held.last)
    return parts


def batch_cost(
    deployment: Deployment, stage: StageSpec, sequences: float, tp: int, use: ExpertUse | None, *, last: bool
) -> StepCost:
    """Return what ``sequences`` per GPU cost on one stage, in two half batches where that was asked for."""
    workload, gpus = deployment.workload, len(stage.gpus)
    slots = 0.0 if use is None else float(gpus * np.bincount(use.slot_gpu).max())
    whole = StepShape(
        tp=tp, attention_dp=gpus / tp, ep=gpus, slots=slots, domain_gpus=deployment.smallest_part(stage)
    )
    if workload.decodes:
        shape = replace(
            whole, sequences=sequences, context=workload.context, queries=1.0 + workload.draft_tokens
        )
    else:
        shape = replace(
            whole,
            prompt_tokens=sequences * workload.tokens_per_pass,
            prompt_length=workload.context,
            prompt_cached=workload.prompt_cached,
        )
    cost = stage_cost(deployment, stage, shape=shape, use=use, last=last)
    if not workload.overlap:
        return cost
    half = replace(shape, sequences=shape.sequences / 2, prompt_tokens=shape.prompt_tokens / 2)
    halved = stage_cost(deployment, stage, shape=half, use=use, last=last)
    return overlapped(cost, halved, deployment.machine(stage).efficiency["overlap"])


def stage_cost(
    deployment: Deployment, stage: StageSpec, *, shape: StepShape, use: ExpertUse | None, last: bool
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
    model, machine = deployment.model, deployment.machine(stage)
    parts = Parts()
    _add_layers(parts, model, model.kind_counts(stage.layers), shape, machine, experts=False)
    if last:
        add_head(parts, model, shape, machine, 1.0)
        _add_drafts(parts, model, shape, machine, 1.0)
    cost = priced(parts, machine.efficiency, machine.rates)
    if use is not None:
        moe = next(ffn for i in stage.layers if isinstance(ffn := model.layers[i].ffn, MoeFfn))
        _add_placed_experts(cost, model, moe, use, float(shape.tokens), machine, gpu_rates(deployment, stage))
        if np.any(np.asarray(shape.attention_dp) > 1):
            domain, weight = deployment.domains(stage), use.repeats / use.share.shape[0]
            for part in alltoall_parts(
                model, use, tokens=float(shape.tokens), domain=domain, machine=machine
            ):
                cost.add_spread(part, weight, machine.rates)
    return cost


def overlapped(whole: StepCost, half: StepCost, share: Quantity) -> StepCost:
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
    at large batch alone (a share of 0.6 matches both ablations of SGLang's two-batch overlap).
    """
    sending = sum((seconds for (term, _), seconds in half.parts_s.items() if term in SENDING), 0.0)
    computing = half.total_s - sending
    hidden = share * np.minimum(sending, computing)
    exposed = 1 - np.where(np.asarray(sending) > 0, hidden / np.maximum(sending, 1e-30), 0.0)
    result = StepCost(floor_s=dict(whole.floor_s))
    for (term, limit), seconds in half.parts_s.items():
        result.parts_s[term, limit] = 2 * seconds * (exposed if term in SENDING else 1.0)
    return result


def _add_layers(
    parts: Parts,
    model: Model,
    layers: Iterable[tuple[Layer, Quantity]],
    shape: StepShape,
    machine: Machine,
    *,
    experts: bool,
) -> None:
    """Everything of ``layers``; routed experts and their all-to-all only with ``experts``, loaded evenly."""
    for layer, count in layers:
        works = layer_works(model, layer, shape, machine)
        if experts and isinstance(layer.ffn, MoeFfn):
            weights = model.precision["experts"]
            works.append(
                even_expert_work(
                    layer.ffn, shape, hidden=model.expert_hidden, weights=weights, rates=machine.rates
                )
            )
            for link in even_alltoall_parts(model, layer.ffn, shape, machine):
                parts.links.append(replace(link, layers=count))
        parts.works += [replace(work, layers=count) for work in works]
        if np.any(np.asarray(shape.tp) > 1):
            times = all_reduces(layer, shape)
            parts.reduces.append(
                all_reduce_part(model.hidden, shape, times=times, rates=machine.rates, layers=count)
            )
        add_attention_delays(parts, layer, count)
        parts.moe_layers = parts.moe_layers + count * isinstance(layer.ffn, MoeFfn)


def add_attention_delays(parts: Parts, layer: Layer, count: Quantity) -> None:
    """Count the fixed delays of ``count`` layers alike, but for those of experts."""
    kind = layer.attention.kind
    picks = kind in INDEXED and getattr(layer.attention, "own_index", True)
    parts.layers = parts.layers + count
    parts.latent_layers = parts.latent_layers + count * (kind in LATENT)
    parts.index_layers = parts.index_layers + count * picks
    parts.compress_layers = parts.compress_layers + count * (kind in COMPRESSED)


def layer_works(model: Model, layer: Layer, shape: StepShape, machine: Machine) -> list[Work]:
    """Attention, dense or shared feed-forward, and router of one layer."""
    rates, precision, ffn = machine.rates, model.precision, layer.ffn
    works = attention_works(
        layer.attention,
        shape,
        hidden=model.hidden,
        kv_dtype=machine.kv_dtype,
        weights=precision["attention"],
        rates=rates,
    )
    if isinstance(ffn, MoeFfn):
        dense = [
            (ffn.shared_params, shape.tp, precision["shared"]),
            (ffn.router_params, 1.0, precision["router"]),
        ]
    else:
        dense = [(ffn.params, shape.tp, precision["dense"])]
    return works + [
        dense_work(params, tokens=shape.tokens, tp=tp, hidden=model.hidden, weights=weights, rates=rates)
        for params, tp, weights in dense
        if params
    ]


def all_reduces(layer: Layer, shape: StepShape) -> Quantity:
    """All-reduces of one layer: after attention, and after a feed-forward part that tensor parallelism cuts.

    Experts of several attention groups return their sums by the combine; of one group, by the all-reduce.
    """
    if not isinstance(layer.ffn, MoeFfn) or layer.ffn.shared_params:
        return 2.0
    return np.where(np.asarray(shape.attention_dp) > 1, 1.0, 2.0)


def add_head(parts: Parts, model: Model, shape: StepShape, machine: Machine, last: Quantity) -> None:
    """Output head of decoding tokens and of the last token of each prompt, and the fixed costs of a step.

    ``last`` is 1 where the stage has the head, else 0.
    """
    prompts = shape.prompt_tokens / np.maximum(shape.prompt_length - shape.prompt_cached, 1.0)
    work = dense_work(
        model.head_params,
        tokens=shape.sequences * shape.queries + prompts,
        tp=shape.tp,
        hidden=model.hidden,
        weights=model.precision["head"],
        rates=machine.rates,
        term="head",
    )
    parts.works.append(replace(work, layers=last))
    parts.steps = parts.steps + last
    parts.requests = parts.requests + last * shape.sequences * shape.tp


def _add_drafts(parts: Parts, model: Model, shape: StepShape, machine: Machine, last: Quantity) -> None:
    """Draft tokens, one after the other: each takes one layer like the model's last, and the head.

    DeepSeek-V3 report, section 2.2: a draft module is one decoder layer that shares embedding and head.
    """
    drafts = last * (shape.queries - 1)
    if not np.any(np.asarray(drafts) > 0):
        return
    one = replace(shape, queries=1.0, prompt_tokens=0.0)
    extra = Parts()
    _add_layers(extra, model, [(model.layers[-1], 1.0)], one, machine, experts=True)
    add_head(extra, model, one, machine, 1.0)
    parts.works += [
        replace(w, compute_s=drafts * w.compute_s, memory_s=drafts * w.memory_s) for w in extra.works
    ]
    parts.links += [
        replace(p, up_s=drafts * p.up_s, out_s=drafts * p.out_s, expected_s=drafts * p.expected_s)
        for p in extra.links
    ]
    parts.reduces += [
        replace(
            r,
            up_s=drafts * r.up_s,
            out_s=drafts * r.out_s,
            calls=drafts * r.calls,
            crossing=drafts * r.crossing,
        )
        for r in extra.reduces
    ]
    parts.layers = parts.layers + drafts
    parts.moe_layers = parts.moe_layers + drafts * extra.moe_layers
    parts.latent_layers = parts.latent_layers + drafts * extra.latent_layers
    parts.index_layers = parts.index_layers + drafts * extra.index_layers
    parts.compress_layers = parts.compress_layers + drafts * extra.compress_layers


def _add_placed_experts(
    cost: StepCost,
    model: Model,
    moe: MoeFfn,
    use: ExpertUse,
    tokens: float,
    machine: Machine,
    own: GpuRates | None,
) -> None:
    """Experts of each layer: the step waits for the GPU that takes longest; the mean over scenarios is counted.

    ``own``: rates of each GPU over those of ``machine``, the slowest one's; None where all are alike.
    """
    rates, weights = machine.rates, model.precision["experts"]
    compute_s, read_s = expert_times(moe, use, tokens=tokens * use.gpus, weights=weights, rates=rates)
    fraction, wider = rates.fractions("experts", weights)
    work = Work(
        "experts",
        fraction,
        "hbm.experts",
        compute_s,
        read_s,
        columns=filling(
            expert_columns(moe, model.expert_hidden), rates.flop_per_s[weights], rates.hbm_bytes_per_s
        ),
        wider=wider,
    )
    compute, read = (np.asarray(value) for value in work_seconds(work, machine.efficiency))
    compute_s = np.asarray(work.least_compute_s)
    if own is not None:
        compute, read = compute / own.compute, read / own.read
        compute_s, read_s = compute_s / own.peak_compute, read_s / own.peak_read
    seconds = np.max(kernel_seconds(compute, read, machine.efficiency), axis=2)
    weight = use.repeats / use.share.shape[0]
    by_compute = np.max(compute, axis=2) >= np.max(read, axis=2)
    cost.add("experts", "compute", float(seconds[by_compute].sum()) * weight)
    cost.add("experts", "HBM bandwidth", float(seconds[~by_compute].sum()) * weight)
    cost.add("engine", FIXED, machine.efficiency["engine.share"] * float(seconds.sum()) * weight)
    cost.busy("compute", float(compute_s.max(axis=2).sum()) * weight)
    cost.busy("HBM bandwidth", float(read_s.max(axis=2).sum()) * weight)


def hop_seconds(
    deployment: Deployment, sender: StageSpec, receiver: StageSpec, *, moved: float
) -> tuple[str, float, float]:
    """Return the fabric of a pipeline hop, its expected seconds and its seconds at peak.

    ``moved`` bytes pass the busiest GPU: over the scale-up fabric where both stages lie in one domain, else
    over the scale-out one.
    """
    rates, reached = deployment.rates(sender), deployment.machine(sender).efficiency["links.hop"]
    if len(deployment.domain_set(sender) | deployment.domain_set(receiver)) == 1:
        peak_s = moved / rates.up_bytes_per_s
        return rates.up_fabric, peak_s / reached + rates.up_latency_s, peak_s
    rates.require_scale_out()
    peak_s = moved / rates.out_bytes_per_s
    return rates.out_fabric, peak_s / reached + rates.out_latency_s, peak_s
