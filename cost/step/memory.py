"""What must fit in HBM (weights, KV cache, workspace): of one placement, and of many parallel layouts at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.dtypes import bytes_per_param, cache_bytes_per_element
from cost.inputs.deployment import USABLE_HBM, Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.workload import StepShape, Workload
from cost.model import Layer, Model, MoeFfn, StageShard
from cost.quantity import Quantity
from cost.terms.alltoall_kernel import vector_bytes
from topology.base.units import added

LOGIT_BYTES = 4.0
_ALIKE = 1e-9
"""Part of bytes by which two counts of the same may differ."""
_TILE = 256, 128
"""Rows and columns of a tile of MXFP4 kernels (Marlin in vLLM)."""
ACTIVATION_VECTORS = 4
"""Hidden vectors alive per token: residual, its norm, one block's input and its output."""


@dataclass(frozen=True)
class StageMemory:
    """HBM of the fullest GPU of one stage, in bytes; KV cache and workspace per sequence of ``batch``.

    ``capacity`` is what the driver reports, ``usable`` the part an engine may fill.
    """

    weights: float
    kv_per_batch: float
    workspace_per_batch: float
    capacity: float

    @property
    def usable(self) -> float:
        """Bytes that may be filled."""
        return USABLE_HBM * self.capacity

    def used(self, batch: float) -> float:
        """Bytes used at ``batch`` concurrent sequences per GPU in use."""
        return self.weights + batch * (self.kv_per_batch + self.workspace_per_batch)

    @property
    def room(self) -> float:
        """Sequences per GPU in use that there is room for, parts of one included."""
        return (self.usable - self.weights) / (self.kv_per_batch + self.workspace_per_batch)

    def breakdown(self, batch: float) -> dict[str, float]:
        """Bytes by use; they add up to ``capacity``."""
        kv, workspace = batch * self.kv_per_batch, batch * self.workspace_per_batch
        return {
            "weights": self.weights,
            "kv_cache": kv,
            "workspace": workspace,
            "free": self.usable - self.used(batch),
            "reserved": self.capacity - self.usable,
        }


def weight_sizes(model: Model) -> dict[str, float]:
    """Bytes of one weight of each class; of experts that are whole (:func:`expert_size`)."""
    size = {part: bytes_per_param(dtype) for part, dtype in model.precision.items()}
    return size | ({"experts": float(expert_size(model, 1.0))} if model.moe else {})


def expert_size(model: Model, moe_tp: Quantity) -> Quantity:
    """Bytes of one weight of an expert cut into ``moe_tp`` parts, with the zeros that MXFP4 kernels need beside them.

    They take whole tiles (:data:`_TILE`): gpt-oss-120b's rows and columns of 2,880 become 3,072 and 2,944, so that
    vLLM reports 65.97 GiB of weights (vLLM issue 23278) where the checkpoint has 60.7.
    """
    size, moe = bytes_per_param(model.precision["experts"]), model.moe
    if moe is None or model.precision["experts"] != "mxfp4":
        return size
    rows, columns = np.ceil(model.expert_hidden / _TILE[0]), np.ceil(moe.columns / moe_tp / _TILE[1])
    held: Quantity = rows * _TILE[0] * columns * _TILE[1] * moe_tp
    return size * held / (model.expert_hidden * moe.columns)


def layer_weight_bytes(
    layer: Layer, size: Mapping[str, Quantity], *, tp: Quantity, slots: Quantity
) -> Quantity:
    """Weight bytes that one GPU holds of ``layer``, with ``slots`` expert copies on it."""
    projections, every = layer.attention.modules, layer.attention.matmul_params + layer.attention.other_params
    whole = sum(projections.get(name, 0) for name in layer.attention.replicated)
    attention = ((every - whole) / tp + whole) * size["attention"]
    norms = layer.norm_params * size["norm"]
    ffn = layer.ffn
    if not isinstance(ffn, MoeFfn):
        return attention + norms + ffn.params * size["dense"] / tp
    experts = slots * ffn.expert_params * size["experts"]
    shared = ffn.shared_params * size["shared"] / tp
    return attention + norms + experts + shared + ffn.router_params * size["router"]


