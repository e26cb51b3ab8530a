"""Arrays of rows that belong together: numbers for distinct values and pairs, groups of rows, runs of equal keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Bools = NDArray[np.bool_]

_MAX_MARKED = 1 << 23
"""Numbers up to which an array marks which of them occur; beyond, they are sorted."""


def pairs(left: Index, right: Index) -> Index:
    """Return a number of each pair of two columns of numbers."""
    return left * (int(right.max(initial=0)) + 1) + right


def numbered(values: Index) -> tuple[Index, Index]:
    """Return the distinct of some numbers of 0 and above, growing, and the place of each value among them."""
    largest = int(values.max(initial=0))
    if largest >= max(_MAX_MARKED, 4 * len(values)):
        distinct, place = np.unique(values, return_inverse=True)
        return distinct, place.reshape(-1)
    occurs = np.zeros(largest + 1, dtype=bool)
    occurs[values] = True
    distinct = np.flatnonzero(occurs)
    number = np.zeros(largest + 1, dtype=np.int64)
    number[distinct] = np.arange(len(distinct))
    return distinct, number[values]


def expand(start: Index, length: Index, groups: Index) -> tuple[Index, Index]:
    """Return the rows of ``groups``, one group after the other.

    Parameters
    ----------
    start, length:
        First row and number of rows of each group there is.
    groups:
        Which groups are wanted, repeats allowed, ``[n]``.

    Returns
    -------
    For each row the position in ``groups`` that it is of, and the row itself.
    """
    counts = length[groups]
    owner = np.repeat(np.arange(len(groups)), counts)
    begin = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) + np.repeat(start[groups] - begin, counts)


@dataclass(frozen=True, eq=False)
class Runs:
    """Where runs of equal keys start in an array of ``rows`` rows."""

    start: Index
    rows: int

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def _of_row(self) -> Index:
        """The run of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.start, append=self.rows))

    def sum(self, values: Array) -> Array:
        """Sum of each run."""
        return values if len(self) == self.rows else np.add.reduceat(values, self.start)

    def max(self, values: Array) -> Array:
        """Largest of each run."""
        return values if len(self) == self.rows else np.maximum.reduceat(values, self.start)

    def min(self, values: Array) -> Array:
        """Smallest of each run."""
        return values if len(self) == self.rows else np.minimum.reduceat(values, self.start)

    def argmax(self, values: Array) -> Index:
        """Row of the (first) largest of each run."""
        largest = np.flatnonzero(values == self.max(values)[self._of_row])
        return largest[np.unique(self._of_row[largest], return_index=True)[1]]


def runs_of(*keys: Index | Array) -> Runs:
    """Return the runs of rows in which all ``keys`` stay the same."""
    rows = len(keys[0])
    new = np.zeros(rows, dtype=bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return Runs(np.flatnonzero(new), rows)
