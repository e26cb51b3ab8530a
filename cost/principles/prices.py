"""What a price list tells of the machine behind it."""

from __future__ import annotations


def kv_bytes_behind(active_params: float, context: float, flop_per_byte: float, flop: float = 2.0) -> float:
    """Return bytes of cache a token where reading a cache takes as long as computing its token at ``context``.

    ``flop N_active / (context x flop/byte)``: a price that steps up there pays for the reading beyond. The lecture
    counts multiplications alone (``flop`` 1) and finds about 2 kB.
    """
    return flop * active_params / (context * flop_per_byte)


def covered_context(step_context: float, premium: float) -> float:
    """Return the context up to which a price ``premium`` times as high pays for reading that takes longer."""
    return step_context * premium
