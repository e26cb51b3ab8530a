"""Prices and powers of GPUs and of the tiers that hold caches, and what they make of a throughput."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.quantity import require_number
from topology.catalog import FigureFile
from topology.cluster import Cluster
from topology.errors import InputError, MissingFigureError
from topology.figures import Evidence, Figure
from topology.spec import GpuSpec

_CATALOG = Path(__file__).parent / "catalog"


@cache
def figure_file(stem: str, table: str, what: str = "name") -> FigureFile:
    """Return the table of one of the files in the catalog, read once; messages call an entry ``what``."""
    return FigureFile(_CATALOG / f"{stem}.yaml", table, what)


Batch = TypeVar("Batch", float, "NDArray[np.float64]")
"""A number, or an array of them: answers have its shape."""

PRICE_BASES = ("owner", "neocloud", "rental", "list")
"""What an hour of a GPU costs whom: its owner, a smaller cloud, a tenant for three years, a cloud's public list."""

_PRICE, _POWER = "usd_per_h", "power_w"
_ALL_IN = "all_in_power_w"
_UNITS = {_ALL_IN: "W", **{f"{basis}_{_PRICE}": "USD/h" for basis in PRICE_BASES[:-1]}}
_SECONDS_PER_HOUR = 3600.0


@cache
def _catalog(name: str) -> dict[str, Figure]:
    """Figures of the GPU called ``name``, none where the file does not have it."""
    file = figure_file("economics", "gpus")
    return file.figures(file.entry(name), _UNITS) if name in file.names else {}


def billed_figures(gpu: str) -> dict[str, Figure]:
    """Return what bills count of the GPU called ``gpu`` besides its list price: prices by basis, all-in power."""
    return dict(_catalog(gpu))


def gpu_price(gpu: GpuSpec, basis: str) -> Figure:
    """Return what an hour of ``gpu`` costs: the user's figure if there is one, else that of ``basis``.

    Parameters
    ----------
    basis:
        One of :data:`PRICE_BASES`; ``list`` is the cloud list price in the catalog of GPUs.

    Raises
    ------
    InputError
        If there is no such basis.
    MissingFigureError
        If nobody has published the price: give one.
    """
    if basis not in PRICE_BASES:
        raise unknown_basis(basis)
    own = gpu.figures.get(_PRICE)
    figure = own if basis == "list" or _users(own) else _catalog(gpu.name).get(f"{basis}_{_PRICE}")
    if figure is None:
        raise MissingFigureError(
            f"{gpu.name}: no {basis} price is in the catalog; give yours with `price` {gpu.name}=2.50, or in the "
            f"cluster YAML, like `prices: {{{gpu.name}: 2.5 USD/h}}`{_other_bases(gpu)}."
        )
    return figure


def unknown_basis(basis: str) -> InputError:
    """Return the refusal of a basis that there is not."""
    return InputError(
        f"`price_basis` {basis!r}: expected {', '.join(PRICE_BASES[:-1])} or {PRICE_BASES[-1]}."
    )


def gpu_power(gpu: GpuSpec) -> Figure:
    """Return the all-in power of ``gpu``: the user's ``power_w`` if there is one, else the catalog's all-in figure.

    The chip's own limit in the catalog of GPUs is no all-in power and is never taken for one.

    Raises
    ------
    MissingFigureError
        If nobody has published it: give one.
    """
    own = gpu.figures.get(_POWER)
    figure = own if _users(own) else _catalog(gpu.name).get(_ALL_IN)
    if figure is None:
        raise MissingFigureError(
            f"{gpu.name}: no all-in power is in the catalog; give yours with `power` {gpu.name}=1900, or in the "
            f"cluster YAML, like `gpus: {{{gpu.name}: {{power_w: 2.1 kW}}}}`."
        )
    return figure


def price_per_gpu_s(cluster: Cluster, basis: str) -> float:
    """USD for a second of one GPU, the mean over the cluster's; see :func:`gpu_price`."""
    return _mean(cluster, lambda gpu: gpu_price(gpu, basis)) / _SECONDS_PER_HOUR


def power_w_per_gpu(cluster: Cluster) -> float:
    """All-in watts of one GPU, the mean over the cluster's; see :func:`gpu_power`."""
    return _mean(cluster, gpu_power)


def usd_per_million_tokens(tok_s_per_gpu: Batch, usd_per_gpu_s: float) -> Batch:
    """``1e6 * price / throughput``: 2.21 USD/h at 5,789.6 tok/s is 0.106 USD.

    The throughput says which tokens: output, input or all.

    Raises
    ------
    InputError
        If a throughput or the price is not above 0.
    """
    require_number("tok_s_per_gpu", tok_s_per_gpu, above=0)
    require_number("usd_per_gpu_s", usd_per_gpu_s, above=0)
    return 1e6 * usd_per_gpu_s / tok_s_per_gpu


