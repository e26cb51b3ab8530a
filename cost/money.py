"""What the GPUs of a cluster cost and draw: prices and powers with their origin, added up over those that work.

A price of any basis is for a whole GPU-hour: host, network, power and building are in it. An all-in power has the
GPU's share of them too. Switches and optics have lines of their own only beside figures that they are not in: the
power of a system's racks or hosts, and the user's own figures where the user gives some of the network too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cost.network import NETWORK, NetworkPart, count_parts, network_parts
from cost.prices import (
    PRICE_BASES,
    Batch,
    gpu_power,
    gpu_price,
    tok_s_per_mw,
    unknown_basis,
    usd_per_million_tokens,
)
from cost.quantity import require_number
from cost.written import BillData, PriceFigure, TotalsData, UsedData
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence, Figure, weakest
from topology.base.names import Names
from topology.cluster import Cluster
from topology.physical import system_power
from topology.spec import GpuSpec
from topology.structures.domain import DomainSpec

HOURS_PER_YEAR = 8760.0
"""Of 365 days."""
_SECONDS_PER_HOUR = 3600.0
_POSSIBLE = {"USD/h": (1e-6, 1e5), "W": (1e-3, 1e6)}
"""The least and the most that an hour of one part costs, and that it draws: beyond that a unit is off."""


@dataclass(frozen=True)
class BillPart:
    """``count`` parts of one kind; the figures are those of one of them, None where there is none."""

    name: str
    count: float
    usd_per_h: Figure | None
    power_w: Figure | None
    all_in: bool = True
    """Whether the power has its share of host, network, cooling and conversion."""


@dataclass(frozen=True)
class Bill:
    """What some GPUs cost and draw, whether they are busy or idle.

    Attributes
    ----------
    basis:
        The basis of the prices, one of :data:`cost.prices.PRICE_BASES`; prices of the user's go before it.
    gpus:
        GPUs that are paid for.
    usd_per_h, power_w:
        In all; None where a part has no figure.
    usd_kind, power_kind:
        The weakest evidence behind each, None where there is no sum.
    parts:
        GPUs by kind, in the order of the cluster.
    network:
        Switches and transceivers that have a figure and are not in those of the GPUs.
    left_out:
        What has no figure and is in no sum, and how to give one: a sentence each.
    """

    basis: str
    gpus: int
    usd_per_h: float | None
    power_w: float | None
    usd_kind: Evidence | None
    power_kind: Evidence | None
    parts: tuple[BillPart, ...]
    network: tuple[BillPart, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def usd_per_year(self) -> float | None:
        """USD of a year (8,760 hours), used or not."""
        return None if self.usd_per_h is None else self.usd_per_h * HOURS_PER_YEAR

    @classmethod
    def of(
        cls, basis: str, parts: Sequence[BillPart], network: Sequence[BillPart], left_out: Iterable[str]
    ) -> Bill:
        """Return the bill of some parts, added up."""
        usd, usd_kind = _total(parts, network, lambda part: part.usd_per_h)
        power, power_kind = _total(parts, network, lambda part: part.power_w)
        return cls(
            basis=basis,
            gpus=round(math.fsum(part.count for part in parts)),
            usd_per_h=usd,
            power_w=power,
            usd_kind=usd_kind,
            power_kind=power_kind,
            parts=tuple(parts),
            network=tuple(network),
            left_out=tuple(left_out),
        )

    @classmethod
    def together(cls, bills: Sequence[Bill]) -> Bill:
        """Return the bill of several, of GPUs that are not the same; their basis is one."""
        parts: dict[BillPart, float] = {}
        network: dict[BillPart, float] = {}
        for bill in bills:
            for found, some in ((parts, bill.parts), (network, bill.network)):
                for part in some:
                    kind = replace(part, count=1)
                    found[kind] = found.get(kind, 0) + part.count
        return cls.of(
            bills[0].basis,
            [replace(kind, count=count) for kind, count in parts.items()],
            [replace(kind, count=count) for kind, count in network.items()],
            dict.fromkeys(text for bill in bills for text in bill.left_out),
        )

    def times(self, count: float) -> Bill:
        """Return the bill of as many such GPUs ``count`` times."""
        parts = [replace(part, count=part.count * count) for part in self.parts]
        network = [replace(part, count=part.count * count) for part in self.network]
        return Bill.of(self.basis, parts, network, self.left_out)

    def usd_per_million(self, tok_s: Batch) -> Batch | None:
        """USD for a million tokens at ``tok_s`` tokens/s of all these GPUs together; None without a price.

        Raises
        ------
        InputError
            If a throughput is not above 0.
        """
        if self.usd_per_h is None:
            return None
        return usd_per_million_tokens(tok_s, self.usd_per_h / _SECONDS_PER_HOUR)

    def tok_s_per_mw(self, tok_s: Batch) -> Batch | None:
        """Tokens/s per megawatt at ``tok_s`` tokens/s of all these GPUs together; None without a power.

        Raises
        ------
        InputError
            If a throughput is not above 0.
        """
        return None if self.power_w is None else tok_s_per_mw(tok_s, self.power_w)


@dataclass(frozen=True)
class Totals:
    """What some GPUs give at once, beside what they cost and draw.

    Attributes
    ----------
    tok_s:
        Tokens/s of all GPUs of ``bill`` together; 0 where nothing runs.
    tokens:
        Which tokens: ``output`` or ``input``.
    requests_per_s:
        Requests served in a second; None where the length of an answer is not known.
    gpus_idle:
        GPUs of ``bill`` that do nothing, and are paid for; None where nobody looked.
    alone:
        The phase that these GPUs do, where others do the other: ``decode`` or ``prefill``; empty where both are in.
    used:
        The bill of those in use alone; None where that is of all of them, or nobody looked.
    """

    bill: Bill
    tok_s: float
    tokens: str = "output"
    requests_per_s: float | None = None
    gpus_idle: int | None = None
    alone: str = ""
    used: Bill | None = None

    @property
    def tok_s_per_gpu(self) -> float:
        """Tokens/s of each GPU that is paid for."""
        return self.tok_s / self.bill.gpus

    @property
    def usd_per_million(self) -> float | None:
        """USD for a million of these tokens; None without a price, or without a token."""
        return self.bill.usd_per_million(self.tok_s) if self.tok_s > 0 else None

    @property
    def tok_s_per_mw(self) -> float | None:
        """Tokens/s per megawatt; None without a power, or without a token."""
        return self.bill.tok_s_per_mw(self.tok_s) if self.tok_s > 0 else None


@dataclass(frozen=True)
class PriceBook:
    """At which prices and powers GPUs are counted: those of a basis, but for kinds of GPU that the user gives.

    Attributes
    ----------
    basis:
        One of :data:`cost.prices.PRICE_BASES`.
    prices:
        USD for an hour of one GPU, by name of its kind (``{"gb200": 3.10}``).
    powers:
        All-in watts of one GPU, by name of its kind. Both may have a ``switch`` between domains and a ``transceiver``
        there: the figures given for GPUs are then without the network.

    Raises
    ------
    InputError
        If there is no such basis, or a price or power is not above 0.
    """

    basis: str = "rental"
    prices: Mapping[str, float] = field(default_factory=dict)
    powers: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.basis not in PRICE_BASES:
            raise unknown_basis(self.basis)
        for name, given in (("prices", self.prices), ("powers", self.powers)):
            for gpu, value in given.items():
                require_number(f"`{name[:-1]}` {gpu}", value, above=0)
                _require_possible(f"`{name[:-1]}` {gpu}", value, "USD/h" if name == "prices" else "W")
            object.__setattr__(self, name, dict(sorted(given.items())))

    def __hash__(self) -> int:
        return hash((self.basis, *self.prices.items(), *self.powers.items()))

    def price(self, gpu: GpuSpec) -> Figure:
        """Return what an hour of ``gpu`` costs (:func:`cost.prices.gpu_price`).

        Raises
        ------
        MissingFigureError
            If there is no figure.
        """
        return _own_or(self.prices, gpu, "price", "USD/h", lambda: gpu_price(gpu, self.basis))

    def power(self, gpu: GpuSpec) -> Figure:
        """Return the all-in power of ``gpu`` (:func:`cost.prices.gpu_power`).

        Raises
        ------
        MissingFigureError
            If there is no figure.
        """
        return _own_or(self.powers, gpu, "power", "W", lambda: gpu_power(gpu))

    def bill(self, cluster: Cluster, gpus: Sequence[str] | None = None) -> Bill:
        """Return what the GPUs of ``cluster`` that work cost and draw; with ``gpus`` (ids), those alone.

        Raises
        ------
        InputError
            If an id is not that of a GPU that works, or stands twice; as :meth:`check`.
        """
        self.check(cluster)
        domains = Counter(gpu.domain for gpu in cluster.gpus) if gpus is None else _domains(cluster, gpus)
        kinds: dict[int, BillPart] = {}
        counts: Counter[BillPart] = Counter()
        left_out: dict[str, None] = {}
        for domain, count in sorted(domains.items()):
            spec = cluster.spec.domains[domain]
            if id(spec) not in kinds:
                kinds[id(spec)] = self._part(spec, left_out)
            counts[kinds[id(spec)]] += count
        parts = [replace(part, count=count) for part, count in counts.items()]
        network = self._network(cluster, parts, left_out)
        return Bill.of(self.basis, parts, network, left_out)

    def _part(self, domain: DomainSpec, left_out: dict[str, None]) -> BillPart:
        """Return one GPU of ``domain``; what has no figure goes to ``left_out``."""
        gpu = domain.gpu
        price, power = _found(self.price, gpu, left_out), None
        all_in = not (gpu.name in self.powers and self.powers.keys() & set(NETWORK))
        try:
            power = self.power(gpu)
        except MissingFigureError as error:
            system = system_power(domain)
            if system is None:
                left_out[str(error)] = None
            else:
                all_in = False
                power = replace(system, value=system.value / domain.gpus)
                left_out[
                    f"{gpu.name}: its power is its share of the system's, without cooling and conversion."
                ] = None
        return BillPart(gpu.name, 1, price, power, all_in)

    def check(self, cluster: Cluster) -> None:
        """Refuse what cannot be counted, before anything is computed.

        Raises
        ------
        InputError
            If a price or a power of a GPU is beyond any; if a switch or a transceiver has a price here and a GPU of
            ``cluster`` has none, or it has a power and a GPU's is all-in.
        """
        gpus = {domain.gpu.name: domain.gpu for domain in cluster.spec.domains}
        for gpu in gpus.values():
            _found(self.price, gpu, {})
            _found(self.power, gpu, {})
        all_in = [name for name, gpu in gpus.items() if _found(gpu_power, gpu, {})]
        for option, given, known in (("price", self.prices, [*gpus]), ("power", self.powers, all_in)):
            network = next((name for name in NETWORK if name in given), None)
            whole = [name for name in known if name not in given]
            if network and whole:
                raise InputError(
                    f"`{option}` {network}: the {option} of {whole[0]} has its share of the network already; give "
                    f"`{option}` {whole[0]} without it too, or leave {network} out."
                )

    def _network(
        self, cluster: Cluster, parts: Sequence[BillPart], left_out: dict[str, None]
    ) -> list[BillPart]:
        """Return the switches and optics that are in no figure of ``parts``, in the share of these GPUs."""
        every = len(cluster.whole.gpus)
        priced = math.fsum(part.count for part in parts) / every
        powered = math.fsum(part.count for part in parts if not part.all_in) / every
        lines: list[tuple[NetworkPart, float, Figure | None, Figure | None]] = []
        for one in network_parts(cluster):
            usd, watts = self.prices.get(one.kind), self.powers.get(one.kind)
            power = one.power_w if watts is None else _users(watts, "W", "the power given")
            if usd is not None:
                lines.append((one, priced, _users(usd, "USD/h", "the price given"), None))
            if powered and power is not None:
                lines.append((one, powered, None, power))
            if powered and power is None:
                left_out[f"{one.name}: no power is in the catalog; give yours with `power` {one.kind}=W."] = (
                    None
                )
        counts, uncounted = count_parts(cluster, [one for one, *_ in lines])
        if uncounted:
            left_out[uncounted] = None
        return [
            BillPart(one.name, count * share, price, power, all_in=False)
            for (one, share, price, power), count in zip(lines, counts, strict=True)
        ]


def gpu_named(text: str, clusters: Iterable[Cluster]) -> str:
    """Return the kind of GPU in ``clusters`` called ``text``: in any case, or by its first words (``h100``).

    Raises
    ------
    InputError
        If none of them, or more than one, is called that.
    """
    kinds = Names(
        "GPU", {domain.gpu.name: domain.gpu.name for one in clusters for domain in one.spec.domains}
    )
    found = kinds.one(text)
    if found is None:
        near = kinds.near(text) or f"there are {', '.join(kinds.spellings)}."
        raise InputError(f"no GPU here is called {text!r}; {near}")
    return found


def _require_possible(what: str, value: float, unit: str) -> None:
    """Refuse a figure that no part has."""
    least, most = _POSSIBLE[unit]
    if not least <= value <= most:
        raise InputError(f"{what}: {value:g} {unit} is beyond any ({least:g} to {most:g}); check its unit.")


def _own_or(
    given: Mapping[str, float], gpu: GpuSpec, what: str, unit: str, catalog: Callable[[], Figure]
) -> Figure:
    """Return the figure given for ``gpu``, else the catalog's, which is refused where it is beyond any."""
    own = given.get(gpu.name)
    if own is not None:
        return _users(own, unit, f"the {what} given")
    figure = catalog()
    _require_possible(f"{what} of {gpu.name}", figure.value, figure.unit)
    return figure


