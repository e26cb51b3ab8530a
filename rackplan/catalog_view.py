"""The catalog as tables and single entries, for people and as data."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from typing import Any

from cost.resolve import model_names, model_title, published, resolve_model
from rackplan.physical_view import physical_entry, scale_up_words, structure_words
from rackplan.words import table, wrapped
from topology import (
    cluster_names,
    find_scale_out,
    format_quantity,
    gpu_names,
    load_domain,
    load_gpu,
    resolve_cluster,
)
from topology.errors import InputError
from topology.figures import Figure
from topology.spec import DomainSpec, GpuSpec, ScaleOutSpec
from topology.units import format_number

Shown = tuple[list[dict[str, Any]], list[str]]
_GPU_COLUMNS = ("bf16_flop_per_s", "fp8_flop_per_s", "fp4_flop_per_s", "hbm_bytes", "hbm_bytes_per_s")


def gpu_lines() -> Shown:
    """All GPUs: dense peaks, memory, flop per byte in BF16."""
    rows = [["GPU", "bf16", "fp8", "fp4", "HBM", "HBM/s", "flop/B", "status"]]
    data = []
    for name in gpu_names():
        gpu = load_gpu(name)
        known = {key: gpu.figures[key].value for key in _GPU_COLUMNS if key in gpu.figures}
        both = "bf16_flop_per_s" in known and "hbm_bytes_per_s" in known
        ratio = known["bf16_flop_per_s"] / known["hbm_bytes_per_s"] if both else None
        cells = [_quantity(gpu.figures.get(key)) for key in _GPU_COLUMNS]
        rows.append([name, *cells, "-" if ratio is None else f"{ratio:.0f}", _short(gpu.status)])
        data.append(
            {"name": name, "title": gpu.title, "status": gpu.status, **known, "flop_per_byte_bf16": ratio}
        )
    return data, [
        *table(rows, 0),
        "",
        "Dense peaks; HBM as the driver reports it where known; flop/B: bf16 peak / HBM/s.",
    ]


def cluster_lines() -> Shown:
    """All clusters: domain, links, and how much slower the fabric between domains is."""
    rows = [["cluster", "GPU", "domain", "node", "scale-up/GPU", "scale-out/GPU", "ratio", "status"]]
    data = []
    for name in cluster_names():
        domain, out = load_domain(name), find_scale_out(name)
        up, away = _known(domain.scale_up_bytes_per_s), out.scale_out_bytes_per_s if out else None
        ratio = up / away if up and away else None
        rows.append(
            [
                name,
                domain.gpu.name,
                str(domain.gpus),
                str(domain.gpus_per_node),
                "-" if up is None else format_quantity(up, "byte/s"),
                "-" if away is None else format_quantity(away, "byte/s"),
                "-" if ratio is None else f"{ratio:.3g}",
                _short(domain.status),
            ]
        )
        data.append(
            {
                "name": name,
                "title": domain.title,
                "status": domain.status,
                "gpu": domain.gpu.name,
                "gpus_per_domain": domain.gpus,
                "gpus_per_node": domain.gpus_per_node,
                "scale_up_bytes_per_s": up,
                "scale_out_bytes_per_s": away,
                "scale_up_over_scale_out": ratio,
            }
        )
    return data, [
        *table(rows, 0),
        "",
        "Rates per GPU and direction, from links x rate; a dash: not published.",
        "name@GPUS builds several domains, name@4x4x8 a torus of that shape.",
    ]


def model_lines() -> Shown:
    """All models: parameters as counted from their configs, beside the published figures."""
    rows = [["model", "total", "active", "published", "layers", "experts", "per token"]]
    data: list[dict[str, Any]] = []
    for name in model_names():
        said = published(name)
        try:
            model = resolve_model(name)
        except InputError as error:
            rows.append([name, "-", "-", _counts(said.total, said.active), "-", "-", "-"])
            data.append({"name": name, "title": model_title(name), "refused": str(error)})
            continue
        moe = model.moe
        rows.append(
            [
                name,
                f"{model.total_params / 1e9:.1f} B",
                f"{model.active_params / 1e9:.1f} B",
                _counts(said.total, said.active),
                str(len(model.layers)),
                str(moe.experts) if moe else "-",
                str(moe.top_k) if moe else "-",
            ]
        )
        data.append({"name": name, "title": model_title(name), **_model_counts(name)})
    return data, [
        *table(rows, 0),
        "",
        "Active: per token, with the output head, without the input embedding.",
    ]


def entry(name: str) -> tuple[dict[str, Any], list[str]]:
    """One GPU, cluster (also ``name@GPUS`` and a YAML file) or model, each figure with its origin.

    Raises
    ------
    InputError
        If the catalog has no entry of that name (the nearest are offered), or a cluster cannot be built.
    """
    if name in cluster_names():
        return _cluster(name)
    if "@" in name or name.lower().endswith((".yaml", ".yml")):
        return physical_entry(resolve_cluster(name))
    if name in gpu_names():
        return _gpu(load_gpu(name))
    if name.lower() in model_names():
        return _model(name.lower())
    known = ["gpus", "clusters", "models", *cluster_names(), *gpu_names(), *model_names()]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else "see `rackplan catalog`."
    raise InputError(f"the catalog has no {name!r}; {hint}")


def _counts(total: str, active: str) -> str:
    return f"{total} / {active}" if active else total


def _short(status: str) -> str:
    words = re.split(r"[;,(]", status, maxsplit=1)[0].strip()
    return words.replace("export variant", "export")


def _quantity(figure: Figure | None) -> str:
    return "-" if figure is None else format_quantity(figure.value, figure.unit)


def _figure_rows(figures: Mapping[str, Figure]) -> tuple[dict[str, Any], list[str]]:
    data, lines = {}, []
    for key, figure in sorted(figures.items()):
        value = (
            format_number(figure.value) if figure.unit == "1" else format_quantity(figure.value, figure.unit)
        )
        data[key] = {
            "value": _known(figure.value),
            "unit": figure.unit,
            "kind": figure.kind.label,
            "source": figure.source,
            "text": figure.text,
        }
        lines.append(f"  {key:<20}{value:>16}  {figure.kind.label}")
        lines += wrapped("", figure.source)
    return data, lines


def _gpu(gpu: GpuSpec) -> tuple[dict[str, Any], list[str]]:
    data, rows = _figure_rows(gpu.figures)
    lines = [f"{gpu.name}: {gpu.title} ({gpu.vendor}, {gpu.status}; dies per package: {gpu.dies})", *rows]
    for note in gpu.notes:
        lines += wrapped("note", note)
    head = {
        "name": gpu.name,
        "title": gpu.title,
        "vendor": gpu.vendor,
        "status": gpu.status,
        "dies": gpu.dies,
    }
    return {**head, "figures": data, "notes": list(gpu.notes)}, lines


def _cluster(name: str) -> tuple[dict[str, Any], list[str]]:
    domain, out = load_domain(name), find_scale_out(name)
    data, rows = _figure_rows({**domain.figures, **_link_figures(domain, out)})
    gpu_data, gpu_rows = _gpu(domain.gpu)
    up, away = _known(domain.scale_up_bytes_per_s), out.scale_out_bytes_per_s if out else None
    ratio = up / away if up and away else None
    cluster = resolve_cluster(name)
    limits, limit_rows = physical_entry(cluster)
    lines = [
        f"{name}: {domain.title} ({domain.status})",
        *wrapped(
            "domain",
            f"{domain.gpus} GPUs, {domain.gpus_per_node} a node, {structure_words(domain)}",
        ),
        *wrapped("scale-up", f"{scale_up_words(domain)} per GPU and direction"),
        *wrapped("scale-out", _scale_out_words(out, ratio)),
        *rows,
    ]
    for note in domain.notes:
        lines += wrapped("note", note)
    return {
        "name": name,
        "title": domain.title,
        "status": domain.status,
        "gpus_per_domain": domain.gpus,
        "gpus_per_node": domain.gpus_per_node,
        "structure": domain.structure,
        "shape": list(domain.shape),
        "switches": limits["switches"].get("switch", 0),
        "links_per_gpu": domain.links_per_gpu,
        "links_per_switch": list(domain.links_per_switch),
        "scale_up_bytes_per_s": up,
        "scale_out_bytes_per_s": away,
        "scale_up_over_scale_out": ratio,
        "figures": data,
        "notes": list(domain.notes),
        "physical": limits,
        "gpu": gpu_data,
    }, [*lines, "", *limit_rows[1:], "", *gpu_rows]


def _known(rate: float) -> float | None:
    return None if math.isnan(rate) else rate


def _scale_out_words(out: ScaleOutSpec | None, ratio: float | None) -> str:
    if out is None:
        return "not published; give a `fabric` in a cluster YAML"
    rate = f"{out.fabric.name}: {format_quantity(out.scale_out_bytes_per_s, 'byte/s')} per GPU and direction"
    return rate if ratio is None else f"{rate}, {ratio:.3g} times slower"


def _link_figures(domain: DomainSpec, out: ScaleOutSpec | None) -> dict[str, Figure]:
    found = {}
    for fabric in (domain.fabric, *domain.dimension_fabrics, *([out.fabric] if out else [])):
        found[f"{fabric.name} link"] = fabric.link_bytes_per_s
        found[f"{fabric.name} latency"] = fabric.latency_s
    return found


def _model(name: str) -> tuple[dict[str, Any], list[str]]:
    said = published(name)
    data = _model_counts(name)
    lines = [
        f"{name}: {model_title(name)}",
        *wrapped(
            "total",
            f"{data['total_params']:,} parameters (published: {_counted(said.total, said.total_counts)})",
        ),
        *wrapped(
            "active",
            f"{data['active_params']:,} per token with the head, without the input embedding; "
            f"{data['active_params_with_embedding']:,} with both "
            f"(published: {_counted(said.active, said.active_counts)})",
        ),
        *wrapped("layers", f"{data['layers']}, of which {data['moe_layers']} with routed experts"),
        *wrapped("attention", ", ".join(data["attention"])),
        *wrapped(
            "KV cache", f"{data['kv_bytes_per_sequence_4096_bf16'] / 1e6:,.1f} MB for 4,096 tokens in bf16"
        ),
        *wrapped(
            "precision",
            ", ".join(f"{part} {dtype}" for part, dtype in data["precision"].items())
            + f" ({data['precision_source']})",
        ),
    ]
    for part in data["omitted"]:
        lines += wrapped("left out", part)
    for source in said.sources:
        lines += wrapped("source", source)
    return {"name": name, "title": model_title(name), **data}, lines


def _counted(figure: str, counts: str) -> str:
    """A published figure, and what it counts where that is said."""
    return f"{figure} {counts}".strip()


def _model_counts(name: str) -> dict[str, Any]:
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
        "kv_bytes_per_sequence_4096_bf16": sum(
            layer.attention.cache_bytes(4096, 2) for layer in model.layers
        ),
        "precision": dict(model.precision),
        "precision_source": model.precision_source,
        "omitted": list(model.omitted),
        "sources": list(said.sources),
    }
