"""Charts of documents as figures of Plotly: layers over tables, on axes that are named after their fields.

Plotly is loaded with this module, so that what prints text does not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plotly.graph_objects import Bar, Figure, Scatter

from cost.terms.registry import TERMS
from cost.terms.work import RESOURCES
from rackplan.report.colours import BLUE, GREEN, INK, NEUTRAL, VERMILION, by_term, series
from rackplan.report.doc import Chart, Doc, Layer, Picture, Row, blocks_of
from rackplan.report.fields import FIELDS, Field
from rackplan.report.plotting import axis_of, chart_of, line_of, log_axis, picture_of, plotly_text
from rackplan.report.text import thinned

_MAX_MARKS = {"point": 90, "line": 40}
"""Marks that are drawn of a table, evenly spaced."""
_MAX_MARKED = 30
"""Points of a line that has marks."""
STAR = "#ffd33d"
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
_MAX_UNIT_TICKS = 12
"""Range of counts below which an axis has a tick for each."""
_MAX_HOVERED = 12
"""Fields of a row that a hint lists."""
_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")),
    "byte": ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
    "byte/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")),
    "W": ((1e6, "MW"), (1e3, "kW"), (1.0, "W")),
    "ms": ((1.0, "ms"),),
}
"""Units of axes, the largest first."""
USES = {
    "weights": "#117733",
    "KV cache": "#88ccee",
    "workspace": "#aa4499",
    "free": "#e4e8ec",
    "reserved": NEUTRAL,
    "faster": GREEN,
    "slower": VERMILION,
    "cluster": NEUTRAL,
    "other layouts": NEUTRAL,
    "measured": "#d6409f",
}
"""Colours of what memory is used for, of what a waterfall has, and beside a frontier."""


def figure(chart: Chart) -> Figure:
    """Return the chart as a figure of Plotly."""
    scales = {axis: _scale(chart, axis) for axis in ("x", "y")}
    colors = _colors(chart)
    traces: list[Scatter | Bar] = []
    named: dict[str, list[str]] = {}
    for layer in chart.layers:
        alike = named.setdefault(layer.mark, [])  # the first line is solid, the first point round
        for name, rows in _series(layer):
            legend = plotly_text(name)
            color = colors.get(name, BLUE)
            in_legend = any(name in names for names in named.values())
            look = {"legendgroup": legend, "showlegend": bool(name) and not in_legend}
            alike += [name] * (name not in alike)
            traces.append(_trace(layer, rows, legend, color, alike.index(name), scales, look))
    layout: dict[str, Any] = {"barmode": "stack" if chart.stacked else "group"}
    if not any(trace.showlegend for trace in traces):
        layout["margin"] = {"l": 70, "r": 20, "t": 16, "b": 60}
    for axis in ("x", "y"):
        layout[f"{axis}axis"] = _axis(chart, axis, scales[axis])
    return chart_of(traces, **layout)


def leading(doc: Doc) -> Figure | None:
    """Return the first chart or picture of a document as a figure; None where it has none."""
    for block in blocks_of(doc.all):
        if isinstance(block, Chart):
            return figure(block).update_layout(height=block.height)
        if isinstance(block, Picture) and block.drawn:
            return picture_of(block.drawn)
    return None


def _field(chart: Chart, axis: str) -> Field:
    return FIELDS[getattr(chart.layers[0], axis)]


def _values(chart: Chart, axis: str) -> list[float]:
    """Return the figures on an axis."""
    keys = [
        (layer, key) for layer in chart.layers for key in (getattr(layer, axis), _base(layer, axis)) if key
    ]
    values = (row[key] for layer, key in keys for row in layer.table.rows)
    return [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]


def _base(layer: Layer, axis: str) -> str:
    """Return the key of where marks begin, on the axis along which they extend."""
    along = "x" if _is_flat(layer) else "y"
    return layer.base if axis == along else ""


def _is_flat(layer: Layer) -> bool:
    """Whether bars lie: their places are words on the axis upwards."""
    return layer.mark == "bar" and not FIELDS[layer.y].is_number


def _scale(chart: Chart, axis: str) -> tuple[float, str]:
    """Return by what figures are divided on an axis, and the unit that they have then."""
    steps = _SCALES.get(_field(chart, axis).unit)
    if steps is None:
        return 1.0, ""
    largest = max(map(abs, _values(chart, axis)), default=0.0)
    return next((step for step in steps if largest >= step[0]), steps[-1])


def _colors(chart: Chart) -> Mapping[str, str]:
    """Return a colour for each series: parts of a step, resources and uses of memory have their own."""
    names = list(dict.fromkeys(name for layer in chart.layers for name, _ in _series(layer) if name))
    fixed = {name: USES.get(name) or RESOURCES.get(name) for name in names}
    fixed |= {name: by_term([key])[key] for name in names if (key := name.replace(" ", "_")) in TERMS}
    free = [name for name in names if fixed[name] is None]
    picked = dict(zip(free, series(len(free)), strict=True))
    return {name: fixed[name] or picked[name] for name in names}


def _series(layer: Layer) -> Iterator[tuple[str, Sequence[Row]]]:
    """Yield the rows of each series that have both figures."""
    rows = [row for row in layer.table.rows if row[layer.x] is not None and row[layer.y] is not None]
    if not layer.color:
        if rows:
            yield layer.name, rows
        return
    field = FIELDS[layer.color]
    names = list(dict.fromkeys(field.text(row[layer.color]) for row in rows))
    for name in names:
        yield name, [row for row in rows if field.text(row[layer.color]) == name]


def _hover(layer: Layer, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the hints of marks: the fields of their rows, labels once and values by mark."""
    held = [field for field in layer.table.fields if not field.long and any(_has(row, field) for row in rows)]
    shown = held[:_MAX_HOVERED]
    lines = (f"{plotly_text(field.label)}: %{{customdata[{at}]}}" for at, field in enumerate(shown))
    values = [
        [plotly_text(field.text(row[field.key])) if _has(row, field) else "-" for field in shown]
        for row in rows
    ]
    return {"customdata": values, "hovertemplate": "<br>".join(lines) + "<extra></extra>"}


