"""The table that a manager sends on: racks, megawatts, dollars per million tokens, within which factor, and why."""

from __future__ import annotations

from collections.abc import Iterable

from cost.calibration.errors import LEAST_ROWS, ErrorOf, widest
from cost.money.bill import Bill, Totals
from cost.step.score import Score
from placement.plan import Plan
from rackplan.views.blocks import Block, Text
from rackplan.views.money import dollars
from rackplan.views.words import cluster_doubts
from topology.base.units import plural
from topology.cluster import Cluster


def summary(machine: str, totals: Totals, errors: Iterable[ErrorOf], bound_by: str) -> list[tuple[str, str]]:
    """Return labels and values: the machine, power, price, how far off they may be, and what binds."""
    return [
        ("Machine", machine),
        ("Power", megawatts(totals)),
        ("Price", price(totals)),
        ("Accuracy", accuracy_words(errors)),
        ("Bound by", bound_by),
    ]


def summary_blocks(rows: Iterable[tuple[str, str]]) -> list[Block]:
    """Return such rows as a page shows them above all else; those without a value are left out."""
    return [Text(value, label, style="forward") for label, value in rows if value]


def plan_summary(plan: Plan) -> list[Block]:
    """Return the summary of a plan."""
    cluster, score = plan.deployment.cluster, plan.score
    return summary_blocks(
        [
            *summary(machine_words(cluster.whole), plan.totals, plan.errors, bound_words(score)),
            ("Status", cluster_doubts(cluster)),
            ("What if", score.what_if.replace("_", " ")),
            ("Search", "interrupted: the best so far" if plan.interrupted else ""),
        ]
    )


def machine_words(cluster: Cluster, gpus: Iterable[int] | None = None) -> str:
    """Return racks and GPUs of a cluster, or of some of its GPUs; without racks where these are not known."""
    some = [cluster.gpus[gpu] for gpu in (range(len(cluster.gpus)) if gpus is None else gpus)]
    count = f"{plural(len(some), 'GPU')}"
    raw = cluster.spec.raw
    if raw is not None and any(node.rack is None for node in raw.nodes if node.kind == "gpu"):
        return count
    return f"{plural(len({gpu.rack for gpu in some}), 'rack')} ({count})"


def megawatts(bill: Bill) -> str:
    """Return the power of a bill in megawatts."""
    return "power unknown" if bill.power_w is None else f"{bill.power_w / 1e6:#.3g} MW".replace(". MW", " MW")


def price(totals: Totals) -> str:
    """Return dollars per million tokens, and of which phase where others do the other."""
    each = totals.usd_per_million_tokens
    if each is None:
        return "price unknown"
    alone = f" ({totals.phase} alone)" * (totals.phase != "both")
    return f"${dollars(each)} per million {totals.tokens} tokens{alone}"


def bound_words(score: Score) -> str:
    """Return what the step waits for most, and for how much of it."""
    return f"{score.bound_by} ({score.limits_s[score.bound_by] / score.step_s:.0%} of a step)"


def accuracy_words(errors: Iterable[ErrorOf]) -> str:
    """Return the factor that throughput and price are known within, and what it is taken from."""
    found = widest(errors)
    if found is None:
        return "unknown: no measurements of such a chip"
    of = f"{found.rows:,} rows measured on {found.chip}"
    if not found.model_seen:
        of = "rows of a model left out of the fit; this one has no measurements"
    if found.stand_in_for:
        of = f"rows of a chip left out of the fit; {found.stand_in_for} has no measurements"
    elif found.borrowed:
        of = f"rows of a chip left out of the fit; {found.chip} has fewer than {LEAST_ROWS} measured rows"
    return f"within a factor {found.band:.2f} for 80% of {of}"
