"""A cluster as built: a typed table of GPUs, and its links. :mod:`topology.build` makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from topology.base.shown import Shown
from topology.spec import ClusterSpec, DomainSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.wiring import Wiring


@dataclass(frozen=True)
class Gpu:
    """One GPU of a cluster; ids are ``d0.n3.g1`` (GPU), ``d0.n3`` (node), ``d0.r0`` (rack of a domain).

    In a raw graph the ids are those of its file.
    """

    id: str
    domain: int
    node: str
    rack: str
    rail: int


@dataclass(frozen=True, repr=False)
class Cluster(Shown):
    """A cluster with true links.

    ``gpus`` are those that work, ordered by domain, then node, then position in the node; an index into it names
    a GPU everywhere in the code. ``wiring`` comes from ``lay`` on first use, and ``graph`` from it: costs that need
    only rates never pay for them.
    """

    spec: ClusterSpec
    gpus: tuple[Gpu, ...]
    lay: Callable[[], Wiring] = field(compare=False, repr=False)

    def brief(self) -> str:
        """Return its name, GPUs and domains."""
        domains = len(self.spec.domains)
        return f"{self.name}: {len(self.gpus):,} GPUs in {domains:,} domain{'s' * (domains != 1)}"

    @property
    def name(self) -> str:
        """The name it was asked for by (``gb200-nvl72@288``)."""
        return self.spec.name

    @cached_property
    def domain_kind(self) -> tuple[int, ...]:
        """``[domains]`` the number of each domain's kind: equal specifications have the same, from 0 in order."""
        kinds: dict[tuple[str, str, int], list[tuple[int, DomainSpec]]] = {}
        found: list[int] = []
        count = 0
        for domain in self.spec.domains:
            same = kinds.setdefault((domain.part, domain.title, domain.gpus), [])
            kind = next((number for number, other in same if other == domain), count)
            if kind == count:
                same.append((count, domain))
                count += 1
            found.append(kind)
        return tuple(found)

    @cached_property
    def wiring(self) -> Wiring:
        """Nodes and links as arrays."""
        return self.lay()

    @cached_property
    def graph(self) -> nx.Graph[str]:
        """The same as a graph, for who walks node by node; attributes are those of :mod:`topology.graph`."""
        return self.wiring.graph(self.name)

    def domain_of(self, gpu: int) -> DomainSpec:
        """Return the specification of the domain that GPU number ``gpu`` is in."""
        return self.spec.domains[self.gpus[gpu].domain]

    def scale_up_bytes_per_s(self, gpu: int) -> float:
        """Return scale-up bytes/s per direction of GPU number ``gpu``: its domain's, less what is broken."""
        if self.spec.raw is not None:
            return float(self.wiring.scale_up_bytes_per_s[self.wiring.number[self.gpus[gpu].id]])
        whole = self.domain_of(gpu).scale_up_bytes_per_s
        if not self.spec.reshaped:
            return whole
        return whole - self.wiring.lost_bytes_per_s.get(self.gpus[gpu].id, 0.0)
