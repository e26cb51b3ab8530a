"""The catalog: GPUs, fabrics and systems from the YAML files here, each figure with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence, Figure
from topology.base.reading import load_yaml, nearest
from topology.base.schema import Text, figures_by_name, validated
from topology.fabrics import AnyFabric
from topology.fabrics.fabric import ScaleOutSpec
from topology.fabrics.rail import RailFabric
from topology.spec import FabricSpec, GpuSpec
from topology.structures import AnyDomain
from topology.structures.domain import DomainSpec


@dataclass(frozen=True)
class FigureFile:
    """A YAML file of figures: ``sources`` by key, and one table of entries by name; messages call one ``what``."""

    where: str
    what: str
    sources: Mapping[str, str]
    entries: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path, table: str, noun: str = "name") -> FigureFile:
        """Read such a file.

        Raises
        ------
        InputError
            If it has other keys, or sources that are no texts.
        """
        where = f"catalog {path.name}"
        data = validated(dict[Text, dict[Text, Any]], load_yaml(path, where), where)
        if set(data) != {"sources", table}:
            raise InputError(f"{where}: has the keys {', '.join(data)}; expected sources and {table}.")
        sources = validated(dict[Text, Text], data["sources"], f"{where}: sources")
        entries = validated(dict[Text, dict[Text, Any]], data[table], f"{where}: {table}")
        return cls(f"{where}: {table}", noun, sources, entries)

    def entry(self, name: str) -> Mapping[str, Any]:
        """Return the entry called ``name``.

        Raises
        ------
        InputError
            If there is none; the message offers the nearest.
        """
        if name not in self.entries:
            raise InputError(f'unknown {self.what} "{name}"; {nearest(name, self.entries)}')
        return self.entries[name]

    def figures(self, units: Mapping[str, str]) -> dict[str, dict[str, Figure]]:
        """Return the figures of all entries, which have nothing else; ``units`` are those that there can be.

        Raises
        ------
        InputError
            If one cannot be read, or names a source that the file does not have.
        """
        kind: Any = dict[str, Annotated[Mapping[str, Figure], figures_by_name(units)]]
        figures: dict[str, dict[str, Figure]] = validated(kind, self.entries, self.where, self.sources)
        return figures


_ENTRIES = {"gpus": "GPU", "fabrics": "fabric", "systems": "system"}


@cache
def _file(table: str) -> FigureFile:
    """Return one file of the catalog; each has one table of its own name."""
    return FigureFile.read(Path(__file__).with_name(f"{table}.yaml"), table, _ENTRIES[table])


def gpu_names() -> tuple[str, ...]:
    """Names of the GPUs in the catalog, in its order."""
    return tuple(_file("gpus").entries)


def fabric_names() -> tuple[str, ...]:
    """Names of the fabrics in the catalog, in its order."""
    return tuple(_file("fabrics").entries)


def cluster_names() -> tuple[str, ...]:
    """Names of the systems in the catalog, in its order."""
    return tuple(_file("systems").entries)


def entry(table: str, name: str) -> Mapping[str, Any]:
    """Return what the catalog says of an entry of ``gpus``, ``fabrics`` or ``systems``.

    Raises
    ------
    InputError
        If it has none of that name.
    """
    return _file(table).entry(name)


def other_names(table: str) -> dict[str, str]:
    """Return what else people call entries of ``gpus`` or ``systems``: the name by each other spelling."""
    return {text: name for name, row in _file(table).entries.items() for text in row.get("also", ())}


def _read_entry(
    kind: Any, table: str, name: str, known: Mapping[str, object], drop: tuple[str, ...] = ("also",)
) -> Any:
    """Return an entry as ``kind``, with some fields that are ``known`` otherwise."""
    file = _file(table)
    data = {**{key: value for key, value in file.entry(name).items() if key not in drop}, **known}
    return validated(kind, data, f"{file.where}: {name}", file.sources)


@cache
def load_gpu(name: str) -> GpuSpec:
    """Return the GPU called ``name``.

    Raises
    ------
    InputError
        If the catalog has no GPU of that name.
    """
    gpu: GpuSpec = _read_entry(GpuSpec, "gpus", name, {"name": name})
    return gpu


@cache
def load_fabric(name: str) -> FabricSpec:
    """Return the fabric called ``name``.

    Raises
    ------
    InputError
        If the catalog has no fabric of that name.
    """
    fabric: FabricSpec = _read_entry(FabricSpec, "fabrics", name, {"name": name})
    return fabric


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
    domain: DomainSpec = _read_entry(AnyDomain, "systems", name, known, drop)
    return domain


def full_domain(domain: DomainSpec) -> DomainSpec:
    """Return the whole domain that ``domain`` is a part of, with its own figures; itself where nobody knows it."""
    if domain.whole or domain.part not in cluster_names():
        return domain
    return replace(load_domain(domain.part), gpu=domain.gpu, fabric=domain.fabric, figures=domain.figures)


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
            f"{name}: the network between its domains is not published; give one in a cluster YAML, like "
            f"`fabric: {{kind: "
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
    fabric: ScaleOutSpec = validated(AnyFabric, {**design, "fabric": load_fabric(design["fabric"])}, where)
    return fabric


_REFERENCE = "hgx-h100"
"""Pods and spines of domains that are written out follow this design; its latencies say that they stand in, and its
rack is that of all hosts whose racks nobody describes."""


def reference_design() -> RailFabric:
    """Return the fabric whose pods and spines are taken where nothing is known."""
    design = load_scale_out(_REFERENCE)
    assert isinstance(design, RailFabric)  # noqa: S101 - as the catalog has it
    return design


def rack_budget(domain: DomainSpec) -> Figure:
    """Return the most that hosts of ``domain`` draw in one rack; that of the reference design stands in."""
    known = domain.figures.get("rack_budget_w")
    if known is not None:
        return known
    figure = load_domain(_REFERENCE).figures["rack_budget_w"]
    return replace(figure, kind=Evidence.ASSUMED, source=f"as {_REFERENCE}: {figure.source}")


def stand_in_latency(*, scale_up: bool) -> Figure:
    """Return the catalog's stand-in for the latency of a hop, which says that it is one."""
    return (load_domain(_REFERENCE) if scale_up else reference_design()).fabric.latency_s
