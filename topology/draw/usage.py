"""How busy the links of a picture are under some traffic: seconds of a link over seconds of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan

from topology.cluster import Cluster
from topology.draw.canvas import TEXT_POINTS, cell, table
from topology.draw.metrics import text_width
from topology.draw.style import FAULT
from topology.routes import LinkLoads
from topology.units import format_quantity

# One hue, light to dark; the lightest still shows as a line on white.
_STEPS = ("#b3cde3", "#7fa8d1", "#4f81bd", "#2a5a9b", "#0b2f66")
_NONE = "#c8c8c8"
_LEGEND = "of the time busy, in the busier direction; wider is busier; "
_LEGEND_RED = "red: the bottleneck"
_LEAST_WIDTH, _MOST_WIDTH = 1.0, 6.0


@dataclass(frozen=True)
class TrafficOverlay:
    """Loads of the links, from :func:`topology.routes.link_loads`, and what traffic they are of, in words."""

    loads: LinkLoads
    title: str


class Usage:
    """Colours and widths of links by how busy they are, the busier direction of each."""

    def __init__(self, cluster: Cluster, overlay: TrafficOverlay) -> None:
        self._graph = cluster.graph
        self._loads, self._title = overlay.loads, overlay.title
        self._bytes = overlay.loads.per_edge()
        self._completion_s = overlay.loads.completion_s
        hottest = overlay.loads.hottest(1)
        self._hottest = hottest[0] if hottest else None
        self.bottleneck = self._hottest.link.ends if self._hottest else None

    def share(self, a: str, b: str) -> float:
        """Return the seconds of one link over the completion time, from 0 to 1."""
        rate, total = self._graph[a][b]["bytes_per_s"], self._completion_s
        if not total > 0 or isnan(rate):
            return 0.0
        moved = max(self._bytes.get((a, b), 0.0), self._bytes.get((b, a), 0.0))
        return min(1.0, float(moved / rate / total))

    def busiest(self, links: Iterable[tuple[str, str]]) -> float:
        """Return the share of the busiest of ``links``; 0 if there are none."""
        return max((self.share(a, b) for a, b in links), default=0.0)

    def around(self, nodes: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
        """Return the links between ``nodes`` and ``others``."""
        far = set(others)
        return [(a, b) for a in nodes for b in self._graph[a] if b in far]

    def inside(self, domains: Iterable[int]) -> list[tuple[str, str]]:
        """Return the scale-up links of some domains."""
        wanted = set(domains)
        of = {name: data["domain"] for name, data in self._graph.nodes(data=True) if data["domain"] in wanted}
        return [(a, b) for a, domain in of.items() for b in self._graph[a] if a < b and of.get(b) == domain]

    def holds_bottleneck(self, links: Iterable[tuple[str, str]]) -> bool:
        """Whether the bottleneck is among ``links``."""
        return self.bottleneck is not None and any(
            link in (self.bottleneck, self.bottleneck[::-1]) for link in links
        )

    @staticmethod
    def colour(share: float) -> str:
        """Return the colour of a link that is busy for ``share`` of the time."""
        return _NONE if share <= 0 else _STEPS[min(len(_STEPS) - 1, int(share * len(_STEPS)))]

    @staticmethod
    def ink(share: float) -> str:
        """Return the colour of text on top of ``colour(share)``."""
        return "#ffffff" if share >= 2 / len(_STEPS) else "#1a1a1a"

    @staticmethod
    def width(share: float) -> float:
        """Return the width in points of a link that is busy for ``share`` of the time."""
        return _LEAST_WIDTH + (_MOST_WIDTH - _LEAST_WIDTH) * share

    def subtitles(self) -> list[str]:
        """Return the lines about the traffic: what it is, how long it takes, and what bounds it."""
        loads = self._loads
        seconds = format_quantity(self._completion_s, "s", 3)
        lines = [
            f"Traffic: {self._title}, {format_quantity(loads.total_bytes, 'byte', 3)} in all; takes {seconds}"
        ]
        if self._hottest is not None:
            link, others = self._hottest.link, self._hottest.count - 1
            moved, rate = (
                format_quantity(link.load_bytes, "byte", 3),
                format_quantity(link.bytes_per_s, "byte/s"),
            )
            alike = f"; {others:,} more as busy" if others else ""
            lines.append(f"Bottleneck (red): {link.ends[0]} to {link.ends[1]}, {moved} at {rate}{alike}")
        return lines

    def legend(self) -> tuple[str, int]:
        """Return the legend of link colours and widths as a table, and its width."""
        cells = [cell("idle", bgcolor=_NONE, width=40, height=16)]
        for step, colour in enumerate(_STEPS):
            low, high = 100 * step // len(_STEPS), 100 * (step + 1) // len(_STEPS)
            ink = self.ink(low / 100)
            cells.append(cell(f"{low}-{high} %", bgcolor=colour, ink=ink, width=60, height=16))
        cells += [
            cell("", width=8),
            cell(_LEGEND, align="left"),
            cell("", width=6),
            cell(_LEGEND_RED, ink=FAULT, align="left"),
        ]
        words = text_width(_LEGEND, TEXT_POINTS) + text_width(_LEGEND_RED, TEXT_POINTS)
        width = 56 + 60 * len(_STEPS) + words
        return table([cells], width=width), width
