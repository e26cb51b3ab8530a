"""Layers cut over the stages of many pipelines at once, so that the largest stage of each is as small as can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from cost.layouts.long_cuts import Sums, long_cuts, too_long

Array = NDArray[np.float64]
Index = NDArray[np.int64]

ALIKE = 1e-9
"""By how much the largest stage of a split may be above the smallest there is, where something else is balanced."""


@dataclass(frozen=True, eq=False)
class Costs:
    """What layers take on the stages of some pipelines, and what each stage takes besides.

    Attributes
    ----------
    layers:
        ``[rows, pipelines, layers]``: a row for each kind of stage of a pipeline.
    fixed:
        ``[rows, pipelines]``.
    """

    layers: Array
    fixed: Array

    @classmethod
    def joined(cls, found: Sequence[Costs]) -> Costs:
        """Return the pipelines of several, one after the other."""
        return cls(
            np.concatenate([one.layers for one in found], axis=1),
            np.concatenate([one.fixed for one in found], axis=1),
        )

    @property
    def ends(self) -> Array:
        """Sums of the first layers, none of them first, ``[rows, pipelines, layers + 1]``."""
        return np.concatenate([np.zeros((*self.fixed.shape, 1)), np.cumsum(self.layers, axis=2)], axis=2)


def cut_alike(costs: Costs, then: Costs, row_of: Sequence[int]) -> list[tuple[range, ...]]:
    """Return the runs of layers of the stages of each pipeline, none of them empty.

    Parameters
    ----------
    costs, then:
        What is balanced, and what is balanced next: of the splits whose largest stage is as small as can be, the one
        whose largest stage is smallest in this.
    row_of:
        The row of each stage, the same in all pipelines.

    Notes
    -----
    The dynamic programme of :func:`cost.layouts.partition.best_cuts`, with equal answers: pipelines side by side, and
    of the runs that a stage may have only those that are no longer than any in a split that is no worse than one that
    is known.
    """
    ends = costs.ends
    known = _even(costs, ends, row_of) * (1 + 2 * ALIKE)
    width = _longest(costs, ends, known)
    if too_long(costs.layers.shape[2], len(ends) * width * ends[0].size):
        stops = [_one_by_one(costs, then, row_of, pipeline) for pipeline in range(costs.fixed.shape[1])]
        return [tuple(range(a, b) for a, b in pairwise(each)) for each in stops]
    runs = _runs(costs, ends, width)
    whole = _from_start(costs, ends, row_of[0])
    largest, cuts = _cut(runs, whole, row_of)
    limit = largest[:, None] * (1 + ALIKE)
    other = _runs(then, then.ends, width)
    other[runs > limit] = np.inf
    start = np.where(whole > limit, np.inf, _from_start(then, then.ends, row_of[0]))
    cuts = _cut(other, start, row_of)[1]
    return [tuple(range(a, b) for a, b in pairwise(stops)) for stops in cuts.T.tolist()]


def _one_by_one(costs: Costs, then: Costs, row_of: Sequence[int], pipeline: int) -> list[int]:
    """Where the layers of one pipeline are cut, without a table of its runs."""
    ends, fixed = costs.ends[:, pipeline], costs.fixed[:, pipeline]
    stops = long_cuts(ends, fixed, row_of)
    if stops is None:
        raise AssertionError("layers without a limit can always be cut")
    rows = list(row_of)
    limit = float((ends[rows, stops[1:]] - ends[rows, stops[:-1]] + fixed[rows]).max()) * (1 + ALIKE)
    within = [Sums(ends, limit - fixed)]
    found = long_cuts(then.ends[:, pipeline], then.fixed[:, pipeline], row_of, within)
    chosen: list[int] = (stops if found is None else found).tolist()
    return chosen


def _even(costs: Costs, ends: Array, row_of: Sequence[int]) -> Array:
    """The largest stage of the split into equally many layers, ``[pipelines]``."""
    layers, stages = costs.layers.shape[2], len(row_of)
    cuts = np.arange(stages + 1) * layers // stages
    rows = list(row_of)
    each = ends[rows, :, cuts[1:]] - ends[rows, :, cuts[:-1]] + costs.fixed[rows]
    return np.asarray(each.max(axis=0))


def _longest(costs: Costs, ends: Array, limit: Array) -> int:
    """Layers of the longest run that may be within a limit."""
    least, most = 1, costs.layers.shape[2]
    while least < most:
        middle = (least + most) // 2
        longer = (ends[:, :, middle + 1 :] - ends[:, :, : -middle - 1]).min(axis=2) + costs.fixed
        if np.all(longer > limit):
            most = middle
        else:
            least = middle + 1
    return least


def _runs(costs: Costs, ends: Array, width: int) -> Array:
    """What ``width`` layers before ``j`` take, then one fewer and so on: ``[rows, width, pipelines, j]``."""
    before = np.concatenate([np.full((*costs.fixed.shape, width), -np.inf), ends], axis=2)
    windows = sliding_window_view(before, ends.shape[2], axis=2)[:, :, :width]
    runs = np.empty((len(ends), width, *ends.shape[1:]))
    np.subtract(ends[:, None], windows.transpose(0, 2, 1, 3), out=runs)
    runs += costs.fixed[:, None, :, None]
    return runs


def _from_start(costs: Costs, ends: Array, row: int) -> Array:
    """What the first ``j`` layers take on the first stage, ``[pipelines, j]``; infinite for none."""
    found: Array = np.maximum(ends[row] - ends[row][:, :1] + costs.fixed[row][:, None], 0.0)
    found[:, 0] = np.inf
    return found


def _cut(runs: Array, start: Array, row_of: Sequence[int]) -> tuple[Array, Index]:
    """Return the largest stage of the best split of each pipeline, and its cuts, ``[stages + 1, pipelines]``."""
    width, (pipelines, places) = runs.shape[1], start.shape
    best, worst = [_padded(start, width)], np.empty(runs.shape[1:])
    for row in row_of[1:-1]:
        before = sliding_window_view(best[-1], places, axis=1)[:, :width].transpose(1, 0, 2)
        best.append(_padded(np.maximum(before, runs[row], out=worst).min(axis=0), width))
    every, back = np.arange(pipelines), np.arange(width)[:, None]
    stops, largest = [np.full(pipelines, places - 1)], best[-1][:, -1]
    for stage in range(len(row_of) - 1, 0, -1):
        stop = stops[-1]
        last = np.maximum(best[stage - 1][every, stop + back], runs[row_of[stage]][:, every, stop])
        which = last.argmin(axis=0)
        stops.append(stop - width + which)
        if stage == len(row_of) - 1:
            largest = last[which, every]
    return largest, np.stack([np.zeros(pipelines, dtype=np.int64), *stops[::-1]])


def _padded(best: Array, width: int) -> Array:
    return np.concatenate([np.full((len(best), width), np.inf), best], axis=1)
