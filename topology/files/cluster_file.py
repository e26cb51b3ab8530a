"""A cluster described by its owner in YAML: domains and a fabric, or nodes and links, and what is broken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.reading import load_yaml, nearest, shown
from topology.base.schema import (
    Count,
    Ends,
    Flag,
    MaybeCount,
    Spec,
    Text,
    changed,
    checked,
    figures_by_name,
    keyword_spec,
    quantity,
    validated,
)
from topology.base.units import format_quantity
from topology.base.values import require_mapping, require_name, require_text, require_whole
from topology.build import build_cluster, check_cluster, raw_cluster_spec
from topology.catalog import (
    fabric_names,
    gpu_names,
    load_domain,
    load_fabric,
    load_gpu,
    stand_in_latency,
    systems_of,
)
from topology.catalog.shapes import shaped
from topology.catalog.spelled import find_gpu, spelled_fabrics, spelled_gpus, system_called
from topology.changes.broken import NAMED, NODE, part_faults, with_faults
from topology.cluster import ClusterSpec
from topology.files.fabric_file import read_fabric, shared_fabric
from topology.files.plausible import (
    check_figures,
    check_gpu_figures,
    check_links,
    check_raw_links,
    check_sparsity,
)
from topology.raw import check_raw
from topology.spec import FACTOR, GPU_FIGURES, FabricSpec, Fault, GpuSpec, RawLink, RawNode, RawTopology
from topology.structures import AnyRow
from topology.structures.domain import DomainRow, DomainSpec
from topology.structures.torus import TorusDomain

_SCALE_UP = ({"gpu"}, {"gpu", "switch"}, {"switch"})
_Row = dict[Any, Any]
_Rows = Annotated[tuple[_Row, ...], Field(min_length=1)]
_GpuFigures: Any = Annotated[Mapping[str, Figure], figures_by_name(GPU_FIGURES)]


def _require_factor(value: object, where: str) -> float:
    """Return the part of its rate that something broken has left."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InputError(f"{where}: {shown(value)} {FACTOR}")
    return float(value)


@keyword_spec
class _File(Spec):
    """What all such files may have; rows are then read one by one, each at its place."""

    name: Text = ""
    gpus: dict[Text, _Row] = field(default_factory=dict)
    prices: dict[Text, Annotated[Figure, quantity("USD/h")]] = field(default_factory=dict)
    broken: tuple[_Row, ...] = ()


@keyword_spec
class _DomainsFile(_File):
    """Domains, and the fabric between them."""

    domains: _Rows
    fabric: Annotated[_Row | None, checked(require_mapping)] = None


@keyword_spec
class _GraphFile(_File):
    """Nodes and links one by one."""

    nodes: _Rows
    links: tuple[_Row, ...] | None = ()
    rate_checked: Flag = False


@keyword_spec
class _PartRow(Spec):
    """Domains of the catalog: full, with ``gpus`` fewer GPUs, or tori of another ``shape``."""

    part: Text
    gpus: MaybeCount = None
    shape: Annotated[tuple[Count, ...], Field(min_length=1)] = ()
    count: Count = 1


@keyword_spec
class _LinkRow(Spec):
    """Links between two nodes: of a fabric of the catalog, or with a rate of their own."""

    between: Ends
    fabric: Text = ""
    rate: Annotated[Figure | None, quantity("byte/s")] = None
    latency: Annotated[Figure | None, quantity("s")] = None
    count: Count = 1


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
    keys = content.keys() if isinstance(content, dict) else set()
    if keys & {"nodes", "links"}:
        for key in ("domains", "fabric"):
            if key in keys:
                raise InputError(f"{where}: `{key}` and `nodes`/`links` cannot be combined; use one of them.")
        graph = validated(_GraphFile, content, where, where)
        gpus = _Gpus(graph, where)
        spec = raw_cluster_spec(
            graph.name or called, _raw(graph, gpus, where), _faults(graph.broken, where), where
        )
        broken = graph.broken
    else:
        file = validated(_DomainsFile, content, where, where)
        gpus = _Gpus(file, where)
        read = [_domains(row, gpus, place) for place, row in _places(file.domains, where, "domains")]
        parts = [part for part, _ in read]
        domains = tuple(domain for _, members in read for domain in members)
        fabric = (
            shared_fabric(parts, domains, where)
            if file.fabric is None
            else read_fabric(file.fabric, parts, domains, f"{where}: fabric")
        )
        spec = ClusterSpec(file.name or called, domains, fabric, _faults(file.broken, where))
        spec = check_cluster(spec, where)
        broken = file.broken
    spec = _with_named(spec, broken, where)
    gpus.refuse_unused()
    return spec


