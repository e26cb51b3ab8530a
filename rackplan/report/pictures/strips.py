"""Strip charts: throughput after failures, balance by layer, and link utilization."""

from __future__ import annotations

from collections.abc import Mapping

from placement.plans.findings import Failures, WhatIf
from rackplan.report.doc import Picture
from rackplan.report.notes import UNITS
from rackplan.report.pictures.svg import Cell, share_text, strips
from rackplan.report.plotting import BLUE, ORANGE, SAND, SKY, VERMILION
from topology.base.units import mean_of

LEVELS = ((0.99, BLUE), (0.95, SKY), (0.9, SAND), (0.8, ORANGE), (0.0, VERMILION))
"""Lower limit of each colour, as a share of even load."""
_GAP = 0.12
"""Gap between columns, as a share of column width."""


def _colour(value: float) -> str:
    return next(colour for least, colour in LEVELS if value >= least)


def failures_picture(failures: Failures, tok_s_per_gpu: float) -> Picture:
    """Return the throughput after each tested failure, worst first, one strip per kind of failure.

    A full column is ``tok_s_per_gpu``, that of the plan.
    """
    rows = []
    for row in failures.what_if:
        left, worst = (part / tok_s_per_gpu for part in (row.tok_s_per_gpu_mean, row.tok_s_per_gpu_worst))
        kept = f"{share_text(left)} remains, {share_text(worst)} at worst" if left else "nothing remains"
        rows.append((f"any one {UNITS[row.unit]}: {kept}", _columns(row, tok_s_per_gpu)))
    says = f"Throughput after a failure: {'; '.join(words for words, _ in rows)}"
    legend = [(f"one bar per failure; full height: {tok_s_per_gpu:,.0f} tok/s/GPU", BLUE)]
    return Picture("failures", says, strips("failures", rows, legend, high=46))


def _columns(row: WhatIf, whole: float) -> list[Cell]:
    """Return a column for each loss tried, the worst first; of a plan without them the worst and the mean."""
    each = sorted(zip(row.each.tok_s_per_gpu, row.each.names, strict=True))
    each = each or [(row.tok_s_per_gpu_worst, row.worst), (row.tok_s_per_gpu_mean, "mean")]
    wide = 1 / len(each)
    return [
        Cell(
            place * wide,
            (1 - _GAP) * wide,
            BLUE,
            f"without {name}: {rate:,.0f} tok/s/GPU, {share_text(rate / whole)}",
            min(1.0, rate / whole),
        )
        for place, (rate, name) in enumerate(each)
    ]


def balance_picture(rows: Mapping[str, Mapping[int, float]]) -> Picture:
    """Return a strip for each placement, a cell for each layer: mean over largest GPU load, by layer."""
    shown = []
    for name, layers in rows.items():
        wide = 1 / len(layers)
        cells = [
            Cell(place * wide, wide, _colour(even), f"{name}, layer {layer}: {even:.4f}")
            for place, (layer, even) in enumerate(layers.items())
        ]
        low = min(layers, key=lambda layer: layers[layer])
        words = f"{name}: {mean_of(layers.values()):.3f} on average, {layers[low]:.3f} in layer {low}"
        shown.append((words, cells))
    first = next(iter(rows.values()))
    ends = f"layers {min(first)} to {max(first)} from left to right"
    lows = [least for least, _ in LEVELS]
    legend = [(f"{lows[0]:g} or more of even ({ends})", LEVELS[0][1])]
    legend += [
        (f"{least:g} to {above:g}" if least else f"below {above:g}", colour)
        for above, (least, colour) in zip(lows, LEVELS[1:], strict=False)
    ]
    says = f"Balance of each layer: {'; '.join(words for words, _ in shown)}"
    return Picture("balance", says, strips("balance", shown, legend))
