"""The fabric of a whole cluster: checked against its hosts, laid, counted, and who is on which leaf."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topology.base.errors import InputError
from topology.cluster import Cluster, ClusterSpec, Gpu
from topology.fabrics.fabric import Above, CabledFabric, Hosts
from topology.wiring import Laying

LARGEST_FABRIC = 4_000_000  # switches, or links between the routers of all groups


def check_fabric(spec: ClusterSpec, where: str) -> None:
    """Check the fabric of a cluster against its hosts.

    Raises
    ------
    InputError
        If a leaf has no whole number of uplinks, or too few for all spines or groups, or there are too many switches.
    """
    out = spec.scale_out
    if not isinstance(out, CabledFabric):
        return
    out.check_hosts(spec.domains, f"{where}: ")
    pods = -(-sum(domain.nodes for domain in spec.domains) // out.nodes_per_pod)
    size = out.planes * out.size(pods)
    if size > LARGEST_FABRIC:
        raise InputError(
            f"{where}: some {size:,} switches or links between them; at most {LARGEST_FABRIC:,} are "
            "supported; check the sizes of leaves, pods and groups."
        )


def lay_fabric(spec: ClusterSpec) -> Laying | None:
    """Return the fabric of a cluster as laid; None for a single domain: nothing would cross it."""
    out = spec.scale_out
    if not isinstance(out, CabledFabric) or len(spec.domains) == 1:
        return None
    laying = out.lay(Hosts(spec.domains))
    if out.planes == 1:
        return laying
    planes = Laying(laying.gpus)
    for plane in range(out.planes):
        # f.p0.l1 of the fabric is f0.p0.l1 and f1.p0.l1 of its planes
        names = [f"f{plane}{name[1:]}" for name in laying.names]
        rail, spine, pod = (laying.numbered(key) for key in ("rail", "plane", "pod"))
        added = planes.add(laying.kinds, names, rail=rail, plane=spine, pod=pod)
        planes.links_of(laying, np.concatenate([np.arange(laying.gpus), added]))
    return planes


def leaf_uplinks(cluster: Cluster) -> int:
    """Return the links between the leaves and the spines of a cluster."""
    wiring = cluster.wiring
    leaf, spine = wiring.is_kind("leaf"), wiring.is_kind("spine")
    up = leaf[wiring.a] & spine[wiring.b] | spine[wiring.a] & leaf[wiring.b]
    return int(wiring.count[up].sum())


def switches_above(cluster: Cluster) -> Above:
    """Return what ``cluster`` has above its leaves that its graph does not: see ``SpinePlanes``."""
    out, leaves = cluster.spec.scale_out, int(cluster.wiring.is_kind("leaf").sum())
    if not isinstance(out, CabledFabric) or not leaves:
        return Above()
    above = out.above(leaves // out.planes, leaf_uplinks(cluster) // out.planes)
    return Above({kind: count * out.planes for kind, count in above.more.items()}, above.links * out.planes)


def leaves_and_pods(spec: ClusterSpec, gpus: Sequence[Gpu]) -> tuple[list[int], list[int]]:
    """Return the number of each GPU's leaf (rail: of its pod's set of leaves; dragonfly: router), and of its pod.

    Without a fabric, or with a raw one, each domain counts as a leaf and a pod of its own.
    """
    out = spec.scale_out
    if not isinstance(out, CabledFabric):
        domains = [gpu.domain for gpu in gpus]
        return domains, domains
    names = (f"d{index}.n{host}" for index, domain in enumerate(spec.domains) for host in range(domain.nodes))
    number = {name: place for place, name in enumerate(names)}
    places, hosts = [number[gpu.node] for gpu in gpus], Hosts(spec.domains)
    return out.leaves(hosts)[places].tolist(), out.pods(hosts)[places].tolist()
