"""Nodes and their links one by one: tiers from top to bottom, or GPUs that are linked to each other in a circle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import cos, pi, sin

from topology.base.names import natural
from topology.base.units import plural
from topology.draw.canvas import (
    FAULT,
    NVLINK,
    NVLINK_FILL,
    OUTLINE,
    QUIET,
    Point,
    cell,
    named,
    table,
    text_width,
)
from topology.draw.captions import UNCOUNTED
from topology.draw.painter import Ends, Painter
from topology.draw.parts import Host, Links

MOST_NODES, MOST_EDGES, _MOST_CHIPS = 60, 100, 18
_FABRIC = (("core",), ("spine",), ("leaf", "router"))
_INSIDE = (("host",), ("pcie",))
_CHIPS = (("upper",), ("switch",))
_MARGIN, _MOST_WIDE = 176, 1180
_LINE, _DROP, _GAP, _PAD = 13, 96, 8, 6
_NARROWEST = 46
MOST_IN_CIRCLE, _MOST_TEXTS, _MANY = 12, 4, 40
_WORDS = {
    "nic": "NIC",
    "pcie": "PCIe switch",
    "host": "CPU socket",
    "switch": "switch chip",
    "upper": "second-tier chip",
}


def fits(painter: Painter, names: Sequence[str]) -> bool:
    """Whether ``names`` and the links among them can be drawn one by one, each kind in one row."""
    return len(names) <= _MOST_CHIPS**2 and _View(painter, names).fits


def nodes_of_domain(painter: Painter, number: int) -> tuple[list[str], list[str]]:
    """Return the nodes of a domain, and the leaves next to it; of a large one a host, or some of its GPUs.

    With them comes a line that says what is left out.
    """
    fold, graph = painter.fold, painter.cluster.graph
    hosts = fold.hosts_by_domain[number]
    if painter.cluster.spec.domains[number].picture == "pairs":
        return [name for host in hosts for name in _places(painter, host)], []
    chips = fold.chip_ids([number])
    broken: dict[str, set[str]] = defaultdict(set)
    for a, b in painter.marks.broken_links:
        broken[a].add(b)
        broken[b].add(a)
    one = min(hosts, key=lambda host: (not painter.holds([host]), host.id not in painter.odd))
    for shown in (hosts, [one]):
        gpus = [name for host in shown for name in _places(painter, host)]
        inside = [name for name in fold.parts(shown) if name not in fold.number]
        while True:
            near = {
                other for name in (*gpus, *inside) if name in graph for other in {*graph[name], *broken[name]}
            }
            near = {name for name in near if name in fold.switches}
            upper = {other for name in near for other in graph[name] if other in chips}
            names = [*gpus, *inside, *sorted(near | upper, key=natural)]
            if fits(painter, names):
                return names, _left_out(painter, hosts, shown, gpus)
            if len(gpus) == 1 or (shown is hosts and len(hosts) > 1):
                break
            gpus.pop()
    return names, _left_out(painter, hosts, [one], gpus)


def _places(painter: Painter, host: Host) -> list[str]:
    """Return the ids of the GPUs of a host, broken ones too."""
    return [p if isinstance(p, str) else painter.cluster.gpus[p].id for p in painter.places(host)]


def _left_out(
    painter: Painter, hosts: Sequence[Host], shown: Sequence[Host], gpus: Sequence[str]
) -> list[str]:
    """Return a line that says what of a domain is drawn, and what is not."""
    whole = sum(host.places for host in shown)
    which = (
        f"host {shown[0].id}"
        if len(gpus) == whole
        else f"{len(gpus)} of {whole} {painter.noun}s of host {shown[0].id}"
    )
    if len(shown) == len(hosts) and len(gpus) == whole:
        return []
    more, wrong = len(hosts) - len(shown), [host for host in hosts if host.id in painter.odd]
    unlike = [host for host in wrong if host not in shown]
    how = f"not drawn, {len(unlike)} of them not as built" if unlike else "not drawn"
    if not wrong and len({host.shape for host in hosts}) == 1:
        how = "linked alike, not drawn"
    others = f"; {plural(more, 'more host')} of the domain, {how}" if more else ""
    return [f"Drawn here: {which} and the switches next to it{others}"]


def draw_nodes_view(painter: Painter, names: Sequence[str]) -> list[str]:
    """Draw ``names`` and all links among them; return lines that say what they show."""
    view = _View(painter, names)
    if not view.others and 1 < len(view.gpus) <= MOST_IN_CIRCLE:
        return view.circle()
    return view.tiers()


class _View:
    """The nodes that are drawn, by kind, and where they stand."""

    def __init__(self, painter: Painter, names: Sequence[str]) -> None:
        self.painter, self.canvas = painter, painter.canvas
        self.graph = painter.cluster.graph
        self.kinds: dict[str, list[str]] = defaultdict(list)
        self.members: dict[str, list[str]] = {}
        for name in sorted(names, key=natural):
            self.kinds[self.kind(name)].append(name)
        for kind, of_kind in list(self.kinds.items()):
            bundles = _bundles(of_kind) if kind in ("switch", "upper") else [[name] for name in of_kind]
            self.kinds[kind] = [bundle[0] for bundle in bundles]
            self.members |= {bundle[0]: bundle for bundle in bundles}
        leader = {name: first for first, bundle in self.members.items() for name in bundle}
        self.gpus = self.kinds["gpu"]
        self.others = [name for name in names if self.kind(name) != "gpu"]
        part = self.graph.subgraph(names)
        # the view of a part lists its links in an order of its own
        ends = sorted(
            ((min(a, b, key=natural), max(a, b, key=natural)) for a, b in part.edges),
            key=lambda ends: (natural(ends[0]), natural(ends[1])),
        )
        self.links: dict[Ends, list[Ends]] = defaultdict(list)
        for a, b in ends:
            self.links[leader[a], leader[b]].append((a, b))
        broken = {
            (leader[a], leader[b]) for a, b in painter.marks.broken_links if a in leader and b in leader
        }
        self.broken = sorted(pair for pair in broken if not {pair, pair[::-1]} & self.links.keys())
        self.x: dict[str, float] = {}
        self.y: dict[str, float] = {}
        self.size: dict[str, Point] = {}
        self.rows = self._rows()
        self.row = (
            {name: number for number, row in enumerate(self.rows) for name in row} if self.others else {}
        )

    def _rows(self) -> list[list[str]]:
        """Return rows by kind: the fabric, what is inside a host, GPUs; chips on top where nothing else is there."""
        if any(self.kinds[kind] for row in _FABRIC for kind in row):
            order = (*_FABRIC, ("nic",), ("host",), ("pcie",), ("gpu",), *reversed(_CHIPS))
        elif any(self.kinds[kind] for row in _INSIDE for kind in row):
            order = (*_INSIDE, ("gpu", "nic"), *reversed(_CHIPS))
        else:
            order = (*_CHIPS, ("gpu",))
        rows = [row for kinds in order if (row := [n for kind in kinds for n in self.kinds[kind]])]
        near: dict[str, set[str]] = defaultdict(set)
        for a, b in self.links:
            near[a].add(b)
            near[b].add(a)
        for above, row in pairwise(rows):
            if (
                len({self.kind(name) for name in row}) > 1
            ):  # devices under the switch or socket that they hang on
                place = {name: i for i, name in enumerate(above)}
                row.sort(key=lambda name: min((place[o] for o in near[name] if o in place), default=-1))
        return rows

    @property
    def fits(self) -> bool:
        """Whether it is few boxes and lines, and each kind in one row."""
        wide = (sum(_width(_title(self.members[name])) for name in row) for row in self.rows)
        lines = sum(self.kind(a) != self.kind(b) for a, b in self.links)
        boxes = sum(map(len, self.kinds.values()))
        return boxes <= MOST_NODES and lines <= MOST_EDGES and max(wide, default=0) + _MARGIN <= _MOST_WIDE

    def kind(self, name: str) -> str:
        """Return the kind of a node: ``gpu`` for one out of service, ``upper`` for a chip of the second tier."""
        if name not in self.graph:
            return "gpu"
        switch = self.painter.fold.switches.get(name)
        return (
            self.graph.nodes[name]["kind"]
            if switch is None
            else {"chip": "switch"}.get(switch.tier, switch.tier)
        )

    def tiers(self) -> list[str]:
        """Draw rows by kind, and what each row and the lines under it are at the left."""
        texts = [self._texts(row) for row in self.rows]
        widths = [self._widths(row, lines) for row, lines in zip(self.rows, texts, strict=True)]
        widest = max(sum(wide) + _GAP * (len(wide) - 1) for wide in widths)
        for row, wide in zip(self.rows, widths, strict=True):
            gap = (widest - sum(wide)) / len(row)
            x = _MARGIN + gap / 2
            for name, width in zip(row, wide, strict=True):
                self.x[name] = x + width / 2
                x += width + gap
        y, drop = 0.0, 0.0
        for number, (row, lines, wide) in enumerate(zip(self.rows, texts, widths, strict=True)):
            height = self._height(row, lines)
            for name, width in zip(row, wide, strict=True):
                self.size[name], self.y[name] = (width, height), y
                html = self._box(name, lines[name], width, height)
                self.canvas.box(_box_name(name), (self.x[name] - width / 2, y), (width, height), html)
            self.canvas.text(f"row{number}", ((_MARGIN - 20) / 2, y + height / 2), [self._row_words(row)])
            if number + 1 < len(self.rows):
                words = self._gap_words(number)
                drop = max(_DROP if len(self.links) < _MANY else 1.6 * _DROP, 15.0 * len(words) + 16)
                self.canvas.text(
                    f"gap{number}",
                    ((_MARGIN - 20) / 2, y + height + drop / 2),
                    words,
                    QUIET,
                )
            y += height + drop
        for ends in (*self.links, *self.broken):
            self._line(ends)
        self.painter.draw_legend((0.0, y - drop + 20))
        return []

    def _of(self, ends: Ends) -> Links:
        """Return the links that one line stands for."""
        return Links.of(self.graph.edges[pair] for pair in self.links[ends])

    def circle(self) -> list[str]:
        """Draw GPUs in a circle, a line for each two that are linked."""
        texts = self._texts(self.gpus)
        width = max(self._widths(self.gpus, texts))
        height = self._height(self.gpus, texts)
        count = len(self.gpus)
        across = max(2.0 * width, 34.0 * count)
        down = 0.0 if count == 2 else max(130.0, 22.0 * count)
        for g, name in enumerate(self.gpus):
            angle = 2 * pi * (g + 0.5) / count
            x, y = across * (1 + sin(angle) * (1 if count > 2 else -1)), down * (1 - cos(angle))
            self.x[name], self.y[name] = x + width / 2, y + height / 2
            html = self._box(name, texts[name], width, height)
            self.canvas.box(_box_name(name), (x, y), (width, height), html)
        for a, b in (*self.links, *self.broken):
            self._draw((a, b), ((self.x[a], self.y[a]), (self.x[b], self.y[b])), NVLINK)
        self.painter.draw_legend((0.0, 2 * down + height + 20))
        kinds = Counter(self._of(ends).text() for ends in self.links)
        each = "; ".join(f"{count} of {text}" for text, count in kinds.most_common(_MOST_TEXTS))
        if len(kinds) == 1 and len(self.links) == count * (count - 1) // 2:
            return [f"Each two {self.painter.noun}s, {plural(len(self.links), 'line')}: {next(iter(kinds))}"]
        return [f"Each line joins two {self.painter.noun}s: {each}"]

    def _draw(self, ends: Ends, places: tuple[Point, Point], colour: str) -> None:
        """Draw one line: red and dashed where its link is broken."""
        pairs = self.links.get(ends)
        links = self._of(ends) if pairs else Links()
        tip = f"{ends[0]} - {ends[1]}: {links.text() if pairs else 'broken'}"
        dashed = links.degraded or not pairs
        line = ((_box_name(ends[0]), places[0]), (_box_name(ends[1]), places[1]))
        self.painter.link(line, pairs, colour=colour if pairs else FAULT, width=1.4, dashed=dashed, tip=tip)

    def _line(self, ends: Ends) -> None:
        """Draw one link between two rows, or between neighbours of one row."""
        a, b = sorted(ends, key=lambda name: (self.row[name], self.x[name]))
        if self.row[a] == self.row[b]:
            row = self.rows[self.row[a]]
            if row.index(b) - row.index(a) != 1:
                return  # counted in the boxes
            middle = self.y[a] + self.size[a][1] / 2
            places = ((self.x[a], middle), (self.x[b], middle))
        else:
            places = (self._at(a, b, 1), self._at(b, a, -1))
        rails = [
            self.graph.nodes[n].get("rail")
            for n in ends
            if self.kind(n) in ("gpu", "nic") and n in self.graph
        ]
        rail = next((rail for rail in rails if rail is not None), None)
        self._draw(ends, places if ends == (a, b) else places[::-1], self.painter.rail(rail))

    def _at(self, name: str, other: str, way: int) -> Point:
        """Return where on the lower (1) or upper (-1) edge of a box its line to another begins: in their order."""
        near, (wide, tall) = self._near(name, way), self.size[name]
        x = self.x[name] + wide * ((near.index(other) + 0.5) / len(near) - 0.5)
        return (x, self.y[name] + (tall - 6 if way > 0 else 6))

    def _near(self, name: str, way: int) -> list[str]:
        """Return the nodes above (-1) or below (1) that a node has a line to, left to right."""
        near = [b if a == name else a for a, b in (*self.links, *self.broken) if name in (a, b)]
        near = [other for other in near if (self.row[other] - self.row[name]) * way > 0]
        return sorted(near, key=lambda other: self.x.get(other, 0.0))

    def _texts(self, row: Sequence[str]) -> dict[str, list[str]]:
        """Return the lines in the boxes of a row; fewer where they would be too wide."""
        for brief in (False, True):
            texts = {name: self._lines(name, brief=brief) for name in row}
            if sum(self._widths(row, texts)) + _GAP * len(row) <= _MOST_WIDE - _MARGIN:
                break
        return texts

    def _widths(self, row: Sequence[str], texts: dict[str, list[str]]) -> list[int]:
        """Return the widths of the boxes of a row."""
        return [
            max(
                _NARROWEST,
                *(text_width(line, 8, bold=True) + 8 for line in texts[name]),
                3 * self._most_links(name),
            )
            for name in row
        ]

    def _most_links(self, name: str) -> int:
        """Return how many links a node has at most on one side; 0 where there are no rows."""
        return max(len(self._near(name, way)) for way in (-1, 1)) if self.row else 0

    def _height(self, row: Sequence[str], texts: dict[str, list[str]]) -> int:
        """Return the height of the boxes of a row."""
        extra = 0
        if set(row) & set(self.gpus):
            extra = (18 if self.painter.overlay is not None else 0) + (13 if self.painter.plain else 0)
        return _LINE * max(len(lines) for lines in texts.values()) + extra + _PAD

    def _lines(self, name: str, *, brief: bool) -> list[str]:
        """Return the lines in the box of a node: its name, its links, those to others of its row, its faults."""
        painter, kind = self.painter, self.kind(name)
        if name not in self.graph:
            return [name, "out of service"]
        words = self._faults(name)
        if kind == "gpu":
            number = painter.fold.number.get(name)  # none of one that a part of the cluster leaves out
            noun = painter.noun
            title = (
                f"{noun} of another" if number is None else f"{noun} {number} {painter.tag([number])}".strip()
            )
            lines = [title, name]
            if number is not None and not brief and painter.overlay is None:
                links = painter.fold.gpu_links[number]
                domain = painter.cluster.domain_of(number)
                lines += [] if domain.links_bundled or not links.count else [plural(links.count, "link")]
        else:
            lines = ["switch chips" if self._uncounted(name) else _title(self.members[name])]
        lines += self._peers(name, kind)
        below = self._below(name) if not brief else None
        if below is not None and kind != "gpu":
            each, equal, total = below.partition(" = ")
            lines += [
                f"{each} to each {painter.noun}".replace(" each way", ""),
                *([f"= {total}"] if equal else []),
            ]
        return [*lines, *words]

    def _peers(self, name: str, kind: str) -> list[str]:
        """Return a line about the links of a node to others of its kind."""
        peers = [other for other in self.graph[name] if self.kind(other) == kind]
        if not peers or kind == "router" or (kind == "gpu" and not self.others):
            return []
        links = Links.of(self.graph[name][other] for other in peers).text().removesuffix(" each way")
        return (
            [f"{links} to {peers[0]}"]
            if len(peers) == 1
            else [f"{len(peers)} peers", links.partition(" = ")[0]]
        )

    def _below(self, name: str) -> str | None:
        """Return the links of a box to each GPU that is drawn, if it has the same to all."""
        texts = [self._of(ends).text() for ends in self.links if name in ends and set(ends) & set(self.gpus)]
        return texts[0] if len(set(texts)) == 1 and len(texts) > 1 else None

    def _uncounted(self, name: str) -> bool:
        """Whether a chip stands for all of its domain, their number not being published."""
        domain: int | None = self.graph.nodes[name].get("domain")
        chip = self.kind(name) == "switch"
        return chip and domain is not None and self.painter.cluster.spec.domains[domain].links_bundled

    def _faults(self, name: str) -> list[str]:
        """Return the first words about what is wrong with what a box stands for."""
        return [word for one in self.members[name] for word in self.painter.marks.of(one)][:2]

    def _row_words(self, row: Sequence[str]) -> str:
        """Return what a row is."""
        if any(name in self.graph and self._uncounted(name) for name in row):
            return UNCOUNTED.partition(": ")[2]
        tally: Counter[str] = Counter()
        for name in row:
            tally[self.kind(name)] += len(self.members[name])
        words = {**_WORDS, "gpu": self.painter.noun}
        return ", ".join(plural(count, words.get(kind, kind)) for kind, count in tally.items())

    def _gap_words(self, number: int) -> list[str]:
        """Return what the lines under a row are: how many, of which links."""
        crossing = [
            ends
            for ends in self.links
            if min(self.row[ends[0]], self.row[ends[1]]) == number and self.row[ends[0]] != self.row[ends[1]]
        ]
        kinds = Counter(self._of(ends).text().removesuffix(" each way") for ends in crossing)
        lines = []
        for text, count in kinds.most_common(_MOST_TEXTS):
            each, equal, total = text.partition(" = ")
            lines += [f"{plural(count, 'line')}{' each' if count > 1 else ''}:", each]
            lines += [f"= {total} each way"] if equal else []
        return [*lines, f"{len(kinds) - _MOST_TEXTS} more kinds"] if len(kinds) > _MOST_TEXTS else lines

    def _box(self, name: str, lines: Sequence[str], width: int, height: int) -> str:
        """Return the box of one node: its lines, what an overlay says of it, its rail."""
        painter, kind = self.painter, self.kind(name)
        number = painter.fold.number.get(name)
        words = ["out of service"] if name not in self.graph else self._faults(name)
        colours = {
            "switch": (NVLINK_FILL, NVLINK),
            "upper": (NVLINK_FILL, NVLINK),
            "gpu": ("#ffffff", OUTLINE),
        }
        found = [mark for one in self.members[name] if (mark := painter.marks.look(one)) is not None]
        fill, line = min(
            found, key=lambda mark: mark[1] != FAULT, default=colours.get(kind, ("#ececec", QUIET))
        )
        inside = width - 2
        rows: list[list[str]] = []
        extra: list[list[str]] = []
        if kind == "gpu" and number is not None:
            if painter.overlay is not None:
                painter.detail_width(inside, 1, inside)
                extra.append([painter.gpu(number, inside, 18)])
            if painter.plain and painter.cluster.gpus[number].rail is not None and self.row:
                rail = painter.cluster.gpus[number].rail
                extra.append([painter.rail_cell(rail, inside, f"rail {rail}", height=13)])
        tall = (height - _PAD - 15 * len(extra)) // len(lines)
        what = {"gpu": "gpu", "host": "node"}.get(kind, "switch" if kind in ("switch", "upper") else "")
        names = named(what, name, *words) if what else {}
        look: dict[str, object] = {"size": 8, "height": tall, "width": inside}
        rows += [
            [cell(text, bold=i == 0, ink=line if text in words else None, **look, **({} if i else names))]
            for i, text in enumerate(lines)
        ]
        return table([*rows, *extra], border=1, color=line, bgcolor=fill)


def _bundles(chips: Sequence[str]) -> list[list[str]]:
    """Return chips by bundles that are drawn as one box: those of a plane, or as few in each as fit side by side."""
    planes: dict[str, list[str]] = defaultdict(list)
    for chip in chips:
        planes[chip.rpartition(".")[0]].append(chip)
    if 1 < len(planes) < len(chips) > _MOST_CHIPS:
        return list(planes.values())
    for each in range(-(-len(chips) // _MOST_CHIPS), len(chips) + 1):
        bundles = [list(chips[i : i + each]) for i in range(0, len(chips), each)]
        if sum(_width(_title(bundle)) for bundle in bundles) + _MARGIN <= _MOST_WIDE:
            break
    return bundles


def _title(bundle: Sequence[str]) -> str:
    """Return the name of a node, or of the first and last of some."""
    return bundle[0] if len(bundle) == 1 else f"{bundle[0]} to {bundle[-1].rpartition('.')[2]}"


def _width(title: str) -> int:
    """Return the least width of a box, and of the gap beside it."""
    return max(_NARROWEST, text_width(title, 8, bold=True) + 8) + _GAP


def _box_name(name: str) -> str:
    """Return the name of a node's box."""
    return f"node {name}"
