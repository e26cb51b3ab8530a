"""Collectives and hops over one fabric: tensor-parallel all-reduce and pipeline hand-over."""

from __future__ import annotations

__all__ = ["all_reduce_bytes", "hop_bytes"]

ACTIVATION_BYTES = 2.0
"""Activations between GPUs travel in BF16."""


def all_reduce_bytes(hidden: int, *, tokens: float, tp: int) -> float:
    """Bytes that each of ``tp`` GPUs sends to all-reduce the hidden vectors of ``tp * tokens`` tokens.

    An all-reduce is a reduce-scatter and an all-gather, each ``(tp - 1) / tp`` of the vectors
    (jax-ml scaling book, "Sharded Matrices and How to Multiply Them").
    """
    return 2 * (tp - 1) / tp * (tp * tokens) * hidden * ACTIVATION_BYTES


def hop_bytes(hidden: int, *, tokens: float) -> float:
    """Bytes that each GPU hands to its counterpart in the next stage: one hidden vector a token."""
    return tokens * hidden * ACTIVATION_BYTES
