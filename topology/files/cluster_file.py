"""A cluster described by its owner in YAML: domains and a fabric, or nodes and links, and what is broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.reading import Fields, load_yaml, nearest
from topology.base.schema import changed, validated
from topology.base.units import format_quantity
from topology.build import build_cluster, check_cluster, raw_cluster_spec
from topology.catalog import (
    fabric_names,
    gpu_names,
    load_domain,
    load_fabric,
    load_gpu,
    systems_of,
)
from topology.catalog.shapes import shaped
from topology.catalog.spelled import find_gpu, spelled_fabrics, spelled_gpus, system_called
from topology.changes.broken import NAMED, NODE, PLANE, part_faults, with_faults
from topology.cluster import ClusterSpec
from topology.files.fabric_file import given_figure, read_fabric, stand_in_latency, user_figure
from topology.files.plausible import check_gpu_figures, check_links, check_raw_links
from topology.raw import check_raw
from topology.spec import FACTOR, GPU_FIGURES, FabricSpec, Fault, GpuSpec, RawLink, RawNode, RawTopology
from topology.structures import STRUCTURES
from topology.structures.domain import DomainSpec
from topology.structures.torus import TorusDomain

_SCALE_UP = ({"gpu"}, {"gpu", "switch"}, {"switch"})


def read_cluster_file(path: Path) -> ClusterSpec:
    """Read a cluster YAML.

    Raises
    ------
    InputError
        If it cannot be read, has unknown keys, or describes what cannot be built.
    """
    return read_cluster(load_yaml(path, path.name), path.name, path.stem)


def read_cluster(content: object, where: str, called: str) -> ClusterSpec:
    """Return the cluster that the content of such a file describes.

    Parameters
    ----------
    where:
        What messages call it.
    called:
        Name of the cluster where the content has none.

    Raises
    ------
    InputError
        If it is no mapping, has unknown keys, or describes what cannot be built.
    """
    fields = Fields(content, where)
    name = fields.text("name", called)
    gpus = _Gpus(fields)
    if "nodes" in fields or "links" in fields:
        for key in ("domains", "fabric"):
            if key in fields:
                raise InputError(f"{where}: `{key}` and `nodes`/`links` are two ways to say it; use one.")
        spec = raw_cluster_spec(name, _raw(fields, gpus), _faults(fields), where)
    else:
        rows = fields.subs("domains")
        parts = [_part(row) if "part" in row else None for row in rows]
        domains = tuple(domain for row in rows for domain in _domains(row, gpus))
        faults = _faults(fields)
        spec = check_cluster(ClusterSpec(name, domains, read_fabric(fields, parts, domains), faults), where)
    spec = _with_named(spec, fields)
    fields.done()
    gpus.refuse_unused()
    return spec


class _Gpus:
    """GPUs by name: the catalog's, with the figures of the file in place of its own, and the file's."""

    def __init__(self, fields: Fields) -> None:
        self._where = fields.where
        self._own: dict[str, dict[str, Figure]] = {}
        self._used: set[str] = set()
        if "gpus" in fields:
            table = fields.sub("gpus")
            for name in table.names():
                row = table.sub(name)
                own = {
                    key: user_figure(row, key, unit, source=fields.where)
                    for key, unit in GPU_FIGURES.items()
                    if key in row
                }
                known = name if "hbm_bytes" in own else _spelled(name)
                if known in gpu_names():
                    check_gpu_figures(row, load_gpu(known), own)
                row.done()
                if known in self._own:
                    raise InputError(f"{row.where}: figures for {known} stand there twice; keep one of them.")
                self._own[known] = own
        if "prices" in fields:
            prices = fields.sub("prices")
            priced = set()
            for name in prices.names():
                price = user_figure(prices, name, "USD/h", source=fields.where)
                known = name if name in self._own else _spelled(name)
                if known in priced:
                    prices.fail(name, f"{known} has two prices; keep one of them.")
                priced.add(known)
                self._own.setdefault(known, {})["usd_per_h"] = price

    def __call__(self, name: str, where: str) -> GpuSpec:
        """Return the GPU called ``name``, which the catalog or the file must have."""
        if name not in self._own:
            name = _spelled(name)
        own = self._own.get(name)
        self._used.add(name)
        if name in gpu_names():
            gpu = load_gpu(name)
            return replace(gpu, figures={**gpu.figures, **own}) if own else gpu
        if own is None or "hbm_bytes" not in own:
            raise InputError(
                f'{where}: unknown GPU "{name}"; {spelled_gpus().near(name) or nearest(name, gpu_names())} '
                "A GPU of your own needs its figures under `gpus:`."
            )
        return GpuSpec(name, name, "user", "user", 1, own)

    def refuse_unused(self) -> None:
        """Refuse figures for a GPU that no domain has: they would change nothing."""
        for name in self._own:
            if name not in self._used:
                raise InputError(
                    f"{self._where}: figures for {name!r}, but no domain has it; {nearest(name, self._used)}"
                )


def _spelled(name: str) -> str:
    """Return a GPU's name as the catalog writes it; one that the catalog does not have as it is."""
    return find_gpu(name) or name


