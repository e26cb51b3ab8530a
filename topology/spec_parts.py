"""Figures, fabrics and GPUs as plain JSON-able data, lossless both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topology.errors import InputError
from topology.figures import UNPUBLISHED, Figure
from topology.reading import Fields
from topology.spec import FabricSpec, GpuSpec

_UNITS = ("byte", "byte/s", "flop/s", "s", "W", "1", "USD/h", "kg", "m")


def _figure_to_dict(figure: Figure) -> dict[str, Any]:
    """One figure as plain data."""
    return {
        "value": figure.value if figure.published else None,
        "unit": figure.unit,
        "kind": figure.kind.label,
        "source": figure.source,
        "text": figure.text,
    }


def figures_to_dict(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Figures by key as plain data."""
    return {key: _figure_to_dict(figure) for key, figure in figures.items()}


def fabric_to_dict(fabric: FabricSpec) -> dict[str, Any]:
    """One fabric as plain data."""
    return {
        "name": fabric.name,
        "kind": fabric.kind,
        "link_bytes_per_s": _figure_to_dict(fabric.link_bytes_per_s),
        "latency_s": _figure_to_dict(fabric.latency_s),
    }


def gpu_to_dict(gpu: GpuSpec) -> dict[str, Any]:
    """One GPU as plain data."""
    return {
        "name": gpu.name,
        "title": gpu.title,
        "vendor": gpu.vendor,
        "status": gpu.status,
        "dies": gpu.dies,
        "figures": figures_to_dict(gpu.figures),
        "notes": list(gpu.notes),
    }


def _figure(fields: Fields) -> Figure:
    """Read one figure."""
    text = fields.get("text", "")
    if not isinstance(text, str):
        raise InputError(f"{fields.at('text')}: {text!r} must be a text.")
    unit = fields.text("unit")
    if unit not in _UNITS:
        raise InputError(f"{fields.at('unit')}: {unit!r} is not one of {', '.join(_UNITS)}.")
    value = UNPUBLISHED if fields.get("value", 0) is None else fields.number("value")
    figure = Figure(value, unit, fields.evidence(), fields.text("source"), text)
    fields.done()
    return figure


def read_figures_dict(fields: Fields) -> dict[str, Figure]:
    """Read figures by key."""
    return {key: _figure(fields.sub(key)) for key in fields.names()}


def read_fabric_dict(fields: Fields) -> FabricSpec:
    """Read one fabric."""
    rate, latency = _figure(fields.sub("link_bytes_per_s")), _figure(fields.sub("latency_s"))
    fabric = FabricSpec(fields.text("name"), fields.text("kind"), rate, latency)
    fields.done()
    return fabric


def read_gpu_dict(fields: Fields) -> GpuSpec:
    """Read one GPU."""
    gpu = GpuSpec(
        name=fields.text("name"),
        title=fields.text("title"),
        vendor=fields.text("vendor"),
        status=fields.text("status"),
        dies=fields.count("dies"),
        figures=read_figures_dict(fields.sub("figures")),
        notes=fields.texts("notes"),
    )
    fields.done()
    return gpu
