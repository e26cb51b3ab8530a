"""One step: its parts, evidence and bottleneck, for one stage or many shapes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from cost.experts.tokens.reach import ExpertUse
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec, StageWidths
from cost.inputs.machine import NO_RUNS, Efficiency, Machine, NearRuns, Rates
from cost.inputs.workload import StepShape
from cost.model import Layer, Model, StageShard
from cost.quantity import Quantity, positive
from cost.terms.dense import add_head
from cost.terms.overhead import ENGINE, add_step_delays
from cost.terms.registry import TERMS
from cost.terms.work import FIXED, LayerStep, Parts, PlacedExperts, StepCost
from topology.base.units import added


def even_step(
    model: Model,
    shape: StepShape,
    machine: Machine,
    held: StageShard | None = None,
    *,
    placed: PlacedExperts | None = None,
    overlap: bool = False,
    bounds: bool = True,
) -> StepCost:
    """Return what a step costs where experts are loaded evenly but for ``shape.imbalance``, or as they are placed.

    Every attribute of ``shape`` and of ``held`` may be an array: all configurations are computed at once.

    Parameters
    ----------
    held:
        What the stage holds of the model; None: all of it.
    placed:
        The experts of one stage as a placement has them.
    overlap:
        In two half batches.
    bounds:
        With what bound each part, and the floor.
    """
    if machine.pads and model.moe is not None and shape.decodes:
        shape = shape.padded

    def price(shape: StepShape, on: Machine) -> StepCost:
        return _whole_step(model, shape, on, held, placed, bounds=bounds)

    if shape.mixes:
        full = _mixed_step(shape, machine, price)
    else:
        full = price(shape, machine.of_prefill if shape.prefills else machine)
    if not overlap:
        return full.times(shape.measured)
    half = even_step(model, shape.halved, machine, held, placed=placed, bounds=bounds)
    return overlapped(full, half, machine.efficiency["overlap"])


def physics_seconds(model: Model, shape: StepShape, machine: Machine) -> Quantity:
    """Return the expected seconds of a step of all layers, experts loaded evenly, without what runs took over it."""
    return even_step(model, shape, machine, bounds=False).total_s


def measured(shape: StepShape, machine: Machine) -> StepShape:
    """Return a shape with the correction by nearby measured steps."""
    return shape if machine.correction is None else machine.correction.applied(shape, physics_seconds)


def near_runs(deployment: Deployment, layout: Layout, batch: float) -> NearRuns:
    """Return what measured runs near a layout's decode step say; of prefill, which no run corrects, nothing.

    With attention apart, which no run has, those with both on all of its GPUs.
    """
    stage = layout.replicas[0][0]
    if layout.apart is not None:
        stage = StageSpec(layout.gpus_of(0), stage.layers)
    correction = deployment.machine(stage).correction
    if correction is None or not deployment.workload.decodes:
        return NO_RUNS
    shape = with_even_slots(
        StepShape(
            **layout.widths,
            attention_dp=len(stage.gpus) // layout.tp,
            ep=len(stage.gpus) // layout.moe_tp,
            slots=0.0 if deployment.model.moe is None else deployment.model.moe.experts,
            domain_gpus=deployment.smallest_part(stage),
        )
    )
    return correction.near(shape.under(deployment.workload, batch), physics_seconds)


def with_even_slots(shape: StepShape) -> StepShape:
    """Every GPU with as many expert copies as the one with most: that one is what the step waits for."""
    return replace(shape, slots=np.ceil(shape.slots / shape.ep) * shape.ep)


def _mixed_step(
    shape: StepShape, machine: Machine, price: Callable[[StepShape, Machine], StepCost]
) -> StepCost:
    """A step that decodes, and its part of the chunks of prompts.

    ``t(b) + q [T(b, c) - t(b)]``: what a chunk adds, priced by what kernels reach on prompts, in ``q`` of the steps
    (:attr:`StepShape.prompt_share`). Without experts a step waits for the attention group with most chunks, experts
    take those of all groups alike.
    """
    efficiency, on = machine.efficiency, machine.of_prompts
    without = replace(shape, prompt_tokens=0.0)
    alone, base, full = price(without, machine), price(without, on), price(shape, on)
    first_share = efficiency["prompts.first"] + 0.5 / np.asarray(shape.rounds)
    share = shape.prompt_share * np.where(np.asarray(shape.waits) > 0, shape.others * (1 - first_share), 1.0)
    groups = np.where(np.asarray(shape.at_random) > 0, shape.attention_dp, 1.0)
    uneven = 1 + efficiency["prompts.uneven"] * (busiest(shape.prompt_share, groups) - 1)
    decodes = np.asarray(shape.sequences) > 0
    return alone.with_more(base, full, share, uneven, decodes)


def busiest(mean: Quantity, groups: Quantity) -> Quantity:
    """Return the largest of ``groups`` Poisson counts over their ``mean``, 1 of one group."""
    means, group_counts = np.broadcast_arrays(
        np.asarray(mean, dtype=np.float64), np.asarray(groups, dtype=np.float64)
    )
    logs, sizes, table = _busiest_table()
    at = np.clip(np.log(np.maximum(means, 1e-9)), logs[0], logs[-1])
    size = np.clip(np.log2(np.maximum(group_counts, 1.0)), sizes[0], sizes[-1])
    column = np.clip(np.searchsorted(logs, at) - 1, 0, len(logs) - 2)
    row = np.clip(np.searchsorted(sizes, size) - 1, 0, len(sizes) - 2)
    x = (at - logs[column]) / (logs[column + 1] - logs[column])
    y = (size - sizes[row]) / (sizes[row + 1] - sizes[row])
    low = (1 - x) * table[row, column] + x * table[row, column + 1]
    high = (1 - x) * table[row + 1, column] + x * table[row + 1, column + 1]
    return np.where(group_counts > 1, (1 - y) * low + y * high, 1.0)


@cache
def _busiest_table() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms of means, of groups to base 2, and largest over mean, ``[groups, means]``."""
    from scipy.special import pdtr

    means, sizes = np.geomspace(1e-3, 100.0, 41), np.arange(11.0)
    below = pdtr(np.arange(0, 180)[:, None], means)
    table = np.stack([(1 - below**2**size).sum(axis=0) / means for size in sizes])
    return np.log(means), sizes, table


