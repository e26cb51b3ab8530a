"""Prices and powers of GPUs, and what they make of a throughput: dollars a million tokens, tokens a megawatt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np

from cost.economics.figure_file import figure_file
from cost.economics.roofline import Batch
from topology.cluster import Cluster
from topology.errors import InputError, MissingFigureError
from topology.fields import nearest
from topology.figures import Evidence, Figure
from topology.spec import GpuSpec

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
        raise InputError(f"price basis {basis!r}: {nearest(basis, PRICE_BASES)}")
    own = gpu.figures.get(_PRICE)
    figure = own if basis == "list" or _users(own) else _catalog(gpu.name).get(f"{basis}_{_PRICE}")
    if figure is None:
        raise MissingFigureError(
            f"{gpu.name}: no {basis} price is in the catalog; give yours in the cluster YAML, like "
            f"`prices: {{{gpu.name}: 2.5 USD/h}}`{_other_bases(gpu)}."
        )
    return figure


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
            f"{gpu.name}: no all-in power is in the catalog; give yours in the cluster YAML, like "
            f"`gpus: {{{gpu.name}: {{power_w: 2.1 kW}}}}`."
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
    _refuse_none("tok_s_per_gpu", tok_s_per_gpu)
    _refuse_none("usd_per_gpu_s", usd_per_gpu_s)
    return 1e6 * usd_per_gpu_s / tok_s_per_gpu


def tok_s_per_mw(tok_s_per_gpu: Batch, power_w: float) -> Batch:
    """``1e6 * throughput / power``: 5,789.6 tok/s at 2.1 kW is 2.757 M.

    Raises
    ------
    InputError
        If a throughput or the power is not above 0.
    """
    _refuse_none("tok_s_per_gpu", tok_s_per_gpu)
    _refuse_none("power_w", power_w)
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


def _refuse_none(what: str, value: Batch) -> None:
    values = np.asarray(value, dtype=np.float64)
    wrong = values[~(np.isfinite(values) & (values > 0))]
    if wrong.size:
        raise InputError(f"{what} {wrong.flat[0]:g}: expected a number above 0.")
