"""All GPUs of a host on one leaf, leaves cabled evenly to spine planes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal

import numpy as np

from topology.base.schema import MaybeCount, keyword_spec
from topology.fabrics.fabric import Hosts, largest_host
from topology.fabrics.planes import SpinePlanes
from topology.fabrics.row import FabricRow, Sizing
from topology.structures.domain import DomainSpec
from topology.wiring import Laying


@keyword_spec
class LeafSpineFabric(SpinePlanes):
    """Two tiers."""

    kind: Literal["leaf-spine"] = "leaf-spine"

    def check_hosts(self, domains: Sequence[DomainSpec], at: str) -> None:
        """Reject leaves that do not reach every spine."""
        self.check_reach(largest_host(domains), at)

    def keys(self) -> dict[str, object]:
        """Return how the switches are cabled."""
        return super().keys() | {"nodes_per_leaf": self.nodes_per_leaf, "spines": self.spines}

    def lay(self, hosts: Hosts) -> Laying:
        """Lay the spines, then the leaves."""
        laying = Laying(len(hosts.host))
        spines = self.add_planes(laying)
        numbers = np.arange(-(-hosts.count // self.nodes_per_leaf))
        leaves = laying.add("leaf", [f"f.l{number}" for number in numbers], pod=numbers)
        on = leaves[hosts.host // self.nodes_per_leaf]
        self.cable_planes(laying, leaves, spines, on, self.uplinks(hosts.largest))
        return laying


@keyword_spec
class LeafSpineRow(FabricRow):
    """Two tiers as a cluster file writes them."""

    kind: Literal["leaf-spine"] = "leaf-spine"
    nodes_per_leaf: MaybeCount = None
    spines: MaybeCount = None

    def sized(self, sizing: Sizing) -> LeafSpineFabric:
        """Return them, with as few spines as have the ports."""
        per_leaf, spines = self.nodes_per_leaf or sizing.most_hosts(), self.spines
        uplinks = sizing.uplinks(per_leaf * sizing.width)
        if spines is None:
            remedy = "use `kind: fat-tree`, or set the number of planes, like `spines: 4`"
            spines = sizing.fewest(uplinks, ceil(sizing.hosts / per_leaf), "leaves", "spine", remedy)
        return sizing.made(LeafSpineFabric, nodes_per_pod=per_leaf, spines=spines)
