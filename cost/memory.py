"""What must fit in HBM (weights, KV cache, workspace): of one placement, and of many parallel layouts at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.deployment import USABLE_HBM, Deployment
from cost.dtypes import bytes_per_param, cache_bytes_per_element
from cost.layout import StageSpec
from cost.model import Layer, Model, MoeFfn, StageShard
from cost.quantity import Quantity
from cost.terms.alltoall_kernel import vector_bytes
from cost.workload import StepShape, Workload

LOGIT_BYTES = 4.0
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

    def max_batch(self) -> int:
        """The largest batch that fits; 0 where not even one sequence does."""
        free = self.usable - self.weights
        return max(0, math.floor(free / (self.kv_per_batch + self.workspace_per_batch)))

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
    """Bytes of one weight of each class."""
    return {part: bytes_per_param(dtype) for part, dtype in model.precision.items()}


def layer_weight_bytes(layer: Layer, size: Mapping[str, float], *, tp: Quantity, slots: Quantity) -> Quantity:
    """Weight bytes that one GPU holds of ``layer``, with ``slots`` expert copies on it."""
    attention = (layer.attention.matmul_params + layer.attention.other_params) * size["attention"] / tp
    norms = layer.norm_params * size["norm"]
    ffn = layer.ffn
    if not isinstance(ffn, MoeFfn):
        return attention + norms + ffn.params * size["dense"] / tp
    experts = slots * ffn.expert_params * size["experts"]
    shared = ffn.shared_params * size["shared"] / tp
    return attention + norms + experts + shared + ffn.router_params * size["router"]


def layer_cache_bytes(layer: Layer, deployment: Deployment, tp: int) -> float:
    """Cache bytes of one sequence on each GPU of its tensor-parallel group, times the group's width."""
    element = cache_bytes_per_element(deployment.workload.kv_dtype)
    cache = float(layer.attention.cache_bytes(deployment.workload.context, element))
    return tp * cache / float(layer.attention.kv_shards(tp))


def workspace_bytes(
    model: Model,
    workload: Workload,
    *,
    tp: Quantity,
    ranks: Quantity,
    slots: Quantity,
    crosses: ArrayLike,
    moe: bool,
) -> Quantity:
    """Workspace of one GPU per sequence of a step, without logits; arrays broadcast.

    Activations and all-to-all buffers. Decode in one domain: a buffer takes one vector from every rank, in and out;
    across domains (``crosses``) DeepEP's low-latency layout holds a BF16 vector for each of the group's ``slots``, to
    send and to receive, twice (double buffering). Prefill: a buffer for the vectors that arrive, at most one for each
    expert of a token, in and out.
    """
    tokens: Quantity = ACTIVATION_VECTORS * tp * model.hidden * 2.0
    if moe and model.moe is not None:
        pair = sum(vector_bytes(model.expert_hidden, model.precision["experts"]))
        spread = np.asarray(ranks) > 1
        inside = ranks if workload.decodes else np.minimum(ranks, model.moe.top_k)
        apart = 4 * slots * model.expert_hidden * 2.0 if workload.decodes else inside * pair
        tokens = tokens + np.where(spread, np.where(crosses, apart, inside * pair), 0.0)
    return tokens * workload.tokens_per_pass


def logit_bytes(model: Model, workload: Workload) -> float:
    """FP32 logits per sequence of a step: of every token that decodes, of the last one of a prompt."""
    return LOGIT_BYTES * model.vocab * (workload.tokens_per_pass if workload.decodes else 1.0)


def _stage_workspace_bytes(
    deployment: Deployment, stage: StageSpec, slots: int, *, tp: int, last: bool
) -> float:
    model, workload = deployment.model, deployment.workload
    bytes_ = workspace_bytes(
        model,
        workload,
        tp=float(tp),
        ranks=float(len(stage.gpus)),
        slots=float(slots),
        crosses=len(deployment.domain_set(stage)) > 1,
        moe=any(isinstance(layer.ffn, MoeFfn) for layer, _ in model.kind_counts(stage.layers)),
    )
    return float(bytes_) + last * logit_bytes(model, workload)


