"""Plain leaf-spine scale-out: all GPUs of a host on one leaf, leaves cabled evenly to spine planes.

Hosts fill leaves in order. A leaf has the uplinks that its full set of hosts needs, over the oversubscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology.builders.hosts import host_gpus, largest_host
from topology.builders.spread import spread
from topology.check import uplinks_of_leaf
from topology.graph import edge_attributes, node_attributes
from topology.spec import ClusterSpec, ScaleOutSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def add_leaf_spine(
    graph: nx.Graph[str], spec: ClusterSpec, scale_out: ScaleOutSpec, gpus: Sequence[Gpu]
) -> None:
    """Add leaves and spine planes, the links of each GPU's NICs, and the uplinks."""
    hosts = host_gpus(gpus)
    size = scale_out.nodes_per_leaf
    nic = edge_attributes(scale_out.fabric, scale_out.nic_links_per_gpu)
    uplinks = uplinks_of_leaf(scale_out, gpus_per_node=largest_host(spec))
    for plane in range(scale_out.spines):
        graph.add_node(f"f.s{plane}", **node_attributes("spine", plane=plane))
    for number in range(-(-len(hosts) // size)):
        leaf = f"f.l{number}"
        graph.add_node(leaf, **node_attributes("leaf", pod=number))
        members = hosts[number * size : (number + 1) * size]
        graph.add_edges_from((gpu_id, leaf, nic) for host in members for gpu_id in host)
        for plane, count in enumerate(spread(uplinks, scale_out.spines, number)):
            if count:
                graph.add_edge(leaf, f"f.s{plane}", **edge_attributes(scale_out.fabric, count))
