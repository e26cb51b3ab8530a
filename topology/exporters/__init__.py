"""Exporters: clusters in formats of other tools, and as cluster YAML."""

from topology.exporters.cluster_yaml import cluster_to_yaml
from topology.exporters.write import EXPORT_FORMATS, GRAPH_SUFFIXES, topology_text, write_topology

__all__ = ["EXPORT_FORMATS", "GRAPH_SUFFIXES", "cluster_to_yaml", "topology_text", "write_topology"]