def _has(row: Row, field: Field) -> bool:
    return row[field.key] not in (None, "", [])


def _trace(
    layer: Layer,
    rows: Sequence[Row],
    name: str,
    color: str,
    at: int,
    scales: Mapping[str, tuple[float, str]],
    look: dict[str, Any],
) -> Scatter | Bar:
    if layer.mark in _MAX_MARKS:
        rows = thinned(rows, _MAX_MARKS[layer.mark], even=True)
    if layer.mark in ("line", "band", "rule") and FIELDS[layer.x].is_number:
        rows = sorted(rows, key=lambda row: row[layer.x])

    def along(axis: str, key: str) -> list[Any]:
        field = FIELDS[key]
        if not field.is_number:
            return [plotly_text(field.text(row[key])) for row in rows]
        return [row[key] / scales[axis][0] for row in rows]

    x, y = along("x", layer.x), along("y", layer.y)
    base = along("x" if _is_flat(layer) else "y", layer.base) if layer.base else None
    if layer.mark in ("band", "rule"):
        edge = line_of(NEUTRAL, 1.5, "dash")
        if base is not None:
            x, y, edge = [*x, *x[::-1]], [*y, *base[::-1]], line_of(NEUTRAL, 0)
            look = {**look, "fill": "toself", "fillcolor": "rgba(140,149,159,0.22)"}
        return Scatter(name=name, mode="lines", x=x, y=y, line=edge, hoverinfo="skip", **look)
    look = {**look, **_hover(layer, rows)}
    if layer.text:
        label = FIELDS[layer.text].text
        look["text"] = [
            "" if row[layer.text] is None else plotly_text(label(row[layer.text])) for row in rows
        ]
    if layer.mark == "bar":
        return _bars(name, x, y, base, {**look, "marker": {"color": color}}, flat=_is_flat(layer))
    marker: dict[str, Any] = {"size": 7, "color": color, "symbol": _SYMBOLS[at % len(_SYMBOLS)]}
    if layer.mark == "line":
        line = line_of(color, 2, _DASHES[at % len(_DASHES)])
        marker["size"] = 7 if len(rows) <= _MAX_MARKED else 1
        return Scatter(name=name, mode="lines+markers", x=x, y=y, line=line, marker=marker, **look)
    marks: dict[str, dict[str, Any]] = {
        "point": {"opacity": 0.8},
        "star": {"size": 16, "symbol": "star", "line": line_of(INK, 1.5)}
        | ({} if layer.color else {"color": STAR}),
        "ring": {"size": 10, "symbol": "circle", "color": "rgba(0,0,0,0)", "line": line_of(color)},
    }
    marker |= marks[layer.mark]
    return Scatter(
        name=name, mode="markers+text" if layer.text else "markers", x=x, y=y, marker=marker, **look
    )


def _bars(
    name: str,
    x: Sequence[Any],
    y: Sequence[Any],
    base: Sequence[float] | None,
    look: dict[str, Any],
    *,
    flat: bool,
) -> Bar:
    """Return bars that begin at ``base``; Plotly has their lengths."""
    ends = x if flat else y
    lengths = ends if base is None else [end - start for end, start in zip(ends, base, strict=True)]
    places = {"x": lengths, "y": y, "orientation": "h"} if flat else {"x": x, "y": lengths}
    if "text" in look:
        look = {**look, "textposition": "outside", "cliponaxis": False}
    return Bar(name=name, base=base, **places, **look)


def _axis(chart: Chart, axis: str, scale: tuple[float, str]) -> dict[str, Any]:
    field, (factor, unit) = _field(chart, axis), scale
    title = ", ".join(filter(None, (field.label, unit)))
    if not field.is_number:
        names = dict.fromkeys(
            plotly_text(field.text(row[getattr(layer, axis)]))
            for layer in chart.layers
            for row in layer.table.rows
        )
        order: dict[str, Any] = {"autorange": "reversed"} if axis == "y" else {}
        return axis_of("", type="category", categoryorder="array", categoryarray=list(names), **order)
    if axis in chart.log:
        return log_axis(
            f"{title} (log scale)", [value / factor for value in _values(chart, axis) if value > 0]
        )
    form = {"share": ".0%", "change": "+.0%"}.get(field.kind, ",~r")
    up = axis == "y" and field.kind != "balance"  # balances differ in the third digit
    bars = any(layer.mark == "bar" for layer in chart.layers)
    from_zero = {"rangemode": "tozero"} if up or bars else {}
    values = [*_values(chart, axis), *[0.0] * bars]
    counted = values and field.kind == "count" and max(values) - min(values) <= _MAX_UNIT_TICKS
    ticks = {"dtick": 1} if counted and axis == "x" else {}  # no window 2.5
    return axis_of(title, tickformat=form, **from_zero, **ticks)
