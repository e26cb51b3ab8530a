"""Charts of plans, sweeps, comparisons, fleets, re-plans and replays."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from cost.serving.points import LayoutPoint, frontier
from cost.serving.pools import RateMatch
from cost.step.score import Score
from cost.terms.registry import TERMS
from cost.validation.measured import MeasuredPoint
from placement.analysis.compare import CompareRow
from placement.analysis.gains import Gain
from placement.online.simulate import ReplayResult, Run, run_names
from rackplan.report.plotting import (
    BLUE,
    DASHES,
    GREEN,
    INK,
    NEUTRAL,
    SYMBOLS,
    VERMILION,
    axis_of,
    bar_of,
    by_term,
    chart_of,
    line_of,
    log_axis,
    plotly_text,
    scatter_of,
    series,
    speed_axes,
)
from rackplan.views.blocks import thinned

if TYPE_CHECKING:
    from plotly.graph_objects import Bar, Figure, Scatter

HBM_COLOURS = {
    "weights": "#117733",
    "kv_cache": "#88ccee",
    "workspace": "#aa4499",
    "free": "#e4e8ec",
    "reserved": NEUTRAL,
}
"""Colours of HBM uses, from :mod:`rackplan.report.pictures.memory`."""
MEASURED = "#d6409f"
"""Colour of measured runs, different from all layouts, parts and resources."""
MOST_FAINT = 250
"""Maximum number of other layouts drawn, evenly spaced."""
MOST_IN_LINE, MOST_MARKERS = 120, 30
"""Maximum points and markers drawn per line, evenly spaced."""
MOST_COLOURS = 6
"""Layouts with individual colours; the rest are grey."""


def pareto_chart(
    points: Sequence[LayoutPoint],
    tokens: str,
    chosen: tuple[str, LayoutPoint | CompareRow | Score] | None = None,
    measured: Sequence[MeasuredPoint] = (),
    *,
    word: str = "this plan",
) -> Figure:
    """Return a chart of throughput against speed per user, with the main layouts in colour and measured runs.

    ``chosen`` is the layout in a few letters and the score that ``word`` names, ``tokens`` the word for the tokens
    that are counted.
    """
    best, named = frontier(points), runners_up(points)
    data = [_points(best, "frontier", tokens, "lines", line=line_of(NEUTRAL, 5), opacity=0.45)]
    for index, (layout, colour) in enumerate(zip(named, series(len(named)), strict=True)):
        mine = sorted((one for one in points if one.layout == layout), key=lambda one: one.tok_s_per_user)
        look: dict[str, Any] = {"line": line_of(colour, 1.5), "marker": _dots(colour, index)}
        data.append(_points(mine, plotly_text(layout), tokens, "lines+markers", **look))
    rest = thinned([point for point in points if point.layout not in named], MOST_FAINT)
    if rest:
        data.append(_points(rest, "other layouts", tokens, marker=_marker(NEUTRAL, "circle", 4, opacity=0.5)))
    if measured:
        data.append(_measured(measured, "#ffffff"))
    speeds = [*(one.tok_s_per_user for one in points), *(one.tok_s_per_user for one in measured)]
    if chosen is not None:
        layout, score = chosen
        speeds.append(score.tok_s_per_user or 1.0)
        star = _marker("#ffd33d", "star", 18, line=line_of(INK, 1.5))
        data.append(_points([score], word, tokens, before=f"{word}: ", layout=layout, marker=star))
    return chart_of(data, **speed_axes(speeds, tokens))


def runners_up(points: Sequence[LayoutPoint]) -> list[str]:
    """Return the layouts drawn in colour: those on the frontier, then the nearest ones.

    The layout of the most throughput and that of the fastest point are always among them.
    """
    best = frontier(points)
    if not best:
        return []
    held = Counter(point.layout for point in best)
    ends = dict.fromkeys((best[0].layout, best[-1].layout))
    behind: dict[str, float] = {}
    faster = sorted(best, key=lambda one: one.tok_s_per_user)
    speeds = [one.tok_s_per_user for one in faster]
    most = list(accumulate((one.tok_s_per_gpu for one in faster[::-1]), max))[::-1]
    for point in points:
        rival = most[bisect_left(speeds, point.tok_s_per_user)]
        loss = rival / point.tok_s_per_gpu if point.tok_s_per_gpu else math.inf
        behind[point.layout] = min(loss, behind.get(point.layout, math.inf))
    order = sorted(behind, key=lambda name: (-held[name], behind[name], name))
    chosen = list(dict.fromkeys([*ends, *order]))[:MOST_COLOURS]
    return sorted(chosen, key=lambda name: max(one.tok_s_per_user for one in points if one.layout == name))


def frontier_chart(
    points: Mapping[str, Sequence[LayoutPoint]],
    rows: Sequence[CompareRow],
    tokens: str,
    measured: Mapping[str, Sequence[MeasuredPoint]] | None = None,
) -> Figure:
    """Return a chart of each cluster's frontier, its rows with placed experts, and measured runs as rings."""
    data, speeds = [], []
    colours = dict(zip(points, series(len(points)), strict=True))
    for index, (cluster, mine) in enumerate(points.items()):
        name, best, colour = plotly_text(cluster), frontier(mine), colours[cluster]
        speeds += [point.tok_s_per_user for point in best]
        look: dict[str, Any] = {
            "line": line_of(colour, 2, DASHES[index % len(DASHES)]),
            "marker": _dots(colour, index),
        }
        data.append(
            _points(best, name, tokens, "lines+markers", before=f"{name}: ", legendgroup=name, **look)
        )
        placed = [row for row in rows if row.cluster == cluster and row.tok_s_per_gpu is not None]
        star = _marker(colour, "star", 14, line=line_of(INK, 1))
        before = f"{name}, experts placed:  "
        data.append(
            _points(placed, name, tokens, before=before, legendgroup=name, showlegend=False, marker=star)
        )
    for cluster, runs in (measured or {}).items():
        if runs:
            data.append(_measured(runs, colours[cluster], f"{plotly_text(cluster)}, measured: "))
            speeds += [run.tok_s_per_user for run in runs]
    speeds += [row.tok_s_per_user for row in rows if row.tok_s_per_user is not None]
    return chart_of(data, **speed_axes(speeds, tokens))


