"""What a cluster file asks of a fabric; what it does not say follows a reference design or is asked for by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.base.schema import validated
from topology.structures.domain import DomainSpec

_Kind = TypeVar("_Kind")

PORTS = {50e9: 64, 100e9: 144}
"""Ports of the switch that a NIC of this rate is usually cabled to.

Quantum-2 (64 x 400 Gb/s) and Quantum-X800 (144 x 800 Gb/s), NVIDIA's product pages.
"""


@dataclass
class Asked:
    """Its row of the file, and the hosts that it joins.

    Attributes
    ----------
    row:
        What the file says.
    known:
        Fields that any fabric has: its NICs, planes and oversubscription.
    nics_per_plane, link_bytes_per_s:
        NIC links of one GPU in each plane, and the rate of one.
    ratios:
        Oversubscription at the leaves, and above.
    domains:
        The domains that it joins.
    usual_pod, usual_spines:
        Sizes of rails that the row does not say.
    radix_used:
        Whether a size followed from the ports of a switch.
    """

    row: Fields
    known: Mapping[str, Any]
    nics_per_plane: int
    link_bytes_per_s: float
    ratios: tuple[float, ...]
    domains: Sequence[DomainSpec]
    usual_pod: int
    usual_spines: int
    radix_used: bool = field(default=False, init=False)

    @property
    def at(self) -> str:
        """Its place, before a message."""
        return f"{self.row.where}: "

    def made(self, kind: type[_Kind], **sizes: object) -> _Kind:
        """Return the fabric that was asked for, with its sizes.

        Raises
        ------
        InputError
            If it cannot be cabled.
        """
        return validated(kind, {**self.known, **sizes}, self.row.where)

    @property
    def hosts(self) -> int:
        """Hosts of all domains."""
        return sum(domain.nodes for domain in self.domains)

    @cached_property
    def width(self) -> int:
        """NIC links in each plane of the largest host."""
        return max(domain.gpus_per_node for domain in self.domains) * self.nics_per_plane

    @property
    def ports(self) -> int:
        """Ports of one switch: given, or usual for the rate of the NIC; asked for where it is needed and neither."""
        self.radix_used = True
        radix = self.row.count("radix", 0)
        if not radix and self.link_bytes_per_s not in PORTS:
            raise InputError(
                f"{self.at}needs the key `radix`, the ports of one switch at the rate of the NIC (64 for a "
                "switch of 64 x 400 Gb/s)."
            )
        return radix or PORTS[self.link_bytes_per_s]

    @cached_property
    def nodes_per_leaf(self) -> int:
        """Hosts on one leaf: given, or the most that leave whole uplinks."""
        if "nodes_per_leaf" in self.row:
            return self.row.count("nodes_per_leaf")
        return self.most_down(self.ratios[0], self.width)

    def most_down(self, oversubscription: float, step: int) -> int:
        """Return how many bundles of ``step`` downlinks a switch takes with whole uplinks above them."""
        for count in range(int(self.ports * oversubscription / (1 + oversubscription) + 1e-9) // step, 0, -1):
            uplinks = count * step / oversubscription
            if abs(uplinks - round(uplinks)) < 1e-6 * uplinks and round(uplinks) >= 1:
                return count
        raise InputError(
            f"{self.at}a switch of {self.ports} ports has no room for {step} links down and whole links up at "
            f"oversubscription {oversubscription:g}; give a larger `radix`."
        )

    def fewest(self, links: int, below: int, what: str, above: str, remedy: str) -> int:
        """Return the fewest switches with ports for as many ``links`` from each of ``below``, spread evenly."""
        for count in range(1, links + 1):
            if links % count == 0 and below * (links // count) <= self.ports:
                return count
        raise InputError(
            f"{self.at}{below} {what} need {below} ports of each {above}, and one has {self.ports}; {remedy}."
        )
