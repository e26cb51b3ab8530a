"""The cheapest place to keep a cached context, by how long it is kept: HBM, DDR, flash, disk, or nowhere.

Keeping a byte for ``t`` seconds takes ``1 / capacity`` of a device for ``t``; reading it back takes all of the
device for ``1 / bandwidth``:

    cost(t) = device_price * (t / capacity + 1 / bandwidth)

The two are equal at ``t = capacity / bandwidth``, the *drain time* in which a device reads all it holds: a tier is
meant for contexts kept about as long. HBM holds the bytes where they are used, so reading back costs nothing; its
device is the GPU, since a full HBM serves nobody else. Writing, latency, host, power and network are left out.
Keeping nothing costs the prefill that computes the context anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cost.economics.figure_file import figure_file
from cost.economics.roofline import Batch
from topology.errors import InputError
from topology.fields import nearest
from topology.figures import Figure
from topology.spec import GpuSpec

RECOMPUTE = "recompute"
"""Name of keeping nothing."""

_UNITS = {"capacity_bytes": "byte", "bytes_per_s": "byte/s", "usd_per_h": "USD/h", "per_gpu": "1"}
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class CacheTier:
    """One device that holds cached contexts; edit a figure with ``dataclasses.replace``.

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


@dataclass(frozen=True)
class TierSpan:
    """From which holding time to which a tier (or :data:`RECOMPUTE`) is the cheapest; the last has no end."""

    name: str
    from_s: float
    to_s: float


def cache_tier_names() -> tuple[str, ...]:
    """Names of the catalog's tiers besides HBM, fastest first."""
    return figure_file("cache_tiers", "tiers").names


@cache
def cache_tier(name: str) -> CacheTier:
    """Return the tier called ``name`` (``ddr5``, ``flash``, ``disk``).

    Raises
    ------
    InputError
        If the catalog has none of that name.
    """
    file = figure_file("cache_tiers", "tiers")
    if name not in file.names:
        raise InputError(f"unknown cache tier {name!r}; {nearest(name, file.names)}")
    entry = file.entry(name)
    title = entry.text("title")
    figures = file.figures(entry, _UNITS)
    return CacheTier(
        name,
        title,
        figures["capacity_bytes"],
        figures["bytes_per_s"],
        figures["usd_per_h"],
        per_gpu=figures.get("per_gpu"),
    )


def hbm_tier(gpu: GpuSpec, price: Figure) -> CacheTier:
    """Return the HBM of ``gpu`` as a tier, at the price of the whole GPU (:func:`cost.economics.prices.gpu_price`).

    Raises
    ------
    MissingFigureError
        If the catalog lacks its capacity or bandwidth.
    """
    return CacheTier(
        "hbm",
        f"HBM of {gpu.title}",
        gpu.figure("hbm_bytes"),
        gpu.figure("hbm_bytes_per_s"),
        price,
        in_place=True,
    )


def cheapest_tiers(
    tiers: Sequence[CacheTier], seconds: NDArray[np.float64], *, recompute_usd_per_byte: float
) -> list[str]:
    """Return the cheapest tier for each holding time; of equals the first named, recomputing last.

    Parameters
    ----------
    recompute_usd_per_byte:
        Cost of prefill per byte of cache: USD of a token over its cache bytes; infinite where it cannot be redone.

    Raises
    ------
    InputError
        If a time is negative or the cost of recomputing is not above 0.
    """
    _refuse(tiers, recompute_usd_per_byte)
    times = np.asarray(seconds, dtype=np.float64)
    if not np.all(np.isfinite(times) & (times >= 0)):
        raise InputError("seconds: a context is kept for a finite time of at least 0 s.")
    rows = [tier.usd_per_byte(times) for tier in tiers] + [np.full_like(times, recompute_usd_per_byte)]
    names = [*(tier.name for tier in tiers), RECOMPUTE]
    return [names[row] for row in np.argmin(np.stack(rows), axis=0).ravel()]


def tier_spans(tiers: Sequence[CacheTier], *, recompute_usd_per_byte: float) -> list[TierSpan]:
    """Return which tier is the cheapest from when to when, by holding time from 0 s on.

    The costs are straight lines over time: from each, the next is the flatter one that crosses it first.

    Raises
    ------
    InputError
        If there is no tier or the cost of recomputing is not above 0.
    """
    _refuse(tiers, recompute_usd_per_byte)
    lines = [(tier.name, tier.retrieve_usd_per_byte, tier.hold_usd_per_byte_s) for tier in tiers]
    if math.isfinite(recompute_usd_per_byte):
        lines.append((RECOMPUTE, recompute_usd_per_byte, 0.0))
    now = min(lines, key=lambda line: (line[1], line[2]))
    spans: list[TierSpan] = []
    since = 0.0
    while True:
        flatter = [line for line in lines if line[2] < now[2]]
        if not flatter:
            return [*spans, TierSpan(now[0], since, math.inf)]
        after, line = min(
            (((line[1] - now[1]) / (now[2] - line[2]), line) for line in flatter),
            key=lambda crossing: (
                crossing[0],
                crossing[1][2],
            ),  # where several cross at once, the flattest goes on
        )
        if after > since:
            spans.append(TierSpan(now[0], since, after))
        since, now = max(since, after), line


def _refuse(tiers: Sequence[CacheTier], recompute_usd_per_byte: float) -> None:
    if not tiers:
        raise InputError("tiers: name at least one tier to choose from.")
    if not recompute_usd_per_byte > 0:
        raise InputError(f"recompute_usd_per_byte {recompute_usd_per_byte:g}: expected a cost above 0.")