def measured_chart(runs: Mapping[str, Sequence[tuple[MeasuredPoint, float]]], band: float | None) -> Figure:
    """Return a chart of measured against predicted tok/s/GPU by chip, with diagonal and ``band``."""
    pairs = [(rate, run.tok_s_per_gpu) for some in runs.values() for run, rate in some]
    least, most = min(map(min, pairs)) / 1.3, max(map(max, pairs)) * 1.3
    data = []
    if band is not None:
        edge = [least / band, most / band, most * band, least * band]
        look = {"fill": "toself", "fillcolor": "rgba(140,149,159,0.22)", "line": line_of(NEUTRAL, 0)}
        data.append(
            scatter_of(
                f"80% band, x{band:.2f}", "lines", [least, most, most, least], edge, hoverinfo="skip", **look
            )
        )
    ends = [least, most]
    data.append(
        scatter_of("equal", "lines", ends, ends, hoverinfo="skip", line=line_of(NEUTRAL, 1.5, "dash"))
    )
    for index, ((chip, some), colour) in enumerate(zip(runs.items(), series(len(runs)), strict=True)):
        hover = [
            f"{plotly_text(run.words)}<br>measured {run.tok_s_per_gpu:,.0f}, predicted {rate:,.0f} tok/s/GPU"
            for run, rate in some
        ]
        dots = _marker(colour, SYMBOLS[index % len(SYMBOLS)], 10, line=line_of(INK, 1))
        across, up = [rate for _, rate in some], [run.tok_s_per_gpu for run, _ in some]
        data.append(
            scatter_of(
                plotly_text(chip), "markers", across, up, marker=dots, hovertext=hover, hoverinfo="text"
            )
        )
    axes = (log_axis(f"{word} tok/s/GPU (log scale)", ends) for word in ("predicted", "measured"))
    return chart_of(data, **dict(zip(("xaxis", "yaxis"), axes, strict=True)))


