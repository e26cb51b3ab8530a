"""Cache bytes of a token from the context at which a price steps up, and back.

A provider that charges more per token above some context says where reading the caches overtakes computing:
``2 * active_params / flop_per_s = context * kv_bytes_per_token / hbm_bytes_per_s``. With 300 multiplications per
number read (600 flop per byte in FP8), 100 B active parameters and 200k tokens that is 1.7 kB a token.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cost.lecture import flop_per_byte
from topology.errors import InputError

if TYPE_CHECKING:
    from topology.spec import GpuSpec

__all__ = ["kv_bytes_from_price_step", "price_step_context"]


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


def _balance(gpu: GpuSpec, dtype: str, active_params: float, what: str, other: float) -> float:
    """Bytes that are read while ``active_params`` are multiplied, over ``other``."""
    for name, value in (("active_params", active_params), (what, other)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} {value:g}: expected a number above 0.")
    return 2 * active_params / (flop_per_byte(gpu, dtype) * other)
