"""A tree of switches as schedulers write it: names, children and hosts, without rates or counts of links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx

from topology.base.errors import InputError
from topology.importers.found import FabricFound, PortFound, TrunkFound, listed
from topology.importers.source import Source


@dataclass(frozen=True)
class SwitchRow:
    """One switch of a tree: where it is in the file, the switches and hosts below it."""

    place: str
    switches: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def parse_tree(source: Source, rows: Mapping[str, SwitchRow], **others: Any) -> FabricFound:
    """Return the fabric that a tree describes, with other fields of it."""
    parents: dict[str, list[str]] = {}
    for name, row in rows.items():
        for child in row.switches:
            if child not in rows:
                raise InputError(
                    f"{row.place}: switch {name} has the child {child}, which is not defined; is the file truncated?"
                )
            parents.setdefault(child, []).append(name)
        if name in row.switches:
            raise InputError(f"{row.place}: switch {name} is its own child.")
    levels = _levels(rows)
    hosts, ports = _hosts(source, rows)
    if not hosts:
        raise source.error(None, "its switches have no hosts; is the file truncated?")
    roots = [name for name in rows if name not in parents]
    if len(roots) > 1:
        source.anomalies.append(f"{source.name}: {len(roots)} switches have no parent: {listed(roots, 6)}.")
    return FabricFound(
        hosts=hosts,
        switches=levels,
        ports=tuple(ports),
        trunks=tuple(TrunkFound((child, parent)) for child, above in parents.items() for parent in above),
        **others,
    )


def _levels(rows: Mapping[str, SwitchRow]) -> dict[str, int]:
    """Return the level of each switch, found from the hosts up: one above the highest switch below it."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(rows)
    graph.add_edges_from((name, child) for name, row in rows.items() for child in row.switches)
    if not nx.is_directed_acyclic_graph(graph):
        lower, upper = nx.find_cycle(graph)[-1]
        raise InputError(f"{rows[lower].place}: switch {upper} is both above and below {lower} (a cycle).")
    levels: dict[str, int] = {}
    for name in nx.dfs_postorder_nodes(graph):
        levels[name] = 1 + max((levels[child] for child in rows[name].switches), default=0)
    return levels


def _hosts(source: Source, rows: Mapping[str, SwitchRow]) -> tuple[dict[str, str], list[PortFound]]:
    """Return hosts and where they hang, the first of several switches."""
    hosts: dict[str, str] = {}
    ports: list[PortFound] = []
    for name, row in rows.items():
        if not row.switches and not row.hosts:
            source.anomalies.append(f"{row.place}: switch {name} has nothing below it.")
        for host in row.hosts:
            if host in hosts:
                source.anomalies.append(
                    f"{row.place}: host {host} is also under {name}; only its first switch is used ({hosts[host]})."
                )
                continue
            hosts[host] = row.place
            ports.append(PortFound(host, name, row.place))
    return hosts, ports
