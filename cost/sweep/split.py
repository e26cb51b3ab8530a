"""Layers to consecutive stages so that the largest stage is smallest: exact, by dynamic programming."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_ALIKE = 1e-9


def balanced_ranges(
    layers: NDArray[np.float64],
    fixed: NDArray[np.float64],
    *,
    then: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> tuple[range, ...]:
    """Return the run of layers of each stage, none of them empty.

    Parameters
    ----------
    layers:
        What each layer takes on each stage (seconds, or part of the memory), ``[stages, layers]``.
    fixed:
        What each stage takes besides, ``[stages]``.
    then:
        The same of what is balanced next: of the splits whose largest stage is as small as can be, the one that is
        best in this.

    Notes
    -----
    ``best[s, j] = min over i of max(best[s - 1, i], fixed[s] + sum of layers i..j - 1)``.
    """
    runs = _runs(layers, fixed)
    largest, found = _balanced(runs)
    if then is None:
        return found
    return _balanced(np.where(runs > largest * (1 + _ALIKE), np.inf, _runs(*then)))[1]


def _runs(layers: NDArray[np.float64], fixed: NDArray[np.float64]) -> NDArray[np.float64]:
    """What layers ``i`` to ``j - 1`` take on each stage, ``[stages, i, j]``; infinite where there are none."""
    count = layers.shape[1]
    ends = np.concatenate([np.zeros((len(layers), 1)), np.cumsum(layers, axis=1)], axis=1)
    runs = ends[:, None, :] - ends[:, :, None] + fixed[:, None, None]
    start, end = np.arange(count + 1)[:, None], np.arange(count + 1)[None, :]
    return np.where(start >= end, np.inf, runs)


def _balanced(runs: NDArray[np.float64]) -> tuple[float, tuple[range, ...]]:
    """Return the largest stage of the best split, and the split."""
    stages, count = len(runs), runs.shape[1] - 1
    best = np.where(np.arange(count + 1) == 0, 0.0, np.inf)
    cuts = np.zeros((stages, count + 1), dtype=np.int64)
    for stage in range(stages):
        worst = np.maximum(best[:, None], runs[stage])
        cuts[stage] = worst.argmin(axis=0)
        best = worst[cuts[stage], np.arange(count + 1)]
    found = [count]
    for stage in range(stages - 1, -1, -1):
        found.append(int(cuts[stage, found[-1]]))
    return float(best[count]), tuple(range(a, b) for a, b in pairwise(found[::-1]))
