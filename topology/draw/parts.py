"""The parts of a graph seen from afar: hosts, switches, pods, groups of pods, and the links between them, added up.

Each has a ``shape``, the same for those that are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

from topology.base.units import format_quantity

Key = tuple[float, float]
UNPUBLISHED = 0.0  # stands for a rate that is not a number: that would not equal itself


@dataclass
class Links:
    """Links between two places: how many of each rate (bytes/s, as built) and health (1: as built)."""

    counts: Counter[Key] = field(default_factory=Counter)

    def add(self, edge: Mapping[str, Any], times: int = 1) -> None:
        """Add the links of one edge of the graph, or of several like it."""
        rate = edge["link_bytes_per_s"]
        self.counts[UNPUBLISHED if isnan(rate) else rate, edge["health"]] += edge["count"] * times

    @classmethod
    def of(cls, edges: Iterable[Mapping[str, Any]]) -> Links:
        """Return the links of some edges of the graph."""
        total = cls()
        for edge in edges:
            total.add(edge)
        return total

    @classmethod
    def sum(cls, parts: Iterable[Links]) -> Links:
        """Return all links of ``parts`` together."""
        total = cls()
        for part in parts:
            total.counts.update(part.counts)
        return total

    @property
    def count(self) -> int:
        """How many links there are."""
        return sum(self.counts.values())

    @property
    def degraded(self) -> bool:
        """Whether any runs below its rate."""
        return any(health < 1 for _, health in self.counts)

    @property
    def bytes_per_s(self) -> float:
        """Bytes/s of all together, per direction, as they are now; NaN if a rate is not published."""
        if any(rate == UNPUBLISHED for rate, _ in self.counts):
            return nan
        return sum(count * rate * health for (rate, health), count in self.counts.items())

    @property
    def shape(self) -> tuple[tuple[Key, int], ...]:
        """The same for equal links."""
        return tuple(sorted(self.counts.items()))

    def share(self, parts: int) -> Links | None:
        """Return what each of ``parts`` owners has if all have the same, else None."""
        if parts < 1 or any(count % parts for count in self.counts.values()):
            return None
        return Links(Counter({key: count // parts for key, count in self.counts.items()}))

    def text(self) -> str:
        """Return "18 x 25 GB/s = 450 GB/s each way"; links of a lower rate or health are added."""
        if not self.counts:
            return "no link"
        parts = []
        for (rate, health), count in sorted(self.counts.items(), reverse=True):
            slow = "" if health >= 1 else f" x {health:.3g}"
            one = "unpublished rate" if rate == UNPUBLISHED else f"{format_quantity(rate, 'byte/s')}{slow}"
            parts.append(f"{count} x {one}" if self.count > 1 else one)
        text = " + ".join(parts)
        if isnan(self.bytes_per_s):
            return text
        if self.count == 1 and " x " not in text:
            return f"{text} each way"
        return f"{text} = {format_quantity(self.bytes_per_s, 'byte/s')} each way"


def most_common(links: Iterable[Links]) -> tuple[Links, str]:
    """Return the links that most places have, the most of equally common ones, and of which: each, most or some."""
    tally: Counter[tuple[tuple[Key, int], ...]] = Counter(link.shape for link in links)
    if not tally:
        return Links(), "each"
    shape, count = max(tally.items(), key=lambda item: (item[1], item[0]))
    which = "each" if len(tally) == 1 else "most" if 2 * count > tally.total() else "some"
    return Links(Counter(dict(shape))), which


Shape = tuple[object, ...]


@dataclass
class Host:
    """One host: ``gpus`` are numbers in the cluster, ``broken`` the ids of GPUs that are out of service."""

    id: str
    domain: int
    rack: str
    gpus: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    up: dict[str, Links] = field(default_factory=dict)
    shape: Shape = ()

    @property
    def places(self) -> int:
        """GPUs as built, broken ones too."""
        return len(self.gpus) + len(self.broken)


@dataclass
class Switch:
    """A switch of a scale-up domain (``tier`` is ``chip``, or ``upper`` above those) or of a tier of the fabric.

    ``up``, ``down``: links to the tiers above and below; ``side``, ``far``: to its own tier, in its group and beyond.
    """

    id: str
    tier: str
    domain: int | None
    rail: int | None
    group: str
    up: Links = field(default_factory=Links)
    down: Links = field(default_factory=Links)
    side: Links = field(default_factory=Links)
    far: Links = field(default_factory=Links)
    above: set[str] = field(default_factory=set)

    @property
    def linked(self) -> bool:
        """Whether it has a link left."""
        return any(links.count for links in (self.up, self.down, self.side, self.far))

    @property
    def shape(self) -> Shape:
        """The same for switches with the same links."""
        return (self.tier, self.up.shape, self.down.shape, self.side.shape, self.far.shape)


@dataclass
class Pod:
    """Hosts that share leaves (or the routers of one group), and those leaves."""

    number: int
    hosts: list[Host]
    leaves: list[Switch]
    shape: Shape = ()

    @property
    def domains(self) -> list[int]:
        """Domains with hosts in the pod, in order."""
        return list(dict.fromkeys(host.domain for host in self.hosts))


@dataclass
class Group:
    """Pods under the same spines."""

    pods: list[Pod]
    spines: list[Switch]
    shape: Shape = ()