def _places(rows: Iterable[_Row], where: str, key: str) -> Iterator[tuple[str, _Row]]:
    """Yield rows, each with its place."""
    return ((f"{where}: {key}[{number}]", row) for number, row in enumerate(rows))


class _Gpus:
    """GPUs by name: the catalog's, with the figures of the file in place of its own, and the file's."""

    def __init__(self, file: _File, where: str) -> None:
        self._where = where
        self._own: dict[str, dict[str, Figure]] = {}
        self._used: set[str] = set()
        for name, row in file.gpus.items():
            place = f"{where}: gpus: {name}"
            meant = validated(Flag, row.get("rate_checked", False), f"{place}: rate_checked")
            figures = {key: value for key, value in row.items() if key != "rate_checked"}
            figures_read: dict[str, Figure] = validated(_GpuFigures, figures, place, where)
            known = name if "hbm_bytes" in figures_read else _spelled(name)
            if not meant:
                check_figures(figures_read, place)
            if not meant:
                if known in gpu_names():
                    check_gpu_figures(load_gpu(known), figures_read, place)
                else:
                    check_sparsity(figures_read, place)
            if known in self._own:
                raise InputError(f"{place}: duplicate figures for {known}; keep one of them.")
            self._own[known] = figures_read
        priced = set()
        for name, price in file.prices.items():
            known = name if name in self._own else _spelled(name)
            if known in priced:
                raise InputError(f"{where}: prices: {name}: {known} has two prices; keep one of them.")
            priced.add(known)
            check_figures({"usd_per_h": price}, f"{where}: prices: {name}")
            self._own.setdefault(known, {})["usd_per_h"] = price

    def __call__(self, name: str, where: str) -> GpuSpec:
        """Return the GPU called ``name``, which the catalog or the file must have."""
        if name not in self._own:
            name = _spelled(name)
        figures = self._own.get(name)
        self._used.add(name)
        if name in gpu_names():
            gpu = load_gpu(name)
            return replace(gpu, figures={**gpu.figures, **figures}) if figures else gpu
        if figures is None or "hbm_bytes" not in figures:
            raise InputError(
                f'{where}: unknown GPU "{name}"; {spelled_gpus().near(name)} '
                "A custom GPU needs its figures under `gpus:`."
            )
        return GpuSpec(name, name, "user", "user", 1, figures)

    def refuse_unused(self) -> None:
        """Reject figures for a GPU that no domain has: they would change nothing."""
        for name in self._own:
            if name not in self._used:
                raise InputError(
                    f"{self._where}: figures for {name!r}, but no domain uses it; {nearest(name, self._used)}"
                )


def _spelled(name: str) -> str:
    """Return a GPU's name as the catalog writes it; one that the catalog does not have as it is."""
    return find_gpu(name) or name


def _faults(rows: Sequence[_Row], where: str) -> tuple[Fault, ...]:
    """Return the GPUs and links that are broken or degraded."""
    faults: list[Fault] = []
    links: set[frozenset[str]] = set()
    for place, row in _places(rows, where, "broken"):
        if any(key in row for key in NAMED):
            continue
        if "factor" in row:
            _require_factor(row["factor"], f"{place}: factor")
        fault = validated(Fault, row, place)
        if fault.link is not None and frozenset(fault.link) in links:
            raise InputError(f"{place}: duplicate link {list(fault.link)}.")
        links.add(frozenset(fault.link or ()))
        faults.append(fault)
    return tuple(faults)


def _with_named(spec: ClusterSpec, broken: Sequence[_Row], where: str) -> ClusterSpec:
    """Return ``spec`` with what is named by kind broken: nodes by their GPUs, NICs, switches, planes by links."""
    rows = [
        (place, row) for place, row in _places(broken, where, "broken") if any(key in row for key in NAMED)
    ]
    if not rows:
        return spec
    named: list[Fault] = []
    known: set[tuple[str, str]] = set()
    intact = build_cluster(replace(spec, faults=()))
    for place, row in rows:
        kind = next(key for key in NAMED if key in row)
        for key in row:
            if key in (*NAMED, "gpu", "link") and key != kind:
                raise InputError(f"{place}: {key}: an entry names one part, but this one also has `{kind}`.")
            if key not in (kind, "factor"):
                raise InputError(
                    f"{place}: unknown key `{str(key)[:60]}`; {nearest(str(key), (kind, 'factor'))}"
                )
        name = require_name(row[kind], f"{place}: {kind}")
        if kind == NODE and "factor" in row:
            raise InputError(
                f"{place}: factor: {name} can only be down entirely; list its GPUs or links individually instead."
            )
        factor = _require_factor(row["factor"], f"{place}: factor") if "factor" in row else 0.0
        if (kind, name) in known:
            raise InputError(f"{place}: {kind}: duplicate {kind} {name}.")
        known.add((kind, name))
        named += part_faults(intact, kind, name, factor, f"{place}: {kind}")
    return replace(spec, faults=with_faults(spec.faults, named))


