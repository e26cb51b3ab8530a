"""What an importer is, and what it finds before rates and parts are known: one host, a fabric, or a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from topology.base.figures import Figure
from topology.importers.source import Source
from topology.spec import RawNode

T = TypeVar("T")
Name = TypeVar("Name", str, int)


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
    """What is told of every file; :func:`topology.importers.registry.read_found` fills it in.

    ``place`` is the file's name; ``anomalies`` say what is unlike its siblings.
    """

    place: str = ""
    kind: str = ""
    anomalies: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeFound(Found):
    """The inside of one host.

    ``links`` join GPUs (``gpus``) and switch chips (``chips``) by name, with a count. With ``hidden`` the one
    chip represents switches that the file does not tell apart; with ``beyond`` those switches are outside the
    host, so its domain may hold other hosts. ``sockets`` gives the socket of each GPU, ``pcie`` the rate of
    its PCIe link where the file has it, ``switches`` the PCIe switches above it from the root down, and ``uplinks``
    the rate of a switch's link to what is above it. ``devices`` counts GPUs that the file only shows as PCI devices.
    """

    gpus: tuple[str, ...]
    chips: tuple[str, ...]
    links: tuple[tuple[str, str, int], ...]
    hidden: bool
    beyond: bool
    link_kind: str
    nics: tuple[NicFound, ...]
    sockets: tuple[str, ...] = ()
    pcie: tuple[Figure | None, ...] = ()
    switches: tuple[tuple[str, ...], ...] = ()
    uplinks: Mapping[str, Figure] = field(default_factory=dict)
    devices: int = 0
    sm: str = ""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class PortFound:
    """A host's NIC port and the switch it is cabled to; no ``nic``: all the NICs of the host."""

    host: str
    switch: str
    place: str
    nic: str = ""
    rate: Figure | None = None
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

    @cached_property
    def ports_by_host(self) -> dict[str, list[PortFound]]:
        """The ports of each host that has any, in order."""
        by_host: dict[str, list[PortFound]] = {}
        for port in self.ports:
            by_host.setdefault(port.host, []).append(port)
        return by_host


@dataclass(frozen=True)
class GraphFound(Found):
    """Every node and link but what the GPUs are: nodes, and (a, b, count, rate) of links by id."""

    nodes: tuple[RawNode, ...]
    links: tuple[tuple[str, str, int, Figure], ...]


Nodes = Mapping[str, NodeFound | None]
"""The dump of each host; None where there is none and the system of the catalog is taken."""


@dataclass(frozen=True)
class Format:
    """A kind of file that is read: its name, its reader, and how its content shows it.

    ``in_text`` tells by the text, ``in_data`` by the document where it is YAML or JSON; never by the file's name.
    """

    kind: str
    read: Callable[[Source], Found]
    in_text: Callable[[str], bool] | None = None
    in_data: Callable[[object], bool] | None = None


def unlike(counts: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Return the names whose count is not the commonest one, each with its count and the commonest."""
    usual = commonest(counts.values()) or 0
    return [(name, count, usual) for name, count in counts.items() if count != usual]


def switch_kind(level: int) -> str:
    """Return the kind of a switch ``level`` levels above the hosts (1: a leaf)."""
    return ("leaf", "spine", "core")[min(level, 3) - 1]


def levels_above(leaves: Iterable[Name], joined: Mapping[Name, Iterable[Name]]) -> dict[Name, int]:
    """Return the level of every switch: 1 of leaves, then one more with each hop; none of what is not reached."""
    levels = dict.fromkeys(leaves, 1)
    edge = list(levels)
    while edge:
        edge = [
            other
            for name in edge
            for other in sorted(joined.get(name, ()))
            if other not in levels and not levels.update({other: levels[name] + 1})
        ]
    return levels


def commonest(values: Iterable[T]) -> T | None:
    """Return the commonest value, the first of equally common ones; None of no values."""
    counts = Counter(values).most_common(1)
    return counts[0][0] if counts else None
