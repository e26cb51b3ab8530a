"""The parts of a graph seen from afar: hosts, switches, pods, groups of pods.

Each has a ``shape``, the same for those that are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from topology.draw.links import Links

Shape = tuple[object, ...]


@dataclass
class Host:
    """One host: ``gpus`` are numbers in the cluster, ``broken`` the ids of GPUs that are out of service."""

    id: str
    domain: int
    rack: str
    gpus: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    up: dict[str, Links] = field(default_factory=dict)
    shape: Shape = ()

    @property
    def places(self) -> int:
        """GPUs as built, broken ones too."""
        return len(self.gpus) + len(self.broken)


@dataclass
class Switch:
    """A switch of a scale-up domain (``tier`` is ``chip``, or ``upper`` above those) or of a tier of the fabric.

    ``up``, ``down``: links to the tiers above and below; ``side``, ``far``: to its own tier, in its group and beyond.
    """

    id: str
    tier: str
    domain: int | None
    rail: int | None
    group: str
    up: Links = field(default_factory=Links)
    down: Links = field(default_factory=Links)
    side: Links = field(default_factory=Links)
    far: Links = field(default_factory=Links)
    above: set[str] = field(default_factory=set)

    @property
    def shape(self) -> Shape:
        """The same for switches with the same links."""
        return (self.tier, self.up.shape, self.down.shape, self.side.shape, self.far.shape)


@dataclass
class Pod:
    """Hosts that share leaves (or the routers of one group), and those leaves."""

    number: int
    hosts: list[Host]
    leaves: list[Switch]
    shape: Shape = ()

    @property
    def domains(self) -> list[int]:
        """Domains with hosts in the pod, in order."""
        return list(dict.fromkeys(host.domain for host in self.hosts))


@dataclass
class Group:
    """Pods under the same spines."""

    pods: list[Pod]
    spines: list[Switch]
    shape: Shape = ()


@dataclass
class Fold:
    """What :func:`fold` found."""

    hosts: list[Host]
    switches: dict[str, Switch]
    groups: list[Group]
    cores: list[Switch]
    domain_shapes: list[Shape]
    gpu_links: list[Links]
    degraded: list[tuple[str, str, float]]
    owner: dict[str, Host]
    number: dict[str, int]

    @property
    def pods(self) -> list[Pod]:
        """All pods, in order."""
        return [pod for group in self.groups for pod in group.pods]

    def chips(self, domain: int, tier: str = "chip") -> list[Switch]:
        """Scale-up switch chips of a domain, in order; ``tier`` is ``chip`` or ``upper``."""
        return [s for s in self.switches.values() if s.tier == tier and s.domain == domain]

    @cached_property
    def hosts_by_domain(self) -> list[list[Host]]:
        """Hosts of each domain, in order."""
        found: list[list[Host]] = [[] for _ in self.domain_shapes]
        for host in self.hosts:
            found[host.domain].append(host)
        return found

    def tier(self, name: str) -> list[Switch]:
        """Switches of a tier, in order."""
        return [s for s in self.switches.values() if s.tier == name]
