"""Groups in groups: one circle for each level, the members of one group with the links among them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate
from math import cos, pi, sin
from operator import mul

from topology.base.units import plural
from topology.draw import palette
from topology.draw.canvas import Point, Sheet, cell, in_lines, named, text_width
from topology.draw.fold import Links
from topology.draw.painter import Ends, Painter, gpus_as_built
from topology.structures.nested import NestedDomain

_CELL, _COLUMNS, _MAX_CELLS, _GAP, _ROW = 30, 4, 64, 40, 15
_MAX_LINES, _MAX_TEXTS = 130, 4
"""Lines of a circle before those of its first member alone are drawn; kinds of pairs that are named."""
Pair = tuple[int, int]


def draw_nested(painter: Painter, number: int) -> list[str]:
    """Draw each level of a nested domain, of one group of each; return lines that explain it."""
    domain = painter.spec.domains[number]
    assert isinstance(domain, NestedDomain)  # noqa: S101 - its picture is nested
    levels = _Levels(painter, number, domain)
    circles = [_Circle(levels, level) for level in range(len(levels.sizes))]
    corners = in_lines([circle.size for circle in circles], (_GAP, _GAP))
    for circle, corner in zip(circles, corners, strict=True):
        circle.draw(corner)
    bottom = max(y + circle.size[1] for circle, (_, y) in zip(circles, corners, strict=True))
    painter.draw_legend((0.0, bottom + 20))
    return levels.notes()


class _Levels:
    """The GPUs of a nested domain, the groups that are drawn of each level, and the links among their members.

    ``blocks``: GPUs of a member of each level, last of the whole. ``sizes``: members in a group of each level, as far
    as the domain has them. ``opened``: the group of each level that is drawn, among those of its level.
    """

    def __init__(self, painter: Painter, number: int, domain: NestedDomain) -> None:
        self.painter, self.domain = painter, domain
        self.names = gpus_as_built(domain, number)
        self.blocks = list(accumulate(domain.members, mul, initial=1))
        opened_gpu = self._opened_gpu()
        self.opened = [opened_gpu // block for block in self.blocks[1:]]
        self.sizes = [
            min(size, -(-(domain.gpus - group * size * block) // block))
            for size, block, group in zip(domain.members, self.blocks, self.opened, strict=False)
        ]
        while self.sizes[-1] == 1 and len(self.sizes) > 1:  # a part of one group
            self.sizes.pop()
        self.links: list[dict[Pair, list[Ends]]] = [defaultdict(list) for _ in self.sizes]
        self.broken: list[set[Pair]] = [set() for _ in self.sizes]
        places = {name: gpu for gpu, name in enumerate(self.names)}
        graph = painter.cluster.graph
        for a in self.names:
            for b in graph.adj.get(a, ()):
                if places.get(b, -1) > places[a] and (at := self._between(places[a], places[b])):
                    self.links[at[0]][at[1]].append((a, b))
        for a, b in painter.marks.broken_links:
            if {a, b} <= places.keys() and (at := self._between(*sorted((places[a], places[b])))):
                self.broken[at[0]].add(at[1])

    def _opened_gpu(self) -> int:
        """Return the GPU whose groups are drawn: one of the bottleneck, else one with something wrong, else 0."""
        painter = self.painter
        ends = painter.usage.bottleneck if painter.usage is not None else ()
        faulty = [gpu for gpu, name in enumerate(self.names) if painter.marks.of(name)]
        return next((gpu for gpu, name in enumerate(self.names) if name in ends), next(iter(faulty), 0))

    def _between(self, low: int, high: int) -> tuple[int, Pair] | None:
        """Return the level of a link between two GPUs and its members, None in a group that is not drawn."""
        for level, group in enumerate(self.opened[: len(self.sizes)]):
            block, above = self.blocks[level], self.blocks[level + 1]
            if low // above == high // above:
                low_member, high_member = (gpu % above // block for gpu in (low, high))
                return (level, (low_member, high_member)) if low // above == group else None
        return None

    def gpus(self, level: int, member: int) -> list[str]:
        """Return the ids of the GPUs of a member of the group of a level that is drawn."""
        start = self.opened[level] * self.blocks[level + 1] + member * self.blocks[level]
        return self.names[start : start + self.blocks[level]]

    def members(self, level: int, count: int) -> str:
        """Return what ``count`` members of a level are: "8 groups of 4 TPUs"."""
        noun, block = self.painter.noun, self.blocks[level]
        return plural(count, noun) if block == 1 else f"{plural(count, 'group')} of {plural(block, noun)}"

    def notes(self) -> list[str]:
        """Return a line for each level: its members, and the links between two of them."""
        lines = []
        edges = self.painter.cluster.graph.edges
        for level, size in enumerate(self.sizes):
            kinds = Counter(
                Links.of(map(edges.__getitem__, pairs)).text() for pairs in self.links[level].values()
            )
            listed = "; ".join(
                f"{plural(count, 'pair')} with {text}" for text, count in kinds.most_common(_MAX_TEXTS)
            )
            suffix = f"; {len(kinds) - _MAX_TEXTS} more kinds of pair" if len(kinds) > _MAX_TEXTS else ""
            lines.append(f"Level {level + 1}: {self.members(level, size)}: {listed}{suffix}")
        return lines


class _Circle:
    """The members of one group in a circle, a line for each two that are linked."""

    def __init__(self, levels: _Levels, level: int) -> None:
        self.levels, self.level, self.count = levels, level, levels.sizes[level]
        self.painter, block = levels.painter, levels.blocks[level]
        self.cells = block if block * self.count <= _MAX_CELLS else 0
        columns = min(self.cells, _COLUMNS)
        room = self.painter.detail_width(_CELL, max(columns, 1), _COLUMNS * _CELL)
        self.cell = room if self.cells else 0
        heading = text_width(self._title(99), bold=True) + 6 if block > 1 else 0
        rows = (block > 1) + -(-self.cells // _COLUMNS)
        wide, tall = max(columns * (self.cell + 1) + 4, heading), rows * (_ROW + 1) + 4
        self.box: Point = wide, tall
        self.radius = (
            max(0.75 * wide, self.count * wide * 0.21, 70.0),
            max(1.3 * tall, self.count * tall * (0.3 if self.cells else 0.22), 60.0),
        )
        self.head = self._head()
        self.size: Point = (
            max(2 * self.radius[0] + wide, float(text_width(self.head[0]) + 8)),
            2 * self.radius[1] + tall + 14 * len(self.head) + 10,
        )

    def _title(self, member: int) -> str:
        """Return the name of a member: short where it is all that there is in its box."""
        return f"group {member}" if self.cells else str(member)

    def _head(self) -> list[str]:
        """Return which group is drawn, and of how many."""
        levels, level = self.levels, self.level
        lines = [f"Level {level + 1}: {levels.members(level, self.count)}"]
        undrawn = -(-levels.domain.gpus // levels.blocks[level + 1]) - 1
        if undrawn:
            lines.append(f"group {levels.opened[level]} of {undrawn + 1}")
        if len(levels.links[level]) > _MAX_LINES:
            lines.append("drawn: the links of group 0")
        return lines

    def draw(self, at: Point) -> None:
        """Draw it with its top left corner at ``at``."""
        canvas, (wide, tall), count = self.painter.canvas, self.box, self.count
        canvas.note(f"level{self.level}", at, self.head, palette.QUIET)
        middle = at[0] + self.size[0] / 2, at[1] + self.size[1] - self.radius[1] - tall / 2
        places = []
        for member in range(count):
            angle = 2 * pi * (member + 0.5 * (count % 2 == 0)) / count
            x, y = middle[0] + self.radius[0] * sin(angle), middle[1] - self.radius[1] * cos(angle)
            places.append((x, y))
            canvas.sheet(self._name(member), (x - wide / 2, y - tall / 2), self._sheet(member))
        for pair in self._pairs():
            tail, head = ((self._name(member), places[member]) for member in pair)
            ends = self.levels.links[self.level].get(pair, [])
            links = Links.of(self.painter.cluster.graph.edges[edge] for edge in ends)
            broken = pair in self.levels.broken[self.level]
            self.painter.link(
                (tail, head),
                ends or None,
                colour=palette.NVLINK if ends else palette.FAULT,
                width=0.8 + 0.5 * min(links.count, 4),
                dashed=broken or links.degraded,
                links=links,
            )

    def _pairs(self) -> Iterator[Pair]:
        """Yield the pairs of members with a line: all, or those of the first member, and those with broken links."""
        links, broken = self.levels.links[self.level], self.levels.broken[self.level]
        ends = self.painter.usage.bottleneck if self.painter.usage is not None else ()
        for pair in sorted({*links, *broken}):
            held = any({*edge} == {*ends} for edge in links.get(pair, ()))
            if len(links) <= _MAX_LINES or 0 in pair or pair in broken or held:
                yield pair

    def _name(self, member: int) -> str:
        return f"level{self.level} member{member}"

    def _sheet(self, member: int) -> Sheet:
        """Return the box of a member: its name, its GPUs where they have room, what is wrong with it."""
        painter, names = self.painter, self.levels.gpus(self.level, member)
        numbers = painter.fold.number
        sheet = Sheet(self.box[0], palette.NVLINK)
        if len(names) > 1:
            span = min(self.cells, _COLUMNS) or 1
            faulty = any(painter.marks.of(name) for name in names)
            look: dict[str, object] = {"bgcolor": palette.FAULT_FILL if faulty else palette.NVLINK_FILL}
            look |= named("", f"{names[0]} to {names[-1]}") | {"href": "#"}
            text = self._title(member)
            sheet.add([cell(text, bold=True, width=self.box[0] - 4, height=_ROW, colspan=span, **look)], _ROW)
        for start in range(0, self.cells, _COLUMNS):
            row = names[start : start + _COLUMNS]
            sheet.add([painter.gpu(numbers.get(name, name), self.cell, _ROW) for name in row], _ROW)
        return sheet
