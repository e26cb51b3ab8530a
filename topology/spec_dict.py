"""A cluster specification as plain JSON-able data, lossless both ways, checked on the way in.

What only some structures have (a torus's shape, a raw graph, faults) is written where it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from topology.build import build_cluster, check_cluster, raw_cluster_spec
from topology.errors import InputError
from topology.fabrics import check_scale_out
from topology.reading import Fields
from topology.spec import ClusterSpec, DomainSpec, Fault, ScaleOutSpec
from topology.spec_parts import (
    fabric_to_dict,
    figures_to_dict,
    gpu_to_dict,
    read_fabric_dict,
    read_figures_dict,
    read_gpu_dict,
)
from topology.spec_raw import raw_to_dict, read_raw_dict
from topology.structures import check_domain


def spec_to_dict(spec: ClusterSpec) -> dict[str, Any]:
    """Return ``spec`` as plain data; equal domains in a row are written once, with their count."""
    runs = [list(run) for _, run in groupby(spec.domains)]
    data: dict[str, Any] = {
        "name": spec.name,
        "domains": [{"count": len(run), **_domain_to_dict(run[0])} for run in runs],
        "scale_out": None if spec.scale_out is None else _scale_out_to_dict(spec.scale_out),
    }
    if spec.faults:
        data["faults"] = [_fault_to_dict(fault) for fault in spec.faults]
    if spec.raw is not None:
        data["raw"] = raw_to_dict(spec.raw)
    return data


def spec_from_dict(data: Mapping[str, Any], where: str = "cluster") -> ClusterSpec:
    """Return the specification that :func:`spec_to_dict` wrote.

    Raises
    ------
    InputError
        If a key is missing or unknown, or a value cannot be.
    """
    fields = Fields(data, where)
    faults = tuple(_fault(row) for row in fields.subs("faults")) if "faults" in fields else ()
    if fields.get("raw") is not None:
        for key in ("domains", "scale_out"):  # they follow from the graph
            fields.get(key)
        name = fields.text("name")
        spec = raw_cluster_spec(name, read_raw_dict(fields.sub("raw")), faults, where)
        fields.done()
        return spec
    domains: list[DomainSpec] = []
    for row in fields.subs("domains"):
        domains += [_domain(row)] * row.count("count")
        row.done()
    scale_out = None if fields.get("scale_out") is None else _scale_out(fields.sub("scale_out"))
    name = fields.text("name")
    fields.done()
    spec = check_cluster(ClusterSpec(name, tuple(domains), scale_out, faults), where)
    if faults:
        build_cluster(spec)
    return spec


def _domain_to_dict(domain: DomainSpec) -> dict[str, Any]:
    """One domain as plain data."""
    data: dict[str, Any] = {
        "part": domain.part,
        "title": domain.title,
        "status": domain.status,
        "gpu": gpu_to_dict(domain.gpu),
        "gpus": domain.gpus,
        "gpus_per_node": domain.gpus_per_node,
        "structure": domain.structure,
        "fabric": fabric_to_dict(domain.fabric),
        "links_per_switch": list(domain.links_per_switch),
        "nodes_per_rack": domain.nodes_per_rack,
        "figures": figures_to_dict(domain.figures),
        "notes": list(domain.notes),
    }
    if domain.structure in ("mesh", "torus"):
        data["links_per_neighbour"] = domain.links_per_neighbour
    if domain.links_bundled:
        data["links_bundled"] = True
    if domain.structure == "two-tier":
        data["upper_switches"] = domain.upper_switches
    if domain.structure == "torus":
        data["shape"] = list(domain.shape)
        data["wrap"] = list(domain.wrap)
        data["node_shape"] = list(domain.node_shape)
        if domain.rack_shape:
            data["rack_shape"] = list(domain.rack_shape)
        if domain.dimension_fabrics:
            data["dimension_fabrics"] = [fabric_to_dict(fabric) for fabric in domain.dimension_fabrics]
    return data


def _scale_out_to_dict(scale_out: ScaleOutSpec) -> dict[str, Any]:
    """Return the fabric between domains as plain data."""
    data: dict[str, Any] = {
        "kind": scale_out.kind,
        "fabric": fabric_to_dict(scale_out.fabric),
        "nic_links_per_gpu": scale_out.nic_links_per_gpu,
        "nodes_per_pod": scale_out.nodes_per_pod,
        "spines": scale_out.spines,
        "oversubscription": scale_out.oversubscription,
    }
    if scale_out.kind == "fat-tree":
        data["core_oversubscription"] = scale_out.core_oversubscription
        data["cores"] = scale_out.cores
    if scale_out.kind == "dragonfly":
        data["local_links"] = scale_out.local_links
    if scale_out.kind in ("fat-tree", "dragonfly"):
        data["leaves_per_pod"] = scale_out.leaves_per_pod
    return data


def _fault_to_dict(fault: Fault) -> dict[str, Any]:
    """Return one fault as plain data."""
    if fault.link is None:
        return {"gpu": fault.gpu, "factor": fault.factor} if fault.factor else {"gpu": fault.gpu}
    return {"link": list(fault.link), "factor": fault.factor}


def _domain(fields: Fields) -> DomainSpec:
    """Read one domain; ``count`` is read by the caller."""
    structure = fields.text("structure")
    torus = structure == "torus"
    dimensions = fields.subs("dimension_fabrics") if torus and "dimension_fabrics" in fields else []
    domain = DomainSpec(
        part=fields.text("part"),
        title=fields.text("title"),
        status=fields.text("status"),
        gpu=read_gpu_dict(fields.sub("gpu")),
        gpus=fields.count("gpus"),
        gpus_per_node=fields.count("gpus_per_node"),
        structure=structure,
        fabric=read_fabric_dict(fields.sub("fabric")),
        links_per_switch=fields.counts("links_per_switch") if fields.get("links_per_switch") else (),
        nodes_per_rack=fields.count("nodes_per_rack"),
        figures=read_figures_dict(fields.sub("figures")),
        notes=fields.texts("notes"),
        links_per_neighbour=fields.count("links_per_neighbour") if structure in ("mesh", "torus") else 0,
        upper_switches=fields.count("upper_switches") if structure == "two-tier" else 0,
        links_bundled=fields.flag("links_bundled"),
        shape=fields.counts("shape") if torus else (),
        wrap=_flags(fields, "wrap") if torus else (),
        node_shape=fields.counts("node_shape") if torus else (),
        rack_shape=fields.counts("rack_shape") if torus and "rack_shape" in fields else (),
        dimension_fabrics=tuple(read_fabric_dict(row) for row in dimensions),
    )
    if structure == "raw":
        raise InputError(
            f"{fields.at('structure')}: a raw domain needs the graph that it is in, under `raw`."
        )
    return check_domain(domain, fields.where)


def _flags(fields: Fields, key: str) -> tuple[bool, ...]:
    """Return a list of true and false."""
    value = fields.need(key)
    if not isinstance(value, list) or not all(isinstance(item, bool) for item in value):
        raise InputError(f"{fields.at(key)}: {value!r} must be a list of true and false.")
    return tuple(value)


def _scale_out(fields: Fields) -> ScaleOutSpec:
    """Read the fabric between domains."""
    kind = fields.text("kind")
    tree, grouped = kind == "fat-tree", kind in ("fat-tree", "dragonfly")
    scale_out = ScaleOutSpec(
        kind=kind,
        fabric=read_fabric_dict(fields.sub("fabric")),
        nic_links_per_gpu=fields.count("nic_links_per_gpu"),
        nodes_per_pod=fields.count("nodes_per_pod"),
        spines=fields.count("spines", least=0 if kind == "dragonfly" else 1),
        oversubscription=fields.number("oversubscription"),
        leaves_per_pod=fields.count("leaves_per_pod") if grouped else 1,
        core_oversubscription=fields.number("core_oversubscription") if tree else 1.0,
        cores=fields.count("cores", least=0) if tree else 0,
        local_links=fields.count("local_links") if kind == "dragonfly" else 0,
    )
    if kind == "raw":
        raise InputError(f"{fields.at('kind')}: a raw fabric needs the graph that it is in, under `raw`.")
    fields.done()
    return check_scale_out(scale_out, fields.where)


def _fault(fields: Fields) -> Fault:
    """Read one fault."""
    gpu = fields.text("gpu") if "gpu" in fields else None
    ends = () if gpu is not None else fields.texts("link")
    factor = fields.get("factor", 0) if gpu is not None else fields.need("factor")
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if (gpu is None and len(ends) != 2) or not number or not 0 <= factor <= 1:
        raise InputError(f"{fields.where}: needs `gpu`, or `link` with two ends, and a `factor` from 0 to 1.")
    fault = Fault(gpu, None if gpu is not None else (ends[0], ends[1]), float(factor))
    fields.done()
    return fault
