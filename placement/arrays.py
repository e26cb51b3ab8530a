"""Array types and helpers shared by several searches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Experts = NDArray[np.int32]
"""Expert ids by slot."""
Bools = NDArray[np.bool_]
Index = NDArray[np.intp]


def first_bad(loads: Floats) -> tuple[int, ...] | None:
    """Return where the first entry is that is negative or not finite; None where there is none."""
    if loads.size == 0 or (loads.min() >= 0 and loads.max() < np.inf):  # neither is so with a NaN
        return None
    return tuple(np.argwhere(~np.isfinite(loads) | (loads < 0))[0].tolist())


def count_copies(expert: NDArray[np.integer], place: NDArray[np.integer], places: int, experts: int) -> Ints:
    """Count ids below ``experts`` in each place, int64 ``[rows, places, experts]``.

    ``expert`` has rows as its first axis; ``place`` is that of each entry of a row, or broadcasts to it.
    """
    rows = np.arange(len(expert)).reshape(-1, *[1] * (expert.ndim - 1))
    key = (rows * places + place) * experts + expert
    return np.bincount(key.ravel(), minlength=len(expert) * places * experts).reshape(-1, places, experts)


def least_of_each(owner: Index, value: Floats) -> Index:
    """Return the position of the smallest ``value`` of each owner, in ascending order of owners; ties: the first."""
    order = np.lexsort((value, owner))
    positions: Index = order[starts(owner[order])]
    return positions


def starts(owner: Index) -> Index:
    """Return where each run of equal entries begins."""
    new = np.ones(owner.size, dtype=bool)
    np.not_equal(owner[1:], owner[:-1], out=new[1:])
    return np.flatnonzero(new)


def tag_mask(tags: int) -> int:
    """Return the lowest bits of a number that hold a tag up to ``tags``."""
    return (1 << tags.bit_length()) - 1


def tagged(values: Floats, tags: NDArray[np.integer], mask: int) -> Ints:
    """Return ``values`` (none negative) as numbers in their order, whose lowest bits, a ``mask``, hold ``tags``."""
    numbers: Ints = values.view(np.int64) & ~mask | tags
    return numbers


def falling(values: Floats) -> Index:
    """Return the order of ``values`` ``[rows, n]`` (none negative) by falling value, row by row; ties: the first.

    A stable sort, but by keys that carry the position in their lowest bits: sorting numbers is ten times as fast as
    sorting positions by them, and no two keys are equal, so that no CPU orders ties in a way of its own.
    """
    width = values.shape[1]
    mask = tag_mask(width)
    key = tagged(values + 0.0, mask - np.arange(width), mask)
    key.sort(axis=1)
    order: Index = (mask - (key & mask))[:, ::-1]
    ordered = values.take(order + (np.arange(len(values)) * width)[:, None])
    swapped = ordered[:, 1:] > ordered[:, :-1]  # where they differ in those bits alone
    if swapped.any():
        unsorted = np.flatnonzero(swapped.any(axis=1))
        order[unsorted] = np.argsort(-values[unsorted], axis=1, kind="stable")
    return order


def rising(values: Floats) -> Index:
    """Return an order of ``values`` ``[rows, n]`` by rising value, row by row; ``values`` are overwritten.

    Values that differ in their last bits alone may change places: those bits carry the position.
    """
    bits, mask = values.view(np.int64), tag_mask(values.shape[1])
    bits &= ~mask
    bits |= np.arange(values.shape[1])
    values.sort(axis=1)
    bits &= mask
    return bits
