"""The catalog: GPUs, fabrics and systems from the YAML files here, each figure with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import UNPUBLISHED, Figure
from topology.base.reading import Fields, load_yaml, nearest
from topology.base.units import parse_quantity
from topology.schema import read
from topology.spec import DomainSpec, FabricSpec, GpuSpec, ScaleOutSpec

_UNPUBLISHED_TEXT = "not published"
GPU_FIGURES: Mapping[str, str] = {
    "hbm_bytes": "byte",
    "hbm_bytes_per_s": "byte/s",
    "bf16_flop_per_s": "flop/s",
    "fp8_flop_per_s": "flop/s",
    "int8_flop_per_s": "flop/s",
    "fp4_flop_per_s": "flop/s",
    "power_w": "W",
    "usd_per_h": "USD/h",
}
LINK_FIGURES: Mapping[str, str] = {"link_bytes_per_s": "byte/s", "latency_s": "s"}
SYSTEM_FIGURES: Mapping[str, str] = {
    "node_power_w": "W",
    "rack_power_w": "W",
    "domain_power_w": "W",
    "node_mass_kg": "kg",
    "rack_mass_kg": "kg",
    "copper_cables_per_link": "1",
    "links_per_transceiver": "1",
    "rack_copper_cable_m": "m",
    "switch_racks": "1",
    "node_cpus": "1",
    "switch_tray_chips": "1",
}


class FigureFile:
    """A YAML file of figures: ``sources`` by key, and one table of entries by name; messages call one ``what``."""

    def __init__(self, path: Path, table: str, what: str = "name") -> None:
        self._what = what
        where = f"catalog {path.name}"
        fields = Fields(load_yaml(path, where), where)
        self._sources = fields.by_name("sources", Fields.text)
        self._table = fields.sub(table)
        self.names = self._table.names()
        fields.done()

    def entry(self, name: str) -> Fields:
        """Return the entry called ``name``.

        Raises
        ------
        InputError
            If there is none; the message offers the nearest.
        """
        if name not in self._table:
            raise InputError(f'unknown {self._what} "{name}"; {nearest(name, self.names)}')
        return self._table.sub(name)

    def figures(self, fields: Fields, units: Mapping[str, str]) -> dict[str, Figure]:
        """Return the figures of a mapping by key; nothing else may be left in it.

        Raises
        ------
        InputError
            If one cannot be read, or names a source that the file does not have.
        """
        found = {key: self.figure(fields, key, unit) for key, unit in units.items() if key in fields}
        fields.done()
        return found

    def figure(self, entry: Fields, key: str, unit: str) -> Figure:
        """Return one figure: its value with unit (a number where ``unit`` is 1), kind, source and an optional note.

        Raises
        ------
        InputError
            If it cannot be read, or names a source that the file does not have.
        """
        return entry.part(key, lambda fields: read_figure(fields, unit, self._sources))


def read_figure(fields: Fields, unit: str, sources: Mapping[str, str]) -> Figure:
    """Return the figure that a mapping of value, kind, source and an optional note gives.

    Raises
    ------
    InputError
        If it cannot be read, or names none of ``sources``.
    """
    source = fields.source(sources)
    note = f" ({fields.text('note')})" if "note" in fields else ""
    if unit == "1":
        value = fields.number("value")
        text = f"{value:g}"
    else:
        text = fields.text("value")
        known = text != _UNPUBLISHED_TEXT
        value = parse_quantity(text, unit, fields.at("value")) if known else UNPUBLISHED
    return Figure(value, unit, fields.evidence(), f"{source}{note}", text)


_ENTRIES = {"gpus": "GPU", "fabrics": "fabric", "systems": "system"}


@cache
def _file(table: str) -> FigureFile:
    """Return one file of the catalog; each has one table of its own name."""
    return FigureFile(Path(__file__).with_name(f"{table}.yaml"), table, _ENTRIES[table])


def gpu_names() -> tuple[str, ...]:
    """Names of the GPUs in the catalog, in its order."""
    return _file("gpus").names


def fabric_names() -> tuple[str, ...]:
    """Names of the fabrics in the catalog, in its order."""
    return _file("fabrics").names


def cluster_names() -> tuple[str, ...]:
    """Names of the systems in the catalog, in its order."""
    return _file("systems").names


def gpu_title(name: str) -> str:
    """Return how the GPU called ``name`` is written out; a remark stands in brackets behind it."""
    return _file("gpus").entry(name).text("title")


def other_names(table: str) -> dict[str, str]:
    """Return what else people call entries of ``gpus`` or ``systems``: the name by each other spelling."""
    file = _file(table)
    return {text: name for name in file.names for text in file.entry(name).texts("also")}


@cache
def load_gpu(name: str) -> GpuSpec:
    """Return the GPU called ``name``.

    Raises
    ------
    InputError
        If the catalog has no GPU of that name.
    """
    file = _file("gpus")
    fields = file.entry(name)
    fields.get("also")
    return read(GpuSpec, fields, name=name, figures=file.figures(fields.sub("figures"), GPU_FIGURES))


@cache
def load_fabric(name: str) -> FabricSpec:
    """Return the fabric called ``name``.

    Raises
    ------
    InputError
        If the catalog has no fabric of that name.
    """
    file = _file("fabrics")
    fields = file.entry(name)
    rate = file.figure(fields, "link_bytes_per_s", "byte/s")
    latency = file.figure(fields, "latency_s", "s")
    return read(FabricSpec, fields, name=name, link_bytes_per_s=rate, latency_s=latency)


def system_entry(name: str) -> Fields:
    """Return what the catalog says of the system called ``name``.

    Raises
    ------
    InputError
        If the catalog has no system of that name.
    """
    return _file("systems").entry(name)


@cache
def load_domain(name: str) -> DomainSpec:
    """Return the scale-up domain of the system called ``name``; a torus in its default shape wraps everywhere.

    Raises
    ------
    InputError
        If the catalog has no system of that name.
    """
    fields = system_entry(name)
    for key in ("scale_out", "shapes", "also"):  # read apart
        fields.get(key)
    links: list[int] = []
    for row in fields.subs("switches", empty=True):
        links += [row.count("links")] * row.count("chips")
        row.done()
    figures = fields.sub("figures") if "figures" in fields else Fields({}, fields.where)
    return read(
        DomainSpec,
        fields,
        part=name,
        gpu=load_gpu(fields.text("gpu")),
        fabric=load_fabric(fields.text("fabric")),
        links_per_switch=tuple(links),
        wrap=(True,) * len(fields.get("shape", ())),
        figures=_file("systems").figures(figures, SYSTEM_FIGURES),
        dimension_fabrics=tuple(load_fabric(fabric) for fabric in fields.texts("dimension_fabrics")),
    )


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
    entry = system_entry(name)
    if "scale_out" not in entry:
        return None
    fields = entry.sub("scale_out")
    fabric, hosts = load_fabric(fields.text("fabric")), fields.count("pod")
    return read(ScaleOutSpec, fields, fabric=fabric, nodes_per_pod=hosts)