def _part(row: Fields) -> str:
    """Return the system that a row names, as the catalog writes it."""
    try:
        return system_called(row.text("part"))
    except InputError as error:
        row.fail("part", str(error))


def _faults(fields: Fields) -> tuple[Fault, ...]:
    """Return what is broken or degraded."""
    if fields.get("broken", []) == []:
        return ()
    faults: list[Fault] = []
    links: set[frozenset[str]] = set()
    for row in fields.subs("broken"):
        if any(key in row for key in NAMED):
            continue
        _factor(row)
        fault = validated(Fault, row.data, row.where)
        if fault.link is not None and frozenset(fault.link) in links:
            raise InputError(f"{row.where}: duplicate link {list(fault.link)}.")
        links.add(frozenset(fault.link or ()))
        faults.append(fault)
    return tuple(faults)


def _factor(row: Fields) -> float:
    """Return the part of its rate that something broken has left; 0 where nothing is said."""
    if "factor" not in row:
        return 0.0
    if row.get("factor") == 0 and not isinstance(row.get("factor"), bool):
        row.fail("factor", "0 must be greater than zero; leave it out for what is down.")
    if (factor := row.number("factor")) > 1:
        row.fail("factor", f"{factor:g} {FACTOR}")
    return factor


def _with_named(spec: ClusterSpec, fields: Fields) -> ClusterSpec:
    """Return ``spec`` with what is named by kind broken: nodes by their GPUs, NICs, switches, planes by links."""
    rows = [] if fields.get("broken", []) == [] else fields.subs("broken")
    rows = [row for row in rows if any(key in row for key in NAMED)]
    if not rows:
        return spec
    named: list[Fault] = []
    known: set[tuple[str, str]] = set()
    whole = build_cluster(replace(spec, faults=()))
    for row in rows:
        kinds = [key for key in (*NAMED, "gpu", "link") if key in row]
        if len(kinds) > 1:
            row.fail(kinds[1], f"one entry names one thing, and this one has `{kinds[0]}` too.")
        if kinds[0] == NODE and "factor" in row:
            row.fail(
                "factor", f"{row.text(NODE)} is down as a whole; name its GPUs or links one by one instead."
            )
        factor = _factor(row)
        kind, value = kinds[0], row.need(kinds[0])
        name = str(value) if kind == PLANE and isinstance(value, int) else row.text(kind)
        row.done()
        if (kind, name) in known:
            row.fail(kind, f"duplicate {kind} {name}.")
        known.add((kind, name))
        named += part_faults(whole, kind, name, factor, row.at(kind))
    return replace(spec, faults=with_faults(spec.faults, named))


def _domains(row: Fields, gpus: _Gpus) -> list[DomainSpec]:
    """Return the domains of one row: a part of the catalog, or written out."""
    domain = _catalog_part(row, gpus) if "part" in row else _inline_domain(row, gpus)
    count = row.count("count", 1)
    row.done()
    return [domain] * count


def _catalog_part(row: Fields, gpus: _Gpus) -> DomainSpec:
    """Return a domain named by its catalog part: full, with ``gpus`` fewer GPUs, or a torus of another ``shape``."""
    domain = load_domain(_part(row))
    if "shape" in row:
        domain = shaped(domain, row.counts("shape"), row.at("shape"))
    fields: dict[str, object] = {"gpu": gpus(domain.gpu.name, row.where)}
    if "gpus" in row:
        if isinstance(domain, TorusDomain):
            row.fail("gpus", "a torus has a shape, not a count; write `shape: [4, 4, 8]`.")
        fields["gpus"] = row.count("gpus", most=domain.gpus)
    return changed(domain, row.where, **fields)


