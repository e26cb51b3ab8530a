"""Charts of a comparison, as the plain data that Plotly draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placement.compare import CompareRow
from rackplan.report.charts import axis, hover, layout_of, speed_axes
from rackplan.report.palette import DASHES, SYMBOLS, plotly_text, series
from rackplan.report.points import ReportPoint, frontier

PATTERNS = ("", "/", "x", ".", "-", "+")


def frontier_chart(
    points: Mapping[str, Sequence[ReportPoint]], rows: Sequence[CompareRow], tokens: str
) -> dict[str, Any]:
    """Return the frontier of each cluster, and what its rows reach with experts as placed."""
    data: list[dict[str, Any]] = []
    for index, ((cluster, mine), colour) in enumerate(zip(points.items(), series(len(points)), strict=True)):
        name, best = plotly_text(cluster), frontier(mine)
        shared = {"type": "scatter", "legendgroup": name, "name": name, "hoverinfo": "text"}
        data.append(
            shared
            | {
                "mode": "lines+markers",
                "x": [point.tok_s_per_user for point in best],
                "y": [point.tok_s_per_gpu for point in best],
                "hovertext": [f"{name}: {hover(point, tokens)}" for point in best],
                "line": {"color": colour, "width": 2, "dash": DASHES[index % len(DASHES)]},
                "marker": {"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 6},
            }
        )
        placed = [row for row in rows if row.cluster == cluster and row.tok_s_per_gpu is not None]
        data.append(
            shared
            | {
                "mode": "markers",
                "showlegend": False,
                "x": [row.tok_s_per_user for row in placed],
                "y": [row.tok_s_per_gpu for row in placed],
                "hovertext": [f"{name}, as placed: {_said(row, tokens)}" for row in placed],
                "marker": {
                    "symbol": "star",
                    "size": 14,
                    "color": colour,
                    "line": {"color": "#1b1f24", "width": 1},
                },
            }
        )
    speeds = [point.tok_s_per_user for mine in points.values() for point in frontier(mine)]
    axes = speed_axes(
        [*speeds, *(row.tok_s_per_user for row in rows if row.tok_s_per_user is not None)], tokens
    )
    return {"data": data, "layout": layout_of(**axes)}


def _said(row: CompareRow, tokens: str) -> str:
    return (
        f"{plotly_text(row.layout or '')}<br>batch {row.batch} per GPU, step {(row.step_s or 0.0) * 1e3:,.2f} ms<br>"
        f"{row.tok_s_per_user:,.1f} {tokens} tok/s/user<br>{row.tok_s_per_gpu:,.0f} {tokens} tok/s/GPU<br>"
        f"bound by {plotly_text(row.bound_by or '')}"
    )


def speed_chart(rows: Sequence[CompareRow], tokens: str) -> dict[str, Any]:
    """Return a bar per cluster at each speed asked for; below a speed stands who does not reach it."""
    clusters = list(dict.fromkeys(row.cluster for row in rows))
    speeds = sorted(dict.fromkeys(row.target_tok_s_per_user for row in rows), key=lambda speed: speed or 0.0)
    found = {(row.cluster, row.target_tok_s_per_user): row.tok_s_per_gpu for row in rows}
    labels = [_label(speed, [name for name in clusters if found[name, speed] is None]) for speed in speeds]
    data = []
    for index, (cluster, colour) in enumerate(zip(clusters, series(len(clusters)), strict=True)):
        heights = [found[cluster, speed] for speed in speeds]
        pattern = {"shape": PATTERNS[index % len(PATTERNS)], "fillmode": "overlay", "solidity": 0.15}
        data.append(
            {
                "type": "bar",
                "name": plotly_text(cluster),
                "x": labels,
                "y": heights,
                "text": ["" if height is None else f"{height:,.0f}" for height in heights],
                "textposition": "outside",
                "textangle": 0,
                "constraintext": "none",
                "cliponaxis": False,
                "hoverinfo": "skip",
                "marker": {"color": colour, "pattern": pattern},
            }
        )
    across = {"type": "category", "categoryorder": "array", "categoryarray": labels, "automargin": True}
    axes = {"xaxis": across, "yaxis": axis(f"{tokens} tok/s/GPU", tickformat=",~r", rangemode="tozero")}
    return {"data": data, "layout": layout_of(barmode="group", **axes)}


def _label(speed: float | None, missing: Sequence[str]) -> str:
    label = f"{speed:g} tok/s/user" if speed else "as much as fits"
    return "<br>".join([label, *(f"unreachable: {plotly_text(name)}" for name in missing)])