def size_chart(
    lines: Mapping[str, Sequence[tuple[float, float]]], stars: Sequence[tuple[float, float]], title: str
) -> Figure:
    """Return a log-log chart with one line per cluster over speed per user, and stars at the requested speeds."""
    data = []
    for index, ((name, points), colour) in enumerate(zip(lines.items(), series(len(lines)), strict=True)):
        across, up = zip(*points, strict=True) if points else ((), ())
        hover = f"{plotly_text(name)}: %{{y:,.4g}} {title}<br>at %{{x:,.3g}} tok/s/user<extra></extra>"
        look = {"line": line_of(colour), "marker": _dots(colour, index), "hovertemplate": hover}
        data.append(scatter_of(plotly_text(name), "lines+markers", across, up, **look))
    speeds, values = zip(*stars, strict=True)
    star = _marker("#ffd33d", "star", 16, line=line_of(INK, 1.5))
    data.append(scatter_of("requested", "markers", speeds, values, marker=star, hoverinfo="skip"))
    every = [*stars, *(point for points in lines.values() for point in points)]
    axes = [
        log_axis(name, one)
        for name, one in zip(
            ("tok/s/user (log scale)", f"{title} (log scale)"), zip(*every, strict=True), strict=True
        )
    ]
    return chart_of(data, xaxis=axes[0], yaxis=axes[1])


def steps_chart(rows: Sequence[tuple[str, Mapping[str, float]]]) -> Figure:
    """Return a bar chart of named steps by part, in seconds, with consistent colours."""
    colours = by_term(dict.fromkeys(name for _, parts in rows for name in parts))
    order = {name: place for place, name in enumerate(TERMS)}
    steps = [row for row, _ in rows]
    data = []
    for name in sorted(colours, key=lambda name: order.get(name, len(order))):
        values = [parts.get(name, 0.0) * 1e3 for _, parts in rows]
        data.append(_stack(steps, name.replace("_", " "), values, colours[name], "ms"))
    return _stacked(data, "ms per step")


def memories_chart(rows: Sequence[tuple[str, Mapping[str, float]]]) -> Figure:
    """Return a bar for each named GPU, its HBM in bytes by use."""
    gpus = [row for row, _ in rows]
    data = []
    for name in dict.fromkeys(name for _, held in rows for name in held):
        values = [held.get(name, 0.0) / 1e9 for _, held in rows]
        data.append(
            _stack(
                gpus, {"kv_cache": "KV cache"}.get(name, name), values, HBM_COLOURS.get(name, NEUTRAL), "GB"
            )
        )
    return _stacked(data, "GB on the fullest GPU")


def gpus_chart(counts: Sequence[tuple[str, int]]) -> Figure:
    """Return one bar of all GPUs by role, idle ones in grey."""
    data = [
        _stack(["GPUs"], plotly_text(name), [count], NEUTRAL if name == "idle" else colour, "GPUs")
        for (name, count), colour in zip(counts, series(len(counts)), strict=True)
    ]
    return _stacked(data, "GPUs")


def pools_chart(
    rows: Sequence[RateMatch], best: RateMatch | None, measured: Sequence[MeasuredPoint] = ()
) -> Figure:
    """Return a chart of output throughput of whole requests against speed per user, with measured runs."""
    line = _curve(
        "one pool or two",
        [row.tok_s_per_user for row in rows],
        [row.output_tok_s_per_gpu for row in rows],
        [
            [
                "one pool" if row.one_pool else f"{row.prefill_gpus}:{row.decode_gpus} GPUs prefill : decode",
                row.ttft_s,
            ]
            for row in rows
        ],
        "%{x:,.1f} tok/s/user: %{y:,.0f} output tok/s/GPU<br>%{customdata[0]}, TTFT %{customdata[1]:.2f} s",
    )
    data = [line, *([_measured(measured, "#ffffff")] if measured else [])]
    if best is not None:
        data.append(_mark("highest throughput", best.tok_s_per_user, best.output_tok_s_per_gpu, "star"))
    speeds = [*(row.tok_s_per_user for row in rows), *(run.tok_s_per_user for run in measured)]
    return chart_of(data, **speed_axes(speeds, "output"))