def layer_cache_bytes(
    layer: Layer, workload: Workload, tp: Quantity, context: Quantity | None = None
) -> Quantity:
    """Cache bytes of one sequence on each GPU of its tensor-parallel group, times the group's width.

    ``context``: tokens of the sequence; the workload's if not given.
    """
    tokens = workload.context if context is None else context
    cache = layer.attention.cache_bytes(tokens, cache_bytes_per_element(workload.kv_dtype))
    return tp * cache / layer.attention.kv_shards(tp)


def shard_bytes(
    model: Model,
    workload: Workload,
    shard: StageShard,
    shape: StepShape,
    *,
    each: Quantity,
    routed: bool = True,
) -> tuple[Quantity, Quantity, Quantity]:
    """Bytes of weights, of one sequence's cache, and of a step's workspace for each, on a GPU of a stage.

    ``each``: expert copies of a layer on the GPU; ``routed``: whether tokens are sent to experts at all.
    """
    tp, context = shape.tp, shape.context if workload.decodes else shape.prompt_length
    size: dict[str, Quantity] = {**weight_sizes(model)}
    if model.moe is not None:
        size["experts"] = expert_size(model, shape.moe_tp)
    weights: Quantity = 0.0
    cache: Quantity = 0.0
    drafts = [(model.draft, shard.last)] if workload.draft_tokens else []
    for layer, count in [*shard.layers, *drafts]:
        weights = weights + count * layer_weight_bytes(layer, size, tp=tp, slots=each)
        cache = cache + count * layer_cache_bytes(layer, workload, tp, context)
    # a head that is tied to the embedding is the same matrix, on the last stage again
    embeds = np.maximum(shard.first, shard.last) if model.tied else shard.first
    head = 0 if model.tied else model.head_params
    weights = weights + embeds * model.embedding_params * size["embedding"] / tp
    weights = weights + shard.last * head * size["head"] / tp
    weights = weights + shard.last * model.final_norm_params * size["norm"]
    moe = np.asarray(sum(count * isinstance(layer.ffn, MoeFfn) for layer, count in shard.layers)) > 0
    passing = workspace_bytes(model, workload, shape, moe=routed & moe)
    # FP32 logits of every token that decodes, of the last one of a prompt
    logits = LOGIT_BYTES * model.vocab * (workload.tokens_per_pass if workload.decodes else 1.0)
    return weights, cache, passing + shard.last * logits


def workspace_bytes(model: Model, workload: Workload, shape: StepShape, *, moe: ArrayLike) -> Quantity:
    """Workspace of one GPU per sequence of a step, without logits; ``moe``: the stage has experts.

    Activations and all-to-all buffers. Decode in one domain: a buffer takes one vector from every rank, in and out;
    across domains DeepEP's low-latency layout holds a BF16 vector for each of the group's ``slots``, to
    send and to receive, twice (double buffering). Prefill: a buffer for the vectors that arrive, at most one for each
    expert of a token, in and out.
    """
    tokens: Quantity = ACTIVATION_VECTORS * shape.tp * model.hidden * 2.0
    if model.moe is not None and np.any(moe):
        pair = sum(vector_bytes(model.expert_hidden, model.precision["experts"]))
        ranks = np.asarray(shape.gpus)
        spread, crosses = np.asarray(moe) & (ranks > 1), ranks > np.asarray(shape.domain_gpus)
        inside = ranks if workload.decodes else np.minimum(ranks, model.moe.top_k)
        apart = 4 * shape.slots * model.expert_hidden * 2.0 if workload.decodes else inside * pair
        tokens = tokens + np.where(spread, np.where(crosses, apart, inside * pair), 0.0)
    return tokens * workload.tokens_per_pass


