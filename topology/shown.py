"""Results that name themselves in a line, and show themselves in a notebook as the package above them draws them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from topology.errors import printable

LONGEST = 200
"""Characters of a ``repr``, at most."""
_RENDERER: list[str] = []


def render_with(module: str) -> None:
    """Name the module whose ``html``, ``svg``, ``text`` and ``frame`` show results; it is loaded when first asked."""
    _RENDERER[:] = [module]


class Shown:
    """A result with a short ``repr``; notebooks show what :func:`render_with` named, a page and a drawing."""

    def brief(self) -> str:
        """Return what the result is, in a few words."""
        raise NotImplementedError

    def __repr__(self) -> str:
        text = printable(f"{type(self).__name__} {self.brief()}")
        return f"<{text if len(text) <= LONGEST - 2 else text[: LONGEST - 5] + '...'}>"

    def to_frame(self) -> Any:
        """Return the figures as a pandas ``DataFrame``; pandas is an optional extra.

        Raises
        ------
        InputError
            If pandas is not installed, or there is no table of such a result.
        """
        return _rendered("frame", self)

    def summary(self) -> str:
        """Return what the command prints of it; empty where no command does."""
        said: str = _rendered("text", self)
        return said

    def _repr_html_(self) -> str | None:
        return _rendered("html", self) if _RENDERER else None

    def _repr_svg_(self) -> str | None:
        return _rendered("svg", self) if _RENDERER else None


def _rendered(how: str, result: Shown) -> Any:
    return getattr(import_module(_RENDERER[0] if _RENDERER else "rackplan.results"), how)(result)
