"""Rail-optimised scale-out: GPU i of every host on leaf i of its pod, leaves cabled evenly to spine planes.

A pod is ``nodes_per_pod`` hosts that share one leaf per rail (32 hosts of an HGX scalable unit, one NVL72
rack). A leaf has as many uplinks as its full pod has downlinks, over the oversubscription, whether or not the
pod is full. A spine here is a *plane*: one switch where the cluster is one reference unit, and in larger
clusters the spine and core switches of that plane together, taken as non-blocking above the leaves. So rates
are right at any size, and the extra hop of a core tier is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology.builders.hosts import pods_of
from topology.builders.spread import spread
from topology.check import uplinks_of_leaf
from topology.graph import edge_attributes, node_attributes
from topology.spec import ClusterSpec, ScaleOutSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def add_rails(graph: nx.Graph[str], spec: ClusterSpec, scale_out: ScaleOutSpec, gpus: Sequence[Gpu]) -> None:
    """Add leaves and spine planes, the links of each GPU's NICs, and the uplinks."""
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
    for (pod, rail), leaf in leaves.items():
        graph.add_node(leaf, **node_attributes("leaf", pod=pod, rail=rail))
    for plane in range(scale_out.spines):
        graph.add_node(f"f.s{plane}", **node_attributes("spine", plane=plane))
    graph.add_edges_from((gpu_id, leaf, nic) for gpu_id, leaf in downlinks)
    uplinks = uplinks_of_leaf(scale_out)
    for number, leaf in enumerate(leaves.values()):
        for plane, count in enumerate(spread(uplinks, scale_out.spines, number)):
            if count:
                graph.add_edge(leaf, f"f.s{plane}", **edge_attributes(scale_out.fabric, count))
