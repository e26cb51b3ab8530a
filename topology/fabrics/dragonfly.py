"""Groups of routers, all routers of a group linked to each other, all groups linked evenly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar, Literal

import numpy as np

from topology.base.errors import InputError
from topology.base.schema import Count, MaybeCount, keyword_spec
from topology.fabrics.fabric import CabledFabric, Hosts, check_pods, largest_host
from topology.fabrics.row import FabricRow, Sizing
from topology.structures.domain import DomainSpec
from topology.wiring import Laying


@keyword_spec
class DragonflyFabric(CabledFabric):
    """Kim, Dally, Scott and Abts, ISCA 2008: p terminals, a routers a group, h global links a router.

    Balanced where a = 2p = 2h. Here p is the NIC links of a router's hosts and h is p over the oversubscription. A
    pod is a group of ``leaves_per_pod`` routers, any two of which have ``local_links``.
    """

    kind: Literal["dragonfly"] = "dragonfly"
    leaves_per_pod: Count
    local_links: Count = 1

    switch: ClassVar[str] = "a router"

    def check(self) -> None:
        """Reject hosts that do not fill the routers of a group."""
        super().check()
        check_pods(self.nodes_per_pod, self.leaves_per_pod)

    def check_hosts(self, domains: Sequence[DomainSpec], at: str) -> None:
        """Reject more groups than a group has global links for."""
        ports = self.leaves_per_pod * self.uplinks(largest_host(domains), at)
        groups = -(-sum(domain.nodes for domain in domains) // self.nodes_per_pod)
        if groups - 1 > ports:
            raise InputError(
                f"{at}a dragonfly of {groups} groups needs {groups - 1} global links per group, but a "
                f"group has {ports}; use larger groups (`routers_per_group`) or less oversubscription."
            )

    def size(self, pods: int) -> int:
        """Return about how many local links there are, most of all."""
        return pods * self.leaves_per_pod**2

    @property
    def nodes_per_leaf(self) -> int:
        """Hosts on one router."""
        return self.nodes_per_pod // self.leaves_per_pod

    def keys(self) -> dict[str, object]:
        """Return how the switches are cabled."""
        row = super().keys() | {
            "nodes_per_router": self.nodes_per_leaf,
            "routers_per_group": self.leaves_per_pod,
        }
        return row | {"local_links": self.local_links}

    def lay(self, hosts: Hosts) -> Laying:
        """Lay the routers of all groups, full or not; of a single group those that have hosts."""
        laying, width = Laying(len(hosts.host)), self.leaves_per_pod
        groups = np.arange(-(-hosts.count // self.nodes_per_pod))
        if len(groups) == 1:
            width = -(-hosts.count // self.nodes_per_leaf)
        names = [f"f.g{group}.r{number}" for group in groups for number in range(width)]
        routers = laying.add("router", names, pod=np.repeat(groups, width)).reshape(len(groups), width)
        tail, head = np.triu_indices(width, 1)
        laying.link([self.fabric], routers[:, tail], routers[:, head], self.local_links)
        on = routers.reshape(-1)[hosts.host // self.nodes_per_leaf]
        laying.link([self.fabric], np.arange(laying.gpus), on, self.nics_per_plane)
        ports = width * self.uplinks(hosts.largest)
        links = _global_links(len(groups), width, ports)
        tail, head = routers.reshape(-1)[np.array(list(links), dtype=np.int64).reshape(-1, 2).T]
        laying.link([self.fabric], tail, head, list(links.values()))
        return laying


@keyword_spec
class DragonflyRow(FabricRow):
    """Groups as a cluster file writes them; sizes left out are balanced: p terminals, 2p routers, p global links."""

    kind: Literal["dragonfly"] = "dragonfly"
    nodes_per_router: MaybeCount = None
    routers_per_group: MaybeCount = None
    local_links: Count = 1

    def sized(self, sizing: Sizing) -> DragonflyFabric:
        """Return them."""
        per_router = (
            self.nodes_per_router or (sizing.ports + 1) // 4 // sizing.width
        )  # p + (2p - 1) + p ports
        if per_router < 1:
            raise InputError(
                f"{sizing.at}a balanced router of {sizing.ports} ports takes {(sizing.ports + 1) // 4} NIC "
                f"links, and a host has {sizing.width}; give `nodes_per_router` or a larger `radix`."
            )
        routers = self.routers_per_group or 2 * per_router * sizing.width
        return sizing.made(
            DragonflyFabric,
            nodes_per_pod=per_router * routers,
            leaves_per_pod=routers,
            local_links=self.local_links,
        )


def links_between_groups(groups: int, ports: int) -> dict[tuple[int, int], int]:
    """Return the global links between each two groups of a dragonfly, ``ports`` global links a group.

    Each pair gets the whole links that all can have; what is left goes to groups near each other on a ring, two
    at a time, so that all groups keep the same number. :meth:`DragonflyFabric.check_hosts` makes sure that each pair
    gets one.
    """
    if groups == 1:
        return {}
    base, surplus = divmod(ports, groups - 1)
    links = {}
    for a, b in combinations(range(groups), 2):
        apart = min(b - a, groups - b + a)
        opposite = 2 * apart == groups
        extra = surplus % 2 == 1 if opposite else apart <= surplus // 2
        links[a, b] = base + extra
    return links


def _global_links(groups: int, width: int, ports: int) -> Counter[tuple[int, int]]:
    """Return the global links between routers, numbered over all groups: a group's dealt to its routers in turn."""
    links = links_between_groups(groups, ports)
    dealt = [0] * groups
    counts: Counter[tuple[int, int]] = Counter()
    order = sorted(links, key=lambda pair: (min(pair[1] - pair[0], groups - pair[1] + pair[0]), pair))
    for a, b in order:
        for _ in range(links[a, b]):
            counts[a * width + dealt[a] % width, b * width + dealt[b] % width] += 1
            dealt[a] += 1
            dealt[b] += 1
    return counts
