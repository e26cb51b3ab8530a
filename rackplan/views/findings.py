"""Findings on a plan: balance by load, effect of one failure, and the number of copies."""

from __future__ import annotations

from functools import partial

from placement.analysis.failures import TOP
from placement.plans.findings import ALIKE_COPIES, Failures, RedundancyCurve, ScenarioReport
from rackplan.report.notes import UNITS
from rackplan.views.blocks import Block, Chart, Heading, Page, Table, Text, labelled
from topology.base.units import plural


def scenario_blocks(report: ScenarioReport | None) -> list[Block]:
    """Return balancedness under each load, in-sample and for a plan made without it."""
    if report is None:
        return []

    def left(value: float | None) -> str:
        return "-" if value is None else f"{value:.4f}"

    rows = [
        (row.name, f"{row.in_sample:.4f}", left(row.left_out), f"{row.worst_layer:.4f}")
        for row in report.rows
    ]
    note = "Left out: planned with the fast path on the other loads"
    missing = sum(row.left_out is None for row in report.rows)
    if missing:
        note += f"; {missing} of {len(report.rows)} loads were not left out, to save time"
    over = "mean" if report.objective == "mean" else "worst"
    return [
        Heading("Balance by load", 2),
        Page(
            [
                Text(
                    f"The plan minimizes the {over} of the largest GPU load over {len(report.rows)} loads, "
                    f"{report.votes}."
                )
            ]
        ),
        Table(
            ("loads", "in-sample", "left out", "worst layer"),
            [*rows, ("mean", f"{report.in_sample:.4f}", left(report.left_out), "")],
            "Balancedness under each load, in-sample and for a plan made on the other loads (the realistic figure):",
        ),
        Text(f"{note}.", ""),
    ]


def failure_blocks(failures: Failures | None, tok_s_per_gpu: float) -> list[Block]:
    """Return the effect of losing any one GPU, node or rack, and the experts that one failure would lose.

    ``tok_s_per_gpu`` is the throughput of the intact plan.
    """
    if failures is None:
        return []

    def picture() -> list[Block]:
        from rackplan.report.pictures.strips import failures_picture

        return [failures_picture(failures, tok_s_per_gpu)] if failures.what_if else []

    lost = Table.of(
        failures.what_if,
        ("lost", lambda row: UNITS[row.unit]),
        ("count", lambda row: f"{row.choices:,}"),
        ("balancedness", lambda row: f"{row.balancedness_mean:.4f}" if row.balancedness_mean else "-"),
        ("worst", lambda row: f"{row.balancedness_worst:.4f}" if row.balancedness_worst else "-"),
        ("tok/s/GPU", lambda row: f"{row.tok_s_per_gpu_mean:,.0f}"),
        ("worst", lambda row: f"{row.tok_s_per_gpu_worst:,.0f}"),
        ("tokens lost", lambda row: f"{row.tokens_lost_mean:.2%}"),
        ("worst case", lambda row: row.worst),
        title="After losing any one part (mean and worst; tokens lost: share of the replica hit):",
        words=(0, 7),
        fold="Losses as a table",
    )
    dropped = (
        "Tokens of experts without a remaining copy are dropped; their share is of the replica that the failure "
        "hits. Throughput is of all replicas, over all GPUs, failed ones included."
    )
    some = [
        f"{row.tried} of {row.choices:,} {UNITS[row.unit]}s"
        for row in failures.what_if
        if row.tried < row.choices
    ]
    tried = f"{', '.join(some)}, evenly spaced" if some else ""
    return [
        Heading("After a failure", 2),
        Page(picture),
        lost,
        Page([Text(dropped, style="note")]),
        *labelled("Tried", tried),
        *_at_risk(failures),
        Page(_risk_tables(failures)),
    ]


