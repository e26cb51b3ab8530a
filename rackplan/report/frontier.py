"""Throughput against speed per user: frontier, chosen layout, and measured runs at their own conditions."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from cost.calibration.errors import errors_in, widest
from cost.inputs.deployment import Deployment
from cost.layouts.front import pareto
from cost.serving.lengths import Lengths
from cost.validation.measured import comparable_points, predicted, published_runs
from rackplan.report.doc import Block, Chart, Layer, Note, Row, Table
from topology.base.units import plural

POINTS = Table.of(
    "", "cluster serving layout run batch in_flight tok_s_per_user tok_s_per_gpu step_s ttft_s bound_by"
)
RUNS = Table.of(
    "runs",
    "measured_chip run tok_s_per_user measured_tok_s_per_gpu predicted_tok_s_per_gpu measured_ratio source",
    "Measured runs with their predictions",
)
_MAX_LINES = 5
"""Layouts that are drawn as lines; more cannot be told apart."""
_SPEED, _RATE = "tok_s_per_user", "tok_s_per_gpu"


def frontier_chart(
    points: Iterable[Row],
    chosen: Iterable[Row],
    deployments: Iterable[Deployment],
    lengths: Lengths | None = None,
    *,
    word: str = "best",
    by: str = "layout",
) -> Chart:
    """Return the chart of ``points``, with stars at those ``chosen`` and rings at runs measured at their conditions.

    Points are rows of some of the fields of :data:`POINTS`; ``word`` names the stars. Lines are the layouts nearest
    to the frontier, or every value of the field ``by``; of several clusters each has one colour.
    """
    rows = [POINTS.row(None, **point) for point in points]
    edge = [rows[at] for at in pareto([row[_SPEED] for row in rows], [row[_RATE] for row in rows]).tolist()]
    lines = _nearest(rows, edge) if by == "layout" else {row[by] for row in rows}
    runs = (
        POINTS.row(run, None, cluster=side.cluster.name, run=run.words)
        for side in deployments
        for run in comparable_points(side, lengths)
    )
    color = by if by == "cluster" else ""
    marks: tuple[tuple[Any, str, str, Iterable[Row]], ...] = (
        ("point", "other layouts", "", (row for row in rows if row[by] not in lines)),
        ("line", "", by, (row for row in rows if row[by] in lines)),
        ("ring", "measured", color, runs),
        ("star", word, color, (POINTS.row(None, **row) for row in chosen)),
    )
    layers = [
        Layer(mark, POINTS(marked), _SPEED, _RATE, color, name=name) for mark, name, color, marked in marks
    ]
    ends = " to ".join(f"{row[_RATE]:,.0f} at {row[_SPEED]:,.1f}" for row in edge[:: max(1, len(edge) - 1)])
    alt = f"tok/s/GPU against tok/s/user: {ends or 'no layout fits'}"
    return Chart("Throughput against speed per user", layers, log="x", alt=alt, height=480)


def _nearest(rows: Sequence[Row], edge: Sequence[Row]) -> list[str]:
    """Return the layouts at both ends of the frontier, those on it most often, then those that come nearest."""
    held, speeds = Counter(row["layout"] for row in edge), [row[_SPEED] for row in edge]
    behind: dict[str, float] = {}
    for row in rows:
        rival = edge[bisect_left(speeds, row[_SPEED])][_RATE]
        behind[row["layout"]] = min(rival / (row[_RATE] or math.inf), behind.get(row["layout"], math.inf))
    order = sorted(behind, key=lambda layout: (-held[layout], behind[layout], layout))
    ends = [edge[at]["layout"] for at in (0, -1) if edge]
    return list(dict.fromkeys([*ends, *order]))[:_MAX_LINES]


def measured_blocks(deployments: Sequence[Deployment]) -> list[Block]:
    """Return measured runs of this model on these chips, each against the prediction for its own conditions.

    That takes a while: it is for pages alone.
    """
    decoding = [deployment for deployment in deployments if deployment.workload.decodes]
    predictions = {run: predicted(run, side.correction) for side in decoding for run in published_runs(side)}
    rates = {run: rate for run, rate in predictions.items() if rate is not None}
    if not rates:
        return [Note("rackplan knows of no published run of this model on these chips.")] if decoding else []
    chips = {run.chip for run in rates}
    errors = [error for side in deployments for error in errors_in(side)]
    error = widest(error for error in errors if error.chip in chips) or widest(errors)
    runs = plural(len(rates), "published run")
    text = f"{runs} of this model on these chips, each against the prediction for its own lengths, formats and drafts"
    if error is not None:
        inside = sum(1 / error.band <= run.tok_s_per_gpu / rate <= error.band for run, rate in rates.items())
        text += f"; {inside} are within {error.band:.2f}x, as 80% of all runs"
    if refused := len(predictions) - len(rates):
        text += f"; {refused} with too few details are left out"
    table = RUNS(
        RUNS.row(
            run,
            run.row,
            measured_chip=run.chip,
            run=run.words,
            tok_s_per_user=run.tok_s_per_user or None,
            measured_tok_s_per_gpu=run.tok_s_per_gpu,
            predicted_tok_s_per_gpu=rate,
            measured_ratio=run.tok_s_per_gpu / rate,
        )
        for run, rate in sorted(rates.items(), key=lambda pair: pair[1])
    )
    text += ". On the frontier are those alone that match what was asked."
    keys = ("predicted_tok_s_per_gpu", "measured_tok_s_per_gpu", "measured_chip")
    charts = measured_charts(table, *keys, None if error is None else error.band)
    return [*charts, Note(text, kind="method"), table]


def measured_charts(
    points: Table, predicted: str, measured: str, color: str, band: float | None = None
) -> list[Block]:
    """Return points by their keys ``predicted`` and ``measured``, the diagonal, and the ``band`` around it.

    Nothing where no point has a prediction.
    """
    values = [
        row[key] for row in points.rows if row[predicted] for key in (predicted, measured) if row[key] > 0
    ]
    if not values:
        return []
    ends, fields = (min(values) / 1.3, max(values) * 1.3), f"{predicted} {measured}"
    equal = Table.of("", fields)((end, end) for end in ends)
    layers = [
        Layer("rule", equal, predicted, measured, name="equal"),
        Layer("point", points, predicted, measured, color),
    ]
    if band is not None:
        around = Table.of("", f"{fields} least_tok_s_per_gpu")((end, end * band, end / band) for end in ends)
        name = f"80% band, {band:.2f}x"
        layers.insert(0, Layer("band", around, predicted, measured, base="least_tok_s_per_gpu", name=name))
    alt = f"{plural(len(points.rows), 'measured run')} against predictions"
    return [Chart("Measured against predicted", layers, log="xy", alt=alt, height=480)]
