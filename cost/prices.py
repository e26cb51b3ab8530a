"""Prices and powers of GPUs, and what they make of a throughput."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.quantity import require_number
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence, Figure
from topology.catalog import FigureFile
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


def _users(figure: Figure | None) -> bool:
    return figure is not None and figure.kind is Evidence.USER


def _other_bases(gpu: GpuSpec) -> str:
    """Say which bases this GPU has a price for."""
    known = [basis for basis in PRICE_BASES[:-1] if f"{basis}_{_PRICE}" in _catalog(gpu.name)]
    known += ["list"] * (_PRICE in gpu.figures)
    return f", or take the basis {' or '.join(known)}" if known else ""
