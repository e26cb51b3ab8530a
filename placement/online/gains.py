"""What moves of copies would gain in each layer, kept from round to round of a descent and looked at where it pays.

Two kinds of moves are looked at: exchanges (one of the copies that are missed least becomes one of another expert)
and swaps of a copy on the busiest GPUs with another one. Of all pairs, only those whose gain may be above the price
are listed, with their gain up to rounding; a price only falls, so a layer that stays as it is keeps its list. Then,
of each row of pairs, those that may be the best are worked out by additions and multiplications in a fixed order.
The lists come from products of matrices, whose last bits depend on the machine: what is chosen does not, since
:data:`_MARGIN` is far above what rounding can do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Bools, Floats, Index, Ints
from placement.online.portable import logarithm, power_of_e

SHARPNESS = 60.0
"""The largest theta of log-sum-exp; GPU loads are multiples of their mean."""
NOTHING = 1e-6
"""Of the objective: less is no gain."""
HELD, WAS_HELD = 1, 2
"""Bits of what a GPU holds of an expert."""

_STEEPEST = 300.0  # a power of e beyond would overflow when two are multiplied
_HOT_SLOTS = 16  # of the hottest GPUs, each paired with all slots of the layer
_SPARE_SLOTS = 32  # copies that are the least missed, each tried as a copy of any other expert
_MARGIN = 1e-9  # of gains times theta: products in another order differ by less than 1e-12


class Slots:
    """Slots of the GPUs of a group; GPUs without any are left out where loads are counted."""

    def __init__(self, slots_per_gpu: Ints) -> None:
        self.count = int(slots_per_gpu.sum())
        self.gpus = int(slots_per_gpu.size)
        self.gpu = np.repeat(np.arange(self.gpus), slots_per_gpu)
        self.filled = np.flatnonzero(slots_per_gpu > 0)
        self.first = np.concatenate(([0], np.cumsum(slots_per_gpu)))
        self.filled_first = self.first[self.filled]
        self.at_filled = np.searchsorted(self.filled, self.gpu)
        self.offsets = np.arange(int(slots_per_gpu.max()))

    def hot(self, busyness: Floats) -> tuple[Ints, Bools]:
        """Return slots of the busiest GPUs ``[rows, hot]`` by ``[rows, GPUs with slots]``, and which are real."""
        busiest = np.argsort(-busyness, axis=1, kind="stable")
        busiest = self.filled[busiest[:, : max(1, _HOT_SLOTS // self.offsets.size)]]
        slots = self.first[busiest][:, :, None] + self.offsets
        real = (slots < self.first[busiest + 1][:, :, None]).reshape(len(busiest), -1)
        return np.minimum(slots, self.count - 1).reshape(len(busiest), -1), real

    @property
    def hot_slots(self) -> int:
        """Slots that :meth:`hot` returns for each row."""
        return min(max(1, _HOT_SLOTS // self.offsets.size), self.filled.size) * self.offsets.size


@dataclass(frozen=True, eq=False)
class Candidates:
    """Moves that pay, ``[layers, candidates]``: the best of each row of pairs looked at, padded by values of inf.

    ``layers`` are those with any. ``value`` is the change of the objective plus the price of the moves; ``slot`` gets
    expert ``comes`` instead of ``goes``; ``other`` is the slot that gets ``goes`` in a swap, or -1.
    """

    layers: Index
    value: Floats
    moves: Ints
    slot: Ints
    other: Ints
    goes: Ints
    comes: Ints


class Loads:
    """Loads of layers under each scenario as they lie now, and what they cost.

    Attributes
    ----------
    sharpness, theta:
        :data:`SHARPNESS` at most, and of each layer ``[layers]``: less where a copy is too heavy for it.
    copies:
        ``[layers, experts]``.
    price:
        ``[layers, scenarios, GPUs with slots]``: what load there costs.
    price_sum, price_sum_in_pairs:
        ``[layers, GPUs with slots]``: over scenarios, one after another and in pairs: the last bit may differ.
    grown, thinner, comes, fewer:
        ``[layers, scenarios, experts]``: powers of e for the share of a copy, and for that with a copy more; by what
        part costs change where a copy is added, and where one goes (of experts with several).
    """

    def __init__(self, loads: Floats, weights: Floats, slots: Slots) -> None:
        scenarios, layers, experts = loads.shape
        self.slots, self.scenarios, self.experts = slots, scenarios, experts
        load = loads.transpose(1, 0, 2) * (slots.filled.size / experts)
        self._load = np.ascontiguousarray(load)
        self._weight = weights / weights.sum(axis=0)
        self.sharpness, self.theta = SHARPNESS, np.zeros(layers)
        self.copies = np.zeros((layers, experts), dtype=np.int64)
        self.several = np.zeros(layers, dtype=np.int64)
        shape = layers, scenarios, slots.filled.size
        self.price, self._cost = np.zeros(shape), np.zeros((scenarios, layers))
        self.price_sum, self.price_sum_in_pairs = np.zeros(shape[::2]), np.zeros(shape[::2])
        self.grown, self.thinner, self.comes, self.fewer = (np.ones_like(self._load) for _ in range(4))

    def objective(self, layers: Index) -> Floats:
        """Return log-sum-exp of GPU loads, the weighted mean over scenarios, ``[layers]``."""
        objective: Floats = np.ascontiguousarray(self._cost[:, layers]).sum(axis=0)
        return objective

    def update(self, layers: Index, table: Ints) -> None:
        """Take the experts ``table`` ``[layers, slots]`` to lie in these layers from now on."""
        n = layers.size
        rows = np.arange(n)[:, None] * self.experts
        copies = np.bincount((rows + table).ravel(), minlength=n * self.experts).reshape(n, self.experts)
        share = self._load[layers] / copies[:, None]
        gpu_load = np.add.reduceat(share.ravel().take(self.at_slots(table)), self.slots.filled_first, axis=2)
        peak = gpu_load.max(axis=2)
        # Powers of e that do not overflow: a copy of ten times the mean load needs a gentler theta.
        theta = np.minimum(self.sharpness, _STEEPEST / np.maximum(peak.max(axis=1), 1e-9))
        gpu_load -= peak[:, :, None]
        gpu_load *= theta[:, None, None]
        power = power_of_e(gpu_load)
        total, weight = power.sum(axis=2), self._weight.T[layers]
        self._cost[:, layers] = (weight * (peak + logarithm(total) / theta[:, None])).T
        power *= (weight / total)[:, :, None]
        self.price[layers], self.price_sum[layers] = power, power.sum(axis=1)
        self.price_sum_in_pairs[layers] = np.ascontiguousarray(power.transpose(0, 2, 1)).sum(axis=2)
        self._powers(layers, theta, copies)

    def at_slots(self, table: Ints) -> Ints:
        """Return where the slots' experts are in ``[rows, scenarios, experts]``, ``[rows, scenarios, slots]``."""
        first = np.arange(len(table) * self.scenarios) * self.experts
        at: Ints = first.reshape(len(table), self.scenarios, 1) + table[:, None]
        return at

    def _powers(self, layers: Index, theta: Floats, copies: Ints) -> None:
        """Work out powers of e where copies or theta changed."""
        whole = theta != self.theta[layers]
        changed = (copies != self.copies[layers]) & ~whole[:, None]
        self.theta[layers], self.copies[layers] = theta, copies
        self.several[layers] = (copies * (copies > 1)).sum(axis=1)
        if whole.any():
            some = layers[whole]
            found = _powers_of(self._load[some], theta[whole, None, None], copies[whole][:, None])
            self.grown[some], self.thinner[some], self.comes[some] = found
        at, expert = np.nonzero(changed)
        if at.size:
            to = layers[at], slice(None), expert
            found = _powers_of(self._load[to], theta[at, None], copies[at, expert][:, None])
            self.grown[to], self.thinner[to], self.comes[to] = found
        at, expert = np.nonzero((changed | whole[:, None]) & (copies > 1))
        if at.size:
            to, count = (layers[at], slice(None), expert), copies[at, expert][:, None]
            lost = self._load[to] / (count - 1) - self._load[to] / count
            self.fewer[to] = power_of_e(np.minimum(theta[at, None] * lost, _STEEPEST)) - 1.0


