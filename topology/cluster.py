"""A cluster as built: a typed table of GPUs, and the graph of its links. :mod:`topology.build` makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from topology.graph import scale_up_of
from topology.spec import ClusterSpec, DomainSpec

if TYPE_CHECKING:
    import networkx as nx


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


@dataclass(frozen=True)
class Cluster:
    """A cluster as a graph with true links.

    ``gpus`` are those that work, ordered by domain, then node, then position in the node; an index into it names
    a GPU everywhere in the code. ``graph`` comes from ``make_graph`` on first use: costs that need
    only rates never pay for it.
    """

    spec: ClusterSpec
    gpus: tuple[Gpu, ...]
    make_graph: Callable[[], nx.Graph[str]] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name it was asked for by (``gb200-nvl72@288``)."""
        return self.spec.name

    @cached_property
    def graph(self) -> nx.Graph[str]:
        """The graph of GPUs and switches; attributes are those of :mod:`topology.graph`."""
        return self.make_graph()

    def domain_of(self, gpu: int) -> DomainSpec:
        """Return the specification of the domain that GPU number ``gpu`` is in."""
        return self.spec.domains[self.gpus[gpu].domain]

    def scale_up_bytes_per_s(self, gpu: int) -> float:
        """Return scale-up bytes/s per direction of GPU number ``gpu``: its domain's, less what is broken."""
        if self.spec.raw is not None:
            return scale_up_of(self.graph, self.gpus[gpu].id)
        whole = self.domain_of(gpu).scale_up_bytes_per_s
        if not self.spec.reshaped:
            return whole
        lost: dict[str, float] = self.graph.graph["lost_bytes_per_s"]
        return whole - lost.get(self.gpus[gpu].id, 0.0)
