"""Clusters: traffic over their links, and what an import found, took from the user, or thinks odd."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from rackplan.schemas.clusters import ImportPrinted, LinkData, TrafficPrinted
from rackplan.views.blocks import Block, Heading, Items, Lines, Table, Text, View, labelled, sections
from rackplan.views.settings import set_blocks, set_data
from topology.base.units import format_quantity, plural
from topology.cluster import Cluster, ClusterSpec
from topology.importers import Imported
from topology.importers.hostlist import compress_hosts
from topology.routes import FairTime, Link, LinkLoads, Traffic

_LONGER = 5e-4  # a part of the bound that is worth a word
HOTTEST = 6
"""Groups of links that are listed."""
_KINDS = {"nic": "NIC", "pcie": "PCIe switch", "host": "CPU socket"}
_MOST_SHOWN = 40
"""Parts unlike their siblings that are listed."""


def traffic_view(cluster: Cluster, traffic: Traffic, loads: LinkLoads, time: FairTime | None) -> View:
    """Return what ``rackplan traffic`` says; in the data bytes, seconds, bytes/s per direction.

    ``time`` is None where Ctrl-C came before it was known.
    """
    hot, groups, ties = loads.bottleneck, loads.hottest(HOTTEST), len(loads.busiest) - 1
    time_s = loads.bound_s if time is None else time.completion_s
    bound = (
        f"{_duration(loads.bound_s)}: {_duration(loads.transfer_s)} on the busiest link, "
        f"{_duration(loads.latency_s)} latency; no schedule on these routes is faster"
    )
    sent = (
        f"{format_quantity(loads.total_bytes, 'byte')} from {plural(loads.senders, 'GPU')}, "
        f"{format_quantity(loads.total_bytes / loads.senders, 'byte')} each"
    )
    rate = format_quantity(loads.total_bytes / loads.senders / time_s, "byte/s")
    tiers = Table.of(
        loads.tiers.items(),
        ("tier", lambda tier: tier[0]),
        ("bytes", lambda tier: format_quantity(tier[1].bytes, "byte")),
        ("busiest link", lambda tier: _duration(tier[1].seconds)),
        ("of completion", lambda tier: f"{tier[1].seconds / time_s:.1%}"),
    )
    hottest = Table.of(
        groups,
        ("hottest links", lambda group: _ends(group.link)),
        ("how many", lambda group: f"{group.count:,}"),
        ("rate", lambda group: format_quantity(group.link.bytes_per_s, "byte/s")),
        ("bytes", lambda group: format_quantity(group.link.load_bytes, "byte")),
        ("time", lambda group: _duration(group.link.seconds)),
    )
    blocks = sections(
        [
            Heading(f"{traffic.name} on {cluster.name}, {plural(len(cluster.gpus), 'GPU')}"),
            *set_blocks("Set", cluster),
            Text(_completion(loads, time), "Completion"),
            Text(bound, "Bound"),
            Text(sent, "Bytes"),
            Text(f"{rate} effective, in the mean over senders", "Per GPU"),
            Text(
                f"{_ends(hot)} ({hot.tier}, {format_quantity(hot.bytes_per_s, 'byte/s')})"
                + (f", and {ties:,} links more that are as busy" if ties else ""),
                "Bottleneck",
            ),
            *labelled("Up : out", _ratios(cluster, loads)),
        ],
        [tiers],
        [hottest],
        [
            Text("Rates per direction. Bytes count once per tier, however many of its links they take."),
            *(Text(note, "Note") for note in loads.notes),
        ],
    )
    return View(blocks, _traffic_data(cluster, traffic, loads, time))


def _completion(loads: LinkLoads, time: FairTime | None) -> str:
    """Say when the last byte arrives."""
    if time is None or not time.fair:
        why = "interrupted" if time is None else f"not computed, {time.classes:,} classes of flows"
        return f"at least {_duration(loads.bound_s)}, the bound (time under fair sharing: {why})"
    longer = time.completion_s / time.bound_s - 1
    beside = f"{longer:.1%} above the bound" if longer >= _LONGER else "as the bound"
    return f"{_duration(time.completion_s)} if all flows start at once and share links fairly, {beside}"


def _traffic_data(
    cluster: Cluster, traffic: Traffic, loads: LinkLoads, time: FairTime | None
) -> TrafficPrinted:
    time_s = loads.bound_s if time is None else time.completion_s

    def link_data(link: Link) -> LinkData:
        return {
            "link": _ends(link),
            "bytes": link.load_bytes,
            "tier": link.tier,
            "bytes_per_s": link.bytes_per_s,
            "seconds": link.seconds,
        }

    return {
        "cluster": cluster.name,
        "gpus": len(cluster.gpus),
        **set_data(cluster),
        "pattern": traffic.name,
        "bytes": loads.total_bytes,
        "completion_s": time_s,
        "completion": "fair" if time is not None and time.fair else "bound",
        "bound_s": loads.bound_s,
        "transfer_s": loads.transfer_s,
        "latency_s": loads.latency_s,
        "senders": loads.senders,
        "classes": None if time is None else time.classes,
        "bytes_per_s_per_gpu": loads.total_bytes / loads.senders / time_s,
        "bottleneck": link_data(loads.bottleneck),
        "bottlenecks": [link_data(link) for link in loads.links(loads.busiest)],
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


def _duration(value: float) -> str:
    """Write seconds."""
    return format_quantity(value, "s") if value else "0 s"


def import_view(imported: Imported, output: Path | None) -> View:
    """Return what ``rackplan import`` says."""
    files = [f"{file.place} ({file.kind})" for file in imported.files]
    count = len(imported.anomalies)
    taken: list[Block] = [
        Text("Taken from you or the catalog, as no file says it"),
        Items(imported.assumptions, hanging=True),
    ]
    odd: list[Block] = [Text(f"Unlike the rest: {count}" if count else "Nothing is unlike the rest")]
    odd.append(Items(imported.anomalies[:_MOST_SHOWN], hanging=True))
    if count > _MOST_SHOWN:
        odd.append(Lines([f"  ... and {count - _MOST_SHOWN} more: all are in the file"]))
    form = "nodes and links" if imported.spec.raw is not None else "domains and fabric"
    blocks = sections(
        [Text("Read"), Items(files, hanging=True)],
        [Text("Found"), Items([_found(imported)], hanging=True)],
        taken if imported.assumptions else [],
        odd,
        [Lines([f"Written  {output} ({form}); look at it: rackplan draw {output} -o cluster.svg"])],
    )
    return View(blocks, _import_data(imported, output))


def import_comments(imported: Imported, version: str) -> list[str]:
    """Return the comments at the top of the cluster file."""
    lines = [f"Imported by rackplan {version}."]
    lines += [f"Read {file.place} ({file.kind})" for file in imported.files]
    lines += [f"Taken: {taken}" for taken in imported.assumptions]
    lines += [f"Unlike the rest: {anomaly}" for anomaly in imported.anomalies]
    if imported.hosts:
        lines.append(f"Hosts in order (d0.n0, d0.n1, ...): {compress_hosts(imported.hosts)}")
    return lines


def _import_data(imported: Imported, output: Path | None) -> ImportPrinted:
    return {
        "file": None if output is None else str(output),
        "form": "raw" if imported.spec.raw is not None else "regular",
        "gpus": imported.spec.gpus,
        "domains": len(imported.spec.domains),
        "hosts": sum(len(hosts) for hosts in imported.domains.values()),
        "read": [{"name": file.place, "kind": file.kind} for file in imported.files],
        "taken": list(imported.assumptions),
        "anomalies": list(imported.anomalies),
    }


def _found(imported: Imported) -> str:
    """Say how much there is."""
    spec = imported.spec
    gpus = Counter(domain.gpu.name for domain in spec.domains for _ in range(domain.gpus))
    hosts = sum(len(members) for members in imported.domains.values())
    sizes = Counter(domain.gpus for domain in spec.domains)
    shape = ", ".join(f"{count} of {size}" for size, count in sizes.most_common(6))
    out = sum(fault.gpu is not None for fault in spec.faults)
    broken = f"; {out} of them broken or absent" if out else ""
    words = [
        f"{plural(sum(gpus.values()), 'GPU')} ({', '.join(gpus)}{broken}) in {plural(hosts, 'host')}",
        f"{plural(len(spec.domains), 'scale-up domain')} ({shape} {'GPU' if set(sizes) == {1} else 'GPUs'})",
        _scale_up_words(spec),
    ]
    if spec.scale_out is not None:
        words.append(f"scale-out at least {format_quantity(spec.scale_out.scale_out_bytes_per_s, 'byte/s')}")
    if spec.raw is not None:
        kinds = Counter(node.kind for node in spec.raw.nodes if node.kind != "gpu")
        words.append(
            ", ".join(plural(count, _KINDS.get(kind, kind)) for kind, count in kinds.items()) or "no switches"
        )
    return "; ".join(words) + "."


def _scale_up_words(spec: ClusterSpec) -> str:
    """Say what the GPUs have inside their domains, and how many have nothing."""
    rates = [domain.scale_up_bytes_per_s for domain in spec.domains]
    least = min((rate for rate in rates if rate), default=0.0)
    alone = sum(domain.gpus for domain, rate in zip(spec.domains, rates, strict=True) if not rate)
    if not least:
        return "no scale-up links"
    some = f", but {plural(alone, 'GPU')} without" if alone else ""
    return f"scale-up at least {format_quantity(least, 'byte/s')} each way per GPU{some}"
