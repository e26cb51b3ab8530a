"""The points that no other beats."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.layouts.arrays import pairs
from topology.base.errors import InputError


def pareto(x: ArrayLike, y: ArrayLike, group: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the points that no other beats, in order of rising ``x`` (and so of falling ``y``).

    A point is beaten by one that is at least as large in both and larger in one. Of equal points the first is
    kept; a point with a NaN is never on the frontier. Sorting makes it ``O(n log n)``, and the answer is exact.

    Parameters
    ----------
    x, y:
        Figures of each point, ``[points]`` each; finite where there are groups.
    group:
        Number of the group of each point, ``[points]``: points of different groups do not beat each other.

    Returns
    -------
    Indices into ``x``, int64; one group after the other.

    Raises
    ------
    InputError
        If the two are not of one length.
    """
    right, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if right.ndim != 1 or right.shape != up.shape:
        raise InputError(
            f"pareto: x has shape {list(right.shape)} and y {list(up.shape)}; give equal lengths."
        )
    known = np.flatnonzero(~(np.isnan(right) | np.isnan(up)))
    if group is None:
        of = np.zeros(len(right), dtype=np.int64)
        known = _few_beaten(right, up, known)
        known = known[np.argsort(-right[known])]
        height = up[known]
    else:
        of = int(np.max(group, initial=0)) - group  # the last first: all is turned round at the end
        known = known[np.argsort(-right[known])]
        known = known[np.argsort(of[known], kind="stable")]
        # each group above the one before; rounding may make two heights equal, never turn them round
        height = up[known] - np.min(up[known], initial=np.inf)
        height += of[known] * np.max(height, initial=0.0)
    # most are beaten by one that is as fast and higher: they need no place among the rest
    known = known[height >= np.maximum.accumulate(height)]
    # largest x first, then largest y, then the earliest point: each next one must be higher than all before
    order = known[np.lexsort((known, -up[known], -right[known], of[known]))]
    rank = pairs(of[order], np.unique(up[order], return_inverse=True)[1].reshape(-1))
    unbeaten = np.ones(len(order), dtype=bool)
    unbeaten[1:] = rank[1:] > np.maximum.accumulate(rank)[:-1]
    return order[unbeaten][::-1].astype(np.int64)


_MIN_FILTERED, _SAMPLE_POINTS, _FILTER_POINTS = 8192, 1024, 12
"""Points above which dominated ones are dropped before sorting; points sampled, and of their front compared."""


def _few_beaten(
    right: NDArray[np.float64], up: NDArray[np.float64], known: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return ``known`` without most of the points that a few of them beat in both figures."""
    if len(known) <= _MIN_FILTERED:
        return known
    sample = known[:: len(known) // _SAMPLE_POINTS]
    front = sample[pareto(right[sample], up[sample])]
    x, y, beaten = right[known], up[known], np.zeros(len(known), dtype=bool)
    for point in front[:: -(-len(front) // _FILTER_POINTS)]:
        beaten |= (x < right[point]) & (y < up[point])
    return known[~beaten]
