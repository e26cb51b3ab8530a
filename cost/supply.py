"""What units of a machine give: decode alone, or pools of both phases, with one shape a pool or fleets of several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cost.cache_path import CachePath
from cost.layouts import Sweep, best_at
from cost.pools import RateMatch, RateMatches, match_rates
from cost.written import ProofData
from topology.base.errors import RackplanError

MOST_FLEET_GPUS = 300
"""GPUs on which a fleet of different shapes is made, at most: on more it gains next to nothing."""
_FLEET_GAIN = 1.25, 20.0
"""Times the tokens of one shape that a fleet may give: at most the first, and 1 more than the second over the GPUs.
More was not seen: 1.11 on 72 and 144, 1.03 on 288."""
ENOUGH = 1 - 1e-12
"""Of a rate asked for: sums of as many replicas are rounded."""


@dataclass(frozen=True)
class Pool:
    """Replicas of one kind.

    Attributes
    ----------
    role:
        ``decode`` or ``prefill``.
    layout:
        That of one (``EP72 TP1 PP1``).
    replicas, gpus:
        How many there are, and GPUs of each.
    batch:
        Sequences (prefill: prompts) per GPU.
    step_s:
        Expected seconds of a step.
    """

    role: str
    layout: str
    replicas: int
    gpus: int
    batch: float
    step_s: float


def merged(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Return each kind of pool once, with all of its replicas; different numbers of units joined may share a kind."""
    replicas: dict[Pool, int] = {}
    for pool in pools:
        kind = replace(pool, replicas=0)
        replicas[kind] = replicas.get(kind, 0) + pool.replicas
    return tuple(replace(kind, replicas=count) for kind, count in replicas.items())


@dataclass(frozen=True)
class Served:
    """The most that so many units give within the limits.

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
    """

    units: int
    tok_s: float
    tok_s_per_user: float
    pools: tuple[Pool, ...]
    joined: int = 1
    ttft_s: float | None = None
    requests_per_s: float | None = None
    proof: ProofData | None = None

    @property
    def gpus_used(self) -> int:
        """GPUs of all replicas."""
        return sum(pool.replicas * pool.gpus for pool in self.pools)


class Supply(Protocol):
    """What units give."""

    @property
    def joinable(self) -> Sequence[int]:
        """Numbers of units that were priced as joined by their fabric."""

    @property
    def tpots(self) -> NDArray[np.float64]:
        """The times per output token that are priced, shortest first."""

    def rate(self, units: int, tpot_s: float | None) -> float:
        """Return the most output tokens per second of ``units``; never less with more of them, or a longer time."""

    def served(self, units: int, tpot_s: float | None) -> Served:
        """Return how that rate is reached."""


class Fleets(Supply, Protocol):
    """Fleets on units: as a supply, each on as few units as the model fits."""

    @property
    def refusal(self) -> RackplanError:
        """Why there is none."""

    def on(self, units: int) -> float:
        """Return the output tokens per second of one fleet on all of ``units``; 0 where there is none."""

    def served_by(self, joined: int, times: int, units: int) -> Served:
        """Return what ``times`` fleets on ``joined`` units each give."""


@dataclass(frozen=True, eq=False)
class OrFleet:
    """One shape a pool, or a fleet of different shapes on all units where that alone reaches what is asked for.

    A fleet takes time: it is made for few units, at the limit asked for, where one shape is nearly enough.

    Attributes
    ----------
    tok_s, tpot_s:
        Output tokens per second, and the limit on the time per token, that are asked for.
    unit_gpus:
        GPUs of a unit.
    """

    base: Supply
    fleets: Fleets
    tok_s: float
    tpot_s: float | None
    unit_gpus: int

    @property
    def joinable(self) -> Sequence[int]:
        """Numbers of units that were priced as joined by their fabric."""
        return self.base.joinable

    @property
    def tpots(self) -> NDArray[np.float64]:
        """The times per output token that are priced, shortest first."""
        return self.base.tpots

    def rate(self, units: int, tpot_s: float | None) -> float:
        """Return the most output tokens per second of ``units``."""
        rate = self.base.rate(units, tpot_s)
        return max(rate, self.fleets.on(units)) if self._pays(units, rate, tpot_s) else rate

    def served(self, units: int, tpot_s: float | None) -> Served:
        """Return how that rate is reached."""
        rate = self.base.rate(units, tpot_s)
        if self._pays(units, rate, tpot_s) and self.fleets.on(units) > rate:
            return self.fleets.served_by(units, 1, units)
        return self.base.served(units, tpot_s)

    def _pays(self, units: int, rate: float, tpot_s: float | None) -> bool:
        gpus = units * self.unit_gpus
        most, over = _FLEET_GAIN
        gain = min(most, 1 + over / gpus) if gpus else 1.0
        few = gpus <= MOST_FLEET_GPUS and tpot_s == self.tpot_s
        return few and rate < self.tok_s * ENOUGH and self.tok_s <= rate * gain


