"""Search for layers whose consecutive experts share GPUs: exact sweeps of layers, pairs of GPUs, crossing of answers.

Three neighbourhoods, none of which gets far alone. *A layer* given its neighbours is an assignment problem, solved
exactly. *Two GPUs* exchange experts over all layers (``pair_exchange.py``) after a perturbation; what ends little
worse is kept, and less and less of it. *Two answers* are crossed by taking GPUs whole from one and the other in turn.
Work is counted, not timed: the same input gives the same answer anywhere.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from cost.traces.transitions import Transitions
from placement.arrays import Bools, Floats, Index, Ints
from placement.traffic.pair_exchange import PairExchange
from placement.traffic.tiers import Tiers

POPULATION = 8
"""Answers that are kept and crossed."""
_ROUNDS = 10
"""Rounds of exchanges between sweeps."""
_STALE = 12
"""Generations without a better best answer after which the search ends."""
_MOST_CELLS = 2**23
_WARM = 0.02
"""Loss that is accepted at first, part of the mean weight of a GPU in a layer; falls to 0 in each generation."""
_LOST = 1e-9


class LayerSearch:
    """Placements ``[layers, experts]`` of GPUs: what they cost, and how to lower it."""

    def __init__(self, transitions: Transitions, slots: Ints, tiers: Tiers, seed: int = 0) -> None:
        self.forth = transitions.weights
        self.back = np.ascontiguousarray(self.forth.transpose(0, 2, 1))
        self.slots = slots
        self.tiers = tiers
        self.gpus = int(slots.size)
        self.layers, self.experts = transitions.layers, transitions.experts
        self.slot_gpu = np.repeat(np.arange(self.gpus), slots)
        self.rng = np.random.default_rng(seed)
        self.spent = [0.0]
        self._eye = np.eye(self.gpus)
        self.mean = float(self.forth.sum()) / self.layers / self.gpus

    def cost(self, place: Ints) -> float:
        """Return the price of all transitions."""
        return weighted_cost(self.forth, place, self.tiers)

    def contiguous(self) -> Ints:
        """Return experts in order, GPU by GPU, alike in every layer."""
        return np.tile(self.slot_gpu, (self.layers, 1))

    def random(self) -> Ints:
        """Return experts anywhere."""
        return np.stack([self.rng.permutation(self.slot_gpu) for _ in range(self.layers)])

    def chained(self, first: Ints) -> Ints:
        """Return ``first`` in the first layer, and each layer after it exactly given the one before alone."""
        place = np.tile(first, (self.layers, 1))
        for layer in range(1, self.layers):
            met = self.back[layer - 1] @ self._eye[place[layer - 1]]
            costs = -met if self.tiers.uniform else met @ self.tiers.price
            place[layer] = self.slot_gpu[linear_sum_assignment(costs[:, self.slot_gpu])[1]]
        return place

    def layer_costs(self, place: Ints, layer: int) -> Floats:
        """Return what each expert of a layer costs on each GPU, given the layers around it, ``[experts, gpus]``."""
        met = np.zeros((self.experts, self.gpus))
        if layer:
            met += self.back[layer - 1] @ self._eye[place[layer - 1]]
        if layer < self.layers - 1:
            met += self.forth[layer] @ self._eye[place[layer + 1]]
        return -met if self.tiers.uniform else met @ self.tiers.price

    def sweep(self, place: Ints) -> Ints:
        """Place each layer exactly given its neighbours, forth and back, until nothing is gained."""
        place, now = place.copy(), self.cost(place)
        order = [*range(self.layers), *range(self.layers - 2, -1, -1)]
        while True:
            for layer in order:
                costs = self.layer_costs(place, layer)
                place[layer] = self.slot_gpu[linear_sum_assignment(costs[:, self.slot_gpu])[1]]
            self.spent[0] += len(order) * (3e-5 + self.experts**2 * (2.5e-8 + 3e-10 * self.gpus))
            before, now = now, self.cost(place)
            if now >= before * (1 - _LOST):
                return place

    def improve(self, places: list[Ints], until: float) -> list[Ints]:
        """Perturb pairs of GPUs in all placements, exchange, keep what is little worse; sweep now and then."""
        turn, begin = 0, self.spent[0]
        while self.spent[0] < until and self.gpus > 1:
            left = 1 - (self.spent[0] - begin) / (until - begin)
            self._exchange(places, _WARM * left)
            turn += 1
            if turn % _ROUNDS == 0:
                places = [self.sweep(place) for place in places]
        return [self.sweep(place) for place in places]

    def _exchange(self, places: list[Ints], warm: float) -> None:
        """One round: pairs of GPUs in every placement; with one price for all, pairs that share no GPU at once."""
        pool = 2 * int(self.slots.max())
        pairs = self.gpus // 2 if self.tiers.uniform else 1
        step = max(1, _MOST_CELLS // (self.layers * pool**2 * pairs))
        for first in range(0, len(places), step):
            some = np.stack(places[first : first + step])
            names = self.rng.permuted(np.tile(np.arange(self.gpus), (len(some), 1)), axis=1)
            chosen = names[:, : 2 * pairs].reshape(-1, 2)
            owner = np.repeat(np.arange(len(some)), pairs)
            members, side = self._members(some[owner], chosen, pool)
            pull, price = None, np.ones(len(chosen))
            if not self.tiers.uniform:
                price = self.tiers.price[chosen[:, 0], chosen[:, 1]]
                pull = np.stack(
                    [
                        self._pull(some[n], pair, who, at, value)
                        for n, pair, who, at, value in zip(owner, chosen, members, side, price, strict=True)
                    ]
                )
            task = PairExchange(self.forth, members, side, price, pull)
            before = task.saved()
            task.perturb(self.rng)
            task.search(self.spent)
            allowed = _LOST * np.abs(before) + warm * self.mean * self.rng.exponential(size=len(before))
            kept = task.saved() >= before - allowed
            at = task.side[:, 1:-1]
            for n in np.flatnonzero(kept):
                layer, slot = np.nonzero(at[n])
                side_of = np.where(at[n, layer, slot] > 0, chosen[n, 0], chosen[n, 1])
                places[first + owner[n]][layer, members[n, layer, slot]] = side_of
            self.spent[0] += len(chosen) * (2e-4 + self.layers * pool**2 * 5e-9)

    def _members(self, places: Ints, chosen: Ints, pool: int) -> tuple[Index, Floats]:
        """Return the experts of each pair ``[pairs, layers, pool]`` and their side, 0 where the pool is not full."""
        here = np.where(places == chosen[:, 0, None, None], 1.0, 0.0)
        here -= places == chosen[:, 1, None, None]
        members = np.argsort(here == 0, axis=2, kind="stable")[:, :, :pool]
        return members, np.take_along_axis(here, members, axis=2)

    def _pull(self, place: Ints, pair: Ints, members: Index, side: Floats, price: float) -> Floats:
        """Return half of what experts save on the pair's first GPU by all other GPUs, ``[layers, pool]``."""
        pull = np.zeros(side.shape)
        for layer in range(self.layers):
            costs = self.layer_costs(place, layer)[members[layer]]
            pull[layer] = (costs[:, pair[1]] - costs[:, pair[0]]) / 2
        for hop, weights in enumerate(self.forth):
            inside = weights[np.ix_(members[hop], members[hop + 1])] * price / 2
            pull[hop] -= inside @ side[hop + 1]
            pull[hop + 1] -= side[hop] @ inside
        self.spent[0] += self.layers * (5e-5 + self.experts**2 * self.gpus * 3e-10)
        kept: Floats = pull * (side != 0)
        return kept

    def cross(self, first: Ints, second: Ints) -> Ints:
        """Take GPUs whole from two answers in turn, those that keep most of what is left; the rest at random."""
        free = np.ones((self.layers, self.experts), dtype=bool)
        place = np.full((self.layers, self.experts), -1, dtype=np.int64)
        unused = np.ones((2, self.gpus), dtype=bool)
        empty = np.ones(self.gpus, dtype=bool)
        for turn in range(self.gpus):
            parent = (first, second)[turn % 2]
            source = int(np.where(unused[turn % 2], self._kept_inside(parent, free), -1.0).argmax())
            unused[turn % 2, source] = False
            # a GPU keeps its name where it can: prices of tiers go by name
            target = source if empty[source] else int(np.flatnonzero(empty)[0])
            empty[target] = False
            taken = free & (parent == source)
            taken &= np.cumsum(taken, axis=1) <= self.slots[target]
            place[taken] = target
            free &= ~taken
        for layer in range(self.layers):
            lacking = self.slots - np.bincount(place[layer][~free[layer]], minlength=self.gpus)
            place[layer, free[layer]] = self.rng.permutation(np.repeat(np.arange(self.gpus), lacking))
        return place

    def _kept_inside(self, place: Ints, free: Bools) -> Floats:
        kept = np.zeros(self.gpus)
        for hop, weights in enumerate(self.forth):
            inside = self._eye[place[hop]] * free[hop][:, None]
            after = self._eye[place[hop + 1]] * free[hop + 1][:, None]
            kept += ((weights @ after) * inside).sum(axis=0)
        self.spent[0] += len(self.forth) * (2e-5 + self.experts**2 * self.gpus * 3e-10)
        return kept

    def search(self, seconds: float) -> Ints:
        """Return the best answer within so much work, in seconds of a core of 2026 as estimated from the sizes."""
        until = self.spent[0] + seconds
        generation = seconds / 12
        found = [min((self.sweep(self.contiguous()), self.sweep(self.chained(self.slot_gpu))), key=self.cost)]
        while len(found) < POPULATION and self.spent[0] < until - seconds * 3 / 4:
            found.append(self.sweep(self.random()))
        found = self._best(self.improve(found, self.spent[0] + generation))
        stale = 0
        while self.spent[0] < until and stale < _STALE and self.gpus > 1:
            best = self.cost(found[0])
            pairs = [self.rng.choice(len(found), 2, replace=len(found) < 2) for _ in range(POPULATION)]
            children = []
            for a, b in pairs:
                if self.spent[0] < until:
                    children.append(self.sweep(self.cross(found[a], found[b])))
            found = self._best(found + self.improve(children, self.spent[0] + generation))
            stale = 0 if self.cost(found[0]) < best * (1 - _LOST) else stale + 1
        return found[0]

    def _best(self, places: list[Ints]) -> list[Ints]:
        """Return the best answers that differ in cost, best first."""
        costs = [self.cost(place) for place in places]
        kept: list[int] = []
        for n in np.argsort(costs, kind="stable"):
            if not kept or costs[n] > costs[kept[-1]] * (1 + _LOST):
                kept.append(int(n))
        return [places[n] for n in kept[:POPULATION]]


def weighted_cost(weights: Floats, place: Ints, tiers: Tiers) -> float:
    """Return the price of all transitions of ``place`` ``[layers, experts]``."""
    total = 0.0
    for step, group in zip(tiers.steps, tiers.groups, strict=True):
        if step:
            at = group[place]
            for hop, here, after in zip(weights, at[:-1], at[1:], strict=True):
                total += float(step) * float(hop[here[:, None] != after[None]].sum())
    return total
