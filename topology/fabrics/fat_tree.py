"""Hosts on leaves, leaves and spines in pods, pods joined by cores."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from topology.fabrics.asked import Asked
from topology.fabrics.fabric import Fabric, Hosts, cable, largest_host, whole_uplinks
from topology.spec import ClusterSpec, ScaleOutSpec
from topology.structures.structure import check_even
from topology.wiring import Laying


class FatTree(Fabric):
    """Three tiers (Al-Fares, Loukissas and Vahdat, SIGCOMM 2008).

    Every leaf of a pod is cabled evenly to every spine of its pod; spine i of every pod is cabled evenly to the
    cores of group i and to no others. Uplinks are those of a full pod.
    """

    kind = "fat-tree"
    cores = True

    def check_hosts(self, spec: ClusterSpec, out: ScaleOutSpec, where: str) -> None:
        """Refuse uplinks that do not spread evenly over spines or cores."""
        self.spine_uplinks(out, largest_host(spec), where)

    def spine_uplinks(self, out: ScaleOutSpec, gpus_per_node: int, where: str = "fabric") -> int:
        """Return the uplinks of one spine: its downlinks in a full pod over its oversubscription.

        Raises
        ------
        InputError
            If that is not a whole number of at least one.
        """
        uplinks = self.uplinks(out, gpus_per_node, where)
        check_even(uplinks, out.spines, "a leaf", "spines of a pod", where)
        down = out.leaves_per_pod * uplinks // out.spines
        up = whole_uplinks(down, out.core_oversubscription, "a spine", where)
        if out.cores:
            check_even(up, out.cores, "a spine", "cores above it", where)
        return up

    def read(self, asked: Asked) -> ScaleOutSpec:
        """Sizes not given are those of the largest tree of that radix."""
        row, per_leaf, gpus = asked.row, asked.nodes_per_leaf, asked.gpus_per_node
        uplinks = self.uplinks(replace(asked.blank, nodes_per_pod=per_leaf), gpus, asked.where)
        spines = row.count("spines", uplinks)
        if "leaves_per_pod" in row:
            leaves = row.count("leaves_per_pod")
        else:
            leaves = asked.most_down(asked.blank.core_oversubscription, max(1, uplinks // spines))
        tree = replace(asked.blank, nodes_per_pod=per_leaf * leaves, leaves_per_pod=leaves, spines=spines)
        pods = ceil(asked.hosts / tree.nodes_per_pod)
        if "cores" in row:
            cores = row.count("cores")
            if cores % spines:
                row.fail("cores", f"{cores} cores do not fill one group for each of {spines} spines.")
            return replace(tree, cores=cores // spines if pods > 1 else 0)
        if pods == 1:
            return tree
        links = self.spine_uplinks(tree, gpus, asked.where)
        remedy = "use larger pods (`leaves_per_pod`) or switches (`radix`)"
        return replace(tree, cores=asked.fewest(links, pods, "pods", "core", remedy))

    def keys(self, out: ScaleOutSpec) -> dict[str, object]:
        """Return how the switches are cabled."""
        row: dict[str, object] = {"oversubscription": [out.oversubscription, out.core_oversubscription]}
        row |= {"nodes_per_leaf": out.nodes_per_leaf, "leaves_per_pod": out.leaves_per_pod}
        return row | {"spines": out.spines} | ({"cores": out.cores * out.spines} if out.cores else {})

    def lay(self, hosts: Hosts, out: ScaleOutSpec) -> Laying:
        """Lay the cores, the spines, then the leaves."""
        laying = Laying(len(hosts.host))
        numbers = np.arange(-(-hosts.count // out.nodes_per_leaf))
        pod, place = np.divmod(numbers, out.leaves_per_pod)
        pods, planes, group = np.arange(pod[-1] + 1), np.arange(out.spines), np.arange(out.cores)
        names = [f"f.c{plane}.{core}" for plane in planes for core in group]
        cores = laying.add("core", names, plane=np.repeat(planes, len(group)))
        names = [f"f.p{number}.s{plane}" for number in pods for plane in planes]
        spines = laying.add(
            "spine", names, pod=np.repeat(pods, len(planes)), plane=np.tile(planes, len(pods))
        ).reshape(len(pods), len(planes))
        names = [f"f.p{number}.l{leaf}" for number, leaf in zip(pod.tolist(), place.tolist(), strict=True)]
        leaves = laying.add("leaf", names, pod=pod)
        on = leaves[hosts.host // out.nodes_per_leaf]
        laying.link([out.fabric], np.arange(laying.gpus), on, out.nics_per_plane)
        cable(laying, out, leaves, spines[pod], self.uplinks(out, hosts.largest), place)
        if out.cores:
            above = np.tile(cores.reshape(len(planes), len(group)), (len(pods), 1))
            links = self.spine_uplinks(out, hosts.largest)
            cable(laying, out, spines.reshape(-1), above, links, np.repeat(pods, len(planes)))
        return laying