def replica_memory(
    deployment: Deployment,
    stages: Sequence[StageSpec],
    *,
    tp: int,
    slots: Sequence[int | NDArray[np.int64]],
    most: Sequence[int] | None = None,
    moe_tp: int = 1,
) -> list[StageMemory]:
    """Return the memory of each stage of one replica: of its GPU that is full first.

    Parameters
    ----------
    slots:
        Expert slots per layer of each stage: of each GPU, ``[gpus]`` (one with more HBM may hold more of them), or in
        all (0 without experts), which are as even as can be.
    most:
        Slots per layer of a GPU with the least HBM of each stage instead.
    moe_tp:
        Parts that each expert is cut into, one on each GPU of a stage, which then has no slots.

    Notes
    -----
    A replica of ``n`` GPUs in ``p`` stages keeps ``p`` micro-batches in flight: every stage holds its layers'
    cache of *all* ``batch * n`` sequences, so KV per GPU does not shrink with stages, while weights do.
    """
    model, workload = deployment.model, deployment.workload
    total = sum(len(stage.gpus) for stage in stages)
    memories = []
    for index, stage in enumerate(stages):
        gpus, ends = len(stage.gpus), (float(index == 0), float(index == len(stages) - 1))
        shard = StageShard(tuple(model.kind_counts(stage.layers)), *ends)
        row = slots[index]
        each: float
        if moe_tp > 1 or (most is None and isinstance(row, np.ndarray)):
            each, capacity = _held_experts(deployment, stage, np.asarray(row), moe_tp)
        else:
            each = math.ceil(row / gpus) if most is None else most[index]
            capacity = deployment.context(stage).least_hbm_bytes
        group = StepShape(
            tp=float(tp),
            attention_dp=gpus / tp,
            ep=gpus / moe_tp,
            moe_tp=float(moe_tp),
            slots=float(np.sum(row)),
            domain_gpus=deployment.smallest_part(stage),
        )
        shape = group.under(workload, 1.0)
        weights, cache, passing = shard_bytes(model, workload, shard, shape, each=each)
        held = total / gpus
        memories.append(
            StageMemory(
                float(weights), held * float(cache), held / len(stages) * float(passing), float(capacity)
            )
        )
    return memories


def _held_experts(
    deployment: Deployment, stage: StageSpec, slots: NDArray[np.int64], moe_tp: int
) -> tuple[float, float]:
    """Experts and HBM of the GPU that has least left beside its experts: everything else is alike on all GPUs."""
    kinds, model = deployment.context(stage).hbm_bytes, deployment.model
    if moe_tp > 1:
        return (model.moe.experts if model.moe else 0) / moe_tp, min(kinds.values())
    if len(set(kinds.values())) == 1:
        return int(slots.max(initial=0)), next(iter(kinds.values()))
    members = model.kind_counts(stage.layers)
    slot = added(n * layer.ffn.expert_params for layer, n in members if isinstance(layer.ffn, MoeFfn))
    capacity = np.array([kinds[domain] for domain in deployment.domains(stage).tolist()])
    size = weight_sizes(model)["experts"]
    tightest = int(np.argmin(USABLE_HBM * capacity - slots * float(slot) * size))
    return int(slots[tightest]), float(capacity[tightest])


def expert_bytes(
    deployment: Deployment, stage: StageSpec, slots: NDArray[np.int64], *, moe_tp: int = 1
) -> float:
    """Weight bytes of the routed experts on the GPU of a stage that is full first; ``slots`` is ``[gpus]``.

    ``moe_tp``: parts that each expert is cut into, as of :func:`replica_memory`.
    """
    members = deployment.model.kind_counts(stage.layers)
    slot = added(n * layer.ffn.expert_params for layer, n in members if isinstance(layer.ffn, MoeFfn))
    each = _held_experts(deployment, stage, slots, moe_tp)[0]
    return each * float(slot) * float(expert_size(deployment.model, moe_tp))


