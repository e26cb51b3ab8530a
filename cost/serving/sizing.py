"""Sizing: units of a machine for a demand or a budget, and the shortfall of smaller fleets.

A unit is the cluster that is named: one domain of a kind, or several domains that repeat together. What one unit
gives, and what two, four, eight... joined by their fabric give, is priced by the sweep (:mod:`cost.serving.units`);
how many are needed is arithmetic on that (:mod:`cost.serving.supply`), so that fleets larger than any cluster that
can be built have an answer too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from cost.calibration.errors import ErrorOf, errors_in
from cost.inputs.deployment import Deployment
from cost.layouts.candidates import domain_gpus
from cost.money.bill import Bill
from cost.quantity import require_number
from cost.recipe import OtherRecipe
from cost.serving.lengths import Lengths
from cost.serving.limits import LimitError, rounded_down, rounded_up
from cost.serving.supply import FULL_PART, Part, Pool, Served, Supply, last_before
from cost.serving.token_prices import TokenPrices
from cost.serving.units import FleetOn, fleet_supply, layout_supply, unit_domains, with_fleets
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.base.shown import Shown
from topology.build import build_cluster
from topology.changes.repeat import alike, repeated
from topology.cluster import Cluster
from topology.physical import Racks, racks_of

if TYPE_CHECKING:
    from cost.queueing.conversations import CachePoint

BUDGETS: Mapping[str, str] = {"gpus": "GPUs", "mw": "MW", "usd_h": "USD/h"}
"""What may be spent, each with its unit."""
MAX_AMOUNTS = {"req_s": 1e12, "tok_s": 1e15, "users": 1e12, "gpus": 1e12, "mw": 1e9, "usd_h": 1e12}
"""Currencies of a demand, each with the most that anybody may ask for."""
BUDGET_ROUNDING = 1 + 1e-12
"""Times a budget that it covers: its own figures are sums, and are rounded."""
MAX_SPARES = 1_000_000
"""Domains kept for failures that anybody may ask for."""
_FEWER_UNITS = 8
"""Units fewer that may serve more users."""
_LOOSER_FACTORS = (1.25, 1.5, 2.0, 3.0)
"""Times the limit asked for that the size is told at, too."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Demand or budget of a fleet; exactly one of the six is given.

    Attributes
    ----------
    req_s, tok_s, users:
        To serve, the mean over time: requests and output tokens per second, users of whom each asks, waits for the
        whole answer, and thinks for ``think_s`` seconds.
    gpus, mw, usd_h:
        To buy at most, spares too: GPUs, megawatts, USD per hour.
    utilization:
        The mean over the peak: the fleet is sized for the peak.
    spares:
        Domains kept for failures, besides those that serve.
    tpot_s, ttft_s:
        Longest time per output token, and to the first one without waiting; None: no limit.
    ttft_p99_s:
        Longest time to the first token that 99 of 100 requests may see, waiting included, and then ``tpot_s`` is one
        of those too; None: waiting is left out.
    usd_m:
        Instead of ``tpot_s``: the shortest time at which a million output tokens cost no more than so many USD.
    """

    req_s: float | None = None
    tok_s: float | None = None
    users: float | None = None
    gpus: float | None = None
    mw: float | None = None
    usd_h: float | None = None
    think_s: float = 0.0
    utilization: float = 1.0
    spares: int = 0
    tpot_s: float | None = None
    ttft_s: float | None = None
    ttft_p99_s: float | None = None
    usd_m: float | None = None

    def __post_init__(self) -> None:
        currencies = [name for name in MAX_AMOUNTS if getattr(self, name) is not None]
        if len(currencies) != 1:
            names, listed = ", ".join(map(input_name, MAX_AMOUNTS)), " and ".join(map(input_name, currencies))
            advice = f", not {listed}" if currencies else f", like {input_name('tok_s')} 1M"
            raise InputError(f"expected exactly one of {names}{advice}; the others are derived.")
        require_number(input_name(self.currency), self.amount, above=0)
        require_number(input_name("think_s"), self.think_s, least=0)
        if not (math.isfinite(self.utilization) and 0 < self.utilization <= 1):
            raise InputError(
                "expected mean over peak, above 0 and at most 1.",
                field="utilization",
                value=f"{self.utilization:g}",
            )
        max_amount = MAX_AMOUNTS[self.currency]
        if self.amount > max_amount * (1.0 if self.currency in BUDGETS else self.utilization):
            raise InputError(
                f"expected at most {max_amount:g}, at the peak.",
                field=self.currency,
                value=f"{self.amount:g}",
            )
        if not 0 <= self.spares <= MAX_SPARES:
            raise InputError(
                f"expected a number of domains from 0 to {MAX_SPARES:,}.", field="spares", value=self.spares
            )
        for name, limit, scale in (
            ("tpot_ms", self.tpot_s, 1e3),
            ("ttft_ms", self.ttft_s, 1e3),
            ("ttft_p99_ms", self.ttft_p99_s, 1e3),
            ("usd_m", self.usd_m, 1.0),
        ):
            if limit is not None:
                require_number(input_name(name), limit * scale, above=0)

    @property
    def currency(self) -> str:
        """Name of the given field."""
        return next(name for name in MAX_AMOUNTS if getattr(self, name) is not None)

    @property
    def amount(self) -> float:
        """How much of it."""
        return float(getattr(self, self.currency))

    def users_of(self, served: Served) -> float:
        """Return the number of concurrent users, including those who think."""
        return served.in_flight + self.think_s * (served.requests_per_s or 0.0)

    def part(self, served: Served) -> float:
        """Return what part of the peak is served; of a budget all, since its peak is what it buys."""
        if self.currency in BUDGETS:
            return 1.0
        rates = {"req_s": served.requests_per_s or 0.0, "tok_s": served.tok_s, "users": self.users_of(served)}
        return rates[self.currency] * self.utilization / self.amount

    @property
    def limits(self) -> list[float]:
        """Times per output token that the size is told at: the limit, then longer ones; none without a limit."""
        return (
            [] if self.tpot_s is None else [self.tpot_s, *(self.tpot_s * times for times in _LOOSER_FACTORS)]
        )


@dataclass(frozen=True)
class Level:
    """Fewer units than are needed, or one more.

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


