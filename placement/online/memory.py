"""What a balancer remembers of the windows it saw: kinds of windows, alike ones joined, the oldest forgotten."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placement.arrays import Floats, Ints

ALIKE = 0.10
"""Root mean square difference of relative loads up to which two windows are of one kind."""

_STEADY = 8  # windows after which a kind's load follows the next one no more slowly


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
    """

    loads: Floats
    windows: Ints
    age: Ints

    @classmethod
    def empty(cls, layers: int, experts: int) -> Memory:
        """Return the memory of nothing."""
        none = np.zeros(0, dtype=np.int64)
        return cls(np.zeros((0, layers, experts)), none, none)

    def with_window(self, load: Floats, most: int) -> Memory:
        """Return the memory with one window more ``[layers, experts]``, of at most ``most`` kinds."""
        loads = self.loads if len(self.loads) else np.zeros((0, *load.shape))
        age = self.age + 1
        kind = _nearest(loads, load)
        if kind is None:
            found = Memory(np.concatenate([loads, load[None]]), np.append(self.windows, 1), np.append(age, 0))
        else:
            order = np.append(np.delete(np.arange(len(loads)), kind), kind)
            found = Memory(loads[order], self.windows[order], age[order])
            found.age[-1] = 0
            found.windows[-1] += 1
            found.loads[-1] = _joined(found.loads[-1], load, min(int(found.windows[-1]), _STEADY))
        return Memory(found.loads[-most:], found.windows[-most:], found.age[-most:])


def _nearest(loads: Floats, load: Floats) -> int | None:
    """Return the kind that a window is of; None if it is of none."""
    best, least = None, ALIKE * ALIKE
    for kind, other in enumerate(loads):
        both = (load.max(axis=1) > 0) & (other.max(axis=1) > 0)
        apart = load[both] - other[both]
        if apart.size and float((apart * apart).mean()) < least:
            best, least = kind, float((apart * apart).mean())
    return best


def _joined(mean: Floats, load: Floats, windows: int) -> Floats:
    known, seen = mean.max(axis=1, keepdims=True) > 0, load.max(axis=1, keepdims=True) > 0
    joined: Floats = np.where(known & seen, mean + (load - mean) / windows, np.where(seen, load, mean))
    return joined
