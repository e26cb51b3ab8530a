"""The headline of a report: performance, racks, price, power and accuracy."""

from __future__ import annotations

from collections.abc import Iterable

from cost.calibration.errors import ErrorOf
from cost.money.bill import Bill, Totals
from cost.step.score import Score
from placement.plan import Plan
from rackplan.report.notes import accuracy_words, cluster_doubts
from rackplan.views.blocks import Block, Text
from rackplan.views.money import dollars, power_scope, rate_words, watts
from topology.base.units import plural
from topology.cluster import Cluster
from topology.physical import racks_of


def headline(
    answer: str, machine: str, totals: Totals, errors: Iterable[ErrorOf], *doubts: str
) -> list[Block]:
    """Return the answer in three lines: performance; hardware and price; accuracy."""
    accuracy = "; ".join(filter(None, [f"Accuracy: {accuracy_words(errors)}", *doubts]))
    return leading(answer, f"On {machine}: {price(totals)}, {power(totals)}", accuracy)


def leading(*lines: str) -> list[Block]:
    """Return the lines of a headline, each a sentence; empty ones are left out."""
    return [Text(f"{line}.", style="forward") for line in lines if line]


def plan_headline(plan: Plan, lead: str = "") -> list[Block]:
    """Return the headline of a plan; ``lead``: what its first line begins with, such as the moves of a re-plan."""
    cluster, score, totals = plan.deployment.cluster, plan.score, plan.totals
    requests = "" if totals.requests_per_s is None else f", {rate_words(totals.requests_per_s)} requests/s"
    answer = (
        f"{totals.tok_s_per_gpu:,.0f} {totals.tokens} tok/s/GPU{requests} at {plan.tok_s_per_user:,.1f} tok/s/user; "
        f"{bound_words(score)} binds"
    )
    answer = "; ".join(filter(None, [lead, answer]))
    doubts = (
        cluster_doubts(cluster),
        f"what if: {score.what_if.replace('_', ' ')}" * bool(score.what_if),
        "search interrupted, best plan so far" * plan.interrupted,
    )
    return headline(answer, machine_words(cluster.whole), totals, plan.errors, *doubts)


def machine_words(cluster: Cluster, gpus: Iterable[int] | None = None) -> str:
    """Return racks and GPUs of a cluster, or of some of its GPUs; without racks if they are unknown."""
    some = [cluster.gpus[gpu] for gpu in (range(len(cluster.gpus)) if gpus is None else gpus)]
    count, racks = plural(len(some), "GPU"), racks_of(cluster, ((gpu, 1) for gpu in some)).count
    return count if racks is None else f"{plural(racks, 'rack')} ({count})"


def power(bill: Bill) -> str:
    """Return the power of a bill."""
    return "power unknown" if bill.power_w is None else f"{watts(bill.power_w)} {power_scope(bill)}"


def price(totals: Totals) -> str:
    """Return dollars per million tokens, and the phase if other GPUs run the other one."""
    each = totals.usd_per_million_tokens
    if each is None:
        return "price unknown"
    alone = f" ({totals.phase} only)" * (totals.phase != "both")
    return f"${dollars(each)} per million {totals.tokens} tokens{alone}"


def bound_words(score: Score) -> str:
    """Return the resource that the step waits for most, and its share."""
    return f"{score.bound_by} ({score.limits_s[score.bound_by] / score.step_s:.0%} of the step)"
