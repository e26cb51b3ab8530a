"""A fabric as a cluster file writes it; sizes left out follow from a reference design or the ports of a switch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, TypeVar

from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.schema import (
    Count,
    Flag,
    MaybeCount,
    Positive,
    Spec,
    checked,
    keyword_spec,
    quantity,
    validated,
)
from topology.fabrics.fabric import PORTS, CabledFabric, whole_uplinks
from topology.structures.domain import DomainSpec

_Fabric = TypeVar("_Fabric", bound=CabledFabric)


def _listed(value: object, _where: str) -> object:
    return value if isinstance(value, list | tuple) else [value]


@keyword_spec
class FabricRow(Spec, ABC):
    """The keys that all fabrics have; each kind adds its own.

    Attributes
    ----------
    nic:
        Rate of one NIC link.
    nics_per_gpu:
        NIC links of a GPU; None: one for each plane.
    oversubscription:
        That of the leaves, of a fat tree then perhaps that of the spines.
    radix:
        Ports of a switch; None: usual for the rate of the NIC.
    rate_checked:
        Its rates are meant, however odd.
    """

    kind: str
    nic: Annotated[Figure, quantity("byte/s")]
    nics_per_gpu: MaybeCount = None
    planes: Count = 1
    oversubscription: Annotated[tuple[Positive, ...], checked(_listed)] = (1.0,)
    latency: Annotated[Figure | None, quantity("s")] = None
    radix: MaybeCount = None
    rate_checked: Flag = False

    tiers: ClassVar[int] = 1
    """At how many tiers it can be oversubscribed."""

    def check(self) -> None:
        """Reject more oversubscribed tiers than it has."""
        if not 1 <= (entries := len(self.oversubscription)) <= self.tiers:
            raise InputError(
                f"oversubscription: {list(self.oversubscription)} has {entries} entries; {self.kind} can be "
                f"oversubscribed at {self.tiers} tier{'s' * (self.tiers > 1)} (fat-tree: leaves, then spines)."
            )

    @property
    def nics(self) -> int:
        """NIC links of one GPU."""
        return self.planes if self.nics_per_gpu is None else self.nics_per_gpu

    @abstractmethod
    def sized(self, sizing: Sizing) -> CabledFabric:
        """Return the fabric, with the sizes that it leaves out."""


@dataclass
class Sizing:
    """Finds the sizes that a row leaves out, for the hosts that it joins.

    Attributes
    ----------
    row, where:
        What the file says, and its place.
    known:
        Fields that any fabric has: its NICs, planes and oversubscription.
    domains:
        The domains that it joins.
    usual_pod, usual_spines:
        Sizes of rails that the row leaves out.
    radix_used:
        Whether a size followed from the ports of a switch.
    """

    row: FabricRow
    where: str
    known: Mapping[str, Any]
    domains: Sequence[DomainSpec]
    usual_pod: int
    usual_spines: int
    radix_used: bool = field(default=False, init=False)

    @property
    def at(self) -> str:
        """Its place, before a message."""
        return f"{self.where}: "

    def made(self, kind: type[_Fabric], **sizes: object) -> _Fabric:
        """Return the fabric with its sizes.

        Raises
        ------
        InputError
            If it cannot be cabled.
        """
        return validated(kind, {**self.known, **sizes}, self.where)

    @property
    def nics_per_plane(self) -> int:
        """NIC links of one GPU in each plane."""
        return self.row.nics // self.row.planes

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
        """Ports of one switch: given, or usual for the rate of the NIC; required where it is needed and neither."""
        self.radix_used = True
        ports = self.row.radix or PORTS.get(self.row.nic.value)
        if ports is None:
            raise InputError(
                f"{self.at}needs the key `radix`, the ports of one switch at the rate of the NIC (64 for a "
                "switch of 64 x 400 Gb/s)."
            )
        return ports

    def uplinks(self, downlinks: int) -> int:
        """Return the uplinks of a leaf."""
        return whole_uplinks(downlinks, self.row.oversubscription[0], "a leaf", self.at)

    def most_hosts(self) -> int:
        """Return the most hosts on one leaf that leave whole uplinks."""
        return self.most_down(self.row.oversubscription[0], self.width)

    def most_down(self, oversubscription: float, step: int) -> int:
        """Return how many bundles of ``step`` downlinks a switch takes with whole uplinks above them."""
        for count in range(int(self.ports * oversubscription / (1 + oversubscription) + 1e-9) // step, 0, -1):
            uplinks = count * step / oversubscription
            if abs(uplinks - round(uplinks)) < 1e-6 * uplinks and round(uplinks) >= 1:
                return count
        raise InputError(
            f"{self.at}a switch of {self.ports} ports cannot combine {step} links down with a whole number "
            f"of links up at oversubscription {oversubscription:g}; give a larger `radix`."
        )

    def fewest(self, links: int, below: int, noun: str, above: str, remedy: str) -> int:
        """Return the fewest switches with ports for as many ``links`` from each of ``below``, spread evenly."""
        for count in range(1, links + 1):
            if links % count == 0 and below * (links // count) <= self.ports:
                return count
        raise InputError(
            f"{self.at}{below} {noun} need {below} ports of each {above}, and one has {self.ports}; {remedy}."
        )
