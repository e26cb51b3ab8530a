"""A cluster described by its owner in YAML: domains, the fabric between them, and figures of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from topology.catalog_files import GPU_FIGURES, gpu_names, load_domain, load_gpu, load_scale_out
from topology.check import check_cluster, check_domain, check_scale_out
from topology.errors import InputError
from topology.fields import Fields, load_yaml, nearest
from topology.figures import Evidence, Figure
from topology.spec import ClusterSpec, DomainSpec, FabricSpec, GpuSpec, ScaleOutSpec
from topology.units import format_quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["read_cluster_file"]

_NOT_YET = ("broken", "nodes", "links")
_FALLBACK = (
    "hgx-h100"  # pods and spines of inline domains, and stand-in latencies, follow this reference design
)


def read_cluster_file(path: Path) -> ClusterSpec:
    """Read a cluster YAML.

    Raises
    ------
    InputError
        If it cannot be read, has unknown keys, or uses a part of the format that is not supported yet.
    """
    where = path.name
    fields = Fields(load_yaml(path, where), where)
    for key in _NOT_YET:
        if key in fields:
            raise InputError(f"{where}: `{key}` is a part of the cluster format that is not supported yet.")
    name = fields.text("name") if "name" in fields else path.stem
    gpus = _Gpus(_overrides(fields, where))
    rows = fields.subs("domains")
    parts = [row.get("part") for row in rows]
    domains = tuple(domain for row in rows for domain in _domains(row, gpus))
    scale_out = _scale_out(fields, parts, len(domains))
    fields.done()
    gpus.refuse_unused(where)
    return check_cluster(ClusterSpec(name, domains, scale_out), where)


class _Gpus:
    """GPUs by name: the catalog's, changed and extended by the file's own figures."""

    def __init__(self, overrides: Mapping[str, Mapping[str, Figure]]) -> None:
        self._overrides = overrides
        self._used: set[str] = set()

    def __call__(self, name: str, where: str) -> GpuSpec:
        """Return the GPU called ``name`` with the file's figures in place of the catalog's."""
        own = self._overrides.get(name)
        self._used.add(name)
        if name in gpu_names():
            gpu = load_gpu(name)
            return replace(gpu, figures={**gpu.figures, **own}) if own else gpu
        if own is None or "hbm_bytes" not in own:
            raise InputError(
                f'{where}: unknown GPU "{name}"; {nearest(name, gpu_names())} '
                "A GPU of your own needs its figures under `gpus:`."
            )
        return GpuSpec(name, name, "user", "user", 1, own)

    def refuse_unused(self, where: str) -> None:
        """Refuse figures for a GPU that no domain has: they would change nothing."""
        for name in self._overrides:
            if name not in self._used:
                raise InputError(
                    f"{where}: figures for {name!r}, but no domain has it; {nearest(name, self._used)}"
                )


def _overrides(fields: Fields, where: str) -> dict[str, dict[str, Figure]]:
    """Return the file's own figures under ``gpus`` and ``prices``."""
    own: dict[str, dict[str, Figure]] = {}
    if "gpus" in fields:
        table = fields.sub("gpus")
        for name in table.names():
            row = table.sub(name)
            own[name] = {
                key: _user_figure(row, key, unit, where) for key, unit in GPU_FIGURES.items() if key in row
            }
            row.done()
    if "prices" in fields:
        prices = fields.sub("prices")
        for name in prices.names():
            own.setdefault(name, {})["usd_per_h"] = _user_figure(prices, name, "USD/h", where)
    return own


def _user_figure(fields: Fields, key: str, unit: str, file: str) -> Figure:
    """One figure that the file's owner vouches for."""
    text = fields.text(key) if isinstance(fields.get(key), str) else fields.need(key)
    value = parse_quantity(text, unit, fields.at(key))
    return Figure(value, unit, Evidence.USER, file, str(text))


def _domains(row: Fields, gpus: Callable[[str, str], GpuSpec]) -> list[DomainSpec]:
    """Return the domains of one row of the file."""
    if "structure" in row and row.get("structure") != "switch":
        raise InputError(
            f"{row.where}: structure {row.text('structure')!r} is not supported yet; `switch` is."
        )
    domain = _catalog_part(row, gpus) if "part" in row else _inline_domain(row, gpus)
    count = row.count("count") if "count" in row else 1
    row.done()
    return [check_domain(domain, row.where)] * count


def _catalog_part(row: Fields, gpus: Callable[[str, str], GpuSpec]) -> DomainSpec:
    """Return a domain named by its catalog part, full or with ``gpus`` fewer GPUs."""
    domain = load_domain(row.text("part"))
    domain = replace(domain, gpu=gpus(domain.gpu.name, row.where))
    if "gpus" in row:
        domain = replace(domain, gpus=row.count("gpus", most=domain.gpus))
    return domain


def _inline_domain(row: Fields, gpus: Callable[[str, str], GpuSpec]) -> DomainSpec:
    """Return a domain written out in the file."""
    gpu = gpus(row.text("gpu"), row.where)
    structure = row.text("structure")
    total = row.count("gpus")
    per_node = row.count("gpus_per_node")
    links = row.counts("links_per_switch")
    link = _user_figure(row, "link", "byte/s", row.where)
    latency = _latency(row, load_domain(_FALLBACK).fabric)
    nodes = -(-total // per_node)
    kind = row.text("link_kind") if "link_kind" in row else "nvlink"
    return DomainSpec(
        part="custom",
        title=f"domain of {total} {gpu.title}",
        status="user",
        gpu=gpu,
        gpus=total,
        gpus_per_node=per_node,
        structure=structure,
        fabric=FabricSpec(f"scale-up {format_quantity(link.value, 'byte/s')}", kind, link, latency),
        links_per_switch=links,
        nodes_per_rack=row.count("nodes_per_rack") if "nodes_per_rack" in row else nodes,
    )


def _latency(fields: Fields, stand_in: FabricSpec) -> Figure:
    """Latency of a hop: the file's, or the catalog's stand-in (which says that it is one)."""
    return _user_figure(fields, "latency", "s", fields.where) if "latency" in fields else stand_in.latency_s


def _scale_out(fields: Fields, parts: list[object], domains: int) -> ScaleOutSpec | None:
    """Return the fabric between domains: the file's, else the one design that all parts share."""
    named = [part for part in parts if isinstance(part, str)]
    designs = {load_scale_out(part) for part in named}
    if "fabric" not in fields:
        if len(designs) == 1 and len(named) == len(parts):
            return designs.pop()
        if domains > 1:
            raise InputError(
                f"{fields.where}: its domains have no fabric in common, so it needs the key `fabric`, "
                "like {kind: rail, nic: 400 Gb/s, oversubscription: 1}."
            )
        return None
    row = fields.sub("fabric")
    design = load_scale_out(named[0] if named else _FALLBACK)
    kind = row.text("kind")
    nic = _user_figure(row, "nic", "byte/s", row.where)
    scale_out = ScaleOutSpec(
        kind=kind,
        fabric=FabricSpec(f"{kind} {row.text('nic')}", "scale-out", nic, _latency(row, design.fabric)),
        nic_links_per_gpu=row.count("nics_per_gpu") if "nics_per_gpu" in row else 1,
        nodes_per_pod=row.count("nodes_per_pod") if "nodes_per_pod" in row else design.nodes_per_pod,
        spines=row.count("spines") if "spines" in row else design.spines,
        oversubscription=row.number("oversubscription") if "oversubscription" in row else 1.0,
    )
    row.done()
    return check_scale_out(scale_out, row.where)
