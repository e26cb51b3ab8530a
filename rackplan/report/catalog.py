"""Documents of the catalog: lists of GPUs, clusters and models, and one of them, each figure with its origin."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from cost.entries import entry_meant
from cost.money.prices import billed_figures
from cost.resolve import hugging_face_ids, model_names, model_title, published, resolve_model
from rackplan.report.doc import Block, Doc, Note, Record, Row, Shape, Table
from rackplan.report.fields import FIELDS, phrase
from rackplan.report.shared import FIGURES, SET, figure_row, missing, set_table
from topology import cluster_names, find_scale_out, gpu_names, load_domain, load_gpu, resolve_cluster
from topology.base.errors import InputError
from topology.base.names import plain_words
from topology.base.units import plural
from topology.cluster import Cluster
from topology.fabrics.fabric import ScaleOutSpec
from topology.physical import Physical, physical_of_whole
from topology.spec import GpuSpec
from topology.structures.domain import DomainSpec
from topology.structures.torus import TorusDomain

_PEAKS = "hbm_bytes hbm_bytes_per_s bf16_flop_per_s fp8_flop_per_s fp4_flop_per_s"
_CHIP = "name title vendor machine_status dies bf16_flop_per_byte"
_RATES = "scale_up_bytes_per_s scale_out_bytes_per_s"
_SYSTEM = "name title machine_status gpu gpus_per_domain gpus_per_node scale_up_rate_ratio"
_COUNTS = "total_params active_params published_total published_active layers experts experts_per_token"
_MODEL = (
    f"{_COUNTS} active_params_with_embedding moe_layers attention kv_cache_4096_bytes precision_source "
    "omitted most_context most_context_source sources"
)
GPUS = Table.of("gpus", f"name {_PEAKS} machine_status | {_CHIP}", "GPUs", max_rows=None)
CLUSTERS = Table.of(
    "clusters",
    f"name gpu gpus_per_domain gpus_per_node {_RATES} machine_status | {_SYSTEM}",
    "Clusters",
    max_rows=None,
)
MODELS = Table.of("models", f"name {_COUNTS} reason | title {_MODEL}", "Models", max_rows=None)
GPU = Record.of("", f"vendor machine_status dies {_PEAKS} bf16_flop_per_byte | {_CHIP}")
CLUSTER = Record.of(
    "",
    f"machine_status gpu gpus_per_node {_RATES} scale_up_rate_ratio joined links_per_gpu | {_SYSTEM} structure shape "
    "switches_per_domain links_per_switch",
)
NAMED = Record.of("", "name", max_rows=0)
MODEL = Record.of("", f"{_MODEL} | name title")
PRECISION = Table.of("precision", "part dtype", "Formats of weights", max_rows=None)
CHECKPOINTS = Table.of(
    "checkpoints",
    "checkpoint most_context most_context_source quantization",
    "On Hugging Face",
    max_rows=None,
)
_ORIGINS: dict[str, Any] = {"max_rows": None, "shown": "part figure shown evidence source"}
BILLED = Table("billed", FIGURES.fields, "Prices and power that bills use")
KINDS = Table.of("domain_kinds", "count title gpus_per_domain joined", "Domains")
PHYSICAL = Record.of(
    "physical",
    "gpus hosts racks racks_basis power_w power_scope power_evidence power_basis rack_power_w mass_kg mass_evidence "
    "mass_basis rack_mass_kg | switch_racks copper_links optical_links transceivers",
    "What it takes",
)
SWITCHES = Table.of("switches", "part count", "Switches")
CABLING = Table.of(
    "cabling",
    "fabric scale_up counted board_links copper_links copper_cables optical_links links_per_transceiver transceivers",
    "Links",
)
_TABLES = (GPU, CLUSTER, NAMED, MODEL, GPUS, CLUSTERS, MODELS, PRECISION, CHECKPOINTS)
_PARTS = (PHYSICAL, SWITCHES, CABLING, KINDS, FIGURES, BILLED, SET)
CATALOG = Shape("catalog", "Lists of the catalog, or one entry with its figures.", (*_TABLES, *_PARTS))
_UNKNOWN = "Not published, or there is none."
_RULE = (
    "Links are on board within a host, copper within a rack, and optical with a transceiver at each end between "
    "racks, unless the system's own cables are known. Leaves, spines, cores and routers have racks of their own, and "
    "so have the switch chips of a domain that spans several racks; their power and weight are not in these figures."
)
_LIST_RULE = (
    "Spelling is flexible: a prefix or an id of Hugging Face also works; name@GPUS builds several domains, "
    "name@4x4x8 a torus."
)


def catalog_doc(entry: str | None, cluster: Cluster | None = None) -> Doc:
    """Return all lists, one of them, or one entry; ``cluster`` is one with figures of the user's.

    Raises
    ------
    InputError
        If the catalog has no entry of that name (the nearest are offered), or a cluster cannot be built.
    """
    if cluster is not None:
        return _cluster(cluster)
    lists: tuple[tuple[Table, Iterable[Row]], ...] = (
        (CLUSTERS, (_system(load_domain(name), find_scale_out(name)) for name in cluster_names())),
        (GPUS, (_chip(load_gpu(name)) for name in gpu_names())),
        (MODELS, map(_listed, model_names())),
    )
    tables = [table(rows) for table, rows in lists if entry in (None, table.key)]
    if entry is None or tables:
        notes = {note.about: note for table in tables for note in missing(table, _UNKNOWN)}
        return Doc(CATALOG, "", [], [*tables, *notes.values(), Note(_LIST_RULE, kind="method")])
    kind, name = entry_meant(entry)
    if kind == "cluster":
        return _cluster(resolve_cluster(name))
    return _gpu(load_gpu(name)) if kind == "gpu" else _model(name, entry)


def _listed(name: str) -> Row:
    try:
        return {**_counts(name), "reason": ""}
    except InputError as error:
        return MODELS.row(None, name=name, title=model_title(name), reason=str(error))


def _chip(gpu: GpuSpec) -> Row:
    peaks = {key: gpu.figures[key].value if key in gpu.figures else None for key in _PEAKS.split()}
    flop, rate = peaks["bf16_flop_per_s"], peaks["hbm_bytes_per_s"]
    ratio = flop / rate if flop and rate else None
    return GPU.row(gpu, **peaks, machine_status=gpu.status, bf16_flop_per_byte=ratio)


def _gpu(gpu: GpuSpec) -> Doc:
    record = GPU(_chip(gpu))
    row = record.rows[0]
    known = [f"{FIELDS[key].label} {phrase(row, key)}" for key in _PEAKS.split() if row[key] is not None]
    return Doc(
        CATALOG,
        f"{gpu.name}: {gpu.title} ({gpu.vendor}, {gpu.status})",
        [f"{', '.join(known) or 'No figure is published'}."],
        [record, *missing(record, _UNKNOWN), *map(Note, gpu.notes)],
        _origins(gpu),
    )


def _origins(gpu: GpuSpec, *extra: Row) -> list[Block]:
    """Return figures with their sources: ``extra``, those of a GPU, and what bills use of it."""
    rows = (figure_row(figure, gpu.name, key) for key, figure in sorted(gpu.figures.items()))
    billed = sorted(billed_figures().get(gpu.name, {}).items())
    return [
        FIGURES([*extra, *rows], **_ORIGINS),
        BILLED((figure_row(figure, gpu.name, key) for key, figure in billed), **_ORIGINS),
    ]


def _system(domain: DomainSpec, out: ScaleOutSpec | None) -> Row:
    rate = domain.scale_up_bytes_per_s
    return CLUSTERS.row(
        domain,
        name=domain.part,
        machine_status=domain.status,
        gpu=domain.gpu.name,
        gpus_per_domain=domain.gpus,
        scale_up_bytes_per_s=None if math.isnan(rate) else rate,
        scale_out_bytes_per_s=out.scale_out_bytes_per_s if out else None,
        scale_up_rate_ratio=(out.slower_than(domain) or None) if out else None,
    )


def _cluster(cluster: Cluster) -> Doc:
    """Return a system of the catalog with its figures, or any cluster with what it takes."""
    domain, out, known = cluster.spec.domains[0], cluster.spec.scale_out, cluster.name in cluster_names()
    system, needs = _system(domain, out), physical_of_whole(cluster)
    head = CLUSTER({**_links(domain, needs), **system}) if known else NAMED({"name": cluster.name})
    runs = [(kind, len(list(run))) for kind, run in groupby(cluster.spec.domains)]
    kinds = KINDS((count, kind.title, kind.gpus, kind.words()) for kind, count in runs)
    record, verbs = _physical(needs), {"power_w": "draws", "mass_kg": "weighs", "racks": "takes"}
    takes = [
        f"{verb} {phrase(record.data, key)}" for key, verb in verbs.items() if record.data[key] is not None
    ]
    figures = [figure_row(figure, domain.part, key) for key, figure in sorted(domain.figures.items())]
    for fabric in (*domain.fabrics, *([out.fabric] if out else [])):
        link = {"link_bytes_per_s": fabric.link_bytes_per_s, "latency_s": fabric.latency_s}
        figures += [figure_row(figure, fabric.name, key) for key, figure in link.items()]
    chip, cables = GPUS([_chip(domain.gpu)], title="GPU"), CABLING(map(CABLING.row, needs.cabling))
    unknown = "Not published; fabric in a cluster file sets one."
    why = {"racks": needs.racks.basis, "power_w": needs.power.basis, "mass_kg": needs.mass.basis}
    size = f"{plural(len(cluster.gpus), 'GPU')} in {plural(len(cluster.spec.domains), 'domain')}"
    return Doc(
        CATALOG,
        f"{cluster.name}: {f'{domain.title} ({domain.status})' if known else size}",
        [
            _rates(domain, out, system) if known else "",
            f"{cluster.name} {', '.join(takes)}." if takes else "",
        ],
        [
            set_table(cluster),
            head,
            *missing(head, _UNKNOWN, scale_out_bytes_per_s=unknown, scale_up_rate_ratio=unknown),
            *map(Note, (*domain.notes, *domain.gpu.notes) if known else ()),
            *([] if known else [kinds]),
            record,
        ],
        [
            SWITCHES(
                ({"switch": "switch chip"}.get(part, part), count) for part, count in needs.switches.items()
            ),
            cables,
            *missing(record, _UNKNOWN, **{key: f"{basis}." for key, basis in why.items()}),
            *missing(cables, _UNKNOWN),
            Note(_RULE, kind="method"),
            *([chip, *missing(chip, _UNKNOWN), *_origins(domain.gpu, *figures)] if known else []),
        ],
    )


def _links(domain: DomainSpec, needs: Physical) -> Row:
    """Return how the GPUs of a domain are joined; null where the number of links is not published."""
    known = None if domain.links_bundled else domain
    return CLUSTER.row(
        known,
        structure=domain.structure,
        joined=domain.words(),
        shape=domain.shape if isinstance(domain, TorusDomain) else [],
        switches_per_domain=known and needs.switches.get("switch", 0),
        links_per_switch=known and getattr(domain, "links_per_switch", []),
    )


def _rates(domain: DomainSpec, out: ScaleOutSpec | None, system: Row) -> str:
    known = system["scale_up_bytes_per_s"] is not None
    inside = phrase(system, "scale_up_bytes_per_s") if known else "an unpublished rate"
    outside = f" and {phrase(system, 'scale_out_bytes_per_s')} outside ({out.fabric.name})" if out else ""
    return f"A GPU sends {inside} each way in its domain of {domain.gpus} ({domain.fabric.name}){outside}."


def _physical(needs: Physical) -> Record:
    """Return what a cluster takes: parts, links, power and weight."""
    racks, known = {"racks": needs.racks.count, "racks_basis": needs.racks.basis}, dict[str, Any]()
    for name, key, total in (("power", "power_w", needs.power), ("mass", "mass_kg", needs.mass)):
        evidence = None if total.value is None else total.evidence.label
        known |= {key: total.value, f"{name}_basis": total.basis, f"{name}_evidence": evidence}
    return PHYSICAL(PHYSICAL.row(needs, **racks, **known, power_scope=needs.power.scope or None))


def _counts(name: str, typed: str = "") -> Row:
    """Return the fields of :data:`MODEL`; ``typed`` may be an id of it in a format of its own."""
    ids = hugging_face_ids(name)
    matches = (
        hub_id
        for hub_id, hub in ids.items()
        if hub.quantization and plain_words(hub_id) == plain_words(typed)
    )
    model, known = resolve_model(next(matches, name)), published(name)
    return MODEL.row(
        model,
        name=name,
        title=model_title(name),
        published_total=known.total,
        published_active=known.active,
        layers=len(model.layers),
        moe_layers=len(model.moe_layers),
        experts=model.moe.experts if model.moe else 0,
        experts_per_token=model.moe.top_k if model.moe else 0,
        attention=model.attention_kinds,
        kv_cache_4096_bytes=model.cache_bytes(4096, 2),
        sources=list(known.sources),
        omitted=list(model.omitted),
        precision=model.precision,
    )


def _model(name: str, typed: str) -> Doc:
    row, known = _counts(name, typed), published(name)
    active = f", {phrase(row, 'active_params')} of them for a token" if row["experts"] else ""
    used = f"{row['experts_per_token']} of {row['experts']}"
    routed = f"; {row['moe_layers']} have experts, of which a token uses {used}" if row["experts"] else ""
    odd = "; ".join(filter(None, (known.total_counts, known.active_counts)))
    checkpoints = CHECKPOINTS(
        (hub_id, hub.positions, hub.source, hub.quantization and json.dumps(hub.quantization))
        for hub_id, hub in hugging_face_ids(name).items()
    )
    return Doc(
        CATALOG,
        f"{name}: {row['title']}",
        [
            f"{phrase(row, 'total_params')} parameters{active}.",
            f"{plural(row['layers'], 'layer')}{routed}.",
            f"A sequence of 4,096 tokens takes {phrase(row, 'kv_cache_4096_bytes')} of KV cache in BF16.",
        ],
        [
            MODEL(row),
            PRECISION(row["precision"].items()),
            *missing(checkpoints, _UNKNOWN, most_context="Not known, so longer sequences give no warning."),
            Note(f"The published figures are {odd}." if odd else ""),
        ],
        [checkpoints],
    )
