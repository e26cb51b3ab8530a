"""What each kind of fabric between domains says of itself: the protocol, and what several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from topology.base.errors import InputError
from topology.fabrics.asked import Asked
from topology.spec import ClusterSpec, ScaleOutSpec
from topology.structures.structure import spread
from topology.wiring import Ints, Laying


class Hosts:
    """The hosts of a cluster, over all domains.

    Attributes
    ----------
    of_domain:
        ``[domains]`` hosts in each.
    count, largest:
        Hosts in all, and the GPUs of the largest.
    host, rail:
        ``[gpus]`` which host a GPU is in, and its place there.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.of_domain: Ints = np.array([domain.nodes for domain in spec.domains], dtype=np.int64)
        self.largest = largest_host(spec)
        sizes = np.repeat([domain.gpus_per_node for domain in spec.domains], self.of_domain)
        self.count = len(sizes)
        self.host: Ints = np.repeat(np.arange(self.count), sizes)
        self.rail = places_in(sizes)


def places_in(sizes: Ints) -> Ints:
    """Number the members of each of some groups from 0, ``sizes`` how many each has."""
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.arange(len(first)) - first


class Above(NamedTuple):
    """Switches that stand for spine planes, by kind, beyond those of the graph, and the links among them."""

    more: Mapping[str, int] = MappingProxyType({})
    links: int = 0


class Fabric(ABC):
    """One kind of fabric: checked, laid and told in one place.

    A leaf has the uplinks that its full set of hosts needs, over the oversubscription, whether or not it is full.
    Hosts fill leaves, pods and groups in order.
    """

    kind: str
    rails = False
    """GPUs of one host are on as many leaves, so bytes can change rails inside a domain."""
    spines, cores = True, False
    """Which tiers there are above the leaves."""
    spine = "spine"
    """What one spine of the graph is called."""
    switch = "a leaf"
    """What messages call the switch that hosts are on."""

    def check(self, out: ScaleOutSpec, where: str) -> None:
        """Refuse what cannot be cabled, whatever the hosts."""
        if self.spines and out.spines < 1:
            raise InputError(f"{where}: a {self.kind} fabric needs at least one spine.")
        if not self.cores and (out.cores or out.core_oversubscription != 1):
            raise InputError(f"{where}: a {self.kind} fabric has no cores; only `fat-tree` has.")
        if out.leaves_per_pod < 1 or out.nodes_per_pod % out.leaves_per_pod:
            raise InputError(
                f"{where}: {out.nodes_per_pod} hosts of a pod do not fill {out.leaves_per_pod} leaves evenly."
            )

    @abstractmethod
    def check_hosts(self, spec: ClusterSpec, out: ScaleOutSpec, where: str) -> None:
        """Refuse what the hosts of a cluster do not fit."""

    @abstractmethod
    def read(self, asked: Asked) -> ScaleOutSpec:
        """Return the fabric that a cluster file asks for."""

    def keys(self, out: ScaleOutSpec) -> dict[str, object]:
        """Return how the switches are cabled, in the keys that :meth:`read` reads."""
        return {"oversubscription": out.oversubscription}

    @abstractmethod
    def lay(self, hosts: Hosts, out: ScaleOutSpec) -> Laying:
        """Lay the switches, the links of each GPU's NICs, and the links between switches."""

    def size(self, out: ScaleOutSpec, pods: int) -> int:
        """Return about how many switches or links between them there are: no fabric has more of anything else."""
        return out.spines * (out.cores + pods)

    def pods(self, hosts: Hosts, out: ScaleOutSpec) -> Ints:
        """Return the pod of each host."""
        return np.arange(hosts.count) // out.nodes_per_pod

    def leaves(self, hosts: Hosts, out: ScaleOutSpec) -> Ints:
        """Return the leaf of each host, or where it has several, their set."""
        return np.arange(hosts.count) // out.nodes_per_leaf

    def above(self, _out: ScaleOutSpec, _leaves: int, _uplinks: int) -> Above:
        """Return the switches and links above ``leaves`` with so many uplinks each that the graph does not have."""
        return Above()

    def downlinks(self, out: ScaleOutSpec, gpus_per_node: int) -> int:
        """Return the downlinks of a leaf with a full set of hosts, the largest of which has ``gpus_per_node``."""
        return out.nodes_per_leaf * gpus_per_node * out.nics_per_plane

    def uplinks(self, out: ScaleOutSpec, gpus_per_node: int, where: str = "fabric") -> int:
        """Return the uplinks of one leaf.

        Raises
        ------
        InputError
            If that is not a whole number of at least one.
        """
        return whole_uplinks(self.downlinks(out, gpus_per_node), out.oversubscription, self.switch, where)


def cable(laying: Laying, out: ScaleOutSpec, below: Ints, above: Ints, links: int, turns: Ints) -> None:
    """Spread ``links`` from each switch evenly over those above it, ``[below, above]`` or the same for all."""
    laying.link([out.fabric], below[:, None], above, spread(links, above.shape[-1], turns))


def largest_host(spec: ClusterSpec) -> int:
    """Return the GPUs of the largest host: what a leaf has ports for."""
    return max(domain.gpus_per_node for domain in spec.domains)


def whole_uplinks(down: int, oversubscription: float, what: str, where: str) -> int:
    """Return ``down`` over ``oversubscription`` if that is a whole number."""
    uplinks = down / oversubscription
    if uplinks < 1 - 1e-9 or abs(uplinks - round(uplinks)) > 1e-6 * uplinks:
        some = sorted({down, max(1, down // 2), max(1, down // 3), 1}, reverse=True)
        raise InputError(
            f"{where}: oversubscription {oversubscription:g} leaves {uplinks:g} uplinks for {down} downlinks of "
            f"{what}; it must be a whole number (for instance {', '.join(f'{down / n:g}' for n in some)} do)."
        )
    return round(uplinks)


def check_reach(out: ScaleOutSpec, uplinks: int, where: str) -> None:
    """Refuse leaves that cannot reach every spine: two of them might share none."""
    if uplinks < out.spines:
        raise InputError(
            f"{where}: a leaf has {uplinks} uplinks, too few for one to each of {out.spines} spines; use at "
            f"most `spines: {uplinks}`."
        )
