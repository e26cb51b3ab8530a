"""Layers to consecutive stages so that the largest stage is smallest: exact, by dynamic programming."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["balanced_ranges"]


def balanced_ranges(layers: NDArray[np.float64], fixed: NDArray[np.float64]) -> tuple[range, ...]:
    """Return the run of layers of each stage, none of them empty.

    Parameters
    ----------
    layers:
        What each layer takes on each stage (seconds, or part of the memory), ``[stages, layers]``.
    fixed:
        What each stage takes besides, ``[stages]``.

    Notes
    -----
    ``best[s, j] = min over i of max(best[s - 1, i], fixed[s] + sum of layers i..j - 1)``.
    """
    stages, count = layers.shape
    ends = np.concatenate([np.zeros((stages, 1)), np.cumsum(layers, axis=1)], axis=1)
    start, end = np.arange(count + 1)[:, None], np.arange(count + 1)[None, :]
    empty = start >= end
    best = np.where(np.arange(count + 1) == 0, 0.0, np.inf)
    cuts = np.zeros((stages, count + 1), dtype=np.int64)
    for stage in range(stages):
        run = ends[stage][None, :] - ends[stage][:, None] + fixed[stage]
        worst = np.where(empty, np.inf, np.maximum(best[:, None], run))
        cuts[stage] = worst.argmin(axis=0)
        best = worst[cuts[stage], np.arange(count + 1)]
    found = [count]
    for stage in range(stages - 1, -1, -1):
        found.append(int(cuts[stage, found[-1]]))
    return tuple(range(a, b) for a, b in pairwise(found[::-1]))
