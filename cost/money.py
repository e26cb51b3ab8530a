"""What the GPUs of a cluster cost and draw: prices and powers with their origin, added up over those that work.

A price of any basis is for a whole GPU-hour: host, network, power and building are in it. An all-in power has the
GPU's share of them too. So neither gets a line for switches or optics beside it, which would count them twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from topology.cluster import Cluster
from topology.errors import InputError, MissingFigureError
from topology.figures import Evidence, Figure, weakest
from topology.reading import nearest
from topology.spec import GpuSpec

HOURS_PER_YEAR = 8760.0
"""Of 365 days."""
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class BillPart:
    """``count`` parts of one kind; the figures are those of one of them, None where there is none."""

    name: str
    count: float
    usd_per_h: Figure | None
    power_w: Figure | None


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
        usd, usd_kind = _total(parts, lambda part: part.usd_per_h)
        power, power_kind = _total([*parts, *network], lambda part: part.power_w)
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
    """

    bill: Bill
    tok_s: float
    tokens: str = "output"
    requests_per_s: float | None = None
    gpus_idle: int | None = None
    alone: str = ""

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
        All-in watts of one GPU, by name of its kind.

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
        own = self.prices.get(gpu.name)
        return gpu_price(gpu, self.basis) if own is None else _users(own, "USD/h", "the price given")

    def power(self, gpu: GpuSpec) -> Figure:
        """Return the all-in power of ``gpu`` (:func:`cost.prices.gpu_power`).

        Raises
        ------
        MissingFigureError
            If there is no figure.
        """
        own = self.powers.get(gpu.name)
        return gpu_power(gpu) if own is None else _users(own, "W", "the power given")

    def bill(self, cluster: Cluster, gpus: Sequence[str] | None = None) -> Bill:
        """Return what the GPUs of ``cluster`` that work cost and draw; with ``gpus`` (ids), those alone.

        Raises
        ------
        InputError
            If an id is not that of a GPU that works, or stands twice.
        """
        domains = Counter(gpu.domain for gpu in cluster.gpus) if gpus is None else _domains(cluster, gpus)
        counts: Counter[str] = Counter()
        specs: dict[str, GpuSpec] = {}
        for domain, count in sorted(domains.items()):
            spec = cluster.spec.domains[domain].gpu
            specs.setdefault(spec.name, spec)
            counts[spec.name] += count
        left_out: list[str] = []
        parts = [
            BillPart(
                name, counts[name], _found(self.price, spec, left_out), _found(self.power, spec, left_out)
            )
            for name, spec in specs.items()
        ]
        return Bill.of(self.basis, parts, (), left_out)


def gpu_named(text: str, clusters: Iterable[Cluster]) -> str:
    """Return the kind of GPU in ``clusters`` called ``text``: in any case, or by the name's first word (``h100``).

    Raises
    ------
    InputError
        If none of them, or more than one, is called that.
    """
    kinds = list(dict.fromkeys(domain.gpu.name for one in clusters for domain in one.spec.domains))
    wanted = text.strip().lower()
    found = [kind for kind in kinds if kind == text.strip()] or [
        kind for kind in kinds if wanted in (kind.lower(), kind.lower().split("-")[0])
    ]
    if len(found) != 1:
        here = "several GPUs here are" if found else "no GPU here is"
        raise InputError(f"{text!r}: {here} called that; {nearest(text, found or kinds)}")
    return found[0]


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


def _found(figure: Callable[[GpuSpec], Figure], gpu: GpuSpec, left_out: list[str]) -> Figure | None:
    """Return a figure of ``gpu``, or None and what its absence says."""
    try:
        return figure(gpu)
    except MissingFigureError as error:
        left_out.append(str(error))
        return None


def _total(
    parts: Sequence[BillPart], figure: Callable[[BillPart], Figure | None]
) -> tuple[float | None, Evidence | None]:
    """Return a sum over all parts with the weakest evidence behind it; None where a part has no figure."""
    figures = [(part.count, found) for part in parts if (found := figure(part)) is not None]
    if len(figures) < len(parts):
        return None, None
    return math.fsum(count * one.value for count, one in figures), weakest(one.kind for _, one in figures)


def totals_to_dict(totals: Totals) -> dict[str, Any]:
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
    }


def bill_to_dict(bill: Bill) -> dict[str, Any]:
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
            }
            for part in (*bill.parts, *bill.network)
        ],
        "missing": list(bill.left_out),
    }


def _figure(figure: Figure | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    return {"value": figure.value, "unit": figure.unit, "kind": figure.kind.label, "source": figure.source}
