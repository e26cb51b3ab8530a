"""What all charts share: axes, and figures of Plotly that fit any page."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from plotly.graph_objects import Bar, Figure, Scatter

from rackplan.report.colours import NEUTRAL

_STEPS = ((8, (1, 1.5, 2, 3, 5, 7)), (300, (1, 2, 5)), (math.inf, (1,)))
"""Ticks per decade of a logarithmic axis, by the upper limit of its range ratio."""
_MIN_TICKED_RATIO = 1.5
"""Range ratio from which they are used; below it those are too few."""


def plotly_text(text: str) -> str:
    """Return a name so that Plotly shows it as it is: its labels know tags and entities."""
    return escape(text, quote=False)


def line_of(colour: str, width: float = 2, dash: str = "") -> dict[str, Any]:
    """Return the look of a line, or of an outline."""
    return {"color": colour, "width": width} | ({"dash": dash} if dash else {})


def axis_of(title: str, **options: Any) -> dict[str, Any]:
    """Return an axis with its title."""
    words = {"text": title, "standoff": 12}
    shared = {"automargin": True, "showline": True, "ticks": "outside", "zeroline": False}
    return {"title": words} | shared | options


def chart_of(data: Sequence[Scatter | Bar], **layout: Any) -> Figure:
    """Return a chart with what all of them share; the page sets colours of text and rules."""
    clear = "rgba(0,0,0,0)"
    shared: Mapping[str, Any] = {
        "template": None,
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "font": {"family": "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif", "size": 13},
        "margin": {"l": 70, "r": 20, "t": 50, "b": 60},
        "hoverlabel": {"align": "left"},
        "modebar": {"bgcolor": clear, "color": NEUTRAL, "activecolor": NEUTRAL},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    return Figure(data).update_layout({**shared, **layout})


def log_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis that holds all values, with round numbers on it."""
    smallest, largest = (min(values), max(values)) if values else (1.0, 100.0)
    edge = 0.04 * math.log10(largest / smallest) or 0.05
    span = [math.log10(smallest) - edge, math.log10(largest) + edge]
    if largest / smallest < _MIN_TICKED_RATIO:
        return axis_of(title, type="log", range=span, tickformat=",~r")
    steps = next(steps for times, steps in _STEPS if largest / smallest < times)
    powers = range(math.floor(math.log10(smallest)), math.ceil(math.log10(largest)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return axis_of(
        title, type="log", tickvals=ticks, ticktext=[f"{tick:,.10g}" for tick in ticks], range=span
    )


def picture_of(svg: str) -> Figure:
    """Return an SVG file as a figure that shows it whole."""
    width, height = (float(size) for size in re.findall(r'\b(?:width|height)="([0-9.]+)', svg)[:2])
    source = f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
    hidden = {"visible": False, "fixedrange": True}
    image = {"source": source, "xref": "x", "yref": "y", "x": 0, "y": 0, "sizex": width, "sizey": height}
    return Figure().update_layout(
        images=[image],
        xaxis={**hidden, "range": [0, width]},
        yaxis={**hidden, "range": [height, 0], "scaleanchor": "x"},
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        height=min(900.0, max(300.0, 900 * height / width)),
    )
