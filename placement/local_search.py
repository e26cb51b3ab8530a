"""Pair exchange: the copies of two GPUs are dealt out again in the best way, hot with cold, until no pair helps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Bools, Experts, Floats, Index, Ints, count_copies
from placement.problem import Problem

_SPLIT_SLOTS = 4  # up to so many slots a GPU every split of a pair is looked at (70), above it every swap

Speeds = tuple["Floats", "Floats"]


class Deals(Protocol):
    """Ways to deal out again the copies of pairs of GPUs of equally many slots (empty ones are locked)."""

    def best(
        self, mine: Floats, other: Floats, locked: Bools | None, speeds: Speeds | None
    ) -> tuple[Floats, Index]:
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

    def order(self, choice: Index) -> Index:
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
    orders: Index  # [size, 2 slots]

    def best(
        self, mine: Floats, other: Floats, locked: Bools | None, speeds: Speeds | None
    ) -> tuple[Floats, Index]:
        slots = mine.shape[-1]
        total = mine.sum(axis=-1) + other.sum(axis=-1)
        load = mine @ self.first[:slots] + other @ self.first[slots:]
        worst = _larger(load, total, speeds)
        if locked is not None:
            bound = np.nonzero(locked.any(axis=-1))
            worst[bound] += np.where(locked[bound].astype(np.float32) @ self.moves > 0, np.inf, 0.0)
        choice = worst.argmin(axis=-1)
        return _value(worst, choice, total, speeds), choice

    def order(self, choice: Index) -> Index:
        return self.orders[choice]


class _Swaps:
    """Every swap of one copy against one."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.size = slots * slots

    def best(
        self, mine: Floats, other: Floats, locked: Bools | None, speeds: Speeds | None
    ) -> tuple[Floats, Index]:
        total = mine.sum(axis=-1) + other.sum(axis=-1)
        start = np.broadcast_to(mine.sum(axis=-1), total.shape)
        load = start[..., None, None] - mine[..., :, None] + other[..., None, :]
        if locked is not None:
            load[locked[..., : self.slots]] = np.inf
            load.swapaxes(-1, -2)[locked[..., self.slots :]] = np.inf
        worst = _larger(load.reshape(*total.shape, self.size), total, speeds)
        choice = worst.argmin(axis=-1)
        return _value(worst, choice, total, speeds), choice

    def order(self, choice: Index) -> Index:
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


def _value(worst: Floats, choice: Index, total: Floats, speeds: Speeds | None) -> Floats:
    value = np.take_along_axis(worst, choice[..., None], axis=-1)[..., 0]
    larger: Floats = value + total / 2 if speeds is None else value
    return larger


_LEAST_GAIN = 1e-7  # of the larger load of two GPUs; below it a descent could go on for ever
_ROUND_GAIN = 1e-4  # of the largest load: what a round of pairs is worth
_SHIFTS = 3  # rounds without such a gain, each with other partners, before the hottest GPU looks for its own
_FEW_PARTNERS = 16  # the coldest GPUs, which mostly have what the hottest needs; then it looks at all
_MANY_PARTNERS = 96  # ... or, with more slots a GPU than are dealt out in all ways, at so many of the coldest
_CELLS = 1 << 20  # pairs times ways to deal them out, of the layers that descend together


