"""Prices and all-in powers of GPUs, and the bills that they make of clusters.

A price of any basis is for a whole GPU-hour: host, network, power and building are in it. An all-in power has the
GPU's share of them too. Switches and optics have lines of their own only beside figures that they are not in: the
power of a system's racks or hosts, and the user's own figures where the user gives some of the network too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from cost.catalog import catalog_figures
from cost.money.bill import Bill, BillPart, MemoryBillPart, NetworkBillPart
from cost.money.kv_memory import KvMemory
from cost.money.network import NETWORK, NetworkPart, count_parts, network_parts
from cost.quantity import require_number
from topology.base.errors import InputError, MissingFigureError, called, input_name
from topology.base.figures import Evidence, Figure, WrittenFigure
from topology.base.names import Names
from topology.cluster import Cluster
from topology.physical import power_share
from topology.spec import GpuSpec
from topology.structures.domain import DomainSpec

PRICE_BASES = ("owner", "neocloud", "rental", "list")
"""What an hour of a GPU costs whom: its owner, a smaller cloud, a tenant for three years, a cloud's public list."""

_UNITS = {"all_in_power_w": "W", **{f"{basis}_usd_per_h": "USD/h" for basis in PRICE_BASES[:-1]}}
_PLAUSIBLE_RANGES = {"USD/h": (1e-6, 1e5), "W": (1e-3, 1e6)}
"""The least and the most that an hour of one part costs, and that it draws: beyond that a unit is off."""


@cache
def billed_figures() -> dict[str, dict[str, Figure]]:
    """Return further bill figures of each GPU: prices by basis, all-in power."""
    return catalog_figures("economics", "gpus", _UNITS)


