"""What a person reads of ``--redundant auto``: throughput against copies, the choice and the knee marked."""

from __future__ import annotations

from placement.findings import ALIKE_COPIES, RedundancyCurve, RedundancyPoint
from rackplan.words import table, wrapped

HEADER = ("copies", "slots/GPU", "balancedness", "batch", "tok/s/GPU", "TPOT ms", "experts GB", "")


def redundancy_rows(curve: RedundancyCurve) -> list[tuple[str, ...]]:
    """Return one row of cells for each number of copies, without the header :data:`HEADER`."""
    return [
        (
            f"{point.redundant}",
            f"{point.slots_per_gpu}",
            f"{point.balancedness:.4f}",
            f"{point.batch:,}",
            f"{point.tok_s_per_gpu:,.0f}",
            f"{point.tpot_s * 1e3:,.2f}",
            f"{point.expert_bytes / 1e9:,.1f}",
            _mark(curve, point),
        )
        for point in curve.points
    ]


def redundancy_lines(curve: RedundancyCurve) -> list[str]:
    """Return the curve as a table of at most 100 columns, with a line that says what was chosen."""
    best, knee = curve.best, curve.knee
    text = f"{best.redundant} per layer above one of each expert: most throughput on this layout"
    if knee.redundant != best.redundant:
        text += f"; with {knee.redundant} (the knee) it is within {ALIKE_COPIES:.0%} of that"
    return [*wrapped("Copies", text), *table([HEADER, *redundancy_rows(curve)])]


def _mark(curve: RedundancyCurve, point: RedundancyPoint) -> str:
    words = [
        word
        for word, marked in (("chosen", curve.best), ("knee", curve.knee))
        if marked.redundant == point.redundant
    ]
    return ", ".join(words)
