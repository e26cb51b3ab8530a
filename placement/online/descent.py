"""Moves at a price: copies change where that pays under weighted loads, in all layers at once, within a budget.

The largest load of each scenario is replaced by log-sum-exp, as :mod:`placement.experts.soft_max` does it,
and each scenario has a weight; log-sum-exp is blunt at first and sharper from price to price. A round looks, in
every layer, at exchanges (a copy of an expert with several becomes a copy of another: one move) and at swaps of two
copies between GPUs (two moves), and makes the best that do not meet. What counts is the gain less the price of the
moves, so that taking a move back earns its price. The price falls from round to round: the moves that gain most
come first, in whatever layer they are, and the last price is what a move must gain at least. A layer in which the
moves of a round together did not pay is put back, and goes on one move at a time.

Fixed work; the same bytes on every machine (:mod:`placement.online.portable`; no product of matrices decides, see
:mod:`placement.online.gains`; no sorting whose ties depend on the machine).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.arrays import Experts, Floats, Index, Ints
from placement.online.gains import HELD, NOTHING, SHARPNESS, WAS_HELD, Candidates, Gains, Loads, Slots

_TOGETHER = 8  # moves of a layer in a round, and one more for each so many GPUs
_GPUS_EACH = 8
# Sharp, a move must not raise any load of a scenario that is even already, whatever it gains in another.
_BLUNT = SHARPNESS / 8  # of log-sum-exp, doubled before each price
_ROUNDS = 40  # at a price, at most
_WORK = 600_000_000  # pairs looked at, times scenarios, by a whole descent
_CHANCES = 2  # rounds that may fail in a layer before it is left alone at this price


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
        for number, price in enumerate(prices, 1):
            sharp = SHARPNESS if number == len(prices) else min(SHARPNESS, _BLUNT * 2.0**number)
            search.at_price(price, sharp)
        placed[layers] = search.slot_expert
    return placed


class _Search:
    """Placements of some layers, and what their GPUs held at the start."""

    def __init__(
        self, loads: Floats, weights: Floats, old: Experts, slots_per_gpu: Ints, most: int | None
    ) -> None:
        self.layers = len(old)
        self.slots = Slots(slots_per_gpu)
        self.loads = Loads(loads, weights, self.slots)
        self.slot_expert = old.astype(np.int64)
        rows = np.arange(self.layers)[:, None]
        self.bits = np.zeros((self.layers, self.slots.gpus, loads.shape[2]), dtype=np.int8)
        self.bits[rows, self.slots.gpu, self.slot_expert] = HELD | WAS_HELD
        if most is None:
            self.bits |= WAS_HELD
        self.gains = Gains(self.loads, self.slot_expert, self.bits)
        self.most = most or 0
        self.moves = np.zeros(self.layers, dtype=np.int64)
        self.kept_slots, self.kept_moves = self.slot_expert.copy(), self.moves.copy()
        self.tried = 0

    def at_price(self, price: float, sharpness: float) -> None:
        """Make moves that are worth ``price`` each, until there is none, the budget is spent or the work is done."""
        self.loads.sharpness = sharpness
        self.gains.changed(np.arange(self.layers))
        self.before = np.full(self.layers, np.inf)
        self.failed = np.zeros(self.layers, dtype=np.int64)
        active = np.arange(self.layers)
        changed = active[:0]
        for _ in range(_ROUNDS):
            active = self._judged(active, price)
            if active.size == 0 or self.tried > _WORK:
                return
            self.tried += self.gains.pairs(active)
            changed = active = self._take(self.gains.paying(active, price))
        self._judged(changed, price)

    def _judged(self, active: Index, price: float) -> Index:
        """Put back the last moves where they did not pay; return the layers in which to go on."""
        objective = self._objective(active)
        now = objective + price * self.moves[active]
        worse = now > self.before[active] - NOTHING
        if worse.any():
            self._put_back(active[worse])
            active = active[self.failed[active] < _CHANCES]
            objective = self._objective(active)
        self.before[active] = objective + price * self.moves[active]
        self.kept_slots[active], self.kept_moves[active] = self.slot_expert[active], self.moves[active]
        return active

    def _objective(self, active: Index) -> Floats:
        cells = 16 * self.slots.count + 60 * self.loads.experts
        self.tried += self.loads.scenarios * active.size * cells  # as many pairs, in time
        return self.gains.objective(active)

    def _put_back(self, layers: Index) -> None:
        self.slot_expert[layers], self.moves[layers] = self.kept_slots[layers], self.kept_moves[layers]
        self.bits[layers] &= WAS_HELD
        self.bits[layers[:, None], self.slots.gpu, self.slot_expert[layers]] |= HELD
        self.gains.changed(layers)
        self.failed[layers] += 1

    def _take(self, found: Candidates) -> Index:
        """Make the best moves of each layer, no GPU and no expert in two of them; return the layers with one.

        Where the budget does not pay for the best move of all layers, those that gain most per move go first.
        """
        active, value = found.layers, found.value.copy()
        gpu, other = self.slots.gpu[found.slot], np.where(found.other < 0, -1, self.slots.gpu[found.other])
        left = self.most - int(self.moves.sum())
        made = np.zeros(active.size, dtype=bool)
        rows = np.arange(active.size)
        for turn in range(_TOGETHER + self.slots.gpus // _GPUS_EACH):
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
        self.gains.changed(layers)
        self._put(layers, slot, goes, comes)
        swapped = other >= 0
        self._put(layers[swapped], other[swapped], comes[swapped], goes[swapped])

    def _put(self, layers: Index, slot: Ints, goes: Ints, comes: Ints) -> None:
        gpu, first = self.slots.gpu[slot], self.slots.first
        self.slot_expert[layers, slot] = comes
        self.bits[layers, gpu, goes] &= WAS_HELD
        # all that the GPU holds now: of two copies of an expert one may be left
        held = np.minimum(first[gpu][:, None] + self.slots.offsets, first[gpu + 1][:, None] - 1)
        rows = layers[:, None]
        self.bits[rows, gpu[:, None], self.slot_expert[rows, held]] |= HELD


def _paying(value: Floats, rows: Index, pick: Index) -> tuple[Index, Index]:
    pays = value[rows, pick] < -NOTHING
    return rows[pays], pick[pays]
