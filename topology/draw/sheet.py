"""A table that knows how high it is, so that what stands below it can be placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from topology.draw.canvas import table


@dataclass
class Sheet:
    """Rows of cells with one point between them; ``width`` in points."""

    width: float
    _rows: list[Sequence[str]] = field(default_factory=list)
    _height: float = 4.0

    def add(self, cells: Sequence[str], height: float) -> None:
        """Add a row whose cells are ``height`` points high."""
        self._rows.append(cells)
        self._height += height + 1

    def add_all(self, rows: Sequence[Sequence[str]], height: float) -> None:
        """Add rows that are all ``height`` points high."""
        for row in rows:
            self.add(row, height)

    @property
    def height(self) -> float:
        """Height of the table in points."""
        return self._height

    def html(self, **attributes: object) -> str:
        """Return the table; its cells stand one point apart, a border of one point around it."""
        return table(
            self._rows,
            **{"border": 1, "cellspacing": 1, "bgcolor": "#ffffff", "width": round(self.width), **attributes},
        )
