"""What all charts share: colours, the figure of Plotly, its axes, and names as it shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

# Okabe and Ito, "Color Universal Design" (2008), without black and yellow: they vanish on dark and on white
BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY = "#e69f00", "#56b4e9"
NEUTRAL = "#8c959f"
"""Grey that reads on white and on black."""
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")

Figure = dict[str, Any]


def series(count: int) -> list[str]:
    """Return ``count`` colours; they repeat after six."""
    colours = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE)
    return [colours[index % len(colours)] for index in range(count)]


def plotly_text(text: str) -> str:
    """Return a name so that Plotly shows it as it is: its labels know tags and entities."""
    return escape(text, quote=False)


def chart_of(data: Sequence[Figure], **layout: Any) -> Figure:
    """Return a chart with what all of them share; the page sets colours of text and rules."""
    base = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif", "size": 13},
        "margin": {"l": 70, "r": 20, "t": 50, "b": 60},
        "hoverlabel": {"align": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": NEUTRAL, "activecolor": NEUTRAL},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    return {"data": data, "layout": base | layout}


def axis_of(title: str, **more: Any) -> Figure:
    """Return an axis with its title."""
    words = {"text": title, "standoff": 12}
    shared = {"automargin": True, "showline": True, "ticks": "outside", "zeroline": False}
    return {"title": words} | shared | more


def speed_axes(speeds: Sequence[float], tokens: str) -> Figure:
    """Return the axes of throughput against speed per user: round numbers on a logarithmic one."""
    least, most = (min(speeds), max(speeds)) if speeds else (1.0, 100.0)
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    across = axis_of(
        f"{tokens} tok/s/user (log scale)",
        type="log",
        tickvals=ticks,
        ticktext=[f"{tick:,g}" for tick in ticks],
        range=[math.log10(least) - 0.05, math.log10(most) + 0.05],
    )
    return {"xaxis": across, "yaxis": axis_of(f"{tokens} tok/s/GPU", rangemode="tozero", tickformat=",~r")}


def scatter_of(name: str, mode: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> Figure:
    """Return points or a line under a name."""
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y} | more
