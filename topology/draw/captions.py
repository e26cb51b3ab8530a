"""Words of a drawing: its title and subtitles, what joins GPUs, and names and counts in few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isnan

from topology.base.figures import Evidence, weakest
from topology.base.units import format_quantity, plural, span
from topology.cluster import Cluster
from topology.draw.fold import Fold, Links
from topology.fabrics.fabric import ScaleOutSpec
from topology.physical import physical_of_whole
from topology.spec import FabricSpec
from topology.structures.domain import DomainSpec
from topology.structures.torus import TorusDomain

_MAX_RANGES, _MAX_KINDS, _MAX_TITLES = 3, 3, 4
"""Ranges of numbers, kinds of domains and their titles that are named; the others are counted."""
UNCOUNTED = "switch chips: number not published"
"""Of switches where one in the graph replaces all."""


def ranges(numbers: Sequence[int], head: str = "d") -> str:
    """Return "d1 to d5, d7" for sorted numbers, at most three such parts."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [f"{head}{a}" if a == b else f"{head}{a} to {head}{b}" for a, b in runs]
    hidden = len(texts) - _MAX_RANGES
    return ", ".join(texts[:_MAX_RANGES]) + (", ..." if hidden > 0 else "")


def common_head(names: Sequence[str]) -> str:
    """Return what ids of ours have in common before their last dot ("f.p0"), or nothing."""
    heads = {name.rpartition(".")[0] for name in names}
    return heads.pop() if len(heads) == 1 else ""


def ids_text(names: Sequence[str]) -> str:
    """Return "f.s0 to f.s8", or the one name."""
    return span([names[0], names[-1]])


def broken_lines(text: str) -> list[str]:
    """Break "a x b = c" before the sign, to fit a narrow place."""
    terms, sign, total = text.partition(" = ")
    return [terms, f"= {total}"] if sign else [terms]


def slow_gpus(cluster: Cluster) -> dict[str, float]:
    """Return the GPUs of a cluster that work at a part of their rates, by id."""
    slow = cluster.spec.slow_gpus
    return {gpu.id: slow[gpu.id] for gpu in cluster.gpus if gpu.id in slow} if slow else {}


def title(cluster: Cluster) -> str:
    """Return the title: what the cluster is, how many GPUs, and whether it exists."""
    domains = cluster.spec.domains
    titles = Counter(kind_title(domain) for domain in domains)
    parts = [f"{count:,} x {name}" if len(domains) > 1 else name for name, count in titles.items()]
    if len(parts) > _MAX_TITLES:
        parts = [*parts[: _MAX_TITLES - 1], f"{len(parts) - _MAX_TITLES + 1} more kinds"]
    statuses, warning = {domain.status for domain in domains}, ""
    if "hypothetical" in statuses:
        warning = " (HYPOTHETICAL, projected figures)"
    elif any(is_projected(domain) for domain in domains):
        warning = " (announced: projected figures)"
    elif "blackboard" in statuses:
        warning = " (round figures, not a real machine)"
    broken, slow = cluster.spec.gpus - len(cluster.gpus), len(slow_gpus(cluster))
    gpus = plural(cluster.spec.gpus, cluster.spec.noun)
    if cluster is not cluster.whole:
        gpus = f"{len(cluster.gpus)} of {gpus}"
    elif broken:
        gpus += f", {broken} out of service"
    gpus += f", {slow} throttled" if slow else ""
    return f"{cluster.name}: {' + '.join(parts)}, {gpus}{warning}"


def physical_line(cluster: Cluster) -> str:
    """Return one line about power, copper and optical links, counted on the graph."""
    limits = physical_of_whole(cluster)
    switches = f", {limits.switch_racks} of them with switches" if limits.switch_racks else ""
    known = limits.racks.count is not None
    parts = [limits.racks.words + switches if known else plural(limits.hosts, "host")]
    if limits.power.value is not None:
        watts = format_quantity(limits.power.value, "W", 3)
        parts.append(f"{watts} {limits.power.scope} ({limits.power.evidence.label})")
    cables = [(limits.copper_links, "copper link"), (limits.optical_links, "optical link")]
    counted = [plural(count, word) for count, word in cables if count]
    if counted:
        parts.append(f"{' and '.join(counted)} outside hosts")
    if not all(fabric.counted for fabric in limits.cabling):
        parts.append("scale-up cables not published")
    elif not counted:
        parts.append("no cables between hosts")
    return f"Physical: {', '.join(parts)}"


def kind_title(domain: DomainSpec) -> str:
    """Return what a domain is; those of a raw graph by size and GPU, not by their own names."""
    if domain.structure == "raw":
        return f"domain of {domain.gpus} {domain.gpu.title.partition(' (')[0]}"
    return domain.title


def subtitles(cluster: Cluster, opened: int | None) -> list[str]:
    """Return the lines under the title; ``opened`` is the domain that is drawn, None for all."""
    spec = cluster.spec
    chosen = spec.domains if opened is None else spec.domains[opened : opened + 1]
    kinds: dict[object, DomainSpec] = {}
    for domain in chosen:  # of those of a raw graph the slowest
        key = (domain.gpu.name, domain.fabric.name, domain.structure, domain.links_per_gpu)
        kinds[key] = min(kinds.get(key, domain), domain, key=lambda member: member.scale_up_bytes_per_s)
    lines: list[str] = []
    for domain in list(kinds.values())[:_MAX_KINDS]:
        lines += [gpu_line(domain), scale_up_line(domain)]
        lines += [scale_out_line(spec.scale_out, domain)] if spec.scale_out is not None else []
    if len(kinds) > _MAX_KINDS:
        lines.append(f"and {len(kinds) - _MAX_KINDS} more kinds of domain")
    if opened is not None and len(spec.domains) > 1:
        lines.append(f"Drawn here: domain d{opened} of {len(spec.domains)}")
    return [*lines, physical_line(cluster)]


