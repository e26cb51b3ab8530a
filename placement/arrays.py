"""Short names for the types of arrays, and what several searches ask of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Experts = NDArray[np.int32]
"""Expert ids by slot."""
Bools = NDArray[np.bool_]
Index = NDArray[np.intp]


def count_copies(expert: NDArray[np.integer], place: NDArray[np.integer], places: int, experts: int) -> Ints:
    """Count ids below ``experts`` in each place, int64 ``[rows, places, experts]``.

    ``expert`` has rows as its first axis; ``place`` is that of each entry of a row, or broadcasts to it.
    """
    rows = np.arange(len(expert)).reshape(-1, *[1] * (expert.ndim - 1))
    key = (rows * places + place) * experts + expert
    return np.bincount(key.ravel(), minlength=len(expert) * places * experts).reshape(-1, places, experts)


def least_of_each(owner: Index, value: Floats) -> Index:
    """Return the position of the least ``value`` of each owner that has some, by growing owner; ties: the first."""
    order = np.lexsort((value, owner))
    first: Index = order[np.flatnonzero(np.diff(owner[order], prepend=-1))]
    return first
