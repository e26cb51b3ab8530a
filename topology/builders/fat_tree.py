"""Three-tier fat tree: hosts on leaves, leaves and spines in pods, pods joined by cores.

Every leaf of a pod is cabled evenly to every spine of its pod; spine i of every pod is cabled evenly to the
cores of group i and to no others (Al-Fares, Loukissas and Vahdat, SIGCOMM 2008). Uplinks are those of a full pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology.builders.hosts import host_gpus, largest_host
from topology.builders.spread import spread
from topology.check import uplinks_of_leaf, uplinks_of_spine
from topology.graph import edge_attributes, node_attributes
from topology.spec import ClusterSpec, FabricSpec, ScaleOutSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def add_fat_tree(
    graph: nx.Graph[str], spec: ClusterSpec, scale_out: ScaleOutSpec, gpus: Sequence[Gpu]
) -> None:
    """Add leaves, spines and cores, the links of each GPU's NICs, and the uplinks of both tiers."""
    hosts = host_gpus(gpus)
    largest, size = largest_host(spec), scale_out.nodes_per_leaf
    leaves = -(-len(hosts) // size)
    pods = -(-leaves // scale_out.leaves_per_pod)
    nic = edge_attributes(scale_out.fabric, scale_out.nic_links_per_gpu)
    for group in range(scale_out.spines):
        for core in range(scale_out.cores):
            graph.add_node(f"f.c{group}.{core}", **node_attributes("core", plane=group))
    for pod in range(pods):
        for spine in range(scale_out.spines):
            graph.add_node(f"f.p{pod}.s{spine}", **node_attributes("spine", pod=pod, plane=spine))
    uplinks = uplinks_of_leaf(scale_out, gpus_per_node=largest)
    for number in range(leaves):
        pod, place = divmod(number, scale_out.leaves_per_pod)
        leaf = f"f.p{pod}.l{place}"
        graph.add_node(leaf, **node_attributes("leaf", pod=pod))
        members = hosts[number * size : (number + 1) * size]
        graph.add_edges_from((gpu_id, leaf, nic) for host in members for gpu_id in host)
        above = [f"f.p{pod}.s{spine}" for spine in range(scale_out.spines)]
        _cable(graph, scale_out.fabric, leaf, above, uplinks, place)
    if scale_out.cores:
        core_links = uplinks_of_spine(scale_out, gpus_per_node=largest)
        for pod in range(pods):
            for spine in range(scale_out.spines):
                above = [f"f.c{spine}.{core}" for core in range(scale_out.cores)]
                _cable(graph, scale_out.fabric, f"f.p{pod}.s{spine}", above, core_links, pod)


def _cable(
    graph: nx.Graph[str], fabric: FabricSpec, below: str, above: Sequence[str], links: int, turn: int
) -> None:
    """Spread ``links`` from one switch evenly over those above it."""
    for upper, count in zip(above, spread(links, len(above), turn), strict=True):
        if count:
            graph.add_edge(below, upper, **edge_attributes(fabric, count))
