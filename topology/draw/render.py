"""From DOT source to the bytes of a picture, in the font that ships with this package."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Any
from xml.sax.saxutils import escape

from topology.base.errors import RackplanError
from topology.base.files import no_room, scratch
from topology.draw.finish import finished

FONTS = Path(__file__).resolve().parent.parent / "fonts"
_VARIABLES = ("FONTCONFIG_FILE", "FONTCONFIG_PATH")


@contextmanager
def bundled_fonts() -> Iterator[None]:
    """Point fontconfig at the bundled fonts alone while the block runs.

    Fontconfig reads its settings once, at the first drawing of the process, so the block must hold it. The
    environment is put back afterwards: child processes of the caller keep their own fonts.
    """
    folder = _configuration()
    saved = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ["FONTCONFIG_FILE"] = str(folder / "fonts.conf")
    os.environ["FONTCONFIG_PATH"] = str(folder)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def without_font_warnings() -> Iterator[None]:
    """Hold back what fontconfig writes to standard error while the block runs; pass on everything else.

    The fontconfig in the drawing library reads every template under /usr/share/fontconfig, whatever it is
    told, and warns about those newer than itself.
    """
    try:
        sys.stderr.flush()
        saved = os.dup(2)
    except (AttributeError, OSError, ValueError):  # no standard error to keep quiet
        yield
        return
    with _nameless() as held:
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


def _nameless() -> IO[bytes]:
    """Return a file without a name: nothing of it is left whatever happens."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("rackplan"), "w+b")
    return tempfile.TemporaryFile()


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
_MADE = re.compile(rb"/CreationDate \(D:[^)]*\)")
_PLACE = re.compile(rb"\d{10}(?= \d{5} n)|(?<=startxref\n)\d+")
_DOT_TIP = re.compile(r' href="#[^"]*"| tooltip="[^"]*"(?=[^>]*>)')


def render(source: str, suffix: str) -> bytes:
    """Return the picture of DOT ``source`` as ``svg``, ``png`` or ``pdf``.

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
        raise RackplanError(f"the drawing library gave no {suffix}.")
    if suffix == "svg":
        return finished(bytes(picture).decode()).encode()
    return _undated(bytes(picture)) if suffix == "pdf" else bytes(picture)


def _undated(pdf: bytes) -> bytes:
    """Return a PDF without when it was made, its objects found where they are now: dates differ in length by zone."""
    made = _MADE.search(pdf)
    if made is None:
        return pdf

    def moved(found: re.Match[bytes]) -> bytes:
        place = int(found[0])
        return b"%0*d" % (len(found[0]), place - len(made[0]) * (place > made.start()))

    objects, begin, places = (pdf[: made.start()] + pdf[made.end() :]).rpartition(b"\nxref\n")
    if not begin:  # no table of places to count anew: as many blanks
        return pdf[: made.start()] + b" " * len(made[0]) + pdf[made.end() :]
    return objects + begin + _PLACE.sub(moved, places)