def _powers_of(load: Floats, theta: Floats, copies: Ints) -> tuple[Floats, Floats, Floats]:
    grown, thinner = power_of_e(theta * (load / copies)), power_of_e(theta * (load / (copies + 1)))
    return grown, thinner, thinner / grown - 1.0


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs that may pay: ``[pairs]``, those of a row together and in order.

    ``gain`` is the change of the objective times theta, up to rounding, without the price; ``row`` the number of the
    row in its layer; ``slot`` that of the row; ``other`` the other slot of a swap, the expert that comes in an
    exchange.
    """

    layer: Ints
    row: Ints
    slot: Ints
    other: Ints
    moves: Ints
    gain: Floats

    def where(self, which: Index | Bools) -> _Pairs:
        return _Pairs(*(getattr(self, each.name)[which] for each in fields(self)))

    def and_(self, more: _Pairs) -> _Pairs:
        both = ((getattr(self, each.name), getattr(more, each.name)) for each in fields(self))
        return _Pairs(*(np.concatenate(pair) for pair in both))

    @classmethod
    def none(cls) -> _Pairs:
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none, none, none, none, np.zeros(0))


_Describe = Callable[[Ints, Ints, Ints], tuple[_Pairs, Bools]]
"""From numbers of layer, row and column to pairs, and whether a GPU holds already what it would get."""


class Gains:
    """The moves that pay in each layer, as GPUs hold experts now by ``bits`` ``[layers, gpus, experts]``."""

    def __init__(self, loads: Loads, slot_expert: Ints, bits: NDArray[np.int8]) -> None:
        self._loads, self._slots = loads, loads.slots
        self._slot_expert, self._bits = slot_expert, bits
        layers = len(slot_expert)
        self._stale, self._listed = np.ones(layers, dtype=bool), np.zeros(layers, dtype=bool)
        self._goes, self._comes = np.zeros(slot_expert.shape), np.zeros((layers, loads.experts))
        self._exchanges, self._swaps = _Pairs.none(), _Pairs.none()
        self._price = np.inf

    def changed(self, layers: Index) -> None:
        """Return that other experts lie in these layers."""
        self._stale[layers], self._listed[layers] = True, False

    def objective(self, layers: Index) -> Floats:
        """Return the objective of these layers."""
        stale = layers[self._stale[layers]]
        if stale.size:
            self._loads.update(stale, self._slot_expert[stale])
            self._stale[stale] = False
        return self._loads.objective(layers)

    def pairs(self, layers: Index) -> int:
        """Return how many pairs, times scenarios, a round over these layers looks at."""
        loads = self._loads
        spare = min(_SPARE_SLOTS, int(loads.several[layers].max()))
        swaps = 2 * self._slots.hot_slots * self._slots.count
        return int(loads.scenarios * layers.size * (swaps + spare * loads.experts))

    def paying(self, layers: Index, price: float) -> Candidates:
        """Return the best moves at ``price`` of layers whose objective was asked for since they changed."""
        if price > self._price:
            self._listed[:] = False
        self._price = price
        missing = layers[~self._listed[layers]]
        if missing.size:
            self._list(missing, price)
        active = np.zeros(len(self._listed), dtype=bool)
        active[layers] = True
        alone = layers.size == 1
        exchanges = self._best(self._exchanges, active, price, self._exchanged)
        swaps = self._best(self._swaps, active, price, lambda pairs: self._swapped(pairs, alone=alone))
        return self._side_by_side(exchanges, swaps)

    def _list(self, layers: Index, price: float) -> None:
        """List the pairs that may pay at this price or a lower one."""
        self._listed[layers] = True
        dropped = np.zeros(len(self._listed), dtype=bool)
        dropped[layers] = True
        table = self._slot_expert[layers]
        grown = self._loads.grown[layers].ravel().take(self._loads.at_slots(table))
        cost = self._loads.price[layers].take(self._slots.at_filled, axis=2)
        new = self._bits[layers[:, None], self._slots.gpu, table] < WAS_HELD
        # what may come back to a GPU is no move, and what is new there earns the price where it goes
        stays = ~(self._bits[layers] == WAS_HELD).any(axis=2)
        paid = price * self._loads.theta[layers, None] * (stays[:, self._slots.gpu].astype(np.int64) - new)
        found = self._list_exchanges(layers, table, cost, new, paid)
        self._exchanges = self._exchanges.where(~dropped[self._exchanges.layer]).and_(found)
        found = self._list_swaps(layers, table, cost, grown, new, paid)
        self._swaps = self._swaps.where(~dropped[self._swaps.layer]).and_(found)

    def _bound(self, layers: Index) -> Floats:
        return _MARGIN - NOTHING * self._loads.theta[layers]

    def _list_exchanges(self, layers: Index, table: Ints, cost: Floats, new: Bools, paid: Floats) -> _Pairs:
        """Turn each of the copies that are missed least into one of any other expert.

        What it changes is the sum of three parts: on the GPUs with the other copies of the expert that goes, on those
        with copies of the one that comes, and on the GPU itself. Where the two meet, that is a little wrong, which is
        why rounds are judged afterwards.
        """
        loads = self._loads
        copies = np.take_along_axis(loads.copies[layers], table, axis=1)
        at, slot = np.nonzero(copies > 1)
        if not at.size:
            return _Pairs.none()
        shape = layers.size, loads.scenarios, loads.experts
        every = np.bincount(loads.at_slots(table).ravel(), cost.ravel(), minlength=int(np.prod(shape)))
        price_of = every.astype(np.float64).reshape(shape)  # of all GPUs with a copy
        self._comes[layers] = (price_of * loads.comes[layers]).sum(axis=1)
        here, expert = cost[at, :, slot], table[at, slot]
        goes = _in_turn((price_of[at, :, expert] - here) * loads.fewer[layers[at], :, expert] - here)
        self._goes[layers[at], slot] = goes
        # rows: the least missed copies of each layer
        count = np.bincount(at, minlength=layers.size)
        number = np.arange(at.size) - np.repeat(np.cumsum(count) - count, count)
        missed = np.full((layers.size, int(count.max())), np.inf)
        missed[at, number] = goes
        which = np.zeros(missed.shape, dtype=np.int64)
        which[at, number] = slot
        order = np.argsort(missed, axis=1, kind="stable")[:, :_SPARE_SLOTS]
        spare, missed = np.take_along_axis(which, order, axis=1), np.take_along_axis(missed, order, axis=1)
        bound, paid = self._bound(layers)[:, None], np.take_along_axis(paid, spare, axis=1)
        # what it changes on the GPU itself is never below 0
        least = missed + paid + self._comes[layers].min(axis=1)[:, None]
        some = np.flatnonzero((least < bound + np.maximum(paid, 0.0)).any(axis=1))
        if not some.size:
            return _Pairs.none()
        layers, new, spare, paid = layers[some], new[some], spare[some], paid[some]
        gpu, row = self._slots.at_filled[spare], layers[:, None]
        here = loads.price[row, :, gpu] / loads.grown[row, :, np.take_along_axis(table[some], spare, axis=1)]
        change = np.matmul(here, loads.thinner[layers])
        change += (missed[some] + paid)[:, :, None]
        change += self._comes[layers][:, None]

        def exchange(at: Ints, row: Ints, comes: Ints) -> tuple[_Pairs, Bools]:
            slot, layer = spare[at, row], layers[at]
            bits = self._bits[layer, self._slots.gpu[slot], comes]
            moves = (bits < WAS_HELD).astype(np.int64) - new[at, slot]
            gain = change[at, row, comes] - paid[at, row]
            return _Pairs(layer, row, slot, comes, moves, gain), (bits & HELD) > 0

        return self._unbeaten(layers, change, paid, exchange)

    def _list_swaps(
        self, layers: Index, table: Ints, cost: Floats, grown: Floats, new: Bools, paid: Floats
    ) -> _Pairs:
        """Swap each copy on the busiest GPUs with any other copy."""
        loads, slots = self._loads, self._slots
        mine, real = slots.hot(loads.price_sum[layers])
        n, scenarios, count = grown.shape
        right = np.empty((n, 2 * scenarios, count))
        right[:, :scenarios] = grown
        np.divide(cost, grown, out=right[:, scenarios:])
        own = np.take_along_axis(right, mine[:, None], axis=2)
        left = np.concatenate((own[:, scenarios:], own[:, :scenarios]), axis=1)
        change = np.matmul(left.transpose(0, 2, 1), right)
        saved = loads.price_sum[layers].take(slots.at_filled, axis=1)
        saved -= paid
        mine_saved = np.where(real, np.take_along_axis(saved, mine, axis=1), -np.inf)
        change -= mine_saved[:, :, None]
        change -= saved[:, None]

        def swap(at: Ints, row: Ints, other: Ints) -> tuple[_Pairs, Bools]:
            slot, layer = mine[at, row], layers[at]
            gain = change[at, row, other] - paid[at, slot] - paid[at, other]
            there = self._bits[layer, slots.gpu[other], table[at, slot]]
            back = self._bits[layer, slots.gpu[slot], table[at, other]]
            moves = (there < WAS_HELD).astype(np.int64) + (back < WAS_HELD)
            moves -= new[at, slot]
            moves -= new[at, other]
            return _Pairs(layer, row, slot, other, moves, gain), ((there | back) & HELD) > 0

        dearest = np.take_along_axis(paid, mine, axis=1) + self._price * loads.theta[layers, None]
        return self._unbeaten(layers, change, dearest, swap)

    def _unbeaten(self, layers: Index, change: Floats, dearest: Floats, pairs: _Describe) -> _Pairs:
        """Return the pairs that may pay and be the best of their row, at this price or a lower one.

        ``change`` ``[layers, rows, columns]`` is theirs times theta, with the least price that their moves may have;
        ``dearest`` ``[layers, rows]`` is the largest of those prices in a row.
        """
        n, rows, columns = change.shape
        row = np.divmod(np.arange(n * rows), rows)
        first, held = pairs(*row, change.argmin(axis=2).ravel())
        most = np.maximum(dearest.ravel(), 0.0)
        paid = self._price * self._loads.theta[first.layer] * first.moves
        limit = np.where(held, np.inf, first.gain + np.maximum(paid, most) + _MARGIN)
        bound = np.minimum(np.repeat(self._bound(layers), rows) + most, limit).reshape(n, rows, 1)
        at, column = np.divmod(np.flatnonzero(change < bound), columns)
        found, held = pairs(*np.divmod(at, rows), column)
        paid = self._price * self._loads.theta[found.layer] * np.minimum(found.moves, 0)
        return found.where(~held & (found.gain + paid < self._bound(found.layer)))

    def _exchanged(self, pairs: _Pairs) -> Floats:
        """Return the gains times theta of exchanges, in an order of operations that never changes."""
        loads, gone = self._loads, self._slot_expert[pairs.layer, pairs.slot]
        gain: Floats = self._goes[pairs.layer, pairs.slot] + self._comes[pairs.layer, pairs.other]
        here = loads.price[pairs.layer, :, self._slots.at_filled[pairs.slot]]
        here /= loads.grown[pairs.layer, :, gone]
        here *= loads.thinner[pairs.layer, :, pairs.other]
        return _in_turn(here, gain)

    def _swapped(self, pairs: _Pairs, *, alone: bool) -> Floats:
        """Return the gains times theta of swaps; a layer that is looked at alone has prices summed in pairs."""
        loads, layer = self._loads, pairs.layer
        gpu, other = self._slots.at_filled[pairs.slot], self._slots.at_filled[pairs.other]
        here, there = loads.price[layer, :, gpu], loads.price[layer, :, other]
        mine = loads.grown[layer, :, self._slot_expert[layer, pairs.slot]]
        theirs = loads.grown[layer, :, self._slot_expert[layer, pairs.other]]
        sums = loads.price_sum_in_pairs if alone else loads.price_sum
        gain: Floats = -(loads.price_sum_in_pairs[layer, gpu] + sums[layer, other])
        gain = _in_turn(here / mine * theirs, gain)
        return _in_turn(mine * (there / theirs), gain)

    def _best(
        self, pairs: _Pairs, active: Bools, price: float, exact: Callable[[_Pairs], Floats]
    ) -> tuple[_Pairs, Floats]:
        """Return the best pair of each row that pays, and by what the objective plus the price of moves changes."""
        at = np.flatnonzero(active[pairs.layer])
        if not at.size:
            return _Pairs.none(), np.zeros(0)
        theta = self._loads.theta[pairs.layer[at]]
        about = pairs.gain[at] + price * theta * pairs.moves[at]
        begins, counts = _runs(pairs.layer[at], pairs.row[at])
        least = np.repeat(np.minimum.reduceat(about, begins), counts)
        near = (about <= least + _MARGIN) & (about < _MARGIN - NOTHING * theta)
        found = pairs.where(at[near])
        value = exact(found) / theta[near] + price * found.moves
        pays = value < -NOTHING
        found, value = found.where(pays), value[pays]
        if not value.size:
            return found, value
        begins, counts = _runs(found.layer, found.row)
        first = np.flatnonzero(value == np.repeat(np.minimum.reduceat(value, begins), counts))
        first = first[_runs(found.layer[first], found.row[first])[0]]
        return found.where(first), value[first]

    def _side_by_side(self, exchanges: tuple[_Pairs, Floats], swaps: tuple[_Pairs, Floats]) -> Candidates:
        both = exchanges[0].and_(swaps[0])
        order = np.argsort(both.layer, kind="stable")
        both, value = both.where(order), np.concatenate((exchanges[1], swaps[1]))[order]
        swapped = order >= exchanges[1].size
        begins, counts = _runs(both.layer, both.layer)
        at = np.repeat(np.arange(begins.size), counts), np.arange(order.size) - np.repeat(begins, counts)
        goes, there = (
            self._slot_expert[both.layer, slot] for slot in (both.slot, np.where(swapped, both.other, 0))
        )

        def laid(values: Any, rest: float) -> Any:
            dense = np.full((begins.size, int(counts.max(initial=1))), rest, dtype=values.dtype)
            dense[at] = values
            return dense

        other, comes = np.where(swapped, both.other, -1), np.where(swapped, there, both.other)
        return Candidates(
            layers=both.layer[begins], value=laid(value, np.inf), moves=laid(both.moves, 0),
            slot=laid(both.slot, 0), other=laid(other, -1), goes=laid(goes, 0), comes=laid(comes, 0),
        )  # fmt: skip


def _runs(layer: Ints, row: Ints) -> tuple[Index, Index]:
    """Return where runs of equal layer and row begin, and how long they are."""
    if not layer.size:
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    other = (layer[1:] != layer[:-1]) | (row[1:] != row[:-1])
    begins = np.concatenate(([0], np.flatnonzero(other) + 1))
    return begins, np.diff(begins, append=layer.size)


def _in_turn(parts: Floats, start: Floats | float = 0.0) -> Floats:
    """Return ``start`` plus ``parts`` ``[n, scenarios]``, one scenario after another."""
    total = start + parts[:, 0]
    for part in parts.T[1:]:
        total += part
    return total
