"""How many workers that prefill and that decode find room beside each other, so that neither kind waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.layouts import Sweep
from cost.layouts.candidates import domain_gpus
from cost.serving.cache_path import CachePath
from cost.serving.steady_state import busy_share
from topology.cluster import Cluster

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_ROUNDING = 1e-12
"""Rates that differ by less are rounded."""
_MIN_RATE, _RATE_TRIES = 1e-30, 9
"""A rate in place of none, and tries of a rate, the last above it."""
_PAIR_BLOCK = 1 << 14
"""Pairs looked at at once: many more do not fit a processor's cache."""


@dataclass(frozen=True, eq=False)
class Workers:
    """GPUs and stages of workers, requests that each serves per second, those in a step, and its seconds."""

    gpus: Index | Array
    stages: Index | Array
    requests_per_s: Array
    in_step: Array
    step_s: Array

    @classmethod
    def of(cls, sweep: Sweep, requests: float, path: CachePath, cache_bytes: float) -> Workers:
        """Return the workers of a sweep, ``requests`` done by a sequence's step; each moves its cache over a path."""
        rate = requests * sweep.batch * sweep.gpus / sweep.step_s
        if cache_bytes:
            rate = np.minimum(rate, sweep.gpus * path.bytes_per_s / cache_bytes)
        return cls(sweep.gpus, sweep.stages, rate, sweep.batch * sweep.gpus, sweep.step_s)

    def rows(self, index: Index | slice) -> Workers:
        """Return those at ``index``."""
        return Workers(*(column[index] for column in vars(self).values()))

    @property
    def in_floats(self) -> Workers:
        """The same with whole numbers as floats, which divide several times as fast."""
        return replace(self, gpus=self.gpus.astype(np.float64), stages=self.stages.astype(np.float64))

    @property
    def unbound_per_s(self) -> Array:
        """Requests per second of each where links do not bound it; prompts of several lengths count together."""
        return np.maximum(self.requests_per_s, self.in_step / self.step_s)

    @property
    def group(self) -> Index | Array:
        """GPUs of one stage."""
        return self.gpus // self.stages


