"""How many units of a machine serve so many output tokens a second, and what the next smaller number of them misses.

A unit is the cluster that is named: one domain of a kind, or several domains that repeat together. What one unit
gives, and what two, four, eight... joined by their fabric give, is priced by the sweep (:mod:`cost.layouts`); how
many are needed is arithmetic on that, so that fleets larger than any cluster that can be built have an answer too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.layouts import Sweep, best_at, sweep
from cost.layouts.candidates import domain_gpus
from cost.lengths import Lengths
from cost.money import Bill
from cost.pools import CachePath, RateMatch, RateMatches, kv_path, match_rates
from cost.quantity import require_number
from topology.build import build_cluster
from topology.cluster import Cluster
from topology.errors import InfeasibleError, InputError
from topology.repeat import alike, repeated

MOST_JOINED_GPUS = 512
"""GPUs of the units that are priced as joined by their fabric, at most: wider replicas have not paid yet."""
_MOST_TRIED_GPUS = 4608
"""GPUs of as many units as are joined at most where a model fits no fewer."""
MOST_TOK_S, MOST_SPARES = 1e15, 1_000_000
"""Tokens per second, and domains kept for failures, that anybody may ask for."""
_ENOUGH = 1 - 1e-12
"""Of a rate asked for: sums of as many replicas are rounded."""
_LOOSER = (1.25, 1.5, 2.0, 3.0)
"""Times the limit asked for that the size is told at, too."""
_SAMPLE = 64
"""Units whose rate tells how many are enough: so many times as many give so many times as much, or more."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is asked of a fleet.

    Attributes
    ----------
    tok_s:
        Output tokens per second, the mean over time.
    utilization:
        The mean over the peak: the fleet is sized for ``tok_s / utilization``.
    spares:
        Domains kept for failures, besides those that serve.
    tpot_s, ttft_s:
        Longest time per output token, and to the first one without waiting; None: no limit.
    """

    tok_s: float
    utilization: float = 1.0
    spares: int = 0
    tpot_s: float | None = None
    ttft_s: float | None = None

    def __post_init__(self) -> None:
        require_number("`tok_s`", self.tok_s, above=0)
        if self.tok_s > MOST_TOK_S:
            raise InputError(f"`tok_s` {self.tok_s:g}: expected at most {MOST_TOK_S:g} output tokens/s.")
        if not (math.isfinite(self.utilization) and 0 < self.utilization <= 1):
            raise InputError(
                f"`utilization` {self.utilization:g}: expected the mean over the peak, above 0 and at most 1."
            )
        if not 0 <= self.spares <= MOST_SPARES:
            raise InputError(
                f"`spares` {self.spares}: expected a number of domains from 0 to {MOST_SPARES:,}."
            )
        for name, limit in (("`tpot_ms`", self.tpot_s), ("`ttft_ms`", self.ttft_s)):
            if limit is not None:
                require_number(name, limit * 1e3, above=0)

    @property
    def peak_tok_s(self) -> float:
        """Output tokens per second that the fleet must be able to give."""
        return self.tok_s / self.utilization


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
    """

    units: int
    tok_s: float
    tok_s_per_user: float
    pools: tuple[Pool, ...]
    joined: int = 1
    ttft_s: float | None = None
    requests_per_s: float | None = None

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


def fewest_units(supply: Supply, tok_s: float, tpot_s: float | None) -> int | None:
    """Return the fewest units that give ``tok_s`` output tokens per second; None where no number of them does."""
    rate = supply.rate(_SAMPLE, tpot_s)
    if rate <= 0:
        return None

    def short(units: int) -> bool:
        return supply.rate(units, tpot_s) < tok_s * _ENOUGH

    return 1 + _last(0, _SAMPLE * math.ceil(tok_s / rate), math.ceil(tok_s / rate * _SAMPLE), short)


def shortest_tpot(supply: Supply, tok_s: float, units: int, least_s: float = 0.0) -> float | None:
    """Return the shortest time per output token at which ``units`` give ``tok_s``; None where none is long enough.

    Times below ``least_s`` are known to be too short.
    """
    if units < 1 or supply.rate(units, None) < tok_s * _ENOUGH:
        return None
    tpots = supply.tpots
    first = int(np.searchsorted(tpots, least_s))
    last = _last(
        first - 1, len(tpots) - 1, first, lambda i: supply.rate(units, float(tpots[i])) < tok_s * _ENOUGH
    )
    return float(tpots[last + 1])


