"""All GPUs of a host on one leaf, leaves cabled evenly to spine planes."""

from __future__ import annotations

import numpy as np

from topology.fabrics.fabric import Hosts, cable, check_reach, largest_host
from topology.fabrics.planes import SpinePlanes
from topology.spec import ClusterSpec, ScaleOutSpec
from topology.wiring import Laying


class LeafSpine(SpinePlanes):
    """Two tiers."""

    kind = "leaf-spine"

    def check_hosts(self, spec: ClusterSpec, out: ScaleOutSpec, where: str) -> None:
        """Refuse leaves that do not reach every spine."""
        check_reach(out, self.uplinks(out, where, largest_host(spec)), where)

    def lay(self, hosts: Hosts, out: ScaleOutSpec) -> Laying:
        """Lay the spines, then the leaves."""
        laying = Laying(len(hosts.host))
        spines = self.add_planes(laying, out)
        numbers = np.arange(-(-hosts.count // out.nodes_per_leaf))
        leaves = laying.add("leaf", [f"f.l{number}" for number in numbers], pod=numbers)
        on = leaves[hosts.host // out.nodes_per_leaf]
        laying.link([out.fabric], np.arange(laying.gpus), on, out.nic_links_per_gpu)
        cable(laying, out, leaves, spines, self.uplinks(out, "fabric", hosts.largest), numbers)
        return laying
