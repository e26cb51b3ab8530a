"""The graph as GraphML, for Gephi, yEd and networkx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape, quoteattr

from topology.cluster import Cluster
from topology.exporters.graph_data import EDGE_KEYS, NODE_KEYS, edge_values, graph_values, node_values

_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">'
)
_GRAPH_KEYS = {"name": "string", "broken_gpus": "string", "broken_links": "string"}


def graphml(cluster: Cluster) -> str:
    """Return the graph of ``cluster`` as GraphML; attributes nobody has are left out."""
    return "\n".join(_lines(cluster)) + "\n"


def _lines(cluster: Cluster) -> Iterator[str]:
    """Yield the lines of the file."""
    yield _HEAD
    for scope, keys in (("graph", _GRAPH_KEYS), ("node", NODE_KEYS), ("edge", EDGE_KEYS)):
        for name, kind in keys.items():
            yield f'  <key id="{scope[0]}_{name}" for="{scope}" attr.name="{name}" attr.type="{kind}"/>'
    yield '  <graph edgedefault="undirected">'
    yield from _data("g", graph_values(cluster), "    ")
    for node, data in cluster.graph.nodes(data=True):
        yield f"    <node id={quoteattr(node)}>"
        yield from _data("n", node_values(data), "      ")
        yield "    </node>"
    for a, b, data in cluster.graph.edges(data=True):
        yield f"    <edge source={quoteattr(a)} target={quoteattr(b)}>"
        yield from _data("e", edge_values(data), "      ")
        yield "    </edge>"
    yield "  </graph>"
    yield "</graphml>"


def _data(scope: str, values: Mapping[str, object], indent: str) -> Iterator[str]:
    """Yield the attributes of one element."""
    for name, value in values.items():
        yield f'{indent}<data key="{scope}_{name}">{escape(str(value))}</data>'