def _domains(data: _Row, gpus: _Gpus, where: str) -> tuple[str | None, list[DomainSpec]]:
    """Return the part of the catalog that a row names, None where it writes domains out, and its domains."""
    if "part" not in data and "structure" not in data:
        raise InputError(f"{where}: needs the key `part`, or `gpu` and `structure`.")
    if "part" not in data:
        row: DomainRow = validated(AnyRow, data, where, where)
        return None, [_written_out(row, gpus(row.gpu, where), where)] * row.count
    part = validated(_PartRow, data, where)
    try:
        name = system_called(part.part)
    except InputError as error:
        raise InputError(f"{where}: part: {error}") from None
    return name, [_catalog_part(part, load_domain(name), gpus, where)] * part.count


def _catalog_part(row: _PartRow, domain: DomainSpec, gpus: _Gpus, where: str) -> DomainSpec:
    if row.shape:
        domain = shaped(domain, row.shape, f"{where}: shape")
    if row.gpus is not None:
        if isinstance(domain, TorusDomain):
            raise InputError(f"{where}: gpus: a torus has a shape, not a count; write `shape: [4, 4, 8]`.")
        count = require_whole(row.gpus, f"{where}: gpus", 1, domain.gpus)
        try:
            domain = domain.cut(count)
        except InputError as error:
            raise InputError(f"{where}: gpus: {error}") from None
    return changed(domain, where, gpu=gpus(domain.gpu.name, where))


def _written_out(row: DomainRow, gpu: GpuSpec, where: str) -> DomainSpec:
    """Return a domain written out in the file."""
    known = systems_of(gpu.name)
    try:
        fields = row.sizes(known)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    kind = row.link_kind or (known[0].fabric.kind if known else "link")
    latency = row.latency or stand_in_latency(scale_up=True)
    rates = row.link if isinstance(row.link, tuple) else (row.link,)
    fabrics = tuple(
        FabricSpec(f"scale-up {format_quantity(rate.value, 'byte/s')}", kind, rate, latency) for rate in rates
    )
    fields |= {
        "part": "custom",
        "title": f"domain of {fields['gpus']} {gpu.title}",
        "status": "user",
        "gpu": gpu,
    }
    fields["fabric"] = min(fabrics, key=lambda fabric: fabric.link_bytes_per_s.value)
    if isinstance(row.link, tuple):
        fields["dimension_fabrics"] = fabrics
    if row.nodes_per_rack is not None:
        fields["nodes_per_rack"] = row.nodes_per_rack
    domain = validated(row.domain, fields, where)
    if not row.rate_checked:
        check_links(domain, where)
    return domain


def _raw(file: _GraphFile, gpus: _Gpus, where: str) -> RawTopology:
    """Return nodes and links written out one by one."""
    nodes = []
    for place, row in _places(file.nodes, where, "nodes"):
        gpu = {"gpu": gpus(require_text(row["gpu"], f"{place}: gpu"), place)} if "gpu" in row else {}
        nodes.append(validated(RawNode, {**row, **gpu}, place))
    kinds = {node.id: node.kind for node in nodes}
    links = tuple(_link(row, kinds, place) for place, row in _places(file.links or (), where, "links"))
    raw = RawTopology(tuple(nodes), links)
    check_raw(raw, where)
    if not file.rate_checked:
        check_raw_links(raw, where)
    return raw


def _link(data: _Row, kinds: Mapping[str, str], where: str) -> RawLink:
    """Return one link; ``kinds`` are those of nodes."""
    row = validated(_LinkRow, data, where, where)
    scale_up = {kinds.get(end) for end in row.between} in _SCALE_UP
    spelled = spelled_fabrics().spelled(row.fabric)
    known = None if spelled is None else load_fabric(spelled)
    rate = row.rate or (known.link_bytes_per_s if known else None)
    if rate is None:
        unknown = (
            f" (the catalog has no fabric {row.fabric!r}; {nearest(row.fabric, fabric_names())})"
            if row.fabric
            else ""
        )
        raise InputError(
            f"{where}: link {list(row.between)}: needs its `rate` per direction, like 50 GB/s, or the `fabric` of a "
            f"catalog entry{unknown}."
        )
    latency = row.latency or (known.latency_s if known else stand_in_latency(scale_up=scale_up))
    kind = "scale-up" if scale_up else "link"
    name = spelled or row.fabric or f"{kind} {format_quantity(rate.value, 'byte/s')}"
    fabric = FabricSpec(name, known.kind if known else "link", rate, latency)
    return RawLink(row.between, fabric, row.count)
