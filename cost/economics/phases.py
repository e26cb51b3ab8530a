"""Price of an output token over that of an input token, from what decode and prefill cost.

Prefill computes a chunk of tokens for one read of weights and context; decode reads the weights for one token of
each sequence and the caches of every one. Where prefill is bound by compute and decode by memory, their ratio is
the inverse of the share of peak that decode reaches: a price ratio of 5 says decode computes a fifth of the time.
"""

from __future__ import annotations

import math

import numpy as np

from cost.economics.roofline import Batch, Roofline, check_batch
from topology.errors import InputError


def prefill_cost_per_token(line: Roofline, chunk: Batch) -> Batch:
    """GPU-seconds per input token when ``chunk`` tokens are computed at once after ``line.context`` cached ones.

    ``max(chunk * compute, weights of the chunk + one sequence's caches) / chunk``; attention's own arithmetic is
    left out, as in the lecture.

    Raises
    ------
    InputError
        If a chunk is not a number of at least 1.
    """
    check_batch("chunk", chunk)
    memory_s = line.params_read(chunk) * line.param_bytes / line.hbm_bytes_per_s + line.cache_s_per_sequence
    step: Batch = np.maximum(line.compute_s(chunk), memory_s)
    return line.domain.gpus * step / chunk


def output_over_input(line: Roofline, batch: Batch, *, chunk: float) -> Batch:
    """Cost of an output token at ``batch`` over that of an input token in chunks of ``chunk``.

    Raises
    ------
    InputError
        If the batch or the chunk is not a number of at least 1.
    """
    return line.cost_per_token(batch) / float(prefill_cost_per_token(line, chunk))


def batch_for_output_price(line: Roofline, ratio: float, *, chunk: float) -> float:
    """Return the smallest batch at which an output token costs at most ``ratio`` times an input token.

    Raises
    ------
    InputError
        If the chunk is not a number of at least 1, or no batch is that cheap.
    """
    floor = line.best_cost_per_token() / float(prefill_cost_per_token(line, chunk))
    if not (math.isfinite(ratio) and ratio > floor):
        raise InputError(
            f"ratio {ratio:g}: an output token costs more than {floor:.3g} times an input token at any batch here; "
            "ask for more, or for a shorter context."
        )
    low, high = 0.0, 1.0
    while output_over_input(line, high, chunk=chunk) > ratio:
        low, high = high, 2 * high
    if low == 0:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if output_over_input(line, middle, chunk=chunk) > ratio else (low, middle)
    return high
