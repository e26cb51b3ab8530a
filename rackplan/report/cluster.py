"""Documents of clusters: traffic over their links, what was drawn, what was imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from cost.calibration.collectives import Way, reached_beside
from rackplan.report.doc import Chart, Code, Doc, Layer, Note, Picture, Record, Row, Shape, Table
from rackplan.report.fields import phrase
from rackplan.report.shared import SET, set_table
from topology.base.units import format_quantity, plural
from topology.cluster import Cluster
from topology.draw import cluster_svg
from topology.importers import Imported
from topology.importers.build import scale_up_groups
from topology.importers.hostlist import compress_hosts
from topology.routes import FairTime, Link, LinkLoads, Traffic

HOTTEST = 6
"""Loads of links that are listed."""
_MIN_SLOWDOWN = 5e-4
"""Share of the bound by which a fair time is longer that is told; less reads as 0.0 %."""
_METHOD = "Bytes count once per tier, however many links they cross."
_LINK = "link tier bytes bytes_per_s seconds"
SENT = Record.of(
    "",
    "bytes senders completion_s bound_s transfer_s latency_s bytes_per_s_per_gpu reached_bytes_per_s_per_gpu "
    "reached_s scale_up_bytes_ratio scale_up_rate_ratio matrix | cluster gpus pattern completion classes "
    "reached_share reached_evidence reached_source",
    tiles="completion_s bound_s bytes_per_s_per_gpu reached_bytes_per_s_per_gpu",
)
BOTTLENECK = Record.of("bottleneck", _LINK, "Bottleneck", max_rows=0)
BOTTLENECKS = Table.of("bottlenecks", _LINK, "All links that tie", max_rows=0)
TIERS = Table.of("tiers", "tier bytes seconds completion_share", "Tiers")
HOT = Table.of("hottest", "link links bytes_per_s bytes seconds | tier", "Hottest links")
WAYS = Table.of(
    "ways",
    "algorithm completion_s bytes_per_s_per_gpu reached_s reached_bytes_per_s_per_gpu",
    "Ways to do it",
    max_rows=None,
)
TRAFFIC = Shape(
    "traffic", "Traffic over the links of a cluster.", (SENT, BOTTLENECK, BOTTLENECKS, WAYS, TIERS, HOT, SET)
)


def traffic_doc(
    cluster: Cluster,
    traffic: Traffic,
    loads: LinkLoads,
    time: FairTime | None,
    ways: Sequence[Way] = (),
    matrix: Path | None = None,
) -> Doc:
    """Return the document of ``rackplan traffic``.

    ``time`` is None if interrupted; ``ways`` are those of a collective, the one that is told first; ``matrix`` is a
    file of times.
    """
    out, fair = cluster.spec.scale_out, time is not None and time.fair
    completion_s = loads.bound_s if time is None else time.completion_s
    beside = reached_beside(cluster, traffic, loads, ways)
    useful = ways[0].bus_bytes if ways else loads.total_bytes / loads.senders
    reached_s = (completion_s - loads.latency_s) * beside.times + loads.latency_s
    row = SENT.row(
        loads,
        time,
        cluster=cluster.name,
        gpus=len(cluster.gpus),
        pattern=traffic.name,
        bytes=loads.total_bytes,
        completion_s=completion_s,
        completion="fair" if fair else "bound",
        bytes_per_s_per_gpu=useful / completion_s,
        reached_bytes_per_s_per_gpu=useful / reached_s,
        reached_s=reached_s,
        reached_share=1 / beside.times,
        reached_evidence=beside.figure.kind.label,
        reached_source=beside.figure.source,
        scale_up_bytes_ratio=loads.scale_up_bytes / loads.scale_out_bytes if loads.scale_out_bytes else None,
        scale_up_rate_ratio=out.slower_than(cluster.domain_of(0)) if out else None,
        matrix=matrix and str(matrix),
    )
    shares = ((name, tier, tier.seconds / completion_s) for name, tier in loads.tiers.items())
    tiers = TIERS(TIERS.row(tier, tier=name, completion_share=share) for name, tier, share in shares)
    ties = BOTTLENECKS(map(_link, loads.links(loads.busiest)))
    hot, tied = _link(loads.bottleneck), len(ties.rows) - 1
    busy = f"{hot['link']} ({hot['tier']}, {phrase(hot, 'bytes_per_s')}) is busy for {phrase(hot, 'seconds')}"
    tied_words = f", and so are {plural(tied, 'link')} more" if tied else ""
    return Doc(
        TRAFFIC,
        f"{traffic.name} on {cluster.name}, {plural(len(cluster.gpus), 'GPU')}",
        [
            _completion(row, time),
            f"{busy}{tied_words}.",
            _reached(row),
        ],
        [
            set_table(cluster),
            SENT(row),
            BOTTLENECK(hot),
            WAYS(map(_way, ways)),
            tiers,
            Chart("", [Layer("bar", tiers, "seconds", "tier")], alt="Busiest link of each tier", height=220),
            HOT(dict(_link(group.link), links=group.count) for group in loads.hottest(HOTTEST)),
            ties,
            *(Note(text) for text in loads.notes),
            Note(_METHOD, kind="method"),
        ],
    )


def _reached(row: Row) -> str:
    """Return what large messages reach of line rate, and how that is known."""
    rate, seconds = phrase(row, "reached_bytes_per_s_per_gpu"), phrase(row, "reached_s")
    return (
        f"That is at line rate; large messages reach {phrase(row, 'reached_share')} of it, {rate} a GPU in {seconds} "
        f"({row['reached_evidence']}: {row['reached_source']})."
    )


def _way(way: Way) -> Row:
    return WAYS.row(
        way,
        completion_s=way.loads.bound_s,
        bytes_per_s_per_gpu=way.bus_bytes / way.loads.bound_s,
        reached_bytes_per_s_per_gpu=way.bus_bytes / way.reached_s,
    )


def _link(link: Link) -> Row:
    return BOTTLENECK.row(link, link=f"{link.ends[0]} -> {link.ends[1]}", bytes=link.load_bytes)


def _completion(row: Row, time: FairTime | None) -> str:
    """Return when the last byte arrives."""
    if time is None or not time.fair:
        why = "interrupted" if time is None else f"not computed, {time.classes:,} classes of flows"
        return f"All has arrived after {phrase(row, 'bound_s')} at the earliest (under fair sharing: {why})."
    longer = time.completion_s / time.bound_s - 1
    beside = f"{longer:.1%} above the bound" if longer >= _MIN_SLOWDOWN else "which is the bound"
    return f"All has arrived after {phrase(row, 'completion_s')} if links are shared fairly, {beside}."


DRAWN = Record.of("", "cluster gpus file", max_rows=0)
DRAW = Shape("draw", "A cluster that was drawn.", (DRAWN, SET), "text")


def drawn_doc(clusters: Sequence[Cluster], file: Path | None, text: str | None = None) -> Doc:
    """Return the document of ``rackplan draw``; ``text`` is the file where none was written."""
    names = ", ".join(cluster.name for cluster in clusters)
    gpus = sum(len(cluster.gpus) for cluster in clusters)
    written = f"{file} ({names}, {plural(gpus, 'GPU')})" if file else ""
    drawn = DRAWN({"cluster": names, "gpus": gpus, "file": file and str(file)})
    files = [] if text is None else [Code("text", text)]
    return Doc(DRAW, "", [], [drawn, set_table(*clusters), Note(written, kind="written"), *files])


GPUS = Table.of(
    "gpus",
    "gpu_id gpu domain node rack rail hbm_bytes hbm_bytes_per_s scale_up_bytes_per_s",
    "GPUs",
)
CLUSTER = Shape("cluster", "The GPUs of a cluster that work.", (GPUS,))


def cluster_doc(cluster: Cluster) -> Doc:
    """Return the document of a cluster: its drawing, and a row for each GPU that works."""
    rows = (
        GPUS.row(
            gpu, kind, gpu_id=gpu.id, gpu=kind.name, scale_up_bytes_per_s=cluster.scale_up_bytes_per_s(number)
        )
        for number, gpu in enumerate(cluster.gpus)
        for kind in [cluster.domain_of(number).gpu]
    )
    drawing = Picture("topology", cluster.brief(), partial(cluster_svg, cluster), scene=True)
    return Doc(CLUSTER, cluster.brief(), [], [drawing, GPUS(rows)])


IMPORTED = Record.of("", "gpus domains hosts form | cluster file")
FILES = Table.of("read", "name file_kind file_content", "Read", max_rows=None)
ASSUMED = Table.of("taken", "remark_kind assumption", "Taken for what no file states", max_rows=None)
ANOMALIES = Table.of("anomalies", "remark_kind anomaly", "Not used, or irregular", max_rows=40)
IMPORT = Shape("import", "A cluster that was imported.", (IMPORTED, FILES, ASSUMED, ANOMALIES), "text")
_KINDS = {"nic": "NIC", "pcie": "PCIe switch", "host": "CPU socket"}


_REMARKS = {
    "read": "read",
    "option": "option",
    "assumed": "assumed",
    "unused": "not used",
    "irregular": "irregular",
}
"""What each kind of remark is called, in the order they are shown."""


def _remarks(imported: Imported, *kinds: str) -> list[tuple[str, str]]:
    """Return what is said of an import by kind: (what the kind is called, text)."""
    return [
        (_REMARKS[kind], text)
        for kind in kinds
        for remark_kind, text in imported.remarks
        if remark_kind == kind
    ]


def imported_doc(imported: Imported, file: Path | None, text: str) -> Doc:
    """Return the document of ``rackplan import``; ``text`` is the cluster file, which may have been written."""
    spec, odd = imported.spec, _remarks(imported, "irregular")
    row = {
        "cluster": spec.name,
        "file": file and str(file),
        "form": "raw" if spec.raw is not None else "regular",
        "gpus": spec.gpus,
        "domains": len(spec.domains),
        "hosts": sum(map(len, imported.domains.values())),
    }
    irregular = plural(len(odd), "irregular part") if odd else "No part is irregular"
    return Doc(
        IMPORT,
        "",
        [f"{'; '.join(_machine(imported))}.", f"{irregular}."],
        [
            IMPORTED(row),
            FILES((read.place, read.kind, read.content) for read in imported.files),
            ASSUMED(_remarks(imported, "read", "option", "assumed")),
            ANOMALIES([*odd, *_remarks(imported, "unused")]),
            Note(f"rackplan draw {file} -o cluster.svg" if file else "", kind="next"),
            *([] if file else [Code("text", text)]),
        ],
    )


def import_comments(imported: Imported, version: str) -> list[str]:
    """Return the comments at the top of the cluster file."""
    lines = [f"Imported by rackplan {version}."]
    lines += [f"File {file.place} ({file.kind}): {file.content}" for file in imported.files]
    lines += [f"{kind.capitalize()}: {text}" for kind, text in _remarks(imported, *_REMARKS)]
    if imported.hosts:
        lines.append(f"Hosts in order (d0.n0, d0.n1, ...): {compress_hosts(imported.hosts)}")
    return lines


def _machine(imported: Imported) -> Iterator[str]:
    """Yield how much there is."""
    spec, domains = imported.spec, imported.spec.domains
    gpus = Counter(domain.gpu.name for domain in domains for _ in range(domain.gpus))
    hosts = sum(map(len, imported.domains.values()))
    sizes = Counter(domain.gpus for domain in domains)
    shape = ", ".join(f"{count} of {size}" for size, count in sizes.most_common(6))
    out = sum(fault.gpu is not None for fault in spec.faults)
    broken = f"; {out} of them broken or absent" if out else ""
    yield f"{plural(sum(gpus.values()), 'GPU')} ({', '.join(gpus)}{broken}) in {plural(hosts, 'host')}"
    yield f"{plural(len(domains), 'scale-up domain')} ({shape} {'GPU' if set(sizes) == {1} else 'GPUs'})"
    least = min(filter(None, (domain.scale_up_bytes_per_s for domain in domains)), default=0.0)
    alone = sum(domain.gpus for domain in domains if not domain.scale_up_bytes_per_s)
    but = f", except {plural(alone, 'GPU')} without any" if alone else ""
    inside = f"scale-up at least {format_quantity(least, 'byte/s')} each way per GPU{but}"
    groups = [group for group in scale_up_groups(spec.raw) if len(group) > 1] if spec.raw is not None else []
    among = f" in {len(groups)} groups, joined more slowly" if len(groups) > len(domains) else ""
    yield inside + among if least else "no scale-up links"
    if spec.scale_out is not None:
        yield f"scale-out at least {format_quantity(spec.scale_out.scale_out_bytes_per_s, 'byte/s')}"
    if spec.raw is not None:
        kinds = Counter(node.kind for node in spec.raw.nodes if node.kind != "gpu")
        counted = (plural(count, _KINDS.get(kind, kind)) for kind, count in kinds.items())
        yield ", ".join(counted) or "no switches"
