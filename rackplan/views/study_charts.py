"""Charts of studies: options beside what they give, both speeds of all points, the optimum along an option."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rackplan.views.blocks import thinned
from rackplan.views.plotting import (
    BLUE,
    GREEN,
    NEUTRAL,
    ORANGE,
    SYMBOLS,
    VERMILION,
    Figure,
    axis_of,
    chart_of,
    plotly_text,
    scatter_of,
    series,
    speed_axes,
)
from topology.base.units import read_number

Row = Mapping[str, Any]
VIOLET = "#8f6bff"
MOST_LINES = 600
MOST_WORDS = 9
"""Values of one axis that are no numbers and are all named."""
_BANDS = (
    (VIOLET, "lowest fifth"),
    (BLUE, "second"),
    (GREEN, "third"),
    (ORANGE, "fourth"),
    (VERMILION, "highest fifth"),
)
MOST_GROUPS = 6
MOST_LETTERS = 22
"""Of a label beside an axis."""


def parallel_chart(rows: Sequence[Row], axes: Sequence[str], colour: str) -> Figure:
    """Return a line for each row across an axis for each of some columns, coloured by the fifth of ``colour``.

    Lines of SVG and not WebGL, whose shaders are compiled by code that a strict page does not run.
    """
    shown = thinned(rows, MOST_LINES)
    places = [_places(shown, axis) for axis in axes]
    order = sorted(range(len(shown)), key=lambda number: (shown[number][colour], number))
    traces = []
    for band, (ink, name) in enumerate(_BANDS):
        mine = order[band * len(order) // len(_BANDS) : (band + 1) * len(order) // len(_BANDS)]
        x: list[float | None] = []
        y: list[float | None] = []
        for number in mine:
            x += [*range(len(axes)), None]
            y += [*(place.at[number] for place in places), None]
        if mine:
            line = {"color": ink, "width": 1.5}
            traces.append(scatter_of(name, "lines", x, y, line=line, opacity=0.7, hoverinfo="skip"))
    notes = [
        {
            "x": number,
            "y": height,
            "text": plotly_text(_short(text)),
            "showarrow": False,
            **_beside(height),
            **({"xanchor": "left", "xshift": -24} if not number and height in (0.0, 1.0) else {}),
            "font": {"size": 11},
        }
        for number, place in enumerate(places)
        for height, text in ((1.0, place.most), (0.0, place.least), *place.between)
    ]
    ticks = {
        "tickvals": list(range(len(axes))),
        "ticktext": [plotly_text(axis) for axis in axes],
        "side": "top",
    }
    rule = [
        {"type": "line", "x0": number, "x1": number, "y0": 0, "y1": 1, "line": {"color": NEUTRAL, "width": 1}}
        for number in range(len(axes))
    ]
    return chart_of(
        traces,
        xaxis={
            **ticks,
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
            "range": [-0.4, len(axes) - 0.6],
        },
        yaxis={"visible": False, "range": [-0.12, 1.12]},
        annotations=notes,
        shapes=rule,
        legend={
            "orientation": "h",
            "x": 0,
            "y": -0.02,
            "yanchor": "top",
        },
        meta="parallel",  # a phone turns it
        margin={"l": 40, "r": 40, "t": 60, "b": 60},
    )


def _beside(height: float) -> dict[str, Any]:
    """Return how a label stands to the end of its axis, or to a place between its ends."""
    if height in (0.0, 1.0):
        return {"yanchor": "bottom", "yshift": 4} if height else {"yanchor": "top", "yshift": -4}
    return {"yanchor": "middle", "xanchor": "left", "xshift": 4}


class _places:  # noqa: N801 - a value of this module alone
    """Where the rows are on one axis, from 0 to 1, what stands at its ends, and at places between them."""

    between: Sequence[tuple[float, str]] = ()

    def __init__(self, rows: Sequence[Row], axis: str) -> None:
        values = [row.get(axis) for row in rows]
        numbers = [found for value in values if (found := _number_and_unit(value)) is not None]
        if len(numbers) == len(values) and len({unit for _, unit in numbers}) == 1:
            known = [number for number, _ in numbers]
            low, high = min(known), max(known)
            span = (high - low) or 1.0
            log = low > 0 and high / low > 50
            self.at = [
                math.log(one / low) / math.log(high / low) if log else (one - low) / span for one in known
            ]
            at_least, at_most = known.index(low), known.index(high)
            self.least, self.most = shown(values[at_least]), shown(values[at_most]) + " (log)" * log
        else:
            words = list(dict.fromkeys(shown(value) for value in values))
            self.at = [words.index(shown(value)) / max(1, len(words) - 1) for value in values]
            self.least, self.most = words[0], words[-1] if len(words) > 1 else ""
            if len(words) <= MOST_WORDS:
                self.between = [
                    (number / (len(words) - 1), word)
                    for number, word in enumerate(words)
                    if 0 < number < len(words) - 1
                ]


def _short(text: str) -> str:
    """Return what there is room for beside an axis."""
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3].rstrip()}..."


def number_of(value: object) -> float | None:
    """Return a number, or the one that a text means (``2x``, ``500 GB/s``); None where there is none."""
    found = _number_and_unit(value)
    return None if found is None else found[0]


def _number_and_unit(value: object) -> tuple[float, str] | None:
    if isinstance(value, bool) or value is None:
        return None
    found = (float(value), "") if isinstance(value, int | float) else read_number(str(value))
    return found if found is not None and math.isfinite(found[0]) else None


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
        return f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value)


def speeds_chart(groups: Mapping[str, Sequence[Row]], front: Sequence[Row], tokens: str) -> Figure:
    """Return the two speeds of all rows, a colour for each group, and the line of those that none beats."""
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
    line = {"color": NEUTRAL, "width": 2}
    traces.append(
        scatter_of(
            "not beaten",
            "lines",
            [row["tok_s_per_user"] for row in front],
            [row["tok_s_per_gpu"] for row in front],
            line=line,
            hoverinfo="skip",
        )
    )
    return chart_of(traces, **speed_axes(every, tokens))


def curve_chart(values: Sequence[Any], best: Sequence[float], option: str, goal: str) -> Figure:
    """Return the best that was found at each value of an option."""
    numbers = [number_of(value) for value in values]
    labels = [shown(value) for value in values]
    trace = scatter_of("best found", "lines+markers", numbers, best, line={"color": BLUE, "width": 2})
    across = axis_of(f"{option} (log scale)", type="log", tickvals=numbers, ticktext=labels)
    return chart_of([trace], xaxis=across, yaxis=axis_of(goal, rangemode="tozero"))
