"""What a cluster file asks of a fabric; what it does not say follows a reference design or is asked for by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.spec import DomainSpec, ScaleOutSpec

PORTS = {50e9: 64, 100e9: 144}
"""Ports of the switch that a NIC of this rate is usually cabled to.

Quantum-2 (64 x 400 Gb/s) and Quantum-X800 (144 x 800 Gb/s), NVIDIA's product pages.
"""


class Asked:
    """Its row of the file, and the hosts that it joins.

    Attributes
    ----------
    blank:
        The fabric with its switches still to come.
    design:
        The rails that say what the row does not.
    radix_used:
        Whether a size followed from the ports of a switch.
    """

    def __init__(
        self, row: Fields, blank: ScaleOutSpec, domains: Sequence[DomainSpec], design: ScaleOutSpec
    ) -> None:
        self.row = row
        self.where = row.where
        self.blank = blank
        self.design = design
        self.gpus_per_node = max(domain.gpus_per_node for domain in domains)
        self.hosts = sum(domain.nodes for domain in domains)
        self._radix = row.count("radix", 0)
        self.radix_used = False

    @property
    def ports(self) -> int:
        """Ports of one switch: given, or usual for the rate of the NIC; asked for where it is needed and neither."""
        self.radix_used = True
        rate = self.blank.fabric.link_bytes_per_s.value
        if not self._radix and rate not in PORTS:
            raise InputError(
                f"{self.where}: needs the key `radix`, the ports of one switch at the rate of the NIC (64 for a "
                "switch of 64 x 400 Gb/s)."
            )
        return self._radix or PORTS[rate]

    @cached_property
    def nodes_per_leaf(self) -> int:
        """Hosts on one leaf: given, or the most that leave whole uplinks."""
        if "nodes_per_leaf" in self.row:
            return self.row.count("nodes_per_leaf")
        each = self.gpus_per_node * self.blank.nics_per_plane
        return self.most_down(self.blank.oversubscription, each)

    def most_down(self, oversubscription: float, step: int) -> int:
        """Return how many bundles of ``step`` downlinks a switch takes with whole uplinks above them."""
        for count in range(int(self.ports * oversubscription / (1 + oversubscription) + 1e-9) // step, 0, -1):
            uplinks = count * step / oversubscription
            if abs(uplinks - round(uplinks)) < 1e-6 * uplinks and round(uplinks) >= 1:
                return count
        raise InputError(
            f"fabric: a switch of {self.ports} ports has no room for {step} links down and whole links up at "
            f"oversubscription {oversubscription:g}; give a larger `radix`."
        )

    def fewest(self, links: int, below: int, what: str, above: str, remedy: str) -> int:
        """Return the fewest switches with ports for as many ``links`` from each of ``below``, spread evenly."""
        for count in range(1, links + 1):
            if links % count == 0 and below * (links // count) <= self.ports:
                return count
        raise InputError(
            f"{self.where}: {below} {what} need {below} ports of each {above}, and one has {self.ports}; {remedy}."
        )
