"""Batches as attention groups hold them: whole sequences, so that a group of N GPUs has steps of 1 / N."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cost.quantity import Quantity

_ROUNDING = 1e-9
"""Of a sequence."""


def batch_of(sequences: int, tp: float) -> float:
    """Sequences per GPU of attention groups of ``tp`` GPUs with ``sequences`` each; an int where it is whole."""
    return sequences / tp if sequences % tp else sequences // tp


def sequences_of(batch: float, tp: float) -> int | None:
    """Sequences of each attention group of ``tp`` GPUs at ``batch`` per GPU; None where they are not whole."""
    sequences = round(batch * tp)
    return sequences if math.isclose(sequences, batch * tp, rel_tol=1e-9) else None


def whole_batch(batch: float, tp: float) -> float:
    """The largest batch up to ``batch`` with whole sequences of groups of ``tp`` GPUs, at least one each."""
    return batch_of(sequences_of(batch, tp) or max(1, math.floor(batch * tp)), tp)


def smallest_share(gpus: Sequence[int]) -> float:
    """GPUs of the smallest stage over those of its replica: an engine has an attention group in each stage."""
    return min(gpus) / sum(gpus)


def most_that_fit(room: Quantity, tp: Quantity) -> Quantity:
    """The largest batch in ``room`` sequences per GPU, 0 where none fits: an attention group has whole sequences.

    The GPUs of a group of ``tp`` hold each sequence together, so the smallest batch is ``1 / tp``.
    """
    return np.maximum(0.0, np.floor(room * tp + _ROUNDING)) / tp
