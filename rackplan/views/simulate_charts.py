"""Charts of a simulation: percentiles against the rate, queue and batch over time, how first tokens are spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cost.queueing.load import PERCENTILES, MostRequests, UnderLoad
from rackplan.report.plotting import (
    BLUE,
    GREEN,
    NEUTRAL,
    ORANGE,
    VERMILION,
    axis_of,
    chart_of,
    line_of,
    scatter_of,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

_POINTS = 200
"""Points of the distribution curve."""
_OVER = 3.0
"""Range of the time axis in multiples of the limit; beyond the maximum rate times grow without bound."""


def rates_chart(
    rates: Sequence[float],
    times: Sequence[Sequence[float]],
    limit: float | None,
    most: MostRequests | None,
    unit: str,
    what: str,
) -> Figure:
    """Return percentiles of times, ``[rates][percentiles]``, with their limit and the range of the maximum rate.

    ``times`` and ``limit`` are in ``unit``, which the axis shows with ``what`` they are.
    """
    data = [
        scatter_of(
            f"p{percent}",
            "lines+markers",
            rates,
            [row[at] for row in times],
            line=line_of(colour),
            hovertemplate=f"%{{x:,.3g}} requests/s: p{percent} %{{y:,.3g}} {unit}<extra></extra>",
        )
        for at, (percent, colour) in enumerate(zip(PERCENTILES, (BLUE, ORANGE, VERMILION), strict=True))
    ]
    top = max(max(row) for row in times)
    if limit is not None:
        top = max(limit, min(top, _OVER * limit))
        data.append(_limit([0, rates[-1]], [limit, limit]))
    if most is not None:
        across, up = [most.low, most.low, most.high, most.high], [0, 1.08 * top, 1.08 * top, 0]
        look = {"line": line_of(GREEN, 1.5), "fill": "toself", "opacity": 0.5, "hoverinfo": "skip"}
        data.append(scatter_of("maximum", "lines", across, up, **look))
    return chart_of(
        data,
        xaxis=axis_of("requests/s", rangemode="tozero"),
        yaxis=axis_of(f"{unit} {what}", range=[0, 1.08 * top]),
    )


def timeline_chart(found: UnderLoad) -> Figure:
    """Return requests that wait and that are in steps over time."""
    at, waiting, running = found.outcome.timeline.T.tolist()
    data = [
        scatter_of(
            name,
            "lines",
            at,
            values,
            line=line_of(colour, 1.5),
            hovertemplate=f"%{{x:,.1f}} s: %{{y:,}} {name}<extra></extra>",
        )
        for name, values, colour in (("in steps", running, BLUE), ("waiting", waiting, VERMILION))
    ]
    return chart_of(data, xaxis=axis_of("seconds"), yaxis=axis_of("requests", rangemode="tozero"))


def shares_chart(found: UnderLoad) -> Figure:
    """Return which part of the requests has its first token after so many seconds, with the limit."""
    share = np.linspace(0, 1, _POINTS + 1)
    seconds = np.quantile(found.ttft_s, share).tolist()
    line = scatter_of(
        "requests",
        "lines",
        seconds,
        share.tolist(),
        line=line_of(BLUE),
        hovertemplate="%{y:.1%} within %{x:,.3g} s<extra></extra>",
    )
    data, limit_s = [line], found.limits.ttft_s
    if limit_s is not None:
        data.append(_limit([limit_s, limit_s], [0, 1]))
    return chart_of(
        data,
        xaxis=axis_of("s to first token", range=[0, 1.05 * max(seconds[-1], limit_s or 0.0)]),
        yaxis=axis_of("requests", tickformat=".0%", range=[0, 1.02]),
    )


def _limit(across: Sequence[float], up: Sequence[float]) -> Scatter:
    return scatter_of("limit", "lines", across, up, line=line_of(NEUTRAL, 1.5, "dash"), hoverinfo="skip")