@dataclass(frozen=True, repr=False)
class Size(Shown):
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
    fewer:
        The levels below: a unit fewer, and a tenth of them fewer where that is another number.
    joined:
        The most output tokens per second of 1, 2, 4... units joined, by their number.
    unjoined:
        Why units are not joined; empty where they are.
    usual, left_out:
        The limits that are usual ones (``tpot_s``, ``ttft_s``), and those of them that nothing keeps.
    on_average:
        GPUs that are enough where waiting is left out; None where it is.
    other:
        What the recipe that is not in force would bring; None where that is about the same.
    more:
        The level of a unit more; None where levels were not asked for.
    caches:
        What a unit costs with more and less memory for caches of prompts, where the best was asked for.
    """

    deployment: Deployment
    demand: Demand
    lengths: Lengths | None
    served: Served
    fewer: tuple[Level, ...]
    joined: Mapping[int, float]
    unjoined: str = ""
    usual: frozenset[str] = frozenset()
    left_out: tuple[LimitError, ...] = ()
    on_average: int | None = None
    other: OtherRecipe | None = None
    more: Level | None = None
    caches: tuple[CachePoint, ...] = ()
    _bills: dict[int, Bill] = field(default_factory=dict, compare=False, repr=False)
    _sizes: _Sizes | None = field(default=None, compare=False, repr=False)

    def at_speed(self, tok_s_per_user: float) -> Size | None:
        """Return the size for the same demand at another speed, of one layout a pool; None where none is so fast."""
        if self._sizes is None:
            return None
        try:
            return replace(self._sizes, fleet=None).at(1 / tok_s_per_user, levels=False)
        except InfeasibleError:  # a budget buys nothing that is so fast
            return None

    def brief(self) -> str:
        """Return the size in one line."""
        subject = self.deployment.brief()
        if self.lengths is not None:
            subject = f"{self.deployment.model.name} on {self.unit.name}, {self.lengths.brief()}"
        return f"{subject}: {self.tok_s:,.0f} output tok/s by {self.gpus:,} GPUs in {self.domains:,} domains"

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
        return units * unit_domains(self.unit) + self.demand.spares

    def pool_tok_s(self) -> Iterator[tuple[Pool, float]]:
        """Yield pools and their tokens per second; those of a side share its own by sequences over time of a step."""
        prompts = (self.served.requests_per_s or 0.0) * (self.lengths.mean_isl if self.lengths else 0.0)
        for tokens, prefills in ((self.served.tok_s, False), (prompts, True)):
            side = [pool for pool in self.served.pools if (pool.role == "prefill") == prefills]
            rates = [pool.batch * pool.gpus / pool.step_s for pool in side]
            yield from ((pool, tokens * rate / sum(rates)) for pool, rate in zip(side, rates, strict=True))

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
    def racks(self) -> Racks:
        """Racks of all domains, those of their switches too."""
        return self._racks(self.demand.spares)

    @property
    def serving_racks(self) -> Racks:
        """Racks of the domains that serve."""
        return self._racks(0)

    def _racks(self, spares: int) -> Racks:
        """Return the racks of the units that serve and of so many spares; broken GPUs stand there too."""
        cluster = build_cluster(replace(self.unit.spec, faults=()))
        spare = self.unit.gpus[[gpu.id for gpu in self.unit.gpus].index(_spare(self.unit)[0])].domain
        return racks_of(
            cluster, ((gpu, self.served.units + spares * (gpu.domain == spare)) for gpu in cluster.gpus)
        )

    @property
    def bill(self) -> Bill:
        """What all domains cost and draw, spares too."""
        return self.bill_of(self.served.units)

    def bill_of(self, units: int) -> Bill:
        """Bill of the serving units and the spares.

        Switches between units count where they have figures of their own, as many for each unit as where as many of
        them are joined as are priced together.
        """
        book, spares = self.deployment.prices, self.demand.spares
        joined = max(k for k in (1, *self.joined) if k <= units)
        if joined not in self._bills:
            self._bills[joined] = book.bill(repeated(self.unit, joined))
        unit = self._bills[joined].times(units / joined)
        return (
            Bill.together([unit, book.bill(self.unit, _spare(self.unit)).times(spares)]) if spares else unit
        )

    def cost_of(self, currency: str, units: int) -> float:
        """Return what so many units and the spares take of a budget (:data:`BUDGETS`).

        Raises
        ------
        InputError
            If they have no such figure.
        """
        if currency == "gpus":
            return self.gpus_of(units)
        self.deployment.prices.refuse_unknown(self.unit, currency)
        bill = self.bill_of(units)
        return (bill.usd_per_hour if currency == "usd_h" else bill.power_w and bill.power_w / 1e6) or 0.0

    @property
    def tok_s(self) -> float:
        """Output tokens per second that are served on average: a demand, or a budget's capacity in use."""
        if self.demand.tok_s is not None:
            return self.demand.tok_s
        return self.served.tok_s * self.demand.utilization / self.demand.part(self.served)

    @property
    def peak_tok_s(self) -> float:
        """Output tokens per second at the peak."""
        return self.tok_s / self.demand.utilization

    @property
    def usd_per_million(self) -> float:
        """USD for a million output tokens of the average, spares and idle GPUs too.

        Raises
        ------
        InputError
            If GPUs have no price.
        """
        return 1e6 * self.cost_of("usd_h", self.served.units) / 3600 / self.tok_s

    @cached_property
    def token_prices(self) -> TokenPrices:
        """USD for a million tokens of each kind at the average, together the whole bill."""
        if self.served.shares is None or self.lengths is None:
            return TokenPrices()
        return self.served.shares().prices(self.bill, self.tok_s, self.lengths)

    @property
    def tok_s_per_gpu(self) -> float:
        """Output tokens per second over the GPUs of the units that serve, idle ones too."""
        return self.served.tok_s / self.serving_gpus

    @property
    def errors(self) -> tuple[ErrorOf, ...]:
        """The errors of the chips."""
        return errors_in(self.deployment, near=self.served.pools[-1].near)


