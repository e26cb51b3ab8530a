"""Pictures that a browser draws from compact data: plain JavaScript without a build step, and their style.

``script()`` defines one global, ``rackplanPictures`` (``base.js`` says what it offers); it asks for nothing,
writes no markup from data, and needs no inline handler or style: it works under a strict content security policy.
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
    return "\n".join(_text(name) for name in SCRIPTS)


def style() -> str:
    """Return the style, in the colours that a page names (``--ink``, ``--soft``, ``--rule``, ``--paper``)."""
    return _text(STYLE)


def _text(name: str) -> str:
    return files("rackplan.render.pictures").joinpath(name).read_text(encoding="utf-8")
