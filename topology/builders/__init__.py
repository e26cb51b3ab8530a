"""Builders: from the specification of a cluster to the graph of its links."""

from topology.builders.build import build_graph
from topology.builders.hosts import pods_of
from topology.builders.torus import torus_coordinates

__all__ = ["build_graph", "pods_of", "torus_coordinates"]
