"""The catalog: GPUs, fabrics and systems from the YAML files here, each figure with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from topology.errors import InputError, MissingFigureError
from topology.fabrics import check_scale_out
from topology.figures import UNPUBLISHED, Figure
from topology.reading import Fields, load_yaml, nearest
from topology.spec import DomainSpec, FabricSpec, GpuSpec, ScaleOutSpec
from topology.structures import check_domain
from topology.units import parse_quantity

CATALOG = Path(__file__).parent / "catalog"

GPU_FIGURES: Mapping[str, str] = {
    "hbm_bytes": "byte",
    "hbm_bytes_per_s": "byte/s",
    "bf16_flop_per_s": "flop/s",
    "fp8_flop_per_s": "flop/s",
    "fp4_flop_per_s": "flop/s",
    "power_w": "W",
    "usd_per_h": "USD/h",
}
_UNPUBLISHED_TEXT = "not published"
_FABRIC_FIGURES = {"link_bytes_per_s": "byte/s", "latency_s": "s"}
_SYSTEM_FIGURES = {
    "node_power_w": "W",
    "rack_power_w": "W",
    "domain_power_w": "W",
    "node_mass_kg": "kg",
    "rack_mass_kg": "kg",
    "copper_cables_per_link": "1",
    "rack_copper_cable_m": "m",
}


def gpu_names() -> tuple[str, ...]:
    """Names of the GPUs in the catalog, in its order."""
    return _table("gpus").names()


def fabric_names() -> tuple[str, ...]:
    """Names of the fabrics in the catalog, in its order."""
    return _table("fabrics").names()


def cluster_names() -> tuple[str, ...]:
    """Names of the systems in the catalog, in its order."""
    return _table("systems").names()


@cache
def load_gpu(name: str) -> GpuSpec:
    """Return the GPU called ``name``.

    Raises
    ------
    InputError
        If the catalog has no GPU of that name.
    """
    fields = _entry("gpus", "GPU", name)
    spec = GpuSpec(
        name=name,
        title=fields.text("title"),
        vendor=fields.text("vendor"),
        status=fields.text("status"),
        dies=fields.count("dies"),
        figures=_figures(fields.sub("figures"), GPU_FIGURES, _sources("gpus")),
        notes=fields.texts("notes"),
    )
    fields.done()
    return spec


@cache
def load_fabric(name: str) -> FabricSpec:
    """Return the fabric called ``name``.

    Raises
    ------
    InputError
        If the catalog has no fabric of that name.
    """
    fields = _entry("fabrics", "fabric", name)
    kind = fields.text("kind")
    sources = _sources("fabrics")
    figures = {key: _figure(fields.sub(key), unit, sources) for key, unit in _FABRIC_FIGURES.items()}
    fields.done()
    return FabricSpec(name, kind, figures["link_bytes_per_s"], figures["latency_s"])


@cache
def load_domain(name: str) -> DomainSpec:
    """Return the scale-up domain of the system called ``name``.

    Raises
    ------
    InputError
        If the catalog has no system of that name.
    """
    fields = _entry("systems", "system", name)
    structure = fields.text("structure")
    domain = DomainSpec(
        part=name,
        title=fields.text("title"),
        status=fields.text("status"),
        gpu=load_gpu(fields.text("gpu")),
        gpus=fields.count("gpus"),
        gpus_per_node=fields.count("gpus_per_node"),
        structure=structure,
        fabric=load_fabric(fields.text("fabric")),
        links_per_switch=_switches(fields) if "switches" in fields else (),
        nodes_per_rack=fields.count("nodes_per_rack"),
        figures=_figures(fields.sub("figures"), _SYSTEM_FIGURES, _sources("systems"))
        if "figures" in fields
        else {},
        notes=fields.texts("notes"),
    )
    if fields.flag("links_bundled"):
        domain = replace(domain, links_bundled=True)
    if structure == "two-tier":
        domain = replace(domain, upper_switches=fields.count("upper_switches"))
    if structure in ("mesh", "torus"):
        domain = replace(domain, links_per_neighbour=fields.count("links_per_neighbour"))
    if structure == "torus":
        domain = _torus(domain, fields)
    fields.get("scale_out")
    fields.done()
    return check_domain(domain, fields.where)


def _switches(fields: Fields) -> tuple[int, ...]:
    """Return the links of each GPU to each switch chip."""
    links: list[int] = []
    for row in fields.subs("switches"):
        links += [row.count("links")] * row.count("chips")
        row.done()
    return tuple(links)


def _torus(domain: DomainSpec, fields: Fields) -> DomainSpec:
    """Return the torus of an entry in its default shape, which wraps in every dimension."""
    shape = fields.counts("shape")
    names = fields.texts("dimension_fabrics")
    fields.get("shapes")
    return replace(
        domain,
        shape=shape,
        wrap=(True,) * len(shape),
        node_shape=fields.counts("node_shape"),
        rack_shape=fields.counts("rack_shape") if "rack_shape" in fields else (),
        dimension_fabrics=tuple(load_fabric(name) for name in names),
    )


@dataclass(frozen=True)
class Shapes:
    """Which shapes a torus of the catalog is made in, and where those wrap.

    With ``wrap_step`` a torus wraps in all dimensions where each size is a multiple of it, and in none otherwise;
    with ``wrap_size`` it wraps in the dimensions that have this size.
    """

    most_gpus: int
    most_per_dimension: int = 0
    wrap_step: int = 0
    wrap_size: int = 0


@cache
def load_shapes(name: str) -> Shapes | None:
    """Return the shapes that the torus called ``name`` is made in, None where there is one only.

    Raises
    ------
    InputError
        If the catalog has no system of that name.
    """
    fields = _entry("systems", "system", name)
    if "shapes" not in fields:
        return None
    row = fields.sub("shapes")
    optional = ("most_per_dimension", "wrap_step", "wrap_size")
    shapes = Shapes(row.count("most_gpus"), **{key: row.count(key) for key in optional if key in row})
    row.done()
    return shapes


@cache
def systems_of(gpu: str) -> tuple[DomainSpec, ...]:
    """Return the domains of the catalog that have the GPU called ``gpu``, in its order."""
    domains = (load_domain(name) for name in cluster_names())
    return tuple(domain for domain in domains if domain.gpu.name == gpu)


@cache
def load_scale_out(name: str) -> ScaleOutSpec:
    """Return how domains of the system called ``name`` are usually cabled to each other.

    Raises
    ------
    InputError
        If the catalog has no system of that name.
    MissingFigureError
        If its maker has not published any.
    """
    scale_out = find_scale_out(name)
    if scale_out is None:
        raise MissingFigureError(
            f"{name}: no network between its domains is published; give one in a cluster YAML, like `fabric: {{kind: "
            "leaf-spine, nic: 400 Gb/s}`."
        )
    return scale_out


@cache
def find_scale_out(name: str) -> ScaleOutSpec | None:
    """Return how domains of the system called ``name`` are usually cabled, None where nothing is published.

    Raises
    ------
    InputError
        If the catalog has no system of that name.
    """
    entry = _entry("systems", "system", name)
    if "scale_out" not in entry:
        return None
    fields = entry.sub("scale_out")
    scale_out = ScaleOutSpec(
        kind=fields.text("kind"),
        fabric=load_fabric(fields.text("fabric")),
        nic_links_per_gpu=fields.count("nic_links_per_gpu"),
        nodes_per_pod=fields.count("pod"),
        spines=fields.count("spines"),
    )
    fields.done()
    return check_scale_out(scale_out, fields.where)


@cache
def _file(stem: str) -> Fields:
    """One catalog file."""
    path = CATALOG / f"{stem}.yaml"
    return Fields(load_yaml(path, f"catalog {path.name}"), f"catalog {path.name}")


def _table(stem: str) -> Fields:
    """Return the entries of one catalog file by name."""
    return _file(stem).sub(stem)


def _entry(stem: str, what: str, name: str) -> Fields:
    """One entry of a catalog file, or an error that offers the nearest names."""
    table = _table(stem)
    if name not in table:
        raise InputError(f'unknown {what} "{name}"; {nearest(name, table.names())}')
    return table.sub(name)


def _sources(stem: str) -> dict[str, str]:
    """Return the sources of one catalog file by key."""
    fields = _file(stem).sub("sources")
    return {key: fields.text(key) for key in fields.names()}


def _figures(fields: Fields, units: Mapping[str, str], sources: Mapping[str, str]) -> dict[str, Figure]:
    """Read a mapping of figures; the keys are those of ``units``."""
    figures = {key: _figure(fields.sub(key), unit, sources) for key, unit in units.items() if key in fields}
    fields.done()
    return figures


def _figure(fields: Fields, unit: str, sources: Mapping[str, str]) -> Figure:
    """Read one figure: value with unit, kind, source and an optional note."""
    text = fields.text("value")
    source = fields.text("source")
    if source not in sources:
        raise InputError(f"{fields.at('source')}: {source!r} is not among the file's sources.")
    note = fields.get("note")
    value = _value(text, unit, fields.where)
    figure = Figure(
        value=value,
        unit=unit,
        kind=fields.evidence(),
        source=f"{sources[source]} ({note})" if note else sources[source],
        text=text,
    )
    fields.done()
    return figure


def _value(text: str, unit: str, where: str) -> float:
    """Return the number of a figure: a quantity, a plain count, or that it is not published."""
    if text == _UNPUBLISHED_TEXT:
        return UNPUBLISHED
    if unit == "1":
        if not text.isascii() or not text.isdigit() or int(text) == 0:
            raise InputError(f"{where}: {text!r} must be a whole number of at least one.")
        return float(text)
    return parse_quantity(text, unit, where)
