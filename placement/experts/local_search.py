"""Pair exchange: the copies of two GPUs are dealt out again in the best way, hot with cold, until no pair helps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Protocol

import numpy as np

from placement.arrays import Bools, Experts, Floats, Index, Ints, count_copies, rising, starts, tag_mask
from placement.experts.problem import Problem

_SPLIT_SLOTS = 4  # up to so many slots a GPU every split of a pair is looked at (70), above it every swap

Speeds = tuple["Floats", "Floats"]


class Deals(Protocol):
    """Ways to deal out again the copies of pairs of GPUs of equally many slots (empty ones are locked)."""

    def best(
        self, mine: Floats, other: Floats, locked: Bools | None, speeds: Speeds | None
    ) -> tuple[Floats, Index]:
        """Return the smallest larger load of each pair, ``[pairs]``, and which way reaches it.

        Parameters
        ----------
        mine, other:
            Loads of the copies on the two GPUs, ``[pairs, slots]``.
        locked:
            ``[pairs, 2 slots]``: copies that must stay where they are.
        speeds:
            Speeds of the two GPUs, ``[pairs]`` each; None where all are alike.
        """

    def order(self, choice: Index) -> Index:
        """Return for each choice which of the ``2 slots`` copies come first and second, ``[n, 2 slots]``."""


@lru_cache(maxsize=32)
def deals(slots: int, *, mirrored: bool) -> Deals:
    """Return the ways for GPUs of ``slots`` slots; ``mirrored``: the two GPUs may change places."""
    return _Splits(slots, mirrored=mirrored) if slots <= _SPLIT_SLOTS else _Swaps(slots)


class _Splits:
    """Every way to split ``2 slots`` copies in two halves.

    A way is a set of copies that the first GPU gives and one of as many that it takes. What sets weigh is summed once
    for each GPU, in one order: no matrix product, whose last digits depend on the machine.
    """

    def __init__(self, slots: int, *, mirrored: bool) -> None:
        halves = [half for half in combinations(range(2 * slots), slots) if half[0] == 0 or not mirrored]
        stays = np.zeros((len(halves), 2 * slots), dtype=bool)
        for way, half in enumerate(halves):
            stays[way, list(half)] = True
        moves = stays.copy()
        moves[:, :slots] = ~stays[:, :slots]
        weight = 1 << np.arange(slots)
        self.moves = moves  # [ways, 2 slots]: whether the copy changes its GPU
        self.gives = (moves[:, :slots] * weight).sum(axis=1)  # [ways]: which of the sets below
        self.takes = (moves[:, slots:] * weight).sum(axis=1)
        self.orders = np.argsort(~stays, axis=1, kind="stable")

    def best(
        self, mine: Floats, other: Floats, locked: Bools | None, speeds: Speeds | None
    ) -> tuple[Floats, Index]:
        gives, takes = _sums_of_sets(mine), _sums_of_sets(other)
        given = gives[self.gives]
        given -= takes[self.takes]
        if locked is not None:
            bound = np.flatnonzero(locked.any(axis=1))
            blocked = (locked[bound] & self.moves[:, None]).any(axis=2)  # [ways, pairs with a lock]
            given[:, bound] += np.where(blocked, np.inf, 0.0)
        return _least(given, gives[-1], takes[-1], speeds)

    def order(self, choice: Index) -> Index:
        return self.orders[choice]


def _sums_of_sets(loads: Floats) -> Floats:
    """Return the sums of all sets of the loads on the last axis, ``[2 ** slots, ..]``; bit i of the set is load i."""
    count = loads.shape[-1]
    sums = np.zeros((1 << count, *loads.shape[:-1]))
    for i in range(count):
        np.add(sums[: 1 << i], loads[..., i], out=sums[1 << i : 2 << i])
    return sums


class _Swaps:
    """Every swap of one copy against one."""

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def best(
        self, mine: Floats, other: Floats, locked: Bools | None, speeds: Speeds | None
    ) -> tuple[Floats, Index]:
        given = mine.T[:, None] - other.T
        if locked is not None:
            left, right = locked[:, : self.slots].T, locked[:, self.slots :].T
            given[left[:, None] | right] = np.inf
        given = given.reshape(-1, len(mine))
        return _least(given, mine.sum(axis=1), other.sum(axis=1), speeds)

    def order(self, choice: Index) -> Index:
        rows = np.arange(choice.size)
        order = np.tile(np.arange(2 * self.slots), (choice.size, 1))
        left, right = choice // self.slots, self.slots + choice % self.slots
        order[rows, left], order[rows, right] = right, left
        return order


def _least(given: Floats, first: Floats, second: Floats, speeds: Speeds | None) -> tuple[Floats, Index]:
    """Return the smallest larger load of two GPUs, ``[pairs]``, and which way it is.

    ``given`` ``[ways, pairs]``: what the first GPU gives, less what it takes; infinite where it may not, overwritten.
    ``first`` and ``second`` ``[pairs]`` are their loads. The lowest bits of a load name its way: the smallest such
    number is both, four times as fast as to ask where the smallest is.
    """
    if speeds is None:
        given -= (first - second) / 2
    else:
        taken = second + given
        np.subtract(first, given, out=given)
        given /= speeds[0]
        np.maximum(np.abs(given, out=given), taken / speeds[1], out=given)
    bits, mask = given.view(np.int64), tag_mask(len(given) - 1)
    bits &= np.iinfo(np.int64).max ^ mask  # the sign goes too: distances from equal loads
    bits |= np.arange(len(given))[:, None]
    least = bits.min(axis=0)
    value: Floats = (least & ~mask).view(np.float64)
    if speeds is None:
        value += (first + second) / 2
    return value, least & mask


_LEAST_GAIN = 1e-7  # of the larger load of two GPUs; below it a descent could go on for ever
_ROUND_GAIN = 1e-4  # of the largest load: what a round with several hot GPUs is worth
_PARTNERS = 8  # of a hot GPU, before rounds bring nothing
_LEAST_LIFT = 1e-4  # of the largest load, by an exchange of copies
_FEW_HOT, _HOPE = 4, 128  # hot GPUs, and of all GPUs times ways: a layer with more is far from done
_MANY_PARTNERS = 96  # of a hot GPU, with more slots a GPU than are dealt out in all ways
_CELLS = 1 << 20  # pairs times ways to deal them out, of the layers that descend together...
_BLOCK = 1 << 16  # ... and of those looked at at once: arrays that stay in the cache


def swap_down(problem: Problem, slot_expert: Experts, enough: Floats | None = None) -> Experts:
    """Deal out pairs of GPUs again until that no longer helps, and return the new ``[layers, slots]``.

    All layers at once. Each round the hot GPUs share out the cold ones, and each is dealt out with the partner that
    makes the larger of their two loads smallest: up to four slots each are split in the best of all ways, above that
    by the best swap. A round without a gain is followed by some with half as many hot GPUs and twice the partners for
    each, down to the hottest with all others (of many with many slots, with the coldest). Copies of an expert stay
    spread over failure domains if they were, and no largest load rises. GPUs within ``enough`` ``[layers]``, in
    multiples of the mean load, are not hot; a layer is done where none is, or after some rounds without a gain. None:
    on to the end. Deterministic, and layer by layer.
    """
    table = _slot_table(problem)
    if table.shape[0] < 2 or (table.shape[1] == 1 and problem.equal_speeds and problem.each_alone):
        return slot_expert.copy()
    size = max(1, _CELLS // (_ways(table.shape[1]) * table.shape[0]))
    ends = [
        _Descent(problem, slot_expert, np.arange(start, min(start + size, problem.layers)), table).run(enough)
        for start in range(0, problem.layers, size)
    ]
    return np.concatenate(ends)


def _ways(slots: int) -> int:
    """About how many ways there are to deal out two GPUs."""
    return slots**2 if slots > _SPLIT_SLOTS else comb(2 * slots, slots) // 2


def _slot_table(problem: Problem) -> Ints:
    """The slots of each GPU that has some, ``[used GPUs, most slots]``; -1 where it has fewer."""
    used = np.flatnonzero(problem.slots_per_gpu > 0)
    table: Ints = problem.first_slot[used][:, None] + np.arange(int(problem.slots_per_gpu.max()))
    table[table >= problem.first_slot[used + 1][:, None]] = -1
    return table


@dataclass(frozen=True, eq=False)
class _Pairs:
    """GPUs that may be dealt out together; ``hot`` and ``cold`` are rows of the tables of a descent."""

    row: Index  # [pairs]: which of the layers of the round
    hot: Index  # [pairs], those of a GPU together
    cold: Index  # [pairs]

    def some(self, which: Index) -> _Pairs:
        return _Pairs(self.row[which], self.hot[which], self.cold[which])

    def joined(self, other: _Pairs) -> _Pairs:
        return _Pairs(*(np.concatenate([getattr(part, name) for part in (self, other)]) for name in _PARTS))


_PARTS = ("row", "hot", "cold")


class _Descent:
    """Some layers of a placement as tables ``[layers * GPUs, slots]``, kept up to date deal by deal."""

    def __init__(self, problem: Problem, slot_expert: Experts, layers: Index, table: Ints) -> None:
        self.slot_expert = slot_expert[layers]
        self.chosen = layers
        self.table = table
        self.empty = table < 0
        self.layers, (self.gpus, self.slots) = layers.size, table.shape
        share = problem.assignment(self.slot_expert).slot_load(problem.mean[layers])
        self.uneven = bool(self.empty.any())
        self.expert = np.where(self.empty, -1, self.slot_expert[:, table]).reshape(-1, self.slots)
        self.share = np.where(self.empty, 0.0, share[:, table]).reshape(-1, self.slots)
        used = np.flatnonzero(problem.slots_per_gpu > 0)
        speed = problem.speed[used]
        self.alike = bool((speed == speed[0]).all())
        self.speed = np.ones(used.size) if self.alike else speed
        self.apart = not problem.each_alone
        self.domain = problem.failure_domain[used]
        self.experts = problem.experts
        self.domain_limit = self._most_in_domain(problem)
        load = self.share.sum(axis=1).reshape(-1, self.gpus)
        self.load = load / self.speed
        self.mean = load.sum(axis=1) / self.speed.sum()
        mirrored = self.alike and not self.apart and not self.uneven
        self.deals = deals(self.slots, mirrored=mirrored)
        self.ways = _ways(self.slots)

    def _most_in_domain(self, problem: Problem) -> Ints:
        """Most copies in a failure domain, ``[layers, experts + 1]``; deals change no counts. Empty if not asked."""
        if not self.apart:
            return np.empty((0, 0), dtype=np.int64)
        copies = problem.assignment(self.slot_expert).copies
        limit: Ints = problem.most_in_domain(copies)
        return np.pad(limit, ((0, 0), (0, 1)), constant_values=self.table.size)

    def run(self, enough: Floats | None) -> Experts:
        """Descend and return the slots ``[layers, slots]``."""
        least = self.mean if enough is None else np.maximum(enough[self.chosen], 1.0) * self.mean
        self._rounds(least, np.inf if enough is None else min(self.slots, _SPLIT_SLOTS))
        filled = ~self.empty
        expert = self.expert.reshape(self.layers, self.gpus, self.slots)
        if self.uneven:  # a deal leaves the empty slots of a GPU anywhere in its row
            last = np.argsort(expert < 0, axis=2, kind="stable")
            expert = np.take_along_axis(expert, last, axis=2)
        self.slot_expert[:, self.table[filled]] = expert[:, filled]
        return self.slot_expert

    def _rounds(self, enough: Floats, tries: float) -> None:
        """Deal out until nothing is gained in the layers with a load above ``enough`` ``[layers]``."""
        most_partners = self.gpus - 1 if self.slots <= _SPLIT_SLOTS else min(_MANY_PARTNERS, self.gpus - 1)
        halved = np.zeros(self.layers, dtype=np.int64)
        done = np.zeros(self.layers, dtype=bool)
        peak = self.load.max(axis=1)
        many = max(_FEW_HOT, self.gpus * self.ways // _HOPE) if tries < np.inf else self.gpus
        layers = np.flatnonzero((peak > enough) & ((self.load > enough[:, None]).sum(axis=1) <= many))
        while layers.size:
            load, fewer = self.load[layers], halved[layers]
            hot = (load > enough[layers, None]).sum(axis=1)
            hot = np.maximum(np.minimum(hot, self.gpus // 2) >> fewer, 1)
            partners = np.minimum(np.minimum((self.gpus - hot) // hot, most_partners), _PARTNERS << fewer)
            self._round(layers, load, hot, partners)
            now = self.load[layers].max(axis=1)
            last = (hot == 1) & (partners == most_partners)
            stuck = now >= peak[layers] * (1 - np.where(last, _LEAST_GAIN, _ROUND_GAIN))
            peak[layers] = now
            halved[layers] += stuck
            done[layers] = stuck & (last | (halved[layers] >= tries))
            layers = layers[~done[layers] & (now > enough[layers])]

    def _round(self, layers: Index, load: Floats, hot: Ints, partners: Ints) -> None:
        """Deal out the ``hot`` ``[layers]`` hottest GPUs, each with the best of its ``partners``, no GPU twice."""
        order, tries = rising(load.copy()), hot * partners
        row = np.repeat(np.arange(layers.size), tries)
        at = np.arange(row.size) - (np.cumsum(tries) - tries)[row]
        which, nth = np.divmod(at, partners[row])
        first = (layers * self.gpus)[row]
        warm = order[row, self.gpus - 1 - which] + first
        pairs = _Pairs(row, warm, order[row, nth * hot[row] + which] + first)
        if self.apart or self.uneven:
            pairs, way = self._best(pairs, self._locked(layers, pairs))
        else:
            pairs, way = self._best_unlocked(layers, pairs)
        if self.apart:
            pairs, way = self._without_collisions(pairs, way)
        self._move(pairs, way)

    def _best(self, pairs: _Pairs, locked: Bools | None) -> tuple[_Pairs, Index]:
        """Return the pairs with the best partner of each hot GPU, where that helps, and the way to deal them out."""
        hot, cold = pairs.hot, pairs.cold
        size = max(1, _BLOCK // self.ways)
        parts = []
        for start in range(0, hot.size, size):
            part = slice(start, start + size)
            fast = (
                None
                if self.alike
                else (self.speed[hot[part] % self.gpus], self.speed[cold[part] % self.gpus])
            )
            locks = None if locked is None else locked[part]
            parts.append(self.deals.best(self.share[hot[part]], self.share[cold[part]], locks, fast))
        if not parts:
            return pairs, np.zeros(0, dtype=np.int64)
        value, way = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        first = starts(hot)
        least = np.minimum.reduceat(value, first)
        helps = least < self.load.reshape(-1)[hot[first]] * (1 - _LEAST_GAIN)
        best = np.flatnonzero(
            value == np.repeat(np.where(helps, least, -1.0), np.diff(first, append=hot.size))
        )
        best = best[starts(hot[best])]
        return pairs.some(best), way[best]

    def _best_unlocked(self, layers: Index, pairs: _Pairs) -> tuple[_Pairs, Index]:
        """Return the same with no copy locked, and again with locks where two copies of an expert would meet."""
        chosen, way = self._best(pairs, None)
        dealt = self.expert.take(self._dealt(chosen, way)).reshape(-1, 2, self.slots)
        clash = np.zeros(way.size, dtype=bool)
        for slot in range(1, self.slots):
            clash |= (dealt[:, :, slot:] == dealt[:, :, : self.slots - slot]).any(axis=(1, 2))
        if not clash.any():
            return chosen, way
        meets = np.zeros(self.share.shape[0], dtype=bool)
        meets[chosen.hot[clash]] = True
        again = pairs.some(np.flatnonzero(meets[pairs.hot]))
        again, other_way = self._best(again, self._locked(layers, again))
        fine = np.flatnonzero(~clash)
        return chosen.some(fine).joined(again), np.concatenate([way[fine], other_way])

    def _locked(self, layers: Index, pairs: _Pairs) -> Bools:
        """Mark copies that may not change GPUs, ``[pairs, 2 slots]``.

        Those are empty slots, and copies whose expert the other GPU's failure domain holds. Where both GPUs hold
        an expert, its two copies may as well stay: they are the same.
        """
        mine, other = self.expert[pairs.hot], self.expert[pairs.cold]
        same = mine[..., :, None] == other[..., None, :]
        left, right = same.any(axis=-1), same.any(axis=-2)
        if self.apart:
            there, here = self._full(layers, pairs, mine, other)
            left, right = left & (mine >= 0) | there, right & (other >= 0) | here
        if self.uneven:
            left, right = left | (mine < 0), right | (other < 0)
        return np.concatenate([left, right], axis=-1)

    def _full(self, layers: Index, pairs: _Pairs, mine: Experts, other: Experts) -> tuple[Bools, Bools]:
        """Mark copies whose expert the other GPU's failure domain, not their own, holds as often as may be."""
        domains, size = int(self.domain.max()) + 1, self.experts + 1
        # an empty slot, -1, counts in the last column
        held = self.expert.reshape(self.layers, self.gpus, self.slots)[layers] % size
        full = count_copies(held, self.domain[:, None], domains, size) >= self.domain_limit[layers][:, None]
        row = pairs.row[:, None]
        here = self.domain[pairs.hot % self.gpus][:, None]
        there = self.domain[pairs.cold % self.gpus][:, None]
        apart = here != there
        return full[row, there, mine] & apart, full[row, here, other] & apart

    def _without_collisions(self, pairs: _Pairs, way: Index) -> tuple[_Pairs, Index]:
        """Drop deals that bring an expert to a domain to which an earlier pair of the layer brings it as well."""
        slots = self.slots
        order = self.deals.order(way)
        dealt = self.expert.take(self._dealt(pairs, way))
        here = self.domain[pairs.hot % self.gpus][:, None]
        there = self.domain[pairs.cold % self.gpus][:, None]
        came = np.concatenate([order[:, :slots] >= slots, order[:, slots:] < slots], axis=1) & (here != there)
        target = np.repeat(np.concatenate([here, there], axis=1), slots, axis=1)
        deal, which = np.nonzero(came)
        domains = int(self.domain.max()) + 1
        key = (pairs.row[deal] * domains + target[deal, which]) * (self.experts + 1) + dealt[deal, which]
        late = np.ones(key.size, dtype=bool)
        late[np.unique(key, return_index=True)[1]] = False
        keep = np.ones(way.size, dtype=bool)
        keep[deal[late]] = False
        return pairs.some(np.flatnonzero(keep)), way[keep]

    def _dealt(self, pairs: _Pairs, way: Index) -> Index:
        """Return where in the flat tables the copies after each deal are now, ``[pairs, 2 slots]``."""
        gpu, slot = np.divmod(self.deals.order(way), self.slots)
        place: Index = np.where(gpu == 0, pairs.hot[:, None], pairs.cold[:, None]) * self.slots + slot
        return place

    def _move(self, pairs: _Pairs, way: Index) -> None:
        dealt = self._dealt(pairs, way).reshape(-1, 2, self.slots)
        gpu = np.stack([pairs.hot, pairs.cold], axis=1)
        share = self.share.take(dealt)
        self.expert[gpu], self.share[gpu] = self.expert.take(dealt), share
        self.load.reshape(-1)[gpu] = share.sum(axis=2) / self.speed[gpu % self.gpus]