def _users(value: float, unit: str, source: str) -> Figure:
    return Figure(value, unit, Evidence.USER, source, f"{value:g} {unit}")


def _domains(cluster: Cluster, gpus: Sequence[str]) -> Counter[int]:
    """Return how many of ``gpus`` are in each domain."""
    domain_of = {gpu.id: gpu.domain for gpu in cluster.gpus}
    seen: set[str] = set()
    for gpu in gpus:
        if gpu not in domain_of:
            raise InputError(f"GPU {gpu!r}: {cluster.name} has none of that id that works.")
        if gpu in seen:
            raise InputError(f"GPU {gpu!r}: duplicate id.")
        seen.add(gpu)
    return Counter(domain_of[gpu] for gpu in gpus)


def _found(figure: Callable[[GpuSpec], Figure], gpu: GpuSpec, left_out: dict[str, None]) -> Figure | None:
    """Return a figure of ``gpu``, or None and what its absence says."""
    try:
        return figure(gpu)
    except MissingFigureError as error:
        left_out[str(error)] = None
        return None


def _total(
    parts: Sequence[BillPart], network: Sequence[BillPart], figure: Callable[[BillPart], Figure | None]
) -> tuple[float | None, Evidence | None]:
    """Return a sum with the weakest evidence behind it; None where a part, network apart, has no figure."""
    figures = [(part.count, found) for part in parts if (found := figure(part)) is not None]
    if len(figures) < len(parts):
        return None, None
    figures += [(part.count, found) for part in network if (found := figure(part)) is not None]
    return math.fsum(count * one.value for count, one in figures), weakest(one.kind for _, one in figures)


