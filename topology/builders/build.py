"""The whole graph of a cluster: its domains, then the fabric between them, then what is broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology.builders.dragonfly import add_dragonfly
from topology.builders.fat_tree import add_fat_tree
from topology.builders.faults import apply_faults
from topology.builders.leaf_spine import add_leaf_spine
from topology.builders.mesh import add_mesh_domain
from topology.builders.rails import add_rails
from topology.builders.raw import add_raw
from topology.builders.switched import add_switched_domain
from topology.builders.torus import add_torus_domain
from topology.builders.two_tier import add_two_tier_domain
from topology.spec import ClusterSpec, DomainSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.cluster import Cluster, Gpu


_FABRICS = {
    "rail": add_rails,
    "leaf-spine": add_leaf_spine,
    "fat-tree": add_fat_tree,
    "dragonfly": add_dragonfly,
}


def build_graph(cluster: Cluster) -> nx.Graph[str]:
    """Return the graph of ``cluster``; its attributes are those of :mod:`topology.graph`.

    A single domain has no scale-out fabric in its graph: nothing would cross it.

    Raises
    ------
    InputError
        If a fault names what does not exist, or the fabric cannot be cabled.
    """
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph(name=cluster.name, broken_gpus=(), broken_links=())
    spec, gpus = cluster.spec, cluster.gpus_as_cabled
    if spec.raw is not None:
        add_raw(graph, spec.raw, gpus)
    else:
        _add_domains(graph, spec, gpus)
    if spec.faults:
        apply_faults(graph, spec.faults)
    return graph


def _add_domains(graph: nx.Graph[str], spec: ClusterSpec, gpus: Sequence[Gpu]) -> None:
    """Add each domain, and the fabric between them where there are several."""
    first = 0
    for number, domain in enumerate(spec.domains):
        _add_domain(graph, number, domain, gpus[first : first + domain.gpus])
        first += domain.gpus
    if spec.scale_out is not None and len(spec.domains) > 1:
        _FABRICS[spec.scale_out.kind](graph, spec, spec.scale_out, gpus)


def _add_domain(graph: nx.Graph[str], number: int, domain: DomainSpec, gpus: Sequence[Gpu]) -> None:
    """Add one domain by its structure."""
    if domain.structure == "mesh":
        add_mesh_domain(graph, domain, gpus)
    elif domain.structure == "torus":
        add_torus_domain(graph, domain, gpus)
    elif domain.structure == "two-tier":
        add_two_tier_domain(graph, number, domain, gpus)
    else:
        add_switched_domain(graph, number, domain, gpus)
