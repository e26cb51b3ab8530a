"""All ways to deal out the copies of two GPUs again, and the best of them, for many pairs at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


_SPLIT_SLOTS = 4  # up to so many slots a GPU every split of a pair is looked at (70), above it every swap

Speeds = tuple["Floats", "Floats"]


class Deals(Protocol):
    """Ways to deal out again the copies of pairs of GPUs of equally many slots (empty ones are locked)."""

    def best(
        self, mine: Floats, other: Floats, locked: NDArray[np.bool_] | None, speeds: Speeds | None
    ) -> tuple[Floats, NDArray[np.intp]]:
        """Return the smallest larger load of each pair, ``[..]``, and which way reaches it.

        Parameters
        ----------
        mine, other:
            Loads of the copies on the two GPUs, ``[.., slots]``; they broadcast against each other.
        locked:
            ``[.., 2 slots]``: copies that must stay where they are.
        speeds:
            Speeds of the two GPUs, ``[..]`` each; None where all are alike.
        """

    def order(self, choice: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return for each choice which of the ``2 slots`` copies come first and second, ``[n, 2 slots]``."""


@lru_cache(maxsize=32)
def deals(slots: int, *, mirrored: bool) -> Deals:
    """Return the ways for GPUs of ``slots`` slots; ``mirrored``: the two GPUs may change places."""
    return _splits(slots, mirrored=mirrored) if slots <= _SPLIT_SLOTS else _Swaps(slots)


@dataclass(frozen=True, eq=False)
class _Splits:
    """Every way to split ``2 slots`` copies in two halves, one column each."""

    first: Floats  # [2 slots, size]: 1 where the copy is in the first half
    moves: NDArray[np.float32]  # [2 slots, size]: 1 where the copy changes its GPU
    orders: NDArray[np.intp]  # [size, 2 slots]

    def best(
        self, mine: Floats, other: Floats, locked: NDArray[np.bool_] | None, speeds: Speeds | None
    ) -> tuple[Floats, NDArray[np.intp]]:
        slots = mine.shape[-1]
        total = mine.sum(axis=-1) + other.sum(axis=-1)
        load = mine @ self.first[:slots] + other @ self.first[slots:]
        worst = _larger(load, total, speeds)
        if locked is not None:
            bound = np.nonzero(locked.any(axis=-1))
            worst[bound] += np.where(locked[bound].astype(np.float32) @ self.moves > 0, np.inf, 0.0)
        choice = worst.argmin(axis=-1)
        return _value(worst, choice, total, speeds), choice

    def order(self, choice: NDArray[np.intp]) -> NDArray[np.intp]:
        return self.orders[choice]


class _Swaps:
    """Every swap of one copy against one."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.size = slots * slots

    def best(
        self, mine: Floats, other: Floats, locked: NDArray[np.bool_] | None, speeds: Speeds | None
    ) -> tuple[Floats, NDArray[np.intp]]:
        total = mine.sum(axis=-1) + other.sum(axis=-1)
        start = np.broadcast_to(mine.sum(axis=-1), total.shape)
        load = start[..., None, None] - mine[..., :, None] + other[..., None, :]
        if locked is not None:
            load[locked[..., : self.slots]] = np.inf
            load.swapaxes(-1, -2)[locked[..., self.slots :]] = np.inf
        worst = _larger(load.reshape(*total.shape, self.size), total, speeds)
        choice = worst.argmin(axis=-1)
        return _value(worst, choice, total, speeds), choice

    def order(self, choice: NDArray[np.intp]) -> NDArray[np.intp]:
        rows = np.arange(choice.size)
        order = np.tile(np.arange(2 * self.slots), (choice.size, 1))
        left, right = choice // self.slots, self.slots + choice % self.slots
        order[rows, left], order[rows, right] = right, left
        return order


def _splits(slots: int, *, mirrored: bool) -> _Splits:
    halves = [half for half in combinations(range(2 * slots), slots) if half[0] == 0 or not mirrored]
    first = np.zeros((2 * slots, len(halves)))
    for column, half in enumerate(halves):
        first[list(half), column] = 1.0
    moves = first.copy()
    moves[:slots] = 1.0 - first[:slots]
    orders = np.argsort(-first.T, axis=1, kind="stable")
    return _Splits(first, moves.astype(np.float32), orders)


def _larger(load: Floats, total: Floats, speeds: Speeds | None) -> Floats:
    """Rank loads of the first GPU, ``[.., ways]``, in place: the distance from equal loads, or the larger time."""
    if speeds is None:
        load -= total[..., None] / 2
        return np.abs(load, out=load)
    ranked: Floats = np.maximum(
        load / speeds[0][..., None], np.abs(total[..., None] - load) / speeds[1][..., None]
    )
    return ranked


def _value(worst: Floats, choice: NDArray[np.intp], total: Floats, speeds: Speeds | None) -> Floats:
    value = np.take_along_axis(worst, choice[..., None], axis=-1)[..., 0]
    larger: Floats = value + total / 2 if speeds is None else value
    return larger
