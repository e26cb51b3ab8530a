"""A cluster's topology in a file for other tools: schedulers' trees and blocks, and graphs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from topology.base.errors import InputError
from topology.base.files import write_whole
from topology.base.reading import nearest
from topology.cables import cables_csv
from topology.cluster import Cluster
from topology.exporters.scheduler import slurm_topology_yaml, topograph_model

if TYPE_CHECKING:
    import networkx as nx


def write_topology(cluster: Cluster, path: Path, form: str | None = None) -> None:
    """Write the topology of ``cluster`` in a format of ``EXPORT_FORMATS``, else as its suffix says.

    Raises
    ------
    InputError
        If there is no such format, it cannot say this cluster, or the file cannot be written.
    """
    suffix = path.suffix.lower()
    if form is None and suffix not in GRAPH_SUFFIXES:
        raise InputError(f"{path}: the suffix must be one of {', '.join(GRAPH_SUFFIXES)}.")
    text = GRAPH_SUFFIXES[suffix](cluster) if form is None else topology_text(cluster, form)
    write_whole(path, text.encode())


def topology_text(cluster: Cluster, form: str) -> str:
    """Return the topology of ``cluster`` in a format of ``EXPORT_FORMATS``.

    Raises
    ------
    InputError
        If there is no such format, or it cannot say this cluster.
    """
    if form not in EXPORT_FORMATS:
        raise InputError(nearest(form, EXPORT_FORMATS), field="form", value=form)
    return EXPORT_FORMATS[form](cluster)


def graphml(cluster: Cluster) -> str:
    """Return the graph of ``cluster`` as GraphML, for Gephi, yEd and networkx."""
    import networkx as nx

    return "\n".join(nx.generate_graphml(_plain_graph(cluster))) + "\n"


def node_link_json(cluster: Cluster) -> str:
    """Return the graph of ``cluster`` as node-link JSON (``nodes`` and ``links``), for networkx and D3."""
    import networkx as nx

    return json.dumps(nx.node_link_data(_plain_graph(cluster), edges="links"), indent=1) + "\n"


def _plain_graph(cluster: Cluster) -> nx.Graph[str]:
    """Return the graph with texts and numbers alone: what is None or has not been published is left out."""
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    values = {"name": cluster.name, "broken_gpus": " ".join(cluster.graph.graph.get("broken_gpus", ()))}
    links = cluster.graph.graph.get("broken_links", ())
    graph.graph |= {**values, "broken_links": " ".join("|".join(ends) for ends in links)}
    graph.add_nodes_from((node, _plain(data)) for node, data in cluster.graph.nodes(data=True))
    graph.add_edges_from((a, b, _plain(data)) for a, b, data in cluster.graph.edges(data=True))
    return graph


def _plain(data: dict[str, object]) -> dict[str, object]:
    return {
        key: "x".join(map(str, value)) if isinstance(value, tuple) else value
        for key, value in data.items()
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    }


EXPORT_FORMATS = {"slurm": slurm_topology_yaml, "topograph": topograph_model}
GRAPH_SUFFIXES = {".graphml": graphml, ".json": node_link_json, ".csv": cables_csv}
"""Format by file suffix, unless one is named: the graph, or the bill of cables."""