def totals_to_dict(totals: Totals) -> TotalsData:
    """Return totals as data, under the keys that every command and file has.

    Null is what has no figure: ``missing`` says of what, and how to give it.
    """
    return {
        "gpus": totals.bill.gpus,
        "gpus_idle": totals.gpus_idle,
        "tokens": totals.tokens,
        "phase": totals.alone or "both",
        "tok_s_per_gpu": totals.tok_s_per_gpu,
        "tok_s": totals.tok_s,
        "requests_per_s": totals.requests_per_s,
        "usd_per_million_tokens": totals.usd_per_million,
        "tok_s_per_mw": totals.tok_s_per_mw,
        **bill_to_dict(totals.bill),
        "used": None if totals.used is None else _used_to_dict(replace(totals, bill=totals.used)),
    }


def _used_to_dict(totals: Totals) -> UsedData:
    """Return what totals come to with the GPUs in use paid for alone."""
    return {
        "gpus": totals.bill.gpus,
        "tok_s_per_gpu": totals.tok_s_per_gpu,
        "usd_per_hour": totals.bill.usd_per_h,
        "usd_per_million_tokens": totals.usd_per_million,
        "power_w": totals.bill.power_w,
        "tok_s_per_mw": totals.tok_s_per_mw,
    }


def bill_to_dict(bill: Bill) -> BillData:
    """Return a bill as data: what it comes to, of which parts, and what is ``missing``."""
    return {
        "usd_per_hour": bill.usd_per_h,
        "usd_per_year": bill.usd_per_year,
        "price_basis": bill.basis,
        "price_kind": None if bill.usd_kind is None else bill.usd_kind.label,
        "power_w": bill.power_w,
        "power_kind": None if bill.power_kind is None else bill.power_kind.label,
        "parts": [
            {
                "name": part.name,
                "count": part.count,
                "usd_per_hour": _figure(part.usd_per_h),
                "power_w": _figure(part.power_w),
                "all_in": part.all_in,
            }
            for part in (*bill.parts, *bill.network)
        ],
        "missing": list(bill.left_out),
    }


def _figure(figure: Figure | None) -> PriceFigure | None:
    if figure is None:
        return None
    return {"value": figure.value, "unit": figure.unit, "kind": figure.kind.label, "source": figure.source}
