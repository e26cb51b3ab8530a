"""A cluster described by its owner in YAML: domains and a fabric, or nodes and links, and what is broken."""

from __future__ import annotations

from pathlib import Path

from topology.build import check_cluster
from topology.cluster_domains import read_domains
from topology.cluster_fabric import read_fabric
from topology.cluster_gpus import Gpus, read_overrides
from topology.cluster_raw import read_raw
from topology.errors import InputError
from topology.reading import Fields, load_yaml
from topology.spec import ClusterSpec, Fault


def read_cluster_file(path: Path) -> ClusterSpec:
    """Read a cluster YAML.

    Raises
    ------
    InputError
        If it cannot be read, has unknown keys, or describes what cannot be built.
    """
    where = path.name
    fields = Fields(load_yaml(path, where), where)
    name = fields.text("name") if "name" in fields else path.stem
    gpus = Gpus(read_overrides(fields, where))
    faults = _faults(fields)
    if "nodes" in fields or "links" in fields:
        spec = _raw(fields, name, gpus, faults)
    else:
        spec = _composed(fields, name, gpus, faults)
    fields.done()
    gpus.refuse_unused(where)
    return spec


def _composed(fields: Fields, name: str, gpus: Gpus, faults: tuple[Fault, ...]) -> ClusterSpec:
    """Return a cluster of domains and a fabric."""
    rows = fields.subs("domains")
    parts = [row.get("part") for row in rows]
    domains = tuple(domain for row in rows for domain in read_domains(row, gpus))
    scale_out = read_fabric(fields, parts, domains)
    return check_cluster(ClusterSpec(name, domains, scale_out, faults), fields.where)


def _raw(fields: Fields, name: str, gpus: Gpus, faults: tuple[Fault, ...]) -> ClusterSpec:
    """Return a cluster of nodes and links."""
    from topology.build import raw_cluster_spec

    for key in ("domains", "fabric"):
        if key in fields:
            raise InputError(f"{fields.where}: `{key}` and `nodes`/`links` are two ways to say it; use one.")
    return raw_cluster_spec(name, read_raw(fields, gpus), faults, fields.where)


def _faults(fields: Fields) -> tuple[Fault, ...]:
    """Return what is broken or degraded."""
    if fields.get("broken", []) == []:
        return ()
    faults = []
    links: set[frozenset[str]] = set()
    for row in fields.subs("broken"):
        if ("gpu" in row) == ("link" in row):
            raise InputError(f"{row.where}: needs one of `gpu: ID` and `link: [A, B]`.")
        fault = Fault(row.text("gpu"), factor=_factor(row)) if "gpu" in row else _broken_link(row)
        row.done()
        if fault.link is not None and frozenset(fault.link) in links:
            raise InputError(f"{row.where}: the link {list(fault.link)} is there twice.")
        links.add(frozenset(fault.link or ()))
        faults.append(fault)
    return tuple(faults)


def _broken_link(row: Fields) -> Fault:
    """Return one link that is down, or runs at a part of its rate."""
    ends = row.texts("link")
    if len(ends) != 2 or ends[0] == ends[1]:
        raise InputError(f"{row.at('link')}: must be the ids of its two ends, like [d0.n0.g1, d0.s3].")
    return Fault(link=(ends[0], ends[1]), factor=_factor(row))


def _factor(row: Fields) -> float:
    """Return the part of its rate that is left; 0 where nothing works."""
    if "factor" not in row:
        return 0.0
    factor = row.number("factor")
    if factor > 1:
        raise InputError(
            f"{row.at('factor')}: {factor:g} must be above 0 and at most 1, the part of its rate that is left "
            "(leave it out for what is down)."
        )
    return factor
