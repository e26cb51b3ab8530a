"""Charts of a plan, as the plain data that Plotly draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cost.score import Score
from placement.plan import Plan
from rackplan.explain import Explanation
from rackplan.explain_summary import PARTS
from rackplan.report.palette import (
    DASHES,
    NEUTRAL,
    SYMBOLS,
    by_resource,
    by_term,
    ink_on,
    plotly_text,
    series,
)
from rackplan.report.points import ReportPoint, frontier
from rackplan.words import baseline_name

LEAST_LABEL = 0.08
"""A part narrower than this fraction of the chart has its words in the legend and on hover only."""

LABEL_PX = 12
WHOLE_LABELS = {"uniformtext": {"mode": "hide", "minsize": LABEL_PX}}
"""Words that a bar is too small for, in a narrow window, are left out instead of laid over their neighbours."""


def layout_of(**more: Any) -> dict[str, Any]:
    """Return what all charts share; the page sets colours of text and rules."""
    base = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif", "size": 13},
        "margin": {"l": 70, "r": 20, "t": 50, "b": 60},
        "hoverlabel": {"align": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": NEUTRAL, "activecolor": NEUTRAL},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    return base | more


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with its title."""
    words = {"text": title, "standoff": 12}
    return {
        "title": words,
        "automargin": True,
        "showline": True,
        "ticks": "outside",
        "zeroline": False,
    } | more


def speed_axes(speeds: Iterable[float], tokens: str) -> dict[str, Any]:
    """Return the axes of throughput against speed per user: round numbers on a logarithmic one."""
    found = list(speeds)
    least, most = (min(found), max(found)) if found else (1.0, 100.0)
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    across = axis(
        f"{tokens} tok/s/user (log scale)",
        type="log",
        tickvals=ticks,
        ticktext=[f"{tick:,g}" for tick in ticks],
        range=[math.log10(least) - 0.05, math.log10(most) + 0.05],
    )
    return {"xaxis": across, "yaxis": axis(f"{tokens} tok/s/GPU", rangemode="tozero", tickformat=",~r")}


def hover(point: ReportPoint, tokens: str) -> str:
    """Return what stands beside a point: layout, batch, step, both speeds in ``tokens``, what binds."""
    return (
        f"{plotly_text(point.layout)}<br>batch {point.batch} per GPU, step {point.step_s * 1e3:,.2f} ms<br>"
        f"{point.tok_s_per_user:,.1f} {tokens} tok/s/user<br>{point.tok_s_per_gpu:,.0f} {tokens} tok/s/GPU<br>"
        f"bound by {plotly_text(point.bound_by)}"
    )


def pareto_chart(points: Sequence[ReportPoint], score: Score, layout: str, tokens: str) -> dict[str, Any]:
    """Return throughput against speed per user: every point by what binds it, the frontier, the plan.

    ``layout`` is the plan's own in a few letters, ``tokens`` the word for the tokens that are counted.
    """
    names = list(dict.fromkeys(point.bound_by for point in points))
    colours = by_resource(names)
    data: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        mine = [point for point in points if point.bound_by == name]
        data.append(
            _scatter(mine, plotly_text(name), tokens)
            | {
                "mode": "markers",
                "marker": {
                    "color": colours[name],
                    "symbol": SYMBOLS[index % len(SYMBOLS)],
                    "size": 6,
                    "opacity": 0.8,
                },
            }
        )
    data.append(
        _scatter(frontier(points), "frontier", tokens)
        | {"mode": "lines", "line": {"color": NEUTRAL, "width": 2}}
    )
    chosen = (
        f"this plan: {plotly_text(layout)}<br>batch {score.batch} per GPU, step {score.step_s * 1e3:,.2f} ms<br>"
        f"{score.tok_s_per_user:,.1f} {tokens} tok/s/user<br>{score.tok_s_per_gpu:,.0f} {tokens} tok/s/GPU"
    )
    data.append(
        {
            "type": "scatter",
            "name": "this plan",
            "mode": "markers",
            "x": [score.tok_s_per_user],
            "y": [score.tok_s_per_gpu],
            "hovertext": [chosen],
            "hoverinfo": "text",
            "marker": {
                "symbol": "star",
                "size": 18,
                "color": "#ffd33d",
                "line": {"color": "#1b1f24", "width": 1.5},
            },
        }
    )
    axes = speed_axes([*(point.tok_s_per_user for point in points), score.tok_s_per_user], tokens)
    return {"data": data, "layout": layout_of(**axes)}


