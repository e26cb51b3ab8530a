"""What must fit in HBM beside what the engine keeps: of one placement, and of many parallel layouts at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec, StageWidths
from cost.inputs.workload import StepShape, Workload
from cost.memory.batches import batch_of, most_that_fit, smallest_share
from cost.memory.budget import Budget, Ranks
from cost.memory.engines import GIB, MIN_ROOM_GIB
from cost.memory.sizes import dispatch_bytes, expert_size, shard_bytes, weight_sizes
from cost.model import Model, MoeFfn, StageShard
from cost.quantity import Quantity
from topology.base.units import added

WEIGHTS_OFF, EXPERTS_OFF = 0.02, 0.035
"""Either way around weights, and those of experts: formats of few layers, padding, vision towers, draft layers."""


@dataclass(frozen=True)
class CacheRoom:
    """What the KV cache of a replica holds.

    Attributes
    ----------
    tokens, low, high:
        Tokens, and from how many to how many by what start logs differ; ``low`` is 0 where it may not start.
    sequences, context:
        Whole sequences of so many tokens, at most those that the engine runs at a time.
    pool:
        Bytes that the engine allocates for it on the fullest GPU.
    """

    tokens: float
    low: float
    high: float
    sequences: int
    context: int
    pool: float

    @classmethod
    def of(
        cls,
        pool: float,
        spread: tuple[float, float, float],
        off: float,
        kv_per_batch: float,
        *,
        gpus: int,
        context: int,
        sequences: int | None,
    ) -> CacheRoom:
        """Return what ``pool`` bytes hold on each of ``gpus`` GPUs.

        ``spread``: ``part``, ``less`` and ``more`` of its :class:`cost.memory.budget.Budget`; ``off``: bytes by which
        weights differ; ``sequences``: as many as fit if None.
        """
        tokens_per_byte = gpus * context / max(kv_per_batch, 1.0)
        part, *bounds = spread
        shortfall, surplus = (part * math.hypot(bound, off) for bound in bounds)
        tokens, low, high = (max(0.0, pool + by) * tokens_per_byte for by in (0.0, -shortfall, surplus))
        max_sequences = int(tokens // context) if sequences is None else sequences
        return cls(tokens, low, high, max_sequences, context, pool)

    @property
    def may_not_start(self) -> bool:
        """Whether so little is left that the engine may refuse."""
        return self.pool < MIN_ROOM_GIB * GIB


NO_CACHE = CacheRoom(0.0, 0.0, 0.0, 0, 0, 0.0)


@dataclass(frozen=True)
class StageMemory:
    """HBM of the fullest GPU of one stage, in bytes; KV cache per sequence of ``batch``.

    Attributes
    ----------
    experts:
        Routed ones, of the weights.
    buffers:
        For tokens on their way to experts of other domains, and of quota slots.
    most:
        Sequences per GPU that the engine runs.
    off:
        Either way around the weights.
    """

    weights: float
    experts: float
    buffers: float
    kv_per_batch: float
    budget: Budget
    most: float
    off: float = 0.0

    @property
    def pool(self) -> float:
        """Bytes that the engine allocates for the cache; below 0 it does not start."""
        return self.budget.pool(self.weights + self.buffers)

    @property
    def usable(self) -> float:
        """Bytes that weights, buffers and cache may fill."""
        return self.weights + self.buffers + self.pool

    def used(self, batch: float) -> float:
        """Bytes of weights, buffers and the cache of ``batch`` concurrent sequences per GPU in use."""
        return self.weights + self.buffers + batch * self.kv_per_batch

    def filled(self, batch: float) -> float:
        """Bytes of ``budget.usable`` that are taken at ``batch``: linear in weights and cache."""
        return self.weights + self.buffers + batch * self.kv_per_batch / self.budget.part

    @property
    def room(self) -> float:
        """Sequences per GPU in use that there is room for, parts of one included."""
        return self.pool / max(self.kv_per_batch, 1.0)

    def cache(self, gpus: int, context: int, sequences: int) -> CacheRoom:
        """Return the cache of a replica of ``gpus`` GPUs that has ``sequences`` of ``context`` tokens at most."""
        spread = self.budget.part, self.budget.less, self.budget.more
        return CacheRoom.of(
            self.pool, spread, self.off, self.kv_per_batch, gpus=gpus, context=context, sequences=sequences
        )

    def breakdown(self, batch: float) -> dict[str, float]:
        """Bytes by use; they add up to the capacity that the driver reports."""
        cache = batch * self.kv_per_batch
        uses = dict(self.budget.taken)
        uses["buffers"] += self.buffers
        held = {"experts": self.experts, "weights": self.weights - self.experts}
        parts = {**held, "kv_cache": cache, **uses, "free": self.pool - cache}
        return parts | {"reserved": self.budget.capacity - added(parts.values())}


def weights_off(model: Model) -> float:
    """Return the part of a model's weights by which start logs are off, either way."""
    return WEIGHTS_OFF if model.moe is None else EXPERTS_OFF


