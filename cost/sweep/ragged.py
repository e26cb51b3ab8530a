"""Rows that belong to groups of different length, kept in one long array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def expand(
    start: NDArray[np.int64], length: NDArray[np.int64], groups: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    many = length[groups]
    owner = np.repeat(np.arange(len(groups)), many)
    before = np.cumsum(many) - many
    return owner, np.arange(len(owner)) + np.repeat(start[groups] - before, many)


@dataclass(frozen=True, eq=False)
class Runs:
    """Where runs of equal keys start in an array of ``rows`` rows."""

    start: NDArray[np.int64]
    rows: int

    def __len__(self) -> int:
        return len(self.start)

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of each run."""
        return values if len(self) == self.rows else np.add.reduceat(values, self.start)

    def max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Largest of each run."""
        return values if len(self) == self.rows else np.maximum.reduceat(values, self.start)

    def min(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Smallest of each run."""
        return values if len(self) == self.rows else np.minimum.reduceat(values, self.start)

    def argmax(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Row of the (first) largest of each run."""
        if len(self) == self.rows:
            return self.start
        run = np.zeros(self.rows, dtype=np.int64)
        run[self.start[1:]] = 1
        run = np.cumsum(run)
        largest = np.flatnonzero(values == self.max(values)[run])
        return largest[np.unique(run[largest], return_index=True)[1]]


def runs_of(*keys: NDArray[np.int64]) -> Runs:
    """Return the runs of rows in which all ``keys`` stay the same."""
    rows = len(keys[0])
    new = np.zeros(rows, dtype=bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return Runs(np.flatnonzero(new), rows)
