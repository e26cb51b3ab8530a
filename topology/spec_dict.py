"""A cluster specification as plain JSON-able data, lossless both ways, checked on the way in."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from topology.catalog_files import read_evidence
from topology.check import check_cluster, check_domain, check_scale_out
from topology.errors import InputError
from topology.fields import Fields
from topology.figures import Figure
from topology.spec import ClusterSpec, DomainSpec, FabricSpec, GpuSpec, ScaleOutSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["spec_from_dict", "spec_to_dict"]

_UNITS = ("byte", "byte/s", "flop/s", "s", "W", "1", "USD/h")


def spec_to_dict(spec: ClusterSpec) -> dict[str, Any]:
    """Return ``spec`` as plain data; equal domains in a row are written once, with their count."""
    runs = [list(run) for _, run in groupby(spec.domains, key=_domain_to_dict)]
    return {
        "name": spec.name,
        "domains": [{"count": len(run), **_domain_to_dict(run[0])} for run in runs],
        "scale_out": None if spec.scale_out is None else _scale_out_to_dict(spec.scale_out),
    }


def spec_from_dict(data: Mapping[str, Any], where: str = "cluster") -> ClusterSpec:
    """Return the specification that :func:`spec_to_dict` wrote.

    Raises
    ------
    InputError
        If a key is missing or unknown, or a value cannot be.
    """
    fields = Fields(data, where)
    domains: list[DomainSpec] = []
    for row in fields.subs("domains"):
        domains += [_domain(row)] * row.count("count")
        row.done()
    scale_out = None if fields.get("scale_out") is None else _scale_out(fields.sub("scale_out"))
    spec = ClusterSpec(fields.text("name"), tuple(domains), scale_out)
    fields.done()
    return check_cluster(spec, where)


def _figure_to_dict(figure: Figure) -> dict[str, Any]:
    """One figure as plain data."""
    return {
        "value": figure.value,
        "unit": figure.unit,
        "kind": figure.kind.label,
        "source": figure.source,
        "text": figure.text,
    }


def _figures_to_dict(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Figures by key as plain data."""
    return {key: _figure_to_dict(figure) for key, figure in figures.items()}


def _fabric_to_dict(fabric: FabricSpec) -> dict[str, Any]:
    """One fabric as plain data."""
    return {
        "name": fabric.name,
        "kind": fabric.kind,
        "link_bytes_per_s": _figure_to_dict(fabric.link_bytes_per_s),
        "latency_s": _figure_to_dict(fabric.latency_s),
    }


def _gpu_to_dict(gpu: GpuSpec) -> dict[str, Any]:
    """One GPU as plain data."""
    return {
        "name": gpu.name,
        "title": gpu.title,
        "vendor": gpu.vendor,
        "status": gpu.status,
        "dies": gpu.dies,
        "figures": _figures_to_dict(gpu.figures),
        "notes": list(gpu.notes),
    }


def _domain_to_dict(domain: DomainSpec) -> dict[str, Any]:
    """One domain as plain data."""
    return {
        "part": domain.part,
        "title": domain.title,
        "status": domain.status,
        "gpu": _gpu_to_dict(domain.gpu),
        "gpus": domain.gpus,
        "gpus_per_node": domain.gpus_per_node,
        "structure": domain.structure,
        "fabric": _fabric_to_dict(domain.fabric),
        "links_per_switch": list(domain.links_per_switch),
        "nodes_per_rack": domain.nodes_per_rack,
        "figures": _figures_to_dict(domain.figures),
        "notes": list(domain.notes),
    }


def _scale_out_to_dict(scale_out: ScaleOutSpec) -> dict[str, Any]:
    """Return the fabric between domains as plain data."""
    return {
        "kind": scale_out.kind,
        "fabric": _fabric_to_dict(scale_out.fabric),
        "nic_links_per_gpu": scale_out.nic_links_per_gpu,
        "nodes_per_pod": scale_out.nodes_per_pod,
        "spines": scale_out.spines,
        "oversubscription": scale_out.oversubscription,
    }


def _figure(fields: Fields) -> Figure:
    """Read one figure."""
    text = fields.get("text", "")
    if not isinstance(text, str):
        raise InputError(f"{fields.at('text')}: {text!r} must be a text.")
    unit = fields.text("unit")
    if unit not in _UNITS:
        raise InputError(f"{fields.at('unit')}: {unit!r} is not one of {', '.join(_UNITS)}.")
    figure = Figure(fields.number("value"), unit, read_evidence(fields), fields.text("source"), text)
    fields.done()
    return figure


def _figures(fields: Fields) -> dict[str, Figure]:
    """Read figures by key."""
    return {key: _figure(fields.sub(key)) for key in fields.names()}


def _fabric(fields: Fields) -> FabricSpec:
    """Read one fabric."""
    rate, latency = _figure(fields.sub("link_bytes_per_s")), _figure(fields.sub("latency_s"))
    fabric = FabricSpec(fields.text("name"), fields.text("kind"), rate, latency)
    fields.done()
    return fabric


def _gpu(fields: Fields) -> GpuSpec:
    """Read one GPU."""
    gpu = GpuSpec(
        name=fields.text("name"),
        title=fields.text("title"),
        vendor=fields.text("vendor"),
        status=fields.text("status"),
        dies=fields.count("dies"),
        figures=_figures(fields.sub("figures")),
        notes=fields.texts("notes"),
    )
    fields.done()
    return gpu


def _domain(fields: Fields) -> DomainSpec:
    """Read one domain; ``count`` is read by the caller."""
    domain = DomainSpec(
        part=fields.text("part"),
        title=fields.text("title"),
        status=fields.text("status"),
        gpu=_gpu(fields.sub("gpu")),
        gpus=fields.count("gpus"),
        gpus_per_node=fields.count("gpus_per_node"),
        structure=fields.text("structure"),
        fabric=_fabric(fields.sub("fabric")),
        links_per_switch=fields.counts("links_per_switch"),
        nodes_per_rack=fields.count("nodes_per_rack"),
        figures=_figures(fields.sub("figures")),
        notes=fields.texts("notes"),
    )
    return check_domain(domain, fields.where)


def _scale_out(fields: Fields) -> ScaleOutSpec:
    """Read the fabric between domains."""
    scale_out = ScaleOutSpec(
        kind=fields.text("kind"),
        fabric=_fabric(fields.sub("fabric")),
        nic_links_per_gpu=fields.count("nic_links_per_gpu"),
        nodes_per_pod=fields.count("nodes_per_pod"),
        spines=fields.count("spines"),
        oversubscription=fields.number("oversubscription"),
    )
    fields.done()
    return check_scale_out(scale_out, fields.where)
