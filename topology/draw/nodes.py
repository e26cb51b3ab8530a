"""Tiers that are not folded: nodes and their links one by one, or GPUs that are linked to each other in a circle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import cos, pi, sin

from topology.base.names import natural
from topology.base.units import plural
from topology.cables import KIND_WORDS
from topology.draw import palette
from topology.draw.canvas import MAX_WIDTH, Point, cell, named, table, text_width, wrapped
from topology.draw.captions import UNCOUNTED, broken_lines
from topology.draw.fold import Host, Links
from topology.draw.painter import Ends, Painter
from topology.structures.domain import DomainSpec

MAX_CIRCLE_GPUS = 16
"""GPUs whose links to each other can be told apart in a circle."""
DIRECT = ("pairs", "nested")
"""Pictures of domains whose GPUs are linked to each other."""
_MAX_NODES, _MAX_EDGES, _MAX_CHIPS = 60, 100, 18
_OUTSIDE = ("core", "spine", "leaf", "router", "nic", "host", "pcie")
"""Kinds that are drawn above GPUs, top down; the chips of a domain are below then, else above."""
_CHIPS = ("upper", "switch")
_MARGIN, _LINE, _DROP, _GAP, _PAD, _MIN_BOX_WIDTH = 140, 13, 96, 4, 6, 46
_MAX_TEXTS, _DENSE_LINKS, _MAX_WORDY_NODES, _MAX_BUNDLE, _MAX_PADDED_GPUS = 4, 40, 8, 16, 12
"""Texts in a caption; lines from which rows stand further apart; nodes of a kind whose links are written in their
boxes; chips in one box; GPUs whose boxes have space around the text."""
_CHIP = palette.NVLINK_FILL, palette.NVLINK
_LOOKS = {"switch": _CHIP, "upper": _CHIP, "gpu": ("#ffffff", palette.OUTLINE)}
"""Fill and line of a kind; others are grey."""


def view_of(painter: Painter, names: Sequence[str]) -> NodesView | None:
    """Return ``names`` and the links among them, each kind in one row; None if they are too many to be read."""
    if len(names) > _MAX_CHIPS**2:
        return None
    for bundle in range(1, _MAX_BUNDLE + 1):
        view = NodesView(painter, names, bundle)
        if view.fits():
            return view
        if not view.bundled:
            break
    return None


def view_of_domain(painter: Painter, number: int) -> tuple[NodesView, list[str]]:
    """Return the nodes of a domain, and the leaves next to it; of a large one a host, or some of its GPUs.

    With them comes a line about what is left out.
    """
    hosts = painter.fold.hosts_by_domain[number]
    if painter.spec.domains[number].picture in DIRECT:
        gpus = [name for host in hosts for name in _gpus_of(painter, host)]
        if view := view_of(painter, gpus):
            return view, []
    shown = min(hosts, key=lambda host: (not painter.holds([host]), host.id not in painter.odd))
    if len(hosts) > 1 and (view := view_of(painter, _neighbourhood(painter, number, hosts))):
        return view, []
    for count in range(min(shown.places, _MAX_NODES), 0, -1):
        names = _neighbourhood(painter, number, [shown], count)
        if view := view_of(painter, names):
            break
    switches = any(name in painter.fold.switches for name in names)
    return view or NodesView(painter, names, 1), _left_out(painter, hosts, shown, count, switches=switches)


def _neighbourhood(
    painter: Painter, number: int, hosts: Sequence[Host], gpus: int | None = None
) -> list[str]:
    """Return the nodes of some hosts of a domain, the first ``gpus`` GPUs alone, and the switches next to them."""
    fold, graph = painter.fold, painter.cluster.graph
    names = [name for host in hosts for name in _gpus_of(painter, host)][:gpus]
    names += [name for name in fold.parts(hosts) if name not in fold.number]
    inside = set(names)
    beside = {neighbour for name in names for neighbour in graph.adj.get(name, ())}
    beside |= {b for pair in painter.marks.broken_links for a, b in (pair, pair[::-1]) if a in inside}
    beside &= fold.switches.keys()
    upper = {neighbour for name in beside for neighbour in graph[name]} & {*fold.chip_ids([number])}
    return [*names, *sorted(beside | upper, key=natural)]


def _gpus_of(painter: Painter, host: Host) -> list[str]:
    """Return the ids of the GPUs of a host, broken ones too."""
    return [p if isinstance(p, str) else painter.cluster.gpus[p].id for p in painter.places(host)]


def _left_out(
    painter: Painter, hosts: Sequence[Host], shown: Host, gpus: int, *, switches: bool
) -> list[str]:
    """Return a line about which host of a domain is drawn, and what is not."""
    which, undrawn = f"host {shown.id}", [host for host in hosts if host is not shown]
    if gpus < shown.places:
        which = f"{gpus} of {shown.places} {painter.noun}s of {which}"
    elif not undrawn:
        return []
    unlike = sum(host.id in painter.odd for host in undrawn)
    how = f"not drawn, {unlike} of them with faults" if unlike else "not drawn"
    if shown.id not in painter.odd and {host.shape for host in undrawn} == {shown.shape}:
        how = "linked alike, not drawn"
    hidden = ""
    if undrawn:
        hidden = f"; {plural(len(undrawn), 'more host')} of the domain with {painter.count(undrawn)}, {how}"
    return [f"Drawn here: {which}{' and the switches next to it' if switches else ''}{hidden}"]


class NodesView:
    """The nodes that are drawn, by kind, and their places; ``size`` switch chips are bundled into a box."""

    def __init__(self, painter: Painter, names: Sequence[str], size: int) -> None:
        self.painter, self.canvas, self.graph = painter, painter.canvas, painter.cluster.graph
        by_kind: dict[str, list[str]] = defaultdict(list)
        for name in sorted(names, key=natural):
            by_kind[self.kind(name)].append(name)
        self.members: dict[str, list[str]] = {}
        self.kinds: dict[str, list[str]] = defaultdict(list)
        for kind, of_kind in by_kind.items():
            bundles = [[name] for name in of_kind]
            if kind != "gpu":
                bundles = _bundles(of_kind, size if kind in _CHIPS else 1)
            self.kinds[kind] = [bundle[0] for bundle in bundles]
            self.members |= {bundle[0]: bundle for bundle in bundles}
        self.gpus, self.bundled = self.kinds["gpu"], any(len(by_kind[kind]) > size for kind in _CHIPS)
        self.direct = len(self.gpus) == len(names) and 1 < len(names) <= MAX_CIRCLE_GPUS
        leader = {name: label for label, bundle in self.members.items() for name in bundle}
        # the view of a part lists its links in an order of its own
        part = self.graph.subgraph(names).edges
        ends = sorted((sorted(pair, key=natural) for pair in part), key=lambda pair: [*map(natural, pair)])
        self.links: dict[Ends, list[Ends]] = defaultdict(list)
        for a, b in ends:
            self.links[leader[a], leader[b]].append((a, b))
        gone = {(leader[a], leader[b]) for a, b in painter.marks.broken_links if {a, b} <= leader.keys()}
        self.broken = sorted(pair for pair in gone if not {pair, pair[::-1]} & self.links.keys())
        self.lines = (*self.links, *self.broken)
        self.x: dict[str, float] = {}
        self.y: dict[str, float] = {}
        self.size: dict[str, Point] = {}
        order: tuple[str, ...] = (*_OUTSIDE, "gpu", *_CHIPS[::-1])
        if not any(self.kinds[kind] for kind in _OUTSIDE):
            order = (*_CHIPS, "gpu")
        self.rows = [self.kinds[kind] for kind in order if self.kinds[kind]]
        self.row = {} if self.direct else {name: n for n, row in enumerate(self.rows) for name in row}

    def draw(self) -> list[str]:
        """Draw the nodes and all links among them; return lines that explain them."""
        return self._circle() if self.direct else self._tiers()

    def fits(self) -> bool:
        """Whether it is few boxes and lines, and each kind in one row that is no wider than a drawing."""
        lines = sum(self.kind(a) != self.kind(b) for a, b in self.links)
        if self.direct or len(self.members) > _MAX_NODES or lines > _MAX_EDGES:
            return self.direct
        wide = self._widths({name: self._texts(name) for row in self.rows for name in row})
        longest = max((sum(wide[name] + _GAP for name in row) for row in self.rows), default=0)
        return longest + _MARGIN <= MAX_WIDTH

    def kind(self, name: str) -> str:
        """Return the kind of a node: ``gpu`` for one out of service, ``upper`` for a chip of the second tier."""
        if name not in self.graph:
            return "gpu"
        switch = self.painter.fold.switches.get(name)
        if switch is None:
            return str(self.graph.nodes[name]["kind"])
        return "switch" if switch.tier == "chip" else switch.tier

    def _tiers(self) -> list[str]:
        """Draw rows by kind, and what each row and the lines under it are at the left."""
        texts = {name: self._texts(name) for row in self.rows for name in row}
        wide = self._widths(texts)
        widest = max(sum(wide[name] + _GAP for name in row) - _GAP for row in self.rows)
        for row in self.rows:
            gap = (widest - sum(wide[name] for name in row)) / len(row)
            x = _MARGIN + gap / 2
            for name in row:
                self.x[name] = x + wide[name] / 2
                x += wide[name] + gap
        y, drop = 0.0, _DROP if len(self.links) < _DENSE_LINKS else 1.6 * _DROP
        for number, row in enumerate(self.rows):
            height = self._height(row, texts)
            for name in row:
                self.size[name], self.y[name] = (wide[name], height), y
                self._box(name, texts[name])
            self.canvas.text(f"row{number}", ((_MARGIN - 20) / 2, y + height / 2), [self._row_words(row)])
            y += height + drop
        for ends in self.lines:
            self._line(ends)
        self.painter.draw_legend((0.0, y - drop + 20))
        return []

    def _widths(self, texts: dict[str, list[str]]) -> dict[str, int]:
        """Return the width of each box: its texts fit in, and its lines begin apart."""
        tight = 4 * (len(self.gpus) > _MAX_PADDED_GPUS)
        return {
            name: max(_width(lines) - tight, *(3 * len(self._near(name, way)) for way in (-1, 1)))
            for name, lines in texts.items()
        }

    def _circle(self) -> list[str]:
        """Draw GPUs in a circle, a line for each two that are linked."""
        texts = {name: self._texts(name) for name in self.gpus}
        width = max(_width(texts[name]) for name in self.gpus)
        height, count = self._height(self.gpus, texts), len(self.gpus)
        across = max(2.0 * width, 34.0 * count, 190.0)
        down = 0.0 if count == 2 else max(130.0, 22.0 * count)
        top = cos(pi / count)  # of the two on top
        for g, name in enumerate(self.gpus):
            angle = 2 * pi * (g + 0.5) / count
            right = sin(angle) if count > 2 else -sin(angle)
            self.x[name], self.y[name] = across * (1 + right) + width / 2, down * (top - cos(angle))
            self.size[name] = (width, height)
            self._box(name, texts[name])
        middle = {name: (self.x[name], self.y[name] + height / 2) for name in self.gpus}
        for a, b in self.lines:
            self._draw((a, b), (middle[a], middle[b]), palette.NVLINK)
        self.painter.draw_legend((0.0, max(self.y.values()) + height + 20))
        kinds, nouns = Counter(self._of(ends).text() for ends in self.links), f"{self.painter.noun}s"
        if len(kinds) == 1 and len(self.links) == count * (count - 1) // 2:
            return [f"{plural(len(self.links), 'line')}, one between any two {nouns}: {next(iter(kinds))}"]
        listed = "; ".join(f"{count} of {text}" for text, count in kinds.most_common(_MAX_TEXTS))
        return [f"Each line joins two {nouns}: {listed}"]

    def _of(self, ends: Ends) -> Links:
        """Return the links of one line."""
        return Links.of(self.graph.edges[pair] for pair in self.links[ends])

    def _draw(self, ends: Ends, places: tuple[Point, Point], colour: str) -> None:
        """Draw one line: red and dashed where its link is broken."""
        pairs = self.links.get(ends)
        links = self._of(ends) if pairs else Links()
        tip = f"{ends[0]} - {ends[1]}: {links.text() if pairs else 'broken'}"
        line = ((f"node {ends[0]}", places[0]), (f"node {ends[1]}", places[1]))
        dashed = links.degraded or not pairs
        self.painter.link(
            line, pairs, colour=colour if pairs else palette.FAULT, width=1.4, dashed=dashed, tip=tip
        )

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
        devices = [self.graph.nodes[n] for n in ends if self.kind(n) in ("gpu", "nic") and n in self.graph]
        rail = next((data["rail"] for data in devices if data.get("rail") is not None), None)
        self._draw(ends, places if ends == (a, b) else places[::-1], self.painter.rail(rail))

    def _at(self, name: str, neighbour: str, way: int) -> Point:
        """Return where on the lower (1) or upper (-1) edge of a box its line to another begins: in their order."""
        near, (wide, tall) = self._near(name, way), self.size[name]
        x = self.x[name] + wide * ((near.index(neighbour) + 0.5) / len(near) - 0.5)
        return (x, self.y[name] + (tall - 4 if way > 0 else 4))

    def _near(self, name: str, way: int) -> list[str]:
        """Return the nodes above (-1) or below (1) that a node has a line to, left to right."""
        near = [b if a == name else a for a, b in self.lines if name in (a, b)]
        near = [neighbour for neighbour in near if (self.row[neighbour] - self.row[name]) * way > 0]
        return sorted(near, key=lambda neighbour: self.x.get(neighbour, 0.0))

    def _texts(self, name: str) -> list[str]:
        """Return the lines in the box of a node: its name, its links, those to others of its row, its faults."""
        painter, kind = self.painter, self.kind(name)
        if name not in self.graph:
            return [name, *self._faults(name)]
        chips, bundle = self._chip_domain(name), self.members[name]
        lines = [name if len(bundle) == 1 else f"{name} to {bundle[-1].rpartition('.')[2]}"]
        if chips is not None and chips.links_bundled:
            lines = ["switch chips"]
        if kind == "gpu":
            number = painter.fold.number.get(name)  # none of one that a part of the cluster leaves out
            title = f"{painter.noun} of another"
            if number is not None:
                word = painter.noun.rpartition(" ")[2]  # the caption of the row has all of it
                title = f"{word} {number} {painter.tag([number])}".strip()
                links = painter.fold.gpu_links[number].count
                if links and not (painter.overlay or painter.cluster.domain_of(number).links_bundled):
                    lines.append(plural(links, "link"))
            lines.insert(0, title)
        peers = [neighbour for neighbour in self.graph[name] if self.kind(neighbour) == kind]
        if peers and kind != "router" and not self.direct:
            links_text = (
                Links.of(self.graph[name][neighbour] for neighbour in peers).text().removesuffix(" each way")
            )
            per_link = links_text.partition(" = ")[0]
            lines += [f"{links_text} to {peers[0]}"] if len(peers) == 1 else [f"{len(peers)} peers", per_link]
        if kind != "gpu" and len(self.kinds[kind]) <= _MAX_WORDY_NODES:
            lines += self._below(name)
        return [*lines, *self._faults(name)]

    def _below(self, name: str) -> list[str]:
        """Return lines about the links of a box to each GPU that is drawn, if it has the same to all."""
        gpus = set(self.gpus)
        texts = [self._of(ends).text() for ends in self.links if name in ends and not gpus.isdisjoint(ends)]
        if len(texts) < 2 or len(set(texts)) > 1:
            return []
        per_link, *total = broken_lines(texts[0])
        return [f"{per_link} to each {self.painter.noun}".replace(" each way", ""), *total]

    def _chip_domain(self, name: str) -> DomainSpec | None:
        """Return the domain of a switch chip, of a cluster that is not a raw graph; None of other nodes."""
        if self.painter.fold.raw or name not in self.graph or self.kind(name) != "switch":
            return None
        domain: int | None = self.graph.nodes[name].get("domain")
        return None if domain is None else self.painter.spec.domains[domain]

    def _faults(self, name: str) -> list[str]:
        """Return the first words about what is wrong with the nodes of a box, in short lines."""
        several = len(self.members[name]) > 1
        words = [
            f"{member.rpartition('.')[2]}: {word}" if several else word
            for member in self.members[name]
            for word in self.painter.marks.of(member)
        ]
        return [line for word in words[:2] for line in wrapped(word, _MIN_BOX_WIDTH)]

    def _row_words(self, row: Sequence[str]) -> str:
        """Return what a row is."""
        domain = self._chip_domain(row[0])
        if domain is not None and (domain.links_bundled or domain.fabric.kind == "pcie"):
            return UNCOUNTED.partition(": ")[2] if domain.links_bundled else domain.words()
        kind = self.kind(row[0])
        word = self.painter.noun if kind == "gpu" else KIND_WORDS.get(kind, kind)
        return plural(sum(len(self.members[name]) for name in row), word)

    def _height(self, row: Sequence[str], texts: dict[str, list[str]]) -> int:
        """Return the height of the boxes of a row."""
        extra = (18 if self.painter.overlay is not None else 0) + (13 if self.painter.plain else 0)
        extra = 0 if set(row).isdisjoint(self.gpus) else extra
        return _LINE * max(len(texts[name]) for name in row) + extra + _PAD

    def _box(self, name: str, lines: Sequence[str]) -> None:
        """Draw the box of one node: its lines, what an overlay adds to it, its rail."""
        painter, kind, (width, height) = self.painter, self.kind(name), self.size[name]
        words = self._faults(name)
        usual = _LOOKS.get(kind, ("#ececec", palette.QUIET))
        marks = [mark for member in self.members[name] if (mark := painter.marks.look(member)) is not None]
        fill, line = min(marks, key=lambda mark: mark[1] != palette.FAULT, default=usual)
        inside, number = round(width) - 2, painter.fold.number.get(name)
        extra: list[list[str]] = []
        if number is not None:
            rail = painter.cluster.gpus[number].rail
            if painter.overlay is not None:
                painter.detail_width(inside, 1, inside)
                extra.append([painter.gpu(number, inside, 18)])
            if painter.plain and rail is not None:
                extra.append([painter.rail_cell(rail, inside, painter.nic(rail), height=13)])
        tall = (round(height) - _PAD - 15 * len(extra)) // len(lines)
        tip_kind = {"gpu": "gpu", "host": "node", "switch": "switch", "upper": "switch"}.get(kind)
        look = {"bold": True} | (named(tip_kind, name, *painter.marks.of(name)) if tip_kind else {})
        rows = []
        for text in lines:
            ink = line if text in words else None
            rows.append([cell(text, ink=ink, width=inside, height=tall, **look)])
            look = {}  # of the first alone
        html = table([*rows, *extra], border=1, color=line, bgcolor=fill)
        self.canvas.box(f"node {name}", (self.x[name] - width / 2, self.y[name]), (width, height), html)


def _bundles(chips: Sequence[str], size: int) -> list[list[str]]:
    """Return chips that are drawn as one box: those of a plane where they are many, else ``size`` together."""
    if size == 1 and len(chips) <= _MAX_CHIPS:
        return [[chip] for chip in chips]
    planes: dict[str, list[str]] = defaultdict(list)
    for chip in chips:
        planes[chip.rpartition(".")[0]].append(chip)
    if 1 < len(planes) < len(chips) > _MAX_CHIPS:
        return list(planes.values())
    return [list(chips[i : i + size]) for i in range(0, len(chips), size)]


def _width(lines: Sequence[str]) -> int:
    """Return the least width of a box with some lines of text."""
    return max([_MIN_BOX_WIDTH, *(text_width(line, bold=not i) + 8 for i, line in enumerate(lines))])
