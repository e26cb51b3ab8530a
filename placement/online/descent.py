"""Moves at a price: copies change where that pays under weighted loads, in all layers at once, within a budget.

The largest load of each scenario is replaced by log-sum-exp, as :mod:`placement.scenario_search` does it, and each
scenario has a weight. A round looks, in every layer, at exchanges (a copy of an expert with several becomes a copy of
another: one move) and at swaps of two copies between GPUs (two moves), and makes the best that do not meet. What
counts is the gain less the price of the moves, so that taking a move back earns its price. The price falls from round
to round: the moves that gain most come first, in whatever layer they are, and the last price is what a move must gain
at least. A layer in which the moves of a round together did not pay is put back, and goes on one move at a time.

Fixed work; the same bytes on every machine (:mod:`placement.online.portable`; no products of matrices, no sorting
whose ties depend on the machine).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Floats, Index, Ints
from placement.online.portable import logarithm, power_of_e

SHARPNESS = 60.0
"""theta of log-sum-exp; GPU loads are multiples of their mean."""

_STEEPEST = 300.0  # a power of e beyond would overflow when two are multiplied
_HOT_SLOTS = 16  # of the hottest GPUs, each paired with all slots of the layer
_SPARE_SLOTS = 32  # copies that are the least missed, each tried as a copy of any other expert
_TOGETHER = 8  # moves of a layer in a round, and one more for each so many GPUs
_GPUS_EACH = 8
_ROUNDS = 40  # at a price, at most
_WORK = 600_000_000  # pairs looked at, times scenarios, by a whole descent: about half a second
_NOTHING = 1e-6  # of the objective: less is no gain
_CHANCES = 2  # rounds that may fail in a layer before it is left alone at this price
_HELD, _WAS_HELD = 1, 2  # bits


def descend(
    loads: Floats,
    weights: Floats,
    old: Experts,
    slots_per_gpu: Ints,
    *,
    most: int | None,
    prices: Sequence[float],
) -> Experts:
    """Return ``old`` ``[layers, slots]`` after at most ``most`` moves over all layers, each worth its price.

    Parameters
    ----------
    loads:
        float64 ``[scenarios, layers, experts]``, of mean 1 in each row; a row of weight 0 may be anything finite.
    weights:
        float64 ``[scenarios, layers]``, not negative; a layer whose weights are all 0 stays as it is.
    old:
        int32 ``[layers, slots]``, each expert at least once; a GPU may hold two copies of one. What moves are
        counted from.
    slots_per_gpu:
        int64 ``[gpus]``.
    most:
        Moves in all. A move is an expert that a GPU must hold and does not hold in ``old``. None: moves are free, in
        number and price: ``old`` is where the search begins.
    prices:
        Falling: what a move must gain, in units of the objective: the weighted mean over scenarios of largest over
        mean GPU load.
    """
    layers = np.flatnonzero(weights.sum(axis=0) > 0)
    placed = old.copy()
    if layers.size and most != 0:
        search = _Search(loads[:, layers], weights[:, layers], old[layers], slots_per_gpu, most)
        for price in prices:
            search.at_price(price)
        placed[layers] = search.slot_expert
    return placed


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Moves in each active layer, ``[active, candidates]``: the best of each row of pairs looked at.

    ``value`` is the change of the objective plus the price of the moves; ``slot`` gets expert ``comes`` instead of
    ``goes``; ``other`` is the slot that gets ``goes`` in a swap, or -1.
    """

    value: Floats
    moves: Ints
    slot: Ints
    other: Ints
    goes: Ints
    comes: Ints

    def and_(self, more: _Candidates) -> _Candidates:
        both = (
            np.concatenate([getattr(self, name), getattr(more, name)], axis=1)
            for name in ("value", "moves", "slot", "other", "goes", "comes")
        )
        return _Candidates(*both)


