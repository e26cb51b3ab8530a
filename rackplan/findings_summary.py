"""What a person reads of a plan's loads and failures: in-sample and left out, what one loss would do."""

from __future__ import annotations

from placement.findings import Failures, ScenarioReport, WhatIf
from placement.plan import Plan
from rackplan.words import table, wrapped

UNITS = {"gpu": "GPU", "node": "node", "rack": "rack"}
SCENARIO_HEADER = ("loads", "in-sample", "left out", "worst layer")
WHAT_IF_HEADER = ("lost", "of", "balancedness", "worst", "tok/s/GPU", "worst", "tokens lost", "worst to lose")
SPLITS = {"source": "by source rank", "lp": "by LP"}


def placement_words(plan: Plan) -> str:
    """Return what was asked of the experts' placement besides balance; empty where nothing was."""
    found = []
    if plan.spread != "gpu":
        found.append(f"copies of an expert in different {UNITS[plan.spread]}s")
    if plan.split != "even":
        found.append(f"the engine splits an expert's tokens {SPLITS[plan.split]}")
    if plan.scenarios is not None:
        word = "mean" if plan.scenarios.objective == "mean" else "worst"
        found.append(f"least {word} over {len(plan.scenarios.rows)} loads of the largest GPU load")
    return "; ".join(found)


def worst_words(plan: Plan) -> str:
    """Return what a balance was taken over where it is not the mean; empty where it is."""
    several = plan.loads is not None and len(plan.loads.tokens) > 1
    return " in the worst scenario" if several and plan.objective == "worst" else ""


def scenario_lines(report: ScenarioReport) -> list[str]:
    """Return the table of loads: balancedness in-sample, and of a plan made without each."""
    return [
        "Balancedness under each of the loads, and of a plan made on the others (trust that one):",
        *table([list(SCENARIO_HEADER), *(list(row) for row in scenario_cells(report))]),
        *wrapped("", scenario_note(report)),
    ]


def scenario_cells(report: ScenarioReport) -> list[tuple[str, ...]]:
    """Return a row for each of the loads, and the mean."""

    def left(value: float | None) -> str:
        return "-" if value is None else f"{value:.4f}"

    rows = [
        (row.name, f"{row.in_sample:.4f}", left(row.left_out), f"{row.worst_layer:.4f}")
        for row in report.rows
    ]
    return [*rows, ("mean", f"{report.in_sample:.4f}", left(report.left_out), "")]


def scenario_note(report: ScenarioReport) -> str:
    """Say how what is left out was planned."""
    text = "Left out: planned the fast way on the other loads"
    missing = sum(row.left_out is None for row in report.rows)
    if missing:
        text += f"; {missing} of {len(report.rows)} were not left out, which would take long"
    return text + "."


def failure_lines(failures: Failures) -> list[str]:
    """Return what one loss would do, and how much hangs on one failure domain."""
    return [
        "After losing any one (mean, and worst; experts keep the copies that are left):",
        *table([list(WHAT_IF_HEADER), *(list(what_if_cells(row)) for row in failures.what_if)]),
        *wrapped("At risk", at_risk_words(failures)),
        *(wrapped("", note) if (note := what_if_note(failures)) else []),
    ]


def what_if_cells(row: WhatIf) -> tuple[str, ...]:
    """Return one row of the what-if table, under :data:`WHAT_IF_HEADER`."""
    return (
        UNITS[row.unit],
        f"{row.choices:,}",
        f"{row.balancedness_mean:.4f}" if row.balancedness_mean else "-",
        f"{row.balancedness_worst:.4f}" if row.balancedness_worst else "-",
        f"{row.tok_s_per_gpu_mean:,.0f}",
        f"{row.tok_s_per_gpu_worst:,.0f}",
        f"{row.tokens_lost_mean:.2%}",
        row.worst,
    )


def what_if_note(failures: Failures) -> str:
    """Say where only some of the losses were tried; empty where all were."""
    some = [
        f"{row.tried} of {row.choices:,} {UNITS[row.unit]}s"
        for row in failures.what_if
        if row.tried < row.choices
    ]
    return f"Tried: {', '.join(some)}, evenly spaced." if some else ""


def at_risk_words(failures: Failures) -> str:
    """Say how many experts one failure would kill, and the heaviest of them."""
    unit, layers = UNITS[failures.spread], len(failures.layers)
    if not failures.experts_at_risk:
        return f"none: every expert of the {layers} layers has copies in two {unit}s or more"
    first = failures.experts[0]
    copies = f"{first.copies} copies" if first.copies > 1 else "1 copy"
    worst = max(failures.layers, key=lambda row: row.worst_share)
    experts = "1 expert" if worst.worst_experts == 1 else f"{worst.worst_experts} experts"
    return (
        f"{failures.experts_at_risk / layers:,.1f} experts a layer have all their copies in one {unit}, with "
        f"{failures.share_at_risk:.1%} of the tokens; the heaviest is expert {first.expert} of layer {first.layer} "
        f"({first.share:.2%} of its tokens, {copies}, {first.domain}); the worst {unit} to lose in a layer is "
        f"{worst.worst} in layer {worst.layer} ({experts}, {worst.worst_share:.2%})"
    )
