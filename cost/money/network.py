"""Switches and optics between domains: their number, and published power."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from cost.catalog import catalog_figures
from topology.base.figures import Figure
from topology.cluster import Cluster
from topology.fabrics.fabric import PORTS
from topology.fabrics.planes import SpinePlanes
from topology.graph import SCALE_OUT_KINDS
from topology.physical import Physical, physical_of_whole
from topology.scale_out import leaf_uplinks

SWITCH, TRANSCEIVER = "switch", "transceiver"
NETWORK = (SWITCH, TRANSCEIVER)
"""What the network between domains is made of, as prices and powers name it."""
MAX_PORTS = 144
"""Ports of the largest switch that is sold for such networks (Quantum-X800)."""


@dataclass(frozen=True)
class NetworkPart:
    """Parts of one ``kind`` of :data:`NETWORK`; transceivers are of a ``fabric``, ``power_w`` is that of one."""

    kind: str
    fabric: str = ""
    power_w: Figure | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.kind} of {self.fabric}" if self.fabric else f"{self.kind} between domains"

    def count(self, cluster: Physical) -> int:
        """Return how many there are: switches of all tiers; two transceivers for each optical link.

        A spine plane counts as the spines and cores that it stands for; as one where the ports of a switch of its
        rate are not known.
        Switches inside a domain are not counted: they are in the power of its hosts or racks.
        """
        if self.kind == SWITCH:
            return sum(cluster.switches.get(kind, 0) for kind in SCALE_OUT_KINDS)
        rows = (row for row in cluster.cabling if not row.scale_up and row.fabric == self.fabric)
        return sum(row.transceivers for row in rows)


def network_parts(cluster: Cluster) -> list[NetworkPart]:
    """Return the parts of the network between the domains of ``cluster``; nothing without one."""
    spec = cluster.spec
    if spec.raw is not None:
        ends = {node.id for node in spec.raw.nodes if node.kind in SCALE_OUT_KINDS}
        fabrics = [link.fabric for link in spec.raw.links if not ends.isdisjoint(link.between)]
    else:
        fabrics = [] if spec.scale_out is None else [spec.scale_out.fabric]
    rates = {fabric.name: fabric.link_bytes_per_s.value for fabric in fabrics}
    optics = [NetworkPart(TRANSCEIVER, name, transceiver_power(rate)) for name, rate in rates.items()]
    return [NetworkPart(SWITCH), *optics] if optics else []


def count_parts(cluster: Cluster, parts: list[NetworkPart]) -> tuple[list[int], str]:
    """Return how many of each of ``parts`` there are, on the graph of ``cluster`` with what is broken.

    Beside them a sentence on switches that are not counted; empty where all are.
    """
    if not parts:
        return [], ""
    counted = physical_of_whole(cluster)
    links = _links_of_plane(cluster)
    uncounted = ""
    if links > MAX_PORTS and any(part.kind == SWITCH for part in parts):
        uncounted = (
            f"switches between domains: a spine plane of {links:,} links counts as one switch; those that it stands "
            "for are left out."
        )
    return [part.count(counted) for part in parts], uncounted


def _links_of_plane(cluster: Cluster) -> int:
    """Return the links that end at one spine plane, 0 where its switches are counted one by one."""
    out = cluster.spec.scale_out
    if not isinstance(out, SpinePlanes) or out.fabric.link_bytes_per_s.value in PORTS:
        return 0
    return leaf_uplinks(cluster) // (out.spines * out.planes)


def transceiver_power(link_bytes_per_s: float) -> Figure | None:
    """Return the power of one transceiver for this link rate, None if not published."""
    for row in _transceivers().values():
        if math.isclose(link_bytes_per_s, row["link_bytes_per_s"].value, rel_tol=1e-6):
            return row["power_w"]
    return None


@cache
def _transceivers() -> dict[str, dict[str, Figure]]:
    return catalog_figures("network", "transceivers", {"link_bytes_per_s": "byte/s", "power_w": "W"})
