"""A fabric between domains: what all kinds have, and what each says of itself."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from topology.base.errors import InputError
from topology.base.schema import Count, Positive, Spec, keyword_spec, problem
from topology.spec import FabricSpec
from topology.structures.domain import DomainSpec, spread
from topology.wiring import Ints, Laying

PORTS = {50e9: 64, 100e9: 144}
"""Ports of the switch that a NIC of this rate is usually cabled to.

Quantum-2 (64 x 400 Gb/s) and Quantum-X800 (144 x 800 Gb/s), NVIDIA's product pages.
"""


class Hosts:
    """The hosts of some domains, one after the other.

    Attributes
    ----------
    of_domain:
        ``[domains]`` hosts in each.
    count, largest:
        Hosts in all, and the GPUs of the largest: what a leaf has ports for.
    host, rail:
        ``[gpus]`` which host a GPU is in, and its place there.
    """

    def __init__(self, domains: Sequence[DomainSpec]) -> None:
        self.of_domain: Ints = np.array([domain.nodes for domain in domains], dtype=np.int64)
        per_node = [domain.gpus_per_node for domain in domains]
        self.largest = max(per_node)
        sizes = np.repeat(per_node, self.of_domain)
        self.count = len(sizes)
        self.host: Ints = np.repeat(np.arange(self.count), sizes)
        self.rail = places_in(sizes)


def places_in(sizes: Ints) -> Ints:
    """Number the members of each of some groups from 0, ``sizes`` how many each has."""
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.arange(len(starts)) - starts


class Above(NamedTuple):
    """Switches that stand for spine planes, by kind, beyond those of the graph, and the links among them."""

    more: Mapping[str, int] = MappingProxyType({})
    links: int = 0


@keyword_spec
class ScaleOutSpec(Spec):
    """The network between domains; each kind is a class of its own, which ``kind`` names in files.

    Attributes
    ----------
    fabric:
        A link of it, at the rate of one NIC.
    nic_links_per_gpu:
        NIC links of one GPU.
    oversubscription:
        Downlink rate of a leaf over its uplink rate (dragonfly: of a router's GPUs over its global links).
    planes:
        Networks side by side, each with its own switches of these sizes; the NICs of a GPU are dealt to them evenly
        (Spectrum-X twin-plane: two of 400 Gb/s).
    """

    kind: str
    fabric: FabricSpec
    nic_links_per_gpu: Count = 1
    oversubscription: Positive = 1.0
    planes: Count = 1

    def check(self) -> None:
        """Reject NICs that do not go evenly to the planes."""
        if self.nic_links_per_gpu % self.planes:
            raise InputError(
                f"{self.nic_links_per_gpu} NIC links of a GPU do not divide evenly over {self.planes} planes; give "
                f"`nics_per_gpu` {self.planes} or a multiple of it."
            )

    @property
    def nics_per_plane(self) -> int:
        """NIC links of one GPU in each plane."""
        return self.nic_links_per_gpu // self.planes

    @property
    def oversubscription_above_pods(self) -> float:
        """Rate that leaves a pod over the rate at the narrowest tier above it; 1 where there is none."""
        return 1.0

    @property
    def total_oversubscription(self) -> float:
        """Rate of the NICs over the rate at the narrowest tier above them."""
        return self.oversubscription * self.oversubscription_above_pods

    @property
    def scale_out_bytes_per_s(self) -> float:
        """Scale-out bytes/s of one GPU, per direction."""
        return self.nic_links_per_gpu * self.fabric.link_bytes_per_s.value

    def slower_than(self, domain: DomainSpec) -> float | None:
        """Return scale-up over scale-out bytes/s of a GPU of ``domain``; None where a rate is not published."""
        ratio = domain.scale_up_bytes_per_s / self.scale_out_bytes_per_s
        return ratio if math.isfinite(ratio) else None


@keyword_spec
class RawFabric(ScaleOutSpec):
    """Whatever links a raw graph has between its domains."""

    kind: Literal["raw"] = "raw"

    @classmethod
    def completed(cls, _data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Reject plain data."""
        raise problem("kind: a raw fabric needs its graph under `raw`.")


@keyword_spec
class CabledFabric(ScaleOutSpec, ABC):
    """A fabric that is cabled by rule, over pods of ``nodes_per_pod`` hosts, which share a set of leaves.

    A leaf has the ports for the uplinks of its full set of hosts, over the oversubscription, and as many cables as
    the hosts that are there need (:func:`populated`); a router of a dragonfly has them all. Hosts fill leaves, pods
    and groups in order.
    """

    nodes_per_pod: Count

    rails: ClassVar[bool] = False
    """GPUs of one host are on as many leaves, so bytes can change rails inside a domain."""
    spine: ClassVar[str] = "spine"
    """What one spine of the graph is called."""
    switch: ClassVar[str] = "a leaf"
    """What messages call the switch that hosts are on."""

    @abstractmethod
    def check_hosts(self, domains: Sequence[DomainSpec], at: str) -> None:
        """Reject what the hosts of a cluster do not fit; ``at`` goes before the message."""

    def keys(self) -> dict[str, object]:
        """Return how the switches are cabled, in the keys of its row of a cluster file."""
        return {"oversubscription": self.oversubscription}

    @abstractmethod
    def lay(self, hosts: Hosts) -> Laying:
        """Lay the switches, the links of each GPU's NICs, and the links between switches."""

    @abstractmethod
    def size(self, pods: int) -> int:
        """Return about how many switches or links between them there are: no fabric has more of anything else."""

    @property
    def nodes_per_leaf(self) -> int:
        """Hosts on one leaf (dragonfly: on one router)."""
        return self.nodes_per_pod

    def pods(self, hosts: Hosts) -> Ints:
        """Return the pod of each host."""
        return np.arange(hosts.count) // self.nodes_per_pod

    def leaves(self, hosts: Hosts) -> Ints:
        """Return the leaf of each host, or where it has several, their set."""
        return np.arange(hosts.count) // self.nodes_per_leaf

    def above(self, _leaves: int, _links: int) -> Above:
        """Return what spines of so many leaves with so many uplinks together stand for beyond the graph."""
        return Above()

    def downlinks(self, gpus_per_node: int) -> int:
        """Return the downlinks of a leaf with a full set of hosts, the largest of which has ``gpus_per_node``."""
        return self.nodes_per_leaf * gpus_per_node * self.nics_per_plane

    def uplinks(self, gpus_per_node: int, at: str = "") -> int:
        """Return the uplinks of one leaf.

        Raises
        ------
        InputError
            If that is not a whole number of at least one; ``at`` goes before the message.
        """
        return whole_uplinks(self.downlinks(gpus_per_node), self.oversubscription, self.switch, at)

    def cable(self, laying: Laying, below: Ints, above: Ints, links: Ints, turns: Ints) -> None:
        """Spread ``links`` from each switch evenly over those above it, ``[below, above]`` or the same for all."""
        laying.link([self.fabric], below[:, None], above, spread(links, above.shape[-1], turns))


def populated(down: Ints, oversubscription: float, above: int, full: int) -> Ints:
    """Return the uplinks that switches are cabled with, for the links that each has from below.

    As many as those need, rounded up to the same number to each of ``above`` switches, at most ``full``.
    """
    per_switch = np.maximum(np.ceil(down / oversubscription / above - 1e-9), 1)
    uplinks: Ints = np.minimum(per_switch * above, full).astype(np.int64)
    return uplinks


def largest_host(domains: Sequence[DomainSpec]) -> int:
    """Return the GPUs of the largest host: what a leaf has ports for."""
    return max(domain.gpus_per_node for domain in domains)


def check_pods(nodes_per_pod: int, leaves_per_pod: int) -> None:
    """Reject hosts that do not fill the leaves of a pod.

    Raises
    ------
    InputError
        If they do not.
    """
    if nodes_per_pod % leaves_per_pod:
        raise InputError(f"{nodes_per_pod} hosts per pod do not divide evenly over {leaves_per_pod} leaves.")


def whole_uplinks(down: int, oversubscription: float, switch: str, at: str = "") -> int:
    """Return ``down`` over ``oversubscription`` if that is a whole number.

    Raises
    ------
    InputError
        If it is not; ``at`` goes before the message.
    """
    uplinks = down / oversubscription
    if uplinks < 1 - 1e-9 or abs(uplinks - round(uplinks)) > 1e-6 * uplinks:
        counts = sorted({down, max(1, down // 2), max(1, down // 3), 1}, reverse=True)
        ratios = ", ".join(f"{down / count:g}" for count in counts)
        raise InputError(
            f"{at}oversubscription {oversubscription:g} leaves {uplinks:g} uplinks for {down} downlinks of "
            f"{switch}; this must be a whole number (for instance with {ratios} do)."
        )
    return round(uplinks)