def replica_memory(
    deployment: Deployment,
    stages: Sequence[StageSpec],
    *,
    slots: Sequence[int | NDArray[np.int64]],
    most: Sequence[int] | None = None,
    **widths: Unpack[StageWidths],
) -> list[StageMemory]:
    """Return the memory of each stage of one replica: of its GPU that is full first.

    Parameters
    ----------
    slots:
        Expert slots per layer of each stage: of each GPU, ``[gpus]`` (one with more HBM may hold more of them), or in
        all (0 without experts), which are as even as can be.
    most:
        Slots per layer of a GPU with the least HBM of each stage instead.
    widths:
        As of :class:`cost.inputs.layout.Layout`; a stage whose experts are cut has no slots.

    Notes
    -----
    A replica of ``n`` GPUs in ``p`` stages keeps ``p`` micro-batches in flight: every stage holds its layers'
    cache of *all* ``batch * n`` sequences, so KV per GPU does not shrink with stages, while weights do.
    """
    model, workload, tp, moe_tp = deployment.model, deployment.workload, widths["tp"], widths.get("moe_tp", 1)
    total = sum(len(stage.gpus) for stage in stages)
    most_at_once = deployment.most_sequences * smallest_share([len(stage.gpus) for stage in stages]) / tp
    memories = []
    for index, stage in enumerate(stages):
        gpus, ends = len(stage.gpus), (float(index == 0), float(index == len(stages) - 1))
        shard = StageShard(tuple(model.kind_counts(stage.layers)), *ends)
        row = slots[index]
        copies: float
        ranks = Ranks(tp, moe_tp, gpus // tp, len(stages))
        if moe_tp > 1 or (most is None and isinstance(row, np.ndarray)):
            copies, budget = _held_experts(deployment, stage, np.asarray(row), ranks)
        else:
            copies = math.ceil(row / gpus) if most is None else most[index]
            budget = deployment.budget(stage, ranks)
        group = StepShape(
            **widths,
            attention_dp=gpus / tp,
            ep=gpus / moe_tp,
            slots=float(np.sum(row)),
            domain_gpus=deployment.smallest_part(stage),
        )
        shape = group.under(workload, 1.0)
        weights, cache, buffers = shard_bytes(model, workload, shard, shape, slots=copies)
        experts = copies * model.slot_params(stage.layers) * float(expert_size(model, moe_tp))
        held = float(weights), experts, float(buffers), total / gpus * float(cache)
        off = weights_off(model) * float(weights)
        memories.append(StageMemory(*held, budget, most_at_once, off))
    return memories


def layout_memory(
    deployment: Deployment, layout: Layout, replica: int, slots: Sequence[int | NDArray[np.int64]]
) -> list[StageMemory]:
    """Return the memory of each stage of a replica; with attention apart of its GPUs, then of the experts' GPUs."""
    stages, apart = layout.replicas[replica], layout.apart
    if apart is None:
        return replica_memory(deployment, stages, slots=slots, **layout.widths)
    model, workload, (stage,), ours = deployment.model, deployment.workload, stages, apart.gpus[replica]
    attention, everything = StageSpec(ours, stage.layers), StageSpec(layout.gpus_of(replica), stage.layers)
    rest, total, row = model.without_experts, len(everything.gpus), np.asarray(slots[0])
    group = StepShape(tp=float(layout.tp), attention_dp=len(ours) / layout.tp).under(workload, 1.0)
    weights, cache, _ = shard_bytes(rest, workload, rest.whole, group, slots=0)
    sent = StepShape(
        attention_dp=float(total), slots=float(row.sum()), domain_gpus=deployment.smallest_part(everything)
    )
    buffers = float(dispatch_bytes(model, workload, sent))
    most = deployment.most_sequences / layout.group_gpus
    budget = deployment.budget(attention, Ranks(layout.tp, 1, len(ours) // layout.tp))
    copies, theirs = _held_experts(deployment, stage, row, Ranks(1, 1, len(stage.gpus)))
    draft, params = model.draft.ffn, model.slot_params(stage.layers)
    if workload.draft_tokens and isinstance(draft, MoeFfn):
        params += draft.expert_params
    experts = copies * params * float(expert_size(model, 1.0))
    cached = total / len(ours) * float(cache)
    return [
        StageMemory(float(weights), 0.0, buffers, cached, budget, most, WEIGHTS_OFF * float(weights)),
        StageMemory(experts, experts, buffers, 0.0, theirs, most, weights_off(model) * experts),
    ]


def _held_experts(
    deployment: Deployment, stage: StageSpec, slots: NDArray[np.int64], ranks: Ranks
) -> tuple[float, Budget]:
    """Experts and budget of the GPU that has least left beside its experts: everything else is alike on all GPUs."""
    model, budgets = deployment.model, deployment.budgets(stage, ranks)
    least = min(budgets.values(), key=lambda budget: budget.usable)
    if ranks.moe_tp > 1:
        return (model.moe.experts if model.moe else 0) / ranks.moe_tp, least
    if all(budget is least for budget in budgets.values()):
        return int(slots.max(initial=0)), least
    kinds = [budgets[domain] for domain in deployment.domains(stage).tolist()]
    size = model.slot_params(stage.layers) * weight_sizes(model)["experts"]
    tightest = int(
        np.argmin([budget.usable - size * count for budget, count in zip(kinds, slots, strict=True)])
    )
    return int(slots[tightest]), kinds[tightest]


def replica_max_batch(memories: Sequence[StageMemory], tp: float) -> float:
    """The largest batch that fits every stage of a replica, and that its engine runs at a time."""
    room = min(min(memory.room, memory.most) for memory in memories)
    return batch_of(round(float(most_that_fit(room, tp)) * tp), tp)


def even_memory(
    model: Model,
    workload: Workload,
    shape: StepShape,
    held: StageShard | None = None,
    *,
    in_flight: Quantity = 1.0,
    routed: bool = True,
    buffers: bool = True,
) -> tuple[Quantity, Quantity]:
    """Bytes of weights and buffers of the fullest GPU, and of the cache for each sequence per GPU in use.

    The same bytes as :func:`replica_memory` counts for a stage whose slots are spread evenly.

    Parameters
    ----------
    held:
        What the stage holds of the model; None: all of it.
    in_flight:
        Sequences that a GPU of the stage caches for one sequence per GPU of the replica: ``N / n`` for ``n`` GPUs of
        ``N``.
    routed:
        Whether routed experts are held, and tokens sent to them.
    buffers:
        Whether buffers count; without them bytes of layers add up to those of the stage.
    """
    slots = np.maximum(shape.slots, model.moe.experts if model.moe else 0)
    shape = replace(shape, slots=slots)
    copies = np.ceil(slots / shape.ep) / shape.moe_tp * routed
    weights, cache, carrying = shard_bytes(
        model, workload, held or model.whole, shape, slots=copies, routed=routed
    )
    return weights + buffers * carrying, in_flight * cache


def batch_room(memory: tuple[Quantity, Quantity], usable: Quantity, part: Quantity = 1.0) -> Quantity:
    """Sequences per GPU that fit, parts of one included; negative where the weights alone do not.

    ``memory`` is that of :func:`even_memory`, ``usable`` and ``part`` are those of a
    :class:`cost.memory.budget.Budget`.
    """
    held, sequence_bytes = memory
    return part * (usable - held) / np.maximum(sequence_bytes, 1.0)  # a stage may have no layer with a cache
