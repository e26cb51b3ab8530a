"""Which hosts share leaves: the pod of each host, and the leaf of each host in a plain fabric."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from topology.spec import ClusterSpec

if TYPE_CHECKING:
    from topology.cluster import Gpu


def host_gpus(gpus: Sequence[Gpu]) -> list[list[str]]:
    """Return the ids of the GPUs of each host, hosts in order."""
    return [[gpu.id for gpu in members] for _, members in groupby(gpus, key=lambda gpu: gpu.node)]


def largest_host(spec: ClusterSpec) -> int:
    """Return the GPUs of the largest host: what a leaf has ports for."""
    return max(domain.gpus_per_node for domain in spec.domains)


def pods_of(spec: ClusterSpec) -> list[list[int]]:
    """Return the pod of each host, ``[domain][host]``, pods numbered in order.

    In a rail fabric, a domain that does not fit in what is left of a pod begins the next one, so a rack is never
    split between two sets of leaves; a domain larger than a pod takes several. In the others, hosts fill leaves
    and pods in order. Without a fabric all hosts are in pod 0.
    """
    if spec.scale_out is None or spec.scale_out.kind == "raw":
        return [[0] * (domain.gpus // domain.gpus_per_node) for domain in spec.domains]
    size = spec.scale_out.nodes_per_pod
    pods: list[list[int]] = []
    used = 0
    for domain in spec.domains:
        hosts = domain.gpus // domain.gpus_per_node
        left = -used % size
        if spec.scale_out.kind == "rail" and hosts > left:
            used += left
        pods.append([(used + host) // size for host in range(hosts)])
        used += hosts
    return pods