@dataclass(frozen=True)
class PriceBook:
    """At which prices and powers GPUs are counted: those of a basis, but for kinds of GPU that the user gives.

    Attributes
    ----------
    basis:
        One of :data:`PRICE_BASES`; ``list`` is the cloud list price in the catalog of GPUs.
    prices:
        USD for an hour of one GPU, by name of its kind (``{"gb200": 3.10}``).
    powers:
        All-in watts of one GPU, by name of its kind. Both may have a ``switch`` between domains and a ``transceiver``
        there: the figures given for GPUs are then without the network.
    memory:
        What is bought beside GPUs to keep caches of prompts.

    Raises
    ------
    InputError
        If there is no such basis, or a price or power is not above 0.
    """

    basis: str = "rental"
    prices: Mapping[str, float] = field(default_factory=dict)
    powers: Mapping[str, float] = field(default_factory=dict)
    memory: KvMemory = field(default_factory=KvMemory)

    def __post_init__(self) -> None:
        if self.basis not in PRICE_BASES:
            raise InputError(
                f"expected {', '.join(PRICE_BASES[:-1])} or {PRICE_BASES[-1]}.",
                field="price_basis",
                value=f"{self.basis!r}",
            )
        for kind, unit in (("prices", "USD/h"), ("powers", "W")):
            figures: Mapping[str, float] = getattr(self, kind)
            for gpu, value in figures.items():
                require_number(f"{input_name(kind)} {gpu}", value, above=0)
                _require_possible(f"{input_name(kind)} {gpu}", value, unit)
            object.__setattr__(self, kind, dict(sorted(figures.items())))

    def __hash__(self) -> int:
        return hash((self.basis, *self.prices.items(), *self.powers.items(), self.memory))

    def price(self, gpu: GpuSpec) -> Figure:
        """Return the price of a GPU-hour: the given one, else that of the cluster file, else that of the catalog.

        Raises
        ------
        MissingFigureError
            If nobody has published the price: give one.
        """
        if gpu.name in self.prices:
            return _user_figure(self.prices[gpu.name], "USD/h", "price")
        figure = gpu.figures.get("usd_per_h")
        if self.basis != "list" and not _set_by_user(figure):
            figure = billed_figures().get(gpu.name, {}).get(f"{self.basis}_usd_per_h")
        if figure is None:
            raise MissingFigureError(
                f"{gpu.name}: the catalog has no {self.basis} price; set one with "
                f"{input_name('prices')} {gpu.name}=2.50, or in the cluster YAML, like `prices: "
                f"{{{gpu.name}: 2.5 USD/h}}`{_other_bases(gpu)}."
            )
        _require_possible(f"price of {gpu.name}", figure.value, figure.unit)
        return figure

    def power(self, gpu: GpuSpec) -> Figure:
        """Return the all-in power of ``gpu``: the one given here, else the cluster file's, else the catalog's.

        The chip's own limit in the catalog of GPUs is no all-in power and is never taken for one.

        Raises
        ------
        MissingFigureError
            If nobody has published it: give one.
        """
        if gpu.name in self.powers:
            return _user_figure(self.powers[gpu.name], "W", "power")
        figure = gpu.figures.get("power_w")
        if not _set_by_user(figure):
            figure = billed_figures().get(gpu.name, {}).get("all_in_power_w")
        if figure is None:
            raise MissingFigureError(
                f"{gpu.name}: the catalog has no all-in power; set one with {input_name('powers')} "
                f"{gpu.name}=1900, or in the cluster YAML, like `gpus: {{{gpu.name}: {{power_w: 2.1 kW}}}}`."
            )
        _require_possible(f"power of {gpu.name}", figure.value, figure.unit)
        return figure

    def bill(self, cluster: Cluster, gpus: Sequence[str] | None = None) -> Bill:
        """Return the bill of the working GPUs of ``cluster``, or only of ``gpus`` (ids).

        Raises
        ------
        InputError
            If an id is not that of a GPU that works, or is there twice; as :meth:`check`.
        """
        self.check(cluster)
        missing: list[str] = []
        counts = sorted(_counted_gpus(cluster, gpus).items())
        parts = [
            replace(self._part(cluster.spec.domains[domain], missing), count=count)
            for domain, count in counts
        ]
        network, memory = self._network(cluster, parts, missing), self._memory(cluster, counts)
        return Bill.of(self.basis, [*parts, *network, *memory], missing)

    def _memory(self, cluster: Cluster, counts: Sequence[tuple[int, int]]) -> Iterator[MemoryBillPart]:
        """Yield the memory of each place beside some GPUs, by domain, in TB; its power is in no figure."""
        for place in self.memory.sizes:
            for at, count in counts:
                domain = cluster.spec.domains[at]
                size = self.memory.size(domain, place, count, len(cluster.whole.gpus))
                usd = self.memory.usd_per_byte_h(domain.gpu, place)
                price = None if usd is None else replace(usd, value=1e12 * usd.value)
                yield MemoryBillPart(f"TB of {place} cache", size / 1e12, price, None, all_in=False)

    def _part(self, domain: DomainSpec, missing: list[str]) -> BillPart:
        """Return one GPU of ``domain``; what has no figure goes to ``missing``."""
        gpu = domain.gpu
        price, power = _known(self.price, gpu, missing), None
        all_in = not (gpu.name in self.powers and self.powers.keys() & set(NETWORK))
        try:
            power = self.power(gpu)
        except MissingFigureError as error:
            power = power_share(domain)
            if power is None:
                missing.append(str(error))
            else:
                all_in = False
                missing.append(
                    f"{gpu.name}: power is the GPU's share of system power, without cooling and conversion losses."
                )
        return BillPart(
            gpu.name,
            1,
            None if price is None else WrittenFigure.of(price),
            None if power is None else WrittenFigure.of(power),
            all_in,
        )

    def refuse_unknown(self, cluster: Cluster, field: str, value: object = "") -> None:
        """Refuse a budget, in the option ``field`` (``mw``: of power), on a cluster without the figures for it.

        Raises
        ------
        MissingFigureError
            If a GPU of the cluster has no price or power: it says how to give one.
        """
        for domain in cluster.spec.domains:
            if field == "mw" and power_share(domain) is not None:
                continue
            try:
                _ = (self.power if field == "mw" else self.price)(domain.gpu)
            except MissingFigureError as error:
                error.field, error.value = field, value
                raise

    def check(self, cluster: Cluster) -> None:
        """Reject inputs without figures before computing.

        Raises
        ------
        InputError
            If a price or a power of a GPU is beyond any; if a switch or a transceiver has a price here and a GPU of
            ``cluster`` has none, or it has a power and a GPU's is all-in.
        """
        gpus = {domain.gpu.name: domain.gpu for domain in cluster.spec.domains}
        for gpu in gpus.values():
            _known(self.price, gpu, [])
        powered = [name for name, gpu in gpus.items() if _known(self.power, gpu, [])]
        for option, figures, known in (("price", self.prices, [*gpus]), ("power", self.powers, powered)):
            network = next((name for name in NETWORK if name in figures), None)
            all_in = [name for name in known if name not in figures]
            if network and all_in:
                raise InputError(
                    f"{input_name(option + 's')} {network}: the {option} of {all_in[0]} already includes "
                    f"its share of the network; give {input_name(option + 's')} {all_in[0]} without it too, or leave "
                    f"{network} out."
                )

    def _network(
        self, cluster: Cluster, parts: Sequence[BillPart], missing: list[str]
    ) -> list[NetworkBillPart]:
        """Return the switches and optics that are in no figure of ``parts``, in the share of these GPUs."""
        all_gpus = len(cluster.whole.gpus)
        priced = math.fsum(part.count for part in parts) / all_gpus
        powered = math.fsum(part.count for part in parts if not part.all_in) / all_gpus
        lines: list[tuple[NetworkPart, float, WrittenFigure | None, WrittenFigure | None]] = []
        for network_part in network_parts(cluster):
            usd, watts = self.prices.get(network_part.kind), self.powers.get(network_part.kind)
            power = network_part.power_w if watts is None else _user_figure(watts, "W", "power")
            if usd is not None:
                lines.append(
                    (network_part, priced, WrittenFigure.of(_user_figure(usd, "USD/h", "price")), None)
                )
            if powered and power is not None:
                lines.append((network_part, powered, None, WrittenFigure.of(power)))
            if powered and power is None:
                missing.append(
                    f"{network_part.name}: the catalog has no power; set one with "
                    f"{called('powers')} {network_part.kind}=W."
                )
        counts, uncounted = count_parts(cluster, [network_part for network_part, *_ in lines])
        missing += [uncounted] if uncounted else []
        return [
            NetworkBillPart(network_part.name, count * share, price, power, all_in=False)
            for (network_part, share, price, power), count in zip(lines, counts, strict=True)
        ]


