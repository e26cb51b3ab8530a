"""A decode step whose attention runs on other GPUs than its experts (attention-FFN disaggregation, AFD).

Attention GPUs hold attention, dense and shared parts, router, head and the cache; expert GPUs hold routed experts. In
each layer with experts a micro-batch passes attention, the way to the experts, these, and the way back. Micro-batches
take turns on the four, which all work at once: links have two directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cost.experts.tokens.reach import ExpertUse, hit_chance
from cost.experts.tokens.volumes import Family, Volumes
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import Machine
from cost.inputs.workload import StepShape, Workload
from cost.model import Model, MoeFfn, StageShard
from cost.quantity import Quantity
from cost.step.step import even_parts, measured, priced, with_even_slots
from cost.terms.alltoall import fastest, group_limit, leg_part, routing_of, vector_sizes
from cost.terms.experts import EXPERTS
from cost.terms.work import LayerStep, LinkPart, Parts, PlacedExperts, StepCost
from topology.base.errors import InputError
from topology.base.units import added

MICRO_BATCHES = (2, 3)
"""Micro-batches in flight: two hide each pool behind the other, a third hides the transfers (MegaScale-Infer,
arXiv:2504.02263, section 4.1; Step-3, arXiv:2507.19427, has three stages)."""
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Sides:
    """Both pools of one replica, or of many alike; numbers, or arrays with one entry for each.

    Attributes
    ----------
    attention, experts, links:
        Machines of the attention GPUs, of the expert GPUs, and of both: the rates of its slowest links.
    attends, holds, together:
        Shapes of the two groups, and of one of all these GPUs.
    near, far:
        GPUs of the other pool in the domain of a GPU, and outside it, where they are most.
    """

    attention: Machine
    experts: Machine
    links: Machine
    attends: StepShape
    holds: StepShape
    together: StepShape
    near: Quantity
    far: Quantity

    @classmethod
    def of(
        cls, deployment: Deployment, attention: StageSpec, stage: StageSpec, tp: int, slots: float
    ) -> Sides:
        """Return those of one replica with so many expert copies a layer."""
        both, moe = StageSpec((*attention.gpus, *stage.gpus), stage.layers), deployment.model.moe
        same = deployment.domains(attention)[:, None] == deployment.domains(stage)
        near, far = (int(max(pairs.sum(axis=0).max(), pairs.sum(axis=1).max())) for pairs in (same, ~same))

        def group(members: StageSpec, tp: int, slots: float) -> StepShape:
            gpus, apart = len(members.gpus), deployment.smallest_part(members)
            return StepShape(
                tp=float(tp), attention_dp=gpus / tp, ep=float(gpus), slots=slots, domain_gpus=apart
            )

        machine, experts = deployment.machine, 0.0 if moe is None else float(moe.experts)
        return cls(
            machine(attention),
            machine(stage),
            machine(both),
            group(attention, tp, 0.0),
            group(stage, 1, slots),
            group(both, tp, experts),
            near,
            far,
        )

    @classmethod
    def joined(cls, sides: Sequence[Sides]) -> Sides:
        """Return sides on the same machines as arrays."""
        first, columns = sides[0], dict[str, Any]()
        for name in ("attends", "holds", "together"):
            shapes = [getattr(side, name) for side in sides]
            varying = ("tp", "attention_dp", "ep", "slots", "domain_gpus")
            values = {key: np.array([float(getattr(shape, key)) for shape in shapes]) for key in varying}
            columns[name] = replace(shapes[0], **values)
        columns |= {name: np.array([getattr(side, name) for side in sides]) for name in ("near", "far")}
        return replace(first, **columns)

    @property
    def crosses(self) -> bool:
        """Whether anything is sent between domains."""
        return bool(np.any(np.asarray(self.far) > 0))


@dataclass(frozen=True, eq=False)
class Turns:
    """What each of ``micro_batches`` takes of a step, expected seconds and floors by part.

    Attributes
    ----------
    ends:
        On attention GPUs alone: layers before the first with experts, the head, fixed parts of a step.
    passed:
        Attention, the way to the experts, these, and the way back, in all ``visits``: layers with experts.
    factor:
        What measured steps took over the model's where the same GPUs have both; none is known apart.
    """

    ends: StepCost
    passed: tuple[StepCost, StepCost, StepCost, StepCost]
    visits: int
    micro_batches: Quantity
    factor: Quantity = 1.0

    @property
    def attention_s(self) -> Quantity:
        """Seconds of a step that attention GPUs are busy."""
        return self.factor * self.micro_batches * (self.ends.total_s + self.passed[0].total_s)

    @property
    def experts_s(self) -> Quantity:
        """Seconds of a step that expert GPUs are busy."""
        return self.factor * self.micro_batches * self.passed[2].total_s

    def step(self) -> StepCost:
        """Return the step that they make together.

        Notes
        -----
        With ``x`` seconds of a visit, ``m`` micro-batches and ``L`` visits it takes ``m ends + (L - 1) max(m max x,
        sum x) + sum x + (m - 1) max x``: the slowest of the four sets the pace, or the way of one micro-batch round
        all of them, then the last layer drains (MegaScale-Infer, arXiv:2504.02263, section 4.1, where the first
        binds). Parts are those that the step waits for, so they add up to it.
        """
        visits, m = self.visits, np.asarray(self.micro_batches, dtype=np.float64)
        seconds = np.broadcast_arrays(*(part.total_s for part in self.passed))
        longest, round_s = np.maximum.reduce(seconds), added(seconds)
        goes_round, open_ = round_s >= m * longest, np.ones_like(longest, dtype=bool)
        step = StepCost({names: m * spent_s for names, spent_s in self.ends.parts_s.items()})
        for part, value in zip(self.passed, seconds, strict=True):
            paces = open_ & (value == longest)  # the first of those that are as long
            open_ = open_ & ~paces
            times = (
                np.where(goes_round, 1.0, paces * m) * (visits - 1) / visits + (1 + paces * (m - 1)) / visits
            )
            for names, spent_s in part.parts_s.items():
                step.add(*names, times * spent_s)
        attends: dict[str, Quantity] = {**self.ends.floor_s}
        for resource, busy_s in self.passed[0].floor_s.items():
            attends[resource] = attends.get(resource, 0.0) + busy_s
        for floor_s in (attends, *(part.floor_s for part in self.passed[1:])):
            for resource, busy_s in floor_s.items():
                step.floor_s[resource] = np.maximum(step.floor_s.get(resource, 0.0), m * busy_s)
        return step.times(self.factor)


def apart_turns(
    model: Model,
    workload: Workload,
    sides: Sides,
    sequences: Quantity,
    micro_batches: Quantity,
    placed: PlacedExperts | None = None,
    attention: StageSpec | None = None,
) -> Turns:
    """Return what each of ``micro_batches`` takes of a step with ``sequences`` for each attention GPU.

    Parameters
    ----------
    placed, attention:
        The experts as they are placed on their GPUs, and the GPUs of attention; None: all experts equally loaded.

    Raises
    ------
    InputError
        If the model has no experts, or the workload is another than plain decode.
    """
    require_apart(model, workload)
    tp, gpus = sides.attends.tp, sides.attends.gpus
    turn = np.ceil(sequences * tp / micro_batches - _ROUNDING) / tp  # of a group whole sequences
    attends = sides.attends.under(workload, turn)
    holds = sides.holds.under(workload, turn * gpus / sides.holds.ep)
    ends, visited = _attention(model, attends, sides.attention)
    if workload.draft_tokens:
        _add_drafts(ends, model, sides, attends, holds)
    experts = _experts(model, holds, sides.experts, placed)
    ways = {"dispatch": StepCost(), "combine": StepCost()}
    for part in _transfers(model, sides, attends.tokens, placed, attention):
        if placed is None:
            ways[part.term].add_links(replace(part, layers=len(model.moe_layers)), sides.links.rates)
        else:
            weight = placed.use.repeats / placed.use.share.shape[0]
            ways[part.term].add_spread(part, weight, sides.links.rates)
    passed = visited, ways["dispatch"], experts, ways["combine"]
    together = sides.together.under(workload, sequences * gpus / sides.together.gpus)
    factor = measured(with_even_slots(together), sides.links).measured
    return Turns(ends, passed, len(model.moe_layers), micro_batches, factor)


def require_apart(model: Model, workload: Workload) -> None:
    """Raise InputError where attention cannot run apart from the experts: why."""
    why = ""
    if model.moe is None:
        why = f"{model.name} has no routed experts"
    elif workload.phase != "decode":
        why = "it is a way to decode; prefill it does not serve"
    elif workload.overlap:
        why = "micro-batches take turns already, so half-batches have nothing left to overlap"
    if why:
        raise InputError(f"attention apart from the experts: {why}.", field="afd")


def _attention(model: Model, shape: StepShape, machine: Machine) -> tuple[StepCost, StepCost]:
    """Return what attention GPUs do beside the layers that visit experts, and in those."""
    rest, first = model.without_experts, model.moe_layers[0]
    before = StageShard(tuple(rest.kind_counts(range(first))))
    visiting = StageShard(tuple(rest.kind_counts(range(first, len(model.layers)))), 0.0, 0.0)
    ends, visited = (
        priced(even_parts(rest, shape, machine, held), machine.efficiency, machine.rates)
        for held in (before, visiting)
    )
    return ends, visited


def _add_drafts(ends: StepCost, model: Model, sides: Sides, attends: StepShape, holds: StepShape) -> None:
    """Count what the draft module's experts take, one token after the other; the rest of it is in ``ends``."""
    parts, shape = Parts(), replace(holds, queries=1.0)
    EXPERTS.of_layer(parts, LayerStep(model, model.draft, 1.0, shape, sides.experts))
    cost = priced(parts, sides.experts.efficiency, sides.experts.rates)
    for part in _transfers(model, sides, attends.sequences, None, None):
        cost.add_links(part, sides.links.rates)
    drafts = attends.queries - 1
    for names, spent_s in cost.parts_s.items():
        ends.add(*names, drafts * spent_s)
    for resource, busy_s in cost.floor_s.items():
        ends.busy(resource, drafts * busy_s)


