"""All GPUs of a host on one leaf, leaves cabled evenly to spine planes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal, Self

import numpy as np

from topology.base.schema import keyword_spec
from topology.fabrics.asked import Asked
from topology.fabrics.fabric import Hosts, largest_host, whole_uplinks
from topology.fabrics.planes import SpinePlanes
from topology.structures.domain import DomainSpec
from topology.wiring import Laying


@keyword_spec
class LeafSpineFabric(SpinePlanes):
    """Two tiers."""

    kind: Literal["leaf-spine"] = "leaf-spine"

    def check_hosts(self, domains: Sequence[DomainSpec], at: str) -> None:
        """Refuse leaves that do not reach every spine."""
        self.check_reach(largest_host(domains), at)

    @classmethod
    def read(cls, asked: Asked) -> Self:
        """As few spines as have the ports."""
        per_leaf = asked.nodes_per_leaf
        uplinks = whole_uplinks(per_leaf * asked.width, asked.ratios[0], cls.switch, asked.at)
        if "spines" in asked.row:
            spines = asked.row.count("spines")
        else:
            remedy = "use `kind: fat-tree`, or say how many planes there are, like `spines: 4`"
            spines = asked.fewest(uplinks, ceil(asked.hosts / per_leaf), "leaves", "spine", remedy)
        return asked.made(cls, nodes_per_pod=per_leaf, spines=spines)

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
        laying.link([self.fabric], np.arange(laying.gpus), on, self.nics_per_plane)
        self.cable(laying, leaves, spines, self.uplinks(hosts.largest), numbers)
        return laying