def gains_chart(gains: Sequence[tuple[Gain, Sequence[tuple[str, float]]]], tokens: str) -> Figure:
    """Return a waterfall on a logarithmic axis: a bar for each cluster, between them its factors by name."""
    bars: list[tuple[str, str, float, float, str]] = []  # name, colour, from, to, text
    for gain, factors in gains:
        at, end = (rate or 0.0 for rate in gain.rates)
        if not bars or bars[-1][0] != gain.before:
            bars.append((gain.before, NEUTRAL, 0.0, at, f"{at:,.0f}"))
        for name, factor in factors:
            colour = GREEN if factor > 1 else VERMILION
            bars.append((name, colour, min(at, at * factor), max(at, at * factor), f"{factor:.2f}x"))
            at *= factor
        bars.append((gain.after, NEUTRAL, 0.0, end, f"{end:,.0f}"))
    ends = [edge for _, _, low, high, _ in bars for edge in (low, high) if edge] or [1.0]
    floor, places = min(ends) / 1.5, list(range(len(bars)))
    data = bar_of(
        "",
        x=places,
        base=[low or floor for _, _, low, _, _ in bars],
        y=[high - (low or floor) for _, _, low, high, _ in bars],
        text=[text for *_, text in bars],
        textposition="outside",
        cliponaxis=False,
        hoverinfo="text",
        marker={"color": [colour for _, colour, *_ in bars]},
        showlegend=False,
    )
    names = [plotly_text(name) for name, *_ in bars]
    across = axis_of("", tickvals=places, ticktext=names, tickangle=-45)
    span = [math.log10(floor), math.log10(max(ends) * 1.2)]
    up = axis_of(f"{tokens} tok/s/GPU (log scale)", type="log", range=span, dtick="D2", tickformat=",~r")
    return chart_of([data], xaxis=across, yaxis=up)


def replay_chart(found: ReplayResult) -> Figure:
    """Return a chart of balancedness by scored window, one line per policy."""
    windows = list(range(2, found.windows + 1))
    data = [
        scatter_of(name, "lines", windows, run.by_window.tolist(), line=line, hovertemplate=hover)
        for name, run, line in _policies(found)
        for hover in (f"{name}, window %{{x}}: %{{y:.4f}}<extra></extra>",)
    ]
    lowest = min(run.worst for run in found.runs)
    up = axis_of("mean GPU load / max GPU load", range=[max(0.0, math.floor(lowest * 20 - 0.5) / 20), 1.005])
    return chart_of(data, xaxis=axis_of("window"), yaxis=up)


def replay_moves_chart(found: ReplayResult) -> Figure:
    """Return a chart of the share of copies moved per re-plan, one line per policy with moves."""
    data = [
        scatter_of(
            name,
            "lines+markers",
            [each.window + 1 for each in run.replans],
            [each.moves.copies / run.setting.copies for each in run.replans],
            customdata=[each.moves.bytes / 1e9 for each in run.replans],
            hovertemplate=f"{name}, after window %{{x}}: %{{y:.1%}}, %{{customdata:,.1f}} GB<extra></extra>",
            line=line,
            marker={"size": 5},
        )
        for name, run, line in _policies(found)
        if run.bytes_moved
    ]
    up = axis_of("copies moved", tickformat=".0%", rangemode="tozero")
    return chart_of(data, xaxis=axis_of("after window"), yaxis=up)


