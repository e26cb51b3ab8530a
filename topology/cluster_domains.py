"""The domains of a cluster file: parts of the catalog, or written out by structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from topology.catalog import load_domain, systems_of
from topology.catalog.shapes import shaped
from topology.cluster_gpus import user_figure
from topology.errors import InputError
from topology.figures import Evidence, Figure
from topology.plausible import check_links
from topology.reading import Fields
from topology.spec import DomainSpec, FabricSpec, GpuSpec
from topology.structures import STRUCTURES, check_domain
from topology.units import format_quantity, parse_quantity

_STAND_IN = "hgx-h100"  # latencies not given follow this design's, which say that they are stand-ins


def read_domains(row: Fields, gpus: Callable[[str, str], GpuSpec]) -> list[DomainSpec]:
    """Return the domains of one row of the file.

    Raises
    ------
    InputError
        If the row has unknown keys, a rate that cannot be, or a domain that cannot be built.
    """
    domain = _catalog_part(row, gpus) if "part" in row else _inline_domain(row, gpus)
    count = row.count("count") if "count" in row else 1
    domain = check_domain(domain, row.where)
    if "part" not in row:
        check_links(row, domain)
    row.done()
    return [domain] * count


def _catalog_part(row: Fields, gpus: Callable[[str, str], GpuSpec]) -> DomainSpec:
    """Return a domain named by its catalog part: full, with ``gpus`` fewer GPUs, or a torus of another ``shape``."""
    domain = load_domain(row.text("part"))
    if "shape" in row:
        domain = shaped(domain, row.counts("shape"), row.at("shape"))
    domain = replace(domain, gpu=gpus(domain.gpu.name, row.where))
    if "gpus" in row:
        if domain.structure == "torus":
            raise InputError(f"{row.at('gpus')}: a torus has a shape, not a count; write `shape: [4, 4, 8]`.")
        domain = replace(domain, gpus=row.count("gpus", most=domain.gpus))
    return domain


def _inline_domain(row: Fields, gpus: Callable[[str, str], GpuSpec]) -> DomainSpec:
    """Return a domain written out in the file."""
    gpu = gpus(row.text("gpu"), row.where)
    structure = row.text("structure")
    if structure not in STRUCTURES:
        raise InputError(f"{row.at('structure')}: {structure!r} is not one of {', '.join(STRUCTURES)}.")
    if structure == "torus":
        return _torus(row, gpu)
    total = row.count("gpus")
    per_node = row.count("gpus_per_node")
    domain = _blank(row, gpu, structure, total, per_node, _fabric(row, gpu))
    if structure == "mesh":
        return replace(
            domain, links_per_neighbour=row.count("links_per_peer") if "links_per_peer" in row else 1
        )
    domain = replace(domain, links_per_switch=row.counts("links_per_switch"))
    return replace(domain, upper_switches=row.count("upper_switches")) if structure == "two-tier" else domain


def _torus(row: Fields, gpu: GpuSpec) -> DomainSpec:
    """Return a torus written out in the file; hosts as in the catalog's torus of that GPU where not given."""
    shape = row.counts("shape")
    wrap = _wrap(row, len(shape))
    node_shape = _node_shape(row, gpu, shape)
    total, per_node = 1, 1
    for size in shape:
        total *= size
    for step in node_shape:
        per_node *= step
    rates = row.get("link")
    if isinstance(rates, list):
        fabrics = tuple(_fabric(row, gpu, number) for number in range(len(rates)))
        fabric = min(fabrics, key=lambda one: one.link_bytes_per_s.value)
    else:
        fabrics, fabric = (), _fabric(row, gpu)
    return replace(
        _blank(row, gpu, "torus", total, per_node, fabric),
        shape=shape,
        wrap=wrap,
        node_shape=node_shape,
        dimension_fabrics=fabrics,
        links_per_neighbour=row.count("links_per_neighbour") if "links_per_neighbour" in row else 1,
    )


def _wrap(row: Fields, dimensions: int) -> tuple[bool, ...]:
    """Return which dimensions close to a ring: one answer for all, or one for each."""
    wrap = row.need("wrap")
    flags = [wrap] * dimensions if isinstance(wrap, bool) else wrap
    if not isinstance(flags, list) or not all(isinstance(flag, bool) for flag in flags):
        raise InputError(
            f"{row.at('wrap')}: {wrap!r} must be true, false, or a list of one for each dimension."
        )
    return tuple(flags)


def _node_shape(row: Fields, gpu: GpuSpec, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the block of GPUs under one host: given, or as in the catalog's torus of that GPU."""
    if "node_shape" in row:
        return row.counts("node_shape")
    if "gpus_per_node" in row:
        return default_node_shape(shape, row.count("gpus_per_node"), row.at("gpus_per_node"))
    for domain in systems_of(gpu.name):
        if domain.structure == "torus" and len(domain.node_shape) == len(shape):
            return domain.node_shape
    raise InputError(f"{row.where}: needs the key `gpus_per_node`.")


def default_node_shape(shape: Sequence[int], gpus_per_node: int, where: str) -> tuple[int, ...]:
    """Return hosts of ``gpus_per_node`` GPUs as runs along the last dimensions of a torus.

    Raises
    ------
    InputError
        If no such run fills the torus.
    """
    block: list[int] = []
    left = gpus_per_node
    for size in reversed(shape):
        step = size if left % size == 0 else left
        if size % step:
            raise InputError(
                f"{where}: hosts of {gpus_per_node} GPUs are no runs along the last dimensions of {list(shape)}; say "
                "which block a host has, like `node_shape: [2, 2, 1]`."
            )
        block.append(step)
        left //= step
    if left > 1:
        raise InputError(f"{where}: hosts of {gpus_per_node} GPUs are larger than the torus {list(shape)}.")
    return tuple(reversed(block))


def _blank(
    row: Fields, gpu: GpuSpec, structure: str, total: int, per_node: int, fabric: FabricSpec
) -> DomainSpec:
    """Return a domain without its links."""
    return DomainSpec(
        part="custom",
        title=f"domain of {total} {gpu.title}",
        status="user",
        gpu=gpu,
        gpus=total,
        gpus_per_node=per_node,
        structure=structure,
        fabric=fabric,
        links_per_switch=(),
        nodes_per_rack=row.count("nodes_per_rack") if "nodes_per_rack" in row else -(-total // per_node),
    )


def _fabric(row: Fields, gpu: GpuSpec, dimension: int | None = None) -> FabricSpec:
    """Return the scale-up fabric of a domain, or of one dimension of a torus."""
    if dimension is None:
        link = user_figure(row, "link", "byte/s", row.where)
    else:
        text = row.get("link")[dimension]
        value = parse_quantity(text, "byte/s", row.at(f"link[{dimension}]"))
        link = Figure(value, "byte/s", Evidence.USER, row.where, str(text))
    known = systems_of(gpu.name)
    kind = row.text("link_kind") if "link_kind" in row else (known[0].fabric.kind if known else "link")
    return FabricSpec(
        f"scale-up {format_quantity(link.value, 'byte/s')}", kind, link, stand_in_latency(row, scale_up=True)
    )


def stand_in_latency(fields: Fields, *, scale_up: bool) -> Figure:
    """Return the latency of a hop: the file's, or the catalog's stand-in (which says that it is one)."""
    if "latency" in fields:
        return user_figure(fields, "latency", "s", fields.where)
    from topology.catalog import load_scale_out

    return (load_domain(_STAND_IN) if scale_up else load_scale_out(_STAND_IN)).fabric.latency_s
