"""Hosts on leaves, leaves and spines in pods, pods joined by cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import ClassVar, Literal

import numpy as np

from topology.base.errors import InputError
from topology.base.schema import Count, CountOrZero, MaybeCount, Positive, keyword_spec
from topology.fabrics.fabric import CabledFabric, Hosts, check_pods, largest_host, populated, whole_uplinks
from topology.fabrics.row import FabricRow, Sizing
from topology.structures.domain import DomainSpec, check_even
from topology.wiring import Laying


@keyword_spec
class FatTreeFabric(CabledFabric):
    """Three tiers (Al-Fares, Loukissas and Vahdat, SIGCOMM 2008).

    Every leaf of a pod is cabled evenly to every spine of its pod; spine i of every pod is cabled evenly to the
    cores of group i and to no others.

    Attributes
    ----------
    leaves_per_pod, spines:
        Leaves and spines in each pod.
    core_oversubscription:
        Downlink rate of a spine over its uplink rate.
    cores:
        Cores that spine i of every pod shares, evenly cabled; 0 where one pod is all.
    """

    kind: Literal["fat-tree"] = "fat-tree"
    leaves_per_pod: Count
    spines: Count
    core_oversubscription: Positive = 1.0
    cores: CountOrZero = 0

    def check(self) -> None:
        """Reject hosts that do not fill the leaves of a pod."""
        super().check()
        check_pods(self.nodes_per_pod, self.leaves_per_pod)

    def check_hosts(self, domains: Sequence[DomainSpec], at: str) -> None:
        """Reject uplinks that do not spread evenly over spines or cores."""
        self.spine_uplinks(largest_host(domains), at)

    def size(self, pods: int) -> int:
        """Return the spines and cores."""
        return self.spines * (self.cores + pods)

    @property
    def nodes_per_leaf(self) -> int:
        """Hosts on one leaf."""
        return self.nodes_per_pod // self.leaves_per_pod

    @property
    def oversubscription_above_pods(self) -> float:
        """That of the spines."""
        return self.core_oversubscription

    def spine_uplinks(self, gpus_per_node: int, at: str = "") -> int:
        """Return the uplinks of one spine: its downlinks in a full pod over its oversubscription.

        Raises
        ------
        InputError
            If that is not a whole number of at least one; ``at`` goes before the message.
        """
        uplinks = self.uplinks(gpus_per_node, at)
        check_even(uplinks, self.spines, "a leaf", "spines of a pod", at)
        down = self.leaves_per_pod * uplinks // self.spines
        up = whole_uplinks(down, self.core_oversubscription, "a spine", at)
        if self.cores:
            check_even(up, self.cores, "a spine", "cores above it", at)
        return up

    def keys(self) -> dict[str, object]:
        """Return how the switches are cabled."""
        row: dict[str, object] = {"oversubscription": [self.oversubscription, self.core_oversubscription]}
        row |= {"nodes_per_leaf": self.nodes_per_leaf, "leaves_per_pod": self.leaves_per_pod}
        return row | {"spines": self.spines} | ({"cores": self.cores * self.spines} if self.cores else {})

    def lay(self, hosts: Hosts) -> Laying:
        """Lay the cores, the spines, then the leaves."""
        laying = Laying(len(hosts.host))
        numbers = np.arange(-(-hosts.count // self.nodes_per_leaf))
        pod, place = np.divmod(numbers, self.leaves_per_pod)
        pods, planes, group = np.arange(pod[-1] + 1), np.arange(self.spines), np.arange(self.cores)
        names = [f"f.c{plane}.{core}" for plane in planes for core in group]
        cores = laying.add("core", names, plane=np.repeat(planes, len(group)))
        names = [f"f.p{number}.s{plane}" for number in pods for plane in planes]
        spines = laying.add(
            "spine", names, pod=np.repeat(pods, len(planes)), plane=np.tile(planes, len(pods))
        ).reshape(len(pods), len(planes))
        names = [f"f.p{number}.l{leaf}" for number, leaf in zip(pod.tolist(), place.tolist(), strict=True)]
        leaves = laying.add("leaf", names, pod=pod)
        on = leaves[hosts.host // self.nodes_per_leaf]
        laying.link([self.fabric], np.arange(laying.gpus), on, self.nics_per_plane)
        down = np.bincount(hosts.host // self.nodes_per_leaf, minlength=len(leaves)) * self.nics_per_plane
        up = populated(down, self.oversubscription, self.spines, self.uplinks(hosts.largest))
        self.cable(laying, leaves, spines[pod], up, place)
        if self.cores:
            above = np.tile(cores.reshape(len(planes), len(group)), (len(pods), 1))
            down = np.bincount(pod, up).repeat(self.spines) // self.spines
            full = self.spine_uplinks(hosts.largest)
            links = populated(down, self.core_oversubscription, self.cores, full)
            self.cable(laying, spines.reshape(-1), above, links, np.repeat(pods, len(planes)))
        return laying


@keyword_spec
class FatTreeRow(FabricRow):
    """Three tiers as a cluster file writes them; sizes left out are those of the largest tree of that radix."""

    kind: Literal["fat-tree"] = "fat-tree"
    nodes_per_leaf: MaybeCount = None
    leaves_per_pod: MaybeCount = None
    spines: MaybeCount = None
    cores: MaybeCount = None

    tiers: ClassVar[int] = 2

    def sized(self, sizing: Sizing) -> FatTreeFabric:
        """Return them."""
        per_leaf = self.nodes_per_leaf or sizing.most_hosts()
        upper = self.oversubscription[1] if len(self.oversubscription) > 1 else 1.0
        uplinks = sizing.uplinks(per_leaf * sizing.width)
        spines = self.spines or uplinks
        leaves = self.leaves_per_pod or sizing.most_down(upper, max(1, uplinks // spines))
        tree = sizing.made(
            FatTreeFabric,
            nodes_per_pod=per_leaf * leaves,
            leaves_per_pod=leaves,
            spines=spines,
            core_oversubscription=upper,
        )
        pods = ceil(sizing.hosts / tree.nodes_per_pod)
        if self.cores is not None:
            if self.cores % spines:
                raise InputError(
                    f"{sizing.at}cores: {self.cores} cores do not fill one group for each of {spines} spines."
                )
            return replace(tree, cores=self.cores // spines if pods > 1 else 0)
        if pods == 1:
            return tree
        links = tree.spine_uplinks(sizing.width // sizing.nics_per_plane, sizing.at)
        remedy = "use larger pods (`leaves_per_pod`) or switches (`radix`)"
        return replace(tree, cores=sizing.fewest(links, pods, "pods", "core", remedy))