def _policies(found: ReplayResult) -> Iterator[tuple[str, Run, dict[str, Any]]]:
    """Yield the name, the run and the line of each policy, the same in all charts."""
    names = run_names(found.runs)
    for index, (name, run, colour) in enumerate(zip(names, found.runs, series(len(names)), strict=True)):
        ours = run.entry.budget is not None or name.startswith("rackplan")
        dash = DASHES[(index + index // len(DASHES)) % len(DASHES)]  # lines that coincide are all seen
        yield plotly_text(name), run, line_of(colour, 2.5 if ours else 1.5, dash)


def _points(
    points: Sequence[LayoutPoint | CompareRow | Score],
    name: str,
    tokens: str,
    mode: str = "markers",
    *,
    before: str = "",
    layout: str = "",
    **more: Any,
) -> Scatter:
    """Return points of throughput against speed: layout, batch, step, both speeds and what binds on hover."""
    some = thinned(points, MOST_IN_LINE) if mode != "markers" else points
    custom = [
        [
            plotly_text(getattr(point, "layout", layout) or ""),
            f"{point.batch or 0:,.4g}",
            f"{(point.step_s or 0.0) * 1e3:,.2f}",
            plotly_text(point.bound_by or ""),
        ]
        for point in some
    ]
    hover = (
        f"{before}%{{customdata[0]}}<br>batch %{{customdata[1]}} per GPU<br>step %{{customdata[2]}} ms<br>"
        f"%{{x:,.1f}} {tokens} tok/s/user<br>%{{y:,.0f}} {tokens} tok/s/GPU<br>bound by %{{customdata[3]}}"
    )
    across, up = [point.tok_s_per_user for point in some], [point.tok_s_per_gpu for point in some]
    return scatter_of(
        name, mode, across, up, customdata=custom, hovertemplate=f"{hover}<extra></extra>", **more
    )


def _measured(runs: Sequence[MeasuredPoint], colour: str, before: str = "") -> Scatter:
    """Return measured runs as dots with a ring of their own."""
    ring = _marker(colour, "circle", 10, line=line_of(MEASURED, 2.5))
    across, up = [run.tok_s_per_user for run in runs], [run.tok_s_per_gpu for run in runs]
    hover = {"hovertext": [f"{before}{plotly_text(run.words)}" for run in runs], "hoverinfo": "text"}
    return scatter_of(
        "measured under these conditions", "markers", across, up, marker=ring, showlegend=not before, **hover
    )


def _stack(rows: Sequence[str], name: str, values: Sequence[float], colour: str, unit: str) -> Bar:
    shown = [plotly_text(row) for row in rows]
    words = [f"{row}, {name}: {value:,.2f} {unit}" for row, value in zip(shown, values, strict=True)]
    look = {"hovertext": words, "hoverinfo": "text", "marker": {"color": colour}}
    return bar_of(name, orientation="h", y=shown, x=values, **look)


def _stacked(data: Sequence[Bar], title: str) -> Figure:
    down = {"autorange": "reversed", "automargin": True, "ticksuffix": " ", "type": "category"}
    return chart_of([one for one in data if any(one.x)], barmode="stack", xaxis=axis_of(title), yaxis=down)


def _curve(name: str, x: Sequence[Any], y: Sequence[Any], custom: Sequence[Any], hover: str) -> Scatter:
    words = {"customdata": custom, "hovertemplate": f"{hover}<extra></extra>"}
    return scatter_of(name, "lines+markers", x, y, line=line_of(BLUE), **words)


def _mark(name: str, x: float, y: float, symbol: str) -> Scatter:
    return scatter_of(name, "markers", [x], [y], marker=_marker(VERMILION, symbol, 14), hoverinfo="skip")


def _dots(colour: str, index: int) -> dict[str, Any]:
    """Return markers for a line, of the symbol for its place among the others."""
    return _marker(colour, SYMBOLS[index % len(SYMBOLS)], 6, maxdisplayed=MOST_MARKERS)


def _marker(colour: str, symbol: str, size: int, **more: Any) -> dict[str, Any]:
    return {"color": colour, "symbol": symbol, "size": size, **more}
