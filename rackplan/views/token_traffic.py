"""Where a plan sends its tokens: places that one needs in a layer, and bytes on each fabric."""

from __future__ import annotations

from placement.plan import Plan
from rackplan.views.blocks import Block, Table, Text, labelled
from topology.units import plural


def token_traffic_blocks(plan: Plan) -> list[Block]:
    """Return where tokens go as traced, beside what independent choices would give; nothing without traces."""
    traffic = plan.traffic
    if traffic is None or traffic.independent is None or plan.loads is None:
        return []
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
        *labelled("Routing", f"{names}: {plural(traffic.tokens, 'token')} followed"),
        *(Text(note, "note") for trace in plan.loads.routing for note in trace.notes),
        Table(header, rows),
    ]
