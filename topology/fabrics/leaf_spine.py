"""All GPUs of a host on one leaf, leaves cabled evenly to spine planes."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from topology.fabrics.asked import Asked
from topology.fabrics.fabric import Hosts, cable, check_reach, largest_host
from topology.fabrics.planes import SpinePlanes
from topology.spec import ClusterSpec, ScaleOutSpec
from topology.wiring import Laying


class LeafSpine(SpinePlanes):
    """Two tiers."""

    kind = "leaf-spine"

    def check_hosts(self, spec: ClusterSpec, out: ScaleOutSpec, where: str) -> None:
        """Refuse leaves that do not reach every spine."""
        check_reach(out, self.uplinks(out, largest_host(spec), where), where)

    def read(self, asked: Asked) -> ScaleOutSpec:
        """As few spines as have the ports."""
        one = replace(asked.blank, nodes_per_pod=asked.nodes_per_leaf)
        uplinks = self.uplinks(one, asked.gpus_per_node, asked.where)
        leaves = ceil(asked.hosts / asked.nodes_per_leaf)
        if "spines" in asked.row:
            return replace(one, spines=asked.row.count("spines"))
        remedy = "use `kind: fat-tree`, or say how many planes there are, like `spines: 4`"
        return replace(one, spines=asked.fewest(uplinks, leaves, "leaves", "spine", remedy))

    def keys(self, out: ScaleOutSpec) -> dict[str, object]:
        """Return how the switches are cabled."""
        return super().keys(out) | {"nodes_per_leaf": out.nodes_per_leaf, "spines": out.spines}

    def lay(self, hosts: Hosts, out: ScaleOutSpec) -> Laying:
        """Lay the spines, then the leaves."""
        laying = Laying(len(hosts.host))
        spines = self.add_planes(laying, out)
        numbers = np.arange(-(-hosts.count // out.nodes_per_leaf))
        leaves = laying.add("leaf", [f"f.l{number}" for number in numbers], pod=numbers)
        on = leaves[hosts.host // out.nodes_per_leaf]
        laying.link([out.fabric], np.arange(laying.gpus), on, out.nics_per_plane)
        cable(laying, out, leaves, spines, self.uplinks(out, hosts.largest), numbers)
        return laying
