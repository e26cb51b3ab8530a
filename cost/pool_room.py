"""How many workers that prefill and that decode find room beside each other, so that neither kind waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.cache_path import CachePath
from cost.layouts import Sweep
from cost.layouts.arrays import expand, numbered, pairs
from cost.layouts.candidates import domain_gpus
from topology.base.errors import InputError
from topology.cluster import Cluster

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_ALIKE = 1e-12
"""Rates that differ by less are rounded."""


@dataclass(frozen=True, eq=False)
class Workers:
    """GPUs and stages of workers, and requests that each serves per second."""

    gpus: Index
    stages: Index
    requests_per_s: Array

    @classmethod
    def of(cls, sweep: Sweep, requests: float, moved: tuple[CachePath, float]) -> Workers:
        """Return the workers of a sweep, ``requests`` done by a sequence's step; each moves bytes over a path."""
        path, count = moved
        rate = requests * sweep.batch * sweep.gpus / sweep.step_s
        if count:
            rate = np.minimum(rate, sweep.gpus * path.bytes_per_s / count)
        return cls(sweep.gpus, sweep.stages, rate)

    def some(self, index: Index | int | slice) -> Workers:
        """Return those at ``index``."""
        return Workers(self.gpus[index], self.stages[index], self.requests_per_s[index])

    @property
    def group(self) -> Index:
        """GPUs of one stage."""
        return self.gpus // self.stages


