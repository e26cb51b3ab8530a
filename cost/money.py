"""What the GPUs of a cluster cost and draw: prices and powers with their origin, added up over those that work.

A price of any basis is for a whole GPU-hour: host, network, power and building are in it. An all-in power has the
GPU's share of them too. So neither gets a line for switches or optics beside it, which would count them twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
        parts = tuple(
            BillPart(
                name, counts[name], _found(self.price, spec, left_out), _found(self.power, spec, left_out)
            )
            for name, spec in specs.items()
        )
        usd, usd_kind = _total(parts, lambda part: part.usd_per_h)
        power, power_kind = _total(parts, lambda part: part.power_w)
        return Bill(
            basis=self.basis,
            gpus=counts.total(),
            usd_per_h=usd,
            power_w=power,
            usd_kind=usd_kind,
            power_kind=power_kind,
            parts=parts,
            left_out=tuple(left_out),
        )


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
