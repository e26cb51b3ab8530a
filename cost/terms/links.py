"""Collectives and hops over one fabric: tensor-parallel all-reduce and pipeline hand-over."""

from __future__ import annotations

__all__ = ["all_reduce_bytes", "hop_bytes", "return_bytes"]

ACTIVATION_BYTES = 2.0
"""Activations between GPUs travel in BF16."""
TOKEN_ID_BYTES = 4.0
"""A sampled token travels as an int32."""


def all_reduce_bytes(hidden: int, *, tokens: float, tp: int) -> float:
    """Bytes that each of ``tp`` GPUs sends to all-reduce the hidden vectors of ``tp * tokens`` tokens.

    An all-reduce is a reduce-scatter and an all-gather, each ``(tp - 1) / tp`` of the vectors
    (jax-ml scaling book, "Sharded Matrices and How to Multiply Them").
    """
    return 2 * (tp - 1) / tp * (tp * tokens) * hidden * ACTIVATION_BYTES


def hop_bytes(hidden: int, *, tokens: float) -> float:
    """Bytes that each GPU hands to its counterpart in the next stage: one hidden vector a token."""
    return tokens * hidden * ACTIVATION_BYTES


def return_bytes(*, tokens: float) -> float:
    """Bytes that each GPU of the last stage hands back to the first: the sampled tokens, which it embeds."""
    return tokens * TOKEN_ID_BYTES