def size(
    deployment: Deployment,
    demand: Demand,
    *,
    lengths: Lengths | None = None,
    redundant: int | None = None,
    imbalance: float | None = None,
    fleet: FleetOn | None = None,
    levels: bool = True,
) -> Size:
    """Return the fewest units of ``deployment.cluster`` that serve ``demand``, or the most that a budget buys.

    With ``usd_m`` its time per output token is found first, and kept in the demand of what is returned.

    Parameters
    ----------
    deployment:
        The unit, the model and the workload of decode; with ``lengths`` its context plays no part.
    lengths:
        Tokens of prompts and answers: both phases, in pools that match. None: decode alone.
    redundant, imbalance:
        As :func:`cost.layouts.sweep` takes them; an imbalance of None is 1 for decode alone, the usual one for pools.
    fleet:
        Makes replicas of different shapes on units: on all of few units where they save one, and instead of layouts
        over the whole unit where its domains are not alike. None: one shape a pool.
    levels:
        Whether fleets of more and of fewer units are priced too, which takes longer than the size itself.

    Raises
    ------
    InfeasibleError
        If the model does not fit, nothing keeps the limits (:class:`cost.serving.limits.LimitError`), or a budget is
        too small: the message names the best or the least that can be had.
    InputError
        If a mix of lengths is given and domains of the unit differ in size, decode alone is asked for so many
        requests, or a budget is in what has no figure.
    """
    if lengths is None:
        for name in ("req_s", "think_s"):
            if getattr(demand, name):
                raise InputError(
                    f"decode only has no requests; give {input_name('isl')} and {input_name('osl')}.",
                    field=name,
                    value=f"{getattr(demand, name):g}",
                )
    unit, searched = deployment.cluster, demand.usd_m is not None and demand.tpot_s is None
    if demand.ttft_p99_s is not None and lengths is not None:
        from cost.queueing.choice import loaded_supply
        from cost.queueing.load import LoadLimits

        _require_one_size(unit, lengths)
        limits = LoadLimits(demand.ttft_p99_s, demand.tpot_s)
        one_shape = loaded_supply(deployment, lengths, demand.ttft_s, limits)
        unjoined, fleet = "requests queue within each unit only", None
    elif fleet is not None and not searched and not alike(unit.spec):
        one_shape = fleet_supply(unit, fleet)
        unjoined = "each unit has a separate fleet, since its domains differ or are incomplete"
    else:
        _require_one_size(unit, lengths)
        one_shape, unjoined = layout_supply(
            deployment, lengths, demand.limits, demand.ttft_s, redundant, imbalance
        )
    work = (
        deployment.workload
        if lengths is None
        else lengths.workloads(deployment.workload, deployment.scheduler)[0]
    )
    shapes = None if unjoined or searched else fleet
    sizes = _Sizes(replace(deployment, workload=work), demand, lengths, one_shape, unjoined, shapes)
    answer = sizes.at(sizes.fastest_tpot() if searched else demand.tpot_s, levels=levels)
    if answer is None:
        _refuse(deployment, demand, one_shape)
    return answer


