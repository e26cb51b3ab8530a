"""GPU i of every host on leaf i of its pod, leaves cabled evenly to spine planes: NVIDIA's reference designs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from topology.fabrics.asked import Asked
from topology.fabrics.fabric import Hosts, cable, check_reach, places_in
from topology.fabrics.planes import SpinePlanes
from topology.spec import ClusterSpec, ScaleOutSpec
from topology.wiring import Ints, Laying


class Rail(SpinePlanes):
    """Rails over pods of ``nodes_per_pod`` hosts: 32 of an HGX scalable unit, one NVL72 rack."""

    kind = "rail"
    rails = True

    def check(self, out: ScaleOutSpec, where: str) -> None:
        """Refuse leaves that do not reach every spine, too."""
        super().check(out, where)
        check_reach(out, self.uplinks(out, 1, where), where)

    def check_hosts(self, spec: ClusterSpec, out: ScaleOutSpec, where: str) -> None:
        """Take any hosts: a leaf has one GPU of each."""

    def pods(self, hosts: Hosts, out: ScaleOutSpec) -> Ints:
        """Return the pod of each host.

        A domain that does not fit in what is left of a pod begins the next one, so a rack is never split between
        two sets of leaves; a domain larger than a pod takes several.
        """
        size, used = out.nodes_per_pod, 0
        first: list[int] = []
        for nodes in hosts.of_domain.tolist():
            left = -used % size
            used += left if nodes > left else 0
            first.append(used)
            used += nodes
        pods: Ints = (np.repeat(first, hosts.of_domain) + places_in(hosts.of_domain)) // size
        return pods

    def leaves(self, hosts: Hosts, out: ScaleOutSpec) -> Ints:
        """Return the set of leaves of each host, that of its pod."""
        return self.pods(hosts, out)

    def downlinks(self, out: ScaleOutSpec, _gpus_per_node: int) -> int:
        """Return the downlinks of a full leaf: one GPU of each host."""
        return super().downlinks(out, 1)

    def read(self, asked: Asked) -> ScaleOutSpec:
        """Pods and spines as in the design of the first part."""
        design, row = asked.design, asked.row
        rails = replace(asked.blank, nodes_per_pod=row.count("nodes_per_pod", design.nodes_per_pod))
        if "spines" in row:
            return replace(rails, spines=row.count("spines"))
        # fewer uplinks than the design's spines: one to each of as many
        return replace(rails, spines=min(design.spines, self.uplinks(rails, 1, asked.where)))

    def keys(self, out: ScaleOutSpec) -> dict[str, object]:
        """Return how the switches are cabled."""
        return super().keys(out) | {"nodes_per_pod": out.nodes_per_pod, "spines": out.spines}

    def lay(self, hosts: Hosts, out: ScaleOutSpec) -> Laying:
        """Lay the leaves in the order of the GPUs on them, then the spines."""
        laying = Laying(len(hosts.host))
        width = hosts.largest
        key = self.pods(hosts, out)[hosts.host] * width + hosts.rail
        found, first, which = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        pods, rails = np.divmod(found[order], width)
        names = [f"f.p{pod}.l{rail}" for pod, rail in zip(pods.tolist(), rails.tolist(), strict=True)]
        leaves = laying.add("leaf", names, pod=pods, rail=rails)
        spines = self.add_planes(laying, out)
        laying.link([out.fabric], np.arange(laying.gpus), leaves[place[which]], out.nics_per_plane)
        cable(laying, out, leaves, spines, self.uplinks(out, 1), np.arange(len(leaves)))
        return laying
