"""Memory of past windows: similar windows are merged, and the oldest are dropped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placement.arrays import Floats, Ints

KIND_DISTANCE = 0.10
"""Root mean square difference of relative loads up to which two windows are of one kind."""

_SURPRISE_PART = 0.35  # part of a new surprise in their mean
_MAX_KIND_WINDOWS = 8  # windows after which a kind's load follows the next one no more slowly


class Memory(NamedTuple):
    """Kinds of windows, the one seen last at the end.

    Attributes
    ----------
    loads:
        float64 ``[kinds, layers, experts]``: mean over the windows of a kind, rows of mean 1, or all 0 where unknown.
    windows:
        int64 ``[kinds]``: windows of each kind.
    age:
        int64 ``[kinds]``: windows since the last of its kind; 0 for the kind at the end.
    surprise:
        How far a window is from the one before, squared, as a part of how far two drawn at random are, a mean that
        forgets: 0 where windows go on as they were, 1 where the last window says no more of the next than any other.
        Two of one kind in a row differ by noise alone, which counts as 0.
    """

    loads: Floats
    windows: Ints
    age: Ints
    surprise: float = 0.5

    @classmethod
    def empty(cls, layers: int, experts: int) -> Memory:
        """Return an empty memory."""
        none = np.zeros(0, dtype=np.int64)
        return cls(np.zeros((0, layers, experts)), none, none)

    def with_window(self, load: Floats, previous: Floats, limit: int) -> Memory:
        """Return it with one window more ``[layers, experts]`` after ``previous``, of at most ``limit`` kinds."""
        loads = self.loads if len(self.loads) else np.zeros((0, *load.shape))
        age = self.age + 1
        kind = _nearest(loads, load)
        surprise = self._surprised(load, load if kind is not None and age[kind] == 1 else previous)
        if kind is None:
            grown = Memory(np.concatenate([loads, load[None]]), np.append(self.windows, 1), np.append(age, 0))
        else:
            order = np.append(np.delete(np.arange(len(loads)), kind), kind)
            grown = Memory(loads[order], self.windows[order], age[order])
            grown.age[-1] = 0
            grown.windows[-1] += 1
            mean, windows = grown.loads[-1], min(int(grown.windows[-1]), _MAX_KIND_WINDOWS)
            known, seen = mean.max(axis=1, keepdims=True) > 0, load.max(axis=1, keepdims=True) > 0
            grown.loads[-1] = np.where(
                known & seen, mean + (load - mean) / windows, np.where(seen, load, mean)
            )
        return Memory(grown.loads[-limit:], grown.windows[-limit:], grown.age[-limit:], surprise)

    def _surprised(self, load: Floats, previous: Floats) -> float:
        """Return :attr:`surprise` after ``load``."""
        if not len(self.loads):
            return self.surprise
        known = self.windows[:, None] * (self.loads.max(axis=2) > 0)
        mean = (self.loads * known[:, :, None]).sum(axis=0) / np.maximum(known.sum(axis=0), 1)[:, None]
        from_last, from_mean = _apart(load, previous), _apart(load, mean)
        if from_mean is None or from_last is None or from_mean == 0:
            return self.surprise
        return self.surprise + _SURPRISE_PART * (min(1.0, from_last / (2 * from_mean)) - self.surprise)


def _apart(load: Floats, other: Floats) -> float | None:
    """Return the mean square difference over the rows that both know; None where there are none."""
    known = (load.max(axis=1) > 0) & (other.max(axis=1) > 0)
    difference = load[known] - other[known]
    return float((difference * difference).mean()) if difference.size else None


def _nearest(loads: Floats, load: Floats) -> int | None:
    """Return the kind that a window is of; None if it is of none."""
    best, least = None, KIND_DISTANCE * KIND_DISTANCE
    for kind, known in enumerate(loads):
        apart = _apart(load, known)
        if apart is not None and apart < least:
            best, least = kind, apart
    return best
