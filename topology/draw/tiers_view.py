"""Tiers of switches over columns of GPUs: all domains under their fabric, or racks of one domain under its chips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topology.base.units import plural
from topology.draw.blocks import Block, Section, choose, domain_section
from topology.draw.canvas import (
    FAULT,
    INK,
    NVLINK,
    NVLINK_FILL,
    QUIET,
    Line,
    Point,
    cell,
    fitting,
    table,
    text_width,
)
from topology.draw.captions import ids_text
from topology.draw.painter import Painter
from topology.draw.parts import Host, Links, Switch
from topology.draw.pod_view import GAP, BlockView, PodView, measure, planes_of
from topology.draw.tier_words import TierWords

_POD_GAP = 26
_MOST_DETAIL = 770
_BAR, _DROP = 40, 76
_MARGIN = 150
_MOST_WIDE, _TALLEST = 1140, 2000
_MOST_RAIL_LINKS = 72
_MOST_ODD = 3
_LINE_GAP = 42
_AS_ABOVE = ", as above"


@dataclass
class _Part:
    """The columns of one section that stand side by side in one line."""

    section: Section
    views: list[PodView]
    number: int
    continued: bool = False
    bar: str = ""

    @property
    def left(self) -> float:
        """Left edge of the bar above it."""
        return self.views[0].x - _POD_GAP / 2

    @property
    def right(self) -> float:
        """Right edge of the bar above it."""
        return self.views[-1].x + self.views[-1].width + _POD_GAP / 2


class TieredView:
    """Places the tiers from top to bottom; each kind of bundle is labelled where it comes first.

    Of one domain (``number``) the tiers are its switch chips: one, or a second one over those in its hosts. Of all
    domains they are cores, spines and leaves, or the groups of routers that are linked directly.
    """

    def __init__(self, painter: Painter, number: int | None = None) -> None:
        self.canvas, self.painter, self.fold, self.number = painter.canvas, painter, painter.fold, number
        self.sections = choose(painter) if number is None else [domain_section(painter, number)]
        self.captions = 0
        pods = [pod for section in self.sections for column in section.columns for pod in column.pods]
        self.leaves = [leaf for pod in (self.fold.pods if number is None else pods) for leaf in pod.leaves]
        self.words = TierWords(painter, number, self.leaves)
        self.line, self.fill = (QUIET, "#ececec") if number is None else (NVLINK, NVLINK_FILL)

    def draw(self) -> None:
        """Draw all tiers."""
        lines = self._lines()
        y = 0.0
        cores = self.fold.tier("core") if self.number is None else []
        if cores:
            right = max(part.right for line in lines for part in line)
            self._bar("core", (_MARGIN - _POD_GAP / 2, y), right, cores, "core")
            self._caption(y + _BAR / 2, ["core"], INK)
            y += _BAR + _DROP
        for i, line in enumerate(lines):
            y = self._line(line, y, first=i == 0) + _LINE_GAP
        self.painter.draw_legend((0.0, y - _LINE_GAP + 20))

    def _lines(self) -> list[list[_Part]]:
        """Measure all columns and break them into lines that fit a screen, all about equally long."""
        widest = max(host.places for host in self.fold.hosts)
        least = 30 if len(self.painter.cluster.gpus) > 9999 else 26
        for told, cell_width in self.painter.detail_widths(least, widest, _MOST_DETAIL):
            self.painter.told = told
            views = [
                [measure(self.painter, column, cell_width) for column in section.columns]
                for section in self.sections
            ]
            lines = self._broken(views, _MOST_WIDE)
            tall = [max(view.height for part in line for view in part.views) for line in lines]
            if sum(tall) + (2 * _DROP + _BAR + _LINE_GAP) * len(lines) <= _TALLEST:
                break
        for wide in range(_MARGIN + 100, _MOST_WIDE, 20):
            if len(lines) == 1:
                break
            shorter = self._broken(views, wide)
            if len(shorter) == len(lines):
                return shorter
        return self._broken(views, _MOST_WIDE)

    def _broken(self, views: list[list[PodView]], most: int) -> list[list[_Part]]:
        """Return the columns in lines no wider than ``most``, and set where each stands."""
        lines: list[list[_Part]] = [[]]
        x = float(_MARGIN)
        for number, section in enumerate(self.sections):
            part = _Part(section, [], number)
            for view in views[number]:
                if x > _MARGIN and x + view.width > most:
                    if part.views:
                        lines[-1].append(part)
                        part = _Part(section, [], number, continued=True)
                    lines.append([])
                    x = float(_MARGIN)
                view.x = x
                x += view.width + _POD_GAP
                part.views.append(view)
            lines[-1].append(part)
        return [line for line in lines if line]

    def _line(self, parts: list[_Part], y: float, *, first: bool) -> float:
        """Draw one line of columns below ``y``; return where it ends."""
        topped = (
            any(part.section.group.spines for part in parts) or self.words.direct or self.number is not None
        )
        views = [view for part in parts for view in part.views]
        lowest = y
        if topped:
            for part in parts:
                self._top(part, y, first=first)
            self._caption(y + _BAR / 2, self.words.top(), INK)
            lowest = y + _BAR
        block_at = lowest + _DROP
        if self.leaves or self.number is None:
            leaf_at = lowest + _DROP if topped else y
            height = max(view.head.height for view in views if view.head is not None)
            if topped and first:
                self._caption(lowest + _DROP / 2, self.words.up(), QUIET)
            self._caption(leaf_at + 19, self.words.leaf(), INK)
            lowest = leaf_at + height
            block_at = lowest + _DROP
        if first:
            self._caption(lowest + _DROP / 2, self.words.down(), QUIET)
        own = (
            [f"{self.words.noun}s by domain", "and node"]
            if self.number is None
            else [f"{self.words.noun}s by node"]
        )
        self._caption(block_at + 24, own, INK)
        rails = sum(
            len(view.blocks) * len(view.pod.leaves) for view in views if view.by_rail and view.column.open
        )
        for part in parts:
            for view in part.views:
                above = part.bar
                if view.head is not None:
                    at = (view.centre - view.head.width / 2, lowest - view.head.height)
                    self.canvas.sheet(view.name, at, view.head)
                    if topped:
                        self._uplinks((part.bar, (view.centre, y + _BAR)), view, at[1])
                    above = view.name
                self._blocks(view, (above, lowest), block_at, bundled=rails > _MOST_RAIL_LINKS)
        return block_at + max(view.height for view in views)

    def _top(self, part: _Part, y: float, *, first: bool) -> None:
        """Draw the top tier over one part, and its links to the cores."""
        group, alike = part.section.group, part.section.alike
        part.bar = f"spine{part.number}.{self.captions}"
        note = f"; x {len(alike)} more groups alike" if alike else ""
        if part.section.differ:
            note = f" and those of {plural(len(alike), 'more group')}, all different" if alike else ""
        if self.words.direct:
            text = f"groups linked directly, no switch between them{note}"
            self._box(part.bar, (part.left, y), part.right, text, self.words.between_groups(), INK)
        else:
            note = _AS_ABOVE if part.continued else note
            self._bar(part.bar, (part.left, y), part.right, group.spines, self.words.top_one(), note)
        links = Links.sum(spine.up for spine in group.spines)
        if links.count and not first and not part.continued:
            text = f"to the cores: {links.text()}"
            self.canvas.note(f"{part.bar}.up", (part.left, y - 15), [text], QUIET, 8)
        elif links.count and not part.continued:
            pairs = [(s.id, core) for s in group.spines for core in sorted(s.above)]
            middle = (part.left + part.right) / 2
            line = (("core", (middle, y - _DROP)), (part.bar, (middle, y)))
            self.painter.link(line, pairs, width=3.0, links=links)
            self.painter.say((middle, y - _DROP / 2), links, kind="core")

    def _bar(
        self,
        name: str,
        at: Point,
        right: float,
        switches: Sequence[Switch],
        word: str,
        note: str = "",
    ) -> None:
        """Draw a tier of switches as one bar, in red those that are not as built; their ids where there is room."""
        planes = self._planes(switches)
        ids = "; ".join(ids_text(own) for own in planes) if switches else ""
        if len(planes) > 1:
            word = word.removesuffix(" plane")
            note = f", {plural(len(planes), 'plane')} of NICs that nothing joins{note}"
        title = plural(len(switches), word) if switches else f"no {word}"
        title = f"{title if self.number is None else self.words.domain(self.number, title)}{note}"
        odd = self.painter.marks.odd_names(switch.id for switch in switches)
        second, ink = "; ".join(self.painter.marks.lines(odd, _MOST_ODD)), FAULT
        if ids and not note.endswith(_AS_ABOVE):
            whole = title.replace(note, f" ({ids}){note}") if note else f"{title} ({ids})"
            if second or text_width(whole, 9, bold=True) <= right - at[0] - 12:
                title = whole
            else:
                second, ink = ids, INK
        self._box(name, at, right, title, second, ink)

    def _planes(self, switches: Sequence[Switch]) -> list[list[str]]:
        """Return the ids of switches by the plane of NICs that they are in."""
        scale_out = self.painter.cluster.spec.scale_out
        if scale_out is None or scale_out.planes == 1 or self.number is not None:
            return [[switch.id for switch in switches]]
        planes: dict[str, list[str]] = {}
        for switch in switches:
            planes.setdefault(switch.id.partition(".")[0], []).append(switch.id)
        return list(planes.values())

    def _box(
        self, name: str, at: Point, right: float, title: str, second: str = "", ink: str = FAULT
    ) -> None:
        """Draw a bar with one or two lines of words."""
        wide, tall = right - at[0], round((_BAR - 4) / (2 if second else 1))
        size = {"width": round(wide) - 2, "height": tall}
        rows = [[cell(fitting(title, wide - 12, 9), bold=True, **size)]]
        rows += [[cell(fitting(second, wide - 12, 8), size=8, ink=ink, **size)]] if second else []
        html = table(rows, border=1, color=self.line, bgcolor=self.fill)
        self.canvas.box(name, at, (wide, _BAR), html)

    def _uplinks(self, above: tuple[str, Point], view: PodView, y: float) -> None:
        """Draw the bundle from the leaves of a column, which begin at ``y``, to the tier above it."""
        leaves = [leaf for pod in view.column.pods for leaf in pod.leaves]
        links = Links.sum(leaf.far if self.words.direct else leaf.up for leaf in leaves)
        if not links.count:
            return
        group_of = {name: switch.group for name, switch in self.fold.switches.items()}
        pairs = [
            (leaf.id, other)
            for leaf in leaves
            for other in sorted(leaf.above)
            if not self.words.direct or group_of[other] != leaf.group
        ]
        dashed = links.degraded or not view.column.open
        line = (above, (view.name, (view.centre, y)))
        self.painter.link(line, pairs, colour=self.line, width=2.0, dashed=dashed, links=links)
        self.painter.say((view.centre, above[1][1] + _DROP / 2), links, kind="up")

    def _blocks(self, view: PodView, above: tuple[str, float], block_at: float, *, bundled: bool) -> None:
        """Draw the blocks of one column, and their links to the box above them and where that ends."""
        x = view.x + (view.width - sum(block.sheet.width + GAP for block in view.blocks) + GAP) / 2
        for b, block in enumerate(view.blocks):
            name = f"{view.name}.b{b}"
            self.canvas.sheet(name, (x, block_at), block.sheet)
            if view.by_rail and not bundled and block.by_rail:
                self._rails(view, block, above, (name, (x, block_at)))
            else:
                line = ((above[0], (view.centre, above[1])), (name, (x + block.sheet.width / 2, block_at)))
                self._downlink(view, block, line)
            x += block.sheet.width + GAP

    def _rails(
        self, view: PodView, block: BlockView, above: tuple[str, float], below: tuple[str, Point]
    ) -> None:
        """Draw one link for each rail of a block, for all planes together at the leaf of the last."""
        ids = set(self.fold.parts(self._hosts(view, block.block)))
        wiring = self.painter.cluster.wiring
        for same in zip(*planes_of(view.pod.leaves), strict=True):
            pairs, leaf = [], same[-1]
            for one in same:
                hosts = [wiring.names[other] for other in wiring.others(wiring.number[one.id]).tolist()]
                pairs += [(one.id, name) for name in hosts if name in ids]
            if pairs and leaf.rail is not None:
                name, (x, y) = below
                line = (
                    (above[0], (view.leaf_x(leaf.id), above[1])),
                    (name, (x + block.rail_x(leaf.rail), y)),
                )
                self.painter.link(line, pairs, width=1.5, colour=self.painter.rail(leaf.rail))

    def _downlink(self, view: PodView, block: BlockView, line: Line) -> None:
        """Draw one bundle from what is above to a block, or to what is left out."""
        hosts = self._hosts(view, block.block)
        links = self._of_hosts(hosts)
        if not links.count:
            return
        high = [leaf.id for pod in view.column.pods for leaf in pod.leaves]
        if self.number is not None and not self.leaves:
            high = self.fold.chip_ids([self.number])
        pairs = self.painter.around(high, self.fold.parts(hosts))
        drawn = block.block is not None
        dashed = not drawn or (self.number is not None and links.degraded)
        wide = 3.0 if drawn else 2.0
        self.painter.link(line, pairs, colour=self.line, width=wide, dashed=dashed, links=links)
        (_, (above, _)), (_, (x, y)) = line
        total = self.number is not None and self.painter.cluster.spec.domains[self.number].links_bundled
        if abs(x - above) < 1:
            self.painter.say((x, y - _DROP / 2), links, kind="down", total=total)
        else:  # a slanted line: the words stand on its outer side, where it ends
            self.painter.say((x, y - 18), links, kind="down", left=x < above)

    def _hosts(self, view: PodView, block: Block | None) -> list[Host]:
        """Return the hosts of a block of a column, drawn or alike; all of the column where it is left out."""
        hosts = [host for pod in view.column.pods for host in pod.hosts]
        if block is None or self.number is not None:
            return hosts
        domains = {*block.numbers, *block.alike}
        racks = None if block.whole or block.alike else {host.rack for host in block.hosts}
        return [host for host in hosts if host.domain in domains and (racks is None or host.rack in racks)]

    def _of_hosts(self, hosts: Sequence[Host]) -> Links:
        """Return the links of hosts to the tier above them."""
        if self.number is not None:
            return self.fold.scale_up_links(hosts)
        return Links.sum(links for host in hosts for links in host.up.values())

    def _caption(self, y: float, lines: list[str], ink: str) -> None:
        """Write at the left what a tier or a kind of link is."""
        self.canvas.text(f"tier{self.captions}", (62, y), lines, ink)
        self.captions += 1