def swap_down(problem: Problem, slot_expert: Experts, *, close: float = 0.0) -> Experts:
    """Deal out pairs of GPUs again until that no longer helps, and return the new ``[layers, slots]``.

    First the hottest GPU of each layer with the coldest, the second hottest with the second coldest and so on,
    all at once; then the hottest GPU with whichever other (of many with many slots, of the coldest) makes the
    larger of their two loads smallest. A pair of up to four slots each is split in the best of all ways, above that
    by the best swap. Copies of an expert stay spread over failure domains if they were, and no largest load rises.
    Layers within ``close`` of the mean load (a fraction) are done. Deterministic.
    """
    table = _slot_table(problem)
    if table.shape[0] < 2:
        return slot_expert.copy()
    ways = max(1, table.shape[1] ** 2 if table.shape[1] > _SPLIT_SLOTS else 35)
    size = max(1, _CELLS // (ways * table.shape[0]))
    ends = [
        _Descent(problem, slot_expert, np.arange(start, min(start + size, problem.layers)), table).run(close)
        for start in range(0, problem.layers, size)
    ]
    return np.concatenate(ends)


def _slot_table(problem: Problem) -> Ints:
    """The slots of each GPU that has some, ``[used GPUs, most slots]``; -1 where it has fewer."""
    used = np.flatnonzero(problem.slots_per_gpu > 0)
    table: Ints = problem.first_slot[used][:, None] + np.arange(int(problem.slots_per_gpu.max()))
    table[table >= problem.first_slot[used + 1][:, None]] = -1
    return table


class _Descent:
    """Some layers of a placement as tables ``[layers, GPUs, slots]``, kept up to date deal by deal."""

    def __init__(self, problem: Problem, slot_expert: Experts, layers: Index, table: Ints) -> None:
        self.slot_expert = slot_expert[layers]
        self.table = table
        self.empty = table < 0
        self.expert = np.where(self.empty, -1, self.slot_expert[:, table])
        share = problem.assignment(self.slot_expert).slot_load(problem.mean[layers])
        self.share = np.where(self.empty, 0.0, share[:, table])
        used = np.flatnonzero(problem.slots_per_gpu > 0)
        speed = problem.speed[used]
        self.alike = bool((speed == speed[0]).all())
        self.speed = np.ones(used.size) if self.alike else speed
        self.apart = not problem.each_alone
        self.domain = problem.failure_domain[used]
        self.experts = problem.experts
        self.most = self._most_in_domain(problem)
        self.mean = self.share.sum(axis=(1, 2)) / self.speed.sum()
        self.uneven = bool(self.empty.any())
        mirrored = self.alike and not self.apart and not self.uneven
        self.deals = deals(table.shape[1], mirrored=mirrored)

    def _most_in_domain(self, problem: Problem) -> Ints:
        """Most copies in a failure domain, ``[layers, experts + 1]``; deals change no counts. Empty if not asked."""
        if not self.apart:
            return np.empty((0, 0), dtype=np.int64)
        copies = problem.assignment(self.slot_expert).copies
        most: Ints = problem.most_in_domain(copies)
        return np.pad(most, ((0, 0), (0, 1)), constant_values=self.table.size)

    def run(self, close: float) -> Experts:
        """Descend and return the slots ``[layers, slots]``."""
        self._pairs(close)
        gpus = self.expert.shape[1]
        most = gpus if self.table.shape[1] <= _SPLIT_SLOTS else min(_MANY_PARTNERS, gpus)
        for partners in sorted({min(_FEW_PARTNERS, gpus), most}):
            self._hottest(close, partners)
        filled = ~self.empty
        if self.uneven:  # a deal leaves the empty slots of a GPU anywhere in its row
            last = np.argsort(self.expert < 0, axis=2, kind="stable")
            self.expert = np.take_along_axis(self.expert, last, axis=2)
        self.slot_expert[:, self.table[filled]] = self.expert[:, filled]
        return self.slot_expert

    def _load(self, layers: Index) -> Floats:
        load: Floats = self.share[layers].sum(axis=2)
        return load if self.alike else load / self.speed

    def _open(self, layers: Index, peak: Floats, close: float) -> Bools:
        still: Bools = peak > self.mean[layers] * (1 + close)
        return still

    def _pairs(self, close: float) -> None:
        """Deal out hot and cold GPUs in pairs, all at once, with other partners where nothing was gained."""
        layers, gpus = np.arange(self.expert.shape[0]), self.expert.shape[1]
        pairs = gpus // 2
        stale = np.zeros(layers.size, dtype=np.int64)
        load = self._load(layers)
        while layers.size:
            order = np.argsort(-load, axis=1, kind="stable")
            cold = order[:, ::-1][:, : gpus - pairs]
            partner = (np.arange(pairs) + stale[layers][:, None]) % (gpus - pairs)
            hot, cold = order[:, :pairs], np.take_along_axis(cold, partner, axis=1)
            peak = load.max(axis=1)
            self._deal_pairs(layers, hot, cold)
            load = self._load(layers)
            now = load.max(axis=1)
            stale[layers] = np.where(now < peak * (1 - _ROUND_GAIN), 0, stale[layers] + 1)
            going = (stale[layers] < min(_SHIFTS, gpus - pairs)) & self._open(layers, now, close)
            layers, load = layers[going], load[going]

    def _deal_pairs(self, layers: Index, hot: Index, cold: Index) -> None:
        rows = layers[:, None]
        mine, other = self.share[rows, hot], self.share[rows, cold]
        before = np.maximum(mine.sum(axis=2) / self.speed[hot], other.sum(axis=2) / self.speed[cold])
        locked = self._locked(layers, self.expert[rows, hot], self.expert[rows, cold], hot, cold)
        value, choice = self.deals.best(mine, other, locked, self._speeds(hot, cold))
        row, pair = np.nonzero(value < before * (1 - _LEAST_GAIN))
        if self.apart:
            row, pair = self._without_collisions(layers, hot, cold, choice, row, pair)
        self._move(layers[row], hot[row, pair], cold[row, pair], choice[row, pair])

    def _hottest(self, close: float, partners: int) -> None:
        """Deal out the hottest GPU with the best of the coldest ``partners``, one deal a layer at a time."""
        layers = np.arange(self.expert.shape[0])
        load = self._load(layers)
        while layers.size:
            hot = load.argmax(axis=1)
            peak = load[np.arange(layers.size), hot]
            going = self._open(layers, peak, close)
            layers, hot, peak, load = layers[going], hot[going], peak[going], load[going]
            if layers.size == 0:
                return
            index, rows = np.arange(layers.size), layers[:, None]
            cold = np.argpartition(load, partners - 1, axis=1)[:, :partners]
            cold.sort(axis=1)  # ties go to the lowest
            mine = self.expert[layers, hot][:, None, :]
            locked = self._locked(layers, mine, self.expert[rows, cold], hot[:, None], cold)
            value, choice = self.deals.best(
                self.share[layers, hot][:, None, :],
                self.share[rows, cold],
                locked,
                self._speeds(hot[:, None], cold),
            )
            value[cold == hot[:, None]] = np.inf
            best = value.argmin(axis=1)
            other = cold[index, best]
            helps = value[index, best] < peak * (1 - _LEAST_GAIN)
            self._move(layers[helps], hot[helps], other[helps], choice[index, best][helps])
            layers, load, hot, other = layers[helps], load[helps], hot[helps], other[helps]
            for gpu in (hot, other):
                load[np.arange(layers.size), gpu] = self.share[layers, gpu].sum(axis=1) / self.speed[gpu]

    def _speeds(self, hot: Index, cold: Index) -> Speeds | None:
        return None if self.alike else (self.speed[hot], self.speed[cold])

    def _locked(self, layers: Index, mine: Experts, other: Experts, hot: Index, cold: Index) -> Bools | None:
        """Mark copies that may not change GPUs, ``[layers, pairs, 2 slots]``; None where all may.

        Those are empty slots, and copies whose expert the other GPU's failure domain holds. Where both GPUs hold
        an expert, its two copies may as well stay: they are the same.
        """
        pairs = np.broadcast_shapes(hot.shape, cold.shape)
        slots = mine.shape[-1]
        if not self.apart:
            same = np.nonzero(mine[..., :, None] == other[..., None, :])
            if same[0].size == 0 and not self.uneven:
                return None
            locked = np.zeros((*pairs, 2 * slots), dtype=bool)
            locked[same[0], same[1], same[2]] = True
            locked[same[0], same[1], slots + same[3]] = True
        else:
            locked = self._held_there(layers, mine, other, hot, cold)
        if self.uneven:
            locked[..., :slots] |= mine < 0
            locked[..., slots:] |= other < 0
        return locked

    def _held_there(self, layers: Index, mine: Experts, other: Experts, hot: Index, cold: Index) -> Bools:
        """Mark copies whose expert the other GPU holds, or its failure domain, not their own, as often as may be."""
        domains, size = int(self.domain.max()) + 1, self.experts + 1
        rows = np.arange(layers.size)[:, None, None]
        # an empty slot, -1, counts in the last column
        count = count_copies(self.expert[layers] % size, self.domain[:, None], domains, size)
        full = count >= self.most[layers][:, None]
        here, there = self.domain[hot][..., None], self.domain[cold][..., None]
        same = (mine[..., :, None] == other[..., None, :]) & (mine >= 0)[..., :, None]
        left = (full[rows, there, mine] & (here != there)) | same.any(axis=-1)
        right = (full[rows, here, other] & (here != there)) | same.any(axis=-2)
        return np.concatenate([left, right], axis=-1)

    def _without_collisions(
        self, layers: Index, hot: Index, cold: Index, choice: Index, row: Index, pair: Index
    ) -> tuple[Index, Index]:
        """Drop deals that bring an expert to a domain to which an earlier pair of the layer brings it as well."""
        slots = self.expert.shape[2]
        left, right = hot[row, pair], cold[row, pair]
        copies = np.concatenate([self.expert[layers[row], left], self.expert[layers[row], right]], axis=1)
        order = self.deals.order(choice[row, pair])
        dealt = np.take_along_axis(copies, order, axis=1)
        here, there = self.domain[left][:, None], self.domain[right][:, None]
        came = np.concatenate([order[:, :slots] >= slots, order[:, slots:] < slots], axis=1) & (here != there)
        target = np.concatenate(
            [np.broadcast_to(here, (row.size, slots)), np.broadcast_to(there, (row.size, slots))], axis=1
        )
        deal, which = np.nonzero(came)
        domains = int(self.domain.max()) + 1
        key = (row[deal] * domains + target[deal, which]) * (self.experts + 1) + dealt[deal, which]
        seen: Index = np.unique(key, return_index=True)[1]
        late = np.ones(key.size, dtype=bool)
        late[seen] = False
        keep = np.ones(row.size, dtype=bool)
        keep[deal[late]] = False
        return row[keep], pair[keep]

    def _move(self, layers: Index, left: Index, right: Index, choice: Index) -> None:
        slots = self.expert.shape[2]
        order = self.deals.order(choice)
        for table in (self.expert, self.share):
            both = np.concatenate([table[layers, left], table[layers, right]], axis=1)
            both = np.take_along_axis(both, order, axis=1)
            table[layers, left], table[layers, right] = both[:, :slots], both[:, slots:]
