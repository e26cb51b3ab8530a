"""Charts of all views, as the plain data that Plotly draws, in colours that colour-blind people tell apart."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from cost.serving.pools import RateMatch
from cost.step.score import Score
from cost.terms.registry import TERMS
from cost.terms.work import RESOURCES
from placement.analysis.compare import CompareRow
from placement.migrate.replan import Replanned
from placement.online.simulate import ReplayResult, Run, run_names
from placement.plan import Plan
from placement.plans.findings import RedundancyCurve
from rackplan.views.blocks import thinned
from rackplan.views.explain import HBM_USES
from rackplan.views.measured import MeasuredPoint
from rackplan.views.plotting import (
    BLUE,
    NEUTRAL,
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
from rackplan.views.points import ReportPoint, frontier
from rackplan.views.words import baseline_name, worst_words

SAND = "#ddcc77"
"""Of a part of a step that is not declared."""
HBM_COLOURS = {
    "weights": "#117733",
    "kv_cache": "#88ccee",
    "workspace": "#aa4499",
    "free": "#e4e8ec",
    "reserved": NEUTRAL,
}
"""Of the uses of HBM, as :mod:`rackplan.views.pictures.memory` has them."""
MEASURED = "#d6409f"
"""Of runs that somebody measured: no layout, part or resource has it."""
MOST_FAINT = 400
"""Points of other layouts that are drawn, evenly."""
MOST_COLOURS = 6
"""Layouts with a colour of their own; the rest are one grey."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
PATTERNS = ("", "/", "x", ".", "-", "+")


