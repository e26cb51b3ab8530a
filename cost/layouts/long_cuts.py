"""Layers cut over stages where a table of all runs of layers does not fit in memory: by limits on the largest stage.

Of a limit it is decided in one pass whether a split is within it, so the least limit is found by trying them. The
answer is that of :func:`cost.layouts.partition.best_cuts`, its largest stage equal but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

MOST_LAYERS, MOST_RUNS = 1024, 1 << 26
"""Layers, and runs of layers on the stages of all pipelines, up to which the dynamic programme keeps its table."""

EXACT = 1e-12
"""By how much the largest stage may be above the smallest there is: rounding."""


def too_long(layers: int, runs: int) -> bool:
    """Whether a table of ``runs`` in all is larger than one that the dynamic programme keeps."""
    return layers > MOST_LAYERS or runs > MOST_RUNS


@dataclass(frozen=True, eq=False)
class Sums:
    """Running sums of what layers take on the stages of one pipeline.

    Attributes
    ----------
    ends:
        Sums of the first layers on each kind of stage, none of them first, ``[rows, layers + 1]``; never falling.
    room:
        What the layers of a stage may take together, ``[rows]``.
    """

    ends: Array
    room: Array

    @cached_property
    def largest_layer(self) -> Array:
        """What the largest layer takes on each kind of stage, ``[rows]``."""
        return np.asarray(np.diff(self.ends, axis=1).max(axis=1))

    def first(self, row: int, stop: Index | int) -> Index:
        """First layer of the longest run before ``stop`` that a stage has room for; ``stop`` where there is none."""
        ends = self.ends[row]
        found: Index = np.searchsorted(ends, ends[stop] - self.room[row])
        return found


def long_cuts(ends: Array, fixed: Array, row_of: Sequence[int], within: Sequence[Sums] = ()) -> Index | None:
    """Return where layers are cut so that the largest stage is as small as can be, ``[stages + 1]``.

    Parameters
    ----------
    ends, fixed:
        Sums of the first layers on each kind of stage, ``[rows, layers + 1]``, and what a stage takes besides.
    row_of:
        The row of each stage.
    within:
        What stages must have room for; None is returned where no split has.
    """
    rows, layers = np.asarray(row_of), Sums(ends, fixed).largest_layer

    def split(limit: float) -> Index | None:
        sums = [Sums(ends, limit - fixed), *within]
        small = [layers, *(one.largest_layer for one in within)]
        found = _longest_first(sums, row_of)
        if found is None and any(np.any(row > one.room) for row, one in zip(small, sums, strict=True)):
            return _reached(sums, row_of)
        return found

    low, high = 0.0, float((ends[:, -1] + fixed).max()) * (1 + EXACT)
    found = split(high)
    while found is not None:
        stops = found
        high = min(high, float((ends[rows, stops[1:]] - ends[rows, stops[:-1]] + fixed[rows]).max()))
        found = None
        while found is None:
            middle = (low + high) / 2
            if high - low <= EXACT * high or not low < middle < high:
                return stops
            found = split(middle)
            low = middle if found is None else low
    return None


def _longest_first(sums: Sequence[Sums], row_of: Sequence[int]) -> Index | None:
    """Return the split whose stages have room and are, from the last one on, as long as may be.

    It is found if there is any split, except where some layer is too large for some stage.
    """
    stops = [sums[0].ends.shape[1] - 1]
    for left, row in zip(range(len(row_of) - 1, -1, -1), reversed(row_of), strict=True):
        start = max(left, *(int(one.first(row, stops[-1])) for one in sums))
        if start >= stops[-1]:
            return None
        stops.append(start)
    return None if stops[-1] else np.array(stops[::-1])


def _reached(sums: Sequence[Sums], row_of: Sequence[int]) -> Index | None:
    """Return a split whose stages have room, all cuts that can be reached followed; None if there is none."""
    every = np.arange(sums[0].ends.shape[1])
    first = {row: np.max([one.first(row, every) for one in sums], axis=0) for row in set(row_of)}
    reached = [every == every[-1]]
    for row in reversed(row_of):
        stops = np.flatnonzero(reached[-1] & (first[row] < every))
        # a run before any of these stops may start anywhere from its first layer on
        steps = np.bincount(first[row][stops], minlength=len(every)) - np.bincount(
            stops, minlength=len(every)
        )
        reached.append(np.cumsum(steps) > 0)
    if not reached[-1][0]:
        return None
    found = [0]
    for row, stops in zip(row_of, reached[-2::-1], strict=True):
        able = np.flatnonzero(stops & (first[row] <= found[-1]) & (every > found[-1]))
        found.append(int(able[0]))
    return np.array(found)
