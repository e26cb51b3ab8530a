"""Traffic over the links of a cluster: completion, the bottleneck, tiers and the hottest links."""

from __future__ import annotations

import math
from typing import Any

from rackplan.views.blocks import Heading, Table, Text, View, labelled, sections
from topology.cluster import Cluster
from topology.routes import Link, LinkLoads, Traffic
from topology.units import format_quantity

HOTTEST = 6
"""Groups of links that are listed."""


def traffic_view(cluster: Cluster, traffic: Traffic, loads: LinkLoads) -> View:
    """Return what ``rackplan traffic`` says; in the data bytes, seconds, bytes/s per direction."""
    hot = loads.bottleneck
    completion = (
        f"{_seconds(loads.completion_s)}: {_seconds(loads.transfer_s)} on the busiest link and "
        f"{_seconds(loads.latency_s)} latency of the longest route"
    )
    sent = (
        f"{format_quantity(loads.total_bytes, 'byte')} from {loads.senders:,} GPUs, "
        f"{format_quantity(loads.total_bytes / loads.senders, 'byte')} each"
    )
    rate = format_quantity(loads.bytes_per_s_per_gpu, "byte/s")
    tiers = [
        (
            name,
            format_quantity(tier.bytes, "byte"),
            _seconds(tier.seconds),
            f"{tier.seconds / loads.completion_s:.1%}",
        )
        for name, tier in loads.tiers.items()
    ]
    hottest = [
        (
            _ends(group.link),
            f"{group.count:,}",
            format_quantity(group.link.bytes_per_s, "byte/s"),
            format_quantity(group.link.load_bytes, "byte"),
            _seconds(group.link.seconds),
        )
        for group in loads.hottest(HOTTEST)
    ]
    blocks = sections(
        [
            Heading(f"{traffic.name} on {cluster.name}, {len(cluster.gpus):,} GPUs"),
            Text(completion, "Completion"),
            Text(sent, "Bytes"),
            Text(f"{rate} effective, in the mean over senders", "Per GPU"),
            Text(f"{_ends(hot)} ({hot.tier}, {format_quantity(hot.bytes_per_s, 'byte/s')})", "Bottleneck"),
            *labelled("Up : out", _ratios(cluster, loads)),
        ],
        [Table(("tier", "bytes", "busiest link", "of completion"), tiers)],
        [Table(("hottest links", "how many", "rate", "bytes", "time"), hottest)],
        [
            Text("Rates per direction. Bytes count once per tier, however many of its links they take."),
            *(Text(note, "Note") for note in loads.notes),
        ],
    )
    return View(blocks, _data(cluster, traffic, loads))


def _data(cluster: Cluster, traffic: Traffic, loads: LinkLoads) -> dict[str, Any]:
    def link_data(link: Link) -> dict[str, Any]:
        return {
            "link": _ends(link),
            "tier": link.tier,
            "bytes": link.load_bytes,
            "bytes_per_s": link.bytes_per_s,
            "seconds": link.seconds,
        }

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
        "bottleneck": link_data(loads.bottleneck),
        "tiers": {name: {"bytes": tier.bytes, "seconds": tier.seconds} for name, tier in loads.tiers.items()},
        "hottest": [{**link_data(one.link), "links": one.count} for one in loads.hottest(HOTTEST)],
        "scale_up_over_scale_out": {"bytes": _byte_ratio(loads), "bytes_per_s": _rate_ratio(cluster)},
        "notes": list(loads.notes),
    }


def _ratios(cluster: Cluster, loads: LinkLoads) -> str:
    """Say how bytes and rates inside domains compare with those between them."""
    rate, amount = _rate_ratio(cluster), _byte_ratio(loads)
    if rate is None:
        return ""
    words = "no bytes leave a domain" if amount is None else f"{amount:.3g} : 1 in bytes"
    return f"scale-up to scale-out, {rate:.3g} : 1 in bytes/s of a GPU; {words}"


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


def _ends(link: Link) -> str:
    """Write a directed link."""
    return f"{link.ends[0]} -> {link.ends[1]}"


def _seconds(value: float) -> str:
    """Write seconds."""
    return format_quantity(value, "s") if value else "0 s"
