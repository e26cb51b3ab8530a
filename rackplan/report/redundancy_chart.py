"""The chart of throughput against copies, as the plain data that Plotly draws."""

from __future__ import annotations

from typing import Any

from placement.findings import RedundancyCurve
from rackplan.report.charts import axis, layout_of
from rackplan.report.palette import BLUE, VERMILION


def redundancy_chart(curve: RedundancyCurve) -> dict[str, Any]:
    """Return throughput against copies, the choice and the knee marked."""
    points = curve.points
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "throughput",
        "x": [point.redundant for point in points],
        "y": [point.tok_s_per_gpu for point in points],
        "line": {"color": BLUE, "width": 2},
        "customdata": [[point.balancedness, point.batch, point.expert_bytes / 1e9] for point in points],
        "hovertemplate": (
            "%{x} copies: %{y:,.0f} tok/s/GPU<br>balancedness %{customdata[0]:.4f}, batch %{customdata[1]}, "
            "experts %{customdata[2]:.1f} GB a GPU<extra></extra>"
        ),
    }
    marks = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [point.redundant],
            "y": [point.tok_s_per_gpu],
            "marker": {"color": VERMILION, "symbol": symbol, "size": 14},
            "hoverinfo": "skip",
        }
        for name, symbol, point in (
            ("chosen", "star", curve.best),
            (f"knee: {curve.knee.redundant} copies", "circle-open", curve.knee),
        )
    ]
    axes = {
        "xaxis": axis("copies per layer above one of each expert"),
        "yaxis": axis("tok/s/GPU", rangemode="tozero"),
    }
    return {"data": [line, *marks], "layout": layout_of(**axes)}
