"""What an importer is, and what it finds before rates and parts are known: one host, a fabric, or a whole graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from topology.figures import Figure
from topology.importers.source import Source
from topology.spec import RawNode

T = TypeVar("T")


@dataclass(frozen=True)
class NicFound:
    """A NIC port of a host. ``near`` are the GPUs (by position) that share its PCIe switch."""

    name: str
    near: tuple[int, ...] = ()
    rate: Figure | None = None


@dataclass(frozen=True)
class NodeFound:
    """The inside of one host.

    ``links`` join GPUs (``gpus``) and switch chips (``chips``) by name, with a count. With ``hidden`` the one
    chip represents switches that the file does not tell apart; with ``beyond`` those switches are outside the
    host, so its domain may hold other hosts. ``sockets`` gives the socket of each GPU, ``pcie`` the rate of
    its PCIe link where the file has it. ``devices`` counts GPUs that the file only shows as PCI devices.
    """

    place: str
    kind: str
    gpus: tuple[str, ...]
    chips: tuple[str, ...]
    links: tuple[tuple[str, str, int], ...]
    hidden: bool
    beyond: bool
    link_kind: str
    nics: tuple[NicFound, ...]
    sockets: tuple[str, ...] = ()
    pcie: tuple[Figure | None, ...] = ()
    devices: int = 0
    sm: str = ""
    hosts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()


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
class FabricFound:
    """Hosts, the switches they hang on, and the scale-up domains they are in.

    ``hosts`` gives the place of each host in the file, ``switches`` the level of each switch (1: leaf), ``domains``
    the scale-up domain of a host as ``domains_place`` says, ``blocks`` whether those are scheduler blocks, ``pods``
    the set of leaves a host is on. ``rails`` is how many rails NICs are numbered over, where names tell;
    ``infiniband`` whether rates are InfiniBand's.
    """

    place: str
    kind: str
    hosts: Mapping[str, str]
    switches: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[PortFound, ...] = ()
    trunks: tuple[TrunkFound, ...] = ()
    domains: Mapping[str, str] = field(default_factory=dict)
    domains_place: str = ""
    blocks: bool = False
    pods: Mapping[str, str] = field(default_factory=dict)
    switch_rails: Mapping[str, int] = field(default_factory=dict)
    rails: int = 0
    infiniband: bool = False
    notes: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()


@dataclass(frozen=True)
class WholeLink:
    """A link of a whole graph, with its rate and, where the file has it, latency in seconds."""

    between: tuple[str, str]
    count: int
    rate: Figure | None
    scale_up: bool
    name: str
    latency: Figure | None = None


@dataclass(frozen=True)
class WholeFound:
    """A file that describes everything but what the GPUs are."""

    place: str
    kind: str
    nodes: tuple[RawNode, ...]
    links: tuple[WholeLink, ...]
    notes: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()


Found = NodeFound | FabricFound | WholeFound
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


def commonest(values: Iterable[T]) -> T | None:
    """Return the commonest value, the first of equally common ones; None of no values."""
    counts = Counter(values).most_common(1)
    return counts[0][0] if counts else None
