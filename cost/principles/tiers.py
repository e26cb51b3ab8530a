"""Where the cache of a token waits for its next use, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cost.catalog import catalog_figures
from topology.base.errors import InputError, input_name
from topology.base.figures import Evidence, Figure, WrittenFigure
from topology.base.reading import nearest
from topology.base.units import parse_quantity
from topology.changes.overrides import SET_BY_USER
from topology.spec import GpuSpec

UNITS = {"capacity_bytes": "byte", "bytes_per_s": "byte/s", "latency_s": "s", "usd_per_h": "USD/h"}
HOST = "host"
"""A GPU's link to its host, whose ``bytes_per_s`` can be set like a figure of a tier."""


@dataclass(frozen=True)
class CacheTier:
    """A memory that can keep contexts.

    Attributes
    ----------
    name:
        ``hbm`` of the GPU, or an entry of the catalog.
    drain_s:
        Seconds to read all of it: what is wanted again sooner belongs in a faster tier, later in a slower one.
    capacity_bytes, bytes_per_s, usd_per_h, latency_s:
        With their sources, of one device; price None: nobody set one; latency None: there is no way to count.
    """

    name: str
    drain_s: float
    capacity_bytes: WrittenFigure
    bytes_per_s: WrittenFigure
    usd_per_h: WrittenFigure | None
    latency_s: WrittenFigure | None = None

    @property
    def usd_per_byte(self) -> tuple[float, float] | None:
        """USD of reading a byte once, and of keeping it a second: ``usd/s / rate`` and ``usd/s / capacity``.

        A context takes room of the device while it waits and all of its time while it is read; both cost alike after
        :attr:`drain_s`.
        """
        if self.usd_per_h is None:
            return None
        per_s = self.usd_per_h.value / 3600
        return per_s / self.bytes_per_s.value, per_s / self.capacity_bytes.value

    def usd(self, size: float, seconds: float) -> float | None:
        """Return USD of keeping ``size`` bytes and reading them once."""
        costs = self.usd_per_byte
        return None if costs is None else size * (costs[0] + seconds * costs[1])

    def equal_s(self, usd_per_byte: float) -> float | None:
        """Return the seconds after which keeping a byte has cost ``usd_per_byte``; None: at once, or no price."""
        costs = self.usd_per_byte
        return None if costs is None or usd_per_byte <= costs[0] else (usd_per_byte - costs[0]) / costs[1]

    def beaten_s(self, other: CacheTier) -> float | None:
        """Return the seconds after which keeping a byte costs less in ``other``; None: never, or no price."""
        usd, other_usd = self.usd_per_byte, other.usd_per_byte
        if usd is None or other_usd is None or usd[1] <= other_usd[1]:
            return None
        return max(0.0, (other_usd[0] - usd[0]) / (usd[1] - other_usd[1]))


def cache_tiers(
    gpu: GpuSpec, price: Figure | None = None, own_figures: Mapping[str, Mapping[str, Figure]] | None = None
) -> tuple[CacheTier, ...]:
    """Return the HBM of a GPU and the tiers below it, the fastest first.

    ``price`` of the GPU; ``own_figures``: figures in place of the catalog's, by tier.
    """
    hbm = {"capacity_bytes": gpu.figure("hbm_bytes"), "bytes_per_s": gpu.figure("hbm_bytes_per_s")}
    below = catalog_figures("cache_tiers", "tiers", UNITS)
    all_tiers: dict[str, dict[str, Figure]] = {
        "hbm": hbm if price is None else {**hbm, "usd_per_h": price},
        **below,
    }
    tiers = []
    for name, figures in all_tiers.items():
        written = {
            key: WrittenFigure.of(figure)
            for key, figure in {**figures, **(own_figures or {}).get(name, {})}.items()
        }
        drain_s = written["capacity_bytes"].value / written["bytes_per_s"].value
        tiers.append(
            CacheTier(
                name,
                drain_s,
                written["capacity_bytes"],
                written["bytes_per_s"],
                written.get("usd_per_h"),
                written.get("latency_s"),
            )
        )
    return tuple(tiers)


def tiers_set(lines: Iterable[str]) -> dict[str, dict[str, Figure]]:
    """Return figures of tiers from lines like ``ddr5.usd_per_h=0.02 USD/h``.

    Raises
    ------
    InputError
        If a tier, a figure or its value is none.
    """
    names = ["hbm", *catalog_figures("cache_tiers", "tiers", UNITS), HOST]
    tiers: dict[str, dict[str, Figure]] = {}
    for line in lines:
        part, _, value = line.partition("=")
        tier, _, key = part.strip().partition(".")
        for name, known in ((tier, names), (key, [*UNITS])):
            if name not in known:
                raise InputError(f"{name!r} is none; {nearest(name, known)}", field="tiers", value=line)
        number = parse_quantity(value.strip(), UNITS[key], f"{input_name('tiers')} {part.strip()}")
        if not 0 < number < math.inf:
            raise InputError("expected a quantity above 0.", field="tiers", value=line)
        tiers.setdefault(tier, {})[key] = Figure(
            number, UNITS[key], Evidence.USER, SET_BY_USER, value.strip()
        )
    return tiers