def routed_bytes(
    deployment: Deployment, layout: Layout, slots: Sequence[NDArray[np.int64]], weights: float
) -> float:
    """Return the bytes of routed experts on the fullest GPU, which has ``weights`` bytes of weights.

    0 without experts, or where that is not known.
    """
    stages = layout.replicas[0]
    memories = replica_memory(deployment, stages, tp=layout.tp, slots=slots, moe_tp=layout.moe_tp)
    for stage, row, memory in zip(stages, slots, memories, strict=True):
        held = row.size or layout.moe_tp > 1
        if held and abs(memory.weights - weights) <= _ALIKE * weights:
            return expert_bytes(deployment, stage, row, moe_tp=layout.moe_tp)
    return 0.0  # another replica, of other GPUs, is full first


def batch_of(sequences: int, tp: int) -> float:
    """Sequences per GPU of attention groups of ``tp`` GPUs with ``sequences`` each; an int where it is whole."""
    return sequences / tp if sequences % tp else sequences // tp


def sequences_of(batch: float, tp: int) -> int | None:
    """Sequences of each attention group of ``tp`` GPUs at ``batch`` per GPU; None where they are not whole."""
    sequences = round(batch * tp)
    return sequences if math.isclose(sequences, batch * tp, rel_tol=1e-9) else None


def whole_batch(batch: float, tp: int) -> float:
    """The largest batch up to ``batch`` with whole sequences of groups of ``tp`` GPUs, at least one each."""
    return batch_of(sequences_of(batch, tp) or max(1, math.floor(batch * tp)), tp)


def most_that_fit(room: Quantity, tp: Quantity) -> Quantity:
    """The largest batch in ``room`` sequences per GPU, 0 where none fits: an attention group has whole sequences.

    The GPUs of a group of ``tp`` hold each sequence together, so the smallest batch is ``1 / tp``.
    """
    return np.maximum(0.0, np.floor(room * tp)) / tp


def replica_max_batch(memories: Sequence[StageMemory], tp: int) -> float:
    """The largest batch that fits every stage of a replica (:func:`most_that_fit`)."""
    return batch_of(max(0, math.floor(min(memory.room for memory in memories) * tp)), tp)


def even_memory(
    model: Model,
    workload: Workload,
    shape: StepShape,
    held: StageShard | None = None,
    *,
    in_flight: Quantity = 1.0,
    at_once: Quantity = 1.0,
    routed: bool = True,
) -> tuple[Quantity, Quantity]:
    """Bytes of weights of the fullest GPU, and of cache and workspace for each sequence per GPU in use.

    The same bytes as :func:`cost.step.memory.replica_memory` counts for a stage whose slots are spread evenly.

    Parameters
    ----------
    held:
        What the stage holds of the model; None: all of it.
    in_flight, at_once:
        Sequences per GPU of the stage that it caches, and that pass it in one step, each for one sequence per GPU
        of the replica. A stage of ``n`` GPUs out of ``N`` in ``p`` stages: ``N / n`` and ``N / n / p``.
    routed:
        Whether routed experts are held, and tokens sent to them.
    """
    slots = np.maximum(shape.slots, model.moe.experts if model.moe else 0)
    shape = replace(shape, slots=slots)
    each = np.ceil(slots / shape.ep) / shape.moe_tp * routed
    weights, cache, passing = shard_bytes(
        model, workload, held or model.whole, shape, each=each, routed=routed
    )
    return weights, in_flight * cache + at_once * passing


def batch_room(memory: tuple[Quantity, Quantity], hbm_bytes: Quantity) -> Quantity:
    """Sequences per GPU that fit, parts of one included; negative where the weights alone do not.

    ``memory`` is that of :func:`even_memory`, ``hbm_bytes`` what the driver reports.
    """
    weights, each = memory
    return (USABLE_HBM * hbm_bytes - weights) / each