def replica_memory(
    deployment: Deployment,
    stages: Sequence[StageSpec],
    *,
    tp: int,
    slots: Sequence[int],
    most: Sequence[int] | None = None,
    per_gpu: Sequence[NDArray[np.int64]] | None = None,
) -> list[StageMemory]:
    """Return the memory of each stage of one replica: of its GPU that is full first.

    Parameters
    ----------
    slots:
        Expert slots per layer over the whole group of each stage (0 without experts).
    most:
        Slots per layer of the fullest GPU of each stage; as even as can be if not given.
    per_gpu:
        Slots per layer of each GPU of each stage, ``[gpus]`` each, instead of ``most``: a GPU with more HBM may hold
        more of them.

    Notes
    -----
    A replica of ``n`` GPUs in ``p`` stages keeps ``p`` micro-batches in flight: every stage holds its layers'
    cache of *all* ``batch * n`` sequences, so KV per GPU does not shrink with stages, while weights do.
    """
    model = deployment.model
    size = weight_sizes(model)
    total = sum(len(stage.gpus) for stage in stages)
    memories = []
    for index, stage in enumerate(stages):
        gpus = len(stage.gpus)
        first, last = index == 0, index == len(stages) - 1
        members = model.kind_counts(stage.layers)
        if per_gpu is not None:
            each, capacity = _fullest(deployment, stage, per_gpu[index], members, size["experts"])
        else:
            each = math.ceil(slots[index] / gpus) if most is None else most[index]
            capacity = _least_hbm_bytes(deployment, stage)
        weights = sum(n * float(layer_weight_bytes(layer, size, tp=tp, slots=each)) for layer, n in members)
        if first or (last and model.tied):
            weights += model.embedding_params * size["embedding"] / tp
        if last:
            head = 0 if model.tied else model.head_params
            weights += head * size["head"] / tp
            weights += model.final_norm_params * size["norm"]
        held = total / gpus
        kv = held * sum(n * layer_cache_bytes(layer, deployment, tp) for layer, n in members)
        step_sequences = held / len(stages)
        workspace = step_sequences * _stage_workspace_bytes(deployment, stage, slots[index], tp=tp, last=last)
        memories.append(StageMemory(weights, kv, workspace, capacity))
    return memories


def _least_hbm_bytes(deployment: Deployment, stage: StageSpec) -> float:
    return min(deployment.cluster.spec.domains[d].gpu.hbm_bytes for d in deployment.domain_set(stage))


def _fullest(
    deployment: Deployment,
    stage: StageSpec,
    slots: NDArray[np.int64],
    members: Sequence[tuple[Layer, int]],
    bytes_per_param: float,
) -> tuple[int, float]:
    """Slots and HBM of the GPU that has least left beside its experts: everything else is alike on all GPUs."""
    domains = deployment.domains(stage)
    kinds = {int(d): deployment.cluster.spec.domains[d].gpu.hbm_bytes for d in deployment.domain_set(stage)}
    if len(set(kinds.values())) == 1:
        return int(slots.max(initial=0)), next(iter(kinds.values()))
    slot = sum(n * layer.ffn.expert_params for layer, n in members if isinstance(layer.ffn, MoeFfn))
    capacity = np.array([kinds[domain] for domain in domains.tolist()])
    tightest = int(np.argmin(USABLE_HBM * capacity - slots * float(slot) * bytes_per_param))
    return int(slots[tightest]), float(capacity[tightest])


def replica_max_batch(memories: Sequence[StageMemory]) -> int:
    """The largest batch that fits every stage; 0 where none does."""
    return min(memory.max_batch() for memory in memories)


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

    The same bytes as :func:`cost.memory.replica_memory` counts for a stage whose slots are spread evenly.

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
    part = held or model.whole
    size, experts = weight_sizes(model), model.moe.experts if model.moe else 0
    slots = np.maximum(shape.slots, experts)
    per_gpu = np.ceil(slots / shape.ep) / shape.moe_tp * routed
    element = cache_bytes_per_element(workload.kv_dtype)
    weights = _ends(model, size, shape, part)
    cache: Quantity = 0.0
    moe_layers: Quantity = 0.0
    for layer, count in part.layers:
        weights = weights + count * layer_weight_bytes(layer, size, tp=shape.tp, slots=per_gpu)
        one = layer.attention.cache_bytes(_context(workload, shape), element)
        cache = cache + count * shape.tp * one / layer.attention.kv_shards(shape.tp)
        moe_layers = moe_layers + count * (routed and isinstance(layer.ffn, MoeFfn))
    crosses = np.asarray(shape.gpus) > np.asarray(shape.domain_gpus)
    plain, sending = (
        workspace_bytes(model, workload, tp=shape.tp, ranks=shape.gpus, slots=slots, crosses=crosses, moe=moe)
        for moe in (False, True)
    )
    passing = np.where(np.asarray(moe_layers) > 0, sending, plain) + part.last * logit_bytes(model, workload)
    return weights, in_flight * cache + at_once * passing


def _ends(model: Model, size: dict[str, float], shape: StepShape, part: StageShard) -> Quantity:
    """Embedding of the first stage (and of the last where the head is tied to it), head and norm of the last."""
    embeds = np.maximum(part.first, part.last) if model.tied else part.first
    head = 0 if model.tied else model.head_params
    weights = embeds * model.embedding_params * size["embedding"] / shape.tp
    return weights + part.last * (head * size["head"] / shape.tp + model.final_norm_params * size["norm"])


def _context(workload: Workload, shape: StepShape) -> Quantity:
    return shape.context if workload.decodes else shape.prompt_length


def batch_room(memory: tuple[Quantity, Quantity], hbm_bytes: Quantity) -> Quantity:
    """Sequences per GPU that fit, parts of one included; negative where the weights alone do not.

    ``memory`` is that of :func:`even_memory`, ``hbm_bytes`` what the driver reports.
    """
    weights, each = memory
    return (USABLE_HBM * hbm_bytes - weights) / each


def largest_batch(model: Model, workload: Workload, shape: StepShape, hbm_bytes: float) -> Quantity:
    """Sequences per GPU that fit, at least 0; ``hbm_bytes`` is what the driver reports."""
    return np.maximum(0.0, np.floor(batch_room(even_memory(model, workload, shape), hbm_bytes)))
