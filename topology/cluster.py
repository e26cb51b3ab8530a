"""A cluster as built: typed tables of GPUs, and the graph of its links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx as nx

    from topology.spec import ClusterSpec, DomainSpec

__all__ = ["Cluster", "Gpu"]


@dataclass(frozen=True)
class Gpu:
    """One GPU of a cluster; ids are ``d0.n3.g1`` (GPU), ``d0.n3`` (node), ``d0.r0`` (rack of a domain)."""

    id: str
    domain: int
    node: str
    rack: str
    rail: int


@dataclass(frozen=True)
class Cluster:
    """A cluster as a graph with true links.

    ``gpus`` are ordered by domain, then node, then position in the node; an index into it names a GPU
    everywhere in the code. ``graph`` is built on first use: costs that need only rates never pay for it.
    """

    spec: ClusterSpec
    gpus: tuple[Gpu, ...]

    @property
    def name(self) -> str:
        """The name it was asked for by (``gb200-nvl72@288``)."""
        return self.spec.name

    @cached_property
    def graph(self) -> nx.Graph[str]:
        """The graph of GPUs and switches; attributes are those of :mod:`topology.graph`."""
        from topology.builders import build_graph

        return build_graph(self)

    def domain_of(self, gpu: int) -> DomainSpec:
        """Return the specification of the domain that GPU number ``gpu`` is in."""
        return self.spec.domains[self.gpus[gpu].domain]
