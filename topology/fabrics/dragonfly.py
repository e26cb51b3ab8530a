"""Groups of routers, all routers of a group linked to each other, all groups linked evenly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np

from topology.base.errors import InputError
from topology.fabrics.asked import Asked
from topology.fabrics.fabric import Fabric, Hosts, largest_host
from topology.spec import ClusterSpec, ScaleOutSpec
from topology.wiring import Laying


class Dragonfly(Fabric):
    """Kim, Dally, Scott and Abts, ISCA 2008: p terminals, a routers a group, h global links a router.

    Balanced where a = 2p = 2h. Here p is the NIC links of a router's hosts and h is p over the oversubscription.
    """

    kind = "dragonfly"
    spines = False
    switch = "a router"

    def check_hosts(self, spec: ClusterSpec, out: ScaleOutSpec, where: str) -> None:
        """Refuse more groups than a group has global links for."""
        ports = out.leaves_per_pod * self.uplinks(out, largest_host(spec), where)
        groups = -(-sum(domain.nodes for domain in spec.domains) // out.nodes_per_pod)
        if groups - 1 > ports:
            raise InputError(
                f"{where}: a dragonfly of {groups} groups needs {groups - 1} global links from each, and a group has "
                f"{ports}; use larger groups (`routers_per_group`) or less oversubscription."
            )

    def size(self, out: ScaleOutSpec, pods: int) -> int:
        """Return about how many local links there are, most of all."""
        return pods * out.leaves_per_pod**2

    def read(self, asked: Asked) -> ScaleOutSpec:
        """Sizes not given are balanced: p terminals, 2p routers, p global links."""
        row, width = asked.row, asked.gpus_per_node * asked.blank.nics_per_plane
        if "nodes_per_router" in row:
            per_router = row.count("nodes_per_router")
        else:
            per_router = (asked.ports + 1) // 4 // width  # ports = p + (2p - 1) + p
            if per_router < 1:
                raise InputError(
                    f"{asked.where}: a balanced router of {asked.ports} ports takes {(asked.ports + 1) // 4} NIC "
                    f"links, and a host has {width}; give `nodes_per_router` or a larger `radix`."
                )
        routers = row.count("routers_per_group", 2 * per_router * width)
        return replace(
            asked.blank,
            nodes_per_pod=per_router * routers,
            leaves_per_pod=routers,
            spines=0,
            local_links=row.count("local_links", 1),
        )

    def keys(self, out: ScaleOutSpec) -> dict[str, object]:
        """Return how the switches are cabled."""
        row = super().keys(out) | {
            "nodes_per_router": out.nodes_per_leaf,
            "routers_per_group": out.leaves_per_pod,
        }
        return row | {"local_links": out.local_links}

    def lay(self, hosts: Hosts, out: ScaleOutSpec) -> Laying:
        """Lay the routers of all groups, full or not."""
        laying, width = Laying(len(hosts.host)), out.leaves_per_pod
        groups = np.arange(-(-hosts.count // out.nodes_per_pod))
        names = [f"f.g{group}.r{number}" for group in groups for number in range(width)]
        routers = laying.add("router", names, pod=np.repeat(groups, width)).reshape(len(groups), width)
        one, other = np.triu_indices(width, 1)
        laying.link([out.fabric], routers[:, one], routers[:, other], max(1, out.local_links))
        on = routers.reshape(-1)[hosts.host // out.nodes_per_leaf]
        laying.link([out.fabric], np.arange(laying.gpus), on, out.nics_per_plane)
        ports = width * self.uplinks(out, hosts.largest)
        found = _global_links(len(groups), width, ports)
        one, other = routers.reshape(-1)[np.array(list(found), dtype=np.int64).reshape(-1, 2).T]
        laying.link([out.fabric], one, other, list(found.values()))
        return laying


def links_between_groups(groups: int, ports: int) -> dict[tuple[int, int], int]:
    """Return the global links between each two groups of a dragonfly, ``ports`` global links a group.

    Each pair gets the whole links that all can have; what is left goes to groups near each other on a ring, two
    at a time, so that all groups keep the same number. :func:`check_fabric` sees to it that each pair gets one.
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


def _global_links(groups: int, width: int, ports: int) -> Counter[tuple[int, int]]:
    """Return the global links between routers, numbered over all groups: a group's dealt to its routers in turn."""
    links = links_between_groups(groups, ports)
    dealt = [0] * groups
    found: Counter[tuple[int, int]] = Counter()
    order = sorted(links, key=lambda pair: (min(pair[1] - pair[0], groups - pair[1] + pair[0]), pair))
    for a, b in order:
        for _ in range(links[a, b]):
            found[a * width + dealt[a] % width, b * width + dealt[b] % width] += 1
            dealt[a] += 1
            dealt[b] += 1
    return found
