"""A tree of switches as schedulers write it: names, children and hosts, without rates or counts of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import networkx as nx

from topology.base.errors import InputError
from topology.importers.found import FabricFound, PortFound, TrunkFound, listed
from topology.importers.source import Source


class SwitchRow(NamedTuple):
    """One switch of a tree: where it is in the file, the switches and hosts below it."""

    place: str
    switches: Sequence[str] = ()
    hosts: Sequence[str] = ()


def parse_tree(source: Source, rows: Mapping[str, SwitchRow], **fields: Any) -> FabricFound:
    """Return the fabric that a tree describes, with other fields of it."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(rows)
    hosts: dict[str, str] = {}
    ports: list[PortFound] = []
    for name, row in rows.items():
        for child in row.switches:
            if child not in rows:
                problem = f"has the child {child}, which is not defined; is the file truncated?"
                raise InputError(f"{row.place}: switch {name} {problem}")
            graph.add_edge(name, child)
        if not row.switches and not row.hosts:
            source.anomalies.append(f"{row.place}: switch {name} has nothing below it.")
        for host in row.hosts:
            if host in hosts:
                problem = f"is also under {name}; only its first switch is used ({hosts[host]})."
                source.anomalies.append(f"{row.place}: host {host} {problem}")
            else:
                hosts[host] = row.place
                ports.append(PortFound(host, name, row.place))
    if not nx.is_directed_acyclic_graph(graph):
        lower, upper = nx.find_cycle(graph)[-1]
        raise InputError(f"{rows[lower].place}: switch {upper} is both above and below {lower} (a cycle).")
    if not hosts:
        raise source.error(None, "its switches have no hosts; is the file truncated?")
    if len(roots := [name for name in rows if not graph.pred[name]]) > 1:
        source.anomalies.append(f"{source.name}: {len(roots)} switches have no parent: {listed(roots, 6)}.")
    levels: dict[str, int] = {}
    for name in nx.dfs_postorder_nodes(graph):  # found from the hosts up: above the highest switch below it
        levels[name] = 1 + max((levels[child] for child in graph[name]), default=0)
    trunks = tuple(TrunkFound((child, parent)) for parent, child in graph.edges)
    return FabricFound(hosts, levels, tuple(ports), trunks, **fields)
