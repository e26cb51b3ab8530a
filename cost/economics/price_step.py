"""Cache bytes of a token from the context at which a price steps up, and back.

A provider that charges more per token above some context says where reading the caches overtakes computing:
``2 * active_params / flop_per_s = context * kv_bytes_per_token / hbm_bytes_per_s``. With 300 multiplications per
number read (600 flop per byte in FP8), 100 B active parameters and 200k tokens that is 1.7 kB a token.
"""

from __future__ import annotations

import math

from cost.dtypes import cache_bytes_per_element, multiply_dtype
from cost.lecture import flop_per_byte
from cost.model import Model
from topology.errors import InputError
from topology.spec import GpuSpec

_MOST_DOUBLINGS = 128


def kv_bytes_from_price_step(gpu: GpuSpec, dtype: str, active_params: float, context: float) -> float:
    """Cache bytes of a token of context if compute and cache reads balance at ``context`` tokens.

    ``2 * active_params / (flop_per_byte * context)``; attention's own arithmetic is left out, as in the lecture.

    Raises
    ------
    InputError
        If a figure is not above 0.
    MissingFigureError
        If the catalog lacks the chip's peak or bandwidth.
    """
    return _balance(gpu, dtype, active_params, "context", context)


def price_step_context(gpu: GpuSpec, dtype: str, active_params: float, kv_bytes_per_token: float) -> float:
    """Tokens of context above which a token's caches take longer to read than the token to compute.

    ``2 * active_params / (flop_per_byte * kv_bytes_per_token)``: the inverse of :func:`kv_bytes_from_price_step`.

    Raises
    ------
    InputError
        If a figure is not above 0.
    MissingFigureError
        If the catalog lacks the chip's peak or bandwidth.
    """
    return _balance(gpu, dtype, active_params, "kv_bytes_per_token", kv_bytes_per_token)


def model_price_step_context(model: Model, gpu: GpuSpec, kv_dtype: str) -> float:
    """Return :func:`price_step_context` of a model whose reads need not grow in proportion to the context.

    At the batch that balances computing and reading the weights (:func:`cost.lecture.balancing_batch`) the caches
    take longer to read than the weights from this context on. Infinite where they never do; experts (else the dense
    part) say what the weights are multiplied in.

    Raises
    ------
    InputError
        If the cache cannot be kept in ``kv_dtype``.
    MissingFigureError
        If the catalog lacks the chip's peak or bandwidth.
    """
    unit, _ = multiply_dtype(model.precision["experts" if model.moe else "dense"], gpu)
    element, kinds = cache_bytes_per_element(kv_dtype), model.kind_counts(range(len(model.layers)))
    budget = 2 * model.active_params / flop_per_byte(gpu, unit)

    def over(context: float) -> bool:
        return sum(n * float(layer.attention.read_bytes(context, element)) for layer, n in kinds) >= budget

    low, high = 0.0, 1.0
    for _ in range(_MOST_DOUBLINGS):
        if over(high):
            break
        low, high = high, 2 * high
    else:
        return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if over(middle) else (middle, high)
    return high


def _balance(gpu: GpuSpec, dtype: str, active_params: float, what: str, other: float) -> float:
    """Bytes that are read while ``active_params`` are multiplied, over ``other``."""
    for name, value in (("active_params", active_params), (what, other)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} {value:g}: expected a number above 0.")
    return 2 * active_params / (flop_per_byte(gpu, dtype) * other)