def _inline_domain(row: Fields, gpus: _Gpus) -> DomainSpec:
    """Return a domain written out in the file."""
    gpu = gpus(row.text("gpu"), row.where)
    kind = STRUCTURES[row.choice("structure", STRUCTURES)]
    try:
        own = kind.from_keys(
            {key: row.get(key) for key in (*kind.keys, "gpus_per_node") if key in row}, systems_of(gpu.name)
        )
    except InputError as error:
        raise InputError(f"{row.where}: {error}") from None
    rates = row.get("link")
    fabrics: tuple[FabricSpec, ...] = ()
    if issubclass(kind, TorusDomain) and isinstance(rates, list) and rates:
        fabrics = tuple(_fabric(row, gpu, number) for number in range(len(rates)))
        own["dimension_fabrics"] = fabrics
    slowest = min(fabrics, key=lambda one: one.link_bytes_per_s.value, default=None)
    own |= {
        "part": "custom",
        "title": f"domain of {own.get('gpus')} {gpu.title}",
        "status": "user",
        "gpu": gpu,
    }
    own["fabric"] = slowest or _fabric(row, gpu)
    if "nodes_per_rack" in row:
        own["nodes_per_rack"] = row.count("nodes_per_rack")
    domain = validated(kind, {"structure": row.get("structure"), **own}, row.where)
    check_links(row, domain)
    return domain


def _fabric(row: Fields, gpu: GpuSpec, dimension: int | None = None) -> FabricSpec:
    """Return the scale-up fabric of a domain, or of one dimension of a torus."""
    if dimension is None:
        link = user_figure(row, "link", "byte/s")
    else:
        where = row.at(f"link[{dimension}]")
        link = given_figure(row.get("link")[dimension], "byte/s", where, row.where)
    known = systems_of(gpu.name)
    kind = row.text("link_kind", known[0].fabric.kind if known else "link")
    name = f"scale-up {format_quantity(link.value, 'byte/s')}"
    return FabricSpec(name, kind, link, stand_in_latency(row, scale_up=True))


def _raw(fields: Fields, gpus: _Gpus) -> RawTopology:
    """Return nodes and links written out one by one."""
    rows = fields.subs("nodes")
    nodes = tuple(
        validated(
            RawNode,
            {**row.data, "gpu": gpus(row.text("gpu"), row.where)} if "gpu" in row else row.data,
            row.where,
        )
        for row in rows
    )
    kinds = {node.id: node.kind for node in nodes}
    raw = RawTopology(nodes, tuple(_link(row, kinds) for row in fields.subs("links", empty=True)))
    check_raw(raw, fields.where)
    if not fields.flag("rate_checked"):
        check_raw_links(raw, fields.where)
    return raw


def _link(row: Fields, kinds: Mapping[str, str]) -> RawLink:
    """Return one link: of a fabric of the catalog, or with a rate of its own; `kinds` those of nodes."""
    ends = row.pair("between")
    scale_up = {kinds.get(end) for end in ends} in _SCALE_UP
    named = row.text("fabric", "")
    spelled = spelled_fabrics().spelled(named)
    known = None if spelled is None else load_fabric(spelled)
    if "rate" not in row and known is None:
        unknown = f" (the catalog has no fabric {named!r}; {nearest(named, fabric_names())})" if named else ""
        raise InputError(
            f"{row.where}: link {list(ends)}: needs its `rate` per direction, like 50 GB/s, or the `fabric` of a "
            f"catalog entry{unknown}."
        )
    rate = user_figure(row, "rate", "byte/s", default=known.link_bytes_per_s if known else None)
    usual = known.latency_s if known else stand_in_latency(scale_up=scale_up)
    latency = user_figure(row, "latency", "s", default=usual)
    name = spelled or named or f"{'scale-up' if scale_up else 'link'} {format_quantity(rate.value, 'byte/s')}"
    fabric = FabricSpec(name, known.kind if known else "link", rate, latency)
    count = row.count("count", 1)
    row.done()
    return RawLink(ends, fabric, count)