@dataclass(frozen=True)
class Room:
    """Domains of equal size, into which groups of GPUs are put: a part of one, or several whole ones."""

    domains: int
    size: int

    @classmethod
    def of(cls, cluster: Cluster) -> Room:
        """Return the room in a cluster: of domains that differ in size those that have most GPUs together."""
        sizes = Counter(len(gpus) for gpus in domain_gpus(cluster))
        size = max(sizes, key=lambda size: (size * sizes[size], size))
        return cls(sizes[size], size)

    @property
    def gpus(self) -> int:
        """GPUs of all domains."""
        return self.domains * self.size

    def most(self, workers: Workers) -> Array:
        """Workers that fit in all of it."""
        return self.beside(np.zeros(workers.gpus.shape), workers, workers)

    def beside(self, count: Array, workers: Workers, neighbours: Workers) -> Array:
        """How many ``neighbours`` fit beside ``count`` ``workers``; negative where those alone do not.

        The workers fill domains one after the other; each may have room left.
        """
        per_domain, wide = self._groups(workers.group)
        groups = count * workers.stages
        full_domains = np.floor(groups / per_domain)
        last_groups = groups - full_domains * per_domain
        free_domains = self.domains - np.where(wide > 1, groups * wide, full_domains + (last_groups > 0))
        begun = np.where(last_groups > 0, self.size - last_groups * workers.group, 0)
        other_each, other_wide = self._groups(neighbours.group)
        over = np.where(
            wide > 1, 0, full_domains * np.floor((self.size - per_domain * workers.group) / neighbours.group)
        )
        beside = free_domains * other_each + np.floor(begun / neighbours.group) + over
        fits = np.where(other_wide > 1, np.floor(free_domains / other_wide), beside)
        return np.where(free_domains < 0, -1, np.floor(fits / neighbours.stages))

    def inside(self, size: int, sizes: Index | Array) -> Index | Array:
        """Groups of sizes ``sizes`` that fit in the GPUs of one of ``size``."""
        per_domain, wide = self._groups(sizes)
        return size // sizes if size <= self.size else size // self.size // wide * per_domain

    def _groups(self, size: Index | Array) -> tuple[Index | Array, Index | Array]:
        """Groups of ``size`` GPUs in a domain, and domains of a group."""
        return np.maximum(1, self.size // size), np.maximum(1, size // self.size)


@dataclass(frozen=True)
class Rooms:
    """The room of both pools, which is one and the same where they share a cluster.

    ``left_over``: GPUs of domains of another size, which no pool is in.
    """

    decode: Room
    prefill: Room
    shared: bool
    left_over: int = 0

    @classmethod
    def of(cls, decode: Cluster, prefill: Cluster, domains: int | None = None) -> Rooms:
        """Return the room in two clusters, which may be one; ``domains``: in as many like the first's instead."""
        if domains is None:
            rooms = cls(Room.of(decode), Room.of(prefill), decode is prefill)
            gpus = len(decode.gpus) + (0 if decode is prefill else len(prefill.gpus))
            return replace(rooms, left_over=gpus - rooms.gpus)
        room = replace(Room.of(decode), domains=domains)
        return cls(room, room, shared=True)

    @property
    def gpus(self) -> int:
        """GPUs that work in all of it, left over ones too."""
        return self.decode.gpus + (0 if self.shared else self.prefill.gpus) + self.left_over

    def left(self, count: Array, decode: Workers, prefill: Workers) -> Array:
        """Prefill workers that fit where there are ``count`` decode workers; negative where those alone do not."""
        if self.shared:
            return self.decode.beside(count, decode, prefill)
        return np.where(count > self.decode.most(decode), -1, self.prefill.most(prefill))


def partners(
    decode: Workers, answer_s: Array, prefill: Workers, kinds: Index, rooms: Rooms
) -> tuple[Index, Array]:
    """Return decode workers of each kind, prefill workers beside them, and of which kind these are, ``[3, decode]``.

    And the requests per second that they serve. Of the ``kinds`` of prefill workers the one with most of those, then
    the one with fewest GPUs. The decode workers are the most that enough prefill workers find room beside, or one
    more, which then waits for prefill. ``answer_s``: seconds of an answer.
    """
    counts, served = np.zeros((3, len(decode.gpus)), dtype=np.int64), np.zeros(len(decode.gpus))
    decode, kinds_of_prefill = decode.in_floats, prefill.rows(kinds[:, None]).in_floats
    block = max(1, _PAIR_BLOCK // max(1, len(kinds)))
    for begin in range(0, len(decode.gpus) if len(kinds) else 0, block):
        part = slice(begin, begin + block)
        counts[:, part], served[part] = _partners(
            decode.rows(part), answer_s[part], kinds_of_prefill, kinds, rooms
        )
    return counts, served


def _partners(
    decode: Workers, answer_s: Array, prefill: Workers, kinds: Index, rooms: Rooms
) -> tuple[Index, Array]:
    """The same, ``prefill`` worker of each kind ``[kinds, 1]``."""
    enough_d, enough_p = _most(decode, answer_s, prefill, rooms)  # [kinds, decode]
    more_p = np.maximum(0, rooms.left(enough_d + 1, decode, prefill))
    count_d, count_p = np.concatenate([enough_d, enough_d + 1]), np.concatenate([enough_p, more_p])
    prefill_twice = prefill.rows(np.tile(np.arange(len(kinds)), 2))
    rate = np.minimum(count_d * decode.requests_per_s, prefilled_per_s(prefill_twice, count_p, answer_s))
    used = count_d * decode.gpus + count_p * prefill_twice.gpus
    best_rate = np.max(rate, axis=0)
    row = np.argmin(np.where(rate >= best_rate * (1 - _ROUNDING), used, np.inf), axis=0)
    column = np.arange(len(row))
    counts = np.stack([count_d[row, column], count_p[row, column], kinds[row % len(kinds)]])
    return np.where(best_rate > 0, counts, 0).astype(np.int64), best_rate


def prefilled_per_s(prefill: Workers, count: Array | Index, answer_s: Array) -> Array:
    """Return requests per second that so many prefill workers finish where they are the slower pool.

    They are busy only as often as requests come; links may allow less.
    """
    always = np.maximum(count * prefill.unbound_per_s, _MIN_RATE)
    busy = always * busy_share(always, answer_s + prefill.step_s, prefill.in_step)
    return np.asarray(np.minimum(count * prefill.requests_per_s, busy) * (1 + _ROUNDING))


def _needed(decoded: Array, prefill: Workers, answer_s: Array) -> Array:
    """Return the fewest prefill workers that finish ``decoded`` requests per second.

    The rate when always busy is the root of ``x = decoded (1 + sqrt(group / (2 x stay)))``; the right side falls, so
    that every second try is above it.
    """
    idle = np.sqrt(prefill.in_step / (2 * (answer_s + prefill.step_s)))
    always = decoded = np.maximum(decoded, _MIN_RATE)
    for _ in range(_RATE_TRIES):
        always = decoded * (1 + idle / np.sqrt(always))
    of_links, of_steps = decoded / prefill.requests_per_s, always / prefill.unbound_per_s
    return np.asarray(np.ceil(np.maximum(of_links, of_steps) * (1 - _ROUNDING)))


def _most(decode: Workers, answer_s: Array, prefill: Workers, rooms: Rooms) -> tuple[Array, Array]:
    """Most decode workers that enough prefill workers find room beside, and how many those are."""
    ratio = decode.requests_per_s / prefill.requests_per_s
    low, high = np.zeros(ratio.shape), np.broadcast_to(rooms.decode.most(decode) + 1, ratio.shape)
    if rooms.shared:  # their GPUs are nearly all in use: what those allow is near
        limit = rooms.gpus / (decode.gpus + ratio * (1 - 2 * _ROUNDING) * prefill.gpus)
        high = np.minimum(high, 1 + np.ceil(limit))
    step = 1
    # `low` workers fit and `high` do not; more workers never leave more room
    while np.any(high - low > 1):
        middle = np.maximum(np.floor((low + high) / 2), high - step)
        free = rooms.left(middle, decode, prefill)
        prefilled = prefilled_per_s(prefill, np.maximum(free, 0), answer_s)
        able = (free >= 0) & (prefilled >= middle * decode.requests_per_s)
        low, high = np.where(able, middle, low), np.where(able, high, middle)
        step *= 2
    count = _needed(low * decode.requests_per_s, prefill, answer_s)
    return low, np.where(low > 0, np.minimum(count, rooms.left(low, decode, prefill)), 0)


def worth_trying(prefill: Workers, able: NDArray[np.bool_], room: Room) -> Index:
    """Return prefill configurations that keep the limit, of equal ones the fastest, without those that others beat.

    A worker is beaten where as many of a smaller one as fit in its GPUs serve no less, in steps of no more prompts:
    smaller ones wait less for prompts to come.
    """
    rows = np.flatnonzero(able)
    able_workers = prefill.rows(rows)
    rows = rows[
        np.lexsort(
            (
                able_workers.step_s,
                able_workers.in_step,
                -able_workers.requests_per_s,
                able_workers.stages,
                able_workers.gpus,
            )
        )
    ]
    worthwhile: list[int] = []
    for index in rows.tolist():
        least = prefill.rows(np.array(worthwhile, dtype=np.int64))
        groups = room.inside(prefill.group[index], least.group) * prefill.stages[index]
        serve = groups // least.stages * least.requests_per_s >= prefill.requests_per_s[index]
        if not np.any(serve & (least.in_step <= prefill.in_step[index])):
            worthwhile.append(index)
    return np.array(worthwhile, dtype=np.int64)
