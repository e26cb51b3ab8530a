"""The largest batch that fits HBM, for many parallel layouts at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cost.dtypes import cache_bytes_per_element
from cost.memory import layer_weight_bytes, logit_bytes, weight_sizes, workspace_bytes
from cost.setting import USABLE_HBM

if TYPE_CHECKING:
    from cost.model import Model
    from cost.quantity import Quantity
    from cost.shape import StepShape
    from cost.workload import Workload

__all__ = ["even_memory", "largest_batch"]


def even_memory(model: Model, workload: Workload, shape: StepShape) -> tuple[Quantity, Quantity]:
    """Bytes of weights of the fullest GPU, and of cache and workspace for each sequence per GPU.

    The same bytes as :func:`cost.memory.replica_memory` counts for one stage whose slots are spread evenly.
    """
    size, experts = weight_sizes(model), model.moe.experts if model.moe else 0
    slots = np.maximum(shape.slots, experts)
    held = np.ceil(slots / shape.ep) / shape.moe_tp
    element = cache_bytes_per_element(workload.kv_dtype)
    weights: Quantity = model.embedding_params * size["embedding"] / shape.tp
    weights = weights + model.final_norm_params * size["norm"]
    if not model.tied:
        weights = weights + model.head_params * size["head"] / shape.tp
    each: Quantity = 0.0
    for layer, count in model.kind_counts(range(len(model.layers))):
        weights = weights + count * layer_weight_bytes(layer, size, tp=shape.tp, slots=held)
        cache = layer.attention.cache_bytes(_context(workload, shape), element)
        each = each + count * shape.tp * cache / layer.attention.kv_shards(shape.tp)
    crosses = np.asarray(shape.gpus) > np.asarray(shape.domain_gpus)
    each = each + logit_bytes(model, workload)
    each = each + workspace_bytes(
        model, workload, tp=shape.tp, ranks=shape.gpus, slots=slots, crosses=crosses, moe=bool(experts)
    )
    return weights, each


def _context(workload: Workload, shape: StepShape) -> Quantity:
    return shape.context if workload.decodes else shape.prompt_length


def largest_batch(model: Model, workload: Workload, shape: StepShape, hbm_bytes: float) -> Quantity:
    """Sequences per GPU that fit, at least 0; ``hbm_bytes`` is what the driver reports."""
    weights, each = even_memory(model, workload, shape)
    return np.maximum(0.0, np.floor((USABLE_HBM * hbm_bytes - weights) / each))
