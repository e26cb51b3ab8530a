"""Builders: from the specification of a cluster to the graph of its links."""

from topology.builders.build import build_graph
from topology.builders.rails import pods_of

__all__ = ["build_graph", "pods_of"]
