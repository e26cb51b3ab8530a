"""A cluster as a unit that repeats: the same domains, and what is broken in them, several times on one fabric."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from topology.base.errors import InputError
from topology.build import build_cluster, check_cluster
from topology.cluster import Cluster, ClusterSpec, ClusterView
from topology.spec import Fault

SIZED_GPUS = 1_000_000
"""Maximum GPUs of a cluster in ``rackplan size``, whose links are never built."""
_DOMAIN = re.compile(r"d(\d{1,9})\b")


def repeated(cluster: Cluster, count: int) -> Cluster:
    """Return ``count`` of ``cluster`` side by side, joined by its own fabric between domains.

    Domains follow each other, those of the second unit after those of the first, and so on; each unit has the same
    faults. Of a view, the whole repeats, and the view is the same GPUs of each.

    Raises
    ------
    InputError
        If its fabric cannot join so many (there is none, a raw graph), or they have too many GPUs.
    """
    if count < 1:
        raise InputError(f"`count` {count}: expected 1 unit or more.")
    spec = cluster.spec
    if count == 1:
        return cluster
    if spec.raw is not None:
        raise InputError(f"{cluster.name}: a cluster listed link by link cannot be repeated.")
    if spec.scale_out is None:
        raise InputError(f"{cluster.name}: has no `fabric` to connect several of them.")
    if spec.gpus * count > SIZED_GPUS:
        raise InputError(
            f"{count} x {cluster.name}: {spec.gpus * count:,} GPUs; at most {SIZED_GPUS:,} are supported."
        )
    name = f"{count} x {cluster.name}"
    faults = _faults(spec.faults, len(spec.domains), count, cluster.name)
    larger = replace(spec, name=name, domains=spec.domains * count, faults=faults)
    larger_cluster = build_cluster(check_cluster(larger, name, SIZED_GPUS))
    if not isinstance(cluster, ClusterView):
        return larger_cluster
    domains = len(spec.domains)
    ids = [_moved(gpu, by, cluster.name) for by in range(0, count * domains, domains) for gpu in cluster.ids]
    return ClusterView(larger_cluster, ids, name)


def alike(spec: ClusterSpec) -> bool:
    """Whether all domains are of one kind and size, with nothing broken and no graph of their own."""
    reference = spec.domains[0]
    same = all(domain is reference or domain == reference for domain in spec.domains)
    return spec.raw is None and not spec.faults and same


def _faults(faults: Sequence[Fault], domains: int, count: int, where: str) -> tuple[Fault, ...]:
    """Return the faults of every unit; ids name their domain first (``d0.n1.g2``)."""
    return tuple(
        replace(
            fault,
            gpu=None if fault.gpu is None else _moved(fault.gpu, by, where),
            link=None
            if fault.link is None
            else (_moved(fault.link[0], by, where), _moved(fault.link[1], by, where)),
        )
        for by in range(0, count * domains, domains)
        for fault in faults
    )


def _moved(name: str, by: int, where: str) -> str:
    """Return the id of what is ``by`` domains further on."""
    match = _DOMAIN.match(name)
    if match is None:
        raise InputError(f"{where}: its broken link at {name} spans domains, so the cluster cannot repeat.")
    return f"d{int(match[1]) + by}{name[match.end() :]}"
