"""Appearance of cluster parts in all drawings: GPUs, rails, links, faults and overlays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from itertools import groupby
from typing import TypeVar

from topology.base.names import natural
from topology.base.units import format_number, plural
from topology.cables import TITLES, cable_rows
from topology.cluster import Cluster
from topology.draw import palette
from topology.draw.canvas import TEXT_POINTS, Canvas, Line, Point, Sheet, cell, named, text_width, wrapped
from topology.draw.captions import broken_lines, ids_text, rate_text
from topology.draw.fold import Fold, Host, Links, Shape, Switch
from topology.draw.overlay import THROTTLED, USAGE_KEY, Marks, Overlay, Ramp, TrafficOverlay, Usage, percent
from topology.structures.domain import DomainSpec

_LABEL_CHARACTERS = 4
_LEGEND_HEIGHT = 20
Place = int | str
"""A GPU: its number, or the id of one that is out of service."""
Ends = tuple[str, str]
Thing = TypeVar("Thing")


def gpus_as_built(domain: DomainSpec, number: int) -> list[str]:
    """Return the ids of all GPUs of domain ``number``, also of hosts that have no working one."""
    per_node = domain.gpus_per_node
    return [f"d{number}.n{gpu // per_node}.g{gpu % per_node}" for gpu in range(domain.gpus)]


class Painter:
    """Draws parts of one cluster on a canvas; with an overlay or traffic, colour is the value and rails are grey.

    ``opened`` is the one domain that is drawn, None for all; ``detail`` the texts of the overlay that have room.
    """

    def __init__(
        self, canvas: Canvas, cluster: Cluster, overlay: Overlay | None, traffic: TrafficOverlay | None
    ) -> None:
        self.canvas, self.cluster, self.spec = canvas, cluster, cluster.spec
        self.fold = Fold(cluster)
        self.marks = Marks(cluster, self.fold)
        self.overlay = overlay
        self.usage = None if traffic is None else Usage(cluster, traffic)
        self.plain = overlay is None and traffic is None
        self.opened: int | None = None
        self.detail = 0
        self._labels: dict[str, list[str]] = {}
        if overlay is not None:
            overlay.check(len(cluster.gpus))

    @cached_property
    def ramp(self) -> Ramp | None:
        """Colours of the values of the overlay, as far as they are drawn."""
        if self.overlay is None or self.overlay.values is None:
            return None
        values = zip(self.cluster.gpus, self.overlay.values, strict=True)
        return Ramp([value for gpu, value in values if self.opened in (None, gpu.domain)], self.overlay.spans)

    @property
    def noun(self) -> str:
        """What one GPU of what is drawn is called."""
        return self.spec.noun if self.opened is None else self.spec.domains[self.opened].gpu.noun

    @cached_property
    def odd(self) -> set[str]:
        """Ids of hosts and switches with something wrong in them: they are not drawn as one of many."""
        marked = self.marks.names
        hosts = self.fold.hosts
        return marked | {
            host.id for host in hosts if host.broken or not marked.isdisjoint(self.gpu_ids([host]))
        }

    def _parts(self, hosts: Sequence[Host], switches: Sequence[Switch]) -> list[str]:
        """Return the ids of hosts, switches and, where all domains are drawn, of the chips of the hosts' domains."""
        domains = {host.domain for host in hosts} if self.opened is None else ()
        names = [*(host.id for host in hosts), *(switch.id for switch in switches)]
        return [*names, *self.fold.chip_ids(domains)]

    def _look(self, hosts: Sequence[Host], switches: Sequence[Switch]) -> Hashable:
        """Return what hosts and switches must have in common, besides their shape, to be drawn as one.

        Those with something wrong in them are like no others; with traffic their links have the same colours.
        """
        names = self._parts(hosts, switches)
        odd_name = next((name for name in names if name in self.odd), None)
        if odd_name is not None or self.usage is None:
            return odd_name
        return self.usage.colours([*self.fold.parts(hosts), *names])

    def holds(self, hosts: Sequence[Host], switches: Sequence[Switch] = ()) -> bool:
        """Whether the link that is named as the bottleneck ends in some hosts or at some switches."""
        if self.usage is None or not self.usage.bottleneck:
            return False
        return not {*self.fold.parts(hosts), *self._parts(hosts, switches)}.isdisjoint(self.usage.bottleneck)

    def same(
        self,
        items: Iterable[Thing],
        parts: Callable[[Thing], tuple[Shape, Sequence[Host], Sequence[Switch]]],
        limit: int | None = None,
    ) -> tuple[list[list[Thing]], list[Thing]]:
        """Return things that look the same together, in order of the first of each, and what is left out of those.

        ``parts`` gives the shape, the hosts and the switches of each. One that holds the bottleneck comes before
        those like it, so that it is the one that is drawn. With ``limit`` at most one kind more than that is kept,
        else the commonest and the first of the others.
        """
        by_look: dict[Hashable, list[Thing]] = {}
        for item in items:
            shape, hosts, switches = parts(item)
            by_look.setdefault((shape, self._look(hosts, switches)), []).append(item)

        def off_bottleneck(item: Thing) -> bool:
            return not self.holds(*parts(item)[1:])

        kinds = [sorted(of_kind, key=off_bottleneck) for of_kind in by_look.values()]
        if limit is None or len(kinds) <= limit + 1:
            return kinds, []
        usual = max(kinds, key=len)
        unusual = sorted(
            (kind for kind in kinds if kind is not usual), key=lambda kind: off_bottleneck(kind[0])
        )
        drawn = [kind for kind in kinds if kind is usual or kind in unusual[: limit - 1]]
        return drawn, [item for kind in kinds if kind not in drawn for item in kind]

    def colour(self, pairs: Sequence[Ends], plain: str) -> str:
        """Return the colour of a bundle of links: ``plain``, or how busy its busiest is."""
        return plain if self.usage is None else self.usage.colour(self.usage.busiest(pairs))

    def link(
        self,
        line: Line,
        pairs: Sequence[Ends] | None,
        *,
        colour: str = palette.QUIET,
        width: float,
        dashed: bool = False,
        tip: str = "",
        links: Links | None = None,
        bend: float = 0.0,
    ) -> None:
        """Draw a bundle of links: ``pairs`` are the ends of each, None where traffic means nothing for it.

        With traffic, colour and width are how busy its busiest link is. The tip names that and, where none is given,
        how many ``links`` there are of which rate.
        """
        tip = tip or (links.text() if links is not None and links.count else "")
        if self.usage is not None and pairs is not None:
            share = self.usage.busiest(pairs)
            colour, width = self.usage.colour(share), self.usage.width(share)
            tip = "; ".join([*filter(None, [tip]), f"{percent(share)} of the time busy"])
        self.canvas.link(line, colour, width, tip, bend, dashed=dashed)

    def label(self, at: Point, links: Links, kind: str, *, total: bool = False, left: bool = False) -> None:
        """Write count x rate = total beside a point, unless the bundle of its ``kind`` before it has the same.

        With ``total`` the number of links is not known, and their rate together is written alone.
        """
        lines = broken_lines(
            rate_text(links.bytes_per_s) if total else links.text().removesuffix(" each way")
        )
        if self._labels.get(kind) != lines:
            self._labels[kind] = lines
            wide = max(text_width(line) for line in lines) + 4
            corner = (at[0] - 6 - wide if left else at[0] + 6, at[1] - 13 * len(lines) / 2)
            self.canvas.note(f"label {kind} {at}", corner, lines, palette.QUIET)

    def around(self, nodes: Iterable[str], neighbours: Iterable[str]) -> list[Ends]:
        """Return the links between ``nodes`` and ``neighbours``, where traffic needs them."""
        if self.usage is None:
            return []
        far, graph = set(neighbours), self.cluster.graph
        return [(a, b) for a in nodes for b in graph[a] if b in far]

    def rail(self, number: int | None) -> str:
        """Return the colour of a rail: grey where the colours mean something else."""
        if not self.plain or number is None:
            return palette.QUIET
        return palette.RAILS[number % len(palette.RAILS)]

    @cached_property
    def _raw_names(self) -> list[str | None]:
        """Names of the domains of a raw graph, in order."""
        nodes = () if self.spec.raw is None else self.spec.raw.nodes
        return list(dict.fromkeys(node.domain for node in nodes if node.kind == "gpu"))

    def domain_name(self, number: int) -> str:
        """Return what a domain is called: its name in a raw graph, else ``d3``."""
        return (self._raw_names[number] if number < len(self._raw_names) else None) or f"d{number}"

    def named_host(self, host: Host) -> dict[str, object]:
        """Return the attributes of a cell that names a host."""
        return named("node", host.id, f"node of {plural(host.places, self.noun)}, rack {host.rack}")

    def gpu_ids(self, hosts: Iterable[Host]) -> list[str]:
        """Return the ids of the working GPUs of some hosts."""
        return [self.cluster.gpus[i].id for host in hosts for i in host.gpus]

    def places(self, host: Host) -> list[Place]:
        """Return the GPUs of a host by position, broken ones too."""
        names: dict[str, Place] = {self.cluster.gpus[i].id: i for i in host.gpus}
        names |= {name: name for name in host.broken}
        return [names[name] for name in sorted(names, key=natural)] if host.broken else list(host.gpus)

    def gpu(self, place: Place, width: int, height: int = 14) -> str:
        """Return the cell of one GPU."""
        size = {"width": width, "height": height, "border": 1}
        if isinstance(place, str):
            fill, ink = palette.FAULT_FILL, palette.FAULT
            tips = {"tooltip": f"{place}: out of service", "href": "#"}
            return cell("out", bgcolor=fill, ink=ink, color=ink, bold=True, **size, **tips)
        identity = self.cluster.gpus[place].id
        words, text = self.marks.of(identity), str(place)
        tips = named("gpu", identity, *words)
        fill, ink = self.marks.look(identity) or ("#ffffff", palette.INK)
        line = ink if words else "#c8c8c8"
        if self.overlay is not None and self.overlay.values is not None and self.ramp is not None:
            texts, value = self.overlay.texts, self.overlay.values[place]
            text = texts[self.detail][place]
            text = text if self.detail else text[:_LABEL_CHARACTERS]
            tips["tooltip"] += f": {texts[-1][place]}, {format_number(value)}"
            fill, ink = self.ramp.fill(value), self.ramp.ink(value)
        return cell(text, bgcolor=fill, ink=ink, color=line, **size, **tips)

    def detail_width(self, least: int, columns: int, room: int) -> int:
        """Return the width of a GPU's cell, and choose the longest texts of the overlay that have room."""
        self.detail, wide = self.detail_widths(least, columns, room)[0]
        return wide

    def detail_widths(self, least: int, columns: int, room: int) -> list[tuple[int, int]]:
        """Return which texts of the overlay have room and how wide their cells are, the longest first."""
        texts = self.overlay.texts if self.overlay is not None else [()]
        wide = [max([least, *(text_width(text) + 8 for text in part)]) for part in texts]
        fits = [(n, wide[n]) for n in range(len(texts) - 1, 0, -1) if wide[n] * columns <= room]
        return [*fits, (0, least)]

    def count(self, hosts: Sequence[Host], noun: str = "") -> str:
        """Count the GPUs of hosts: "24 GPUs", "23 of 24 GPUs" where one is out of service."""
        working, built = sum(len(host.gpus) for host in hosts), sum(host.places for host in hosts)
        return f"{f'{working:,} of ' if working < built else ''}{plural(built, noun or self.noun)}"

    def summed_up(self, hosts: Iterable[Host]) -> list[str]:
        """Return lines for the GPUs of hosts that are not drawn: how many, their values from to, their tags."""
        hosts = list(hosts)
        gpus = [i for host in hosts for i in host.gpus]
        lines = [self.count(hosts)]
        if self.overlay is not None and self.overlay.values is not None and gpus:
            values = [self.overlay.values[i] for i in gpus]
            lines.append(f"{format_number(min(values))} to {format_number(max(values))}")
        return [*lines, *filter(None, [self.tag(gpus)])]

    def tags(self, places: Iterable[Place]) -> list[str]:
        """Return the different tags that the overlay gives to ``places``, in order."""
        if self.overlay is None or not self.overlay.tags:
            return []
        return list(dict.fromkeys(self.overlay.tags[i] for i in places if isinstance(i, int)))

    def tag(self, places: Iterable[Place]) -> str:
        """Return the tag of all of ``places``, "S0 to S3" for several, or nothing."""
        tags = [tag for tag in self.tags(places) if tag]
        return ids_text(tags) if tags else ""

    def same_tag(self, places: Iterable[Place]) -> str:
        """Return the tag of ``places`` if all have the same one, else nothing."""
        tags = self.tags(places)
        return tags[0] if len(tags) == 1 else ""

    def add_tags(self, sheet: Sheet, places: Sequence[Place], padding: Sequence[str] = ()) -> None:
        """Add a row that names the tag of each run of GPUs, after the cells ``padding``, unless all have one tag."""
        if len(self.tags(places)) > 1:
            runs = [
                (tag, len(list(run))) for tag, run in groupby(places, key=lambda place: self.tag([place]))
            ]
            sheet.add([*padding, *(cell(tag, colspan=wide, height=12) for tag, wide in runs)], 12)

    def nic(self, rail: int) -> str:
        """Return what the NICs of a GPU are called, or its rail where the graph has the NICs or there are none."""
        out = None if self.fold.raw else self.spec.scale_out
        nics = 0 if out is None else out.nic_links_per_gpu
        return f"rail {rail}" if not nics else f"NIC {rail}" if nics == 1 else f"{nics} x NIC {rail}"

    def rail_cell(self, rail: int | None, width: int, text: str, height: int) -> str:
        """Return a cell in the colour of a rail."""
        colour = self.rail(rail)
        return cell(text, width=width, height=height, bgcolor=colour, ink=palette.ink_on(colour))

    def add_faults(
        self, sheet: Sheet, names: Iterable[str], columns: int, limit: int = 3, width: float | None = None
    ) -> None:
        """Add rows that name in red what is wrong with ``names``, in lines of ``width`` points."""
        for line in self.marks.lines(names, limit):
            ink = palette.SLOW if f": {THROTTLED}" in line else palette.FAULT
            for part in [line] if width is None else wrapped(line, width):
                sheet.line(part, 12, colspan=columns, ink=ink)

    def _draw_cables(self, at: Point) -> float:
        """Draw the bill of cables of what is drawn, its top left corner at ``at``; return where it ends."""
        x, y = at
        number = self.opened if len(self.spec.domains) > 1 else None
        rows = [TITLES, *(row.texts for row in cable_rows(self.cluster, number))]
        if len(rows) == 1:
            return y
        wide = [max(text_width(row[i], bold=True) for row in rows) + 12 for i in range(len(TITLES))]
        sheet = Sheet(sum(wide) + len(wide) + 3, palette.QUIET)
        look = {"height": 14, "align": "left"}
        shade: dict[str, object] = {"bgcolor": "#ececec", "bold": True}
        for row in rows:
            sheet.add([cell(f" {t}", width=w, **look, **shade) for t, w in zip(row, wide, strict=True)], 14)
            shade = {}
        self.canvas.sheet("cables", (x, y), sheet)
        return y + sheet.height + 12

    def draw_legend(self, at: Point) -> None:
        """Draw the cables, and what the colours and tags mean, the top left corner at ``at``."""
        x, y = at[0], self._draw_cables(at)
        html, width = "", 0
        key: Sequence[str] = ()
        if self.usage is not None:
            (html, width), key = self.usage.legend(), USAGE_KEY
        elif self.overlay is not None:
            cells = self.overlay.cells[self.detail : self.detail + 1]
            key = [*(f"In cells: {text}" for text in cells), *self.overlay.key]
            if self.ramp is not None:
                html, width = self.ramp.legend(self.overlay.legend)
        if html:
            self.canvas.box("legend", (x, y), (width, _LEGEND_HEIGHT), html)
            y += _LEGEND_HEIGHT + 6
        if key:
            self.canvas.note("key", (x, y), key, points=TEXT_POINTS)
