"""From DOT source to the bytes of a picture: in the font of this package, SVG with names and a dark look."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from colorsys import hls_to_rgb, rgb_to_hls
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from xml.sax.saxutils import escape

from topology.base.errors import RackplanError
from topology.base.files import no_room, scratch
from topology.draw import palette
from topology.draw.canvas import FONT

FONTS = Path(__file__).resolve().parent.parent / "fonts"


@contextmanager
def bundled_fonts() -> Iterator[None]:
    """Point fontconfig at the bundled fonts alone while the block runs.

    Fontconfig reads its settings once, at the first drawing of the process, so the block must hold it. The
    environment is put back afterwards: child processes of the caller keep their own fonts.
    """
    folder = _configuration()
    settings = {"FONTCONFIG_FILE": str(folder / "fonts.conf"), "FONTCONFIG_PATH": str(folder)}
    saved = {name: os.environ[name] for name in settings if name in os.environ}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings.keys() - saved.keys():
            del os.environ[name]
        os.environ.update(saved)


@contextmanager
def without_font_warnings() -> Iterator[None]:
    """Hold back what fontconfig writes to standard error while the block runs; pass on everything else.

    The fontconfig in the drawing library reads every template under /usr/share/fontconfig, whatever its
    settings, and warns about those newer than itself.
    """
    try:
        sys.stderr.flush()
        saved = os.dup(2)
    except (AttributeError, OSError, ValueError):  # no standard error to keep quiet
        yield
        return
    # a file without a name: nothing of it is left whatever happens
    memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("rackplan"), "w+b") if memory else tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            written = held.read().splitlines(keepends=True)
            lines = [line for line in written if not line.startswith(b"Fontconfig ")]
            if lines:
                os.write(2, b"".join(lines))


@cache
def _configuration() -> Path:
    """Write a fontconfig folder with a cache of its own, removed when the process ends.

    The fonts are copied into it: fontconfig drops a ``.uuid`` file beside the fonts it reads.
    """
    stack = ExitStack()
    folder = stack.enter_context(scratch())
    atexit.register(stack.close)
    try:
        _put_fonts(folder)
    except OSError as error:
        stack.close()
        raise no_room(error) from None
    return folder


def _put_fonts(folder: Path) -> None:
    (folder / "fonts").mkdir()
    for font in sorted(FONTS.glob("*.ttf")):
        shutil.copyfile(font, folder / "fonts" / font.name)
    (folder / "fonts.conf").write_text(
        '<?xml version="1.0"?>\n<!DOCTYPE fontconfig SYSTEM "fonts.dtd">\n<fontconfig>\n'
        f"  <dir>{escape(str(folder / 'fonts'))}</dir>\n"
        f"  <cachedir>{escape(str(folder / 'cache'))}</cachedir>\n"
        "  <config><rescan><int>0</int></rescan></config>\n</fontconfig>\n",
        encoding="utf-8",
    )


FORMATS = ("svg", "png", "pdf")
_PNG_DPI = 144
_LOCK = Lock()  # Graphviz keeps global state
_CREATION_DATE = re.compile(rb"/CreationDate \(D:[^)]*\)")
_DOT_TIP = re.compile(r' href="#[^"]*"| tooltip="[^"]*"(?=[^>]*>)')


def render(source: str, suffix: str) -> bytes:
    """Return the picture of DOT ``source`` as ``svg``, ``png`` or ``pdf``; without the time when it was made.

    Raises
    ------
    RackplanError
        If the drawing library fails.
    """
    if suffix != "svg":
        source = _DOT_TIP.sub("", source)
    if suffix == "png":
        source = source.replace("graph [", f'graph [dpi="{_PNG_DPI}", ', 1)
    with _LOCK, bundled_fonts(), without_font_warnings():
        import pygraphviz

        library: Any = pygraphviz  # it has no types
        graph = library.AGraph(string=source)
        try:
            picture = graph.draw(format=suffix, prog="nop2")
        except (OSError, ValueError) as error:
            raise RackplanError(f"the drawing library failed: {error}") from error
        finally:
            graph.close()
    if not picture:
        raise RackplanError(f"the drawing library produced no {suffix}.")
    if suffix == "svg":
        return finished(bytes(picture).decode()).encode()
    return _CREATION_DATE.sub(lambda date: b" " * len(date[0]), bytes(picture))


FAMILIES = f"{FONT}, Verdana, sans-serif"
# A cell or link with a tip: Graphviz wraps it in a link, and numbers the wrapper through all drawings of the process.
_TIP = re.compile(r'<g id="a_[^"]*"><a xlink:href="([^"]*)" xlink:title="([^"]*)">(.*?)</a>', re.DOTALL)
_BOX = re.compile(r'<g id="(?:node|edge)\d+" class="(node|edge)">\s*<title>[^<]*</title>\s*')
_FRAMED = re.compile(r'(<polygon fill="#\w+")( points="[^"]+"/>)\n<polygon fill="none"( stroke="#\w+")\2')
"""A cell and its frame, which are drawn as two."""
_CLOSED = re.compile(r'(<polygon [^>]*points="(\S+) [^"]+) \2"')
"""A polygon that ends where it begins: it is closed without that."""
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_COLOUR = re.compile(r'(fill|stroke)="(#[0-9a-f]{6}|black|white)"')
_NAMED_COLOURS = {"black": "#000000", "white": "#ffffff"}
_TOKENS = {
    "#ffffff": "--paper",
    palette.INK: "--ink",
    palette.QUIET: "--soft",
}  # names of colours in a page around the drawing
_MIN_LIGHTNESS, _LIGHTNESS_SPAN = 0.12, 0.82
"""Lightness on dark of what is white on light, and how far black is from it."""


def finished(svg: str) -> str:
    """Return the drawing as it is kept.

    What has a tip is a group with a ``title``; what can be named elsewhere, a GPU, node, rack, domain or switch, has
    ``data-kind`` and ``data-id`` too. Readers who prefer dark pages get dark colours: the hues stay, light and
    dark change places; paper, ink and soft ink are those of the page around it (``--paper``, ``--ink``, ``--soft``).
    """
    svg = _COMMENT.sub("", svg).replace("<title>rackplan</title>\n", "", 1)
    svg = _BOX.sub(r'<g class="\1">', _TIP.sub(_named, svg))
    svg = svg.replace(f' font-family="{FONT}"', "").replace(' xml:space="preserve" text-anchor="start"', "")
    svg = _CLOSED.sub(r'\1"', svg)
    svg = _FRAMED.sub(r"\1\3\2", svg.replace('.00"', '"').replace(' stroke="none"', ""))
    svg = svg.replace(' xmlns="', ' class="rackplan" xmlns="', 1)
    ink = f' fill="{palette.INK}"'
    root = f'{_dark(svg)}<g font-family="{FAMILIES}"{ink}'  # of text that names no colour; a page may have several
    return svg.replace(f"{ink}>", ">").replace('<g id="graph0"', root, 1)


def _named(link: re.Match[str]) -> str:
    """Return a group with a title for a link with a tip; its address names it, as ``#gpu:d0.n0.g1``."""
    kind, _, name = link[1].removeprefix("#").partition(":")
    data = f' data-kind="{kind}" data-id="{name}"' if name else ""
    return f"<g{data}><title>{link[2]}</title>{link[3].strip()}"


def _dark(svg: str) -> str:
    """Return the style that a dark screen has, a rule for each colour in use."""
    rules = []
    for attribute, colour in sorted(set(_COLOUR.findall(svg))):
        plain = _NAMED_COLOURS.get(colour, colour)
        dark, token = dark_colour(plain), _TOKENS.get(plain)
        value = f"var({token},{dark})" if token else dark
        rules.append(f'svg.rackplan [{attribute}="{colour}"]{{{attribute}:{value}}}')
    # text without a fill of its own is black
    rules.append("svg.rackplan text:not([fill]){fill:var(--ink,#e6edf3)}")
    return f"<style>@media screen and (prefers-color-scheme: dark){{{''.join(rules)}}}</style>\n"


def dark_colour(colour: str) -> str:
    """Return a colour of the same hue, as light on dark as ``colour`` (``#rrggbb``) is dark on light."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, light, saturation = rgb_to_hls(red, green, blue)
    parts = hls_to_rgb(hue, _MIN_LIGHTNESS + _LIGHTNESS_SPAN * (1 - light), saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
