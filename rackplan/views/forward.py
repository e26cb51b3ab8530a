"""The line that a manager sends on: racks, megawatts, dollars per million tokens, within which factor, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cost.calibration.errors import LEAST_ROWS, ErrorOf, widest
from cost.money.bill import Bill, Totals
from cost.step.score import Score
from placement.plan import Plan
from rackplan.views.blocks import Text
from rackplan.views.money import dollars
from rackplan.views.words import cluster_doubts
from topology.base.units import plural
from topology.cluster import Cluster


def forward(text: str) -> Text:
    """Return the line as the page shows it, above all else."""
    return Text(text, style="forward")


def plan_forward(plan: Plan, errors: Sequence[ErrorOf]) -> str:
    """Return the line of a plan."""
    cluster, score = plan.deployment.cluster, plan.score
    doubt = cluster_doubts(cluster)
    return (
        f"{machine_words(cluster)}, {totals_line(plan.totals, errors)}, because {binds_words(score, errors)}."
        + (f" {doubt}." if doubt else "")
    )


def machine_words(cluster: Cluster, gpus: Iterable[int] | None = None) -> str:
    """Return racks and GPUs of a cluster, or of some of its GPUs; without racks where they are not known."""
    some = [cluster.gpus[gpu] for gpu in (range(len(cluster.gpus)) if gpus is None else gpus)]
    count = f"{plural(len(some), 'GPU')}"
    raw = cluster.spec.raw
    if raw is not None and any(node.rack is None for node in raw.nodes if node.kind == "gpu"):
        return count
    return f"{plural(len({gpu.rack for gpu in some}), 'rack')} ({count})"


def totals_line(totals: Totals, errors: Iterable[ErrorOf]) -> str:
    """Return megawatts, dollars per million tokens, and the factor that both are known within."""
    found = widest(errors)
    within = "within an unknown factor" if found is None else f"within a factor {found.band:.2f}"
    return f"{megawatts(totals)}, {price(totals)}, {within}"


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


def binds_words(score: Score, errors: Iterable[ErrorOf]) -> str:
    """Return why the figures are what they are: what the step waits for, and what the factor rests on."""
    share = score.limits_s[score.bound_by] / score.step_s
    return f"{score.bound_by} binds ({share:.0%} of a step) and {rests_words(errors)}"


def rests_words(errors: Iterable[ErrorOf]) -> str:
    """Return what the factor is taken from."""
    found = widest(errors)
    if found is None:
        return "such a chip is not measured"
    if found.stand_in_for:
        return f"{found.stand_in_for} is not measured: the factor is that of a chip left out of the fit"
    if found.borrowed:
        few = f"{found.chip} has fewer than {LEAST_ROWS} measured rows"
        return f"{few}: the factor is that of a chip left out of the fit"
    return f"80% of {found.rows:,} rows measured on {found.chip} are that near"