@dataclass(frozen=True, eq=False)
class DecodeSupply:
    """Decode alone: of 1, 2, 4... units joined (each number divides the next), the best at a time per token.

    Notes
    -----
    With ``T(k)`` the tokens per second of ``k`` units joined, ``n`` units give the most of ``sum T(k)`` over all ways
    to write ``n`` as a sum of such ``k``. Where each ``k`` divides the next, the ``k*`` with the largest ``T(k) / k``
    is taken ``n // k*`` times (any others that add up to a multiple of ``k*`` give no more), and only the rest, of
    fewer than ``k*`` units, is searched.
    """

    sweeps: Mapping[int, Sweep]
    """By units joined."""
    _tables: dict[float | None, _Table] = field(default_factory=dict)

    @property
    def joinable(self) -> Sequence[int]:
        """Numbers of units that were priced as joined by their fabric."""
        return list(self.sweeps)

    @property
    def tpots(self) -> NDArray[np.float64]:
        """The times per output token that are priced, shortest first."""
        return np.unique(np.concatenate([1 / found.tok_s_per_user for found in self.sweeps.values()]))

    def rate(self, units: int, tpot_s: float | None) -> float:
        """Return the most output tokens per second of ``units``."""
        return self._table(tpot_s).rate(units)

    def served(self, units: int, tpot_s: float | None) -> Served:
        """Return how that rate is reached."""
        parts = self._table(tpot_s).parts(units)
        chosen = [(k, count, self.sweeps[k], self._best(k, tpot_s)) for k, count in parts.items()]
        used = [(k, count, found, index) for k, count, found, index in chosen if index is not None]
        return Served(
            units=units,
            tok_s=self.rate(units, tpot_s),
            tok_s_per_user=min(float(found.tok_s_per_user[index]) for _, _, found, index in used),
            pools=merged(
                _pool("decode", found, index, count * int(found.replicas[index]))
                for _, count, found, index in used
            ),
            joined=max(k for k, *_ in used),
        )

    def _best(self, units: int, tpot_s: float | None) -> int | None:
        return best_at(self.sweeps[units], 0.0 if tpot_s is None else 1 / tpot_s)

    def _table(self, tpot_s: float | None) -> _Table:
        if tpot_s not in self._tables:
            best = {k: self._best(k, tpot_s) for k in self.sweeps}
            rates = {k: float(self.sweeps[k].tok_s[i]) for k, i in best.items() if i is not None}
            self._tables[tpot_s] = _Table.of(rates)
        return self._tables[tpot_s]


@dataclass(frozen=True)
class _Table:
    """Rates of units joined, the number that gives most a unit, and the best of fewer units than that."""

    rates: Mapping[int, float]
    best: int
    rest: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, rates: Mapping[int, float]) -> _Table:
        """Return the table of ``rates``, tokens per second by units joined."""
        if not rates:
            return cls({}, 1, ((0.0, 0),))
        best = max(sorted(rates), key=lambda k: rates[k] / k)
        rest = [(0.0, 0)]
        for units in range(1, best):
            tried = [(rest[units - k][0] + rate, k) for k, rate in rates.items() if k <= units]
            rest.append(max([(rest[units - 1][0], 0), *tried]))
        return cls(rates, best, tuple(rest))

    def rate(self, units: int) -> float:
        """Tokens per second of ``units``."""
        whole, left = divmod(units, self.best)
        return whole * self.rates.get(self.best, 0.0) + self.rest[left][0]

    def parts(self, units: int) -> dict[int, int]:
        """How often each number of units joined is taken, the largest first."""
        whole, left = divmod(units, self.best)
        found = {self.best: whole} if whole else {}
        while left:
            k = self.rest[left][1]
            if k:
                found[k] = found.get(k, 0) + 1
            left -= k or 1
        return dict(sorted(found.items(), reverse=True))


@dataclass(frozen=True, eq=False)
class Pair:
    """Sweeps of decode and of prefill whose pools share domains, and the way of the caches between them."""

    decode: Sweep
    prefill: Sequence[tuple[float, Sweep]]
    """Of each length of prompts its share and its sweep, the longest first."""
    osl: float
    ttft_s: float | None
    path: CachePath
    _rows: dict[float | None, Sweep] = field(default_factory=dict)

    def best(self, domains: int | None, tpot_s: float | None) -> RateMatch | None:
        """Return the pools with most throughput on so many domains (None: those of the sweeps), or None."""
        return self._matched(self.rows(tpot_s), domains, self.ttft_s, tpot_s).best()

    @property
    def fastest_ttft_s(self) -> float:
        """Shortest time to the first token, limits or not."""
        return self._matched(self.rows(None), None, None, None).fastest_ttft_s

    def _matched(
        self, rows: Sweep, domains: int | None, ttft_s: float | None, tpot_s: float | None
    ) -> RateMatches:
        return match_rates(
            rows,
            self.prefill[0][1],
            osl=self.osl,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            path=self.path,
            domains=domains,
            shorter=self.prefill[1:],
        )

    def rows(self, tpot_s: float | None) -> Sweep:
        """Of the decode configurations within the limit the best of each shape: a match knows no more of them."""
        if tpot_s not in self._rows:
            found = self.decode
            fast = np.flatnonzero(found.tok_s_per_user >= (0.0 if tpot_s is None else 1 / tpot_s))
            rate = found.tok_s[fast] / found.replicas[fast]
            shapes = np.stack([found.tp[fast], found.stages[fast], found.gpus[fast]])
            order = np.lexsort((-found.tok_s_per_user[fast], -rate, *shapes))
            first = np.any(np.diff(shapes[:, order], axis=1, prepend=0), axis=0)
            self._rows[tpot_s] = found.rows(fast[order[first]])
        return self._rows[tpot_s]


