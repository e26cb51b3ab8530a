"""A drawing with fixed places, as DOT source: boxes from the top left, links between them, a title.

Places are ours, not a layout program's: tiers stay tiers, columns stay rails, and the same cluster gives the
same bytes. Graphviz draws the boxes, measures the text and clips the links (engine ``nop``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from topology.draw.metrics import text_width
from topology.draw.style import FONT, INK, safe

TEXT_POINTS = 9
_TITLE_POINTS = 13
_TITLE_ROW, _LINE_ROW = 24, 14


def cell(text: object = "", **attributes: object) -> str:
    """Return one table cell: ``text`` is escaped; ``bold``, ``ink``, ``size`` style it, others are HTML's."""
    content = safe(text)
    if attributes.pop("bold", False) and content:
        content = f"<b>{content}</b>"
    font = {"color": attributes.pop("ink", None), "point-size": attributes.pop("size", None)}
    chosen = " ".join(f'{key}="{value}"' for key, value in font.items() if value is not None)
    if chosen and content:
        content = f"<font {chosen}>{content}</font>"
    return f"<td{_html(attributes)}>{content}</td>"


def table(rows: Sequence[Sequence[str]], **attributes: object) -> str:
    """Return an HTML-like table of rows of cells."""
    defaults: dict[str, object] = {"border": 0, "cellborder": 0, "cellspacing": 0, "cellpadding": 0}
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table{_html({**defaults, **attributes})}>{body}</table>"


def _html(attributes: dict[str, object]) -> str:
    """Write attributes of an HTML-like element, sorted."""
    return "".join(f' {key}="{safe(value)}"' for key, value in sorted(attributes.items()))


@dataclass
class Canvas:
    """Collects boxes and links; :meth:`source` writes them as DOT. Lengths are points, y grows downwards.

    The title stands above y = 0, its left edge at ``left``.
    """

    title: str
    subtitles: Sequence[str]
    left: float = 0.0
    _nodes: list[str] = field(default_factory=list)
    _edges: list[str] = field(default_factory=list)

    def frame(self, name: str, at: tuple[float, float], size: tuple[float, float], **style: str) -> None:
        """Draw an empty rounded box, behind what comes after it."""
        attributes = {"fillcolor": "#f7f7f7", "color": "#c8c8c8", "style": "filled,rounded", **style}
        self._node(name, at, size, 'label=""', shape="box", fixedsize="true", **attributes)

    def box(
        self, name: str, at: tuple[float, float], size: tuple[float, float], html: str, tooltip: str = ""
    ) -> None:
        """Draw an HTML-like table with its top left corner at ``at``."""
        tips = {"tooltip": tooltip} if tooltip else {}
        self._node(name, at, size, f"label=<{html}>", shape="plain", **tips)

    def text(self, name: str, centre: tuple[float, float], lines: Sequence[str], ink: str = INK) -> None:
        """Write lines of text around a point, on the background's own white."""
        if not lines:
            return
        rows = [[cell(line, ink=ink)] for line in lines]
        self.box(name, centre, (0, 0), table(rows, bgcolor="#ffffff", cellpadding=1))

    def note(
        self,
        name: str,
        at: tuple[float, float],
        lines: Sequence[str],
        *,
        ink: str = INK,
        points: float = TEXT_POINTS,
        bold: bool = False,
    ) -> float:
        """Write left-aligned lines with their top left corner at ``at``; return the height they take."""
        row = round(points * 1.6)
        width = max((text_width(line, points, bold=bold) for line in lines), default=0) + 4
        rows = [
            [cell(line, ink=ink, size=points, bold=bold, align="left", width=width, height=row)]
            for line in lines
        ]
        if rows:
            self.box(name, at, (width, row * len(rows)), table(rows, bgcolor="#ffffff"))
        return float(row * len(rows))

    def link(
        self, tail: str, head: str, colour: str, width: float = 1.0, style: str = "solid", tip: str = ""
    ) -> None:
        """Draw a straight line between two places, written ``"box"`` or ``"box:port:side"``."""
        ends = " -- ".join(":".join(f'"{safe(part)}"' for part in end.split(":")) for end in (tail, head))
        tips = f', tooltip="{safe(tip)}", href="#"' if tip else ""
        self._edges.append(f'  {ends} [color="{colour}", penwidth="{width:.2f}", style="{style}"{tips}];')

    def source(self) -> str:
        """Return the drawing as DOT."""
        nodes, self._nodes = self._nodes, []
        self._write_title()
        title, self._nodes = self._nodes, nodes
        head = [
            "graph rackplan {",
            '  graph [layout="nop", splines="line", outputorder="edgesfirst", bgcolor="#ffffff", pad="0.2",',
            f'    fontname="{FONT}", fontcolor="{INK}"];',
            f'  node [fontname="{FONT}", fontsize="{TEXT_POINTS}", fontcolor="{INK}"];',
        ]
        return "\n".join([*head, *title, *nodes, *self._edges, "}", ""])

    def _write_title(self) -> None:
        """Write the title and the lines under it, above everything else."""
        width = max(
            text_width(self.title, _TITLE_POINTS, bold=True),
            *(text_width(line, TEXT_POINTS) for line in self.subtitles),
            0,
        )
        rows = [
            [cell(self.title, bold=True, size=_TITLE_POINTS, align="left", height=_TITLE_ROW, width=width)]
        ]
        rows += [[cell(line, ink="#404040", align="left", height=_LINE_ROW)] for line in self.subtitles]
        tall = _TITLE_ROW + _LINE_ROW * len(self.subtitles)
        self.box("title", (self.left, -16.0 - tall), (width, tall), table(rows))

    def _node(
        self, name: str, at: tuple[float, float], size: tuple[float, float], label: str, **style: str
    ) -> None:
        """Write one node; ``at`` is its top left corner."""
        x, y = at[0] + size[0] / 2, -(at[1] + size[1] / 2)
        sized = {"width": f"{size[0] / 72:.4f}", "height": f"{size[1] / 72:.4f}"} if size[0] else {}
        attributes = {"pos": f"{x:.2f},{y:.2f}", **sized, **style}
        written = ", ".join(f'{key}="{safe(value)}"' for key, value in attributes.items())
        self._nodes.append(f'  "{safe(name)}" [{written}, {label}];')