class _View:
    """Loads of some layers as they are now, scenario by scenario; GPU loads as multiples of their mean."""

    def __init__(self, search: _Search, active: Index) -> None:
        n, experts = active.size, search.experts
        self.table = search.slot_expert[active].astype(np.int64)
        rows = np.arange(n)[:, None]
        self.copies: Ints = np.bincount((rows * experts + self.table).ravel(), minlength=n * experts).reshape(
            n, experts
        )
        self.load = search.load[:, active]
        self.share = self.load / self.copies
        slot_load = self.at_slots(self.share)
        gpu_load = np.add.reduceat(slot_load, search.filled_first, axis=2)
        # Powers of e that do not overflow: a copy of ten times the mean load needs a gentler theta.
        heaviest = np.maximum(gpu_load.max(axis=(0, 2)), 1e-9)
        self.theta = np.minimum(SHARPNESS, _STEEPEST / heaviest)
        peak = gpu_load.max(axis=2)
        power = power_of_e(self.theta[:, None] * (gpu_load - peak[:, :, None]))
        total = power.sum(axis=2)
        weight = search.weight[:, active]
        self.objective: Floats = (weight * (peak + logarithm(total) / self.theta)).sum(axis=0)
        power *= (weight / total)[:, :, None]
        self.gpu_price: Floats = power  # [scenarios, active, GPUs with slots]: what load there costs
        self.price = power[:, :, search.slot_filled]  # the same by slot
        self.grown = power_of_e(self.theta[:, None] * self.share)

    def at_slots(self, values: Floats) -> Floats:
        """Return values by expert ``[scenarios, active, experts]`` as those of the slots' experts."""
        at: Floats = np.take_along_axis(
            values, np.broadcast_to(self.table, (len(values), *self.table.shape)), axis=2
        )
        return at


