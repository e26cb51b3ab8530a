"""The catalog: GPUs, clusters and models as tables, and single entries with the origin of each figure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from cost.money.prices import billed_figures
from cost.resolve import (
    Published,
    hugging_face_ids,
    model_called,
    model_names,
    model_title,
    published,
    resolve_model,
    spelled_models,
    without_owner,
)
from rackplan.schemas.records import (
    CablingData,
    ClusterRowData,
    DomainData,
    LimitsData,
    ModelCountsData,
    RefusedModelData,
)
from rackplan.views.blocks import Block, Lines, Table, Text, View, figure_data, sections
from rackplan.views.settings import set_blocks, set_data
from topology import (
    cluster_names,
    find_scale_out,
    format_quantity,
    gpu_names,
    load_domain,
    load_gpu,
    resolve_cluster,
)
from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.names import Names, plain_words
from topology.base.reading import shown
from topology.base.units import added, format_number, plural
from topology.catalog.spelled import counted, spelled_clusters, spelled_gpus
from topology.cluster import Cluster
from topology.fabrics.fabric import ScaleOutSpec
from topology.physical import Cabling, Physical, Total, physical_of_whole
from topology.spec import GpuSpec
from topology.structures.domain import DomainSpec
from topology.structures.switch import ChipDomain
from topology.structures.torus import TorusDomain

_GPU_COLUMNS = {
    "bf16_flop_per_s": ("bf16", "flop/s"),
    "fp8_flop_per_s": ("fp8", "flop/s"),
    "fp4_flop_per_s": ("fp4", "flop/s"),
    "hbm_bytes": ("HBM", "byte"),
    "hbm_bytes_per_s": ("HBM/s", "byte/s"),
}
"""The title and the unit of each figure in the list of GPUs."""
LISTS = ("clusters", "gpus", "models")
"""What can be listed."""
_LINK_RULE = (
    "A link inside a host is on its board, inside a rack copper, out of a rack optical with a transceiver at each "
    "end, unless the system's own cables are known. Leaves, spines, cores and routers stand in racks of their own, "
    "and so do the switch chips of a domain that spans several; their power and weight are not in these figures."
)
_PARTS = {
    "switch": ("switch chip", "switch chips"),
    "leaf": ("leaf", "leaves"),
    "spine": ("spine", "spines"),
    "core": ("core", "cores"),
    "router": ("router", "routers"),
}


def catalog_view(what: str | None, cluster: Cluster | None = None) -> View:
    """Return all lists, one of them (:data:`LISTS`), or one entry with its figures.

    ``cluster`` is the entry where it is one that has figures of the user's.

    Raises
    ------
    InputError
        If the catalog has no entry of that name (the nearest are offered), or a cluster cannot be built.
    """
    lists = dict(zip(LISTS, (_clusters, _gpus, _models), strict=True))
    if cluster is not None:
        return _cluster(cluster) if cluster.name in cluster_names() else _physical(cluster)
    if what is not None and what not in lists:
        return _entry(what)
    views = {name: make() for name, make in lists.items() if what in (None, name)}
    return View(
        sections(*(view.blocks for view in views.values())),
        {name: view.data["rows"] for name, view in views.items()},
    )


def _gpus() -> View:
    """All GPUs: dense peaks, memory, flop per byte in BF16."""
    gpus = [load_gpu(name) for name in gpu_names()]
    data: list[dict[str, Any]] = []
    for gpu in gpus:
        known = {key: gpu.figures[key].value for key in _GPU_COLUMNS if key in gpu.figures}
        both = "bf16_flop_per_s" in known and "hbm_bytes_per_s" in known
        ratio = known["bf16_flop_per_s"] / known["hbm_bytes_per_s"] if both else None
        data.append(
            {"name": gpu.name, "title": gpu.title, "status": gpu.status, **known, "flop_per_byte_bf16": ratio}
        )
    table = Table.of(
        data,
        ("GPU", lambda one: one["name"]),
        *((title, partial(_amount, key, unit)) for key, (title, unit) in _GPU_COLUMNS.items()),
        ("flop/B", lambda one: _known(one["flop_per_byte_bf16"], ".0f")),
        ("status", lambda one: _short(one["status"])),
        indent=0,
    )
    return _list(
        table, data, "Dense peaks; HBM as the driver reports it where known; flop/B: bf16 peak / HBM/s."
    )


def _clusters() -> View:
    """All clusters: domain, links, and how much slower the fabric between domains is."""
    known = [(load_domain(name), find_scale_out(name)) for name in cluster_names()]
    data: list[ClusterRowData] = [
        {**_domain_data(domain, out), "gpu": domain.gpu.name} for domain, out in known
    ]
    table = Table.of(
        data,
        ("cluster", lambda one: one["name"]),
        ("GPU", lambda one: one["gpu"]),
        ("domain", lambda one: str(one["gpus_per_domain"])),
        ("node", lambda one: str(one["gpus_per_node"])),
        ("scale-up/GPU", partial(_amount, "scale_up_bytes_per_s", "byte/s")),
        ("scale-out/GPU", partial(_amount, "scale_out_bytes_per_s", "byte/s")),
        ("ratio", lambda one: _known(one["scale_up_over_scale_out"], ".3g")),
        ("status", lambda one: _short(one["status"])),
        indent=0,
    )
    notes = (
        "Rates per GPU and direction, from links x rate; a dash: not published.",
        "name@GPUS builds several domains, name@4x4x8 a torus of that shape; any spelling will do.",
    )
    return _list(table, data, *notes)


def _models() -> View:
    """All models: parameters as counted from their configs, beside the published figures."""
    data: list[Mapping[str, Any]] = []
    for name in model_names():
        head: RefusedModelData = {"name": name, "title": model_title(name)}
        try:
            data.append({**head, **_model_counts(name)})
        except InputError as error:
            data.append({**head, "refused": str(error)})
    table = Table.of(
        data,
        ("model", lambda one: one["name"]),
        ("total", lambda one: _billions(one.get("total_params"))),
        ("active", lambda one: _billions(one.get("active_params"))),
        ("published", lambda one: _counts(published(one["name"]))),
        ("layers", lambda one: str(one.get("layers", "-"))),
        ("experts", lambda one: str(one.get("experts") or "-")),
        ("per token", lambda one: str(one.get("experts_per_token") or "-")),
        indent=0,
    )
    return _list(
        table,
        data,
        "Active: per token, with the output head, without the input embedding.",
        "Any spelling will do, the first words of a name, or a Hugging Face id (`catalog NAME` lists them).",
    )


def _list(table: Table, data: Sequence[Mapping[str, Any]], *notes: str) -> View:
    return View(sections([table], [Lines(notes)]), {"rows": data})


def _entry(name: str) -> View:
    """Return one GPU, cluster (also ``name@GPUS`` and a YAML file) or model, each figure with its origin."""
    if "@" in name or name.lower().endswith((".yaml", ".yml")):
        return _physical(resolve_cluster(name))
    kinds: list[tuple[Names, tuple[str, ...], Callable[[str], View]]] = [
        (spelled_clusters(), cluster_names(), lambda cluster: _cluster(resolve_cluster(cluster))),
        (spelled_gpus(), gpu_names(), lambda gpu: _gpu(load_gpu(gpu))),
        (spelled_models(), model_names(), _model),
    ]
    for _, names, view in kinds:
        if name in names:
            return view(name)
    for spelled in (kinds[1], kinds[0]):
        found = spelled[0].one(name)
        if found is not None:
            return spelled[2](found)
    if counted(name) is not None:
        return _physical(resolve_cluster(name))
    if spelled_models().meant(without_owner(name)) or spelled_models().meant(name):
        return _model(model_called(name), name)
    every = {text: one for names, _, _ in kinds for text, one in names.spellings.items()}
    lists = {text: text for text in ("gpus", "clusters", "models")}
    near = Names("entry", {**every, **lists}).near(without_owner(name)) or "see `rackplan catalog`."
    raise InputError(f"the catalog has no {shown(name)}; {near}")


def _counts(said: Published) -> str:
    return f"{said.total} / {said.active}" if said.active else said.total


def _billions(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e9:.1f} B"


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _amount(key: str, unit: str, data: Mapping[str, Any]) -> str:
    value = data.get(key)
    return "-" if value is None else format_quantity(value, unit)


def _short(status: str) -> str:
    words = re.split(r"[;,(]", status, maxsplit=1)[0].strip()
    return words.replace("export variant", "export")


def _figures(figures: Mapping[str, Figure]) -> tuple[dict[str, Any], list[Block]]:
    data: dict[str, Any] = {}
    blocks: list[Block] = []
    for key, figure in sorted(figures.items()):
        bare = figure.unit == "1"
        value = format_number(figure.value) if bare else format_quantity(figure.value, figure.unit)
        data[key] = figure_data(figure)
        blocks.append(Lines([f"  {key:<20}{value:>16}  {figure.kind.label}"]))
        blocks.append(Text(figure.source, ""))
    return data, blocks


def _gpu(gpu: GpuSpec) -> View:
    figures, shown = _figures(gpu.figures)
    title = f"{gpu.name}: {gpu.title} ({gpu.vendor}, {gpu.status}; dies per package: {gpu.dies})"
    data = {
        "name": gpu.name,
        "title": gpu.title,
        "vendor": gpu.vendor,
        "status": gpu.status,
        "dies": gpu.dies,
        "figures": figures,
        "notes": list(gpu.notes),
    }
    billed, lines = _figures(billed_figures().get(gpu.name, {}))
    if billed:
        data["billed"] = billed
        what = "what bills count besides: prices by basis (list: usd_per_h), power with its share of host and cooling"
        lines.insert(0, Text(what, "bills"))
    return View([Lines([title]), *shown, *lines, *(Text(note, "note") for note in gpu.notes)], data)


def _cluster(cluster: Cluster) -> View:
    """Return one domain of the catalog."""
    name, domain, out = cluster.name, cluster.spec.domains[0], cluster.spec.scale_out
    figures, shown = _figures({**domain.figures, **_link_figures(domain, out)})
    gpu, limits = _gpu(domain.gpu), _physical(cluster)
    ratio = _rates(domain, out)[2]
    size = f"{plural(domain.gpus, 'GPU')}, {domain.gpus_per_node} a node, {domain.words()}"
    head = [
        Lines([f"{name}: {domain.title} ({domain.status})"]),
        Text(size, "domain"),
        Text(f"{_scale_up(domain)} per GPU and direction", "scale-up"),
        Text(_scale_out(out, ratio), "scale-out"),
        *shown,
        *(Text(note, "note") for note in domain.notes),
    ]
    links = list(domain.links_per_switch) if isinstance(domain, ChipDomain) else []
    data = {
        **_domain_data(domain, out),
        "structure": domain.structure,
        "links_per_gpu": None if domain.links_bundled else domain.links_per_gpu,
        "shape": list(domain.shape) if isinstance(domain, TorusDomain) else [],
        "switches": None if domain.links_bundled else limits.data["switches"].get("switch", 0),
        "links_per_switch": None if domain.links_bundled else links,
        "figures": figures,
        "notes": list(domain.notes),
        "physical": limits.data,
        "gpu": gpu.data,
    }
    return View(sections(head, limits.blocks[1:], gpu.blocks), data)


def _domain_data(domain: DomainSpec, out: ScaleOutSpec | None) -> DomainData:
    """Return what the list of clusters and the page of one have in common."""
    up, away, ratio = _rates(domain, out)
    return {
        "name": domain.part,
        "title": domain.title,
        "status": domain.status,
        "gpus_per_node": domain.gpus_per_node,
        "gpus_per_domain": domain.gpus,
        "scale_up_bytes_per_s": up,
        "scale_out_bytes_per_s": away,
        "scale_up_over_scale_out": ratio,
    }


def _rates(domain: DomainSpec, out: ScaleOutSpec | None) -> tuple[float | None, float | None, float | None]:
    """Return bytes/s of a GPU in its domain and out of it, and their ratio; None where nobody published them."""
    rate, away = domain.scale_up_bytes_per_s, out.scale_out_bytes_per_s if out else None
    up = None if math.isnan(rate) else rate
    return up, away, up / away if up and away else None


def _scale_out(out: ScaleOutSpec | None, ratio: float | None) -> str:
    if out is None:
        return "not published; give a `fabric` in a cluster YAML"
    rate = f"{out.fabric.name}: {format_quantity(out.scale_out_bytes_per_s, 'byte/s')} per GPU and direction"
    return rate if ratio is None else f"{rate}, {ratio:.3g} times slower"


def _link_figures(domain: DomainSpec, out: ScaleOutSpec | None) -> dict[str, Figure]:
    found = {}
    for fabric in (*domain.fabrics, *([out.fabric] if out else [])):
        found[f"{fabric.name} link"] = fabric.link_bytes_per_s
        found[f"{fabric.name} latency"] = fabric.latency_s
    return found


def _model(name: str, typed: str = "") -> View:
    """Return a model; ``typed`` may be an id of it in a format of its own."""
    ids = hugging_face_ids(name)
    own = (one for one, found in ids.items() if found.quantization and plain_words(one) == plain_words(typed))
    said, data = published(name), _model_counts(next(own, name))
    active = (
        f"{data['active_params']:,} per token with the head, without the input embedding; "
        f"{data['active_params_with_embedding']:,} with both (published: {_counted(said.active, said.active_counts)})"
    )
    total = f"{data['total_params']:,} parameters (published: {_counted(said.total, said.total_counts)})"
    precision = ", ".join(f"{part} {dtype}" for part, dtype in data["precision"].items())
    cache = f"{data['kv_bytes_per_sequence_4096_bf16'] / 1e6:,.1f} MB for 4,096 tokens in bf16"
    blocks = [
        Lines([f"{name}: {model_title(name)}"]),
        Text(total, "total"),
        Text(active, "active"),
        Text(f"{data['layers']}, of which {data['moe_layers']} with routed experts", "layers"),
        Text(", ".join(data["attention"]), "attention"),
        Text(cache, "KV cache"),
        Text(_longest(data), "longest"),
        Text(f"{precision} ({data['precision_source']})", "precision"),
        *(Text(part, "left out") for part in data["omitted"]),
        *(Text(one, "Hugging Face") for one in [", ".join(data["huggingface"])] if one),
        *(Text(source, "source") for source in said.sources),
    ]
    return View(blocks, {"name": name, "title": model_title(name), **data})


def _longest(data: Mapping[str, Any]) -> str:
    """The longest sequence that is published of the model, and of the ids of which it is another or unknown."""
    if data["most_context"] is None:
        return "not known: a longer sequence is not warned of"
    ids = {name: found["positions"] for name, found in data["huggingface"].items()}
    others = [f"{name}: {_tokens(most)}" for name, most in ids.items() if most != data["most_context"]]
    return "; ".join([f"{data['most_context']:,} tokens of context ({data['most_context_source']})", *others])


def _tokens(tokens: int | None) -> str:
    return "not known" if tokens is None else f"{tokens:,}"


def _counted(figure: str, counts: str) -> str:
    """A published figure, and what it counts where that is said."""
    return f"{figure} {counts}".strip()


def _model_counts(name: str) -> ModelCountsData:
    model = resolve_model(name)
    moe = model.moe
    said = published(name)
    return {
        "total_params": model.total_params,
        "active_params": model.active_params,
        "active_params_with_embedding": model.active_params_with_embedding,
        "published_total": said.total,
        "published_active": said.active,
        "layers": len(model.layers),
        "moe_layers": len(model.moe_layers),
        "experts": moe.experts if moe else 0,
        "experts_per_token": moe.top_k if moe else 0,
        "attention": sorted({layer.attention.kind for layer in model.layers}),
        "kv_bytes_per_sequence_4096_bf16": float(
            added(layer.attention.cache_bytes(4096, 2) for layer in model.layers)
        ),
        "precision": dict(model.precision),
        "precision_source": model.precision_source,
        "omitted": list(model.omitted),
        "most_context": model.most_context,
        "most_context_source": model.most_context_source,
        "huggingface": {
            one: {"positions": found.positions, "source": found.source, "quantization": found.quantization}
            for one, found in hugging_face_ids(name).items()
        },
        "sources": list(said.sources),
    }


def _physical(cluster: Cluster) -> View:
    """Return what a cluster takes."""
    limits = physical_of_whole(cluster)
    blocks = sections(
        [
            Lines([f"{cluster.name}: {plural(len(cluster.gpus), 'GPU')}"]),
            Text(_domains(cluster), "domains"),
            *set_blocks("set", cluster),
            Text(_parts(limits), "parts"),
            Text(_total(limits.power, limits.rack_w, "W", "not known"), "power"),
            Text(_total(limits.mass, limits.rack_kg, "kg", "not published"), "weight"),
        ],
        [_cables(limits), Text(_LINK_RULE, "rule")],
    )
    data = {
        "name": cluster.name,
        **set_data(cluster),
        **_limits(limits),
    }
    return View(blocks, data)


def _scale_up(domain: DomainSpec) -> str:
    """Links of one GPU and what they carry: ``18 x 50 GB/s = 900 GB/s``."""
    if domain.links_bundled:
        rate = format_quantity(domain.scale_up_bytes_per_s, "byte/s")
        return f"{domain.fabric.name}: {rate} over links whose number is not published,"
    total = format_quantity(domain.scale_up_bytes_per_s, "byte/s")
    if domain.structure == "raw":
        return f"{domain.fabric.name}: {total} at least"
    links = [
        f"{sum(count for count, _ in run)} x {format_quantity(fabric.link_bytes_per_s.value, 'byte/s')}"
        for fabric, run in groupby(domain.scale_up_links, key=lambda pair: pair[1])
    ]
    return f"{domain.fabric.name}: {' + '.join(links)} = {total}"


def _domains(cluster: Cluster) -> str:
    runs = [(domain, len(list(run))) for domain, run in groupby(cluster.spec.domains)]
    return "; ".join(f"{count} x {domain.gpus} {domain.title} ({domain.words()})" for domain, count in runs)


def _parts(limits: Physical) -> str:
    switches = [_many(count, *_PARTS[kind]) for kind, count in limits.switches.items()]
    if not all(one.counted for one in limits.cabling):
        switches.append("switch chips not published")
    apart = f" ({limits.switch_racks:,} of them of switches)" if limits.switch_racks else ""
    return ", ".join([f"{_many(limits.hosts, 'host')} in {_many(limits.racks, 'rack')}{apart}", *switches])


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _total(total: Total, of_rack: float | None, unit: str, unknown: str) -> str:
    if total.value is None or of_rack is None:
        return f"{unknown} ({total.basis})"
    whole, rack = format_quantity(total.value, unit), format_quantity(of_rack, unit)
    return f"{whole} in all, {rack} a rack ({total.basis}; {total.evidence.label})"


def _cables(limits: Physical) -> Table:
    columns = ("links", "on boards", "copper", "optical", "transceivers", "copper a rack", "optical a rack")
    rows = []
    for one in limits.cabling:
        if not one.counted:
            rows.append([one.fabric, *["unpublished"] * 3, "-", "-", "-"])
            continue
        copper = f"{one.copper:,}" + (f" ({one.copper_cables:,} cables)" if one.copper_cables else "")
        each = [f"{count / limits.racks:,.4g}" for count in (one.copper, one.optical)]
        rows.append(
            [one.fabric, f"{one.board:,}", copper, f"{one.optical:,}", f"{one.transceivers:,}", *each]
        )
    return Table(columns, rows, indent=0)


def _cabling(one: Cabling) -> CablingData:
    return {
        "fabric": one.fabric,
        "scale_up": one.scale_up,
        "board": one.board,
        "copper": one.copper,
        "optical": one.optical,
        "copper_cables": one.copper_cables,
        "counted": one.counted,
        "links_per_transceiver": one.links_per_transceiver,
        "transceivers": one.transceivers,
    }


def _limits(limits: Physical) -> LimitsData:
    return {
        "gpus": limits.gpus,
        "hosts": limits.hosts,
        "racks": limits.racks,
        "switches": dict(limits.switches),
        "links": [_cabling(one) for one in limits.cabling],
        "copper_links": limits.copper,
        "optical_links": limits.optical,
        "transceivers": limits.transceivers,
        "power_w": limits.power.value,
        "power_basis": limits.power.basis,
        "power_kind": limits.power.evidence.label,
        "rack_power_w": limits.rack_w,
        "mass_kg": limits.mass.value,
        "mass_basis": limits.mass.basis,
        "mass_kind": limits.mass.evidence.label,
        "rack_mass_kg": limits.rack_kg,
    }
