"""A drawing with fixed positions, as DOT source: colours, text widths, tables of cells, boxes and links.

Positions are computed here, not by a layout program: tiers stay tiers, columns stay rails, and the same cluster gives
the same bytes. Graphviz draws the boxes, measures the text and draws the links (engine ``nop2``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil
from typing import Any

from topology.draw import palette

Point = tuple[float, float]
"""x and y, or width and height, in points."""
Line = tuple[tuple[str, Point], tuple[str, Point]]
"""A box and a place of each end."""
FONT = "DejaVu Sans"
TEXT_POINTS, SMALL_POINTS = 10, 9
"""Font sizes of titles and legends, and of all else."""
MAX_WIDTH = 1050
"""Width of a drawing in points: with its margin it fits on a screen of 1,440 pixels without being made smaller."""


def safe(text: object) -> str:
    """Escape a text for an HTML-like label; characters that XML cannot hold are dropped.

    Backslashes are doubled: Graphviz would read one with an N after it as the name of the node.
    """
    printable = "".join(c for c in str(text) if c.isprintable())
    return escape(printable, quote=True).replace("\\", "\\\\")


# Advance widths of DejaVu Sans from the space to the tilde, in hundredths of the font size.
_WIDTHS = (
    *(32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64),
    *(64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79),
    *(60, 79, 69, 63, 61, 73, 68, 99, 69, 61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63),
    *(63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84),
)
_OTHER = 100  # any other character: as wide as the font is high
_BOLD = 1.16


def text_width(text: str, points: float = SMALL_POINTS, *, bold: bool = False) -> int:
    """Return the width of ``text`` in points, rounded up; never less than what is drawn."""
    hundredths = sum(_WIDTHS[ord(c) - 32] if 32 <= ord(c) < 127 else _OTHER for c in text)
    return ceil(hundredths / 100 * points * (_BOLD if bold else 1.0)) + 2


def fitting(text: str, width: float, points: float = SMALL_POINTS) -> str:
    """Return ``text``, cut with dots where it is wider than ``width`` points."""
    if text_width(text, points, bold=True) <= width:
        return text
    while text and text_width(f"{text}...", points, bold=True) > width:
        text = text[:-1]
    return f"{text}..."


def wrapped(text: str, width: float, points: float = SMALL_POINTS, *, bold: bool = False) -> list[str]:
    """Return ``text`` in lines no wider than ``width`` points, broken at spaces; a longer word stays whole."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", points, bold=bold) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


_TITLE_POINTS = 13
_TITLE_ROW, _LINE_ROW = 24, 14


def cell(text: object = "", **attributes: Any) -> str:
    """Return one table cell: ``text`` is escaped; ``bold``, ``ink``, ``size`` style it, others are HTML's."""
    content = safe(text)
    if attributes.pop("bold", False) and content:
        content = f"<b>{content}</b>"
    font = {"color": attributes.pop("ink", None), "point-size": attributes.pop("size", None)}
    chosen = " ".join(f'{key}="{value}"' for key, value in font.items() if value is not None)
    if chosen and content:
        content = f"<font {chosen}>{content}</font>"
    return f"<td{_html(attributes)}>{content}</td>"


def table(rows: Sequence[Sequence[str]], **attributes: Any) -> str:
    """Return an HTML-like table of rows of cells."""
    defaults = {"border": 0, "cellborder": 0, "cellspacing": 0, "cellpadding": 0}
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table{_html({**defaults, **attributes})}>{body}</table>"


def _html(attributes: dict[str, Any]) -> str:
    """Write attributes of an HTML-like element, sorted."""
    return "".join(f' {key}="{safe(value)}"' for key, value in sorted(attributes.items()))


def named(kind: str, identity: str, *words: str) -> dict[str, Any]:
    """Return the attributes of a cell for a GPU, node, rack, domain or switch: its tip and its name."""
    return {"tooltip": "; ".join([identity, *words]), "href": f"#{kind}:{identity}"}


