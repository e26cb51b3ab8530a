"""Tiers of switches over columns of GPUs: all domains under their fabric, or racks of one domain under its chips."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from topology.base.units import plural
from topology.draw import palette
from topology.draw.canvas import MAX_WIDTH, TEXT_POINTS, Line, Point, cell, table, text_width, wrapped
from topology.draw.captions import ids_text
from topology.draw.choose import BlockTable, Column, Section, domain_section, fabric_sections
from topology.draw.columns import GAP, measure, planes_of
from topology.draw.fold import Links, Pod, Switch
from topology.draw.painter import Ends, Painter
from topology.draw.tier_words import TierWords

_COLUMN_GAP, _LINE_GAP, _BAR, _DROP, _MARGIN = 26, 42, 40, 76, 150
_SHORT_DROP, _BUS = 26, 18
_MAX_LINE_WIDTH = MAX_WIDTH - _COLUMN_GAP // 2
_MAX_DETAIL_WIDTH, _MAX_HEIGHT = 770, 2000
"""Points: of a row of GPUs with the long texts of an overlay, and of a drawing with them."""
_MAX_RAIL_LINKS, _MAX_FAULT_LINES = 72, 3
_ARC, _MAX_ARCS = 34, 15
"""Points by which an arc rises for each column it spans, and arcs that can be told apart."""


@dataclass
class _Part:
    """The columns of one section that are side by side in one line, under one bar, which ends at ``below``."""

    section: Section
    columns: list[Column]
    number: int
    continued: bool = False
    bar: str = ""
    below: float = 0.0

    @property
    def left(self) -> float:
        """Left edge of the bar above it."""
        return self.columns[0].x - _COLUMN_GAP / 2

    @property
    def right(self) -> float:
        """Right edge of the bar above it."""
        return self.columns[-1].x + self.columns[-1].width + _COLUMN_GAP / 2


class Tiers:
    """Draws the tiers of all domains, or of the one that is opened, from top to bottom.

    Of one domain they are its switch chips: one tier, or a second one over those in its hosts. Of all domains
    they are cores, spines and leaves, or the leaves or groups of routers that are linked directly. Each kind of
    bundle is labelled where it comes first.
    """

    def __init__(self, painter: Painter) -> None:
        self.canvas, self.painter, self.fold = painter.canvas, painter, painter.fold
        number = self.number = painter.opened
        self.sections = fabric_sections(painter) if number is None else [domain_section(painter, number)]
        self.columns = [column for section in self.sections for column in section.columns]
        pods: Sequence[Pod | Column] = self.fold.pods if number is None else self.columns
        self.leaves = [leaf for pod in pods for leaf in pod.leaves]
        self.words = TierWords(painter, self.leaves)
        self.line, self.fill = palette.QUIET, "#ececec"
        if number is not None:
            self.line, self.fill = palette.NVLINK, palette.NVLINK_FILL
        self.captions = 0
        self.trunks: dict[int, float] = {}  # where the bar of each section ends

    def draw(self) -> None:
        """Draw all tiers, line by line."""
        lines = self.lines = self._lines()
        self.right = max(part.right for line in lines for part in line)
        y = 0.0
        if cores := self.fold.tier("core") if self.number is None else []:
            self._bar("core", (_MARGIN - _COLUMN_GAP / 2, y), self.right, cores, "core")
            self._caption(y + _BAR / 2, ["core"], palette.INK)
            spines = [spine for section in self.sections for spine in section.group.spines]
            self._caption(y + _BAR + _DROP / 2, self.words.ratio(spines), palette.QUIET)
            y += _BAR + _DROP
        for i, line in enumerate(lines):
            y = self._draw_line(line, y, topmost=i == 0) + _LINE_GAP
        self.painter.draw_legend((0.0, y - _LINE_GAP + 20))

    def _lines(self) -> list[list[_Part]]:
        """Measure all columns and break them into lines that fit a screen, all about equally long."""
        widest = max(host.places for host in self.fold.hosts)
        digits = len(str(len(self.painter.cluster.gpus)))
        narrowest = max(23 if self.painter.overlay is None else 26, 6 * digits + 2)
        for detail, cell_width in self.painter.detail_widths(narrowest, widest, _MAX_DETAIL_WIDTH):
            self.painter.detail = detail
            for column in self.columns:
                measure(self.painter, column, cell_width)
            if self.number is not None:  # racks of one domain are under each other
                for column in self.columns:
                    column.width = max(measured.width for measured in self.columns)
            lines = self._broken(_MAX_LINE_WIDTH)
            tall = [max(column.height for part in line for column in part.columns) for line in lines]
            if sum(tall) + (2 * _DROP + _BAR + _LINE_GAP) * len(lines) <= _MAX_HEIGHT:
                break
        least = _MARGIN + 100 if len(lines) > 1 else _MAX_LINE_WIDTH
        fits = (wide for wide in range(least, _MAX_LINE_WIDTH, 20) if len(self._broken(wide)) == len(lines))
        return self._broken(next(fits, _MAX_LINE_WIDTH))

    def _broken(self, limit: int) -> list[list[_Part]]:
        """Return the columns in lines no wider than ``limit``, and set the place of each."""
        lines: list[list[_Part]] = [[]]
        x = float(_MARGIN)
        for number, section in enumerate(self.sections):
            part = _Part(section, [], number)
            lines[-1].append(part)
            for column in section.columns:
                if x > _MARGIN and x + column.width > limit:
                    part = _Part(section, [], number, continued=bool(part.columns))
                    lines.append([part])
                    x = float(_MARGIN)
                column.x = x
                x += column.width + _COLUMN_GAP
                part.columns.append(column)
        return [[part for part in line if part.columns] for line in lines]

    def _draw_line(self, parts: list[_Part], y: float, *, topmost: bool) -> float:
        """Draw one line of columns below ``y``; return where it ends."""
        topped = bool(self.fold.tier("spine")) or self.words.direct or self.number is not None
        columns = [column for part in parts for column in part.columns]
        begun = topped and any(not part.continued for part in parts)
        arcs = self._arcs(columns) if self.words.direct and len(self.lines) == 1 else []
        for part in parts if topped else ():
            self._top(part, y, topmost=topmost)
        if begun:
            self._caption(y + _BAR / 2, self.words.top(), palette.INK)
        lowest = y + _BAR * begun
        drop = _ARC * len(columns) if arcs else _DROP if begun else _SHORT_DROP * topped
        if self.leaves or self.number is None:
            leaf_at = lowest + drop
            if topped and topmost:
                self._caption(lowest + drop / 2, self.words.ratio(self.leaves), palette.QUIET)
            tall = max(column.head.height for column in columns if column.head is not None)
            self._caption(leaf_at + tall / 2, self.words.leaf(), palette.INK)
            lowest, drop = leaf_at + tall, _DROP
        for pair, links, pairs in arcs:
            self._arc(pair, links, pairs, leaf_at)
        block_at = lowest + drop
        tall = max(column.height for column in columns)
        self._caption(block_at + tall / 2, self.words.gpus(), palette.INK)
        rails = sum(len(column.tables) * len(column.leaves) for column in columns if column.blocks)
        for part in parts:
            for column in part.columns:
                above, bottom = part.bar, part.below if column.head is None and topped else lowest
                if column.head is not None:
                    bottom = leaf_at + column.head.height if arcs else lowest
                    at = (column.centre - column.head.width / 2, bottom - column.head.height)
                    self.canvas.sheet(column.name, at, column.head)
                    if topped and not arcs:
                        self._uplinks((part.bar, (column.centre, part.below)), column, at[1])
                    above = column.name
                self._blocks(column, (above, bottom), block_at, by_rail=rails <= _MAX_RAIL_LINKS)
        return block_at + tall

    def _arcs(self, columns: Sequence[Column]) -> list[tuple[tuple[Column, Column], Links, list[Ends]]]:
        """Return each two columns with the links between their leaves, where they are few enough to be drawn."""
        if len(columns) * (len(columns) - 1) // 2 > _MAX_ARCS:
            return []
        graph, arcs = self.painter.cluster.graph, []
        for pair in combinations(columns, 2):
            near, far = ({leaf.id for leaf in column.leaves} for column in pair)
            ends = [(a, b) for a in sorted(near) for b in graph[a] if b in far]
            arcs += [(pair, Links.of(graph.edges[edge] for edge in ends), ends)] if ends else []
        return arcs

    def _arc(self, pair: tuple[Column, Column], links: Links, pairs: list[Ends], y: float) -> None:
        """Draw the links between the leaves of two columns, which end at ``y``, as one arc over them."""
        tail, head = ((column.name, (column.centre, y)) for column in pair)
        apart = self.columns.index(pair[1]) - self.columns.index(pair[0])
        high = _ARC * (apart - 0.4)
        self.painter.link((tail, head), pairs, width=2.0, dashed=links.degraded, links=links, bend=high)
        at = ((tail[1][0] + head[1][0]) / 2, y - high)
        self.canvas.text(f"arc {tail[0]} {head[0]}", at, [plural(links.count, "link")], palette.QUIET)

    def _top(self, part: _Part, y: float, *, topmost: bool) -> None:
        """Draw the top tier over one part, and its links to the cores; lines below hang on the one bar."""
        group, undrawn = part.section.group, len(part.section.others)
        name = part.bar = f"spine{part.number}"
        if part.continued:
            part.below = y - _BUS
            corner = (self.right - 4, part.below)
            for start in ((corner[0], self.trunks[part.number]), (part.columns[0].centre, part.below)):
                self.painter.link(((name, start), (name, corner)), None, colour=self.line, width=2.0)
            return
        part.below = self.trunks[part.number] = y + _BAR
        ends = any(later.continued and later.number == part.number for line in self.lines for later in line)
        right = self.right if ends else part.right
        hosts = [host for alike in part.section.others for pod in alike.pods for host in pod.hosts]
        suffix = plural(undrawn, "more group")
        note = f" and {suffix} of {self.painter.count(hosts)}, alike" if undrawn else ""
        if part.section.differ and undrawn:  # its one column counts the GPUs of all
            note = f" and those of {suffix}, all different"
        if self.words.direct:
            text = f"{self.words.linked} connected directly, without switches{note}"
            self._box(name, (part.left, y), right, text, self.words.between_groups(), palette.INK)
        else:
            self._bar(name, (part.left, y), right, group.spines, self.words.top_one, note)
        links = Links.sum(spine.up for spine in group.spines)
        if not links.count:
            return
        if not topmost:
            text = f"to the cores: {links.text()}"
            self.canvas.note(f"{name}.up", (part.left, y - 15), [text], palette.QUIET)
            return
        cores = [core.id for core in self.fold.tier("core")]
        pairs = self.painter.around([spine.id for spine in group.spines], cores)
        middle = (part.left + part.right) / 2
        line = (("core", (middle, y - _DROP)), (name, (middle, y)))
        self.painter.link(line, pairs, width=3.0, links=links)
        self.painter.label((middle, y - _DROP / 2), links, kind="core")

    def _bar(
        self, name: str, at: Point, right: float, switches: Sequence[Switch], word: str, note: str = ""
    ) -> None:
        """Draw a tier of switches as one bar, in red those that are not as built; their ids where there is room."""
        names = [switch.id for switch in switches]
        scale_out = self.painter.spec.scale_out
        parted = self.number is None and scale_out is not None and scale_out.planes > 1
        planes: dict[str, list[str]] = defaultdict(list)
        for identity in names:
            planes[identity.partition(".")[0] if parted else ""].append(identity)
        room = right - at[0] - 12
        ids = "; ".join(ids_text(members) for members in planes.values())
        if text_width(ids, bold=True) > room and len(planes) > 1:
            ids = f"{names[0]} to {names[-1]}"
        if len(planes) > 1:
            word = word.removesuffix(" plane")
            note = f" in {plural(len(planes), 'separate plane')}{note}"
        title = plural(len(names), word) if names else f"no {word}"
        if (beyond := self.words.beyond) and word == self.words.top_one:
            note = f": {beyond}{note}"
        title = title if self.number is None else self.words.domain(self.number, title)
        subtitle, ink = "; ".join(self.painter.marks.lines(names, _MAX_FAULT_LINES)), palette.FAULT
        heading = f"{title}{note}"
        if ids:
            longer = f"{title} ({ids}){note}"
            if subtitle or text_width(longer, TEXT_POINTS, bold=True) <= room:
                heading = longer
            else:
                subtitle, ink = ids, palette.INK
        self._box(name, at, right, heading, subtitle, ink)

    def _box(self, name: str, at: Point, right: float, title: str, subtitle: str, ink: str) -> None:
        """Draw a bar with one or two lines of words, more where it is narrow."""
        wide = right - at[0]
        heads = wrapped(title, wide - 12, TEXT_POINTS, bold=True)
        lines = [*heads, *wrapped(subtitle, wide - 12)]
        size = {"width": round(wide) - 2, "height": round((_BAR - 4) / len(lines))}
        looks = [
            {"bold": True, "size": TEXT_POINTS} if n < len(heads) else {"ink": ink} for n in range(len(lines))
        ]
        rows = [[cell(text, **size, **look)] for text, look in zip(lines, looks, strict=True)]
        self.canvas.box(name, at, (wide, _BAR), table(rows, border=1, color=self.line, bgcolor=self.fill))

    def _uplinks(self, above: tuple[str, Point], column: Column, y: float) -> None:
        """Draw the bundle from the leaves of a column, which begin at ``y``, to the tier above it."""
        leaves = column.leaves
        links = Links.sum(leaf.far if self.words.direct else leaf.up for leaf in leaves)
        if not links.count:
            return
        groups = {leaf.group for leaf in leaves}
        high = [s.id for s in self.fold.switches.values() if s.tier in ("spine", "upper")]
        if self.words.direct:
            high = [
                switch.id for switch in self.fold.tier(self.words.first_tier) if switch.group not in groups
            ]
        pairs = self.painter.around([leaf.id for leaf in leaves], high)
        dashed = links.degraded or not column.blocks
        line = (above, (column.name, (column.centre, y)))
        self.painter.link(line, pairs, colour=self.line, width=2.0, dashed=dashed, links=links)
        self.painter.label((column.centre, (above[1][1] + y) / 2), links, kind="up")

    def _blocks(self, column: Column, above: tuple[str, float], y: float, *, by_rail: bool) -> None:
        """Draw the blocks of one column, and their links to the box above them and where that ends."""
        x = column.x + (column.width - sum(block.sheet.width + GAP for block in column.tables) + GAP) / 2
        for b, block in enumerate(column.tables):
            name = f"{column.name}.b{b}"
            self.canvas.sheet(name, (x, y), block.sheet)
            if by_rail and block.by_rail:
                self._rails(column, block, above, (name, (x, y)))
            else:
                line = ((above[0], (column.centre, above[1])), (name, (x + block.sheet.width / 2, y)))
                self._downlink(column, block, line)
            x += block.sheet.width + GAP

    def _rails(
        self, column: Column, block: BlockTable, above: tuple[str, float], below: tuple[str, Point]
    ) -> None:
        """Draw one link for each rail of a block, for all planes together at the leaf of the last."""
        inside, beside = set(self.fold.parts(block.hosts)), self.painter.cluster.wiring.neighbours
        name, (x, y) = below
        for same in zip(*planes_of(column.leaves), strict=True):
            leaf = same[-1]
            pairs = [
                (switch.id, neighbour)
                for switch in same
                for neighbour in beside(switch.id)
                if neighbour in inside
            ]
            if pairs and leaf.rail is not None:
                begin = (above[0], (column.centre + column.leaf_x[leaf.id], above[1]))
                line = (begin, (name, (x + block.rail_x(leaf.rail), y)))
                self.painter.link(line, pairs, width=1.5, colour=self.painter.rail(leaf.rail))

    def _downlink(self, column: Column, block: BlockTable, line: Line) -> None:
        """Draw one bundle from what is above to a block, or to what is left out."""
        hosts = block.hosts
        opened = self.number is not None
        links = self.fold.scale_up_links(hosts) if opened else Links.sum(host.up for host in hosts)
        if not links.count:
            return
        high = [leaf.id for leaf in column.leaves]
        if self.number is not None and not self.leaves:
            high = self.fold.chip_ids([self.number])
        pairs = self.painter.around(high, self.fold.parts(hosts))
        drawn = bool(column.blocks)
        dashed = not drawn or (opened and links.degraded)
        wide = 3.0 if drawn else 2.0
        self.painter.link(line, pairs, colour=self.line, width=wide, dashed=dashed, links=links)
        (_, (top, _)), (_, (x, y)) = line
        total = self.number is not None and self.painter.spec.domains[self.number].links_bundled
        # the words are at the middle of a line, or on the outer side of a slanted one, where it ends
        straight = abs(x - top) < 1
        at = (x, (y + line[0][1][1]) / 2 if straight else y - 18)
        self.painter.label(at, links, kind="down", total=total, left=not straight and x < top)

    def _caption(self, y: float, lines: list[str], ink: str) -> None:
        """Write at the left what a tier or a kind of link is."""
        self.canvas.text(f"tier{self.captions}", (62, y), lines, ink)
        self.captions += 1
