"""The contract of :mod:`topology.graph`, checked on a graph."""

from __future__ import annotations

import math

import networkx as nx

from topology.graph import EDGE_ATTRIBUTES, NODE_ATTRIBUTES, NODE_KINDS

NEEDED = {"gpu": ("domain", "node", "rack", "rail"), "switch": ("domain",)}
"""Which node attributes each kind must have; the others may be None."""


def validate_graph(graph: nx.Graph[str]) -> None:
    """Check every node and edge: nothing lacks, rates are finite or unpublished, counts and health agree."""
    for node, data in graph.nodes(data=True):
        assert set(NODE_ATTRIBUTES) <= set(data), node
        assert data["kind"] in NODE_KINDS, node
        for key in NEEDED.get(data["kind"], ()):
            assert data[key] is not None, (node, key)
            assert not isinstance(data[key], int) or data[key] >= 0, (node, key)
    for *ends, data in graph.edges(data=True):
        assert set(EDGE_ATTRIBUTES) <= set(data), ends
        assert type(data["count"]) is int, ends
        assert data["count"] >= 1, ends
        assert 0 < data["health"] <= 1, ends
        assert 0 < data["latency_s"] < math.inf, ends
        rate = data["count"] * data["link_bytes_per_s"] * data["health"]
        assert math.isnan(rate) or 0 < rate < math.inf, ends
        assert math.isnan(rate) == math.isnan(data["bytes_per_s"]), ends
        assert math.isnan(rate) or math.isclose(data["bytes_per_s"], rate, rel_tol=1e-9), ends
