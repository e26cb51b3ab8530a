"""Annealing of placements by swaps, exchanges of copies and cycles; subclasses define the cost of GPU loads.

The cost of a layer is 1 for each move and ``price`` times the energy of its GPUs, added up over scenarios. All layers
change at once, by three kinds of steps:

* swap: GPUs are paired by chance; each pair exchanges the two copies that suit it best, or comes to a little more;
* exchange: a copy of an expert with several becomes one of another expert, mostly of one from an overloaded GPU;
* cycle: every GPU releases one copy, and a linear assignment gives each the released copy that suits it best; before,
  a released copy may become one of another expert. A circle through thirty GPUs and moves taken back are all one such
  assignment, and an exact solver finds the best among all of them. It is kept where the cost does not rise.

Elementwise arithmetic and sums in a fixed order alone: no matrix products, no threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Bools, Experts, Floats, Index, Ints, least_of_each
from placement.experts.problem import Problem

Singles = NDArray[np.float32]

WIDEST = 96
"""GPUs that one assignment takes together; of more, a part chosen by chance takes part in each cycle."""

_MOVE, _HERE = 1, 2  # what `code` says of an expert on a GPU: it would be a move; the GPU holds it now
_BARRED = 1e6  # moves that two copies of an expert on one GPU cost
_SHARED = 1e3  # moves that a copy above what a failure domain may hold of its expert costs
_EQUAL = 1e-6  # moves: not a rise of the cost
_HOPEFUL = 1e-3  # how likely GPUs below their target give a hot expert, besides those above it
_UNDO = 0.1  # of the exchanges: back to what the slot held before

_POTENTIALS = 6  # rounds that prepare an assignment, which then takes a fifth of the time
_PAIRINGS = 256


class Annealing(ABC):
    """Some layers of a placement, and the steps that change them.

    Parameters
    ----------
    start:
        ``[layers, slots]``: names experts that exist, none twice on a GPU.
    target:
        Largest over mean GPU load that is wanted, ``[scenarios, layers]``.
    old:
        ``[layers, slots]``: what moves are counted from, -1 where a slot is empty; None: moves are free.
    """

    columns = 5  # slots of a GPU that one swap looks at

    def __init__(
        self,
        problem: Problem,
        start: Experts,
        target: Floats,
        rng: np.random.Generator,
        old: Experts | None = None,
    ) -> None:
        self.problem, self.target, self.rng = problem, target, rng
        self.layers, self.experts = problem.layers, problem.experts
        self.size = self.experts + 1
        working = np.flatnonzero(problem.slots_per_gpu > 0)
        self.gpus, self.width = working.size, int(problem.slots_per_gpu.max())
        self.real = np.arange(self.width)[:, None] < problem.slots_per_gpu[working]
        self.slot = np.minimum(
            problem.first_slot[working] + np.arange(self.width)[:, None], problem.slots - 1
        )
        row = np.arange(self.layers * self.gpus)  # a row is a GPU of a layer
        self.layer, self.gpu = np.divmod(row, self.gpus)
        self.table, self.was = self._table(start), self._table(start if old is None else old)
        # What a GPU of a layer would have to fetch and what it holds, by layer and expert: a line of GPUs each.
        self.code = np.zeros((self.layers, self.size, self.gpus), dtype=np.uint8)
        if old is not None:
            self.code[:, :-1] = ~problem.on_gpus(old)[:, working].transpose(0, 2, 1)
        self.code[:, -1] = _HERE
        self.flat = self.code.reshape(-1)
        self.slots = np.flatnonzero(self.real)
        self.load = np.pad(problem.loads * (problem.gpus / problem.experts), ((0, 0), (0, 0), (0, 1)))
        self.pace = np.tile((1 / problem.speed[working]).astype(np.float32), self.layers)
        self.alike = bool((self.pace == self.pace[0]).all())
        self.goal = np.repeat(target, self.gpus, axis=1).astype(np.float32)
        self.seconds_first = problem.seconds_first
        self.grouped = not problem.each_alone  # failure domains of several GPUs
        self.domain = problem.failure_domain[working]
        self.pairings = np.argsort(rng.random((_PAIRINGS, self.gpus)), axis=1, kind="stable")
        self.new = np.zeros(self.table.shape, dtype=np.float32)
        self.count = np.zeros((self.layers, self.size), dtype=np.int64)
        self.share = np.zeros(
            (problem.scenarios, self.layers, self.size), dtype=np.float32
        )  # load of one copy
        self.over = np.zeros((problem.scenarios, row.size), dtype=np.float32)
        self.refresh(np.arange(self.layers))

    def _table(self, slot_expert: Experts) -> Index:
        """``[layers, slots]`` as ``[slots of a GPU, rows]``.

        A slot that a GPU lacks, or that is empty, holds expert number ``experts``: it has no load and goes nowhere.
        """
        table = np.where(self.real[:, None], slot_expert[:, self.slot].transpose(1, 0, 2), self.experts)
        table[table < 0] = self.experts
        return table.reshape(self.width, -1).astype(np.intp)

    @property
    def slot_expert(self) -> Experts:
        """The placements, int32 ``[layers, slots]``."""
        table = self.table.reshape(self.width, self.layers, self.gpus).transpose(1, 2, 0)
        return table[:, self.real.T].astype(np.int32)

    def cost(self, price: float, table: Index | None = None) -> Floats:
        """What placements cost, in moves, ``[layers]``: those of ``table``, or the present ones.

        Copies that share a failure domain against the rule cost more than any balance.
        """
        table = self.table if table is None else table
        key = self.layer * self.size + table
        count = self._counts(table)
        weight = self._shares(count, self.load).reshape(self.problem.scenarios, -1).take(key, axis=1)
        over = weight.sum(axis=1) * self.pace - self.goal
        self.look(price)
        energy = np.stack([self.energy(load, s, self.layer) for s, load in enumerate(over)]).sum(axis=0)
        moves = (self.flat.take(key * self.gpus + self.gpu) & _MOVE).sum(axis=0)
        costs = price * energy.astype(np.float64) + moves
        total: Floats = costs.reshape(self.layers, self.gpus).sum(axis=1)
        if self.grouped:
            total += _SHARED * np.maximum(self._near(table) - self._most(count)[:, None], 0).sum(axis=(1, 2))
        return total

    @abstractmethod
    def look(self, price: float) -> None:
        """Update GPU loads and the price before a step."""

    @abstractmethod
    def energy(self, over: Singles, scenario: int, layer: Index) -> Singles:
        """Return what GPUs of ``layer`` cost that are ``over`` their target in a scenario, in any shape."""

    @abstractmethod
    def add_swaps(self, total: Singles, mine: tuple[Index, Index], other: tuple[Index, Index]) -> None:
        """Add to ``total`` ``[copies, copies, n]`` what each swap in ``n`` pairs of GPUs changes.

        Each side: the rows of the GPUs, ``[n]``, and the experts of their copies, ``[copies, n]``.
        """

    @abstractmethod
    def excess(self) -> Singles:
        """Return how much GPUs have to give away, ``[rows]``."""

    def swap(self, price: float, heat: float) -> None:
        """Exchange two copies in pairs of GPUs, where that costs at most about ``heat`` moves."""
        self.look(price)
        left, right = self._pairs()
        if left.size == 0:
            return
        here, there = self._columns(), self._columns()
        mine, other = self.table[here[:, None], left], self.table[there[:, None], right]
        scale = np.float32(1 / price)
        cost = np.array([0, 1, _BARRED, _BARRED], dtype=np.float32) * scale
        comes = cost.take(self.flat.take(self._at(left, other))) - self.new[there[:, None], right] * scale
        goes = cost.take(self.flat.take(self._at(right, mine))) - self.new[here[:, None], left] * scale
        if self.grouped:
            comes[self._full(left, right, other)] += cost[_HERE]
            goes[self._full(right, left, mine)] += cost[_HERE]
        total = comes[None, :, :] + goes[:, None, :]
        self.add_swaps(total, (left, mine), (right, other))
        total = total.reshape(-1, left.size)
        choice = total.argmin(axis=0)
        gain = total[choice, np.arange(left.size)]
        taken = np.flatnonzero(gain < scale * self._heat(heat, left.size))
        i, j = np.divmod(choice[taken], there.size)
        left, here, right, there = left[taken], here[i], right[taken], there[j]
        if self.grouped:
            fine = self._apart_from_each_other(left, right, self.table[here, left], self.table[there, right])
            left, here, right, there = left[fine], here[fine], right[fine], there[fine]
        self._put(left, here, right, there)

    def exchange(self, price: float, heat: float, tried: int) -> None:
        """Turn a copy of an expert with several into one of another: in each layer the best of some ``tried``."""
        self.look(price)
        layer = np.repeat(np.arange(self.layers), tried)
        column, gpu = np.divmod(self.slots[self.rng.integers(0, self.slots.size, layer.size)], self.gpus)
        row = layer * self.gpus + gpu
        expert = self.table[column, row]
        fine = self.count[layer, expert] > 1
        layer, row, column, expert = layer[fine], row[fine], column[fine], expert[fine]
        wanted = np.where(self._chance(layer.size) < _UNDO, self.was[column, row], self._hot(layer))
        fine = (self.flat[self._at(row, wanted)] & _HERE) == 0
        fine &= self._seconds_come_first(layer, expert, wanted)
        if self.grouped:
            fine &= self._fits(layer, row, expert, wanted)
        layer, row, column, expert, wanted = (x[fine] for x in (layer, row, column, expert, wanted))
        if layer.size == 0:
            return
        scale = np.float32(1 / price)
        gain = ((self.flat[self._at(row, wanted)] & _MOVE) - self.new[column, row]) * scale
        gain -= scale * self._heat(heat, layer.size)
        holds, gets = (self.code[layer, held] >= _HERE for held in (expert, wanted))
        many, few = self.count[layer, expert], self.count[layer, wanted]
        at = np.arange(layer.size), row % self.gpus
        lines = layer[:, None]
        for scenario, (share, over) in enumerate(zip(self.share, self.over, strict=True)):
            heavy, light = share[layer, expert], share[layer, wanted]
            more = heavy / (many - 1).astype(np.float32)
            less = light / (few + 1).astype(np.float32)
            change = holds * more[:, None] - gets * less[:, None]
            change[at] += light - less - heavy - more
            if not self.alike:
                change *= self.pace.reshape(self.layers, self.gpus)[layer]
            before = over.reshape(self.layers, self.gpus)[layer]
            energy = self.energy(before + change, scenario, lines)
            gain += (energy - self.energy(before, scenario, lines)).sum(axis=1)
        best = least_of_each(layer, gain)
        best = best[gain[best] < 0]
        self.table[column[best], row[best]] = wanted[best]
        self.refresh(layer[best])

    def cycle(self, price: float, eager: float, *, exchange: bool) -> Bools:
        """Assign a released copy of each GPU anew, the cheapest way; return which layers got cheaper.

        ``eager`` 0 releases any copy of a GPU, 1 a moved one wherever there is one. ``exchange`` first turns one of
        them into a copy of another expert.
        """
        from scipy.optimize import linear_sum_assignment

        self.look(price)
        chosen = self._some_gpus()
        row = (np.arange(self.layers)[:, None] * self.gpus + chosen).ravel()
        chance = (
            self.rng.random((self.width, row.size), dtype=np.float32) + np.float32(eager) * self.new[:, row]
        )
        column = np.where(np.tile(self.real[:, chosen], self.layers), chance, -1).argmax(axis=0)
        copies = self.table[column, row].reshape(self.layers, chosen.size)
        if exchange:
            self._exchange_released(row, copies)
        cost = self._assignment_costs(row, column, copies, price)
        itself = np.arange(chosen.size)
        cost -= cost[:, itself, itself][:, None, :]
        potential = np.zeros(copies.shape, dtype=np.float32)
        for _ in range(_POTENTIALS):
            before = potential.copy()
            np.minimum(potential, (cost + potential[:, None, :]).min(axis=2), out=potential)
        cost += potential[:, None, :]
        cost -= potential[:, :, None]
        to = np.tile(itself, (self.layers, 1))
        # where nothing changed any more, potentials prove that the copies are best where they are
        for layer in np.flatnonzero((potential < before).any(axis=1)):
            to[layer] = linear_sum_assignment(cost[layer])[1]
        trial = self.table.copy()
        rows = (np.arange(self.layers)[:, None] * self.gpus + chosen[to]).ravel()
        place = np.take_along_axis(column.reshape(copies.shape), to, axis=1).ravel()
        trial[place, rows] = copies.ravel()
        changed = (trial != self.table).any(axis=0).reshape(self.layers, self.gpus).any(axis=1)
        now, then = self.cost(price), self.cost(price, trial)
        taken: Bools = changed & self._distinct(trial) & (then <= now + _EQUAL)
        self.table = np.where(np.repeat(taken, self.gpus), trial, self.table)
        self.refresh(np.flatnonzero(taken))
        better: Bools = taken & (then < now - _EQUAL)
        return better

    def refresh(self, layers: Index) -> None:
        """Recompute all that follows from the table of some layers."""
        if layers.size == 0:
            return
        rows = (layers[:, None] * self.gpus + np.arange(self.gpus)).ravel()
        table = self.table[:, rows]
        self.code[layers, : self.experts] &= _MOVE
        at = self._at(rows, table)
        self.flat[at] |= _HERE
        self.new[:, rows] = self.flat[at] & _MOVE
        local = np.repeat(np.arange(layers.size), self.gpus) * self.size + table
        count = np.bincount(local.ravel(), minlength=layers.size * self.size).reshape(-1, self.size)
        self.count[layers] = count
        self.share[:, layers] = self._shares(count, self.load[:, layers])
        self.over[:, rows] = self.of_copies(rows, table).sum(axis=1) * self.pace[rows] - self.goal[:, rows]
        if self.grouped:
            self.near = self._near(self.table)

    def _put(self, left: Index, here: Index, right: Index, there: Index) -> None:
        """Exchange the copies in slots of pairs of GPUs, no GPU twice."""
        mine, other = self.table[here, left], self.table[there, right]
        self.flat[self._at(left, mine)] &= _MOVE
        self.flat[self._at(right, other)] &= _MOVE
        for row, column, expert in ((left, here, other), (right, there, mine)):
            self.table[column, row] = expert
            at = self._at(row, expert)
            self.new[column, row] = self.flat[at]
            self.flat[at] |= _HERE
        more = self.of_copies(left, other) - self.of_copies(left, mine)
        self.over[:, left] += more * self.pace[left]
        self.over[:, right] -= more * self.pace[right]
        if self.grouped:
            self.near = self._near(self.table)

    def of_copies(self, row: Index, expert: Index) -> Singles:
        """Loads of copies at speed 1, ``[scenarios, ..., n]``; ``expert`` may have axes before that of ``row``."""
        loads: Singles = self.share.reshape(len(self.share), -1).take(
            self.layer[row] * self.size + expert, axis=1
        )
        return loads

    def _at(self, row: Index, expert: Index) -> Index:
        """Where ``flat`` speaks of experts on GPUs of layers; ``expert`` may have axes before that of ``row``."""
        at: Index = (self.layer[row] * self.size + expert) * self.gpus + self.gpu[row]
        return at

    def _chance(self, count: int) -> Singles:
        chance: Singles = self.rng.random(count, dtype=np.float32)
        return chance

    def _heat(self, heat: float, count: int) -> Singles:
        """By how much steps may rise, in moves: ``heat`` in the mean, mostly less, at most four times that."""
        chance = self._chance(count)
        allowed: Singles = np.float32(4 * heat) * chance * chance * chance
        return allowed

    def _pairs(self) -> tuple[Index, Index]:
        """Pair the GPUs of each layer; return the pairs of which one has excess, or a copy that moved."""
        order = self.pairings[int(self.rng.integers(_PAIRINGS))]
        half = self.gpus // 2
        first = (np.arange(self.layers) * self.gpus)[:, None]
        left, right = (first + order[:half]).ravel(), (first + order[half : 2 * half]).ravel()
        busy: Bools = (self.excess() > 0) | (self.new.max(axis=0) > 0)
        fine = busy[left] | busy[right]
        return left[fine], right[fine]

    def _columns(self) -> Index:
        """Slots of a GPU that a swap looks at."""
        if self.width <= self.columns:
            return np.arange(self.width)
        return (int(self.rng.integers(self.width)) + np.arange(self.columns)) % self.width

    def _some_gpus(self) -> Index:
        if self.gpus <= WIDEST:
            return np.arange(self.gpus)
        return np.sort(self.pairings[int(self.rng.integers(_PAIRINGS))][:WIDEST])

    def _hot(self, layer: Index) -> Index:
        """An expert of each layer from a GPU chosen by its excess, ``[n]``: a copy there by chance."""
        row = self._hot_row(layer)
        slots = self.real.sum(axis=0)[row % self.gpus]
        column = np.minimum((self._chance(row.size) * slots).astype(np.intp), slots - 1)
        hot: Index = self.table[column, row]
        return hot

    def _hot_row(self, layer: Index) -> Index:
        over = self.excess().reshape(self.layers, self.gpus) + np.float32(_HOPEFUL)
        reach = np.cumsum(over, axis=1)
        drawn = self._chance(layer.size) * reach[layer, -1]
        gpu = np.minimum((reach[layer] < drawn[:, None]).sum(axis=1), self.gpus - 1)
        row: Index = layer * self.gpus + gpu
        return row

    def _exchange_released(self, row: Index, copies: Index) -> None:
        """Turn a released copy of each layer into one of an expert that needs more, in place.

        An expert too heavy for its number of copies goes first, else one on a loaded GPU, the heaviest as often as
        any; what gives way is a copy of an expert with several.
        """
        layers = np.arange(self.layers)
        spare = self.count[layers[:, None], copies] > 1
        place = (self._chance(copies.size).reshape(copies.shape) * spare).argmax(axis=1)
        hot = self._hot_row(layers)
        heaviest = self.of_copies(hot, self.table[:, hot]).sum(axis=0).argmax(axis=0)
        wanted = np.where(self._chance(self.layers) < 0.5, self.table[heaviest, hot], self._hot(layers))
        least = np.ceil(self.load / self.problem.speed.max() / self.target[:, :, None] * (1 - 1e-9)).max(
            axis=0
        )
        short = np.minimum(least, self.gpus) - self.count
        short[:, self.experts] = 0
        wanted = np.where(short.max(axis=1) > 0, short.argmax(axis=1), wanted)
        there = row.reshape(copies.shape)[layers, place]
        fine = spare.any(axis=1) & (self.flat[self._at(there, wanted)] < _HERE)
        fine &= self._seconds_come_first(layers, copies[layers, place], wanted)
        copies[layers[fine], place[fine]] = wanted[fine]

    def _assignment_costs(self, row: Index, column: Index, copies: Index, price: float) -> Singles:
        """What each released copy costs on each GPU, in excess, ``[layers, copies, GPUs]``."""
        rest = self.table.copy()
        own = rest[column, row].reshape(copies.shape)
        rest[column, row] = self.experts
        layers = np.arange(self.layers)[:, None]
        count = self._counts(rest)
        np.add.at(count, (layers, copies), 1)
        share = self._shares(count, self.load)
        gpus = row[: copies.shape[1]]
        code = self.code[layers, copies]
        if gpus.size < self.gpus:
            code = code[:, :, gpus]
        code[copies[:, :, None] == own[:, None, :]] &= _MOVE
        cost = (np.array([0, 1, _BARRED, _BARRED], dtype=np.float32) * np.float32(1 / price)).take(code)
        base = share.reshape(len(share), -1)[:, self.layer[row] * self.size + rest[:, row]].sum(axis=1)
        shape = (self.layers, 1, gpus.size)
        for scenario, (copy_load, free, goal) in enumerate(zip(share, base, self.goal, strict=True)):
            load = copy_load[layers, copies][:, :, None] + free.reshape(shape)
            if not self.alike:
                load *= self.pace[row].reshape(shape)
            load -= goal[row].reshape(shape)
            cost += self.energy(load, scenario, layers[:, :, None])
        if self.grouped:
            full = self._near(rest) >= self._most(count)[:, None]
            at = layers[:, :, None], self.domain[gpus][None, None, :], copies[:, :, None]
            cost += np.float32(_SHARED / price) * full[at]
        return cost

    def _counts(self, table: Index) -> Ints:
        """Copies of each expert, ``[layers, experts + 1]``."""
        key = (self.layer * self.size + table).ravel()
        return np.bincount(key, minlength=self.layers * self.size).reshape(self.layers, self.size)

    def _shares(self, count: Ints, load: Floats) -> Singles:
        shares: Singles = (load / np.maximum(count, 1)).astype(np.float32)
        return shares

    def _distinct(self, table: Index) -> Bools:
        """Whether no GPU holds an expert twice, ``[layers]``."""
        ordered = np.sort(table, axis=0)
        twice = ((ordered[1:] == ordered[:-1]) & (ordered[1:] < self.experts)).any(axis=0)
        distinct: Bools = ~twice.reshape(self.layers, self.gpus).any(axis=1)
        return distinct

    def _seconds_come_first(self, layer: Index, expert: Index, wanted: Index) -> Bools:
        """Whether no third copy comes, and no second one goes, while an expert has one alone, ``[n]``."""
        if not self.seconds_first:
            return np.ones(layer.size, dtype=bool)
        second = self.count[layer, wanted] == 1
        lone = (self.count[:, : self.experts] == 1).any(axis=1)[layer]
        fine: Bools = second | (~lone & (self.count[layer, expert] > 2))
        return fine

    # What follows is asked for where failure domains hold several GPUs.

    def _near(self, table: Index) -> Ints:
        """Copies of each expert in each failure domain, ``[layers, domains, experts + 1]``."""
        domains = self.problem.domains
        key = ((self.layer * domains + self.domain[self.gpu]) * self.size + table).ravel()
        near = np.bincount(key, minlength=self.layers * domains * self.size).reshape(-1, domains, self.size)
        near[:, :, self.experts] = 0
        return near

    def _most(self, count: Ints) -> Ints:
        """Most copies in one failure domain of experts with so many, in any shape, at least 1."""
        most: Ints = np.maximum(self.problem.most_in_domain(count), 1)
        return most

    def _domain(self, row: Index) -> Ints:
        return self.domain[self.gpu[row]]

    def _full(self, to: Index, source: Index, expert: Index) -> Bools:
        """Whether a GPU's failure domain has all it may have of experts that come from another, ``[k, n]``."""
        layer, place = self.layer[to], self._domain(to)
        full = self.near[layer, place, expert] >= self._most(self.count)[layer, expert]
        barred: Bools = np.logical_and(full, place != self._domain(source))
        return barred

    def _fits(self, layer: Index, row: Index, expert: Index, wanted: Index) -> Bools:
        """Whether both experts stay within what failure domains may hold when a copy turns, ``[n]``."""
        place = self._domain(row)
        left = self.near[layer, :, expert]
        left[np.arange(layer.size), place] -= 1
        fine = left.max(axis=1) <= self._most(self.count[layer, expert] - 1)
        more = self.near[layer, place, wanted] < self._most(self.count[layer, wanted] + 1)
        fits: Bools = np.logical_and(fine, more)
        return fits

    def _apart_from_each_other(self, left: Index, right: Index, mine: Index, other: Index) -> Bools:
        """The pairs that bring no expert to a failure domain to which an earlier pair brings it too, ``[n]``."""
        domains = self.problem.domains

        def key(row: Index, expert: Index) -> Ints:
            return (self.layer[row] * domains + self._domain(row)) * self.size + expert

        keys = np.stack([key(left, other), key(right, mine)], axis=1).ravel()
        first = np.zeros(keys.size, dtype=bool)
        first[np.unique(keys, return_index=True)[1]] = True
        both = first.reshape(-1, 2)
        fine: Bools = np.logical_and(both[:, 0], both[:, 1])
        return fine