@dataclass(frozen=True, eq=False)
class PooledSupply:
    """Prefill and decode together, the better of two: pools inside 1, 2, 4... units, or pools that all units share.

    Attributes
    ----------
    joinable:
        Numbers of units that are worth telling apart.
    own:
        Pools inside so many units joined, each number dividing the next (:class:`DecodeSupply`).
    shared:
        Pools over all units, with replicas as swept on the most of them joined; None where units share none.
    unit_domains:
        Domains of a unit.
    """

    joinable: Sequence[int]
    own: Mapping[int, Pair]
    shared: Pair | None
    unit_domains: int
    _tables: dict[float | None, tuple[_Table, dict[int, RateMatch]]] = field(default_factory=dict)
    _found: dict[tuple[int, float | None], tuple[Pair, RateMatch] | None] = field(default_factory=dict)

    @property
    def tpots(self) -> NDArray[np.float64]:
        """The times per output token that are priced, shortest first."""
        return np.unique(np.concatenate([1 / pair.decode.tok_s_per_user for pair in self._pairs]))

    def rate(self, units: int, tpot_s: float | None) -> float:
        """Return the most output tokens per second of ``units``."""
        together = self._together(units, tpot_s)
        pooled = 0.0 if together is None else _rate(*together)
        return max(pooled, self._apart(tpot_s)[0].rate(units))

    @property
    def fastest_ttft_s(self) -> float:
        """Shortest time to the first token of any pools, limits or not."""
        return min(pair.fastest_ttft_s for pair in self._pairs)

    @property
    def _pairs(self) -> list[Pair]:
        return [*self.own.values(), *([self.shared] if self.shared is not None else [])]

    def served(self, units: int, tpot_s: float | None) -> Served:
        """Return how that rate is reached."""
        table, matches = self._apart(tpot_s)
        together = self._together(units, tpot_s)
        if together is not None and _rate(*together) >= table.rate(units):
            used, joined = [(1, *together)], units
        else:
            parts = table.parts(units)
            used = [(count, self.own[k], matches[k]) for k, count in parts.items()]
            joined = max(parts)
        return Served(
            units=units,
            tok_s=self.rate(units, tpot_s),
            tok_s_per_user=min(match.tok_s_per_user for _, _, match in used),
            pools=merged(
                _pool(role, found, index, copies * workers)
                for copies, pair, match in used
                for role, found, index, workers in (
                    ("prefill", pair.prefill[0][1], match.prefill, match.prefill_workers),
                    ("decode", pair.rows(tpot_s), match.decode, match.decode_workers),
                )
            ),
            joined=joined,
            ttft_s=max(match.ttft_s for _, _, match in used),
            requests_per_s=math.fsum(copies * match.requests_per_s for copies, _, match in used),
        )

    def _apart(self, tpot_s: float | None) -> tuple[_Table, dict[int, RateMatch]]:
        """Pools inside units: what so many joined give."""
        if tpot_s not in self._tables:
            found = {k: pair.best(None, tpot_s) for k, pair in self.own.items()}
            matches = {k: match for k, match in found.items() if match is not None}
            table = _Table.of({k: _rate(self.own[k], match) for k, match in matches.items()})
            self._tables[tpot_s] = table, matches
        return self._tables[tpot_s]

    def _together(self, units: int, tpot_s: float | None) -> tuple[Pair, RateMatch] | None:
        """The best pools over all units."""
        key, domains = (units, tpot_s), units * self.unit_domains
        if key not in self._found:
            # a domain alone has pools of its own, whose caches take the links inside it
            match = None if self.shared is None or domains == 1 else self.shared.best(domains, tpot_s)
            self._found[key] = None if self.shared is None or match is None else (self.shared, match)
        return self._found[key]


def _rate(pair: Pair, match: RateMatch) -> float:
    """Output tokens per second of matched pools."""
    return match.requests_per_s * pair.osl


def _pool(role: str, found: Sweep, index: int, replicas: int) -> Pool:
    return Pool(
        role=role,
        layout=found.label(index).rpartition(" ")[0],
        replicas=replicas,
        gpus=int(found.gpus[index]),
        batch=float(found.batch[index]),
        step_s=float(found.step_s[index]),
    )
