"""A cluster's topology in a file, the format by the suffix of its name."""

from __future__ import annotations

from pathlib import Path

from topology.cluster import Cluster
from topology.errors import InputError
from topology.files import write_whole

EXPORT_SUFFIXES = (".graphml", ".json", ".yaml", ".yml")
"""GraphML, node-link JSON, and Slurm's topology.yaml."""


def write_topology(cluster: Cluster, path: Path) -> None:
    """Write the topology of ``cluster``: GraphML, node-link JSON, or Slurm's topology.yaml.

    Raises
    ------
    InputError
        If the suffix is none of ``EXPORT_SUFFIXES``, or the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix == ".graphml":
        from topology.exporters.graphml import graphml

        text = graphml(cluster)
    elif suffix == ".json":
        from topology.exporters.node_link import node_link_json

        text = node_link_json(cluster)
    elif suffix in (".yaml", ".yml"):
        from topology.exporters.slurm_yaml import slurm_topology_yaml

        text = slurm_topology_yaml(cluster)
    else:
        raise InputError(f"{path}: the suffix must be one of {', '.join(EXPORT_SUFFIXES)}.")
    write_whole(path, text.encode())
