"""Fabrics between domains: each kind checks and lays itself in one file, and is registered here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topology.base.errors import InputError
from topology.cluster import Gpu
from topology.fabrics.dragonfly import Dragonfly
from topology.fabrics.fabric import Above, Fabric, Hosts, largest_host
from topology.fabrics.fat_tree import FatTree
from topology.fabrics.leaf_spine import LeafSpine
from topology.fabrics.rail import Rail
from topology.spec import ClusterSpec, ScaleOutSpec
from topology.wiring import Laying

LARGEST_FABRIC = 4_000_000  # switches, or links between the routers of all groups
FABRICS: dict[str, Fabric] = {one.kind: one for one in (Rail(), LeafSpine(), FatTree(), Dragonfly())}


def fabric_of(out: ScaleOutSpec | None) -> Fabric | None:
    """Return the kind of a fabric; None where there is none, or whatever a raw graph has."""
    return None if out is None else FABRICS.get(out.kind)


def check_scale_out(out: ScaleOutSpec, where: str) -> ScaleOutSpec:
    """Return ``out`` if it can be cabled.

    Raises
    ------
    InputError
        If its kind is not supported, or its oversubscription leaves no whole number of uplinks.
    """
    if out.kind != "raw":
        if out.kind not in FABRICS:
            raise InputError(f"{where}: fabric kind {out.kind!r} is not known; {', '.join(FABRICS)} are.")
        FABRICS[out.kind].check(check_planes(out, where), where)
    return out


def check_planes(out: ScaleOutSpec, where: str) -> ScaleOutSpec:
    """Return ``out``, whose switches may be still to come, if the NICs of a GPU go evenly to its planes.

    Raises
    ------
    InputError
        If they do not.
    """
    if out.nic_links_per_gpu % out.planes:
        raise InputError(
            f"{where}: {out.nic_links_per_gpu} NIC links of a GPU do not go evenly to {out.planes} planes; give "
            f"`nics_per_gpu` {out.planes} or a multiple of it."
        )
    return out


def check_fabric(spec: ClusterSpec, where: str) -> None:
    """Check the fabric of a cluster against its hosts.

    Raises
    ------
    InputError
        If a leaf has no whole number of uplinks, or too few for all spines or groups, or there are too many switches.
    """
    out, fabric = spec.scale_out, fabric_of(spec.scale_out)
    if out is None or fabric is None:
        return
    fabric.check_hosts(spec, out, where)
    pods = -(-sum(domain.nodes for domain in spec.domains) // out.nodes_per_pod)
    size = out.planes * fabric.size(out, pods)
    if size > LARGEST_FABRIC:
        raise InputError(
            f"{where}: some {size:,} switches or links between them; at most {LARGEST_FABRIC:,} are supported: check "
            "the sizes of its leaves, pods and groups."
        )


def lay_fabric(spec: ClusterSpec) -> Laying | None:
    """Return the fabric of a cluster as laid; None for a single domain: nothing would cross it."""
    out, fabric = spec.scale_out, fabric_of(spec.scale_out)
    if out is None or fabric is None or len(spec.domains) == 1:
        return None
    hosts = Hosts(spec)
    one = fabric.lay(hosts, out)
    if out.planes == 1:
        return one
    whole = Laying(one.gpus)
    for plane in range(out.planes):
        # f.p0.l1 of the fabric is f0.p0.l1 and f1.p0.l1 of its planes
        names = [f"f{plane}{name[1:]}" for name in one.names]
        rail, spine, pod = (one.numbered(key) for key in ("rail", "plane", "pod"))
        added = whole.add(one.kinds, names, rail=rail, plane=spine, pod=pod)
        whole.links_of(one, np.concatenate([np.arange(one.gpus), added]))
    return whole


def switches_above(spec: ClusterSpec, leaves: int) -> Above:
    """Return what a cluster with so many leaves has above them that its graph does not: see ``SpinePlanes``."""
    out, fabric = spec.scale_out, fabric_of(spec.scale_out)
    if out is None or fabric is None or not leaves:
        return Above()
    each = fabric.above(out, leaves // out.planes, fabric.uplinks(out, largest_host(spec)))
    return Above({kind: count * out.planes for kind, count in each.more.items()}, each.links * out.planes)


def leaves_and_pods(spec: ClusterSpec, gpus: Sequence[Gpu]) -> tuple[list[int], list[int]]:
    """Return the number of each GPU's leaf (rail: of its pod's set of leaves; dragonfly: router), and of its pod.

    Without a fabric, or with a raw one, each domain counts as a leaf and a pod of its own.
    """
    out, fabric = spec.scale_out, fabric_of(spec.scale_out)
    if out is None or fabric is None:
        own = [gpu.domain for gpu in gpus]
        return own, own
    names = (f"d{index}.n{host}" for index, domain in enumerate(spec.domains) for host in range(domain.nodes))
    number = {name: place for place, name in enumerate(names)}
    mine, hosts = [number[gpu.node] for gpu in gpus], Hosts(spec)
    return fabric.leaves(hosts, out)[mine].tolist(), fabric.pods(hosts, out)[mine].tolist()


__all__ = ["FABRICS", "check_fabric", "check_scale_out", "largest_host"]