def tok_s_per_mw(tok_s_per_gpu: Batch, power_w: float) -> Batch:
    """``1e6 * throughput / power``: 5,789.6 tok/s at 2.1 kW is 2.757 M.

    Raises
    ------
    InputError
        If a throughput or the power is not above 0.
    """
    require_number("tok_s_per_gpu", tok_s_per_gpu, above=0)
    require_number("power_w", power_w, above=0)
    return 1e6 * tok_s_per_gpu / power_w


def _mean(cluster: Cluster, figure: Callable[[GpuSpec], Figure]) -> float:
    """Mean of a figure over the GPUs that work."""
    domains = Counter(gpu.domain for gpu in cluster.gpus)
    values = {domain: figure(cluster.spec.domains[domain].gpu).value for domain in domains}
    return math.fsum(values[domain] * count for domain, count in domains.items()) / len(cluster.gpus)


def _users(figure: Figure | None) -> bool:
    return figure is not None and figure.kind is Evidence.USER


def _other_bases(gpu: GpuSpec) -> str:
    """Say which bases this GPU has a price for."""
    known = [basis for basis in PRICE_BASES[:-1] if f"{basis}_{_PRICE}" in _catalog(gpu.name)]
    known += ["list"] * (_PRICE in gpu.figures)
    return f", or take the basis {' or '.join(known)}" if known else ""


_TIER_UNITS = {"capacity_bytes": "byte", "bytes_per_s": "byte/s", "usd_per_h": "USD/h", "per_gpu": "1"}


@dataclass(frozen=True)
class CacheTier:
    """One device that holds cached contexts; edit a figure with ``dataclasses.replace``.

    Keeping a byte for ``t`` seconds takes ``1 / capacity`` of a device for ``t``; reading it back takes all of the
    device for ``1 / bandwidth``, so ``cost(t) = device_price * (t / capacity + 1 / bandwidth)``. The two are equal at
    the *drain time* ``capacity / bandwidth`` in which a device reads all it holds: a tier is meant for contexts kept
    about as long. HBM holds the bytes where they are used, so reading back costs nothing; its device is the GPU,
    since a full HBM serves nobody else. Writing, latency, host, power and network are left out.

    Attributes
    ----------
    capacity_bytes, bytes_per_s, usd_per_h:
        Of the device: what it holds, how fast it is read, what an hour of it costs.
    in_place:
        Whether the bytes are already where they are used, so that nothing is read back.
    per_gpu:
        Devices of the kind for each GPU of a common host; None where none is usual.
    """

    name: str
    title: str
    capacity_bytes: Figure
    bytes_per_s: Figure
    usd_per_h: Figure
    in_place: bool = False
    per_gpu: Figure | None = None

    @property
    def drain_s(self) -> float:
        """Seconds to read all that the device holds: ``capacity / bandwidth``."""
        return self.capacity_bytes.value / self.bytes_per_s.value

    @property
    def hold_usd_per_byte_s(self) -> float:
        """USD to keep a byte for a second."""
        return self.usd_per_h.value / _SECONDS_PER_HOUR / self.capacity_bytes.value

    @property
    def retrieve_usd_per_byte(self) -> float:
        """USD to read a byte back."""
        return 0.0 if self.in_place else self.usd_per_h.value / _SECONDS_PER_HOUR / self.bytes_per_s.value

    def usd_per_byte(self, seconds: Batch) -> Batch:
        """USD to keep a byte for ``seconds`` and read it back once."""
        return seconds * self.hold_usd_per_byte_s + self.retrieve_usd_per_byte


def cache_tier_names() -> tuple[str, ...]:
    """Names of the catalog's tiers besides HBM, fastest first."""
    return _tiers().names


def _tiers() -> FigureFile:
    return figure_file("cache_tiers", "tiers", "cache tier")


@cache
def cache_tier(name: str) -> CacheTier:
    """Return the tier called ``name`` (``ddr5``, ``flash``, ``disk``).

    Raises
    ------
    InputError
        If the catalog has none of that name.
    """
    file = _tiers()
    entry = file.entry(name)
    title = entry.text("title")
    figures = file.figures(entry, _TIER_UNITS)
    return CacheTier(
        name,
        title,
        figures["capacity_bytes"],
        figures["bytes_per_s"],
        figures["usd_per_h"],
        per_gpu=figures.get("per_gpu"),
    )
