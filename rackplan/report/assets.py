"""Scripts and styles of pages, plain JavaScript without a build step, and the chart library.

``script()`` defines one global, ``rackplanPictures`` (``base.js`` says what it offers), which draws pictures from
compact data; it asks for nothing, writes no markup from data, and needs no inline handler or style: it works under a
strict content security policy.
"""

from __future__ import annotations

from importlib.resources import files

SCRIPTS = (
    "base.js",
    "experts_data.js",
    "experts_paint.js",
    "experts.js",
    "topology.js",
)
"""In the order they are read; each but the first adds to what ``base.js`` defines."""
STYLE = "pictures.css"


def script() -> str:
    """Return the scripts as one."""
    return "\n".join(map(text, SCRIPTS))


def style() -> str:
    """Return the style, in the colours that a page names (``--ink``, ``--soft``, ``--rule``, ``--paper``)."""
    return text(STYLE)


def text(name: str) -> str:
    """Return a script or a style."""
    return _file(name).decode()


def plotly() -> bytes:
    """Return the script that draws charts, compressed with gzip.

    It is the build with scatter and bar charts only: the build in the Python package has forty kinds, is four
    times as large, and takes a browser of two cores two seconds to load.
    """
    return _file("plotly-basic.min.js.gz")


def _file(name: str) -> bytes:
    return files("rackplan.report").joinpath("static", name).read_bytes()
