"""GPU i of every host on leaf i of its pod, leaves cabled evenly to spine planes: NVIDIA's reference designs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from topology.base.schema import MaybeCount, keyword_spec
from topology.fabrics.fabric import Hosts, places_in
from topology.fabrics.planes import SpinePlanes
from topology.fabrics.row import FabricRow, Sizing
from topology.structures.domain import DomainSpec
from topology.wiring import Ints, Laying


@keyword_spec
class RailFabric(SpinePlanes):
    """Rails over pods of ``nodes_per_pod`` hosts: 32 of an HGX scalable unit, one NVL72 rack."""

    kind: Literal["rail"] = "rail"

    rails: ClassVar[bool] = True

    def check(self) -> None:
        """Reject leaves that do not reach every spine, too."""
        super().check()
        self.check_reach(1)

    def check_hosts(self, domains: Sequence[DomainSpec], at: str) -> None:
        """Take any hosts: a leaf has one GPU of each."""

    def pods(self, hosts: Hosts) -> Ints:
        """Return the pod of each host.

        A domain that does not fit in what is left of a pod begins the next one, so a rack is never split between
        two sets of leaves; a domain larger than a pod takes several.
        """
        size, used = self.nodes_per_pod, 0
        starts: list[int] = []
        for nodes in hosts.of_domain.tolist():
            room = -used % size
            used += room if nodes > room else 0
            starts.append(used)
            used += nodes
        pods: Ints = (np.repeat(starts, hosts.of_domain) + places_in(hosts.of_domain)) // size
        return pods

    def leaves(self, hosts: Hosts) -> Ints:
        """Return the set of leaves of each host, that of its pod."""
        return self.pods(hosts)

    def downlinks(self, _gpus_per_node: int) -> int:
        """Return the downlinks of a full leaf: one GPU of each host."""
        return super().downlinks(1)

    def keys(self) -> dict[str, object]:
        """Return how the switches are cabled."""
        return super().keys() | {"nodes_per_pod": self.nodes_per_pod, "spines": self.spines}

    def lay(self, hosts: Hosts) -> Laying:
        """Lay the leaves in the order of the GPUs on them, then the spines."""
        laying = Laying(len(hosts.host))
        width = hosts.largest
        key = self.pods(hosts)[hosts.host] * width + hosts.rail
        keys, appearance, which = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(appearance)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        pods, rails = np.divmod(keys[order], width)
        names = [f"f.p{pod}.l{rail}" for pod, rail in zip(pods.tolist(), rails.tolist(), strict=True)]
        leaves = laying.add("leaf", names, pod=pods, rail=rails)
        spines = self.add_planes(laying)
        self.cable_planes(laying, leaves, spines, leaves[place[which]], self.uplinks(1))
        return laying


@keyword_spec
class RailRow(FabricRow):
    """Rails as a cluster file writes them; pods and spines left out are those of the first part's design."""

    kind: Literal["rail"] = "rail"
    nodes_per_pod: MaybeCount = None
    spines: MaybeCount = None

    def sized(self, sizing: Sizing) -> RailFabric:
        """Return them; with fewer uplinks than the design's spines, one to each of as many."""
        pod, spines = self.nodes_per_pod or sizing.usual_pod, self.spines
        if spines is None:
            spines = min(sizing.usual_spines, sizing.uplinks(pod * sizing.nics_per_plane))
        return sizing.made(RailFabric, nodes_per_pod=pod, spines=spines)
