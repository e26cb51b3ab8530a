"""Bytes of weights as kernels hold them, of the cache of a sequence, and of what carries tokens to experts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cost.attention.linear import Recurrent
from cost.dtypes import bytes_per_param, cache_bytes_per_element
from cost.inputs.workload import StepShape, Workload
from cost.model import Layer, Model, MoeFfn, SharedFfn, StageShard
from cost.quantity import Quantity, positive

DISPATCH_TOKENS = 256
"""Tokens of a GPU that a dispatch takes at most: ``VLLM_MOE_DP_CHUNK_SIZE``; SGLang has 128."""
DISPATCH_BYTES = 2.0 * 2**30
"""``VLLM_DEEPEP_BUFFER_SIZE_MB`` of 1,024 for the links inside a node, and as much for those between nodes."""
STATES_OVER_CACHE = 0.9
"""Memory that SGLang keeps for states of linear attention over that of the other layers' cache
(``mamba_full_memory_ratio``)."""
_TILE = 256, 128
"""Rows and columns of a tile of MXFP4 kernels (Marlin in vLLM)."""


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
    projections, params = (
        layer.attention.modules,
        layer.attention.matmul_params + layer.attention.other_params,
    )
    replicated = sum(projections.get(name, 0) for name in layer.attention.replicated)
    attention = ((params - replicated) / tp + replicated) * size["attention"]
    norms = layer.norm_params * size["norm"]
    ffn = layer.ffn
    if not isinstance(ffn, MoeFfn | SharedFfn):
        return attention + norms + ffn.params * size["dense"] / tp
    experts = slots * ffn.expert_params * size["experts"] if isinstance(ffn, MoeFfn) else 0.0
    shared = ffn.shared_params * size["shared"] / tp
    return attention + norms + experts + shared + ffn.router_params * size["router"]


def layer_cache_bytes(
    layer: Layer, workload: Workload, tp: Quantity, context: Quantity | None = None, dcp: Quantity = 1.0
) -> Quantity:
    """Cache bytes of one sequence on each GPU of its tensor-parallel group, times the group's width.

    ``context``: tokens of the sequence; the workload's if not given. ``dcp``: GPUs that these are split over.
    """
    tokens = workload.cached if context is None else context
    cache = layer.attention.cache_bytes(tokens, cache_bytes_per_element(workload.kv_dtype))
    return tp * layer.attention.cache_share(cache, tokens, tp, dcp)


def shard_bytes(
    model: Model,
    workload: Workload,
    shard: StageShard,
    shape: StepShape,
    *,
    slots: Quantity,
    routed: bool = True,
) -> tuple[Quantity, Quantity, Quantity]:
    """Bytes on a GPU of a stage: weights, cache of one sequence, and buffers.

    Those are of tokens on their way (:func:`dispatch_bytes`) and of quota slots (:func:`quota_bytes`).

    ``slots``: expert copies of a layer on the GPU; ``routed``: whether tokens are sent to experts at all.
    """
    tp, context = shape.width, (workload.held or shape.context) if workload.decodes else shape.prompt_length
    size: dict[str, Quantity] = {**weight_sizes(model)}
    if model.moe is not None:
        size["experts"] = expert_size(model, shape.moe_tp)
    weights: Quantity = 0.0
    cache: Quantity = 0.0
    states: Quantity = 0.0
    drafts = [(model.draft, shard.last)] if workload.draft_tokens else []
    for layer, count in [*shard.layers, *drafts]:
        weights = weights + count * layer_weight_bytes(layer, size, tp=tp, slots=slots)
        layer_cache = count * shape.pcp * layer_cache_bytes(layer, workload, tp, context, shape.dcp)
        if workload.states and isinstance(layer.attention, Recurrent):
            states = states + workload.states * layer_cache
        else:
            cache = cache + layer_cache
    if positive(states):  # each has a part of the room of its own
        cache = np.maximum((1 + STATES_OVER_CACHE) * cache, (1 + 1 / STATES_OVER_CACHE) * states)
    # a head that is tied to the embedding is the same matrix, on the last stage again
    embeds = np.maximum(shard.first, shard.last) if model.tied else shard.first
    head = 0 if model.tied else model.head_params
    weights = weights + embeds * model.embedding_params * size["embedding"] / tp
    weights = weights + shard.last * head * size["head"] / tp
    weights = weights + shard.last * model.final_norm_params * size["norm"]
    moe = np.asarray(sum(count * isinstance(layer.ffn, MoeFfn) for layer, count in shard.layers)) > 0
    buffers = dispatch_bytes(model, workload, shape) + quota_bytes(model, workload)
    return weights, cache, np.where(routed & moe, buffers, 0.0)


def quota_bytes(model: Model, workload: Workload) -> float:
    """Bytes of a GPU's quota slots: an expert each, whose place all layers use in turn.

    UltraEP keeps such a place for all layers: a slot of Qwen3-235B in training takes 108 MB for 9.9 GB. Two half
    batches are in different layers, so each has its own.
    """
    if model.moe is None:
        return 0.0
    return (
        workload.quota_slots
        * (1 + workload.overlap)
        * model.moe.expert_params
        * weight_sizes(model)["experts"]
    )


def dispatch_bytes(model: Model, workload: Workload, shape: StepShape) -> Quantity:
    """Bytes of the buffers that an engine registers for tokens on their way to experts of other domains.

    Decode, DeepEP's low-latency layout: a BF16 vector for each of the group's slots and each of
    :data:`DISPATCH_TOKENS`, to send and to receive, twice (double buffering). Prefill: :data:`DISPATCH_BYTES`.
    Inside a domain they are part of what :class:`cost.memory.engines.EngineMemory` counts for several GPUs.
    """
    if model.moe is None:
        return 0.0
    crosses = np.asarray(shape.gpus) > np.asarray(shape.domain_gpus)
    apart = (
        4 * shape.slots * DISPATCH_TOKENS * model.expert_hidden * 2.0 if workload.decodes else DISPATCH_BYTES
    )
    return np.where(crosses, apart, 0.0)
