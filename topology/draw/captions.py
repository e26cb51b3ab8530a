"""What stands above a drawing: what the cluster is, its GPUs, both networks, power and cables."""

from __future__ import annotations

from collections import Counter

from topology.cluster import Cluster
from topology.draw.metrics import fitting
from topology.draw.style import gpu_line, is_projected, scale_out_line, scale_up_line
from topology.draw.words import plural
from topology.spec import DomainSpec
from topology.units import format_quantity

_MOST_KINDS = 3
_MOST_TITLES = 4
_MOST_WIDE = 1160


def title(cluster: Cluster) -> str:
    """Return the title: what the cluster is, how many GPUs, and whether it exists."""
    titles = Counter(_kind(domain) for domain in cluster.spec.domains)
    several = len(cluster.spec.domains) > 1
    parts = [f"{count} x {name}" if several else name for name, count in titles.items()]
    if len(parts) > _MOST_TITLES:
        parts = [*parts[: _MOST_TITLES - 1], f"{len(parts) - _MOST_TITLES + 1} more kinds"]
    warning = ""
    if any(domain.status == "hypothetical" for domain in cluster.spec.domains):
        warning = " (HYPOTHETICAL, projected figures)"
    elif any(is_projected(domain) for domain in cluster.spec.domains):
        warning = " (announced: projected figures)"
    elif any(domain.status == "blackboard" for domain in cluster.spec.domains):
        warning = " (round figures, no such machine)"
    broken = cluster.spec.gpus - len(cluster.gpus)
    gpus = f"{cluster.spec.gpus} GPUs" + (f", {broken} out of service" if broken else "")
    return fitting(f"{cluster.name}: {' + '.join(parts)}, {gpus}{warning}", _MOST_WIDE, 13)


def physical_line(cluster: Cluster) -> str:
    """Return one line about power, copper and optical links, counted on the graph."""
    from topology.physical import physical_limits

    limits = physical_limits(cluster)
    parts = [plural(limits.racks, "rack")]
    if limits.power.watts is not None:
        alone = "GPUs alone, " if "GPUs alone" in limits.power.basis else ""
        parts.append(f"{format_quantity(limits.power.watts, 'W', 3)} ({alone}{limits.power.evidence.label})")
    cables = [(limits.copper, "copper link"), (limits.optical, "optical link")]
    counted = [plural(count, word) for count, word in cables if count]
    return f"Physical: {', '.join([*parts, *(counted or ['no cables between hosts'])])}"


def _kind(domain: DomainSpec) -> str:
    """Return what a domain is; those of a raw graph by size and GPU, not by their own names."""
    if domain.structure == "raw":
        return f"domain of {domain.gpus} {domain.gpu.title.partition(' (')[0]}"
    return domain.title


def subtitles(cluster: Cluster, opened: int | None) -> list[str]:
    """Return the lines under the title; ``opened`` is the domain that is drawn, None for all."""
    spec = cluster.spec
    chosen = spec.domains if opened is None else spec.domains[opened : opened + 1]
    kinds = {(domain.gpu.name, domain.fabric.name, domain.structure): domain for domain in chosen}
    shown = list(kinds.values())[:_MOST_KINDS]
    lines: list[str] = []
    for domain in shown:
        lines += [gpu_line(domain), scale_up_line(domain)]
        if spec.scale_out is not None:
            lines.append(scale_out_line(spec.scale_out, domain))
    if len(kinds) > len(shown):
        lines.append(f"and {len(kinds) - len(shown)} more kinds of domain")
    if opened is not None and len(spec.domains) > 1:
        lines.append(f"Drawn here: domain d{opened} of {len(spec.domains)}")
    return lines
