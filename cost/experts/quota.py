"""Quota slots: copies of hot experts that are fetched for one batch, and how its tokens are split over all copies.

UltraEP (arXiv 2606.04101, release 1.0.0) counts the tokens of every expert once a layer has routed a micro-batch,
copies experts from their fixed *masters* into slots that every GPU keeps free, and gives each copy a quota of tokens.
A level is bisected: GPUs above it hand off what is too much to GPUs below it, and each slot takes one expert. Here an
expert may have several fixed copies: tokens are first split over those so that no GPU can be relieved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.experts.assignment import Assignment, numbered, sum_by_gpu

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_HALVINGS = 12
"""Of the distance between the least level and the one without quota slots: a level is found to 1/4,096 of that."""
TOLERANCE = 0.0025
"""Above the mean load a level is good enough (``ULTRA_EP_QUOTA_ORACLE_EPS``, by default .01). On loads left out,
32 GPUs of 8 + 1 slots, 0 balances to .9924 with 2.4 copies on the busiest GPU, .0025 to .9919 with 2.2, .01 to .9876
with 1.8; with 9 + 1 slots these are 7.5, 2.1 and .6 copies."""
_SWEEPS, _SETTLED_CHANGE = 60, 1e-9
"""Most rounds in which each expert's tokens are split anew, and the change over mean load at which they end."""
_MAX_CELLS = 1 << 25
"""Numbers ``[layers, experts, GPUs]`` held at once."""


@dataclass(frozen=True, eq=False)
class FilledQuota:
    """An assignment with its quota slots as one batch fills them.

    Attributes
    ----------
    assignment:
        The fixed copies, and after those of a GPU its quota slots; an empty one names an expert that the GPU holds.
    shares:
        Fraction of its expert's load that each slot takes, ``[layers, slots]``; 0 of an empty one.
    quota:
        Quota slots of each GPU that holds experts.
    busiest:
        Copies that the GPU sends or receives that sends or receives most, ``[layers]``; the fixed copies of an expert
        send equal parts.
    """

    assignment: Assignment
    shares: Floats
    quota: int
    busiest: Floats


def fill_quota(
    assignment: Assignment,
    load: Floats,
    quota: int,
    speed: Floats | None = None,
    place: Ints | None = None,
) -> FilledQuota:
    """Fill ``quota`` slots a GPU for the exact ``load`` ``[layers, experts]``; each layer is a batch of its own.

    The largest load over speed is never above that of the best split over the fixed copies
    (:func:`cost.experts.best_split.lp_level`), but for what :data:`_SWEEPS` leave, nor that with fewer slots.

    Parameters
    ----------
    speed:
        Relative speed of each GPU, ``[gpus]``; None: all equal.
    place:
        Scale-up domain of each GPU, ``[gpus]``: copies are fetched within one. None: all GPUs are in one.
    """
    pace = np.ones(assignment.gpus) if speed is None else speed
    where = np.zeros(assignment.gpus, dtype=np.int64) if place is None else numbered(place)
    size = max(1, _MAX_CELLS // (assignment.experts * assignment.gpus))
    parts = [
        _Batches(assignment, slice(start, start + size), load, pace, where)
        for start in range(0, assignment.layers, size)
    ]
    for part in parts:
        part.fill(quota)
    expert, amount, fixed, busiest = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("expert", "amount", "slot_load", "busiest")
    )
    holds = assignment.slots_per_gpu > 0
    slot_gpu = np.concatenate((assignment.slot_gpu, np.repeat(np.flatnonzero(holds), quota)))
    order = np.argsort(slot_gpu, kind="stable")
    first_slot = np.searchsorted(assignment.slot_gpu, np.flatnonzero(holds))
    resident = np.repeat(assignment.slot_expert[:, first_slot], quota, axis=1)
    copied = expert[:, holds].reshape(resident.shape)
    slot_expert = np.concatenate((assignment.slot_expert, np.where(copied < 0, resident, copied)), axis=1)
    slot_load = np.concatenate((fixed, amount[:, holds].reshape(resident.shape)), axis=1)
    of_slot = np.take_along_axis(load, slot_expert, axis=1)
    even = 1.0 / np.take_along_axis(assignment.copies, assignment.slot_expert.astype(np.int64), axis=1)
    unused = np.concatenate((even, np.zeros(resident.shape)), axis=1)
    shares = np.where(of_slot > 0, slot_load / np.where(of_slot > 0, of_slot, 1.0), unused)
    filled = Assignment(
        slot_expert[:, order].astype(np.int32),
        slot_gpu[order].astype(np.int32),
        assignment.experts,
        assignment.gpus,
    )
    return FilledQuota(filled, shares[:, order], quota, busiest)


