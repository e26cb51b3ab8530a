"""The attributes of a graph as plain values, the same for every format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from topology.cluster import Cluster

NODE_KEYS: Mapping[str, str] = {
    "kind": "string",
    "domain": "int",
    "node": "string",
    "rack": "string",
    "rail": "int",
    "plane": "int",
    "pod": "int",
    "coordinate": "string",
}
EDGE_KEYS: Mapping[str, str] = {
    "fabric": "string",
    "kind": "string",
    "count": "int",
    "link_bytes_per_s": "double",
    "health": "double",
    "bytes_per_s": "double",
    "latency_s": "double",
}


def node_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a node that it has."""
    return _present(data, NODE_KEYS)


def edge_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an edge that it has; a rate that nobody has published is left out."""
    return _present(data, EDGE_KEYS)


def graph_values(cluster: Cluster) -> dict[str, Any]:
    """Return the name, and what is broken: ids with spaces between, ends of a link joined by ``|``."""
    graph = cluster.graph
    values = {
        "name": cluster.name,
        "broken_gpus": " ".join(graph.graph.get("broken_gpus", ())),
        "broken_links": " ".join("|".join(ends) for ends in graph.graph.get("broken_links", ())),
    }
    return {key: value for key, value in values.items() if value}


def _present(data: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the known attributes, those that are None or not a number left out."""
    values = {}
    for key in keys:
        value = data.get(key)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        values[key] = "x".join(str(part) for part in value) if isinstance(value, tuple | list) else value
    return values
