"""Overlays of a drawing.

Values and labels on GPUs (:class:`Overlay`), traffic on links (:class:`Usage`), faults (:class:`Marks`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from topology.base.errors import InputError
from topology.base.units import format_number, format_quantity, plural
from topology.cluster import Cluster
from topology.draw import palette
from topology.draw.canvas import TEXT_POINTS, Point, cell, table, text_width
from topology.draw.captions import slow_gpus
from topology.draw.fold import Fold
from topology.routes import LinkLoads

_LIGHT = (0xEF, 0xF6, 0xFC)
_DARK = (0x08, 0x30, 0x6B)
_STEPS = 5
_SHADES = 40
"""Steps of a colour ramp; more could not be distinguished."""
_NEUTRAL = "#c8c8c8"
# Dark text on the light part of the ramp, white on the dark part.
_WHITE_TEXT_FROM = 0.55


@dataclass(frozen=True)
class Overlay:
    """One value, one label and one tag a GPU, in the order of ``Cluster.gpus``.

    Attributes
    ----------
    values:
        Finite numbers: they set the colour; None where there is nothing to colour by.
    labels:
        Short texts (at most four characters are drawn), like the number of experts.
    legend:
        What the values are, with their unit.
    spans:
        Values that the ramp covers at least, so that a small spread is not drawn as a large one.
    details:
        Longer texts in the place of the labels, the longer the later: one a GPU each; drawn are those that fit.
    cells:
        What the labels are, and what each of the details.
    tags:
        What each GPU belongs to, in a few characters ("S0"); empty texts for those that belong to nothing,
        no tags at all where there is nothing to distinguish.
    key:
        What the tags mean, a line each.
    """

    values: Sequence[float] | None
    labels: Sequence[str]
    legend: str
    spans: Point | None = None
    details: Sequence[Sequence[str]] = ()
    cells: Sequence[str] = ()
    tags: Sequence[str] = ()
    key: Sequence[str] = ()

    @property
    def texts(self) -> list[Sequence[str]]:
        """What may be in the cells, from the shortest to the longest."""
        return [self.labels, *self.details]

    def over(self, gpus: Sequence[str], cluster_gpus: Sequence[str]) -> Overlay:
        """Return the overlay of some ``gpus`` (ids) extended to all ``cluster_gpus`` of their cluster."""
        place = {gpu: number for number, gpu in enumerate(gpus)}
        known = [place.get(gpu) for gpu in cluster_gpus]
        values = self.values
        return replace(
            self,
            values=None if values is None else [0.0 if at is None else values[at] for at in known],
            labels=["" if at is None else self.labels[at] for at in known],
            details=[["" if at is None else texts[at] for at in known] for texts in self.details],
            tags=["" if at is None else self.tags[at] for at in known] if self.tags else (),
        )

    def check(self, gpus: int) -> None:
        """Check that there is one finite value and one label for each of ``gpus``.

        Raises
        ------
        InputError
            If there is not.
        """
        values = [0.0] * gpus if self.values is None else self.values
        if len(values) != gpus or len(self.labels) != gpus:
            raise InputError(
                f"overlay: {len(values)} values and {len(self.labels)} labels for {gpus} GPUs; expected "
                "one of each per GPU."
            )
        if self.tags and len(self.tags) != gpus:
            raise InputError(f"overlay: {len(self.tags)} tags for {gpus} GPUs; give one per GPU, or none.")
        for i, value in enumerate(values):
            if not isfinite(value):
                raise InputError(f"overlay: the value of GPU {i} is {value}; values must be finite.")


def legend(swatches: Sequence[tuple[str, str, str]], words: str = "") -> tuple[str, int]:
    """Return a legend as a table, and its width: text, fill and ink of each swatch, then words."""
    wide = max(46, *(text_width(text, TEXT_POINTS) + 6 for text, _, _ in swatches))
    size = {"width": wide, "height": 16, "border": 1, "color": _NEUTRAL}
    cells = [cell(text, bgcolor=fill, ink=ink, size=TEXT_POINTS, **size) for text, fill, ink in swatches]
    width = len(swatches) * wide
    if words:
        cells += [cell("", width=8), cell(words, size=TEXT_POINTS, align="left")]
        width += 8 + text_width(words, TEXT_POINTS)
    return table([cells], width=width), width


class Ramp:
    """Colours for the values of an overlay, from its least to its largest value, or over ``spans`` if wider."""

    def __init__(self, values: Sequence[float], spans: Point | None = None) -> None:
        self.least = float(min([*values, *(spans or ())]))
        self.most = float(max([*values, *(spans or ())]))

    def fraction(self, value: float) -> float:
        """Return where ``value`` is from least (0) to largest (1); 0 if all are equal."""
        span = self.most - self.least
        return (float(value) - self.least) / span if span > 0 else 0.0

    def fill(self, value: float) -> str:
        """Return the colour of ``value``."""
        fraction = round(self.fraction(value) * _SHADES) / _SHADES
        parts = (round(a + (b - a) * fraction) for a, b in zip(_LIGHT, _DARK, strict=True))
        return "#" + "".join(f"{part:02x}" for part in parts)

    def ink(self, value: float) -> str:
        """Return the colour of text on top of ``fill(value)``."""
        return "#ffffff" if self.fraction(value) > _WHITE_TEXT_FROM else palette.INK

    def legend(self, words: str) -> tuple[str, int]:
        """Return the legend of the colours as a table, and its width; ``words``: what the values are."""
        span = self.most - self.least
        steps = [self.least + span * i / (_STEPS - 1) for i in range(_STEPS if span > 0 else 1)]
        return legend([(format_number(value), self.fill(value), self.ink(value)) for value in steps], words)


# One hue, light to dark; the lightest still shows as a line on white.
_BUSY_STEPS = ("#b3cde3", "#7fa8d1", "#4f81bd", "#2a5a9b", "#0b2f66")
USAGE_KEY = (
    "of the busiest link's time, in the busier direction;",
    "wider lines are busier; red: the busiest links",
)
"""What the shares are of, in lines below the legend: beside it they would widen the picture."""
_MIN_LINE_WIDTH, _MAX_LINE_WIDTH = 1.0, 6.0


@dataclass(frozen=True)
class TrafficOverlay:
    """Loads of the links, from :func:`topology.routes.link_loads`, and what traffic they are of, in words."""

    loads: LinkLoads
    title: str
    fair_s: float | None = None
    """Seconds until all has arrived if flows share links max-min fairly; None where it was not computed."""
    reached: str = ""
    """What large messages reach of these times at line rate, in words."""


def percent(share: float) -> str:
    """Return "11 %"; what rounds to nothing is more than that."""
    return "under 1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


class Usage:
    """Colours and widths of links by how busy they are, the busier direction of each."""

    def __init__(self, cluster: Cluster, overlay: TrafficOverlay) -> None:
        self._graph, self._overlay = cluster.graph, overlay
        self._shares = overlay.loads.shares()
        self.bottleneck: tuple[str, ...] = overlay.loads.bottleneck.ends if len(overlay.loads.busiest) else ()
        self._drawn = False

    def share(self, a: str, b: str) -> float:
        """Return the seconds of one link over those of the busiest, from 0 to 1; what rounding parts is equal."""
        return round(max(self._shares[a, b], self._shares[b, a]), 9)

    def busiest(self, links: Iterable[tuple[str, str]]) -> float:
        """Return the share of the busiest of ``links``, which are drawn; 0 if there are none."""
        drawn = list(links)
        self._drawn |= not {self.bottleneck, self.bottleneck[::-1]}.isdisjoint(drawn)
        return max((self.share(a, b) for a, b in drawn), default=0.0)

    def colours(self, names: Iterable[str]) -> tuple[tuple[str, int], ...]:
        """Return how many links of some nodes have which colour."""
        links = (
            (name, neighbour) for name in names if name in self._graph for neighbour in self._graph[name]
        )
        return tuple(sorted(Counter(self.colour(self.share(a, b)) for a, b in links).items()))

    def inside(self, domains: Iterable[int]) -> list[tuple[str, str]]:
        """Return the scale-up links of some domains."""
        numbers = set(domains)
        of = {
            name: data["domain"] for name, data in self._graph.nodes(data=True) if data["domain"] in numbers
        }
        return [(a, b) for a, domain in of.items() for b in self._graph[a] if a < b and of.get(b) == domain]

    @staticmethod
    def colour(share: float) -> str:
        """Return the colour of a link that is busy for ``share`` of the time: red where it is never idle."""
        if share == 1:
            return palette.FAULT
        return _NEUTRAL if share <= 0 else _BUSY_STEPS[int(share * len(_BUSY_STEPS))]

    @classmethod
    def fill_ink(cls, share: float) -> tuple[str, str]:
        """Return the colour of a link that is busy for ``share`` of the time, and that of text on top of it."""
        return cls.colour(share), "#ffffff" if share >= 2 / len(_BUSY_STEPS) else palette.INK

    @staticmethod
    def width(share: float) -> float:
        """Return the width in points of a link that is busy for ``share`` of the time."""
        return _MIN_LINE_WIDTH + (_MAX_LINE_WIDTH - _MIN_LINE_WIDTH) * share

    def subtitles(self) -> list[str]:
        """Return the lines about the traffic: what it is, how long it takes, and what bounds it."""
        loads, fair_s = self._overlay.loads, self._overlay.fair_s
        seconds = format_quantity(loads.bound_s, "s", 3)
        moved = format_quantity(loads.total_bytes, "byte", 3)
        takes = f"takes at least {seconds} (busiest link)"
        if fair_s is not None:
            takes = (
                f"takes {format_quantity(fair_s, 's', 3)} (max-min fair), at least {seconds} (busiest link)"
            )
        lines = [f"Traffic: {self._overlay.title}, {moved} in all; {takes}"]
        if self._overlay.reached:
            lines.append(f"That is at line rate; {self._overlay.reached}")
        if len(loads.busiest):
            link, ties = loads.bottleneck, len(loads.busiest) - 1
            moved = format_quantity(link.load_bytes, "byte", 3)
            rate = format_quantity(link.bytes_per_s, "byte/s")
            alike = f"; {ties:,} more with equal load, also red" if ties else ""
            red = "red" if self._drawn else "in a part that is not drawn"
            lines.append(f"Bottleneck ({red}): {link.ends[0]} to {link.ends[1]}, {moved} at {rate}{alike}")
        return lines

    def legend(self) -> tuple[str, int]:
        """Return the legend of link colours and widths as a table, and its width."""
        wide = 100 // len(_BUSY_STEPS)
        # a share in the middle of each step: none of them is idle, or never so
        swatches = [
            (f"{low}-{low + wide} %", *self.fill_ink((low + wide / 2) / 100)) for low in range(0, 100, wide)
        ]
        return legend([("idle", *self.fill_ink(0.0)), *swatches])


_MAX_NAMED = 4
THROTTLED = "throttled x "


class Marks:
    """Words about each node that is not as it was built, or has less than most of its siblings."""

    def __init__(self, cluster: Cluster, folded: Fold) -> None:
        self.broken_gpus, self.broken_links = cluster.wiring.broken_gpus, cluster.wiring.broken_links
        self.slow, self._below = slow_gpus(cluster), folded.slow_switches
        # links of a switch that is as slow as all of them are not named one by one
        self._degraded = [link for link in folded.degraded if self._below.keys().isdisjoint(link[:2])]
        self._noun = cluster.spec.noun
        self._words: dict[str, list[str]] = defaultdict(list)
        cut = {end for pair in self.broken_links for end in pair}
        self._dead = [s.id for s in folded.switches.values() if s.id in cut and not s.links]
        self._out = {*self.broken_gpus, *self._dead}
        # the links of what is out of service are broken with it
        self._alone = [pair for pair in self.broken_links if self._out.isdisjoint(pair)]
        words = [(a, b, "broken") for a, b in self._alone]
        words += [(a, b, f"x {health:.3g}") for a, b, health in self._degraded]
        for a, b, word in words:
            self._words[a].append(f"{b} {word}")
            self._words[b].append(f"{a} {word}")
        for name, health in self._below.items():
            self._words[name].append(f"all links x {health:.3g}")
        for name, factor in self.slow.items():
            self._words[name].append(f"{THROTTLED}{factor:.3g}")
        if cluster.spec.raw is not None:
            self._compare_siblings(cluster, folded)

    def _compare_siblings(self, cluster: Cluster, folded: Fold) -> None:
        """Note GPUs, hosts and switches of a raw graph that have less of something than most of their siblings."""
        counts: list[tuple[str, list[tuple[str, int]]]] = []
        for hosts in folded.hosts_by_domain:
            gpus = sorted(i for host in hosts for i in host.gpus)
            counts.append(("links", [(cluster.gpus[i].id, folded.gpu_links[i].count) for i in gpus]))
            counts.append((f"{self._noun}s", [(host.id, host.places) for host in hosts]))
            counts.append(("links to the fabric", [(host.id, host.up.count) for host in hosts]))
        counts.append(("uplinks", [(leaf.id, leaf.up.count) for leaf in folded.tier("leaf")]))
        counts.append(("downlinks", [(spine.id, spine.down.count) for spine in folded.tier("spine")]))
        for word, siblings in counts:
            tally = Counter(count for _, count in siblings)
            usual = max(tally, key=lambda count: (tally[count], count), default=0)
            for name, count in siblings:
                if count < usual and not self.of(name):
                    self._words[name].append(f"{count} of {usual} {word}")

    def of(self, name: str) -> list[str]:
        """Return the words about a node; none if nothing is wrong with it."""
        return ["out of service"] if name in self._out else self._words.get(name, [])

    def look(self, name: str) -> tuple[str, str] | None:
        """Return fill and ink of a node that is not as built, amber if it is only throttled; else None."""
        words = self.of(name)
        if words and all(word.startswith(THROTTLED) for word in words):
            return palette.SLOW_FILL, palette.SLOW
        return (palette.FAULT_FILL, palette.FAULT) if words else None

    @property
    def names(self) -> set[str]:
        """Ids of everything that is not as it was built, or not as its siblings are."""
        return {*self._out, *(name for name, words in self._words.items() if words)}

    def lines(self, names: Iterable[str], limit: int = 3) -> list[str]:
        """Return at most ``limit`` lines about ``names``: "d0.n0.g1: d0.s5 broken"."""
        lines = [f"{name}: {word}" for name in names for word in self.of(name)]
        return lines if len(lines) <= limit else [*lines[: limit - 1], f"and {len(lines) - limit + 1} more"]

    def summary(self) -> list[str]:
        """Return the lines of the caption that name what is broken, the first few of each kind."""
        slow = [f"{a} - {b} at x {health:.3g}" for a, b, health in self._degraded]
        below = [f"{name} at x {health:.3g}" for name, health in self._below.items()]
        throttled = [f"{name} at x {factor:.3g}" for name, factor in self.slow.items()]
        lines = []
        for heading, names, word in (
            ("Out of service", self.broken_gpus, self._noun),
            ("Throttled", throttled, self._noun),
            ("Switches out of service", self._dead, "switch"),
            ("Switches below their rate", below, "switch"),
            ("Broken links", [f"{a} - {b}" for a, b in self._alone], "link"),
            ("Degraded links", slow, "link"),
        ):
            hidden = len(names) - _MAX_NAMED
            suffix = f" and {plural(hidden, f'more {word}')}" if hidden > 0 else ""
            lines += [f"{heading}: {', '.join(names[:_MAX_NAMED])}{suffix}"] if names else []
        return lines
