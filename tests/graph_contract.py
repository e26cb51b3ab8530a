"""The contract of :mod:`topology.graph`, checked on a graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import networkx as nx

from topology.base.errors import InputError
from topology.graph import EDGE_ATTRIBUTES, NODE_ATTRIBUTES, NODE_KINDS

# Which node attributes each kind must have; the others are None.
_NEEDED: Mapping[str, tuple[str, ...]] = {"gpu": ("domain", "node", "rack", "rail"), "switch": ("domain",)}
_POSITIVE = ("link_bytes_per_s", "health", "bytes_per_s", "latency_s")
_UNPUBLISHED = ("link_bytes_per_s", "bytes_per_s")


def validate_graph(graph: nx.Graph[str]) -> None:
    """Check every node and edge against the contract of this module.

    Raises
    ------
    InputError
        If an attribute is missing, not finite, negative or contradicts another; the message names it.
    """
    for node, data in graph.nodes(data=True):
        _check_node(node, data)
    for a, b, data in graph.edges(data=True):
        _check_edge(f"link {a} - {b}", data)


def _check_node(node: str, data: Mapping[str, Any]) -> None:
    """Check one node."""
    for key in NODE_ATTRIBUTES:
        if key not in data:
            raise InputError(f"node {node}: has no attribute `{key}`.")
    kind = data["kind"]
    if kind not in NODE_KINDS:
        raise InputError(f"node {node}: kind {kind!r} is not one of {', '.join(NODE_KINDS)}.")
    for key in _NEEDED.get(kind, ()):
        value = data[key]
        if value is None or (isinstance(value, int) and value < 0) or isinstance(value, float):
            raise InputError(f"node {node}: `{key}` is {value!r}; a {kind} needs one.")


def _check_edge(where: str, data: Mapping[str, Any]) -> None:
    """Check one edge."""
    for key in EDGE_ATTRIBUTES:
        if key not in data:
            raise InputError(f"{where}: has no attribute `{key}`.")
    count = data["count"]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"{where}: `count` is {count!r}; it must be a whole number of at least one.")
    unpublished = all(isinstance(data[key], float) and math.isnan(data[key]) for key in _UNPUBLISHED)
    for key in _POSITIVE:
        value = data[key]
        if unpublished and key in _UNPUBLISHED:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value <= 0
        ):
            raise InputError(f"{where}: `{key}` is {value!r}; it must be finite and greater than zero.")
    if data["health"] > 1:
        raise InputError(f"{where}: `health` is {data['health']!r}; at most 1.")
    rate = count * data["link_bytes_per_s"] * data["health"]
    if not unpublished and not math.isclose(data["bytes_per_s"], rate, rel_tol=1e-9):
        raise InputError(f"{where}: `bytes_per_s` is not `count` times `link_bytes_per_s` (times `health`).")