def _whole_step(
    model: Model,
    shape: StepShape,
    machine: Machine,
    held: StageShard | None,
    placed: PlacedExperts | None,
    *,
    bounds: bool,
) -> StepCost:
    """A step in one batch, all of what prompts add to it."""
    parts = even_parts(model, shape, machine, held, placed=placed is not None)
    cost = priced(parts, machine.efficiency, machine.rates, bounds=bounds)
    if placed is not None:
        for term in TERMS.values():
            if term.of_placement is not None:
                term.of_placement(cost, placed, shape, machine.efficiency)
    return cost


def even_parts(
    model: Model, shape: StepShape, machine: Machine, held: StageShard | None = None, *, placed: bool = False
) -> Parts:
    """Return the parts of :func:`even_step`, before it is said what kernels reach.

    ``placed``: but for what a placement of the experts says.
    """
    held = held or model.whole
    parts = Parts()
    _add_layers(parts, model, held.layers, shape, machine, placed=placed)
    if positive(held.last):
        _add_ends(parts, model, shape, machine, held.last)
    return parts


def batch_cost(
    deployment: Deployment,
    stage: StageSpec,
    sequences: float,
    use: ExpertUse | None,
    *,
    last: bool,
    fair: bool = False,
    **widths: Unpack[StageWidths],
) -> StepCost:
    """Return what ``sequences`` per GPU cost on one stage, in two half batches where that was asked for.

    ``use``: the experts' part of the stage's MoE layers, in order; None for a dense stage, or where each expert is
    cut into parts. ``last``: whether the stage holds the output head. ``fair``: tokens share links max-min fairly,
    else as the busiest link alone has it.
    """
    gpus, model = len(stage.gpus), deployment.model
    slots = 0.0 if use is None else float(gpus * use.fixed_slots.max())
    group = StepShape(
        **widths,
        attention_dp=gpus / widths["tp"],
        ep=gpus / widths.get("moe_tp", 1),
        slots=slots,
        domain_gpus=deployment.smallest_part(stage),
    )
    machine = deployment.machine(stage)
    return even_step(
        model,
        measured(group.under(deployment.workload, sequences), machine),
        machine,
        StageShard(tuple(model.kind_counts(stage.layers)), last=float(last)),
        placed=None if use is None else PlacedExperts(deployment, stage, use, fair),
        overlap=deployment.workload.overlap,
    )


def overlapped(full: StepCost, half: StepCost, share: Quantity) -> StepCost:
    """Return the step of two half batches that compute and send in turns.

    Parameters
    ----------
    full, half:
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
    result = StepCost(floor_s=dict(full.floor_s))
    for (term, limit), seconds in half.parts_s.items():
        result.parts_s[term, limit] = 2 * seconds * (exposed if TERMS[term].sends else 1.0)
    return result


def priced(parts: Parts, efficiency: Efficiency, rates: Rates, *, bounds: bool = True) -> StepCost:
    """Return the seconds of ``parts`` where kernels reach what ``efficiency`` says; ``bounds`` as of the cost."""
    cost = StepCost(bounds=bounds)
    for work in parts.works:
        cost.add_work(work, efficiency)
    cost.add(ENGINE.name, FIXED, efficiency["engine.share"] * cost.total_s)
    for link in parts.links:
        cost.add_links(link, rates)
    for reduce in parts.reduces:
        cost.add_reduce(reduce, efficiency, rates)
    for term in TERMS.values():
        delays = [(name, efficiency[name]) for name in term.delays]
        if not efficiency.ideal:
            delays += [(name, figure.value) for name, figure in term.known_delays.items()]
        fixed = added(parts.counts[name] * seconds for name, seconds in delays if name in parts.counts)
        if positive(fixed):
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
    if positive(drafts):
        draft = replace(shape, queries=1.0, prompt_tokens=0.0)
        extra = Parts()
        _add_layers(extra, model, [(model.draft, 1.0)], draft, machine)
        add_head(extra, model, draft, machine, 1.0)
        parts.add(extra, drafts)


def token_wait_s(step_s: float) -> tuple[float, float]:
    """Return the mean and the longest time until a request that finds a place has its next token: 1.5 and 2 steps.

    Requests join at step boundaries: one that arrives just after a boundary waits a step for the next and takes part
    in another; on average it waits half a step. ``step_s`` is the time in which a token passes all pipeline stages.
    """
    return 1.5 * step_s, 2 * step_s
