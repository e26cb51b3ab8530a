"""The headline of a report: performance, racks, price, power and accuracy."""

from __future__ import annotations

from collections.abc import Iterable

from cost.calibration.errors import ErrorOf
from cost.money.bill import Bill, Totals
from rackplan.report.notes import accuracy_words
from rackplan.views.blocks import Block, Text
from rackplan.views.money import dollars, power_scope, watts
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