def exchange_down(problem: Problem, slot_expert: Experts, enough: Floats) -> Experts:
    """Give experts of the fullest GPU more copies, one at a time, and return the new ``[layers, slots]``.

    The expert that a copy more relieves most gets it, in place of a copy of an expert with several, where the
    largest load on the GPUs that this makes fuller is smallest. A layer is done where that is no smaller than the
    largest load, or where this is at most ``enough`` ``[layers]``, in multiples of the mean. No two copies of an
    expert come to one failure domain. Deterministic, and layer by layer.
    """
    now, copies = slot_expert.copy(), problem.assignment(slot_expert).copies
    used, gpu = np.flatnonzero(problem.slots_per_gpu > 0), problem.slot_gpu
    domain, speed = problem.failure_domain[gpu], problem.speed
    enough = enough * problem.mean.sum(axis=1) / problem.gpus
    rows, (least, most_copies) = np.arange(problem.layers), problem.copies_range
    while rows.size:
        placed, count, layer = now[rows], copies[rows], np.arange(rows.size)
        share = problem.mean[rows] / count
        size = np.take_along_axis(share, placed, axis=1)
        load = np.zeros((rows.size, problem.gpus))
        load[:, used] = np.add.reduceat(size, problem.first_slot[used], axis=1) / speed[used]
        peak, here = load.max(axis=1), load[:, gpu]
        relief = np.take_along_axis(share / (count + 1), placed, axis=1)
        fullest = gpu == load.argmax(axis=1)[:, None]
        more = placed[layer, np.where(fullest, relief, -1.0).argmax(axis=1)]
        comes = problem.mean[rows, more] / (count[layer, more] + 1)
        worst = np.zeros(share.shape)  # largest load of the GPUs of each expert, and with a copy less
        np.maximum.at(worst, (layer[:, None], placed), here)
        left = np.where(count > least, share / np.maximum(count - 1, 1), np.inf)
        worst += left / speed[used].min()
        value = np.maximum(
            here + (comes[:, None] - size) / speed[gpu], np.take_along_axis(worst, placed, axis=1)
        )
        held = np.zeros((rows.size, problem.domains), dtype=bool)
        row, slot = np.nonzero(placed == more[:, None])
        held[row, domain[slot]] = True
        value[held[:, domain] | (count[layer, more] == most_copies)[:, None]] = np.inf
        at = value.argmin(axis=1)
        helps = (peak > enough[rows]) & (value[layer, at] < peak * (1 - _LEAST_LIFT))
        rows, at, more = rows[helps], at[helps], more[helps]
        fewer, now[rows, at] = now[rows, at], more
        copies[rows, more] += 1
        copies[rows, fewer] -= 1
    return now
