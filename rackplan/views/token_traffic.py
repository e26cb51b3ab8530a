"""Where a plan sends its tokens: places that one needs in a layer, and bytes on each fabric."""

from __future__ import annotations

from placement.plan import Plan
from placement.plans.findings import TrafficReport
from rackplan.report.notes import baseline_name
from rackplan.views.blocks import Block, Heading, Table, Text, labelled
from topology.base.units import plural


def token_traffic_blocks(plan: Plan) -> list[Block]:
    """Return where tokens go as traced, beside what independent choices would give; nothing without traces."""
    traffic = plan.traffic
    if traffic is None or traffic.independent is None or plan.loads is None:
        return _unknown(plan.by_traffic)
    alone = traffic.independent
    rows = [
        (what, f"{traced:.3f}", f"{independent:.3f}")
        for what, traced, independent in (
            ("domains per token", traffic.domains_per_token, alone.domains_per_token),
            ("nodes per token", traffic.nodes_per_token, alone.nodes_per_token),
            ("GPUs per token", traffic.gpus_per_token, alone.gpus_per_token),
        )
    ]
    rows += [
        (f"GB per step over {fabric}", f"{sent / 1e9:,.2f}", f"{alone.bytes_per_step[fabric] / 1e9:,.2f}")
        for fabric, sent in traffic.bytes_per_step.items()
    ]
    names = ", ".join(traffic.traces)
    header = (f"tokens, mean over {plural(len(traffic.gpus), 'MoE layer')}", "as traced", "if independent")
    return [
        *labelled("Routing", f"{names}: {plural(traffic.tokens, 'token')} traced"),
        *(Text(note, "note") for trace in plan.loads.routing for note in trace.notes),
        Table(header, rows),
    ]


def _unknown(report: TrafficReport | None) -> list[Block]:
    """Return a note that a plan was made with routing traces that were not given."""
    if report is None or not report.traces:
        return []
    names = ", ".join(report.traces)
    return labelled(
        "Routing",
        f"this plan was made with {names}; this score assumes independent choices of experts. "
        "Pass the trace to include it.",
    )


def traffic_choice_blocks(report: TrafficReport | None) -> list[Block]:
    """Return the placements compared by step time, the chosen one, and the front if requested."""
    if report is None:
        return []
    before, after = report.before, report.after
    saved = 1 - after.step_s / before.step_s
    gain = f"step {saved:.1%} shorter than with balance only" if saved >= 0.0005 else "no step is shorter"
    fabrics = list(before.bytes_per_step)
    head = ("placement", "step ms", "balancedness", "domains", "nodes", "GPUs")
    rows = [
        (
            _name(row.placement) + (" (chosen)" if row is after else ""),
            f"{row.step_s * 1e3:.3f}",
            f"{row.balancedness:.4f}",
            f"{row.domains_per_token:.3f}",
            f"{row.nodes_per_token:.3f}",
            f"{row.gpus_per_token:.3f}",
            *(f"{row.bytes_per_step[fabric] / 1e9:,.1f}" for fabric in fabrics),
        )
        for row in report.rows
    ]
    sent = ("GB",) if len(fabrics) == 1 else ("GB up", "GB out")
    columns = (*head, *sent[: len(fabrics)])
    over = ", ".join(f"{fabric} {name[3:]}".rstrip() for fabric, name in zip(fabrics, sent, strict=False))
    title = f"Placements by predicted step time (GB per step over {over}):"
    of = f"{report.known}; chosen: {_name(report.chosen)}, {gain}"
    return [
        Heading("Token traffic", 2),
        *labelled(
            "Traffic", f"{of} (domain loads up to {report.slack:.3g} above even)" if report.traces else of
        ),
        Table(columns, rows, title),
    ]


def _name(placement: str) -> str:
    return {"balance": "balance only", "traffic": "fewest domains"}.get(
        placement, baseline_name(placement).replace("traffic,", "fewest domains,")
    )
