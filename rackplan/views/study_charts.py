"""Charts of studies: options beside what they give, both speeds of all points, the optimum along an option."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackplan.report.plotting import (
    BLUE,
    GREEN,
    NEUTRAL,
    ORANGE,
    SYMBOLS,
    VERMILION,
    axis_of,
    chart_of,
    line_of,
    plotly_text,
    scatter_of,
    series,
    speed_axes,
)
from rackplan.studies.summary import number_and_unit, number_of
from rackplan.views.blocks import thinned

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Row = Mapping[str, Any]
VIOLET = "#8f6bff"
MOST_LINES = 600
MOST_WORDS = 9
"""Maximum non-numeric values on an axis that are all labelled."""
_BANDS = (
    (VIOLET, "lowest fifth"),
    (BLUE, "second"),
    (GREEN, "third"),
    (ORANGE, "fourth"),
    (VERMILION, "highest fifth"),
)
WORDS = {
    "usd_per_million_tokens": "USD per million tokens",
    "tok_s_per_gpu": "tok/s/GPU",
    "tok_s_per_user": "tok/s/user",
}
"""Columns of figures as people write them."""
MOST_GROUPS = 6
MOST_LETTERS = 22
"""Maximum length of an axis label."""


def parallel_chart(rows: Sequence[Row], axes: Sequence[str], colour: str) -> Figure:
    """Return a line for each row across an axis for each of some columns, coloured by the fifth of ``colour``.

    Lines of SVG and not WebGL, whose shaders are compiled by code that a strict page does not run.
    """
    some = thinned(rows, MOST_LINES)
    scales = [_scale([row.get(axis) for row in some]) for axis in axes]
    order = sorted(range(len(some)), key=lambda number: (some[number][colour], number))
    across = range(len(axes))
    traces = []
    for band, (ink, name) in enumerate(_BANDS):
        mine = order[band * len(order) // len(_BANDS) : (band + 1) * len(order) // len(_BANDS)]
        x = [place for _ in mine for place in (*across, None)]
        y = [height for number in mine for height in (*(scale.heights[number] for scale in scales), None)]
        if mine:
            line = line_of(ink, 1.5)
            traces.append(scatter_of(name, "lines", x, y, line=line, opacity=0.7, hoverinfo="skip"))
    notes = [
        {"x": number, "y": height, "text": plotly_text(_short(text)), **_beside(number, height)}
        for number, scale in enumerate(scales)
        for height, text in scale.labels
    ]
    rules = [{"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": {"width": 1}} for at in across]
    return chart_of(
        traces,
        xaxis={
            "tickvals": list(across),
            "ticktext": [plotly_text(WORDS.get(axis, axis)) for axis in axes],
            "side": "top",
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
            "range": [-0.4, len(axes) - 0.6],
        },
        yaxis={"visible": False, "range": [-0.12, 1.12]},
        annotations=notes,
        shapes=rules,
        legend={"orientation": "h", "x": 0, "y": -0.02, "yanchor": "top"},
        meta="parallel",  # a phone turns it
        margin={"l": 40, "r": 40, "t": 60, "b": 60},
    )


def _beside(axis: int, height: float) -> dict[str, Any]:
    """Return how a label is placed at the end of its axis, or at a place between its ends."""
    look: dict[str, Any] = {"showarrow": False, "font": {"size": 11}}
    if height not in (0.0, 1.0):
        return look | {"yanchor": "middle", "xanchor": "left", "xshift": 4}
    look |= {"yanchor": "bottom", "yshift": 4} if height else {"yanchor": "top", "yshift": -4}
    return look if axis else look | {"xanchor": "left", "xshift": -24}


@dataclass(frozen=True)
class _Scale:
    """Where rows are on an axis, from 0 to 1, and the labels at its ends and between them with their heights."""

    heights: Sequence[float]
    labels: Sequence[tuple[float, str]]


def _scale(values: Sequence[object]) -> _Scale:
    """Return the scale of values: linear, logarithmic over more than a factor 50, or their order where words."""
    numbers = [found for value in values if (found := number_and_unit(value)) is not None]
    if len(numbers) == len(values) and len({unit for _, unit in numbers}) == 1:
        known = [number for number, _ in numbers]
        low, high = min(known), max(known)
        span = (high - low) or 1.0
        log = low > 0 and high / low > 50
        heights = [math.log(one / low) / math.log(high / low) if log else (one - low) / span for one in known]
        most = shown(values[known.index(high)]) + " (log)" * log
        return _Scale(heights, [(1.0, most), (0.0, shown(values[known.index(low)]))])
    words = list(dict.fromkeys(shown(value) for value in values))
    last = max(1, len(words) - 1)
    labels = [(number / last, word) for number, word in enumerate(words)]
    if len(words) > MOST_WORDS:
        labels = [labels[0], labels[-1]]
    return _Scale([words.index(shown(value)) / last for value in values], labels)


def _short(text: str) -> str:
    """Return what there is room for beside an axis."""
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3].rstrip()}..."


def shown(value: object) -> str:
    """Return a value of a row in few letters: lists and mappings, which are JSON there, as words."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, list):
        return " + ".join(map(shown, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(one)}" for name, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value)


def speeds_chart(groups: Mapping[str, Sequence[Row]], front: Sequence[Row], tokens: str) -> Figure:
    """Return the two speeds of all rows, a colour for each group, and the line of the Pareto-optimal ones."""
    every = [row["tok_s_per_user"] for rows in groups.values() for row in rows]
    traces = []
    for (name, rows), ink, symbol in zip(
        groups.items(), series(len(groups)), SYMBOLS * len(groups), strict=False
    ):
        some = thinned(rows, 2000)
        hover = [plotly_text(f"{name}: {row.get('layout') or ''}") for row in some]
        marker = {"color": ink, "symbol": symbol, "size": 7, "opacity": 0.7}
        across, up = [row["tok_s_per_user"] for row in some], [row["tok_s_per_gpu"] for row in some]
        traces.append(scatter_of(name, "markers", across, up, marker=marker, hovertext=hover))
    across, up = [row["tok_s_per_user"] for row in front], [row["tok_s_per_gpu"] for row in front]
    traces.append(scatter_of("Pareto-optimal", "lines", across, up, line=line_of(NEUTRAL), hoverinfo="skip"))
    return chart_of(traces, **speed_axes(every, tokens))


def curve_chart(values: Sequence[Any], best: Sequence[float], option: str, goal: str) -> Figure:
    """Return the best that was found at each value of an option."""
    numbers = [number_of(value) for value in values]
    labels = [shown(value) for value in values]
    trace = scatter_of("best found", "lines+markers", numbers, best, line=line_of(BLUE))
    across = axis_of(f"{option} (log scale)", type="log", tickvals=numbers, ticktext=labels)
    return chart_of([trace], xaxis=across, yaxis=axis_of(goal, rangemode="tozero"))
