"""Cluster views: traffic over links, and import results with assumptions and irregularities."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pydantic.dataclasses import dataclass

from rackplan.views.blocks import Block, Heading, Items, Lines, Page, Table, Text, View, labelled, sections
from rackplan.views.data import LEFT_OUT, Maybe, SetData, taken
from rackplan.views.settings import set_blocks, set_data
from topology.base.units import format_quantity, plural
from topology.cluster import Cluster, ClusterSpec
from topology.importers import Imported
from topology.importers.hostlist import compress_hosts
from topology.routes import FairTime, Link, LinkLoads, Traffic

_LONGER = 5e-4  # a part of the bound that is worth a word
HOTTEST = 6
"""Maximum link groups listed."""
_KINDS = {"nic": "NIC", "pcie": "PCIe switch", "host": "CPU socket"}
_MOST_SHOWN = 40
"""Maximum irregular parts listed."""


@dataclass(frozen=True, kw_only=True)
class DrawResult(SetData):
    """Output of ``rackplan draw``: the drawn cluster and the file.

    Attributes
    ----------
    cluster, gpus, file:
        The name, the GPUs, and what was written; null: nothing, without ``-o``.
    text:
        Without ``-o``: the file.
    """

    cluster: str
    gpus: int
    file: str | None
    text: Maybe[str] = LEFT_OUT


@dataclass(frozen=True, kw_only=True)
class LinkData:
    """A link under traffic.

    Attributes
    ----------
    link, tier:
        Its ends, and the tier of the network that it is of.
    bytes, bytes_per_s, seconds:
        What it carries, its rate per direction, and how long that takes.
    """

    link: str
    bytes: float
    tier: str
    bytes_per_s: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class HotLinkData(LinkData):
    """A load of links.

    Attributes
    ----------
    links:
        How many links have it.
    """

    links: int


@dataclass(frozen=True, kw_only=True)
class TierData:
    """A tier of the network under traffic.

    Attributes
    ----------
    bytes, seconds:
        What its links carry, once each, and the time of the busiest.
    """

    bytes: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RatioData:
    """Scale-up over scale-out.

    Attributes
    ----------
    bytes, bytes_per_s:
        Of what is carried (null: none leaves a domain), and of a GPU's rates (null: there is one domain).
    """

    bytes: float | None
    bytes_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class TrafficResult(SetData):
    """Output of ``rackplan traffic``: traffic over the links of a cluster.

    Attributes
    ----------
    cluster, gpus, pattern, bytes, senders:
        The cluster, what was sent, in all, and by how many GPUs.
    completion_s, completion:
        When all has arrived: with links shared fairly (``fair``), or the ``bound``.
    bound_s, transfer_s, latency_s:
        The time of the busiest link, with latency; without; the latency alone.
    classes:
        Distinct kinds of flows; null where fair sharing was not computed.
    bytes_per_s_per_gpu:
        Rate of a sender.
    bottleneck, bottlenecks:
        The busiest link, and all that tie.
    tiers, hottest:
        By tier, and the largest loads of links.
    scale_up_over_scale_out:
        Of bytes and rates.
    matrix:
        The file of times between GPUs; null: none was asked for.
    notes:
        What a reader should know.
    """

    cluster: str
    gpus: int
    pattern: str
    bytes: float
    completion_s: float
    completion: str
    bound_s: float
    transfer_s: float
    latency_s: float
    senders: int
    classes: int | None
    bytes_per_s_per_gpu: float
    bottleneck: LinkData
    bottlenecks: list[LinkData]
    tiers: dict[str, TierData]
    hottest: list[HotLinkData]
    scale_up_over_scale_out: RatioData
    matrix: str | None
    notes: tuple[str, ...]


def traffic_result(
    cluster: Cluster, traffic: Traffic, loads: LinkLoads, time: FairTime | None, matrix: Path | None = None
) -> TrafficResult:
    """Return the traffic as data; ``time`` is None if interrupted."""
    out, completion_s = cluster.spec.scale_out, loads.bound_s if time is None else time.completion_s

    def link(one: Link) -> LinkData:
        return taken(LinkData, one, link=_ends(one), bytes=one.load_bytes)

    return taken(
        TrafficResult,
        loads,
        cluster=cluster.name,
        gpus=len(cluster.gpus),
        **set_data(cluster),
        pattern=traffic.name,
        bytes=loads.total_bytes,
        completion_s=completion_s,
        completion="fair" if time is not None and time.fair else "bound",
        classes=None if time is None else time.classes,
        bytes_per_s_per_gpu=loads.total_bytes / loads.senders / completion_s,
        bottleneck=link(loads.bottleneck),
        bottlenecks=[link(one) for one in loads.links(loads.busiest)],
        tiers={name: taken(TierData, tier) for name, tier in loads.tiers.items()},
        hottest=[HotLinkData(**vars(link(one.link)), links=one.count) for one in loads.hottest(HOTTEST)],
        scale_up_over_scale_out=RatioData(
            bytes=_byte_ratio(loads), bytes_per_s=out.slower_than(cluster.domain_of(0)) if out else None
        ),
        matrix=None if matrix is None else str(matrix),
    )


def traffic_view(
    cluster: Cluster, traffic: Traffic, loads: LinkLoads, time: FairTime | None, matrix: Path | None = None
) -> View:
    """Return the blocks and the data of ``rackplan traffic``; ``matrix`` is the file of times between GPUs."""
    found = traffic_result(cluster, traffic, loads, time, matrix)
    ties, hot = len(found.bottlenecks) - 1, found.bottleneck
    bound = (
        f"{_duration(found.bound_s)}: {_duration(found.transfer_s)} on the busiest link, "
        f"{_duration(found.latency_s)} latency; lower bound for these routes"
    )
    sent = (
        f"{format_quantity(found.bytes, 'byte')} from {plural(found.senders, 'GPU')}, "
        f"{format_quantity(found.bytes / found.senders, 'byte')} each"
    )
    rate = format_quantity(found.bytes_per_s_per_gpu, "byte/s")
    tiers = Table.of(
        found.tiers.items(),
        ("tier", lambda tier: tier[0]),
        ("bytes", lambda tier: format_quantity(tier[1].bytes, "byte")),
        ("busiest link", lambda tier: _duration(tier[1].seconds)),
        ("of completion", lambda tier: f"{tier[1].seconds / found.completion_s:.1%}"),
    )

    def picture() -> list[Block]:
        from rackplan.views.pictures.strips import links_picture

        rows = [(name, one.seconds, _duration(one.seconds)) for name, one in found.tiers.items()]
        return [links_picture(rows, found.completion_s)] if rows else []

    hottest = Table.of(
        found.hottest,
        ("hottest links", lambda one: one.link),
        ("count", lambda one: f"{one.links:,}"),
        ("rate", lambda one: format_quantity(one.bytes_per_s, "byte/s")),
        ("bytes", lambda one: format_quantity(one.bytes, "byte")),
        ("time", lambda one: _duration(one.seconds)),
    )
    blocks = sections(
        [
            Heading(f"{found.pattern} on {found.cluster}, {plural(found.gpus, 'GPU')}"),
            *set_blocks("Set", cluster),
            Text(_completion(loads, time), "Completion"),
            Text(bound, "Bound"),
            Text(sent, "Bytes"),
            Text(f"{rate} effective, mean over senders", "Per GPU"),
            Text(
                f"{hot.link} ({hot.tier}, {format_quantity(hot.bytes_per_s, 'byte/s')})"
                + (f", and {plural(ties, 'more link')} with equal load" if ties else ""),
                "Bottleneck",
            ),
            *labelled("Ratio", _ratios(found.scale_up_over_scale_out)),
            *labelled("Matrix", found.matrix or ""),
        ],
        [Page(picture), tiers],
        [hottest],
        [
            Text(
                "Rates are per direction. Bytes count once per tier, regardless of the number of links they cross."
            ),
            *(Text(note, "Note") for note in found.notes),
        ],
    )
    return View(blocks, found)


def _completion(loads: LinkLoads, time: FairTime | None) -> str:
    """Return when the last byte arrives."""
    if time is None or not time.fair:
        why = "interrupted" if time is None else f"not computed, {time.classes:,} classes of flows"
        return f"at least {_duration(loads.bound_s)}, the bound (time under fair sharing: {why})"
    longer = time.completion_s / time.bound_s - 1
    beside = f"{longer:.1%} above the bound" if longer >= _LONGER else "equal to the bound"
    return f"{_duration(time.completion_s)} if all flows start together and share links fairly, {beside}"


def _ratios(found: RatioData) -> str:
    """Return how bytes and rates inside domains compare with those between them."""
    if found.bytes_per_s is None:
        return ""
    amount = "no bytes leave their domain" if found.bytes is None else f"{found.bytes:.3g} : 1 in bytes"
    return f"scale-up to scale-out, {found.bytes_per_s:.3g} : 1 in bytes/s of a GPU; {amount}"


def _byte_ratio(loads: LinkLoads) -> float | None:
    """Return scale-up over scale-out bytes, None where none leave a domain."""
    return loads.scale_up_bytes / loads.scale_out_bytes if loads.scale_out_bytes else None


def _ends(link: Link) -> str:
    """Write a directed link."""
    return f"{link.ends[0]} -> {link.ends[1]}"


def _duration(value: float) -> str:
    """Write seconds."""
    return format_quantity(value, "s") if value else "0 s"


@dataclass(frozen=True, kw_only=True)
class ReadFileData:
    """A file that was imported.

    Attributes
    ----------
    name, kind:
        What it is called, and what it is.
    """

    name: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """Output of ``rackplan import``: the imported cluster.

    Attributes
    ----------
    file, form:
        What was written (null: nothing, without ``-o``): ``regular`` (domains and a fabric) or ``raw`` (every link).
    gpus, domains, hosts:
        How many.
    read:
        The files.
    taken, anomalies:
        What was taken as given, and what is odd, in sentences.
    text:
        Without ``-o``: the file.
    """

    file: str | None
    text: Maybe[str] = LEFT_OUT
    form: str
    gpus: int
    domains: int
    hosts: int
    read: list[ReadFileData]
    taken: tuple[str, ...]
    anomalies: tuple[str, ...]


def import_view(imported: Imported, output: Path | None) -> View:
    """Return the blocks and the data of ``rackplan import``."""
    files = [f"{file.place} ({file.kind})" for file in imported.files]
    count = len(imported.anomalies)
    taken: list[Block] = [
        Text("Taken from options or the catalog, since no file states it"),
        Items(imported.assumptions, hanging=True),
    ]
    odd: list[Block] = [Text(f"Irregular parts: {count}" if count else "No irregular parts")]
    odd.append(Items(imported.anomalies[:_MOST_SHOWN], hanging=True))
    if count > _MOST_SHOWN:
        odd.append(Lines([f"  ... and {count - _MOST_SHOWN} more, all listed in the file"]))
    form = "nodes and links" if imported.spec.raw is not None else "domains and fabric"
    blocks = sections(
        [Text("Read"), Items(files, hanging=True)],
        [Text("Found"), Items([_found(imported)], hanging=True)],
        taken if imported.assumptions else [],
        odd,
        [Lines([f"Written  {output} ({form}); draw it: rackplan draw {output} -o cluster.svg"])],
    )
    found = ImportResult(
        file=None if output is None else str(output),
        form="raw" if imported.spec.raw is not None else "regular",
        gpus=imported.spec.gpus,
        domains=len(imported.spec.domains),
        hosts=sum(map(len, imported.domains.values())),
        read=[ReadFileData(name=file.place, kind=file.kind) for file in imported.files],
        taken=imported.assumptions,
        anomalies=imported.anomalies,
    )
    return View(blocks, found)


def import_comments(imported: Imported, version: str) -> list[str]:
    """Return the comments at the top of the cluster file."""
    lines = [f"Imported by rackplan {version}."]
    lines += [f"Read {file.place} ({file.kind})" for file in imported.files]
    lines += [f"Taken: {taken}" for taken in imported.assumptions]
    lines += [f"Irregular: {anomaly}" for anomaly in imported.anomalies]
    if imported.hosts:
        lines.append(f"Hosts in order (d0.n0, d0.n1, ...): {compress_hosts(imported.hosts)}")
    return lines


def _found(imported: Imported) -> str:
    """Return how much there is."""
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
    """Return what the GPUs have inside their domains, and how many have nothing."""
    rates = [domain.scale_up_bytes_per_s for domain in spec.domains]
    least = min((rate for rate in rates if rate), default=0.0)
    alone = sum(domain.gpus for domain, rate in zip(spec.domains, rates, strict=True) if not rate)
    if not least:
        return "no scale-up links"
    some = f", except {plural(alone, 'GPU')} without any" if alone else ""
    return f"scale-up at least {format_quantity(least, 'byte/s')} each way per GPU{some}"
