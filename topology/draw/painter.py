"""How one GPU looks as a cell: its number, or the value and label of an overlay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.draw.canvas import cell, table
from topology.draw.overlay import Ramp
from topology.draw.style import INK, QUIET, ink_on, rail_colour
from topology.units import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.cluster import Cluster
    from topology.draw.overlay import Overlay

__all__ = ["Painter"]

_SMALL_POINTS = 8
_LABEL_CHARACTERS = 4


class Painter:
    """Draws GPU cells of one cluster; with an overlay, colour is the value and rails are grey."""

    def __init__(self, cluster: Cluster, overlay: Overlay | None, shown: Sequence[int] | None = None) -> None:
        self.cluster = cluster
        self.overlay = overlay
        self.ramp = None
        if overlay is not None:
            overlay.check(len(cluster.gpus))
            chosen = range(len(cluster.gpus)) if shown is None else shown
            self.ramp = Ramp([overlay.values[i] for i in chosen], overlay.spans)

    def rail(self, number: int) -> str:
        """Return the colour of a rail: grey under an overlay, which owns the colours."""
        return rail_colour(number) if self.overlay is None else QUIET

    def gpu(self, index: int, width: int, height: int = 14) -> str:
        """Return the cell of GPU number ``index``."""
        identity = self.cluster.gpus[index].id
        size = {"width": width, "height": height, "size": _SMALL_POINTS, "href": "#"}
        if self.overlay is None or self.ramp is None:
            return cell(
                index, tooltip=identity, bgcolor="#ffffff", ink=INK, border=1, color="#c8c8c8", **size
            )
        value = self.overlay.values[index]
        return cell(
            self.overlay.labels[index][:_LABEL_CHARACTERS],
            tooltip=f"{identity}: {self.overlay.labels[index]}, {format_number(value)}",
            bgcolor=self.ramp.fill(value),
            ink=self.ramp.ink(value),
            border=1,
            color="#c8c8c8",
            **size,
        )

    def rail_cell(self, rail: int, width: int, text: str, port: str = "", height: int = 14) -> str:
        """Return a cell in the colour of a rail."""
        colour = self.rail(rail)
        ports = {"port": port} if port else {}
        ink = ink_on(colour) if self.overlay is None else "#ffffff"
        return cell(text, width=width, height=height, bgcolor=colour, ink=ink, size=_SMALL_POINTS, **ports)

    def legend(self) -> str | None:
        """Return the legend of the overlay as a table, or None where there is none."""
        if self.overlay is None or self.ramp is None:
            return None
        steps = self.ramp.steps()
        swatches = [
            cell(
                format_number(value),
                bgcolor=self.ramp.fill(value),
                ink=self.ramp.ink(value),
                width=46,
                height=16,
                border=1,
                color="#c8c8c8",
            )
            for value in steps
        ]
        return table([[*swatches, cell("", width=8), cell(self.overlay.legend, align="left")]])
