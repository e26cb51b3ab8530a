"""Capacity of any number of machine units, from a table of joined units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass as checked_dataclass

from cost.inputs.machine import NO_RUNS, NearRuns
from cost.memory.stages import NO_CACHE, CacheRoom
from cost.serving.serving import ONE_POOL, TWO_POOLS
from cost.serving.token_prices import TokenShares

FULL_PART = 1 - 1e-12
"""Of a rate asked for: sums of as many replicas are rounded."""
_SAMPLE_UNITS = 64
"""Units whose rate tells how many are enough: so many times as many give so many times as much, or more."""


@checked_dataclass(frozen=True, kw_only=True)
class ProofData:
    """What is proven of a search.

    Attributes
    ----------
    status:
        ``OPTIMAL``, ``FEASIBLE``, ``INFEASIBLE`` or ``UNKNOWN``.
    objective, bound, gap:
        What was reached, what nothing can be better than, and the fraction between the two.
    """

    status: str
    objective: float
    bound: float
    gap: float


@dataclass(frozen=True)
class Pool:
    """Workers of one kind.

    Attributes
    ----------
    role:
        ``decode``, ``prefill`` or ``both``.
    layout:
        That of one (``EP72 TP1 PP1``).
    workers, gpus_per_worker:
        How many there are, and GPUs of each.
    batch:
        Sequences (prefill: prompts) per GPU.
    step_s:
        Expected seconds of a step.
    near:
        What measured runs near a decode step say; the factor is in ``step_s``.
    cache:
        What the KV cache of one holds.
    """

    role: str
    layout: str
    workers: int
    gpus_per_worker: int
    batch: float
    step_s: float
    near: NearRuns = NO_RUNS
    cache: CacheRoom = NO_CACHE

    @property
    def gpus(self) -> int:
        """GPUs of all workers."""
        return self.workers * self.gpus_per_worker


@dataclass(frozen=True)
class Served:
    """Maximum capacity of a number of units within the limits.

    Attributes
    ----------
    tok_s:
        Output tokens per second of all of them.
    tok_s_per_user:
        Output tokens per second of the slowest sequence.
    joined:
        Units that a replica, or the pools that work together, stretch over at most.
    ttft_s:
        Seconds to the first token without waiting; None where only decode was asked for.
    proof:
        Of a fleet: status, objective, what no fleet can beat, and the gap; None where one layout a pool was taken.
    shares:
        Makes the parts of the GPU time by kind of token; None: of decode alone, and of a fleet of several shapes.
    """

    units: int
    tok_s: float
    tok_s_per_user: float
    pools: tuple[Pool, ...]
    joined: int = 1
    ttft_s: float | None = None
    requests_per_s: float | None = None
    proof: ProofData | None = None
    shares: Callable[[], TokenShares] | None = field(default=None, compare=False, repr=False)

    @property
    def gpus_used(self) -> int:
        """GPUs of all workers."""
        return sum(pool.gpus for pool in self.pools)

    @property
    def serving(self) -> str | None:
        """How most GPUs serve whole requests: by one pool or by two; None: decode alone."""
        mixed_gpus = sum(pool.gpus for pool in self.pools if pool.role == "both")
        return (
            None
            if self.requests_per_s is None
            else ONE_POOL
            if 2 * mixed_gpus > self.gpus_used
            else TWO_POOLS
        )

    @property
    def in_flight(self) -> float:
        """Requests that are served at once by Little's law, each as long as the slowest; decode alone: sequences."""
        return self.tok_s / self.tok_s_per_user + (self.requests_per_s or 0.0) * (self.ttft_s or 0.0)


def _shares_of(parts: Sequence[tuple[int, Served]]) -> Callable[[], TokenShares] | None:
    """Return what makes the shares of several kinds of units together; None where one of them has none."""
    made = [(count * served.units, served.shares) for count, served in parts if served.shares is not None]
    if len(made) < len(parts):
        return None
    return lambda: TokenShares.mean([(units, shares()) for units, shares in made])


Part = Callable[[Served], float]
"""What part of a demand is served; 1 or more is enough."""


