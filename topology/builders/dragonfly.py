"""Dragonfly: groups of routers, all routers of a group linked to each other, all groups linked evenly.

Kim, Dally, Scott and Abts, ISCA 2008: p terminals, a routers a group, h global links a router; balanced where
a = 2p = 2h. Here p is the NIC links of a router's hosts and h is p over the oversubscription.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from topology.builders.hosts import host_gpus, largest_host
from topology.check import uplinks_of_leaf
from topology.graph import edge_attributes, node_attributes
from topology.spec import ClusterSpec, ScaleOutSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Gpu


def add_dragonfly(
    graph: nx.Graph[str], spec: ClusterSpec, scale_out: ScaleOutSpec, gpus: Sequence[Gpu]
) -> None:
    """Add routers, the links of each GPU's NICs, local links and global links."""
    hosts = host_gpus(gpus)
    size, width = scale_out.nodes_per_leaf, scale_out.leaves_per_pod
    groups = -(-len(hosts) // scale_out.nodes_per_pod)
    nic = edge_attributes(scale_out.fabric, scale_out.nic_links_per_gpu)
    local = edge_attributes(scale_out.fabric, max(1, scale_out.local_links))
    for group in range(groups):
        routers = [f"f.g{group}.r{number}" for number in range(width)]
        graph.add_nodes_from(routers, **node_attributes("router", pod=group))
        graph.add_edges_from((a, b, local) for a, b in combinations(routers, 2))
    for number, host in enumerate(hosts):
        group, router = divmod(number // size, width)
        graph.add_edges_from((gpu_id, f"f.g{group}.r{router}", nic) for gpu_id in host)
    ports = width * uplinks_of_leaf(scale_out, gpus_per_node=largest_host(spec))
    for (a, b), count in _global_links(groups, width, ports).items():
        graph.add_edge(a, b, **edge_attributes(scale_out.fabric, count))


def links_between_groups(groups: int, ports: int) -> dict[tuple[int, int], int]:
    """Return the global links between each two groups, ``ports`` global links a group.

    Each pair gets the whole links that all can have; what is left goes to groups near each other on a ring, two
    at a time, so that all groups keep the same number. :mod:`topology.check` sees to it that each pair gets one.
    """
    if groups == 1:
        return {}
    each, left = divmod(ports, groups - 1)
    links = {}
    for a, b in combinations(range(groups), 2):
        apart = min(b - a, groups - b + a)
        opposite = 2 * apart == groups
        extra = left % 2 == 1 if opposite else apart <= left // 2
        links[a, b] = each + extra
    return links


def _global_links(groups: int, width: int, ports: int) -> Counter[tuple[str, str]]:
    """Return the global links between routers: a group's links dealt to its routers in turn."""
    links = links_between_groups(groups, ports)
    dealt = [0] * groups
    found: Counter[tuple[str, str]] = Counter()
    order = sorted(links, key=lambda pair: (min(pair[1] - pair[0], groups - pair[1] + pair[0]), pair))
    for a, b in order:
        for _ in range(links[a, b]):
            found[f"f.g{a}.r{dealt[a] % width}", f"f.g{b}.r{dealt[b] % width}"] += 1
            dealt[a] += 1
            dealt[b] += 1
    return found