@dataclass(frozen=True, eq=False)
class _Sizes:
    """Sizes at any time per output token, of layouts and ``fleet`` that are priced once."""

    deployment: Deployment
    demand: Demand
    lengths: Lengths | None
    one_shape: Supply
    unjoined: str
    fleet: FleetOn | None
    bills: dict[int, Bill] = field(default_factory=dict)

    def at(self, tpot_s: float | None, *, levels: bool = True) -> Size | None:
        """Return the size, with the levels below; None where no number of units keeps the limits."""
        least = self.one_shape.least_units(tpot_s)
        if least is None:
            return None
        base = Size(
            deployment=self.deployment,
            demand=replace(self.demand, tpot_s=tpot_s),
            lengths=self.lengths,
            served=self.one_shape.served(least, tpot_s),
            fewer=(),
            joined={k: self.one_shape.rate(k, tpot_s) for k in self.one_shape.joinable},
            unjoined=self.unjoined,
            _bills=self.bills,
            _sizes=self,
        )
        if self.demand.currency in BUDGETS:
            units = _affordable(base)
            peak = self._supply(None, tpot_s).rate(units, tpot_s)
            part: Part = lambda served: served.tok_s / peak  # noqa: E731 - what a demand would be
        else:
            part = self.demand.part
        supply = self._supply(part, tpot_s)
        units = supply.fewest_units(part, tpot_s) or least  # of a budget too: the last units may add nothing
        if self.demand.currency == "users":  # a unit more may be served faster, and so fewer users at once
            near = range(max(1, units - _FEWER_UNITS), units + 1)
            units = next(
                fewer_units
                for fewer_units in near
                if fewer_units == units or supply.part(part, fewer_units, tpot_s) >= FULL_PART
            )
        below = sorted({units - 1, math.floor(0.9 * units)} - {0}, reverse=True)

        def level(count: int) -> Level:
            tpot = None if tpot_s is None else supply.shortest_tpot(part, count)
            return Level(count, supply.rate(count, tpot_s), tpot)

        return replace(
            base,
            served=supply.served(units, tpot_s),
            fewer=tuple(map(level, below)) if levels else (),
            more=level(units + 1) if levels else None,
        )

    def _supply(self, part: Part | None, tpot_s: float | None) -> Supply:
        if self.fleet is None:
            return self.one_shape
        return with_fleets(self.one_shape, self.fleet, self.deployment.cluster, part, tpot_s)

    def fastest_tpot(self) -> float:
        """Return the shortest time per output token at which a million of them cost no more than they may.

        Raises
        ------
        InfeasibleError
            If they cost more at any.
        """
        tpots, budget = self.one_shape.tpots, (self.demand.usd_m or 0.0) * BUDGET_ROUNDING
        slowest = self.at(None, levels=False)
        if slowest is None:
            _refuse(self.deployment, self.demand, self.one_shape)
        if slowest.usd_per_million > budget:
            raise InfeasibleError(
                f"{input_name('usd_m')} {self.demand.usd_m or 0.0:g} is out of reach of "
                f"{slowest.unit.name}: at any speed a million output tokens cost "
                f"{rounded_up(slowest.usd_per_million)} USD or more."
            )

        def dearer(row: int) -> bool:
            try:
                answer = self.at(float(tpots[row]), levels=False)
            except InfeasibleError:  # a budget buys nothing that is so fast
                return True
            return answer is None or answer.usd_per_million > budget

        end = len(tpots) - 1
        return float(tpots[1 + last_before(-1, end, end // 2, dearer)])


def _affordable(smallest: Size) -> int:
    """Return the most units that a budget buys, ``smallest`` being of the fewest that serve.

    Raises
    ------
    InfeasibleError
        If it does not buy those.
    """
    least, name = smallest.served.units, smallest.demand.currency
    budget = smallest.demand.amount * BUDGET_ROUNDING
    cost = smallest.cost_of(name, least)
    if cost > budget:
        raise InfeasibleError(
            f"{input_name(name)} {smallest.demand.amount:g} is too low: the smallest unit of "
            f"{smallest.unit.name} that serves {smallest.deployment.model.name} takes {rounded_up(cost)} "
            f"{BUDGETS[name]} ({smallest.gpus:,} GPUs)."
        )
    near = math.floor(least * budget / cost)
    too_many = near + 1
    while smallest.cost_of(name, too_many) <= budget:
        too_many *= 2
    return last_before(least, too_many, near, lambda units: smallest.cost_of(name, units) <= budget)


def _require_one_size(unit: Cluster, lengths: Lengths | None) -> None:
    sizes = {len(gpus) for gpus in domain_gpus(unit)}
    if lengths is not None and len(sizes) > 1:
        raise InputError(
            f"the domains of {unit.name} have {min(sizes)} to {max(sizes)} GPUs, and a mix of lengths is "
            f"served by pools over domains of one size; size each kind of domain separately, or give one "
            f"{input_name('isl')} and {input_name('osl')}.",
            field="lengths",
        )


def _refuse(deployment: Deployment, demand: Demand, supply: Supply) -> NoReturn:
    """Raise LimitError: no number of units keeps the limits, and what the best is that can be had."""
    out = f"is out of reach on any number of {deployment.cluster.name}: the fastest"
    fastest = supply.shortest_tpot(lambda _served: 1.0)
    if fastest is None and supply.fastest_ttft_s is not None:
        raise LimitError(
            "ttft_s",
            f"{input_name('ttft_ms')} {(demand.ttft_s or 0.0) * 1e3:g} {out} prefill and transfer take "
            f"{rounded_up(supply.fastest_ttft_s() * 1e3)} ms; relax the limit, or use faster GPUs.",
        )
    if fastest is None:
        raise InfeasibleError(f"{deployment.model.name} yields no tokens on {deployment.cluster.name}.")
    raise LimitError(
        "tpot_s",
        f"{input_name('tpot_ms')} {(demand.tpot_s or 0.0) * 1e3:g} {out} layout takes "
        f"{rounded_up(fastest * 1e3)} ms per token ({rounded_down(1 / fastest)} tok/s/user); relax the "
        "limit, or use faster GPUs.",
    )


def _spare(unit: Cluster) -> list[str]:
    """The GPUs of a spare domain, which is as the fullest of the unit."""
    fullest = max(domain_gpus(unit), key=len)
    return [unit.gpus[gpu].id for gpu in fullest]