def each_way(count: int, fabric: FabricSpec) -> str:
    """Return "18 x 25 GB/s = 450 GB/s each way" for parallel links."""
    rate = fabric.link_bytes_per_s.value
    if isnan(rate):
        return f"{plural(count, 'link')} of {rate_text(rate)}"
    return Links({(rate, 1.0): count}).text()


def fabric_title(fabric: FabricSpec) -> str:
    """Return the technology and the name of a fabric."""
    technology = {"nvlink": "NVLink", "ib": "InfiniBand"}.get(fabric.kind)
    return f"{technology} ({fabric.name})" if technology else fabric.name


def is_projected(domain: DomainSpec) -> bool:
    """Whether the domain rests on projected figures."""
    kinds = [figure.kind for figure in domain.gpu.figures.values()]
    return weakest([*kinds, domain.fabric.link_bytes_per_s.kind]) is Evidence.PROJECTED


def gpu_line(domain: DomainSpec) -> str:
    """Return one line about the GPU."""
    figures, parts = domain.gpu.figures, []
    if "hbm_bytes" in figures and "hbm_bytes_per_s" in figures:
        rate = format_quantity(figures["hbm_bytes_per_s"].value, "byte/s")
        parts.append(
            f"{format_quantity(figures['hbm_bytes'].value, 'byte', 3)} {domain.gpu.memory} at {rate}"
        )
    if "bf16_flop_per_s" in figures:
        parts.append(f"{format_quantity(figures['bf16_flop_per_s'].value, 'flop/s')} BF16 dense")
    return f"{domain.gpu.title}: {', '.join(parts)}" if parts else domain.gpu.title


def scale_up_line(domain: DomainSpec) -> str:
    """Return one line about the scale-up links of a GPU."""
    if domain.gpus == 1:
        return f"Scale-up: none, each {domain.gpu.noun} is a separate domain"
    head = f"Scale-up, per {domain.gpu.noun}: {fabric_title(domain.fabric)}"
    return f"{head}, {own_links(domain)}"


def own_links(domain: DomainSpec) -> str:
    """Return "18 x 25 GB/s = 450 GB/s each way" for the scale-up links of one GPU; by dimension if rates differ."""
    if not domain.links_per_gpu:  # of a raw graph the least that a GPU has is known
        return f"at least {rate_text(domain.scale_up_bytes_per_s)} each way"
    if domain.links_bundled:
        return f"{rate_text(domain.scale_up_bytes_per_s)} each way"
    if not isinstance(domain, TorusDomain) or not domain.dimension_fabrics:
        return each_way(domain.links_per_gpu, domain.fabric)
    parts = [
        f"{links} x {rate_text(fabric.link_bytes_per_s.value)}"
        for links, fabric in zip(domain.links_per_dimension, domain.fabric_of_dimension, strict=True)
        if links
    ]
    return f"{' + '.join(parts)} = {rate_text(domain.scale_up_bytes_per_s)} each way"


def rate_text(bytes_per_s: float) -> str:
    """Return a rate in words, also an unpublished one."""
    return "an unpublished rate" if isnan(bytes_per_s) else format_quantity(bytes_per_s, "byte/s")


def chips_text(folded: Fold, number: int) -> str:
    """Return what joins the GPUs of a domain: as its structure has it, of a raw graph what is in it."""
    domain, chips = folded.specs[number], folded.chips(number)
    if domain.links_bundled:
        return UNCOUNTED
    if not folded.raw:
        return domain.words()
    if chips:
        return plural(len(chips), "switch chip")
    if folded.scale_up_links(folded.hosts_by_domain[number]).count:
        return f"{domain.gpu.noun}s connected directly, without switches"
    return f"no scale-up links between {domain.gpu.noun}s"


def scale_up_words(folded: Fold, number: int) -> list[str]:
    """Return what joins the GPUs of a domain, and the rate of each."""
    domain, hosts = folded.specs[number], folded.hosts_by_domain[number]
    if not any(host.gpus for host in hosts):
        return [f"no {domain.gpu.noun} in service"]
    if domain.gpus == 1:
        return [f"one {domain.gpu.noun}, no scale-up link"]
    rates = {domain.scale_up_bytes_per_s}
    if folded.damaged(number):
        rates = {folded.gpu_links[i].bytes_per_s for host in hosts for i in host.gpus}
    least_most = span(map(rate_text, (min(rates), max(rates))))
    rate = f"{'at least ' if folded.raw else ''}{least_most} each way per {domain.gpu.noun}"
    return [chips_text(folded, number), rate]


def scale_out_line(scale_out: ScaleOutSpec, domain: DomainSpec) -> str:
    """Return one line about the scale-out links of a GPU, and how much slower they are."""
    links = each_way(scale_out.nic_links_per_gpu, scale_out.fabric)
    ratio = domain.scale_up_bytes_per_s / scale_out.scale_out_bytes_per_s  # NaN compares as not above 1
    compared = f", {ratio:.3g}x slower than scale-up" if ratio > 1 and domain.gpus > 1 else ""
    planes = f" in {scale_out.planes} planes" if scale_out.planes > 1 else ""
    return f"Scale-out, per {domain.gpu.noun}: {fabric_title(scale_out.fabric)}, {links}{planes}{compared}"