def gpu_named(text: str, clusters: Iterable[Cluster]) -> str:
    """Return the kind of GPU in ``clusters`` called ``text``: in any case, or by its first words (``h100``).

    Raises
    ------
    InputError
        If none of them, or more than one, is called that.
    """
    kinds = Names(
        "GPU", {domain.gpu.name: domain.gpu.name for cluster in clusters for domain in cluster.spec.domains}
    )
    name = kinds.one(text)
    if name is None:
        raise InputError(f"no GPU here is named {text!r}; {kinds.near(text)}")
    return name


def _counted_gpus(cluster: Cluster, gpus: Sequence[str] | None) -> Counter[int]:
    """Return how many GPUs of each domain are paid for: those of ``gpus``, or all that work."""
    if gpus is None:
        return Counter(gpu.domain for gpu in cluster.gpus)
    domain_of = {gpu.id: gpu.domain for gpu in cluster.gpus}
    for gpu, count in Counter(gpus).items():
        if gpu not in domain_of:
            raise InputError(f"GPU {gpu!r}: {cluster.name} has no working GPU with this id.")
        if count > 1:
            raise InputError(f"GPU {gpu!r}: duplicate id.")
    return Counter(domain_of[gpu] for gpu in gpus)


def _require_possible(label: str, value: float, unit: str) -> None:
    """Reject a figure that no part has."""
    lowest, highest = _PLAUSIBLE_RANGES[unit]
    if not lowest <= value <= highest:
        raise InputError(
            f"{label}: {value:g} {unit} is not plausible ({lowest:g} to {highest:g}); check its unit."
        )


def _user_figure(value: float, unit: str, option: str) -> Figure:
    return Figure(value, unit, Evidence.USER, f"the {option} given", f"{value:g} {unit}")


def _set_by_user(figure: Figure | None) -> bool:
    return figure is not None and figure.kind is Evidence.USER


def _other_bases(gpu: GpuSpec) -> str:
    """Return which bases this GPU has a price for."""
    known = [
        basis for basis in PRICE_BASES[:-1] if f"{basis}_usd_per_h" in billed_figures().get(gpu.name, {})
    ]
    known += ["list"] * ("usd_per_h" in gpu.figures)
    return f", or use basis {' or '.join(known)}" if known else ""


def _known(figure: Callable[[GpuSpec], Figure], gpu: GpuSpec, missing: list[str]) -> Figure | None:
    """Return a figure of ``gpu``, or None and what its absence says."""
    try:
        return figure(gpu)
    except MissingFigureError as error:
        missing.append(str(error))
        return None
