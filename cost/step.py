"""One step: its parts, what each rests on, and which resource binds; for one stage, or for many shapes at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from cost.deployment import Deployment
from cost.dispatch import ExpertUse
from cost.layout import StageSpec
from cost.machine import Efficiency, Machine, Rates
from cost.model import Layer, Model, StageShard
from cost.quantity import Quantity
from cost.terms.dense import add_head
from cost.terms.overhead import ENGINE, add_step_delays
from cost.terms.registry import TERMS
from cost.terms.work import FIXED, LayerStep, Parts, PlacedStep, StepCost
from cost.workload import StepShape
from topology.units import added


def even_step(
    model: Model,
    shape: StepShape,
    machine: Machine,
    held: StageShard | None = None,
    *,
    overlap: bool = False,
) -> StepCost:
    """Return what a step costs where experts are loaded evenly but for ``shape.imbalance``.

    Every attribute of ``shape`` and of ``held`` may be an array: all configurations are computed at once.
    ``held`` is what the stage holds of the model; None: all of it. ``overlap``: in two half batches.
    """
    whole = priced(even_parts(model, shape, machine, held), machine.efficiency, machine.rates)
    if not overlap:
        return whole
    return overlapped(whole, even_step(model, shape.halved, machine, held), machine.efficiency["overlap"])


def even_parts(model: Model, shape: StepShape, machine: Machine, held: StageShard | None = None) -> Parts:
    """Return the parts of :func:`even_step`, before it is said what kernels reach."""
    held = held or model.whole
    parts = Parts()
    _add_layers(parts, model, held.layers, shape, machine)
    _add_ends(parts, model, shape, machine, held.last)
    return parts


def batch_cost(
    deployment: Deployment, stage: StageSpec, sequences: float, tp: int, use: ExpertUse | None, *, last: bool
) -> StepCost:
    """Return what ``sequences`` per GPU cost on one stage, in two half batches where that was asked for."""
    workload, gpus = deployment.workload, len(stage.gpus)
    slots = 0.0 if use is None else float(gpus * np.bincount(use.slot_gpu).max())
    group = StepShape(
        tp=tp, attention_dp=gpus / tp, ep=gpus, slots=slots, domain_gpus=deployment.smallest_part(stage)
    )
    shape = group.under(workload, sequences)
    cost = stage_cost(deployment, stage, shape=shape, use=use, last=last)
    if not workload.overlap:
        return cost
    halved = stage_cost(deployment, stage, shape=shape.halved, use=use, last=last)
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
    _add_layers(parts, model, model.kind_counts(stage.layers), shape, machine, placed=True)
    if last:
        _add_ends(parts, model, shape, machine, 1.0)
    cost = priced(parts, machine.efficiency, machine.rates)
    if use is not None:
        at = PlacedStep(deployment, stage, use, float(shape.tokens), shape.attention_dp)
        for term in TERMS.values():
            if term.of_placement is not None:
                term.of_placement(cost, at)
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
    sending = added(seconds for (term, _), seconds in half.parts_s.items() if TERMS[term].sends)
    computing = half.total_s - sending
    hidden = share * np.minimum(sending, computing)
    exposed = 1 - np.where(np.asarray(sending) > 0, hidden / np.maximum(sending, 1e-30), 0.0)
    result = StepCost(floor_s=dict(whole.floor_s))
    for (term, limit), seconds in half.parts_s.items():
        result.parts_s[term, limit] = 2 * seconds * (exposed if TERMS[term].sends else 1.0)
    return result


def priced(parts: Parts, efficiency: Efficiency, rates: Rates) -> StepCost:
    """Return the seconds of ``parts`` where kernels reach what ``efficiency`` says."""
    cost = StepCost()
    for work in parts.works:
        cost.add_work(work, efficiency)
    cost.add(ENGINE.name, FIXED, efficiency["engine.share"] * cost.total_s)
    for link in parts.links:
        cost.add_links(link, rates)
    for reduce in parts.reduces:
        cost.add_reduce(reduce, efficiency, rates)
    for term in TERMS.values():
        fixed = added(parts.counts.get(name, 0.0) * efficiency[name] for name in term.delays)
        if np.any(np.asarray(fixed) > 0):
            cost.add(term.name, FIXED, fixed)
    return cost


def _add_layers(
    parts: Parts,
    model: Model,
    layers: Iterable[tuple[Layer, Quantity]],
    shape: StepShape,
    machine: Machine,
    *,
    placed: bool = False,
) -> None:
    """Everything of ``layers``; ``placed``: but for what a placement of the experts says."""
    for layer, count in layers:
        at = LayerStep(model, layer, count, shape, machine)
        for term in TERMS.values():
            if not placed or term.of_placement is None:
                term.of_layer(parts, at)


def _add_ends(parts: Parts, model: Model, shape: StepShape, machine: Machine, last: Quantity) -> None:
    """Output head, fixed costs of the step, and the draft tokens; ``last`` is 1 where the stage has the head, else 0.

    Drafts follow one after the other: each takes one layer like the model's last, and the head (DeepSeek-V3 report,
    section 2.2: a draft module is one decoder layer that shares embedding and head).
    """
    add_head(parts, model, shape, machine, last)
    add_step_delays(parts, shape, last)
    drafts = last * (shape.queries - 1)
    if np.any(np.asarray(drafts) > 0):
        one = replace(shape, queries=1.0, prompt_tokens=0.0)
        extra = Parts()
        _add_layers(extra, model, [(model.layers[-1], 1.0)], one, machine)
        add_head(extra, model, one, machine, 1.0)
        parts.add(extra, drafts)