def _experts(model: Model, shape: StepShape, machine: Machine, placed: PlacedExperts | None) -> StepCost:
    """Return what expert GPUs do in all layers that visit them, their fixed parts included."""
    parts = Parts()
    for layer, count in model.kind_counts(range(len(model.layers))):
        if isinstance(layer.ffn, MoeFfn):
            parts.count("delay.layer", count / 2)  # the other half is that of attention
            parts.count("delay.moe_layer", float(count))
            if placed is None:
                EXPERTS.of_layer(parts, LayerStep(model, layer, count, shape, machine))
    cost = priced(parts, machine.efficiency, machine.rates)
    if placed is not None and EXPERTS.of_placement is not None:
        EXPERTS.of_placement(cost, placed, shape, machine.efficiency)
    return cost


def _transfers(
    model: Model, sides: Sides, tokens: Quantity, placed: PlacedExperts | None, attention: StageSpec | None
) -> list[LinkPart]:
    """Return both ways of a visit, ``tokens`` of each attention GPU; by scenario and layer where experts are placed.

    Each vector goes straight to the GPU that needs it: attention GPUs send and expert GPUs receive, then back.
    """
    moe, machine = model.moe, sides.links
    assert moe is not None  # noqa: S101 - :func:`require_apart`
    if sides.crosses:
        machine.rates.require_scale_out()
    ours, theirs = np.asarray(sides.attends.gpus), np.asarray(sides.holds.ep)
    tried = []
    for kernel in machine.kernels.of(crosses=sides.crosses):
        if placed is None or attention is None:
            chance = (
                moe.top_k / theirs if kernel.family == "per-copy" else hit_chance(routing_of(moe), 1, theirs)
            )
            up, out, all_up, sent, received = (
                np.asarray(tokens * chance * gpus)
                for gpus in (sides.near, sides.far, np.maximum(ours, theirs), theirs, ours)
            )
        else:
            up, out, all_up, sent, received = _placed_vectors(
                kernel.family, placed, attention, float(tokens), group_limit(moe)
            )
        # what takes the NICs relieves the other links, but no kernel is known to gain by it
        staged_up = np.where(up > 0, np.maximum(up, all_up), 0.0)
        dispatch, combine = vector_sizes(model, machine)
        there, back = ((Volumes(up, out, ends), Volumes(staged_up, out, ends)) for ends in (received, sent))
        peers, scaled = np.maximum(ours, theirs), dispatch < combine
        legs = [
            leg_part(kernel, "dispatch", *there, size=dispatch, machine=machine, ep=peers, scaled=scaled),
            leg_part(kernel, "combine", *back, size=combine, machine=machine, ep=peers),
        ]
        tried.append(legs)
    return fastest(tried)


