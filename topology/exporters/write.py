"""A cluster's topology in a file for other tools: graphs, schedulers' trees and blocks, simulators' networks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from topology.cluster import Cluster
from topology.errors import InputError
from topology.exporters.astra_sim import astra_sim_network
from topology.exporters.infragraph import infragraph
from topology.exporters.scheduler import slurm_block_conf, slurm_topology_yaml, topograph_model
from topology.exporters.simai import simai_topology
from topology.files import write_whole
from topology.graph import EDGE_ATTRIBUTES, NODE_ATTRIBUTES
from topology.reading import nearest

_KEYS = {
    "graph": ("name", "broken_gpus", "broken_links"),
    "node": NODE_ATTRIBUTES,
    "edge": EDGE_ATTRIBUTES,
}
_TYPES = dict.fromkeys(("domain", "rail", "plane", "pod", "count"), "int") | dict.fromkeys(
    ("link_bytes_per_s", "health", "bytes_per_s", "latency_s"), "double"
)
"""GraphML type of an attribute that is no string."""
_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">'
)


def write_topology(cluster: Cluster, path: Path, form: str | None = None) -> None:
    """Write the topology of ``cluster`` in a format of ``EXPORT_FORMATS``, else that of the suffix.

    Raises
    ------
    InputError
        If there is no such format, it cannot say this cluster, or the file cannot be written.
    """
    form = form or EXPORT_SUFFIXES.get(path.suffix.lower())
    if form is None:
        raise InputError(f"{path}: the suffix must be one of {', '.join(EXPORT_SUFFIXES)}.")
    if form not in _FORMATS:
        raise InputError(f"`form` {form}: {nearest(form, _FORMATS)}")
    write_whole(path, _FORMATS[form](cluster).encode())


def graphml(cluster: Cluster) -> str:
    """Return the graph of ``cluster`` as GraphML, for Gephi, yEd and networkx; attributes nobody has are left out."""
    return "\n".join(_graphml_lines(cluster)) + "\n"


def _graphml_lines(cluster: Cluster) -> Iterator[str]:
    yield _HEAD
    for scope, keys in _KEYS.items():
        for name in keys:
            kind = _TYPES.get(name, "string")
            yield f'  <key id="{scope[0]}_{name}" for="{scope}" attr.name="{name}" attr.type="{kind}"/>'
    yield '  <graph edgedefault="undirected">'
    yield from _graphml_data("g", _graph_values(cluster), "    ")
    for node, data in cluster.graph.nodes(data=True):
        yield f"    <node id={quoteattr(node)}>"
        yield from _graphml_data("n", _values(data, NODE_ATTRIBUTES), "      ")
        yield "    </node>"
    for a, b, data in cluster.graph.edges(data=True):
        yield f"    <edge source={quoteattr(a)} target={quoteattr(b)}>"
        yield from _graphml_data("e", _values(data, EDGE_ATTRIBUTES), "      ")
        yield "    </edge>"
    yield "  </graph>"
    yield "</graphml>"


def _graphml_data(scope: str, values: Mapping[str, object], indent: str) -> Iterator[str]:
    for name, value in values.items():
        yield f'{indent}<data key="{scope}_{name}">{escape(str(value))}</data>'


def node_link_json(cluster: Cluster) -> str:
    """Return the graph of ``cluster`` as node-link JSON, the form of networkx and D3.

    ``nodes`` have an ``id``, ``links`` a ``source`` and a ``target``.
    """
    return "\n".join(_node_link_lines(cluster)) + "\n"


def _node_link_lines(cluster: Cluster) -> Iterator[str]:
    nodes = ({"id": node, **_values(data, NODE_ATTRIBUTES)} for node, data in cluster.graph.nodes(data=True))
    links = (
        {"source": a, "target": b, **_values(data, EDGE_ATTRIBUTES)}
        for a, b, data in cluster.graph.edges(data=True)
    )
    head = {"directed": False, "multigraph": False, "graph": _graph_values(cluster)}
    yield f"{json.dumps(head)[:-1]},"
    yield '"nodes": ['
    yield from _rows(nodes)
    yield "],"
    yield '"links": ['
    yield from _rows(links)
    yield "]}"


def _rows(values: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield a line for each value, all but the last with a comma."""
    lines = map(json.dumps, values)
    last = next(lines, None)
    for line in lines:
        yield f"{last},"
        last = line
    if last is not None:
        yield last


def _graph_values(cluster: Cluster) -> dict[str, str]:
    """Return the name, and what is broken: ids with spaces between, ends of a link joined by ``|``."""
    graph = cluster.graph.graph
    values = {
        "name": cluster.name,
        "broken_gpus": " ".join(graph.get("broken_gpus", ())),
        "broken_links": " ".join("|".join(ends) for ends in graph.get("broken_links", ())),
    }
    return {key: value for key, value in values.items() if value}


def _values(data: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return the known attributes of a node or edge, without those that are None or that nobody has published."""
    values = {}
    for key in keys:
        value = data.get(key)
        if value is not None and not (isinstance(value, float) and math.isnan(value)):
            values[key] = "x".join(str(part) for part in value) if isinstance(value, tuple | list) else value
    return values


_FORMATS = {
    "graphml": graphml,
    "node-link": node_link_json,
    "slurm": slurm_topology_yaml,
    "slurm-block": slurm_block_conf,
    "topograph": topograph_model,
    "infragraph": infragraph,
    "simai": simai_topology,
    "astra-sim": astra_sim_network,
}
EXPORT_FORMATS = tuple(_FORMATS)
EXPORT_SUFFIXES = {
    ".graphml": "graphml",
    ".json": "node-link",
    ".yaml": "slurm",
    ".yml": "slurm",
    ".conf": "slurm-block",
}
"""The format that a file's suffix stands for, where none is named."""
