"""Report section on throughput against speed per user: frontier, other layouts and measured runs."""

from __future__ import annotations

from collections.abc import Sequence

from cost.calibration.errors import errors_in, widest
from cost.inputs.deployment import Deployment
from cost.serving.points import LayoutPoint, frontier
from cost.validation.measured import MeasuredPoint, predicted, published_runs
from rackplan.views.blocks import Beside, Block, Chart, Page, Table, Text
from rackplan.views.charts import measured_chart
from topology.base.units import plural

MOST_ROWS = 24
"""Maximum points of a frontier in reports."""
HEIGHT = 480
COLUMNS = ("layout", "batch", "tok/s/user", "tok/s/GPU", "step ms", "bound by")


def beside_measured(chart: Chart, deployments: Sequence[Deployment], phase: str = "") -> list[Block]:
    """Return a chart of a frontier, with a panel of measured runs of its chips and model against predictions.

    Each run is compared with the prediction for its own conditions, within the band of the current question.
    ``phase`` as :func:`cost.calibration.errors.errors_in` takes it.
    """
    found: dict[str, list[tuple[MeasuredPoint, float]]] = {}
    refused = 0
    for one in deployments:
        for run in published_runs(one) if one.workload.decodes else []:
            rate = predicted(run, one.correction)
            refused += rate is None
            if rate is not None and (run, rate) not in found.setdefault(run.chip, []):
                found[run.chip].append((run, rate))
    pairs = [pair for some in found.values() for pair in some]
    if not pairs:
        none = "rackplan includes no published run of this model on these chips."
        return [chart, *([Text(none, style="note")] if deployments[0].workload.decodes else [])]
    errors = [error for one in deployments for error in errors_in(one, phase=phase)]
    error = widest(error for error in errors if error.chip in found) or widest(errors)
    band = None if error is None else error.band
    inside = sum(band is not None and 1 / band <= run.tok_s_per_gpu / rate <= band for run, rate in pairs)
    words = f"Measured against predicted: {plural(len(pairs), 'published run')} of this model on these chips"
    note = (
        f"{words}, each compared with the prediction for its own lengths, formats and drafts"
        + (f"; {inside} of {len(pairs)} are within {band:.2f}x, the band of 80% of such runs" * bool(band))
        + f"; {refused} with too few details for a prediction are left out" * bool(refused)
        + ". Runs are drawn on the frontier only if they match the requested conditions."
    )
    panel = Chart("measured", measured_chart(found, band), words, chart.height)
    rows = Table.of(
        sorted(pairs, key=lambda pair: pair[1]),
        ("run", lambda pair: pair[0].words),
        ("tok/s/user", lambda pair: f"{pair[0].tok_s_per_user:,.1f}" if pair[0].tok_s_per_user else "-"),
        ("tok/s/GPU", lambda pair: f"{pair[0].tok_s_per_gpu:,.0f}"),
        ("predicted", lambda pair: f"{pair[1]:,.0f}"),
        ("measured/predicted", lambda pair: f"{pair[0].tok_s_per_gpu / pair[1]:.2f}"),
        ("source", lambda pair: pair[0].source),
        words=(0, 5),
    )
    return [
        Beside([chart, panel]),
        Text(note, style="note"),
        Page([rows], fold=f"{plural(len(pairs), 'measured run')} with predictions"),
    ]


def says(points: Sequence[LayoutPoint], tokens: str) -> str:
    """Return a text alternative of the chart."""
    best = frontier(points)
    head = f"{tokens.capitalize()} tok/s/GPU against {tokens} tok/s/user, one colour per layout"
    if not best:
        return f"{head}: no layout fits"
    most, fast = best[0], best[-1]
    return (
        f"{head}: from {most.tok_s_per_gpu:,.0f} tok/s/GPU at {most.tok_s_per_user:,.1f} tok/s/user ({most.layout}) "
        f"to {fast.tok_s_per_gpu:,.0f} at {fast.tok_s_per_user:,.1f} ({fast.layout})"
    )


def note(tokens: str, star: str) -> str:
    """Return the legend of the marks."""
    return (
        f"{tokens.capitalize()} tokens, over all GPUs; experts are assumed perfectly balanced"
        f"{'; ' + star if star else ''}. Layout: EP and TP width, PP stages, x replicas."
    )


def cells_of(point: LayoutPoint) -> tuple[str, ...]:
    """Return a point as a row of :data:`COLUMNS`."""
    return (
        point.layout,
        f"{point.batch:,.4g}",
        f"{point.tok_s_per_user:,.1f}",
        f"{point.tok_s_per_gpu:,.0f}",
        f"{point.step_s * 1e3:,.2f}",
        point.bound_by,
    )
