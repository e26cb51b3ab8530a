"""Bytes of a hand-over between pipeline stages."""

from __future__ import annotations

ACTIVATION_BYTES = 2.0
"""Activations between GPUs travel in BF16."""
TOKEN_ID_BYTES = 4.0
"""A sampled token travels as an int32."""


def hop_bytes(hidden: int, *, tokens: float) -> float:
    """Bytes that each GPU hands to its counterpart in the next stage: one hidden vector a token."""
    return tokens * hidden * ACTIVATION_BYTES


def return_bytes(*, tokens: float) -> float:
    """Bytes that each GPU of the last stage hands back to the first: the sampled tokens, which it embeds."""
    return tokens * TOKEN_ID_BYTES