@dataclass
class Canvas:
    """Collects boxes and links; :meth:`source` writes them as DOT. Lengths are points, y grows downwards.

    The title is above y = 0.
    """

    title: str
    subtitles: Sequence[str] = ()
    _nodes: list[str] = field(default_factory=list)
    _edges: list[str] = field(default_factory=list)

    def box(self, name: str, at: Point, size: Point, html: str) -> None:
        """Draw an HTML-like table with its top left corner at ``at``."""
        self._nodes.append(_node(name, at, size, html))

    def sheet(self, name: str, at: Point, sheet: Sheet) -> None:
        """Draw a sheet with its top left corner at ``at``."""
        self.box(name, at, (sheet.width, sheet.height), sheet.html)

    def text(self, name: str, centre: Point, lines: Sequence[str], ink: str = palette.INK) -> None:
        """Write lines of text around a point, on the background's own white."""
        if not lines:
            return
        rows = [[cell(line, ink=ink, size=TEXT_POINTS)] for line in lines]
        self.box(name, centre, (0, 0), table(rows, bgcolor="#ffffff", cellpadding=1))

    def note(
        self, name: str, at: Point, lines: Sequence[str], ink: str = palette.INK, points: int = SMALL_POINTS
    ) -> None:
        """Write left-aligned lines with their top left corner at ``at``."""
        row = round(points * 1.6)
        width = max(text_width(line, points) for line in lines) + 4
        rows = [[cell(line, ink=ink, size=points, align="left", width=width, height=row)] for line in lines]
        self.box(name, at, (width, row * len(rows)), table(rows, bgcolor="#ffffff"))

    def link(self, line: Line, colour: str, width: float, tip: str, bend: float, *, dashed: bool) -> None:
        """Draw a line, straight or with its middle up to ``bend`` points higher; boxes cover what is under them."""
        (tail, (x, y)), (head, (to_x, to_y)) = line
        up = bend * 4 / 3  # of the two inner points of the curve
        path = f"{x:.2f},{-y:.2f} {x:.2f},{up - y:.2f} {to_x:.2f},{up - to_y:.2f} {to_x:.2f},{-to_y:.2f}"
        tips = f', tooltip="{safe(tip)}", href="#"' if tip else ""
        style = "dashed" if dashed else "solid"
        look = f'color="{colour}", penwidth="{width:.2f}", style="{style}"{tips}'
        self._edges.append(f'  "{safe(tail)}" -- "{safe(head)}" [pos="{path}", {look}];')

    def source(self) -> str:
        """Return the drawing as DOT."""
        head = [
            "graph rackplan {",
            '  graph [layout="nop2", splines="line", outputorder="edgesfirst", bgcolor="#ffffff", pad="0.2",',
            f'    fontname="{FONT}", fontcolor="{palette.INK}"];',
            f'  node [fontname="{FONT}", fontsize="{SMALL_POINTS}", fontcolor="{palette.INK}"];',
        ]
        return "\n".join([*head, self._heading(), *self._nodes, *self._edges, "}", ""])

    def _heading(self) -> str:
        """Return the title and the lines under it, above everything else."""
        titles = wrapped(self.title, MAX_WIDTH, _TITLE_POINTS, bold=True)
        lines = [part for line in self.subtitles for part in wrapped(line, MAX_WIDTH, TEXT_POINTS)]
        widths = [text_width(text, _TITLE_POINTS, bold=True) for text in titles]
        width = max([*widths, *(text_width(line, TEXT_POINTS) for line in lines)])
        look: dict[str, Any] = {"align": "left", "width": width}
        rows = [[cell(text, bold=True, size=_TITLE_POINTS, height=_TITLE_ROW, **look)] for text in titles]
        rows += [[cell(line, ink="#404040", size=TEXT_POINTS, height=_LINE_ROW, **look)] for line in lines]
        tall = _TITLE_ROW * len(titles) + _LINE_ROW * len(lines)
        return _node("title", (0.0, -16.0 - tall), (width, tall), table(rows))


def _node(name: str, at: Point, size: Point, html: str) -> str:
    """Return a box as DOT; one without a size is around ``at``."""
    x, y = at[0] + size[0] / 2, -(at[1] + size[1] / 2)
    sized = f'width="{size[0] / 72:.4f}", height="{size[1] / 72:.4f}", ' if size[0] else ""
    return f'  "{safe(name)}" [pos="{x:.2f},{y:.2f}", {sized}shape="plain", label=<{html}>];'


def in_lines(sizes: Sequence[Point], apart: Point, margin: float = 0.0) -> list[Point]:
    """Return the top left corners of boxes side by side, in lines that fit a drawing; ``apart`` is between them."""
    corners: list[Point] = []
    x, y, tall = margin, 0.0, 0.0
    for wide, high in sizes:
        if x > margin and x + wide + margin > MAX_WIDTH:
            x, y, tall = margin, y + tall + apart[1], 0.0
        corners.append((x, y))
        x, tall = x + wide + apart[0], max(tall, high)
    return corners


@dataclass
class Sheet:
    """A bordered table of rows of cells with one point between them; ``width`` and ``height`` in points."""

    width: float
    color: str
    dashed: bool = False
    height: float = 4.0
    _rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, cells: Sequence[str], height: float) -> None:
        """Add a row whose cells are ``height`` points high."""
        self._rows.append(cells)
        self.height += height + 1

    def line(self, text: object, height: float, **attributes: Any) -> None:
        """Add a row of one cell of text."""
        self.add([cell(text, height=height, **attributes)], height)

    @property
    def html(self) -> str:
        """The table; with one point between its cells, a border of one point around it."""
        style = {"style": "dashed"} if self.dashed else {}
        look = {"bgcolor": "#ffffff", "color": self.color, **style}
        return table(self._rows, border=1, cellspacing=1, width=round(self.width), **look)
