"""Catalog entries of GPUs, clusters (with parts, power and weight) and models; each figure has its origin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from pydantic.dataclasses import dataclass

from cost.money.prices import billed_figures
from cost.resolve import hugging_face_ids, model_title, published, resolve_model
from rackplan.views.blocks import Block, Lines, Table, Text, View, labelled, sections
from rackplan.views.data import LEFT_OUT, FigureData, Maybe, SetData, figure_data, taken
from rackplan.views.settings import set_blocks, set_data
from topology import format_quantity, load_gpu
from topology.base.figures import EvidenceLabel, Figure
from topology.base.names import plain_words
from topology.base.units import format_number, plural
from topology.cluster import Cluster
from topology.fabrics.fabric import ScaleOutSpec
from topology.physical import Physical, Total, physical_of_whole
from topology.spec import GpuSpec
from topology.structures.domain import DomainSpec
from topology.structures.switch import ChipDomain
from topology.structures.torus import TorusDomain

_LINK_RULE = (
    "Links are on board within a host, copper within a rack, and optical with a transceiver at each end between "
    "racks, unless the system's own cables are known. Leaves, spines, cores and routers have racks of their own, and "
    "so have the switch chips of a domain that spans several racks; their power and weight are not in these figures."
)


@dataclass(frozen=True, kw_only=True)
class GpuData:
    """A GPU of the catalog.

    Attributes
    ----------
    name, title, vendor, status, dies:
        What it is called, written out, its maker, whether it is sold, and dies of a package.
    figures, billed:
        Figures by name, and those that bills count besides.
    notes:
        What a reader should know.
    """

    name: str
    title: str
    vendor: str
    status: str
    dies: int
    figures: dict[str, FigureData]
    notes: tuple[str, ...]
    billed: Maybe[dict[str, FigureData]] = LEFT_OUT


@dataclass(frozen=True, kw_only=True)
class DomainData:
    """A system of the catalog in short: one scale-up domain.

    Attributes
    ----------
    name, title, status:
        What it is called, written out, and whether it is sold.
    gpus_per_node, gpus_per_domain:
        How many.
    scale_up_bytes_per_s, scale_out_bytes_per_s, scale_up_over_scale_out:
        Of a GPU and direction, and the one over the other; null where not published.
    """

    name: str
    title: str
    status: str
    gpus_per_node: int
    gpus_per_domain: int
    scale_up_bytes_per_s: float | None
    scale_out_bytes_per_s: float | None
    scale_up_over_scale_out: float | None


@dataclass(frozen=True, kw_only=True)
class CablingData:
    """Links of a fabric.

    Attributes
    ----------
    fabric, scale_up, counted:
        Its name, whether it is of a domain, and whether the number of its links is published.
    board, copper, optical:
        Links on boards, in copper, and optical.
    copper_cables, links_per_transceiver, transceivers:
        Cables (null: how many make a link is not published), optical links of a module, and modules.
    """

    fabric: str
    scale_up: bool
    board: int
    copper: int
    optical: int
    copper_cables: int | None
    counted: bool
    links_per_transceiver: int
    transceivers: int


@dataclass(frozen=True, kw_only=True)
class PhysicalData(SetData):
    """A cluster with its physical requirements.

    Attributes
    ----------
    name:
        What it is called.
    gpus, hosts, racks, switches:
        How many (racks null: not known); switches by kind.
    racks_basis:
        What the number of racks rests on, or why it is not known.
    links:
        By fabric.
    copper_links, optical_links, transceivers:
        Of all fabrics that can be counted.
    power_w, power_scope, power_basis, power_kind, rack_power_w:
        In all (null: not published), what it contains (``all-in``, ``IT``, ``chips alone``), of what, how it is
        known, and of a rack.
    mass_kg, mass_basis, mass_kind, rack_mass_kg:
        The same of weight.
    """

    name: str
    gpus: int
    hosts: int
    racks: int | None
    racks_basis: str
    switches: dict[str, int]
    links: list[CablingData]
    copper_links: int
    optical_links: int
    transceivers: int
    power_w: float | None
    power_scope: str | None
    power_basis: str
    power_kind: EvidenceLabel
    rack_power_w: float | None
    mass_kg: float | None
    mass_basis: str
    mass_kind: EvidenceLabel
    rack_mass_kg: float | None


@dataclass(frozen=True, kw_only=True)
class ClusterData(DomainData):
    """A system of the catalog.

    Attributes
    ----------
    structure, links_per_gpu, shape, switches, links_per_switch:
        How its GPUs are joined; null: not published.
    figures:
        By name, those of its links too.
    notes:
        What a reader should know.
    physical, gpu:
        What it takes, and its GPU.
    """

    structure: str
    links_per_gpu: int | None
    shape: tuple[int, ...]
    switches: int | None
    links_per_switch: list[int] | None
    figures: dict[str, FigureData]
    notes: tuple[str, ...]
    physical: PhysicalData
    gpu: GpuData


@dataclass(frozen=True, kw_only=True)
class HubModelData:
    """Published variant of a Hugging Face id.

    Attributes
    ----------
    positions, source:
        Tokens of the longest sequence that it was made for (null: not known), and where they were read.
    quantization:
        Its ``quantization_config`` where that is not the entry's.
    """

    positions: int | None
    source: str
    quantization: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class ModelData:
    """A model of the catalog.

    Attributes
    ----------
    name, title:
        What it is called, and written out.
    total_params, active_params, active_params_with_embedding:
        Parameters, and those that a token uses, without the input embedding and with it.
    published_total, published_active:
        As its authors print them.
    layers, moe_layers, experts, experts_per_token:
        How many; 0 without experts.
    attention:
        Kinds of it.
    kv_bytes_per_sequence_4096_bf16:
        KV cache of 4,096 tokens in BF16, in bytes.
    precision, precision_source:
        Format of each class of weights, and who says so.
    omitted:
        What is left out.
    most_context, most_context_source:
        The longest sequence that is published (null: none), and where.
    huggingface:
        What is published of each id.
    sources:
        Of the counts.
    """

    name: str
    title: str
    total_params: int
    active_params: int
    active_params_with_embedding: int
    published_total: str
    published_active: str
    layers: int
    moe_layers: int
    experts: int
    experts_per_token: int
    attention: list[str]
    kv_bytes_per_sequence_4096_bf16: float
    precision: dict[str, str]
    precision_source: str
    omitted: tuple[str, ...]
    most_context: int | None
    most_context_source: str
    huggingface: dict[str, HubModelData]
    sources: tuple[str, ...]


def _figure_table(title: str, figures: Mapping[str, Figure]) -> list[Block]:
    """Return figures with how they are known and where they were read; nothing without figures."""
    if not figures:
        return []

    def value(one: tuple[str, Figure]) -> str:
        figure = one[1]
        return (
            format_number(figure.value) if figure.unit == "1" else format_quantity(figure.value, figure.unit)
        )

    table = Table.of(
        sorted(figures.items()),
        (title, lambda one: one[0]),
        ("value", value),
        ("kind", lambda one: one[1].kind.label),
        ("source", lambda one: one[1].source),
        words=(0, 2, 3),
        ruled=True,
    )
    return [table]


def _figures(figures: Mapping[str, Figure]) -> dict[str, FigureData]:
    return {key: FigureData(**figure_data(figure)) for key, figure in sorted(figures.items())}


def _gpu_data(gpu: GpuSpec) -> GpuData:
    billed = _figures(billed_figures().get(gpu.name, {}))
    return taken(GpuData, gpu, figures=_figures(gpu.figures), billed=billed or LEFT_OUT)


def gpu_view(name: str) -> View:
    """Return a GPU with its figures, and those that bills count."""
    gpu = load_gpu(name)
    billed = billed_figures().get(name, {})
    title = f"{gpu.name}: {gpu.title} ({gpu.vendor}, {gpu.status}; dies per package: {gpu.dies})"
    bills = "For bills: prices by basis (list: usd_per_h), and power with its share of host and cooling"
    blocks = sections(
        [Lines([title])],
        _figure_table("figure", gpu.figures),
        [*labelled("Bills", bills if billed else ""), *_figure_table("billed", billed)],
        [Text(note, "note") for note in gpu.notes],
    )
    return View(blocks, _gpu_data(gpu))


def cluster_view(cluster: Cluster) -> View:
    """Return one catalog domain, its physical requirements and its GPU."""
    domain, out = cluster.spec.domains[0], cluster.spec.scale_out
    fabrics = (*domain.fabrics, *([out.fabric] if out else []))
    figures = dict(domain.figures)
    for fabric in fabrics:
        figures |= {
            f"{fabric.name} link": fabric.link_bytes_per_s,
            f"{fabric.name} latency": fabric.latency_s,
        }
    limits = _physical_data(cluster)
    head = domain_data(domain, out)
    bundled = domain.links_bundled
    data = ClusterData(
        **head,
        structure=domain.structure,
        links_per_gpu=None if bundled else domain.links_per_gpu,
        shape=domain.shape if isinstance(domain, TorusDomain) else (),
        switches=None if bundled else limits.switches.get("switch", 0),
        links_per_switch=None
        if bundled
        else list(domain.links_per_switch)
        if isinstance(domain, ChipDomain)
        else [],
        figures=_figures(figures),
        notes=domain.notes,
        physical=limits,
        gpu=_gpu_data(domain.gpu),
    )
    ratio = head["scale_up_over_scale_out"]
    out_words = "not published; set `fabric` in a cluster YAML"
    if out is not None:
        rate = format_quantity(out.scale_out_bytes_per_s, "byte/s")
        slower = "" if ratio is None else f", {ratio:.3g}x slower"
        out_words = f"{out.fabric.name}: {rate} per GPU and direction{slower}"
    title = f"{cluster.name}: {domain.title} ({domain.status})"
    size = f"{plural(domain.gpus, 'GPU')}, {domain.gpus_per_node} a node, {domain.words()}"
    blocks = sections(
        [
            Lines([title]),
            Text(size, "domain"),
            Text(f"{_scale_up(domain)} per GPU and direction", "scale-up"),
            Text(out_words, "scale-out"),
        ],
        _figure_table("figure", figures),
        [Text(note, "note") for note in domain.notes],
        _physical_blocks(cluster),
        gpu_view(domain.gpu.name).blocks,
    )
    return View(blocks, data)


def domain_data(domain: DomainSpec, out: ScaleOutSpec | None) -> dict[str, Any]:
    """Return the fields of :class:`DomainData`."""
    rate = domain.scale_up_bytes_per_s
    return {
        "name": domain.part,
        "title": domain.title,
        "status": domain.status,
        "gpus_per_node": domain.gpus_per_node,
        "gpus_per_domain": domain.gpus,
        "scale_up_bytes_per_s": None if math.isnan(rate) else rate,
        "scale_out_bytes_per_s": out.scale_out_bytes_per_s if out else None,
        "scale_up_over_scale_out": (out.slower_than(domain) or None) if out else None,
    }


def _scale_up(domain: DomainSpec) -> str:
    """Return links of one GPU and what they carry: ``18 x 50 GB/s = 900 GB/s``."""
    total = format_quantity(domain.scale_up_bytes_per_s, "byte/s")
    if domain.links_bundled:
        return f"{domain.fabric.name}: {total} over an unpublished number of links,"
    if domain.structure == "raw":
        return f"{domain.fabric.name}: {total} at least"
    links = [
        f"{sum(count for count, _ in run)} x {format_quantity(fabric.link_bytes_per_s.value, 'byte/s')}"
        for fabric, run in groupby(domain.scale_up_links, key=lambda pair: pair[1])
    ]
    return f"{domain.fabric.name}: {' + '.join(links)} = {total}"


def physical_view(cluster: Cluster) -> View:
    """Return the physical requirements of a cluster: parts, links, power and weight."""
    head: list[Block] = [Lines([f"{cluster.name}: {plural(len(cluster.gpus), 'GPU')}"])]
    return View([*head, *_physical_blocks(cluster)], _physical_data(cluster))


def _physical_data(cluster: Cluster) -> PhysicalData:
    limits = physical_of_whole(cluster)
    return taken(
        PhysicalData,
        limits,
        name=cluster.name,
        **set_data(cluster),
        racks=limits.racks.count,
        racks_basis=limits.racks.basis,
        switches=dict(limits.switches),
        links=[taken(CablingData, one) for one in limits.cabling],
        copper_links=limits.copper,
        optical_links=limits.optical,
        power_w=limits.power.value,
        power_scope=limits.power.scope or None,
        power_basis=limits.power.basis,
        power_kind=limits.power.evidence.label,
        rack_power_w=limits.rack_w,
        mass_kg=limits.mass.value,
        mass_basis=limits.mass.basis,
        mass_kind=limits.mass.evidence.label,
        rack_mass_kg=limits.rack_kg,
    )


def _physical_blocks(cluster: Cluster) -> list[Block]:
    limits = physical_of_whole(cluster)
    runs = [(domain, len(list(run))) for domain, run in groupby(cluster.spec.domains)]
    domains = "; ".join(f"{count} x {one.gpus} {one.title} ({one.words()})" for one, count in runs)
    return sections(
        [Text(domains, "domains"), *set_blocks("set", cluster)],
        [_parts_table(limits)],
        [_cables(limits), Text(_LINK_RULE, "rule")],
    )


def _parts_table(limits: Physical) -> Table:
    """Return counts of parts, power and weight."""
    racks = f" ({limits.switch_racks:,} of switches alone)" if limits.switch_racks else ""
    count = limits.racks.count
    known = "not known" if count is None else f"{count:,}{racks}"
    rows = [("hosts", f"{limits.hosts:,}", ""), ("racks", known, limits.racks.basis)]
    rows += [
        ("switch chips" if kind == "switch" else kind, f"{count:,}", "")
        for kind, count in limits.switches.items()
    ]
    if not all(one.counted for one in limits.cabling):
        rows.append(("switch chips", "not published", ""))
    rows.append(_total("power", limits.power, limits.rack_w, "W"))
    rows.append(_total("weight", limits.mass, limits.rack_kg, "kg"))
    return Table(("part", "total", "basis"), rows, words=(0, 1, 2), ruled=True)


def _total(name: str, total: Total, of_rack: float | None, unit: str) -> tuple[str, str, str]:
    if total.value is None:
        return name, "not published", total.basis
    rack = "" if of_rack is None else f", {format_quantity(of_rack, unit)} a rack"
    return name, f"{format_quantity(total.value, unit)}{rack}", f"{total.basis}; {total.evidence.label}"


def _cables(limits: Physical) -> Table:
    columns = ("links", "on boards", "copper", "optical", "transceivers", "copper per rack", "optical a rack")
    rows, racks = [], limits.racks.count
    for one in limits.cabling:
        if not one.counted:
            rows.append([one.fabric, *["unpublished"] * 3, *"---"])
            continue
        cables = f" ({one.copper_cables:,} cables)" if one.copper_cables else ""
        counts = [f"{one.board:,}", f"{one.copper:,}{cables}", f"{one.optical:,}", f"{one.transceivers:,}"]
        each = (f"{n / racks:,.4g}" if racks else "-" for n in (one.copper, one.optical))
        rows.append([one.fabric, *counts, *each])
    return Table(columns, rows, indent=0)


def model_data(name: str, typed: str = "") -> ModelData:
    """Return a model; ``typed`` may be an id of it in a format of its own.

    Raises
    ------
    InputError
        If its config cannot be read.
    """
    ids = hugging_face_ids(name)
    own = (one for one, found in ids.items() if found.quantization and plain_words(one) == plain_words(typed))
    model, known = resolve_model(next(own, name)), published(name)
    moe = model.moe
    return taken(
        ModelData,
        model,
        name=name,
        title=model_title(name),
        published_total=known.total,
        published_active=known.active,
        layers=len(model.layers),
        moe_layers=len(model.moe_layers),
        experts=moe.experts if moe else 0,
        experts_per_token=moe.top_k if moe else 0,
        attention=model.attention_kinds,
        kv_bytes_per_sequence_4096_bf16=model.cache_bytes(4096, 2),
        precision=dict(model.precision),
        huggingface={one: taken(HubModelData, found) for one, found in ids.items()},
        sources=known.sources,
    )


def model_view(name: str, typed: str = "") -> View:
    """Return a model with its counts; ``typed`` may be an id of it in a format of its own."""
    data, known = model_data(name, typed), published(name)
    longest = "unknown, so longer sequences give no warning"
    if data.most_context is not None:
        others = (
            f"{one}: {'not known' if found.positions is None else f'{found.positions:,}'}"
            for one, found in data.huggingface.items()
            if found.positions != data.most_context
        )
        own = f"{data.most_context:,} tokens of context ({data.most_context_source})"
        longest = "; ".join([own, *others])
    params = Table(
        ("parameters", "counted", "published"),
        [
            ("total", f"{data.total_params:,}", f"{known.total} {known.total_counts}".strip()),
            (
                "active per token, with output head",
                f"{data.active_params:,}",
                f"{known.active} {known.active_counts}".strip(),
            ),
            ("active, with output head and input embedding", f"{data.active_params_with_embedding:,}", ""),
        ],
        words=(0, 2),
    )
    rows = [
        ("layers", f"{data.layers}, of which {data.moe_layers} with routed experts"),
        ("attention", ", ".join(data.attention)),
        ("KV cache", f"{data.kv_bytes_per_sequence_4096_bf16 / 1e6:,.1f} MB for 4,096 tokens in bf16"),
        ("longest", longest),
        (
            "precision",
            f"{', '.join(f'{part} {dtype}' for part, dtype in data.precision.items())} ({data.precision_source})",
        ),
        *(("not modelled", part) for part in data.omitted),
        ("Hugging Face", ", ".join(data.huggingface)),
        *(("source", source) for source in data.sources),
    ]
    facts = [block for label, text in rows for block in labelled(label, text)]
    return View(sections([Lines([f"{name}: {data.title}"])], [params], facts), data)
