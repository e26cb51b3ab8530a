"""Routed experts of some layers in a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost.dtypes import bytes_per_param

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cost.expert_use import ExpertUse
    from cost.model import MoeFfn
    from cost.rates import Rates

__all__ = ["expert_times"]


def expert_times(
    moe: MoeFfn, use: ExpertUse, *, tokens: float, weights: str, rates: Rates
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return seconds at peak for computing and for reading, each ``[scenarios, layers, gpus]``.

    Parameters
    ----------
    tokens:
        Tokens of the step over the whole EP group.

    Notes
    -----
    A GPU computes ``2 * expert_params`` flop for each pair it receives, ``tokens * top_k * share``, and reads
    the weights of each slot that some token uses.
    """
    pairs = tokens * moe.top_k * use.share
    compute_s = 2 * moe.expert_params * pairs / rates.flop_per_s[weights]
    read = use.touched_slots(tokens) * moe.expert_params * bytes_per_param(weights)
    return compute_s, read / rates.hbm_bytes_per_s
