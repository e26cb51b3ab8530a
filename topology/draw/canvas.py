"""A drawing with fixed places, as DOT source: boxes from the top left, links between them, a title.

Places are ours, not a layout program's: tiers stay tiers, columns stay rails, and the same cluster gives the
same bytes. Graphviz draws the boxes, measures the text and clips the links (engine ``nop``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology.draw.style import FONT, INK, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Canvas", "cell", "table"]

_TEXT_POINTS = 9
_TITLE_POINTS = 13


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
    """Collects boxes and links; :meth:`source` writes them as DOT. Lengths are points, y grows downwards."""

    title: str
    subtitles: Sequence[str]
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
        rows = [[cell(line, ink=ink)] for line in lines]
        self.box(name, centre, (0, 0), table(rows, bgcolor="#ffffff", cellpadding=1))

    def link(self, tail: str, head: str, colour: str, width: float = 1.0, style: str = "solid") -> None:
        """Draw a straight line between two places, written ``"box"`` or ``"box:port:side"``."""
        ends = " -- ".join(":".join(f'"{safe(part)}"' for part in end.split(":")) for end in (tail, head))
        self._edges.append(f'  {ends} [color="{colour}", penwidth="{width:.2f}", style="{style}"];')

    def source(self) -> str:
        """Return the drawing as DOT."""
        rows = [[cell(self.title, bold=True, size=_TITLE_POINTS, align="left", height=24)]]
        rows += [
            [cell(line, size=_TEXT_POINTS, ink="#404040", align="left", height=14)] for line in self.subtitles
        ]
        label = table([*rows, [cell("", height=12)]])
        head = [
            "graph rackplan {",
            '  graph [layout="nop", splines="line", outputorder="nodesfirst", bgcolor="#ffffff", pad="0.2",',
            f'    fontname="{FONT}", fontcolor="{INK}", labelloc="t", labeljust="l", label=<{label}>];',
            f'  node [fontname="{FONT}", fontsize="{_TEXT_POINTS}", fontcolor="{INK}"];',
        ]
        return "\n".join([*head, *self._nodes, *self._edges, "}", ""])

    def _node(
        self, name: str, at: tuple[float, float], size: tuple[float, float], label: str, **style: str
    ) -> None:
        """Write one node; ``at`` is its top left corner."""
        x, y = at[0] + size[0] / 2, -(at[1] + size[1] / 2)
        sized = {"width": f"{size[0] / 72:.4f}", "height": f"{size[1] / 72:.4f}"} if size[0] else {}
        attributes = {"pos": f"{x:.2f},{y:.2f}", **sized, **style}
        written = ", ".join(f'{key}="{safe(value)}"' for key, value in attributes.items())
        self._nodes.append(f'  "{safe(name)}" [{written}, {label}];')
