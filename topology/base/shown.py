"""Results with a one-line repr and a notebook rendering supplied by a higher package."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from topology.base.errors import LONGEST, InputError, printable


class Shown:
    """A result with a short ``repr``; notebooks show what the functions of :attr:`renderer` draw.

    Attributes
    ----------
    renderer:
        Name of the module whose ``html``, ``svg``, ``text``, ``frame`` and ``figure`` show results, which the package
        with it sets; it is loaded on first use.
    """

    renderer: ClassVar[str] = ""

    def brief(self) -> str:
        """Return a short description of the result."""
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
        return self._rendered("frame")

    def plot(self) -> Any:
        """Return the chart that its report leads with, as a Plotly figure.

        Raises
        ------
        InputError
            If there is no chart of such a result.
        """
        return self._rendered("figure")

    def summary(self) -> str:
        """Return the command output for the result; empty if there is none."""
        lines: str = self._rendered("text")
        return lines

    def _repr_html_(self) -> str | None:
        return self._rendered("html") if self.renderer else None

    def _repr_svg_(self) -> str | None:
        return self._rendered("svg") if self.renderer else None

    def _rendered(self, how: str) -> Any:
        if not self.renderer:
            raise InputError(f"{type(self).__name__}: `import rackplan` first; it draws results.")
        return getattr(import_module(self.renderer), how)(self)
