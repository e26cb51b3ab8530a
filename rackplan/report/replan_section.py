"""The re-plan in its report: how many moves, and the front of moves against balance."""

from __future__ import annotations

from typing import Any

from placement.replan.replan_plan import Replanned
from rackplan.findings_summary import worst_words
from rackplan.replan_summary import FRONT, balance_words, front_rows, links_words, moves_words
from rackplan.report.charts import axis, layout_of
from rackplan.report.html import Markup, element, join, table
from rackplan.report.page import chart
from rackplan.report.palette import BLUE, VERMILION


def front_chart(found: Replanned) -> dict[str, Any]:
    """Return balancedness against moves over the front, this re-plan marked, as Plotly draws it."""
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "front",
        "x": [point.moves for point in found.front],
        "y": [point.balancedness for point in found.front],
        "line": {"color": BLUE, "width": 2},
        "customdata": [
            [point.moves / found.copies, point.moves * found.bytes_per_move / 1e9] for point in found.front
        ],
        "hovertemplate": (
            "%{x:,} moves (%{customdata[0]:.1%}, %{customdata[1]:,.1f} GB): balancedness %{y:.4f}<extra></extra>"
        ),
    }
    chosen = {
        "type": "scatter",
        "mode": "markers",
        "name": "this re-plan",
        "x": [found.moves],
        "y": [_chosen_height(found)],
        "marker": {"color": VERMILION, "symbol": "star", "size": 14},
        "hoverinfo": "skip",
    }
    axes = {
        "xaxis": axis("moves, all layers and replicas"),
        "yaxis": axis(f"balancedness{worst_words(found.plan)}"),
    }
    return {"data": [line, chosen], "layout": layout_of(**axes)}


def _chosen_height(found: Replanned) -> float:
    """Return the balancedness of this re-plan as the front counts it, which may be that of the worst scenario."""
    if not worst_words(found.plan):
        return found.after
    return max(
        (point.balancedness for point in found.front if point.moves <= found.moves), default=found.after
    )


def replan_section(found: Replanned) -> Markup:
    """Return what moves, from where, and what more or fewer moves would give."""
    return join(
        [
            element("h2", "The re-plan"),
            element("p", f"Moves: {moves_words(found)}."),
            element("p", f"Links: {links_words(found)}."),
            element("p", f"Balancedness: {balance_words(found)}."),
            chart("front", front_chart(found), says="Balancedness against moves", height=360),
            element("p", f"Balancedness and max/mean{worst_words(found.plan)}.")
            if worst_words(found.plan)
            else None,
            table(tuple(FRONT), [tuple(row) for row in front_rows(found)]),
        ]
    )