@dataclass(frozen=True)
class _Room:
    """Domains of equal size, into which groups of GPUs are put: a part of one, or several whole ones."""

    domains: int
    size: int

    @classmethod
    def of(cls, cluster: Cluster) -> _Room:
        sizes = [len(gpus) for gpus in domain_gpus(cluster)]
        if len(set(sizes)) > 1:
            raise InputError(
                f"rate matching: the domains of {cluster.name} have {min(sizes)} to {max(sizes)} GPUs; give whole "
                "domains of one size, like name@N."
            )
        return cls(len(sizes), sizes[0])

    @property
    def gpus(self) -> int:
        return self.domains * self.size

    def most(self, workers: Workers) -> Index:
        """Workers that fit in all of it."""
        none = np.zeros_like(np.asarray(workers.gpus))
        return np.asarray(self.beside(none, workers, workers))

    def beside(self, count: Index, workers: Workers, others: Workers) -> Index:
        """How many ``others`` fit beside ``count`` ``workers``; negative where those alone do not.

        The workers fill domains one after the other; the last of them may have room left.
        """
        each, wide = self._groups(workers.group)
        groups = count * workers.stages
        whole, rest = groups // each, groups % each
        domains = np.where(wide > 1, groups * wide, whole + (rest > 0))
        left = self.domains - domains
        begun = np.where(rest > 0, self.size - rest * workers.group, 0)
        other_each, other_wide = self._groups(others.group)
        fits = np.where(other_wide > 1, left // other_wide, left * other_each + begun // others.group)
        return np.where(left < 0, -1, fits // others.stages)

    def _groups(self, size: Index) -> tuple[Index, Index]:
        """Groups of ``size`` GPUs in a domain, and domains of a group."""
        return np.maximum(1, self.size // size), np.maximum(1, size // self.size)


@dataclass(frozen=True)
class Rooms:
    """The room of both pools, which is one and the same where they share a cluster."""

    decode: _Room
    prefill: _Room
    shared: bool

    @classmethod
    def of(cls, decode: Cluster, prefill: Cluster, domains: int | None = None) -> Rooms:
        """Return the room in two clusters, which may be one; ``domains``: in as many like the first's instead."""
        if domains is None:
            return cls(_Room.of(decode), _Room.of(prefill), decode is prefill)
        one = replace(_Room.of(decode), domains=domains)
        return cls(one, one, shared=True)

    @property
    def gpus(self) -> int:
        """GPUs that work in all of it."""
        return self.decode.gpus if self.shared else self.decode.gpus + self.prefill.gpus

    def left(self, count: Index, decode: Workers, prefill: Workers) -> Index:
        """Prefill workers that fit where there are ``count`` decode workers; negative where those alone do not."""
        if self.shared:
            return self.decode.beside(count, decode, prefill)
        return np.where(count > self.decode.most(decode), -1, self.prefill.most(prefill))


def partners(decode: Workers, prefill: Workers, tried: Sequence[int], rooms: Rooms) -> Index:
    """Decode workers of each kind, prefill workers beside them, and of which kind these are, ``[3, decode]``.

    Of the kinds in ``tried`` the one with most requests per second, then the one with fewest GPUs. The decode workers
    are the most that enough prefill workers find room beside, or one more, which then waits for prefill.
    """
    kinds = np.asarray(tried, dtype=np.int64)
    if not len(kinds):
        return np.zeros((3, len(decode.gpus)), dtype=np.int64)
    one = prefill.some(kinds[:, None])
    highest = rooms.decode.most(decode) + 1
    left_of = _left(decode, one, rooms, highest)
    found = np.zeros((3, len(decode.gpus)), dtype=np.int64)
    for begin in range(0, len(decode.gpus), block := max(1, _BLOCK // len(kinds))):
        part = slice(begin, begin + block)
        found[:, part] = _partners(decode.some(part), one, kinds, left_of(part), highest[part])
    return found


def _partners(
    decode: Workers, one: Workers, kinds: Index, left: Callable[[Index], Index], highest: Index
) -> Index:
    """The same for some of the decode workers, ``one`` worker of each kind."""
    enough_d, enough_p = _most(decode, one, left, highest)  # [tried, decode]
    more_d, more_p = enough_d + 1, np.maximum(0, left(enough_d + 1))
    count_d, count_p = np.stack([enough_d, more_d]), np.stack([enough_p, more_p])
    rate = served_per_s(decode, one, count_d, count_p).reshape(-1, len(decode.gpus))
    used = (count_d * decode.gpus + count_p * one.gpus).reshape(rate.shape)
    most = np.max(rate, axis=0)
    row = np.argmin(np.where(rate >= most * (1 - _ALIKE), used, np.iinfo(np.int64).max), axis=0)
    column = np.arange(len(row))
    found = [count.reshape(rate.shape)[row, column] for count in (count_d, count_p)]
    return np.where(most > 0, np.stack([*found, kinds[row % len(kinds)]]), 0)


def served_per_s(decode: Workers, prefill: Workers, count_d: Index, count_p: Index) -> Array:
    """Requests per second of so many workers of both pools: those of the slower pool."""
    return np.minimum(count_d * decode.requests_per_s, count_p * prefill.requests_per_s * (1 + _ALIKE))


_MOST_COUNTED = 1 << 22
"""Numbers of workers for which what is left beside them is found beforehand, over all sizes of workers."""


_BLOCK = 1 << 16
"""Pairs looked at at once: many more do not fit a processor's cache."""


def _left(
    decode: Workers, prefill: Workers, rooms: Rooms, highest: Index
) -> Callable[[slice], Callable[[Index], Index]]:
    """Return what finds how many of the ``prefill`` workers, ``[tried, 1]``, fit beside numbers ``[tried, decode]``.

    It is made for a part of the decode workers; numbers go up to ``highest``. Room depends on sizes alone, of which
    there are few: it is looked up, unless the numbers are too many.
    """
    size = numbered(pairs(decode.gpus, decode.stages))[1]
    sample = np.zeros(int(size.max(initial=-1)) + 1, dtype=np.int64)
    sample[size] = np.arange(len(size))
    many = highest[sample] + 1
    if many.sum() * len(prefill.gpus) > _MOST_COUNTED:
        return lambda part: lambda count: rooms.left(count, decode.some(part), prefill)
    first = np.cumsum(many) - many
    owner, place = expand(first, many, np.arange(len(sample)))
    table = rooms.left(place - first[owner], decode.some(sample[owner]), prefill)
    flat = np.ascontiguousarray(np.broadcast_to(table, (len(prefill.gpus), len(place)))).reshape(-1)
    row = len(place) * np.arange(len(prefill.gpus))[:, None]

    def found(part: slice) -> Callable[[Index], Index]:
        start = first[size[part]] + row
        return lambda count: flat[start + count]

    return found


def _most(
    decode: Workers, prefill: Workers, left: Callable[[Index], Index], highest: Index
) -> tuple[Index, Index]:
    """Most decode workers that enough prefill workers find room beside, and how many those are."""

    def needed(count: Index) -> Array:
        wanted = count * decode.requests_per_s / prefill.requests_per_s
        return np.asarray(np.ceil(wanted * (1 - _ALIKE)))

    shape = np.broadcast_shapes(decode.gpus.shape, prefill.gpus.shape)
    low = np.zeros(shape, dtype=np.int64)
    high = np.broadcast_to(highest, shape)
    # `low` workers fit and `high` do not; more workers never leave more room
    while np.any(high - low > 1):
        middle = (low + high) // 2
        able = needed(middle) <= left(middle)
        low, high = np.where(able, middle, low), np.where(able, high, middle)
    return low, needed(low).astype(np.int64)


def best_first(step_s: Array, workers: Workers) -> Index:
    """Return the configurations in order of GPUs and stages, of equal ones the one that serves most first."""
    return np.lexsort((step_s, -workers.requests_per_s, workers.stages, workers.gpus))


def worth_trying(order: Index, prefill: Workers, keeps: NDArray[np.bool_]) -> list[int]:
    """Prefill configurations that keep the limit and that no smaller worker beats.

    ``order``: as :func:`best_first` has them.
    """
    able = order[keeps[order]]
    sizes = np.stack([prefill.gpus[able], prefill.stages[able]])
    first = np.any(np.diff(sizes, axis=1, prepend=0), axis=0)
    kept: list[int] = []
    rate, group = prefill.requests_per_s, prefill.group
    for index in able[first].tolist():
        if not any(rate[one] >= rate[index] and group[index] % group[one] == 0 for one in kept):
            kept.append(index)
    return kept
