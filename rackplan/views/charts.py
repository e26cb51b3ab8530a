"""Charts of plans, sweeps, comparisons, fleets, re-plans and replays."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from cost.serving.points import LayoutPoint, frontier
from cost.step.score import Score
from cost.terms.registry import TERMS
from cost.validation.measured import MeasuredPoint
from placement.analysis.compare import CompareRow
from placement.migrate.replan import Replanned
from placement.online.simulate import ReplayResult, Run, run_names
from placement.plans.findings import RedundancyCurve
from rackplan.report.notes import worst_words
from rackplan.report.plotting import (
    BLUE,
    DASHES,
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
from rackplan.views.explain import HBM_USES

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
        data.append(_stack(gpus, HBM_USES.get(name, name), values, HBM_COLOURS.get(name, NEUTRAL), "GB"))
    return _stacked(data, "GB on the fullest GPU")


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
def gpus_chart(counts: Sequence[tuple[str, int]]) -> Figure:
    """Return one bar of all GPUs by role, idle ones in grey."""
    data = [
        _stack(["GPUs"], plotly_text(name), [count], NEUTRAL if name == "idle" else colour, "GPUs")
        for (name, count), colour in zip(counts, series(len(counts)), strict=True)
    ]
    return _stacked(data, "GPUs")


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


def redundancy_chart(curve: RedundancyCurve) -> Figure:
    """Return throughput against copies, the choice and the knee marked."""
    points, best, knee = curve.points, curve.best, curve.knee_point
    line = _curve(
        "throughput",
        [point.redundant for point in points],
        [point.tok_s_per_gpu for point in points],
        [[point.balancedness, point.batch, point.expert_bytes / 1e9] for point in points],
        "%{x} copies: %{y:,.0f} tok/s/GPU<br>balancedness %{customdata[0]:.4f}, batch %{customdata[1]}, "
        "experts %{customdata[2]:.1f} GB per GPU",
    )
    chosen = _mark("chosen", best.redundant, best.tok_s_per_gpu, "star")
    bend = _mark(f"knee: {curve.knee} copies", knee.redundant, knee.tok_s_per_gpu, "circle-open")
    across = axis_of("extra copies per layer")
    return chart_of([line, chosen, bend], xaxis=across, yaxis=axis_of("tok/s/GPU", rangemode="tozero"))


def front_chart(found: Replanned) -> Figure:
    """Return balancedness against moves over the front, this re-plan marked."""
    front, worst = found.front, worst_words(found.plan)
    line = _curve(
        "front",
        [point.moves for point in front],
        [point.balancedness for point in front],
        [[point.moves / found.copies, point.moves * found.bytes_per_move / 1e9] for point in front],
        "%{x:,} moves (%{customdata[0]:.1%}, %{customdata[1]:,.1f} GB): balancedness %{y:.4f}",
    )
    height = found.after  # as the front counts it, which may be that of the worst scenario
    if worst:
        reached = (point.balancedness for point in front if point.moves <= found.moves)
        height = max(reached, default=found.after)
    data = [line, _mark("this re-plan", found.moves, height, "star")]
    across, up = axis_of("moves, all layers and replicas"), axis_of(f"balancedness{worst}")
    return chart_of(data, xaxis=across, yaxis=up)


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
