"""What is left when each GPU, node or rack dies: a strip for each kind of failure, a cell for each that was tried."""

from __future__ import annotations

from placement.plans.findings import Failures
from rackplan.views.blocks import Picture
from rackplan.views.words import UNITS


def failure_strips(failures: Failures, tok_s_per_gpu: float) -> Picture | None:
    """Return the strips; None where nobody kept what each loss leaves.

    ``tok_s_per_gpu``: of the plan with everything at work; cells are what is left of it.
    """
    rows = [row for row in failures.what_if if row.each.names]
    if not rows or tok_s_per_gpu <= 0:
        return None
    strips = [
        {
            "unit": row.unit,
            "name": UNITS[row.unit],
            "choices": row.choices,
            "names": list(row.each.names),
            "left": [round(value / tok_s_per_gpu, 6) for value in row.each.tok_s_per_gpu],
            "tok_s_per_gpu": [round(value, 2) for value in row.each.tok_s_per_gpu],
            "balancedness": [round(value, 5) for value in row.each.balancedness],
            "tokens_lost": [round(value, 7) for value in row.each.tokens_lost],
        }
        for row in rows
    ]
    parts = (
        f"any {UNITS[row.unit]} {min(row.each.tok_s_per_gpu) / tok_s_per_gpu:.1%} or more "
        f"({sum(lost > 0 for lost in row.each.tokens_lost)} of {row.tried} lose tokens)"
        for row in rows
    )
    says = f"Throughput left after losing {'; '.join(parts)}"
    return Picture("failures", "failures", {"tok_s_per_gpu": tok_s_per_gpu, "strips": strips}, says)
