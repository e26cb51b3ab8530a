"""Copies to slots: largest first onto the least loaded GPU, never two copies of an expert in one failure domain."""

from __future__ import annotations

import numpy as np

from placement.arrays import Bools, Experts, Floats, Index, Ints, falling
from placement.experts.problem import Problem

EMPTY = -1  # a slot that holds nothing yet


def pack(problem: Problem, copies: Ints) -> Experts:
    """Place ``copies`` ``[layers, experts]`` and return the expert of each slot, int32 ``[layers, slots]``.

    All layers at once; copies go by falling load per copy, the copies of one expert together, each to the GPU
    that would be done first. Where every GPU with a free slot is in a failure domain that holds the expert,
    :func:`make_room` moves others. Ties: the lowest id.

    Raises
    ------
    ValueError
        If the counts cannot be placed (:meth:`Problem.counts_fit` is false).
    """
    order = in_order(problem, copies)
    packing = _Packing(problem, problem.mean / copies, order)
    for turn in range(packing.first_round(), problem.slots):
        packing.put(turn)
    return packing.slot_expert


def in_order(problem: Problem, copies: Ints) -> Ints:
    """Return the expert of each copy by falling load per copy, ``[layers, slots]``, its copies together."""
    order = falling(problem.mean / copies)
    counts = np.take_along_axis(copies, order, axis=1)
    return np.repeat(order.ravel(), counts.ravel()).reshape(problem.layers, -1)


class _Packing:
    """What has been placed so far, in all layers; tables of GPUs are flat, ``[layers * GPUs]``, layer by layer."""

    def __init__(self, problem: Problem, share: Floats, order: Ints) -> None:
        layers, gpus = problem.layers, problem.gpus
        self.problem = problem
        self.share = share
        self.rows = np.arange(layers)
        self.first = self.rows * gpus
        self.order = np.ascontiguousarray(order.T)  # [slots, layers]: the expert of each turn
        self.size = np.ascontiguousarray(np.take_along_axis(share, order, axis=1).T)
        self.again = np.zeros((problem.slots + 1, layers), dtype=bool)  # whether its expert came just before
        self.again[1:-1] = self.order[1:] == self.order[:-1]
        self.crowded = np.any(self.again, axis=1).tolist()
        self.slot_expert = np.full((layers, problem.slots), EMPTY, dtype=np.int32)
        self.slot = (self.rows[:, None] * problem.slots + problem.first_slot[:-1]).reshape(-1)  # the next
        self.free = np.tile(problem.slots_per_gpu, layers)
        self.alone = problem.each_alone
        # Which domain has which number matters to nobody: alone, a GPU's is its own.
        self.domain = np.arange(gpus) if self.alone else problem.failure_domain
        self.alike = problem.equal_speeds
        # The load of a GPU that can still take a copy; infinite where it is full.
        self.key = np.where(self.free > 0, 0.0, np.inf)
        # The domains that hold the expert whose turn it is; kept where it comes again.
        self.held = np.zeros((layers, int(self.domain.max()) + 1), dtype=bool)

    def first_round(self) -> int:
        """Put the largest copies one on each GPU where all are as fast; return how many.

        The largest go where there are fewest slots: less comes to sit beside them.
        """
        problem = self.problem
        if not (self.alone and self.alike):
            return 0
        by_slots = np.argsort(problem.slots_per_gpu, kind="stable")
        gpus = by_slots[problem.slots_per_gpu[by_slots] > 0]
        placed = int(gpus.size)
        first = self.order[:placed].T
        self.slot_expert[:, problem.first_slot[gpus]] = first
        at = (self.first[:, None] + gpus).reshape(-1)
        self.slot[at] += 1
        self.free[at] -= 1
        self.key[at] = np.where(self.free[at] == 0, np.inf, self.size[:placed].T.reshape(-1))
        self.held[:, gpus] = first == first[:, -1:]
        return placed

    def put(self, turn: int) -> None:
        """Place the next copy of each layer."""
        problem, expert, size = self.problem, self.order[turn], self.size[turn]
        key = self.key.reshape(self.rows.size, -1)
        if not self.alike:
            key = (key + size[:, None]) / problem.speed
        if self.crowded[turn]:
            self.held[~self.again[turn]] = False
            key = np.where(self.held if self.alone else self.held[:, self.domain], np.inf, key)
        gpu = key.argmin(axis=1)
        if self.crowded[turn]:
            for row in self.rows[np.isinf(key[self.rows, gpu])]:
                gpu[row] = make_room(problem, self.slot_expert[row], int(expert[row]))
                self._count(int(row))
        if self.crowded[turn + 1]:
            if not self.crowded[turn]:
                self.held[:] = False
            self.held[self.rows, self.domain[gpu]] = True
        gpu += self.first
        slot, free = self.slot[gpu], self.free[gpu] - 1
        self.slot_expert.reshape(-1)[slot] = expert
        self.slot[gpu], self.free[gpu] = slot + 1, free
        self.key[gpu] = np.where(free == 0, np.inf, self.key[gpu] + size)

    def _count(self, row: int) -> None:
        """Count the copies on each GPU of one layer, and sum its load, again."""
        problem = self.problem
        here = slice(row * problem.gpus, (row + 1) * problem.gpus)
        filled = self.slot_expert[row] != EMPTY
        on = problem.slot_gpu[filled]
        fill = np.bincount(on, minlength=problem.gpus)
        load = np.bincount(on, weights=self.share[row, self.slot_expert[row, filled]], minlength=problem.gpus)
        self.slot[here] = row * problem.slots + problem.first_slot[:-1] + fill
        self.free[here] = problem.slots_per_gpu - fill
        self.key[here] = np.where(self.free[here] > 0, load, np.inf)


