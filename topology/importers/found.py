"""What files hold before rates and parts are known: a host inside, a fabric with its hosts, or a whole graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import networkx as nx
from networkx.utils import UnionFind

from topology.base.figures import Figure
from topology.base.units import plural
from topology.importers.gpu_names import GpuName
from topology.importers.source import Source

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class NicFound:
    """A NIC port of a host.

    ``near`` are the GPUs (by position) that are nearest to it (:func:`topology.importers.pcie.nearest`), none where
    other NICs are nearer to all of them. ``switches`` and ``socket`` say where it is, as those of a GPU.
    """

    name: str
    near: tuple[int, ...] = ()
    rate: Figure | None = None
    switches: tuple[str, ...] = ()
    socket: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What every file has.

    ``place`` and ``kind`` are the file's name and format, ``gpu_names`` what it calls its GPUs; ``anomalies`` say
    what differs from its siblings, ``readings`` how a figure was read that can be read in two ways.
    """

    place: str = ""
    kind: str = ""
    gpu_names: tuple[GpuName, ...] = ()
    anomalies: tuple[str, ...] = ()
    readings: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """How much of what the file has, in words."""
        return ", ".join(plural(count, noun) for noun, count in self.counts().items() if count)

    def counts(self) -> dict[str, int]:
        """Return how many there are of each kind of part."""
        return {}


