"""The largest batch that fits HBM, for many parallel layouts at once."""

from __future__ import annotations

import numpy as np

from cost.deployment import USABLE_HBM
from cost.dtypes import cache_bytes_per_element
from cost.held import Held, whole_model
from cost.memory import layer_weight_bytes, logit_bytes, weight_sizes, workspace_bytes
from cost.model import Model, MoeFfn
from cost.quantity import Quantity
from cost.shape import StepShape
from cost.workload import Workload


def even_memory(
    model: Model,
    workload: Workload,
    shape: StepShape,
    held: Held | None = None,
    *,
    in_flight: Quantity = 1.0,
    at_once: Quantity = 1.0,
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
    """
    part = held or whole_model(model)
    size, experts = weight_sizes(model), model.moe.experts if model.moe else 0
    slots = np.maximum(shape.slots, experts)
    per_gpu = np.ceil(slots / shape.ep) / shape.moe_tp
    element = cache_bytes_per_element(workload.kv_dtype)
    weights = _ends(model, size, shape, part)
    cache: Quantity = 0.0
    moe_layers: Quantity = 0.0
    for layer, count in part.layers:
        weights = weights + count * layer_weight_bytes(layer, size, tp=shape.tp, slots=per_gpu)
        one = layer.attention.cache_bytes(_context(workload, shape), element)
        cache = cache + count * shape.tp * one / layer.attention.kv_shards(shape.tp)
        moe_layers = moe_layers + count * isinstance(layer.ffn, MoeFfn)
    crosses = np.asarray(shape.gpus) > np.asarray(shape.domain_gpus)
    plain, routed = (
        workspace_bytes(model, workload, tp=shape.tp, ranks=shape.gpus, slots=slots, crosses=crosses, moe=moe)
        for moe in (False, True)
    )
    passing = np.where(np.asarray(moe_layers) > 0, routed, plain) + part.last * logit_bytes(model, workload)
    return weights, in_flight * cache + at_once * passing


def _ends(model: Model, size: dict[str, float], shape: StepShape, part: Held) -> Quantity:
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