def _scatter(points: Sequence[ReportPoint], name: str, tokens: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": name,
        "x": [point.tok_s_per_user for point in points],
        "y": [point.tok_s_per_gpu for point in points],
        "hovertext": [hover(point, tokens) for point in points],
        "hoverinfo": "text",
    }


def step_chart(found: Explanation) -> dict[str, Any]:
    """Return the expected step by part, the same parts at peak by part and by resource, and the lower bound."""
    score, peaks = found.plan.score, found.peaks
    rows = ["lower bound", "at peaks, by resource", "at peaks, by part", "expected, by part"]
    colours = by_term(score.terms_s)
    resources = by_resource(peaks.limits_s)
    parts = [(rows[0], "lower bound", score.lower_step_s, NEUTRAL)]
    parts += [(rows[1], name, value, resources[name]) for name, value in _largest_first(peaks.limits_s)]
    for name, value in _largest_first(score.terms_s):
        words = name.replace("_", " ")
        parts.append((rows[3], words, value, colours[name]))
        parts.append((rows[2], words, peaks.terms_s.get(name, 0.0), colours[name]))
    data = [
        _bar(row, plotly_text(words), value * 1e3, score.step_s * 1e3, colour, unit="ms")
        | {"showlegend": row == rows[3], "legendgroup": plotly_text(words)}
        for row, words, value, colour in parts
        if value > 0
    ]
    lower = score.lower_step_s * 1e3
    line = {
        "type": "line",
        "x0": lower,
        "x1": lower,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"dash": "dot", "width": 1.5},
    }
    axes = {
        "xaxis": axis("ms", tickformat=",~r"),
        "yaxis": {"categoryorder": "array", "categoryarray": rows, "automargin": True, "ticksuffix": " "},
    }
    return {
        "data": data,
        "layout": layout_of(
            barmode="stack",
            bargap=0.3,
            shapes=[line],
            margin={"l": 70, "r": 20, "t": 76, "b": 50},
            **WHOLE_LABELS,
            **axes,
        ),
    }


def _largest_first(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(((name, value) for name, value in parts.items() if value > 0), key=lambda item: -item[1])


def _bar(row: str, name: str, value: float, width: float, colour: str, *, unit: str) -> dict[str, Any]:
    """Return one part of a horizontal bar; ``width`` is what the whole chart spans."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [value],
        "y": [row],
        "text": [name if value >= LEAST_LABEL * width else ""],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"color": ink_on(colour), "size": LABEL_PX},
        "textangle": 0,
        "constraintext": "inside",
        "hovertext": [f"{row}: {name}<br>{value:,.3f} {unit}"],
        "hoverinfo": "text",
        "marker": {"color": colour},
    }


def memory_chart(hbm_bytes: Mapping[str, float]) -> dict[str, Any]:
    """Return one bar of the fullest GPU's HBM by use; what nobody may fill is hatched."""
    total = sum(hbm_bytes.values()) / 1e9
    colours = dict(zip(("weights", "kv_cache", "workspace"), series(3), strict=True))
    colours |= {"free": "#d0d7de", "reserved": NEUTRAL}
    data = []
    for use, amount in hbm_bytes.items():
        words = PARTS.get(use, use)
        bar = _bar("HBM", words, amount / 1e9, total, colours.get(use, NEUTRAL), unit="GB")
        if bar["text"][0]:
            bar["text"] = [f"{words}<br>{amount / 1e9:,.1f} GB"]
        if use == "reserved":
            bar["marker"]["pattern"] = {"shape": "/", "fillmode": "overlay", "solidity": 0.15}
        data.append(bar)
    axes = {"xaxis": axis("GB of the fullest GPU", range=[0, total]), "yaxis": {"visible": False}}
    return {"data": data, "layout": layout_of(barmode="stack", **WHOLE_LABELS, **axes)}


def balance_chart(plan: Plan) -> dict[str, Any]:
    """Return balancedness by layer: ours, and each rival's that applies."""
    lines = {"rackplan": plan.balancedness}
    for name, entry in plan.baselines.items():
        if entry.score is not None:
            lines[baseline_name(name)] = entry.balancedness
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": list(values),
            "y": list(values.values()),
            "line": {
                "color": colour,
                "width": 3 if name == "rackplan" else 1.5,
                "dash": DASHES[index % len(DASHES)],
            },
            "marker": {"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 6},
            "hovertemplate": f"{name}, layer %{{x}}: %{{y:.4f}}<extra></extra>",
        }
        for index, ((name, values), colour) in enumerate(zip(lines.items(), series(len(lines)), strict=True))
    ]
    axes = {"xaxis": axis("layer"), "yaxis": axis("mean GPU load / max GPU load", range=[0, 1.04])}
    return {"data": data, "layout": layout_of(**axes)}