@dataclass(frozen=True)
class NodeFound(Found):
    """The inside of one host.

    ``links`` join GPUs (``gpus``) and switch chips (``chips``) by name, with a count. With ``hidden`` the one
    chip represents switches that the file does not tell apart; with ``beyond`` those switches are outside the
    host, so its domain may hold other hosts. ``link_rate`` is the rate of one link where the file has it.
    ``sockets`` gives the socket of each GPU, ``pcie`` the rate of its PCIe link where the file has it, ``switches``
    the PCIe switches above it from the root down, and ``uplinks`` the rate of a switch's link to what is above it.
    ``devices`` counts GPUs that the file only shows as PCI devices, and ``down`` are links that carry nothing.
    """

    gpus: tuple[str, ...]
    chips: tuple[str, ...]
    links: tuple[tuple[str, str, int], ...]
    hidden: bool = False
    beyond: bool = False
    link_kind: str = ""
    nics: tuple[NicFound, ...] = ()
    link_rate: Figure | None = None
    sockets: tuple[str, ...] = ()
    pcie: tuple[Figure | None, ...] = ()
    switches: tuple[tuple[str, ...], ...] = ()
    uplinks: Mapping[str, Figure] = field(default_factory=dict)
    devices: int = 0
    down: tuple[tuple[str, str, int], ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def gpu_count(self) -> int:
        """GPUs of the host."""
        return len(self.gpus) or self.devices

    def counts(self) -> dict[str, int]:
        """Return how many there are of each kind of part."""
        links, chips = sum(count for _, _, count in self.links), 0 if self.hidden else len(self.chips)
        return {
            "GPU": self.gpu_count,
            "scale-up link": links,
            "switch chip": chips,
            "NIC port": len(self.nics),
        }

    @cached_property
    def links_of_gpus(self) -> dict[str, int]:
        """The scale-up links of each GPU."""
        return links_of(self.gpus, self.links)

    @cached_property
    def groups(self) -> list[list[str]]:
        """The GPUs by the groups that scale-up links join, in order."""
        return groups_of(self.gpus, ((a, b) for a, b, _ in self.links))

    @property
    def over_pcie(self) -> bool:
        """Whether some GPUs reach the others over PCIe alone."""
        return 0 in self.links_of_gpus.values() if self.hidden else len(self.gpus) > 1 < len(self.groups)

    @property
    def between_sockets(self) -> bool:
        """Whether the link between sockets is on their way: some socket is cut off without it.

        A GPU without scale-up links reaches the others through those of its own socket.
        """
        links = self.links_of_gpus
        linked = [socket for gpu, socket in zip(self.gpus, self.sockets, strict=True) if links[gpu]]
        one_fabric = bool(linked) and len(self.groups) == 1 + len(self.gpus) - len(linked)
        sockets = set(self.sockets)
        return len(sockets) > 1 and (set(linked) != sockets or not one_fabric)


@dataclass
class PortFound:
    """A host's NIC port and the switch it is cabled to, by its port; no ``nic``: all the NICs of the host."""

    host: str
    switch: str
    place: str
    nic: str = ""
    rate: Figure | None = None
    switch_port: int = 0
    rail: int | None = None


@dataclass(frozen=True)
class TrunkFound:
    """Links between two switches; no ``count``: the file says only that they are joined."""

    ends: tuple[str, str]
    count: int | None = None
    rate: Figure | None = None


@dataclass(frozen=True)
class FabricFound(Found):
    """Hosts, the switches they hang on, and the scale-up domains they are in.

    ``hosts`` gives the place of each host in the file, ``switches`` the level of each switch (1: leaf), ``domains``
    the scale-up domain of a host as ``domains_place`` says, ``subdomains`` the part of it where it is nested,
    ``blocks`` whether those are scheduler blocks, ``pods`` the set of leaves a host is on. ``rails`` is how many
    rails NICs are numbered over, where names tell; ``infiniband`` whether rates are InfiniBand's.
    """

    hosts: Mapping[str, str]
    switches: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[PortFound, ...] = ()
    trunks: tuple[TrunkFound, ...] = ()
    domains: Mapping[str, str] = field(default_factory=dict)
    subdomains: Mapping[str, str] = field(default_factory=dict)
    domains_place: str = ""
    blocks: bool = False
    pods: Mapping[str, str] = field(default_factory=dict)
    switch_rails: Mapping[str, int] = field(default_factory=dict)
    rails: int = 0
    infiniband: bool = False

    def counts(self) -> dict[str, int]:
        """Return how many there are of each kind of part."""
        domains = {"block" if self.blocks else "accelerator domain": len(set(self.domains.values()))}
        return {"host": len(self.hosts), "switch": len(self.switches)} | domains

    def parts(self) -> list[list[str]]:
        """Return the switches by the parts of it that links between switches join."""
        return groups_of(self.switches, (trunk.ends for trunk in self.trunks))

    @cached_property
    def usual_ports(self) -> int:
        """The number of ports of most hosts."""
        return commonest(map(len, self.ports_by_host.values())) or 0

    @cached_property
    def ports_by_host(self) -> dict[str, list[PortFound]]:
        """The ports of each host that has any, in order."""
        by_host: dict[str, list[PortFound]] = {}
        for port in self.ports:
            by_host.setdefault(port.host, []).append(port)
        return by_host


@dataclass(frozen=True)
class GraphFound(Found):
    """Every node and link but what the GPUs are.

    ``nodes`` are (id, kind, domain, host); ``links`` (a, b, count, rate) by id.
    """

    nodes: tuple[tuple[str, str, str | None, str | None], ...]
    links: tuple[tuple[str, str, int, Figure], ...]

    def counts(self) -> dict[str, int]:
        """Return how many there are of each kind of part."""
        gpus = sum(kind == "gpu" for _, kind, _, _ in self.nodes)
        return {"GPU": gpus, "other node": len(self.nodes) - gpus, "link row": len(self.links)}


@dataclass(frozen=True)
class Format:
    """A kind of file: its name, its parser, and how its content shows it.

    ``parse`` raises an ``InputError``, with the place, of a file that is not of this kind, is cut, or contradicts
    itself. ``in_text`` tells by the text, ``in_data`` by the document where it is YAML or JSON; never by its name.
    """

    kind: str
    parse: Callable[[Source], Found]
    in_text: Callable[[str], bool] = lambda _: False
    in_data: Callable[[object], bool] = lambda _: False


def switch_kind(level: int) -> str:
    """Return the kind of a switch ``level`` levels above the hosts (1: a leaf)."""
    return ("leaf", "spine", "core")[min(level, 3) - 1]


def levels_above(leaves: Iterable[str], joined: nx.Graph[str]) -> dict[str, int]:
    """Return the level of every switch: 1 of leaves, then one more with each hop; none of what is not reached."""
    levels = dict.fromkeys(leaves, 1)
    reached = list(levels)
    for name in reached:
        new = [neighbour for neighbour in sorted(joined[name]) if neighbour not in levels]
        levels |= dict.fromkeys(new, levels[name] + 1)
        reached += new
    return levels


def links_of(gpus: Iterable[str], links: Iterable[tuple[str, str, int]]) -> dict[str, int]:
    """Return how many of ``links`` each GPU has."""
    per = Counter[str]()
    for a, b, count in links:
        per.update({a: count, b: count})
    return {gpu: per[gpu] for gpu in gpus}


def groups_of(names: Iterable[K], joins: Iterable[Iterable[K]]) -> list[list[K]]:
    """Return ``names`` by the groups that ``joins`` make of them, also over others that only those name, in order."""
    joined: UnionFind[K] = UnionFind()
    for members in joins:
        joined.union(*members)
    groups: dict[K, list[K]] = {}
    for name in names:
        groups.setdefault(joined[name], []).append(name)
    return list(groups.values())


def commonest(values: Iterable[T]) -> T | None:
    """Return the commonest value, the first of equally common ones; None of no values."""
    counts = Counter(values).most_common(1)
    return counts[0][0] if counts else None


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Return names with commas, the number of the rest at the end."""
    texts = list(names)
    suffix = f" and {len(texts) - limit} more" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + suffix