def _placed_vectors(
    family: Family, placed: PlacedExperts, attention: StageSpec, tokens: float, limit: tuple[int, int]
) -> tuple[np.ndarray, ...]:
    """Return the vectors of the busiest GPU, ``[scenarios, layers]``.

    Over scale-up and scale-out links, over scale-up links if all GPUs shared a domain, and those that end on an
    attention GPU and on an expert GPU.
    """
    use: ExpertUse = placed.use
    chance = use.top_k * use.share if family == "per-copy" else use.token_share(limit)
    ours, theirs = placed.deployment.domains(attention), placed.deployment.domains(placed.stage)
    all_of = chance.sum(axis=-1)
    up, out = np.zeros_like(all_of), np.zeros_like(all_of)
    for domain in np.unique(np.concatenate([ours, theirs])).tolist():
        here, there = int((ours == domain).sum()), chance[..., theirs == domain]
        inside = there.sum(axis=-1)
        if here:  # an attention GPU here sends to the experts here, and elsewhere
            outside = all_of - inside if there.shape[-1] < len(theirs) else 0.0
            up, out = np.maximum(up, inside), np.maximum(out, outside)
        if there.shape[-1]:  # an expert GPU here hears from the attention GPUs here, and elsewhere
            busiest = there.max(axis=-1)
            up, out = np.maximum(up, here * busiest), np.maximum(out, (len(ours) - here) * busiest)
    received = len(ours) * chance.max(axis=-1)
    return tuple(tokens * count for count in (up, out, np.maximum(all_of, received), all_of, received))
