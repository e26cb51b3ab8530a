"""Rail-optimised scale-out: GPU i of every host on leaf i of its pod, leaves cabled evenly to spine planes.

A pod is ``nodes_per_pod`` hosts that share one leaf per rail (32 hosts of an HGX scalable unit, one NVL72
rack). A leaf has as many uplinks as its full pod has downlinks, over the oversubscription, whether or not the
pod is full. A spine here is a *plane*: one switch where the cluster is one reference unit, and in larger
clusters the spine and core switches of that plane together, taken as non-blocking above the leaves. So rates
are right at any size, and the extra hop of a core tier is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.check import uplinks_of_leaf
from topology.graph import edge_attributes, node_attributes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import networkx as nx

    from topology.cluster import Gpu
    from topology.spec import ClusterSpec

__all__ = ["add_rails", "pods_of"]


def pods_of(spec: ClusterSpec) -> list[list[int]]:
    """Return the pod of each host, ``[domain][host]``, pods numbered in order.

    Domains fill pods in order. A domain that does not fit in what is left of a pod begins the next one, so a
    rack is never split between two sets of leaves; a domain larger than a pod takes several.
    """
    if spec.scale_out is None:
        return [[0] * (domain.gpus // domain.gpus_per_node) for domain in spec.domains]
    size = spec.scale_out.nodes_per_pod
    pods: list[list[int]] = []
    used = 0
    for domain in spec.domains:
        hosts = domain.gpus // domain.gpus_per_node
        left = -used % size
        if hosts > left:
            used += left
        pods.append([(used + host) // size for host in range(hosts)])
        used += hosts
    return pods


def add_rails(graph: nx.Graph[str], spec: ClusterSpec, gpus: Sequence[Gpu]) -> None:
    """Add leaves and spine planes, the links of each GPU's NICs, and the uplinks."""
    scale_out = spec.scale_out
    if scale_out is None:
        return
    nic = edge_attributes(scale_out.fabric, scale_out.nic_links_per_gpu)
    host_pods = [pod for domain in pods_of(spec) for pod in domain]
    leaves: dict[tuple[int, int], str] = {}
    downlinks: list[tuple[str, str]] = []
    host, last = -1, ""
    for gpu in gpus:
        if gpu.node != last:
            host, last = host + 1, gpu.node
        key = (host_pods[host], gpu.rail)
        leaf = leaves.setdefault(key, f"f.p{key[0]}.l{key[1]}")
        downlinks.append((gpu.id, leaf))
    for (_, rail), leaf in leaves.items():
        graph.add_node(leaf, **node_attributes("leaf", rail=rail))
    for plane in range(scale_out.spines):
        graph.add_node(f"f.s{plane}", **node_attributes("spine", plane=plane))
    graph.add_edges_from((gpu_id, leaf, nic) for gpu_id, leaf in downlinks)
    for number, leaf in enumerate(leaves.values()):
        for plane, count in enumerate(_spread(uplinks_of_leaf(scale_out), scale_out.spines, number)):
            if count:
                graph.add_edge(leaf, f"f.s{plane}", **edge_attributes(scale_out.fabric, count))


def _spread(links: int, spines: int, turn: int) -> list[int]:
    """Spread ``links`` over ``spines`` as evenly as whole links allow; ``turn`` moves the odd ones."""
    each, odd = divmod(links, spines)
    return [each + ((plane - turn * odd) % spines < odd) for plane in range(spines)]
