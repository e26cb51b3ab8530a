"""What a person, or a program, reads after ``rackplan traffic``."""

from __future__ import annotations

import math
from typing import Any

from rackplan.words import table, underlined, wrapped
from topology.cluster import Cluster
from topology.routes import Link, LinkLoads, Traffic
from topology.units import format_quantity

HOTTEST = 6


def traffic_data(cluster: Cluster, traffic: Traffic, loads: LinkLoads) -> dict[str, Any]:
    """Return the result as plain data: bytes, seconds, bytes/s per direction."""
    hot = loads.bottleneck
    return {
        "cluster": cluster.name,
        "gpus": len(cluster.gpus),
        "pattern": traffic.name,
        "completion_s": loads.completion_s,
        "transfer_s": loads.transfer_s,
        "latency_s": loads.latency_s,
        "bytes": loads.total_bytes,
        "senders": loads.senders,
        "bytes_per_s_per_gpu": loads.bytes_per_s_per_gpu,
        "bottleneck": {
            "link": _ends(hot),
            "tier": hot.tier,
            "bytes": hot.load_bytes,
            "bytes_per_s": hot.bytes_per_s,
            "seconds": hot.seconds,
        },
        "tiers": {name: {"bytes": tier.bytes, "seconds": tier.seconds} for name, tier in loads.tiers.items()},
        "hottest": [
            {
                "link": _ends(group.link),
                "tier": group.link.tier,
                "links": group.count,
                "bytes": group.link.load_bytes,
                "bytes_per_s": group.link.bytes_per_s,
                "seconds": group.link.seconds,
            }
            for group in loads.hottest(HOTTEST)
        ],
        "scale_up_over_scale_out": {"bytes": _byte_ratio(loads), "bytes_per_s": _rate_ratio(cluster)},
        "notes": list(loads.notes),
    }


def traffic_summary(cluster: Cluster, traffic: Traffic, loads: LinkLoads) -> str:
    """Return the result for people."""
    hot = loads.bottleneck
    lines = underlined(f"{traffic.name} on {cluster.name}, {len(cluster.gpus):,} GPUs")
    lines += wrapped(
        "Completion",
        f"{_seconds(loads.completion_s)}: {_seconds(loads.transfer_s)} on the busiest link and "
        f"{_seconds(loads.latency_s)} latency of the longest route",
    )
    lines += wrapped(
        "Bytes",
        f"{format_quantity(loads.total_bytes, 'byte')} from {loads.senders:,} GPUs, "
        f"{format_quantity(loads.total_bytes / loads.senders, 'byte')} each",
    )
    lines += wrapped(
        "Per GPU",
        f"{format_quantity(loads.bytes_per_s_per_gpu, 'byte/s')} effective, in the mean over senders",
    )
    lines += wrapped("Bottleneck", f"{_ends(hot)} ({hot.tier}, {format_quantity(hot.bytes_per_s, 'byte/s')})")
    lines += _ratios(cluster, loads)
    lines += ["", *table(_tier_rows(loads)), "", *table(_hottest_rows(loads))]
    lines += ["", "Rates per direction. Bytes count once per tier, however many of its links they take."]
    for note in loads.notes:
        lines += wrapped("Note", note)
    return "\n".join(lines)


def _ratios(cluster: Cluster, loads: LinkLoads) -> list[str]:
    """Say how bytes and rates inside domains compare with those between them."""
    rate, amount = _rate_ratio(cluster), _byte_ratio(loads)
    if rate is None:
        return []
    words = "no bytes leave a domain" if amount is None else f"{amount:.3g} : 1 in bytes"
    return wrapped("Up : out", f"scale-up to scale-out, {rate:.3g} : 1 in bytes/s of a GPU; {words}")


def _byte_ratio(loads: LinkLoads) -> float | None:
    """Return scale-up over scale-out bytes, None where none leave a domain."""
    return loads.scale_up_bytes / loads.scale_out_bytes if loads.scale_out_bytes else None


def _rate_ratio(cluster: Cluster) -> float | None:
    """Return scale-up over scale-out bytes/s of the first GPU, None without a fabric or a published rate."""
    out = cluster.spec.scale_out
    if out is None:
        return None
    ratio = cluster.domain_of(0).scale_up_bytes_per_s / out.scale_out_bytes_per_s
    return ratio if math.isfinite(ratio) else None


def _tier_rows(loads: LinkLoads) -> list[list[str]]:
    """One row a tier."""
    rows = [["tier", "bytes", "busiest link", "of completion"]]
    for name, tier in loads.tiers.items():
        share = f"{tier.seconds / loads.completion_s:.1%}"
        rows.append([name, format_quantity(tier.bytes, "byte"), _seconds(tier.seconds), share])
    return rows


def _hottest_rows(loads: LinkLoads) -> list[list[str]]:
    """One row a group of links that are equally busy."""
    rows = [["hottest links", "how many", "rate", "bytes", "time"]]
    for group in loads.hottest(HOTTEST):
        link = group.link
        rows.append(
            [
                _ends(link),
                f"{group.count:,}",
                format_quantity(link.bytes_per_s, "byte/s"),
                format_quantity(link.load_bytes, "byte"),
                _seconds(link.seconds),
            ]
        )
    return rows


def _ends(link: Link) -> str:
    """Write a directed link."""
    return f"{link.ends[0]} -> {link.ends[1]}"


def _seconds(value: float) -> str:
    """Write seconds."""
    return format_quantity(value, "s") if value else "0 s"
