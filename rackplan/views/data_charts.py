"""The chart of levers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rackplan.report.plotting import (
    GREEN,
    VERMILION,
    axis_of,
    bar_of,
    chart_of,
    plotly_text,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def levers_chart(gains: Sequence[tuple[str, float]], rate: str) -> Figure:
    """Return a bar for each lever: the gain of ``rate`` as a fraction, the largest on top."""
    names = [plotly_text(name) for name, _ in gains]
    values = [gain for _, gain in gains]
    colours = [GREEN if gain > 0 else VERMILION for gain in values]
    bars = bar_of(
        "",
        orientation="h",
        x=values,
        y=names,
        text=[f"{gain:+.1%}" for gain in values],
        textposition="auto",
        marker={"color": colours},
        hovertemplate="%{y}: %{x:+.1%}<extra></extra>",
        showlegend=False,
    )
    down = {"autorange": "reversed", "automargin": True, "ticksuffix": " ", "type": "category"}
    return chart_of([bars], xaxis=axis_of(f"change of {rate}, layout kept", tickformat="+.0%"), yaxis=down)