class _Search:
    """Placements of some layers, and what their GPUs held at the start."""

    def __init__(
        self, loads: Floats, weights: Floats, old: Experts, slots_per_gpu: Ints, most: int | None
    ) -> None:
        self.layers, self.slots = old.shape
        self.experts = loads.shape[2]
        self.gpus = int(slots_per_gpu.size)
        self.slot_gpu = np.repeat(np.arange(self.gpus), slots_per_gpu)
        self.filled = np.flatnonzero(slots_per_gpu > 0)
        first = np.concatenate(([0], np.cumsum(slots_per_gpu)))
        self.first, self.filled_first = first, first[self.filled]
        self.slot_filled = np.searchsorted(self.filled, self.slot_gpu)
        self.offsets = np.arange(int(slots_per_gpu.max()))
        self.load = loads * (self.filled.size / self.experts)
        self.weight = weights / weights.sum(axis=0)
        self.slot_expert = old.astype(np.int64)
        rows = np.arange(self.layers)[:, None]
        self.bits = np.zeros((self.layers, self.gpus, self.experts), dtype=np.int8)
        self.bits[rows, self.slot_gpu, self.slot_expert] = _HELD | _WAS_HELD
        if most is None:
            self.bits |= _WAS_HELD
        self.most = most or 0
        self.moves = np.zeros(self.layers, dtype=np.int64)
        self.kept_slots, self.kept_moves = self.slot_expert.copy(), self.moves.copy()
        self.tried = 0

    def at_price(self, price: float) -> None:
        """Make moves that are worth ``price`` each, until there is none, the budget is spent or the work is done."""
        self.before = np.full(self.layers, np.inf)
        self.failed = np.zeros(self.layers, dtype=np.int64)
        active = np.arange(self.layers)
        changed = active[:0]
        for _ in range(_ROUNDS):
            active, view = self._judged(active, price)
            if active.size == 0 or self.tried > _WORK:
                return
            changed = active = self._round(active, view, price)
        self._judged(changed, price)

    def _judged(self, active: Index, price: float) -> tuple[Index, _View]:
        """Put back the last moves where they did not pay; return the layers in which to go on, and their loads."""
        view = self._view(active)
        now = view.objective + price * self.moves[active]
        worse = now > self.before[active] - _NOTHING
        if worse.any():
            self._put_back(active[worse])
            active = active[self.failed[active] < _CHANCES]
            view = self._view(active)
        self.before[active] = view.objective + price * self.moves[active]
        self.kept_slots[active], self.kept_moves[active] = self.slot_expert[active], self.moves[active]
        return active, view

    def _view(self, active: Index) -> _View:
        self.tried += (
            len(self.load) * active.size * (16 * self.slots + 60 * self.experts)
        )  # as many pairs, in time
        return _View(self, active)

    def _put_back(self, layers: Index) -> None:
        self.slot_expert[layers], self.moves[layers] = self.kept_slots[layers], self.kept_moves[layers]
        self.bits[layers] &= _WAS_HELD
        self.bits[layers[:, None], self.slot_gpu, self.slot_expert[layers]] |= _HELD
        self.failed[layers] += 1

    def _round(self, active: Index, view: _View, price: float) -> Index:
        """Make the best moves; return the layers where there were some."""
        candidates = self._swaps(active, view, price)
        exchanges = self._exchanges(active, view, price)
        if exchanges is not None:
            candidates = exchanges.and_(candidates)
        return self._take(active, candidates)

    def _exchanges(self, active: Index, view: _View, price: float) -> _Candidates | None:
        """Turn each of the copies that are missed least into one of the best other expert; None where all are single.

        What it changes is the sum of three parts: on the GPUs with the other copies of the expert that goes, on those
        with copies of the one that comes, and on the GPU itself. Where the two meet, that is a little wrong, which is
        why rounds are judged afterwards.
        """
        rows = np.arange(active.size)[:, None]
        table, copies, theta = view.table, view.copies, view.theta[:, None]
        several = np.take_along_axis(copies, table, axis=1) > 1
        if not several.any():
            return None
        scenarios, n = len(view.load), active.size
        key = (np.arange(scenarios)[:, None, None] * n + rows) * self.experts + table
        counted: Floats = np.bincount(
            key.ravel(), view.price.ravel(), minlength=scenarios * n * self.experts
        ).astype(np.float64)
        price_of = counted.reshape(scenarios, n, self.experts)  # of all GPUs with a copy
        fewer = power_of_e(
            np.minimum(theta * (view.load / np.maximum(copies - 1, 1) - view.share), _STEEPEST)
        )
        thinner = power_of_e(theta * (view.load / (copies + 1)))
        comes = (price_of * (thinner / view.grown - 1.0)).sum(axis=0)
        goes = ((view.at_slots(price_of) - view.price) * (view.at_slots(fewer) - 1.0) - view.price).sum(
            axis=0
        )
        spare = np.argsort(np.where(several, goes, np.inf), axis=1, kind="stable")
        spare = spare[:, : min(_SPARE_SLOTS, int(several.sum(axis=1).max()))]
        gpu, gone = self.slot_gpu[spare], table[rows, spare]
        here = view.price[:, rows, spare] / view.grown[:, rows, gone]
        change = goes[rows, spare][:, :, None] + comes[:, None, :]
        part = np.empty_like(change)
        for one, other in zip(here, thinner, strict=True):
            change += np.multiply(one[:, :, None], other[:, None, :], out=part)
        self.tried += scenarios * change.size
        bits = self.bits[active[:, None], gpu]
        new = (self.bits[active[:, None], gpu, gone] & _WAS_HELD) == 0
        moves = (bits < _WAS_HELD).astype(np.int8) - new[:, :, None]
        change /= theta[:, :, None]
        change += price * moves
        change[(bits & _HELD) > 0] = np.inf
        change[~several[rows, spare]] = np.inf
        best = change.argmin(axis=2)
        at = rows, np.arange(spare.shape[1])[None, :], best
        return _Candidates(change[at], moves[at].astype(np.int64), spare, np.full_like(spare, -1), gone, best)

    def _swaps(self, active: Index, view: _View, price: float) -> _Candidates:
        """Swap each copy on the busiest GPUs with the best other copy."""
        rows = np.arange(active.size)[:, None]
        table = view.table
        busiest = np.argsort(-view.gpu_price.sum(axis=0), axis=1, kind="stable")
        busiest = self.filled[busiest[:, : max(1, _HOT_SLOTS // self.offsets.size)]]
        slots = self.first[busiest][:, :, None] + self.offsets
        real = (slots < self.first[busiest + 1][:, :, None]).reshape(active.size, -1)
        mine = np.minimum(slots, self.slots - 1).reshape(active.size, -1)
        my_gpu, my_expert = self.slot_gpu[mine], table[rows, mine]
        grown = view.at_slots(view.grown)
        shrunk = view.price / grown
        my_price = view.price[:, rows, mine]
        change = -(my_price.sum(axis=0)[:, :, None] + view.price.sum(axis=0)[:, None, :])
        part = np.empty_like(change)
        pairs = ((shrunk[:, rows, mine], grown), (grown[:, rows, mine], shrunk))
        for left, right in pairs:
            for one, other in zip(left, right, strict=True):
                change += np.multiply(one[:, :, None], other[:, None, :], out=part)
        self.tried += 2 * len(grown) * change.size
        there = self.bits[active[:, None], :, my_expert][:, :, self.slot_gpu]
        back = self.bits[active[:, None, None], my_gpu[:, :, None], table[:, None, :]]
        new = (self.bits[active[:, None], self.slot_gpu, table] < _WAS_HELD).astype(np.int8)
        moves = (there < _WAS_HELD).astype(np.int8) + (back < _WAS_HELD)
        moves -= new[rows, mine][:, :, None] + new[:, None, :]
        change /= view.theta[:, None, None]
        change += price * moves
        change[((there | back) & _HELD) > 0] = np.inf
        change[~real] = np.inf
        best = change.argmin(axis=2)
        at = rows, np.arange(mine.shape[1])[None, :], best
        return _Candidates(change[at], moves[at].astype(np.int64), mine, best, my_expert, table[rows, best])

    def _take(self, active: Index, found: _Candidates) -> Index:
        """Make the best moves of each layer, no GPU and no expert in two of them; return the layers with one.

        Where the budget does not pay for the best move of all layers, those that gain most per move go first.
        """
        value = found.value.copy()
        gpu, other = self.slot_gpu[found.slot], np.where(found.other < 0, -1, self.slot_gpu[found.other])
        left = self.most - int(self.moves.sum())
        made = np.zeros(active.size, dtype=bool)
        rows = np.arange(active.size)
        for turn in range(_TOGETHER + self.gpus // _GPUS_EACH):
            pick = value[rows].argmin(axis=1)
            rows, pick = _paying(value, rows, pick)
            if turn:
                rows, pick = rows[self.failed[active[rows]] == 0], pick[self.failed[active[rows]] == 0]
            if rows.size == 0:
                break
            cost = found.moves[rows, pick]
            order = np.argsort(value[rows, pick] / np.maximum(cost, 0.5), kind="stable")
            spent = np.cumsum(np.maximum(cost[order], 0))
            fits = np.empty(rows.size, dtype=bool)
            fits[order] = (spent <= left) | (cost[order] <= 0)
            value[rows[~fits], pick[~fits]] = np.inf
            row, column = rows[fits], pick[fits]
            self._make(
                active[row], *(one[row, column] for one in (found.slot, found.other, found.goes, found.comes))
            )
            self.moves[active[row]] += cost[fits]
            # what a move taken back would free is not spent in this round: the layer may be put back
            left -= int(np.maximum(cost[fits], 0).sum())
            made[row] = True
            for first, second, taken in (
                (gpu, other, (gpu, other)),
                (found.goes, found.comes, (found.goes, found.comes)),
            ):
                for one in (first, second):
                    mark = one[row, column][:, None]
                    meets = ((taken[0][row] == mark) | (taken[1][row] == mark)) & (mark >= 0)
                    value[row] = np.where(meets, np.inf, value[row])
        return active[made]

    def _make(self, layers: Index, slot: Ints, other: Ints, goes: Ints, comes: Ints) -> None:
        self._put(layers, slot, goes, comes)
        swapped = other >= 0
        self._put(layers[swapped], other[swapped], comes[swapped], goes[swapped])

    def _put(self, layers: Index, slot: Ints, goes: Ints, comes: Ints) -> None:
        gpu = self.slot_gpu[slot]
        self.slot_expert[layers, slot] = comes
        self.bits[layers, gpu, goes] &= _WAS_HELD
        # all that the GPU holds now: of two copies of an expert one may be left
        held = np.minimum(self.first[gpu][:, None] + self.offsets, self.first[gpu + 1][:, None] - 1)
        rows = layers[:, None]
        self.bits[rows, gpu[:, None], self.slot_expert[rows, held]] |= _HELD


def _paying(value: Floats, rows: Index, pick: Index) -> tuple[Index, Index]:
    pays = value[rows, pick] < -_NOTHING
    return rows[pays], pick[pays]
