"""The catalog: GPUs, fabrics and systems from the YAML files here, each figure with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Figure
from topology.base.reading import Fields, load_yaml, nearest
from topology.base.schema import figure_of, validated
from topology.fabrics import AnyFabric
from topology.fabrics.fabric import ScaleOutSpec
from topology.spec import FabricSpec, GpuSpec
from topology.structures import AnyDomain
from topology.structures.domain import DomainSpec


class FigureFile:
    """A YAML file of figures: ``sources`` by key, and one table of entries by name; messages call one ``what``."""

    def __init__(self, path: Path, table: str, what: str = "name") -> None:
        self._what = what
        where = f"catalog {path.name}"
        fields = Fields(load_yaml(path, where), where)
        self.sources = fields.by_name("sources", Fields.text)
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
        return entry.part(key, lambda fields: read_figure(fields, unit, self.sources))


def read_figure(fields: Fields, unit: str, sources: Mapping[str, str]) -> Figure:
    """Return the figure that a mapping of value, kind, source and an optional note gives.

    Raises
    ------
    InputError
        If it cannot be read, or names none of ``sources``.
    """
    given = {key: fields.get(key) for key in ("value", "kind", "source", "note") if key in fields}
    return figure_of(given, unit, fields.where, sources)


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


def entry(table: str, name: str) -> Mapping[str, Any]:
    """Return what the catalog says of an entry of ``gpus``, ``fabrics`` or ``systems``.

    Raises
    ------
    InputError
        If it has none of that name.
    """
    return _file(table).entry(name).data


def other_names(table: str) -> dict[str, str]:
    """Return what else people call entries of ``gpus`` or ``systems``: the name by each other spelling."""
    return {text: name for name in _file(table).names for text in entry(table, name).get("also", ())}


def _made(
    kind: Any, table: str, name: str, known: Mapping[str, object], drop: tuple[str, ...] = ("also",)
) -> Any:
    """Return an entry as ``kind``, with some fields that are ``known`` otherwise."""
    file = _file(table)
    fields = file.entry(name)
    data = {**{key: value for key, value in fields.data.items() if key not in drop}, **known}
    return validated(kind, data, fields.where, file.sources)


@cache
def load_gpu(name: str) -> GpuSpec:
    """Return the GPU called ``name``.

    Raises
    ------
    InputError
        If the catalog has no GPU of that name.
    """
    found: GpuSpec = _made(GpuSpec, "gpus", name, {"name": name})
    return found


@cache
def load_fabric(name: str) -> FabricSpec:
    """Return the fabric called ``name``.

    Raises
    ------
    InputError
        If the catalog has no fabric of that name.
    """
    found: FabricSpec = _made(FabricSpec, "fabrics", name, {"name": name})
    return found


@cache
def load_domain(name: str) -> DomainSpec:
    """Return the scale-up domain of the system called ``name``; a torus in its default shape wraps everywhere.

    Raises
    ------
    InputError
        If the catalog has no system of that name.
    """
    data = entry("systems", name)
    known: dict[str, object] = {
        "part": name,
        "gpu": load_gpu(data["gpu"]),
        "fabric": load_fabric(data["fabric"]),
    }
    if "switches" in data:
        rows = data["switches"]
        known["links_per_switch"] = tuple(row["links"] for row in rows for _ in range(row["chips"]))
    if "shape" in data:
        known["wrap"] = (True,) * len(data["shape"])
    if "dimension_fabrics" in data:
        known["dimension_fabrics"] = tuple(map(load_fabric, data["dimension_fabrics"]))
    drop = ("also", "scale_out", "shapes", "switches")
    found: DomainSpec = _made(AnyDomain, "systems", name, known, drop)
    return found


@cache
def systems_of(gpu: str) -> tuple[DomainSpec, ...]:
    """Return the domains of the catalog that have the GPU called ``gpu``, in its order."""
    return tuple(load_domain(name) for name in cluster_names() if entry("systems", name)["gpu"] == gpu)


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
    design = entry("systems", name).get("scale_out")
    if design is None:
        return None
    where = f"catalog systems.yaml: systems: {name}: scale_out"
    found: ScaleOutSpec = validated(AnyFabric, {**design, "fabric": load_fabric(design["fabric"])}, where)
    return found
