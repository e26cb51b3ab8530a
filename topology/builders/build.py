"""The whole graph of a cluster: its domains, then the fabric between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.builders.rails import add_rails
from topology.builders.switched import add_switched_domain

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Cluster

__all__ = ["build_graph"]


def build_graph(cluster: Cluster) -> nx.Graph[str]:
    """Return the graph of ``cluster``; its attributes are those of :mod:`topology.graph`.

    A single domain has no scale-out fabric in its graph: nothing would cross it.
    """
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph(name=cluster.name)
    first = 0
    for number, domain in enumerate(cluster.spec.domains):
        add_switched_domain(graph, number, domain, cluster.gpus[first : first + domain.gpus])
        first += domain.gpus
    if cluster.spec.scale_out is not None and len(cluster.spec.domains) > 1:
        add_rails(graph, cluster.spec, cluster.gpus)
    return graph
