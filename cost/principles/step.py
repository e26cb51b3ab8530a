"""A step takes at least as long as computing and as reading: the roofline of a batch, and what follows from it.

All times are of the GPUs that hold the model together (one pipeline stage), their peaks and rates added up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cost.dtypes import bytes_per_param, dense_flop_per_s
from cost.model import Model
from cost.quantity import Quantity
from topology.spec import GpuSpec

DENSE_EQUIVALENT = 1 / 3
"""Exponent of total over active parameters: 64 times the experts are worth a dense model of 4 times the weights
(Clark et al., Unified Scaling Laws for Routed Language Models, 2022, figure 1, in round numbers)."""


def compute_s(tokens: Quantity, active_params: float, flop_per_s: float) -> Quantity:
    """Return ``2 B N_active / (flop/s)``: a multiplication and an addition a token and weight."""
    return 2.0 * tokens * active_params / flop_per_s


def memory_s(weight_bytes: float, cached_bytes: Quantity, bytes_per_s: float) -> Quantity:
    """Return ``(weights + cache) / (bytes/s)``: all weights and the cache of every sequence are read each step."""
    return (weight_bytes + cached_bytes) / bytes_per_s


def balancing_batch(model: Model, gpu: GpuSpec) -> float:
    """Return the tokens of a step at which computing takes as long as reading all weights once.

    ``flop/s / (bytes/s) * bytes of a weight / 2 * total / active parameters``, in the type that most weights have
    (experts, else the dense part): 300 x total / active for BF16 weights on a chip of 300 flop per byte.

    Raises
    ------
    MissingFigureError
        If the catalog has no peak for that type.
    """
    stored = model.precision[model.main_weights]
    flop_per_byte = dense_flop_per_s(stored, gpu) / gpu.hbm_bytes_per_s
    return flop_per_byte * bytes_per_param(stored) / 2 * model.total_params / model.active_params


class Faster(NamedTuple):
    """A mode that is faster than steps that read all of HBM.

    Attributes
    ----------
    most:
        The most times as fast: only weights are left to read, and money buys no more.
    price:
        Times the price of a token at the speed asked for; None: out of reach.
    """

    most: float
    price: float | None


def faster(times: float, full_s: float, weights_s: float) -> Faster:
    """Return what ``times`` the speed costs where a step reads all of HBM in ``full_s``, weights in ``weights_s``.

    A step of ``full_s / times`` has room for ``(full_s / times - weights_s) / (full_s - weights_s)`` of the
    sequences, which share its GPU time.
    """
    share = (full_s / times - weights_s) / (full_s - weights_s)
    return Faster(full_s / weights_s, 1 / times / share if share > 0 else None)


def wall(
    read_bytes: Quantity, contexts: Quantity, active_params: float, flop_per_byte: float
) -> float | None:
    """Return the context from which reading a sequence's cache takes longer than computing its token, at any batch.

    ``read_bytes`` at each of ``contexts``, rising; ``2 N_active / (bytes a token * flop/byte)`` where all tokens of a
    context are read alike. None: beyond the last.
    """
    allowed, read = 2 * active_params / flop_per_byte, np.asarray(read_bytes, dtype=np.float64)
    if read[-1] < allowed:
        return None
    return float(np.interp(allowed, np.maximum.accumulate(read), contexts))


def dense_equivalent(total_params: float, active_params: float) -> float:
    """Return how many times its active weights a dense model as good has: ``(total / active) ** (1/3)``."""
    return float((total_params / active_params) ** DENSE_EQUIVALENT)