def by_resource(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each resource, none of which a part of a step has."""
    fabrics = ("#bbcc33", "#b39ddb", "#80cbc4")
    rest = [name for name in dict.fromkeys(names) if name not in RESOURCES]
    return RESOURCES | {name: fabrics[index % len(fabrics)] for index, name in enumerate(rest)}


def by_term(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each part of a step: the same in every report."""
    return {name: TERMS[name].colour if name in TERMS else SAND for name in names}


def pareto_chart(
    points: Sequence[ReportPoint],
    tokens: str,
    chosen: tuple[str, ReportPoint | CompareRow | Score] | None = None,
    measured: Sequence[MeasuredPoint] = (),
    *,
    word: str = "this plan",
) -> Figure:
    """Return throughput against speed per user: layouts on the frontier or near it in a colour each, measured runs.

    ``chosen`` is the layout in a few letters and the score that ``word`` names, ``tokens`` the word for the tokens
    that are counted.
    """
    best = frontier(points)
    data = [
        _points(best, "frontier", tokens, mode="lines", line={"color": NEUTRAL, "width": 5}, opacity=0.45)
    ]
    named = runners_up(points)
    for index, (layout, colour) in enumerate(zip(named, series(len(named)), strict=True)):
        mine = sorted((one for one in points if one.layout == layout), key=lambda one: one.tok_s_per_user)
        data.append(
            _points(
                mine,
                plotly_text(layout),
                tokens,
                mode="lines+markers",
                line={"color": colour, "width": 1.5},
                marker={"color": colour, "symbol": SYMBOLS[index % len(SYMBOLS)], "size": 6},
            )
        )
    rest = thinned([point for point in points if point.layout not in named], MOST_FAINT)
    if rest:
        faint = {"color": NEUTRAL, "size": 4, "opacity": 0.5}
        data.append(_points(rest, "other layouts", tokens, marker=faint))
    if measured:
        data.append(_measured(measured, "#ffffff"))
    speeds = [*(one.tok_s_per_user for one in points), *(one.tok_s_per_user for one in measured)]
    if chosen is not None:
        layout, score = chosen
        star = {"symbol": "star", "size": 18, "color": "#ffd33d", "line": {"color": "#1b1f24", "width": 1.5}}
        said = {"hovertext": [f"{word}: {_speeds(layout, score, tokens)}"], "hoverinfo": "text"}
        speeds.append(score.tok_s_per_user or 1.0)
        data.append(
            scatter_of(word, "markers", [score.tok_s_per_user], [score.tok_s_per_gpu], marker=star, **said)
        )
    layout_of = speed_axes(speeds, tokens)
    if best:
        fast = best[-1]
        layout_of["annotations"] = [
            {
                "x": math.log10(fast.tok_s_per_user),
                "y": fast.tok_s_per_gpu,
                "text": f"fastest: {fast.tok_s_per_user:,.0f} tok/s/user",
                "ax": -40,
                "ay": -40,
                "xanchor": "right",
                "arrowcolor": NEUTRAL,
            }
        ]
    return chart_of(data, **layout_of)


def runners_up(points: Sequence[ReportPoint]) -> list[str]:
    """Return the layouts that have a colour of their own: those of the frontier, then those that come nearest to it.

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
    points: Mapping[str, Sequence[ReportPoint]],
    rows: Sequence[CompareRow],
    tokens: str,
    measured: Mapping[str, Sequence[MeasuredPoint]] | None = None,
) -> Figure:
    """Return the frontier of each cluster, what its rows reach with experts as placed, and rings of measured runs."""
    data, speeds = [], []
    for index, ((cluster, mine), colour) in enumerate(zip(points.items(), series(len(points)), strict=True)):
        name, best = plotly_text(cluster), frontier(mine)
        speeds += [point.tok_s_per_user for point in best]
        data.append(
            _points(
                best,
                name,
                tokens,
                before=f"{name}: ",
                legendgroup=name,
                mode="lines+markers",
                line={"color": colour, "width": 2, "dash": DASHES[index % len(DASHES)]},
                marker={"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 6},
            )
        )
        placed = [row for row in rows if row.cluster == cluster and row.tok_s_per_gpu is not None]
        star = {"symbol": "star", "size": 14, "color": colour, "line": {"color": "#1b1f24", "width": 1}}
        before = f"{name}, as placed: "
        shared: Figure = {"legendgroup": name, "showlegend": False, "marker": star}
        data.append(_points(placed, name, tokens, before=before, **shared))
    colours = dict(zip(points, series(len(points)), strict=True))
    for cluster, runs in (measured or {}).items():
        if runs:
            data.append(_measured(runs, colours[cluster], f"{plotly_text(cluster)}, measured: "))
            speeds += [run.tok_s_per_user for run in runs]
    speeds += [row.tok_s_per_user for row in rows if row.tok_s_per_user is not None]
    return chart_of(data, **speed_axes(speeds, tokens))


def _measured(runs: Sequence[MeasuredPoint], colour: str, before: str = "") -> Figure:
    """Return measured runs as dots with a ring of their own."""
    ring = {"color": colour, "symbol": "circle", "size": 10, "line": {"color": MEASURED, "width": 2.5}}
    across, up = [run.tok_s_per_user for run in runs], [run.tok_s_per_gpu for run in runs]
    words = [f"{before}{plotly_text(run.words)}" for run in runs]
    said = {"hovertext": words, "hoverinfo": "text", "showlegend": not before}
    return scatter_of("measured by others", "markers", across, up, marker=ring, **said)


def steps_chart(rows: Sequence[tuple[str, Mapping[str, float]]]) -> Figure:
    """Return a bar for each named step by part, in seconds: the parts in the same colours everywhere."""
    colours = by_term(dict.fromkeys(name for _, parts in rows for name in parts))
    order = {name: place for place, name in enumerate(TERMS)}
    data = [
        _stack(
            [row for row, _ in rows],
            name.replace("_", " "),
            [parts.get(name, 0.0) * 1e3 for _, parts in rows],
            colours[name],
            "ms",
        )
        for name in sorted(colours, key=lambda name: order.get(name, len(order)))
    ]
    return _stacked(data, "ms a step")


def memories_chart(rows: Sequence[tuple[str, Mapping[str, float]]]) -> Figure:
    """Return a bar for each named GPU, its HBM in bytes by use."""
    uses = dict.fromkeys(name for _, held in rows for name in held)
    data = [
        _stack(
            [row for row, _ in rows],
            HBM_USES.get(name, name),
            [held.get(name, 0.0) / 1e9 for _, held in rows],
            HBM_COLOURS.get(name, NEUTRAL),
            "GB",
        )
        for name in uses
    ]
    return _stacked(data, "GB of the fullest GPU")


def gpus_chart(counts: Sequence[tuple[str, int]]) -> Figure:
    """Return one bar of all GPUs by what they do; those that do nothing are grey."""
    colours = [*series(len(counts))]
    data = [
        _stack(["GPUs"], plotly_text(name), [count], NEUTRAL if name == "idle" else colour, "GPUs")
        for (name, count), colour in zip(counts, colours, strict=True)
    ]
    return _stacked(data, "GPUs")


def pools_chart(
    rows: Sequence[RateMatch], best: RateMatch | None, measured: Sequence[MeasuredPoint] = ()
) -> Figure:
    """Return matched pools: output throughput over the GPUs of both against speed per user, and measured runs."""
    line = _curve(
        "matched pools",
        [row.tok_s_per_user for row in rows],
        [row.output_tok_s_per_gpu for row in rows],
        [[f"{row.prefill_gpus}:{row.decode_gpus}", row.ttft_s] for row in rows],
        "%{x:,.1f} tok/s/user: %{y:,.0f} output tok/s/GPU<br>%{customdata[0]} GPUs prefill : decode, TTFT "
        "%{customdata[1]:.2f} s",
    )
    data = [line, *([_measured(measured, "#ffffff")] if measured else [])]
    if best is not None:
        data.append(_mark("most throughput", best.tok_s_per_user, best.output_tok_s_per_gpu, "star"))
    speeds = [*(row.tok_s_per_user for row in rows), *(run.tok_s_per_user for run in measured)]
    return chart_of(data, **speed_axes(speeds, "output"))


def _stack(rows: Sequence[str], name: str, values: Sequence[float], colour: str, unit: str) -> Figure:
    words = [
        f"{plotly_text(row)}, {name}: {value:,.2f} {unit}" for row, value in zip(rows, values, strict=True)
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [plotly_text(row) for row in rows],
        "x": values,
        "hovertext": words,
        "hoverinfo": "text",
        "marker": {"color": colour},
    }


def _stacked(data: Sequence[Figure], title: str) -> Figure:
    down = {"autorange": "reversed", "automargin": True, "ticksuffix": " ", "type": "category"}
    return chart_of([one for one in data if any(one["x"])], barmode="stack", xaxis=axis_of(title), yaxis=down)


def speed_chart(rows: Sequence[CompareRow], tokens: str) -> Figure:
    """Return a bar per cluster at each speed asked for; below a speed stands who does not reach it."""
    clusters = list(dict.fromkeys(row.cluster for row in rows))
    speeds = sorted(dict.fromkeys(row.target_tok_s_per_user for row in rows), key=lambda speed: speed or 0.0)
    found = {(row.cluster, row.target_tok_s_per_user): row.tok_s_per_gpu for row in rows}
    labels = []
    for speed in speeds:
        label = f"{speed:g} tok/s/user" if speed else "as much as fits"
        missing = (plotly_text(name) for name in clusters if found[name, speed] is None)
        labels.append("<br>".join([label, *(f"unreachable: {name}" for name in missing)]))
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
    up = axis_of(f"{tokens} tok/s/GPU", tickformat=",~r", rangemode="tozero")
    return chart_of(data, barmode="group", xaxis=across, yaxis=up)


def balance_chart(plan: Plan) -> Figure:
    """Return balancedness by layer: ours, and each rival's that applies."""
    lines = {"rackplan": plan.balancedness}
    for name, entry in plan.baselines.items():
        if entry.score is not None:
            lines[baseline_name(name)] = entry.balancedness
    data = [
        scatter_of(
            name,
            "lines+markers",
            list(values),
            list(values.values()),
            line={
                "color": colour,
                "width": 3 if name == "rackplan" else 1.5,
                "dash": DASHES[index % len(DASHES)],
            },
            marker={"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 6},
            hovertemplate=f"{name}, layer %{{x}}: %{{y:.4f}}<extra></extra>",
        )
        for index, ((name, values), colour) in enumerate(zip(lines.items(), series(len(lines)), strict=True))
    ]
    up = axis_of("mean GPU load / max GPU load", range=[0, 1.04])
    return chart_of(data, xaxis=axis_of("layer"), yaxis=up)


def redundancy_chart(curve: RedundancyCurve) -> Figure:
    """Return throughput against copies, the choice and the knee marked."""
    points = curve.points
    line = _curve(
        "throughput",
        [point.redundant for point in points],
        [point.tok_s_per_gpu for point in points],
        [[point.balancedness, point.batch, point.expert_bytes / 1e9] for point in points],
        "%{x} copies: %{y:,.0f} tok/s/GPU<br>balancedness %{customdata[0]:.4f}, batch %{customdata[1]}, "
        "experts %{customdata[2]:.1f} GB a GPU",
    )
    marks = [
        _mark(name, point.redundant, point.tok_s_per_gpu, symbol)
        for name, symbol, point in (
            ("chosen", "star", curve.best),
            (f"knee: {curve.knee} copies", "circle-open", curve.knee_point),
        )
    ]
    across, up = (
        axis_of("copies per layer above one of each expert"),
        axis_of("tok/s/GPU", rangemode="tozero"),
    )
    return chart_of([line, *marks], xaxis=across, yaxis=up)


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


def replay_chart(found: ReplayResult) -> Figure:
    """Return the balancedness of each scored window, a line for each policy."""
    data = [
        scatter_of(
            name,
            "lines",
            list(range(2, found.windows + 1)),
            run.by_window.tolist(),
            hovertemplate=f"{name}, window %{{x}}: %{{y:.4f}}<extra></extra>",
            **look,
        )
        for name, run, look in _policies(found)
    ]
    lowest = min(run.worst for run in found.runs)
    up = axis_of("mean GPU load / max GPU load", range=[max(0.0, math.floor(lowest * 20 - 0.5) / 20), 1.005])
    return chart_of(data, xaxis=axis_of("window"), yaxis=up)


def replay_moves_chart(found: ReplayResult) -> Figure:
    """Return the part of the copies that each re-plan moved, a line for each policy that moved any."""
    data = [
        scatter_of(
            name,
            "lines+markers",
            [each.window + 1 for each in run.replans],
            [each.moves.copies / run.setting.copies for each in run.replans],
            customdata=[each.moves.bytes / 1e9 for each in run.replans],
            hovertemplate=f"{name}, after window %{{x}}: %{{y:.1%}}, %{{customdata:,.1f}} GB<extra></extra>",
            **look | {"marker": {"size": 5}},
        )
        for name, run, look in _policies(found)
        if run.bytes_moved
    ]
    up = axis_of("copies moved", tickformat=".0%", rangemode="tozero")
    return chart_of(data, xaxis=axis_of("after window"), yaxis=up)


def _policies(found: ReplayResult) -> Iterator[tuple[str, Run, Figure]]:
    """Yield the name, the run and the look of each policy, the same in all charts."""
    names = run_names(found.runs)
    for index, (name, run, colour) in enumerate(zip(names, found.runs, series(len(names)), strict=True)):
        ours = run.entry.budget is not None or name.startswith("rackplan")
        dash = DASHES[(index + index // len(DASHES)) % len(DASHES)]  # lines that coincide are all seen
        yield plotly_text(name), run, {"line": {"color": colour, "width": 2.5 if ours else 1.5, "dash": dash}}


def _speeds(layout: str, point: ReportPoint | CompareRow | Score, tokens: str) -> str:
    """Return what stands beside a point: layout, batch, step, both speeds in ``tokens``."""
    return (
        f"{plotly_text(layout)}<br>batch {point.batch or 0:,.4g} per GPU<br>"
        f"step {(point.step_s or 0.0) * 1e3:,.2f} ms<br>"
        f"{point.tok_s_per_user:,.1f} {tokens} tok/s/user<br>{point.tok_s_per_gpu:,.0f} {tokens} tok/s/GPU"
    )


def _points(
    points: Sequence[ReportPoint | CompareRow],
    name: str,
    tokens: str,
    mode: str = "markers",
    *,
    before: str = "",
    **more: Any,
) -> Figure:
    """Return points of throughput against speed, what binds each on hover."""
    hover = [
        f"{before}{_speeds(point.layout or '', point, tokens)}<br>bound by {plotly_text(point.bound_by or '')}"
        for point in points
    ]
    across, up = [point.tok_s_per_user for point in points], [point.tok_s_per_gpu for point in points]
    return scatter_of(name, mode, across, up, hovertext=hover, hoverinfo="text", **more)


def _curve(name: str, x: Sequence[Any], y: Sequence[Any], custom: Sequence[Any], hover: str) -> Figure:
    words = {"customdata": custom, "hovertemplate": f"{hover}<extra></extra>"}
    return scatter_of(name, "lines+markers", x, y, line={"color": BLUE, "width": 2}, **words)


def _mark(name: str, x: float, y: float, symbol: str) -> Figure:
    marker = {"color": VERMILION, "symbol": symbol, "size": 14}
    return scatter_of(name, "markers", [x], [y], marker=marker, hoverinfo="skip")
