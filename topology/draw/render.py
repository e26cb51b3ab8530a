"""From DOT source to the bytes of a picture."""

from __future__ import annotations

import re
from threading import Lock
from typing import Any

from topology.draw.fonts import bundled_fonts, without_font_warnings
from topology.draw.style import FONT
from topology.errors import RackplanError

FORMATS = ("svg", "png", "pdf", "dot")
_PNG_DPI = 144
_FAMILIES = f"{FONT}, Verdana, sans-serif"
_LOCK = Lock()  # Graphviz keeps global state
_TIP = re.compile(r'<a xlink:href="[^"]*" xlink:title="([^"]*)">(.*?)</a>', re.DOTALL)
# The library numbers these through all drawings of the process: equal drawings would differ.
_COUNTED = re.compile(r'<g id="a_[^"]*">')
_DOT_TIP = re.compile(r' href="#"| tooltip="[^"]*"(?=[^>]*>)')
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def render(source: str, suffix: str) -> bytes:
    """Return the picture of DOT ``source`` as ``svg``, ``png``, ``pdf`` or ``dot``.

    Raises
    ------
    RackplanError
        If the drawing library fails.
    """
    if suffix == "dot":
        return source.encode()
    if suffix != "svg":
        source = _DOT_TIP.sub("", source)
    if suffix == "png":
        source = source.replace("graph [", f'graph [dpi="{_PNG_DPI}", ', 1)
    with _LOCK, bundled_fonts(), without_font_warnings():
        import pygraphviz

        library: Any = pygraphviz  # it has no types
        graph = library.AGraph(string=source)
        try:
            picture = graph.draw(format=suffix, prog="nop")
        except (OSError, ValueError) as error:
            raise RackplanError(f"the drawing library failed: {error}") from error
        finally:
            graph.close()
    if not picture:
        raise RackplanError(f"the drawing library gave no {suffix}.")
    return _finish_svg(bytes(picture).decode()).encode() if suffix == "svg" else bytes(picture)


def _finish_svg(svg: str) -> str:
    """Name fallback fonts, turn link tooltips into plain ones, drop comments and running numbers."""
    svg = svg.replace(f'font-family="{FONT}"', f'font-family="{_FAMILIES}"')
    svg = _TIP.sub(r"<title>\1</title>\2", svg)
    return _COMMENT.sub("", _COUNTED.sub("<g>", svg))
