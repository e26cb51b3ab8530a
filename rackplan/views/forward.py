"""The headline that a manager sends on: what is reached, on how many racks, its price and power, and how sure."""

from __future__ import annotations

from collections.abc import Iterable

from cost.calibration.errors import LEAST_ROWS, ErrorOf, widest
from cost.money.bill import Bill, Totals
from cost.step.score import Score
from placement.plan import Plan
from rackplan.views.blocks import Block, Text
from rackplan.views.money import dollars, rate_words
from rackplan.views.words import cluster_doubts
from topology.base.units import plural
from topology.cluster import Cluster


def headline(
    answer: str, machine: str, totals: Totals, errors: Iterable[ErrorOf], *doubts: str
) -> list[Block]:
    """Return the decision in three lines: what is reached, on what and at what price, and how sure that is."""
    lines = (
        answer,
        f"On {machine}: {price(totals)}, {megawatts(totals)}",
        "; ".join(filter(None, [f"How sure: {accuracy_words(errors)}", *doubts])),
    )
    return [Text(f"{line}.", style="forward") for line in lines]


def plan_headline(plan: Plan) -> list[Block]:
    """Return that of a plan."""
    cluster, score, totals = plan.deployment.cluster, plan.score, plan.totals
    requests = "" if totals.requests_per_s is None else f", {rate_words(totals.requests_per_s)} requests/s"
    answer = (
        f"{totals.tok_s_per_gpu:,.0f} {totals.tokens} tok/s/GPU{requests} at {score.tok_s_per_user:,.1f} tok/s/user; "
        f"{bound_words(score)} binds"
    )
    doubts = (
        cluster_doubts(cluster),
        f"what if: {score.what_if.replace('_', ' ')}" * bool(score.what_if),
        "search interrupted: the best so far" * plan.interrupted,
    )
    return headline(answer, machine_words(cluster.whole), totals, plan.errors, *doubts)


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
