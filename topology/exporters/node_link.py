"""The graph as node-link JSON, the form of networkx and D3."""

from __future__ import annotations

import json

from topology.cluster import Cluster
from topology.exporters.graph_data import edge_values, graph_values, node_values


def node_link_json(cluster: Cluster) -> str:
    """Return the graph of ``cluster`` as JSON: ``nodes`` with ``id``, ``links`` with ``source`` and ``target``."""
    head = {"directed": False, "multigraph": False, "graph": graph_values(cluster)}
    nodes = [json.dumps({"id": node, **node_values(data)}) for node, data in cluster.graph.nodes(data=True)]
    links = [
        json.dumps({"source": a, "target": b, **edge_values(data)})
        for a, b, data in cluster.graph.edges(data=True)
    ]
    body = json.dumps(head)[:-1]
    return f'{body},\n"nodes": [\n{_rows(nodes)}],\n"links": [\n{_rows(links)}]}}\n'


def _rows(items: list[str]) -> str:
    return ",\n".join(items) + ("\n" if items else "")
