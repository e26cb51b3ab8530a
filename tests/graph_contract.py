"""The contract of :mod:`topology.graph`, checked on a graph."""

from __future__ import annotations

import math

import networkx as nx

from topology.graph import EDGE_ATTRIBUTES, NODE_ATTRIBUTES, NODE_KINDS

# Which node attributes each kind must have; the others are None.
_NEEDED = {"gpu": ("domain", "node", "rack", "rail"), "switch": ("domain",)}


def validate_graph(graph: nx.Graph[str]) -> None:
    """Fail where an attribute of a node or an edge is missing, not finite, negative or contradicts another."""
    for node, data in graph.nodes(data=True):
        assert set(NODE_ATTRIBUTES) <= set(data), node
        assert data["kind"] in NODE_KINDS, node
        for key in _NEEDED.get(data["kind"], ()):
            value = data[key]
            assert isinstance(value, str) or (isinstance(value, int) and value >= 0), (node, key, value)
    for *ends, data in graph.edges(data=True):
        assert set(EDGE_ATTRIBUTES) <= set(data), ends
        assert type(data["count"]) is int, ends
        assert data["count"] >= 1, ends
        assert 0 < data["health"] <= 1, ends
        assert 0 < data["latency_s"] < math.inf, ends
        rate = data["count"] * data["link_bytes_per_s"] * data["health"]
        if math.isnan(data["link_bytes_per_s"]):  # a rate that nobody has published
            assert math.isnan(data["bytes_per_s"]), ends
        else:
            assert 0 < data["bytes_per_s"] < math.inf, ends
            assert math.isclose(data["bytes_per_s"], rate, rel_tol=1e-9), ends