def fill_scenarios(
    assignment: Assignment, loads: Floats, quota: int, speed: Floats | None = None, place: Ints | None = None
) -> FilledQuota:
    """As :func:`fill_quota`, for ``loads`` ``[scenarios, layers, experts]``: rows of a scenario after each other."""
    rows = np.tile(assignment.slot_expert, (len(loads), 1))
    repeated = Assignment(rows, assignment.slot_gpu, assignment.experts, assignment.gpus)
    return fill_quota(repeated, loads.reshape(-1, assignment.experts), quota, speed, place)


class _Batches:
    """Some layers, each with the load of one batch.

    Attributes
    ----------
    slot_load:
        Load of each fixed slot, ``[layers, slots]``.
    expert, amount:
        What each quota slot of each GPU copies, and the load that it takes, ``[layers, gpus, quota]``; -1: nothing.
    busiest:
        As of :class:`FilledQuota`.
    """

    def __init__(
        self, assignment: Assignment, layers: slice, load: Floats, pace: Floats, place: Ints
    ) -> None:
        self.experts = assignment.experts
        self.slot_expert = assignment.slot_expert[layers].astype(np.int64)
        self.slot_gpu, self.pace, self.place = assignment.slot_gpu, pace, place
        self.row = np.arange(len(self.slot_expert))
        self.held = np.zeros((self.row.size, self.experts, pace.size), dtype=bool)
        self.held[self.row[:, None], self.slot_expert, self.slot_gpu] = True
        self.holders = np.zeros((self.row.size, self.experts, int(place.max()) + 1), dtype=np.int64)
        for gpu, domain in enumerate(place.tolist()):
            self.holders[:, :, domain] += self.held[:, :, gpu]
        self.slot_load = self._split(load[layers])
        self.holds = assignment.slots_per_gpu > 0

    def fill(self, quota: int) -> None:
        """Fill the slots, at a level as low as one, two, .. of them on each GPU allow."""
        shape = self.row.size, self.pace.size, quota
        self.expert, self.amount = np.full(shape, -1), np.zeros(shape)
        start_load = self.slot_load
        busy = sum_by_gpu(start_load, self.slot_gpu, self.pace.size)
        least = busy.sum(axis=1) / self.pace[self.holds].sum() * (1 + TOLERANCE)
        level = (busy / self.pace).max(axis=1)
        for slots in range(1, quota + 1):
            low = np.minimum(least, level)
            for _ in range(_HALVINGS):
                tried = (low + level) / 2
                done, slot_load, expert, amount = self._hand_off(start_load, busy, tried, slots)
                level, low = np.where(done, tried, level), np.where(done, low, tried)
                self.slot_load = np.where(done[:, None], slot_load, self.slot_load)
                self.expert[done], self.amount[done] = -1, 0.0
                self.expert[done, :, :slots], self.amount[done, :, :slots] = expert[done], amount[done]
        self.busiest = self._busiest()

    def _hand_off(
        self, slot_load: Floats, busy: Floats, level: Floats, slots: int
    ) -> tuple[NDArray[np.bool_], Floats, Ints, Floats]:
        """Hand off what is above ``level`` ``[layers]`` to ``slots`` a GPU.

        In turn the GPU that is most above it hands off its hottest expert to the GPU that has most room. Returned are
        whether all could be, the load that fixed slots keep, and what the others copy and take.
        """
        slot_load, room = slot_load.copy(), level[:, None] * self.pace - busy
        offered = np.where(room[:, self.slot_gpu] < 0, slot_load, 0.0)
        open_slots = np.where(self.holds, slots, 0) + np.zeros_like(room, dtype=np.int64)
        expert, amount = np.full((*room.shape, slots), -1), np.zeros((*room.shape, slots))
        barred, enough = self.held.copy(), 1e-12 * level
        barred |= self.holders[:, :, self.place] == 0
        done = np.zeros(level.size, dtype=bool)
        live = self.row
        while live.size:
            source = np.argmin(room[live], axis=1)
            excess = -room[live, source]
            done[live[excess <= enough[live]]] = True
            offers = np.where(self.slot_gpu == source[:, None], offered[live], 0.0)
            slot = np.argmax(offers, axis=1)
            on = ~done[live] & (offers[np.arange(live.size), slot] > 0)
            live, source, excess, slot = live[on], source[on], excess[on], slot[on]
            copied = self.slot_expert[live, slot]
            free = np.where((open_slots[live] > 0) & ~barred[live, copied], room[live], 0.0)
            target = np.argmax(free, axis=1)
            demand = np.minimum(excess, offered[live, slot])
            moved = np.minimum(demand, free[np.arange(live.size), target])
            none = moved <= enough[live]
            offered[live[none], slot[none]] = 0.0
            row, target, slot, moved, copied = (
                values[~none] for values in (live, target, slot, moved, copied)
            )
            at = slots - open_slots[row, target]
            expert[row, target, at], amount[row, target, at] = copied, moved
            open_slots[row, target] -= 1
            barred[row, copied, target] = True
            room[row, target] -= moved
            room[row, source[~none]] += moved
            slot_load[row, slot] -= moved
            offered[row, slot] -= moved
        return done, slot_load, expert, amount

    def _busiest(self) -> Floats:
        row, gpu, slot = np.nonzero(self.expert >= 0)
        fetched = np.zeros(self.holders.shape)
        np.add.at(fetched, (row, self.expert[row, gpu, slot], self.place[gpu]), 1.0)
        parts = fetched / np.maximum(self.holders, 1)
        sent = (self.held * parts[:, :, self.place]).sum(axis=1)
        busiest: Floats = np.maximum(sent, (self.expert >= 0).sum(axis=2)).max(axis=1)
        return busiest

    def _split(self, load: Floats) -> Floats:
        """Split the loads over the fixed copies so that none can leave for a GPU that is less busy.

        In turn each expert with several copies fills their GPUs to one level. The sum of squares of busy time, which
        is convex, falls to its minimum, where the largest is as small as can be too.
        """
        gpus = self.pace.size
        copies = self.held.sum(axis=2)
        key = self.slot_expert * gpus + self.slot_gpu
        order = np.argsort(key, axis=1, kind="stable")
        ranked = np.take_along_axis(key, order, axis=1)
        repeated = np.zeros(key.shape, dtype=bool)  # a second copy on a GPU takes nothing
        repeated[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
        share = np.where(
            repeated, 0.0, np.take_along_axis(load / np.maximum(copies, 1), ranked // gpus, axis=1)
        )
        slot_load = np.empty_like(share)
        np.put_along_axis(slot_load, order, share, axis=1)
        order = np.take_along_axis(order, np.argsort(repeated, axis=1, kind="stable"), axis=1)
        busy = sum_by_gpu(slot_load, self.slot_gpu, gpus)
        turns = [*self._turns(copies, order)]
        for _ in range(_SWEEPS if turns else 0):
            change = 0.0
            for row, slot in turns:
                gpu, load_before = self.slot_gpu[slot], slot_load[row, slot]
                moved = (
                    _level_off(busy[row, gpu] - load_before, self.pace[gpu], load_before.sum(axis=1))
                    - load_before
                )
                busy[row, gpu] += moved
                slot_load[row, slot] += moved
                change = max(change, float(np.abs(moved).max()))
            if change <= _SETTLED_CHANGE * float(busy.mean()):
                break
        return slot_load

    def _turns(self, copies: Ints, order: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield rows and the slots of an expert with several copies in each, those with most first."""
        first_slot = np.cumsum(copies, axis=1) - copies
        by_copies = np.argsort(-copies, axis=1, kind="stable")
        for turn in range(int((copies > 1).sum(axis=1).max(initial=0))):
            expert = by_copies[:, turn]
            copies_of = copies[self.row, expert]
            for count in np.unique(copies_of[copies_of > 1]).tolist():
                row = self.row[copies_of == count][:, None]
                yield row, order[row, first_slot[row, expert[row]] + np.arange(count)]


def _level_off(base_load: Floats, pace: Floats, load: Floats) -> Floats:
    """Return what GPUs with ``base_load`` take of ``load`` ``[rows]`` to be level, ``[rows, copies]``."""
    start = base_load / pace
    order = np.argsort(start, axis=1, kind="stable")
    begin, speed = np.take_along_axis(start, order, axis=1), np.take_along_axis(pace, order, axis=1)
    level = (load[:, None] + np.cumsum(speed * begin, axis=1)) / np.cumsum(speed, axis=1)
    next_start = np.concatenate((begin[:, 1:], np.full((len(begin), 1), np.inf)), axis=1)
    reached = np.take_along_axis(level, np.argmax(level <= next_start, axis=1)[:, None], axis=1)
    load_share: Floats = np.maximum(0.0, reached - start) * pace
    return load_share