def redundancy_blocks(curve: RedundancyCurve | None) -> list[Block]:
    """Return throughput against the number of copies if it was optimized, with choice and knee marked."""
    if curve is None:
        return []
    best, knee = curve.chosen, curve.knee
    text = f"{best} extra copies per layer give the highest throughput with this layout"
    if knee != best:
        text += f"; {knee} (the knee) are within {ALIKE_COPIES:.0%} of it"
    marks = {best: "chosen", knee: "knee"} if knee != best else {best: "chosen, knee"}
    points = Table.of(
        curve.points,
        ("copies", lambda point: f"{point.redundant}"),
        ("slots/GPU", lambda point: f"{point.slots_per_gpu}"),
        ("balancedness", lambda point: f"{point.balancedness:.4f}"),
        ("batch", lambda point: f"{point.batch:,}"),
        ("tok/s/GPU", lambda point: f"{point.tok_s_per_gpu:,.0f}"),
        ("TPOT ms", lambda point: f"{point.tpot_s * 1e3:,.2f}"),
        ("experts GB", lambda point: f"{point.expert_bytes / 1e9:,.1f}"),
        ("", lambda point: marks.get(point.redundant, "")),
        words=(7,),
    )
    return [
        Heading("Number of copies", 2),
        Page(partial(_curve, curve)),
        Text(text, "Copies"),
        points,
    ]


def _curve(curve: RedundancyCurve) -> list[Block]:
    from rackplan.views.charts import redundancy_chart

    says = "Throughput against copies per layer, with choice and knee marked"
    return [Chart("redundancy", redundancy_chart(curve), says, 360)]


def _risk_tables(failures: Failures) -> list[Block]:
    """Return the experts that one failure would lose: the heaviest, and all by layer."""
    unit = UNITS[failures.spread]
    heaviest = Table.of(
        failures.experts,
        ("layer", lambda row: str(row.layer)),
        ("expert", lambda row: str(row.expert)),
        ("copies", lambda row: str(row.copies)),
        ("share of layer tokens", lambda row: f"{row.share:.3%}"),
        (unit, lambda row: row.domain),
        title=f"Experts with all copies in one {unit} (heaviest {min(TOP, len(failures.experts))})",
        words=(4,),
    )
    layers = Table.of(
        failures.layers,
        ("layer", lambda row: str(row.layer)),
        ("experts at risk", lambda row: str(row.experts)),
        ("token share", lambda row: f"{row.share:.2%}"),
        (f"worst {unit}", lambda row: row.worst or "-"),
        ("experts lost", lambda row: str(row.worst_experts)),
        ("tokens lost", lambda row: f"{row.worst_share:.2%}"),
        words=(3,),
    )
    return [
        *([Page([heaviest], fold="Heaviest experts at risk")] if failures.experts else []),
        Page([layers], fold="Experts at risk by layer"),
    ]


def _at_risk(failures: Failures) -> list[Block]:
    """Return how many experts one failure would lose, the heaviest, and the worst domain to lose."""
    unit, layers = UNITS[failures.spread], len(failures.layers)
    if not failures.experts_at_risk:
        every = f"none: every expert in all {plural(layers, 'layer')} has copies in at least two {unit}s"
        return labelled("At risk", every)
    first, worst = failures.experts[0], max(failures.layers, key=lambda row: row.worst_share)
    count, share = failures.experts_at_risk / layers, failures.share_at_risk
    where = f"{'on' if unit == 'GPU' else 'in'} one {unit}"
    heaviest = f"{first.share:.2%} of the layer's tokens, {plural(first.copies, 'copy')}, {first.domain}"
    lost = f"{plural(worst.worst_experts, 'expert')}, {worst.worst_share:.2%} of the layer's tokens"
    return [
        *labelled(
            "At risk",
            f"{count:,.4g} experts per layer have all copies {where} ({share:.1%} of tokens)",
        ),
        *labelled("Heaviest", f"expert {first.expert} of layer {first.layer}: {heaviest}"),
        *labelled(f"Worst {unit}", f"{worst.worst} in layer {worst.layer}: {lost}"),
    ]
