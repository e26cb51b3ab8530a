"""Parallel links added up, and written as people read them: count x rate = total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

from topology.units import format_quantity

Key = tuple[float, float]
UNPUBLISHED = 0.0  # stands for a rate that is not a number: that would not equal itself


@dataclass
class Links:
    """Links between two places: how many of each rate (bytes/s, as built) and health (1: as built)."""

    counts: Counter[Key] = field(default_factory=Counter)

    def add(self, edge: Mapping[str, Any], times: int = 1) -> None:
        """Add the links of one edge of the graph."""
        rate = edge["link_bytes_per_s"]
        self.counts[UNPUBLISHED if isnan(rate) else rate, edge["health"]] += edge["count"] * times

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


def most_common(links: Iterable[Links]) -> tuple[Links, bool]:
    """Return the links that most places have, and whether all have them."""
    tally: Counter[tuple[tuple[Key, int], ...]] = Counter(link.shape for link in links)
    if not tally:
        return Links(), True
    shape, _ = min(tally.items(), key=lambda item: (-item[1], item[0]))
    return Links(Counter(dict(shape))), len(tally) == 1
