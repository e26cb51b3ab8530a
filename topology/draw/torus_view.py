"""One torus: a grid of GPUs for each plane of its first two dimensions, planes side by side."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product
from typing import Any

from topology.base.units import plural
from topology.draw.canvas import BAND_INK, FAULT, NVLINK, OUTLINE, Point, Sheet, cell, text_width
from topology.draw.captions import rate_text
from topology.draw.painter import Painter, Place
from topology.draw.parts import Links
from topology.structures.torus import TorusDomain, torus_places

_CELL, _BRIDGE, _STUB = 26, 8, 6
_GAP = 78
_MOST_WIDE = 1140
_MOST_PLANES, _MOST_CELLS = 8, 576
_LARGEST_SIDE, _SHOWN_SIDE = 16, 8
_NAMES = "xyzuvw"
Coordinate = tuple[int, ...]


@dataclass
class _Plane:
    """One plane: the places that share their last coordinates, or ``alike`` planes left out, up to it."""

    rest: Coordinate
    sheet: Sheet
    alike: int = 0


def draw_torus_view(painter: Painter, number: int) -> None:
    """Draw one torus domain: each link to the next plane, round at the ends and over breaks of a row too."""
    grid = _Grid(painter, number)
    planes = grid.planes()
    margin = _GAP if len(planes) > 1 else 0
    x, y, tall = float(margin), 0.0, 0.0
    corners: list[Point] = []
    for i, plane in enumerate(planes):
        width, height = plane.sheet.width, plane.sheet.height
        if x > margin and x + width + margin > _MOST_WIDE:
            x, y, tall = float(margin), y + tall + 30, 0.0
        corners.append((x, y))
        lower = grid.middle - 11 if plane.alike else 0.0
        painter.canvas.sheet(f"plane{i}", (x, y + lower), plane.sheet)
        tall = max(tall, height)
        x += width + _GAP
    places = {plane.rest: i for i, plane in enumerate(planes) if not plane.alike}
    for i, plane in enumerate(planes):
        links, pairs, following = grid.to_next(plane.rest)
        target = places.get(following, i + 1)
        if not links.count or target >= len(planes):
            continue
        style: dict[str, Any] = {"colour": NVLINK, "width": 3.0, "dashed": links.degraded, "links": links}
        right, middle = corners[i][0] + plane.sheet.width, corners[i][1] + grid.middle
        painter.say((right - 2, middle - 18), links)
        left, there = corners[target][0], corners[target][1] + grid.middle
        begin, end = (f"plane{i}", (right, middle)), (f"plane{target}", (left, there))
        if target == i + 1 and there == middle:
            painter.link((begin, end), pairs, **style)
            continue
        for name, place, words in (
            (f"to{i}", (right + 46, middle), following),
            (f"from{i}", (left - 46, there), plane.rest),
        ):
            painter.canvas.text(name, place, [f"to {_words(words)}"], BAND_INK)
            painter.link((begin if name.startswith("to") else end, (name, place)), pairs, **style)
    painter.draw_legend((0.0, y + tall + 20))


def _words(rest: Coordinate) -> str:
    """Return "z = 3"."""
    return ", ".join(f"{_NAMES[2 + i]} = {at}" for i, at in enumerate(rest))


class _Grid:
    """The places of a torus and the GPUs on them."""

    def __init__(self, painter: Painter, number: int) -> None:
        self.painter = painter
        domain = painter.cluster.spec.domains[number]
        assert isinstance(domain, TorusDomain)  # noqa: S101 - its picture is a grid
        self.domain = domain
        # all hosts of the domain, also those that have no working GPU
        hosts = [f"d{number}.n{n}" for n in range(self.domain.gpus // self.domain.gpus_per_node)]
        names = [f"{host}.g{g}" for host in hosts for g in range(self.domain.gpus_per_node)]
        self.ids: dict[Coordinate, str] = dict(
            zip(map(tuple, torus_places(self.domain).T.tolist()), names, strict=True)
        )
        numbers = {
            painter.cluster.gpus[i].id: i for h in painter.fold.hosts_by_domain[number] for i in h.gpus
        }
        self.place: dict[Coordinate, Place] = {at: numbers.get(name, name) for at, name in self.ids.items()}
        shape = self.domain.shape
        self.rows = shape[0]
        self.columns = shape[1] if len(shape) > 1 else 1
        self.cell = painter.detail_width(_CELL, min(self.columns, _LARGEST_SIDE), 560)
        shown = self.rows if self.rows <= _LARGEST_SIDE else _SHOWN_SIDE
        self.middle = (
            2 + 16 + _STUB + 1 + (19 + _STUB + 1) * (shown // 2) + 9
        )  # where links to other planes end
        self.rest = list(product(*(range(size) for size in shape[2:])))

    def planes(self) -> list[_Plane]:
        """Return the planes to draw: all, or the first and those that differ, and how many are alike."""
        cells = min(self.rows, _LARGEST_SIDE) * min(self.columns, _LARGEST_SIDE)
        if len(self.rest) <= _MOST_PLANES and cells * len(self.rest) <= _MOST_CELLS:
            return [self._plane(rest) for rest in self.rest]
        looks = {rest: self._look(rest) for rest in self.rest}
        firsts = {look: rest for rest, look in reversed(looks.items())}
        named = [rest for rest in self.rest if self._names(rest) & set(self.painter.bottleneck)]
        kept = [*named, *sorted(firsts.values(), key=self.rest.index)][:_MOST_PLANES]
        drawn = {looks[rest] for rest in kept}
        planes: list[_Plane] = []
        left: list[Coordinate] = []
        for rest in self.rest:
            if rest not in kept:
                left.append(rest)
                continue
            if left:
                planes.append(self._left_out(left, alike={looks[rest] for rest in left} <= drawn))
                left = []
            planes.append(self._plane(rest))
        return (
            [*planes, self._left_out(left, alike={looks[rest] for rest in left} <= drawn)] if left else planes
        )

    def _names(self, rest: Coordinate) -> set[str]:
        """Return the ids of the GPUs of a plane."""
        return {name for at, name in self.ids.items() if at[2:] == rest}

    def _look(self, rest: Coordinate) -> Hashable:
        """Return what planes that may be drawn as one have in common: nothing wrong, links of the same colours."""
        names = self._names(rest)
        if self.painter.marks.odd_names(names):
            return rest
        return self.painter.usage.colours(names) if self.painter.usage is not None else None

    def to_next(self, rest: Coordinate) -> tuple[Links, list[tuple[str, str]], Coordinate]:
        """Return the links from a plane to the next one along the third dimension, their ends, and that plane."""
        links = Links()
        pairs: list[tuple[str, str]] = []
        if not rest or (self.domain.shape[2] == 2 and rest[0] == 1):  # a ring of two has one bundle of links
            return links, pairs, ()
        following = ((rest[0] + 1) % self.domain.shape[2], *rest[1:])
        for row, column in product(range(self.rows), range(self.columns)):
            a, b = self.ids[row, column, *rest], self.ids[row, column, *following]
            edge = self.painter.cluster.graph.get_edge_data(a, b)
            if edge is not None:
                links.add(edge)
                pairs.append((a, b))
        return links, pairs, following

    def _left_out(self, rest: list[Coordinate], *, alike: bool) -> _Plane:
        """Return the placeholder for planes that are like one that is drawn, or not all ``alike``."""
        which = " to ".join(dict.fromkeys([_words(rest[0]), _words(rest[-1])]))
        count = plural(len(rest), "plane")
        title = f"x {count} alike" if alike else f"{count} more, not all alike"
        wide = max(text_width(text, 9, bold=True) for text in (title, which)) + 10
        sheet = Sheet(wide + 4, NVLINK, dashed=True)
        sheet.line(title, 18, bold=True, width=wide)
        for text in (which, plural(len(rest) * self.rows * self.columns, self.domain.gpu.noun)):
            sheet.line(text, 16, width=wide)
        return _Plane(rest[-1], sheet, len(rest))

    def _plane(self, rest: Coordinate) -> _Plane:
        """Return one plane: a row for each place along x, a column for each along y, bars for links."""
        rows = self.rows if self.rows <= _LARGEST_SIDE else _SHOWN_SIDE
        columns = self.columns if self.columns <= _LARGEST_SIDE else _SHOWN_SIDE
        cut = rows < self.rows or columns < self.columns
        places = product(range(rows), range(columns))
        tag = self.painter.tag([self.place[self._at(row, column, rest)] for row, column in places])
        title = f"{_words(rest) or 'x down, y across'} {tag}".strip()
        span = 2 * columns + 1
        width = columns * (self.cell + _BRIDGE + 2) - _BRIDGE + 2 * _STUB + 4
        sheet = Sheet(width, OUTLINE)
        sheet.line(title, 15, bold=True, colspan=span)
        sheet.add(self._down_row(-1, rest, columns), _STUB)
        for row in range(rows):
            cells = self._across_row(row, rest, columns)
            sheet.add(cells, 18)
            sheet.add(self._down_row(row, rest, columns), _STUB)
        if cut:
            text = f"... {self.rows} x {self.columns} in all"
            sheet.line(text, 14, colspan=span, size=8)
        members = [self.ids[at] for at in self.ids if at[2:] == rest]
        for line in self.painter.fault_rows(self.painter.marks.odd_names(members), span, 4):
            sheet.add(line, 12)
        return _Plane(rest, sheet)

    def _at(self, row: int, column: int, rest: Coordinate) -> Coordinate:
        """Return a place of the torus."""
        return (row % self.rows, column % self.columns, *rest)[: len(self.domain.shape)]

    def _across_row(self, row: int, rest: Coordinate, columns: int) -> list[str]:
        """Return the GPUs of one row and the links between them; stubs at the ends wrap round."""
        cells = [self._bar(self._at(row, -1, rest), self._at(row, 0, rest), 1, _STUB, 3, edge=True)]
        for column in range(columns):
            at = self._at(row, column, rest)
            cells.append(self.painter.gpu(self.place[at], self.cell, 18))
            last = column == columns - 1
            width, edge = _STUB if last else _BRIDGE, last and columns == self.columns
            cells.append(self._bar(at, self._at(row, column + 1, rest), 1, width, 3, edge=edge))
        return cells

    def _down_row(self, row: int, rest: Coordinate, columns: int) -> list[str]:
        """Return the links from one row to the next."""
        cells = [cell("", width=_STUB, height=_STUB)]
        edge = row in (-1, self.rows - 1)
        for column in range(columns):
            a, b = self._at(row, column, rest), self._at(row + 1, column, rest)
            cells += [self._bar(a, b, 0, 3, _STUB, edge=edge), cell("", width=_BRIDGE, height=_STUB)]
        return cells

    def _bar(
        self, a: Coordinate, b: Coordinate, dimension: int, width: int, height: int, *, edge: bool
    ) -> str:
        """Return a short bar for the link between two places, red if it is broken, nothing if there is none."""
        blank = cell("", width=width, height=height)
        if dimension >= len(self.domain.shape) or a == b or (edge and not self.domain.wrap[dimension]):
            return blank
        one, two = self.place[a], self.place[b]
        if isinstance(one, str) or isinstance(two, str):
            return blank
        data = self.painter.cluster.graph.get_edge_data(self.ids[a], self.ids[b])
        broken = data is None or data["health"] < 1
        colour = FAULT if broken else self.painter.colour([(self.ids[a], self.ids[b])], NVLINK)
        tip = f"{self.ids[a]} - {self.ids[b]}"
        bar = (
            f'<table border="0" cellborder="0" cellspacing="0" cellpadding="0" fixedsize="true" '
            f'width="{width}" height="{height}" bgcolor="{colour}"><tr><td></td></tr></table>'
        )
        return f'<td tooltip="{tip}" href="#">{bar}</td>'


def torus_notes(domain: TorusDomain) -> list[str]:
    """Return a line for what the bars mean, and one for each dimension."""
    lines = ["Bars are links"]
    if any(domain.wrap[:2]):
        lines = ["Bars are links; those at the edges of a grid wrap round to its other side"]
    parts = []
    for i, (size, wrap, links, fabric) in enumerate(
        zip(domain.shape, domain.wrap, domain.links_per_dimension, domain.fabric_of_dimension, strict=True)
    ):
        if links:
            word, rate = "ring" if wrap else "line", rate_text(fabric.link_bytes_per_s.value)
            each = (
                domain.links_per_neighbour * domain.gpus // (1 if wrap else size) * (1 if wrap else size - 1)
            )
            parts.append(
                f"{_NAMES[i]}: {word} of {size}, {links} x {rate} a {domain.gpu.noun}, {plural(each, 'link')} in all"
            )
    return [*lines, "; ".join(parts)]