def merged(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Return each kind of pool once, with all of its workers; different numbers of units joined may share a kind."""
    workers: dict[Pool, int] = {}
    for pool in pools:
        kind = replace(pool, workers=0)
        workers[kind] = workers.get(kind, 0) + pool.workers
    return tuple(replace(kind, workers=count) for kind, count in workers.items())


@dataclass(frozen=True)
class Table:
    """Rates of units joined, the number that gives most a unit, and the best of fewer units than that.

    Notes
    -----
    With ``T(k)`` the tokens per second of ``k`` units joined, ``n`` units give the most of ``sum T(k)`` over all ways
    to write ``n`` as a sum of such ``k``. Where each ``k`` divides the next, the ``k*`` with the largest ``T(k) / k``
    is taken ``n // k*`` times (any others that add up to a multiple of ``k*`` give no more), and only the rest, of
    fewer than ``k*`` units, is searched.
    """

    rates: Mapping[int, float]
    best: int
    rest: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, rates: Mapping[int, float]) -> Table:
        """Return the table of ``rates``, tokens per second by units joined."""
        if not rates:
            return cls({}, 1, ((0.0, 0),))
        best = max(sorted(rates), key=lambda k: rates[k] / k)
        best_of = [(0.0, 0)]
        for units in range(1, best):
            tried = [(best_of[units - k][0] + rate, k) for k, rate in rates.items() if k <= units]
            best_of.append(max([(best_of[units - 1][0], 0), *tried]))
        return cls(rates, best, tuple(best_of))

    def rate(self, units: int) -> float:
        """Tokens per second of ``units``."""
        times, remainder = divmod(units, self.best)
        return times * self.rates.get(self.best, 0.0) + self.rest[remainder][0]

    def parts(self, units: int) -> dict[int, int]:
        """How often each number of units joined is taken, the largest first."""
        times, remainder = divmod(units, self.best)
        parts = {self.best: times} if times else {}
        while remainder:
            k = self.rest[remainder][1]
            if k:
                parts[k] = parts.get(k, 0) + 1
            remainder -= k or 1
        return dict(sorted(parts.items(), reverse=True))


@dataclass(frozen=True, eq=False)
class Supply:
    """What units give within a time per output token (None: no limit): units joined, as many times as pays.

    Attributes
    ----------
    joinable:
        Numbers of units that were priced as joined by their fabric.
    tpots:
        The times per output token that are priced, shortest first.
    joined:
        Returns what so many units joined give, by their number, at a time per token; each number divides the next.
    whole:
        Returns what units give where all of them work as one, None where they do not.
    fastest_ttft_s:
        Returns the shortest time to the first token, limits or not; None where only decode is asked for.
    """

    joinable: Sequence[int]
    tpots: NDArray[np.float64]
    joined: Callable[[float | None], Mapping[int, Served]]
    whole: Callable[[int, float | None], Served | None] = lambda _units, _tpot_s: None
    fastest_ttft_s: Callable[[], float] | None = None
    _joined: dict[float | None, tuple[Table, Mapping[int, Served]]] = field(default_factory=dict)
    _whole: dict[tuple[int, float | None], Served | None] = field(default_factory=dict)

    def rate(self, units: int, tpot_s: float | None) -> float:
        """Return the most output tokens per second of ``units``; never less with more of them, or a longer time."""
        as_one = self.as_one(units, tpot_s)
        return max(0.0 if as_one is None else as_one.tok_s, self._table(tpot_s)[0].rate(units))

    def served(self, units: int, tpot_s: float | None) -> Served:
        """Return how that rate is reached."""
        table, joined = self._table(tpot_s)
        as_one = self.as_one(units, tpot_s)
        if as_one is not None and as_one.tok_s >= table.rate(units):
            return as_one
        parts = [(count, joined[k]) for k, count in table.parts(units).items()]
        members = [member for _, member in parts]
        ttfts = [member.ttft_s for member in members if member.ttft_s is not None]
        requests = [
            count * member.requests_per_s for count, member in parts if member.requests_per_s is not None
        ]
        return Served(
            units=units,
            tok_s=table.rate(units),
            tok_s_per_user=min(member.tok_s_per_user for member in members),
            pools=merged(
                replace(pool, workers=count * pool.workers)
                for count, member in parts
                for pool in member.pools
            ),
            joined=max(member.joined for member in members),
            ttft_s=max(ttfts) if ttfts else None,
            requests_per_s=math.fsum(requests) if requests else None,
            proof=members[0].proof,
            shares=_shares_of(parts),
        )

    def part(self, part: Part, units: int, tpot_s: float | None) -> float:
        """Return the fraction of a demand that ``units`` serve."""
        return part(self.served(units, tpot_s)) if self.rate(units, tpot_s) > 0 else 0.0

    def least_units(self, tpot_s: float | None) -> int | None:
        """Return the fewest units that give any token; None where no number of them does."""
        return self.fewest_units(lambda _served: float(_SAMPLE_UNITS), tpot_s)

    def fewest_units(self, part: Part, tpot_s: float | None) -> int | None:
        """Return the fewest units that serve all of a demand; None where no number of them gives a token."""
        sample = self.part(part, _SAMPLE_UNITS, tpot_s)
        if sample <= 0:
            return None
        limit = _SAMPLE_UNITS * math.ceil(1 / sample)  # as many times the sample: never too few
        near = math.ceil(_SAMPLE_UNITS / sample)
        near = math.ceil(near / (self.part(part, near, tpot_s) or 1.0))
        return 1 + last_before(0, limit, near, lambda units: self.part(part, units, tpot_s) < FULL_PART)

    def shortest_tpot(self, part: Part, units: int = _SAMPLE_UNITS, least_s: float = 0.0) -> float | None:
        """Return the shortest time per output token at which ``units`` serve a demand; None where none is enough.

        Times below ``least_s`` are known to be too short.
        """
        if units < 1 or not len(self.tpots) or self.part(part, units, None) < FULL_PART:
            return None
        start = int(np.searchsorted(self.tpots, least_s))

        def short(row: int) -> bool:
            return self.part(part, units, float(self.tpots[row])) < FULL_PART

        return float(self.tpots[1 + last_before(start - 1, len(self.tpots) - 1, start, short)])

    def as_one(self, units: int, tpot_s: float | None) -> Served | None:
        """Return what units give where all of them work as one, None where they do not."""
        if (units, tpot_s) not in self._whole:
            self._whole[units, tpot_s] = self.whole(units, tpot_s)
        return self._whole[units, tpot_s]

    def _table(self, tpot_s: float | None) -> tuple[Table, Mapping[int, Served]]:
        if tpot_s not in self._joined:
            joined = self.joined(tpot_s)
            self._joined[tpot_s] = Table.of({k: served.tok_s for k, served in joined.items()}), joined
        return self._joined[tpot_s]


def last_before(low: int, high: int, near: int, short: Callable[[int], bool]) -> int:
    """Return the last number that is ``short``: ``low`` is taken to be, ``high`` not to be; it is sought ``near``."""
    step = 1
    while low < near < high:
        if short(near):
            low, near = near, near + step
        else:
            high, near = near, near - step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if short(middle) else (low, middle)
    return low