def make_room(problem: Problem, slot_expert: Experts, expert: int) -> int:
    """Free a slot in a failure domain that does not hold ``expert``, and return its GPU.

    ``slot_expert`` ``[slots]`` is one layer, changed in place: each GPU's copies stay in its first slots.
    Copies move along a shortest chain of domains, each move to a domain without that expert. Such a chain
    exists whenever the counts so far and one more of ``expert`` can be placed at all: it is an augmenting path
    of the flow from experts to domains. Where the slots of domains differ by one at most, one move is enough: a
    full domain without ``expert`` holds at least as many experts as one with a free slot, and so one that the
    other lacks.

    Raises
    ------
    ValueError
        If there is no such chain.
    """
    slots = problem.domain_slots
    holds = np.zeros((slots.size, problem.experts), dtype=bool)
    filled = slot_expert != EMPTY
    holds[problem.failure_domain[problem.slot_gpu[filled]], slot_expert[filled]] = True
    free = holds.sum(axis=1) < slots
    came_from: dict[
        int, tuple[int, int]
    ] = {}  # domain -> (previous domain, expert that would move from there)
    seen = ~holds[:, expert] & (slots > 0)
    frontier = [int(domain) for domain in np.flatnonzero(seen)]
    for domain in frontier:  # grows while it is read: breadth first
        if free[domain]:
            return _shift(problem, slot_expert, came_from, domain)
        for moved in np.flatnonzero(holds[domain]):
            fresh = np.flatnonzero(~holds[:, moved] & ~seen & (slots > 0))
            seen[fresh] = True
            came_from.update((int(other), (domain, int(moved))) for other in fresh)
            frontier.extend(int(other) for other in fresh)
    raise ValueError(f"no legal slot for another copy of expert {expert}")


def _shift(problem: Problem, slot_expert: Experts, came_from: dict[int, tuple[int, int]], domain: int) -> int:
    """Move copies back along the chain that ends at ``domain``; return a GPU with room where it starts."""
    while domain in came_from:
        source, moved = came_from[domain]
        slot_expert[_empty_slot(problem, slot_expert, domain)] = moved
        _remove(problem, slot_expert, source, moved)
        domain = source
    return int(problem.slot_gpu[_empty_slot(problem, slot_expert, domain)])


def _slots_of(problem: Problem, domain: int) -> Index:
    return np.flatnonzero(problem.failure_domain[problem.slot_gpu] == domain)


def _empty_slot(problem: Problem, slot_expert: Experts, domain: int) -> int:
    here = _slots_of(problem, domain)
    return int(here[np.argmax(slot_expert[here] == EMPTY)])


def _remove(problem: Problem, slot_expert: Experts, domain: int, expert: int) -> None:
    """Take ``expert`` out of ``domain``; the last copy of its GPU comes into its slot."""
    here = _slots_of(problem, domain)
    slot = int(here[np.argmax(slot_expert[here] == expert)])
    gpu = int(problem.slot_gpu[slot])
    mine = slot_expert[problem.first_slot[gpu] : problem.first_slot[gpu + 1]]
    last = int(problem.first_slot[gpu] + (mine != EMPTY).sum()) - 1
    slot_expert[slot] = slot_expert[last]
    slot_expert[last] = EMPTY


def distinct_copies(problem: Problem, slot_expert: Experts) -> tuple[Experts, Bools]:
    """Return ``[layers, slots]`` without two copies in one failure domain, counts unchanged, and where that fits.

    A layer with more copies of an expert than domains (or counts that fit the slots in no other way) is returned
    as it came, and False in the second array ``[layers]``.
    """
    fits = problem.counts_fit(problem.assignment(slot_expert).copies)
    repaired = slot_expert.astype(np.int32)
    for layer in np.flatnonzero(fits & ~problem.apart(repaired)):
        _repair(problem, repaired[layer])
    return repaired, fits


def _repair(problem: Problem, row: Experts) -> None:
    """Take the second copies out of one layer, in place, and put each where its expert is not yet."""
    domain = problem.failure_domain[problem.slot_gpu]
    seen: set[tuple[int, int]] = set()
    taken: list[int] = []
    for slot, expert in enumerate(row.tolist()):
        where = int(domain[slot]), expert
        if where in seen:
            taken.append(expert)
            row[slot] = EMPTY
        seen.add(where)
    for gpu in range(problem.gpus):  # each GPU's copies stay in its first slots
        here = row[problem.first_slot[gpu] : problem.first_slot[gpu + 1]]
        here[:] = here[np.argsort(here == EMPTY, kind="stable")]
    for expert in sorted(taken):
        gpu = make_room(problem, row, expert)
        here = row[problem.first_slot[gpu] : problem.first_slot[gpu + 1]]
        here[np.argmax(here == EMPTY)] = expert