def _last(low: int, high: int, near: int, short: Callable[[int], bool]) -> int:
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
            pools=tuple(
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
            shapes = np.stack([found.gpus[fast], found.stages[fast], found.tp[fast]])
            order = np.lexsort((-found.tok_s_per_user[fast], -rate))
            first = np.unique(shapes[:, order], axis=1, return_index=True)[1]
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
            pools=tuple(
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


@dataclass(frozen=True)
class Level:
    """Fewer units than are needed.

    Attributes
    ----------
    units:
        Units that serve.
    tok_s:
        The most output tokens per second of them within the limits.
    tpot_s:
        Shortest time per output token at which they would be enough; None where none is.
    """

    units: int
    tok_s: float
    tpot_s: float | None


@dataclass(frozen=True)
class Size:
    """How large a fleet is.

    Attributes
    ----------
    deployment:
        Model, workload (of decode) and the cluster that is the unit.
    demand:
        What was asked; its limits are those that were kept.
    lengths:
        Tokens of prompts and answers; None: decode alone.
    served:
        What the units that serve give.
    sweeps:
        What was priced of decode.
    fewer:
        The levels below: a unit fewer, and a tenth of them fewer where that is another number.
    looser:
        Longer times per output token (None: no limit), and the units that serve at them.
    joined:
        The most output tokens per second of 1, 2, 4... units joined, by their number.
    unjoined:
        Why units are not joined; empty where they are.
    """

    deployment: Deployment
    demand: Demand
    lengths: Lengths | None
    served: Served
    sweeps: tuple[Sweep, ...]
    fewer: tuple[Level, ...]
    looser: tuple[tuple[float | None, int], ...]
    joined: Mapping[int, float]
    unjoined: str = ""

    @property
    def unit(self) -> Cluster:
        """The cluster that repeats."""
        return self.deployment.cluster

    @property
    def serving_domains(self) -> int:
        """Domains that serve."""
        return self.domains - self.demand.spares

    @property
    def domains(self) -> int:
        """Domains that serve, and spares."""
        return self.domains_of(self.served.units)

    def domains_of(self, units: int) -> int:
        """Domains of so many units that serve, and spares."""
        return units * _domains(self.unit) + self.demand.spares

    @property
    def serving_gpus(self) -> int:
        """GPUs of the units that serve, idle ones too, without those that are broken."""
        return self.served.units * len(self.unit.gpus)

    @property
    def gpus(self) -> int:
        """GPUs of all domains."""
        return self.gpus_of(self.served.units)

    def gpus_of(self, units: int) -> int:
        """GPUs of so many units that serve, and of the spares."""
        return units * len(self.unit.gpus) + self.demand.spares * len(_spare(self.unit))

    @property
    def racks(self) -> int | None:
        """Racks of all domains; None where a file does not say what stands in which."""
        places = self._places
        if places is None or self.serving_racks is None:
            return None
        domain = self.unit.gpus[[gpu.id for gpu in self.unit.gpus].index(_spare(self.unit)[0])].domain
        spare = {rack for rack, where in places if where == domain}
        return self.serving_racks + self.demand.spares * len(spare)

    @property
    def serving_racks(self) -> int | None:
        """Racks of the domains that serve; None where it is not known."""
        places = self._places
        return None if places is None else self.served.units * len({rack for rack, _ in places})

    @property
    def rack_gpus(self) -> int | None:
        """GPUs of a rack; None where that is not known or racks differ."""
        places = self._places or ()
        sizes = set(Counter(rack for rack, _ in places).values())
        return sizes.pop() if len(sizes) == 1 else None

    @cached_property
    def _places(self) -> list[tuple[str, int]] | None:
        """Rack and domain of each GPU of the unit, broken ones too; None where a file says no racks."""
        raw = self.unit.spec.raw
        if raw is not None and any(node.rack is None for node in raw.nodes if node.kind == "gpu"):
            return None
        return [(gpu.rack, gpu.domain) for gpu in build_cluster(replace(self.unit.spec, faults=())).gpus]

    @property
    def bill(self) -> Bill:
        """What all domains cost and draw, spares too."""
        return self.bill_of(self.served.units)

    def bill_of(self, units: int) -> Bill:
        """What so many units that serve and the spares cost and draw."""
        book = self.deployment.prices
        unit, spares = book.bill(self.unit).times(units), self.demand.spares
        return (
            Bill.together([unit, book.bill(self.unit, _spare(self.unit)).times(spares)]) if spares else unit
        )

    @property
    def tok_s_per_gpu(self) -> float:
        """Output tokens per second over the GPUs of the units that serve, idle ones too."""
        return self.served.tok_s / self.serving_gpus


def size(
    deployment: Deployment,
    demand: Demand,
    *,
    lengths: Lengths | None = None,
    redundant: int | None = None,
    imbalance: float | None = None,
) -> Size:
    """Return the fewest units of ``deployment.cluster`` that serve ``demand``, and what fewer of them miss.

    Parameters
    ----------
    deployment:
        The unit, the model and the workload of decode; with ``lengths`` its context plays no part.
    lengths:
        Tokens of prompts and answers: both phases, in pools that match. None: decode alone.
    redundant, imbalance:
        As :func:`cost.layouts.sweep` takes them; an imbalance of None is 1 for decode alone, the usual one for pools.

    Raises
    ------
    InfeasibleError
        If the model does not fit, or nothing keeps the limits: the message names the best that can be had.
    InputError
        If lengths are given and domains of the unit differ in size.
    """
    supply, sweeps, unjoined = _supply(deployment, demand, lengths, redundant, imbalance)
    units = fewest_units(supply, demand.peak_tok_s, demand.tpot_s)
    if units is None:
        _refuse(deployment, demand, supply)
    fewer = sorted({units - 1, math.floor(0.9 * units)} - {0}, reverse=True)
    return Size(
        deployment=replace(sweeps[0].deployment, cluster=deployment.cluster),
        demand=demand,
        lengths=lengths,
        served=supply.served(units, demand.tpot_s),
        sweeps=sweeps,
        fewer=tuple(
            Level(
                less,
                supply.rate(less, demand.tpot_s),
                None
                if demand.tpot_s is None
                else shortest_tpot(supply, demand.peak_tok_s, less, demand.tpot_s),
            )
            for less in fewer
        ),
        looser=_looser(supply, demand),
        joined={k: supply.rate(k, demand.tpot_s) for k in supply.joinable},
        unjoined=unjoined,
    )


def _looser(supply: Supply, demand: Demand) -> tuple[tuple[float | None, int], ...]:
    """Return the units that serve at longer times per token; none longer than the longest that is priced."""
    if demand.tpot_s is None:
        return ()
    longest = float(supply.tpots[-1])
    limits = [demand.tpot_s * times for times in _LOOSER if demand.tpot_s * times < longest]
    found = ((limit, fewest_units(supply, demand.peak_tok_s, limit)) for limit in (*limits, None))
    return tuple((limit, units) for limit, units in found if units is not None)


def _supply(
    deployment: Deployment,
    demand: Demand,
    lengths: Lengths | None,
    redundant: int | None,
    imbalance: float | None,
) -> tuple[Supply, tuple[Sweep, ...], str]:
    """Sweep 1, 2, 4... units: what they give, what was priced, and why they are not joined (empty: they are)."""
    unit = deployment.cluster
    units, unjoined = _joined(unit)
    speeds = () if demand.tpot_s is None else (1 / demand.tpot_s,)
    if lengths is None:
        balance = 1.0 if imbalance is None else imbalance
        decode = _sweeps(units, deployment, redundant, balance, speeds)
        return DecodeSupply(decode), tuple(decode.values()), unjoined
    # pools are shared by any number of domains that are alike; those of unlike ones stay inside what is swept
    shares = alike(unit.spec) and len(units) > 1
    widest = max(k for k, one in units.items() if k == 1 or len(one.gpus) <= MOST_JOINED_GPUS or k == 2)
    tried = {k: one for k, one in units.items() if not shares or k == 1 or k >= widest}
    decoding, prompts = lengths.workloads(deployment.workload)
    decode = _sweeps(tried, replace(deployment, workload=decoding), redundant, imbalance, speeds)
    prefill = [
        (share, _sweeps(tried, replace(deployment, workload=workload), redundant, imbalance))
        for share, workload in prompts
    ]
    both = decode.keys() & set.intersection(*(set(found) for _, found in prefill))
    pairs = {
        k: Pair(
            decode[k],
            [(share, found[k]) for share, found in prefill],
            lengths.mean_osl,
            demand.ttft_s,
            kv_path(decode[k].deployment, prefill[0][1][k].deployment),
        )
        for k in sorted(both)
    }
    if not pairs:
        raise InfeasibleError(f"no number of {unit.name} joined runs both phases of {deployment.model.name}.")
    joinable = [k for k in units if k <= max(pairs)]
    if not shares:
        supply = PooledSupply(joinable, pairs, None, _domains(unit))
    else:
        own = {k: pair for k, pair in pairs.items() if k == 1}
        supply = PooledSupply(joinable, own, pairs[max(pairs)], _domains(unit))
    return supply, tuple(decode.values()), unjoined


def _joined(unit: Cluster) -> tuple[dict[int, Cluster], str]:
    """Return 1, 2, 4... units joined, up to as many GPUs as pay, and why there are no more (empty: they pay not)."""
    found, count = {1: unit}, 2
    while count * len(unit.gpus) <= _MOST_TRIED_GPUS:
        try:
            found[count] = repeated(unit, count)
        except InputError as error:
            return found, str(error)
        count *= 2
    return found, ""


def _sweeps(
    units: Mapping[int, Cluster],
    deployment: Deployment,
    redundant: int | None,
    imbalance: float | None,
    speeds: Sequence[float] = (),
) -> dict[int, Sweep]:
    """Sweep units joined, as many as pay; more only where the model does not fit fewer.

    Raises
    ------
    InfeasibleError
        If it fits none.
    """
    found: dict[int, Sweep] = {}
    refused: InputError | None = None
    shortage = math.inf
    for count, cluster in units.items():
        if found and len(cluster.gpus) > MOST_JOINED_GPUS:
            break
        try:
            one = sweep(
                replace(deployment, cluster=cluster), redundant=redundant, imbalance=imbalance, speeds=speeds
            )
        except InputError as error:
            refused = refused or error
            continue
        if len(one):
            found[count] = one
        else:
            shortage = min(shortage, one.shortage_bytes)
    if found:
        return found
    if refused is not None and shortage == math.inf:
        raise refused
    most = max(units)
    raise InfeasibleError(
        f"HBM capacity binds: no layout of {deployment.model.name} on {most} x {deployment.cluster.name} holds a "
        f"sequence of {deployment.workload.context:,} tokens; the nearest lacks {shortage / 1e9:.1f} GB per GPU."
    )


def _refuse(deployment: Deployment, demand: Demand, supply: Supply) -> NoReturn:
    """Raise InfeasibleError: no number of units keeps the limits, and what the best is that can be had."""
    out = f"is out of reach on any number of {deployment.cluster.name}: the fastest"
    fastest = shortest_tpot(supply, math.ulp(0.0), _SAMPLE)
    if fastest is None and isinstance(supply, PooledSupply):
        raise InfeasibleError(
            f"`ttft_ms` {(demand.ttft_s or 0.0) * 1e3:g} {out} prefill and transfer take "
            f"{supply.fastest_ttft_s * 1e3:.4g} ms; ask for at least that, or use faster GPUs."
        )
    if fastest is None:
        raise InfeasibleError(f"{deployment.model.name} yields no token on {deployment.cluster.name}.")
    raise InfeasibleError(
        f"`tpot_ms` {(demand.tpot_s or 0.0) * 1e3:g} {out} layout takes {fastest * 1e3:.4g} ms per token "
        f"({1 / fastest:.4g} tok/s/user); ask for at least that, or use faster GPUs."
    )


def _domains(unit: Cluster) -> int:
    """Domains of a unit with a GPU that works."""
    return len({gpu.domain for gpu in unit.gpus})


def _spare(unit: Cluster) -> list[str]:
    """The GPUs of a spare domain, which is as the fullest of the unit."""
    fullest = max(domain_gpus(unit), key=len)
    return [unit.gpus[gpu].id for gpu in fullest]
