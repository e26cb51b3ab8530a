"""Memory that keeps caches of prompts below HBM: how much there is, how fast a GPU reads it, what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from cost.catalog import catalog_figures
from cost.principles.tiers import HOST, CacheTier, cache_tiers, tiers_set
from topology.base.errors import InputError, MissingFigureError, input_name
from topology.base.figures import Figure, WrittenFigure
from topology.base.reading import nearest
from topology.base.units import parse_quantity
from topology.spec import GpuSpec
from topology.structures.domain import DomainSpec

DEVICES = {HOST: "ddr5", "ssd": "flash", "pool": "flash"}
"""What each place is made of, the fastest place first: memory and drives of a host, drives behind the fabric."""
AUTO = "auto"
"""In place of sizes: those at which tokens cost least."""


@dataclass(frozen=True)
class KvMemory:
    """Memory that is bought to keep caches.

    Attributes
    ----------
    sizes:
        Bytes of each place (:data:`DEVICES`): of every host; of ``pool``, of all GPUs together.
    figures:
        Figures in place of the catalog's, as of :func:`cost.principles.tiers.tiers_set`.
    """

    sizes: Mapping[str, float] = field(default_factory=dict)
    figures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", {name: self.sizes[name] for name in DEVICES if name in self.sizes})
        _ = self.figures and self._figures  # wrong ones are refused here

    def __hash__(self) -> int:
        return hash((*self.sizes.items(), *self.figures))

    @cached_property
    def _figures(self) -> dict[str, dict[str, Figure]]:
        return tiers_set(self.figures)

    def device(self, gpu: GpuSpec, place: str) -> CacheTier:
        """Return one device of a place."""
        tiers = {tier.name: tier for tier in cache_tiers(gpu, None, self._figures)}
        return tiers[DEVICES[place]]

    def host_bytes_per_s(self, gpu: GpuSpec) -> float:
        """Return the rate of a GPU's link to its host, one way.

        Raises
        ------
        MissingFigureError
            If nobody has published it.
        """
        links = catalog_figures("host_links", "host_links", {"bytes_per_s": "byte/s"})
        figures = {**links.get(gpu.name, {}), **self._figures.get(HOST, {})}
        if "bytes_per_s" not in figures:
            raise MissingFigureError(
                f"{gpu.name}: the catalog has no rate of its link to the host; set one with "
                f'{input_name("tiers")} "{HOST}.bytes_per_s=55 GB/s".'
            )
        return figures["bytes_per_s"].value

    def bytes_per_s(self, domain: DomainSpec, place: str, gpus: int, out_bytes_per_s: float) -> float:
        """Return the rate at which each of all GPUs that read at once reads a place.

        Its own link, to the host or of ``out_bytes_per_s`` to the pool, and of drives at most its part of theirs: of
        its host's, or of the pool's among ``gpus``. Memory of a host is as fast as the links of its GPUs together,
        however much of it caches take.
        """
        link = out_bytes_per_s if place == "pool" else self.host_bytes_per_s(domain.gpu)
        if place == HOST:
            return link
        device, readers = self.device(domain.gpu, place), gpus if place == "pool" else domain.gpus_per_node
        drives = math.ceil(self.sizes[place] / device.capacity_bytes.value)
        return min(link, drives * device.bytes_per_s.value / readers)

    def size(self, domain: DomainSpec, place: str, gpus: float, cluster_gpus: int) -> float:
        """Return the bytes of a place that some GPUs of a cluster have."""
        return self.sizes[place] * gpus / (cluster_gpus if place == "pool" else domain.gpus_per_node)

    def usd_per_byte_h(self, gpu: GpuSpec, place: str) -> WrittenFigure | None:
        """Return USD of a byte of a place for an hour; None without a price."""
        device = self.device(gpu, place)
        if device.usd_per_h is None:
            return None
        usd = device.usd_per_h
        return replace(usd, value=usd.value / device.capacity_bytes.value)


def sizes_of(texts: Iterable[str]) -> dict[str, float]:
    """Read sizes of places: ``host=1TB,ssd=8TB``.

    Raises
    ------
    InputError
        If there is no such place, it is there twice, or its size is none.
    """
    sizes: dict[str, float] = {}
    for text in ",".join(texts).split(","):
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in DEVICES:
            raise InputError(f"{name!r} is none; {nearest(name, DEVICES)}", field="kv_tier", value=text)
        if name in sizes:
            raise InputError(f"{name} is there twice; give it once.", field="kv_tier", value=text)
        sizes[name] = parse_quantity(value, "byte", f"{input_name('kv_tier')} {text}")
        if not 0 < sizes[name] < math.inf:
            raise InputError("expected a size above 0, like 1TB.", field="kv_tier", value=text)
    return sizes
