"""Copies to slots: largest first onto the least loaded GPU, never two copies of an expert in one failure domain."""

from __future__ import annotations

import numpy as np

from placement.arrays import Bools, Experts, Floats, Index, Ints
from placement.problem import Problem

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
    packing = _Packing(problem, problem.mean / copies)
    order = in_order(problem, copies)
    start = packing.first_round(order)
    again = np.zeros(order.shape, dtype=bool)
    again[:, 1:] = order[:, 1:] == order[:, :-1]
    if start:
        packing.hold_last(order, start)
    crowded = np.atleast_1d(again.any(axis=0))
    for i in range(start, problem.slots):
        packing.put(order[:, i], again[:, i] if crowded[i] else None)
    return packing.slot_expert


def in_order(problem: Problem, copies: Ints) -> Ints:
    """Return the expert of each copy by falling load per copy, ``[layers, slots]``, its copies together."""
    order = np.argsort(-(problem.mean / copies), axis=1, kind="stable")
    counts = np.take_along_axis(copies, order, axis=1)
    return np.repeat(order.ravel(), counts.ravel()).reshape(problem.layers, -1)


class _Packing:
    """What has been placed so far, in all layers."""

    def __init__(self, problem: Problem, share: Floats) -> None:
        self.problem = problem
        self.share = share
        self.rows = np.arange(problem.layers)
        self.slot_expert = np.full((problem.layers, problem.slots), EMPTY, dtype=np.int32)
        self.fill = np.zeros((problem.layers, problem.gpus), dtype=np.int64)
        self.alone = problem.each_alone
        # Which domain has which number matters to nobody: alone, a GPU's is its own.
        self.domain = np.arange(problem.gpus) if self.alone else problem.failure_domain
        self.alike = problem.equal_speeds
        # The load of a GPU that can still take a copy; infinite where it is full.
        self.key = np.tile(np.where(problem.slots_per_gpu > 0, 0.0, np.inf), (problem.layers, 1))
        # The domains that hold the expert whose turn it is.
        self.held = np.zeros((problem.layers, int(self.domain.max()) + 1), dtype=bool)

    def first_round(self, order: Ints) -> int:
        """Put the largest copies one on each GPU where all are as fast; return how many.

        The largest go where there are fewest slots: less comes to sit beside them.
        """
        problem = self.problem
        if not (self.alone and self.alike):
            return 0
        gpus = self._by_slots()
        first = order[:, : gpus.size]
        self.slot_expert[:, problem.first_slot[gpus]] = first
        self.fill[:, gpus] = 1
        load = np.take_along_axis(self.share, first, axis=1)
        self.key[:, gpus] = np.where(problem.slots_per_gpu[gpus] == 1, np.inf, load)
        return int(gpus.size)

    def hold_last(self, order: Ints, placed: int) -> None:
        """Mark the GPUs that hold the expert of the last copy placed."""
        gpus = self._by_slots()
        self.held[:, gpus] = order[:, :placed] == order[:, placed - 1 : placed]

    def _by_slots(self) -> Index:
        by_slots = np.argsort(self.problem.slots_per_gpu, kind="stable")
        used: Index = by_slots[self.problem.slots_per_gpu[by_slots] > 0]
        return used

    def put(self, expert: Ints, again: Bools | None) -> None:
        """Place the next copy of each layer; ``again`` marks layers where its expert came just before."""
        problem, rows = self.problem, self.rows
        weight = self.share[rows, expert]
        key = self.key if self.alike else (self.key + weight[:, None]) / problem.speed
        if again is None:
            self.held[:] = False
        else:
            self.held[~again] = False
            key = np.where(self.held if self.alone else self.held[:, self.domain], np.inf, key)
        gpu = np.argmin(key, axis=1)
        for row in rows[np.isinf(key[rows, gpu])]:
            gpu[row] = make_room(problem, self.slot_expert[row], int(expert[row]))
            self.fill[row], self.key[row] = _state(problem, self.slot_expert[row], self.share[row])
        fill = self.fill[rows, gpu]
        self.slot_expert[rows, problem.first_slot[gpu] + fill] = expert
        self.fill[rows, gpu] = fill + 1
        self.held[rows, self.domain[gpu]] = True
        full = fill + 1 == problem.slots_per_gpu[gpu]
        self.key[rows, gpu] = np.where(full, np.inf, self.key[rows, gpu] + weight)


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
    raise ValueError(f"no legal place for another copy of expert {expert}: its count does not fit the slots")


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


def _state(problem: Problem, slot_expert: Experts, share: Floats) -> tuple[Ints, Floats]:
    """Count the copies on each GPU, and sum its load (infinite where it is full), of one layer."""
    filled = slot_expert != EMPTY
    on = problem.slot_gpu[filled]
    fill = np.bincount(on, minlength=problem.gpus)
    load = np.bincount(on, weights=share[slot_expert[filled]], minlength=problem.gpus)
    return fill, np.where(fill < problem.slots_per_gpu, load, np.inf)


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
