"""Fabrics whose leaves are cabled evenly to spine planes, and the switches that a plane stands for."""

from __future__ import annotations

from math import ceil
from typing import ClassVar

import numpy as np

from topology.base.errors import InputError
from topology.base.schema import Count, keyword_spec
from topology.fabrics.fabric import PORTS, Above, CabledFabric, populated
from topology.wiring import Ints, Laying


@keyword_spec
class SpinePlanes(CabledFabric):
    """A spine of the graph is a *plane*: one switch where that has the ports, else several, taken as non-blocking.

    So rates are right at any size, and the extra hop of a core tier is not counted in latencies. Switches and cables
    of a plane are counted: NVIDIA's reference designs have two tiers as long as each spine has a port for each
    leaf, and from there on three, without oversubscription above the leaves (DGX SuperPOD of H100: 16 spines over 4
    scalable units, 512 spines and 256 cores over 64). What three cannot reach has a second tier of cores.
    """

    spines: Count

    spine: ClassVar[str] = "spine plane"

    def size(self, pods: int) -> int:
        """Return the spines, times pods."""
        return self.spines * pods

    def check_reach(self, gpus_per_node: int, at: str = "") -> None:
        """Reject leaves that cannot reach every spine: two of them might share none.

        Raises
        ------
        InputError
            If a leaf has fewer uplinks; ``at`` goes before the message.
        """
        uplinks = self.uplinks(gpus_per_node, at)
        if uplinks < self.spines:
            raise InputError(
                f"{at}a leaf has {uplinks} uplinks, too few for one to each of {self.spines} spines; use at "
                f"most `spines: {uplinks}`."
            )

    def add_planes(self, laying: Laying) -> Ints:
        """Add one spine for each plane."""
        planes = np.arange(self.spines)
        return laying.add("spine", [f"f.s{plane}" for plane in planes], plane=planes)

    def cable_planes(self, laying: Laying, leaves: Ints, spines: Ints, on: Ints, full: int) -> None:
        """Lay the links of each GPU to the leaf it is ``on``, and from ``leaves`` to spines, at most ``full``."""
        laying.link([self.fabric], np.arange(laying.gpus), on, self.nics_per_plane)
        down = np.bincount(on - leaves[0], minlength=len(leaves)) * self.nics_per_plane
        links = populated(down, self.oversubscription, self.spines, full)
        self.cable(laying, leaves, spines, links, np.arange(len(leaves)))

    def above(self, leaves: int, links: int) -> Above:
        """Return the switches that planes stand for; as in the graph where the ports of a switch are not known."""
        ports = PORTS.get(self.fabric.link_bytes_per_s.value)
        if ports is None or links <= ports * self.spines:
            return Above()
        # a tier of cores multiplies the leaves in reach by half the ports; only the top one has no uplinks
        reach, cores = ports, 0
        while reach < leaves:
            reach, cores = reach * ports // 2, cores + 1
        top, lower = ceil(links / ports), ceil(2 * links / ports)
        if not cores:
            return Above({"spine": top - self.spines})
        return Above({"spine": lower - self.spines, "core": lower * (cores - 1) + top}, links * cores)
