"""A tree of switches as schedulers write it: names, children and hosts, without rates or counts of links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topology.base.errors import InputError
from topology.importers.found import FabricFound, PortFound, TrunkFound
from topology.importers.source import Source


@dataclass(frozen=True)
class SwitchRow:
    """One switch of a tree: where it is in the file, the switches and hosts below it."""

    place: str
    switches: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def _levels(rows: Mapping[str, SwitchRow]) -> dict[str, int]:
    """Return the level of each switch, found from the hosts up: one above the highest switch below it."""
    levels: dict[str, int] = {}
    for start in rows:
        stack = [start]
        path: set[str] = set()  # where the walk is, to see cycles
        while stack:
            name = stack[-1]
            row = rows[name]
            below = [child for child in row.switches if child not in levels]
            path.add(name)
            if below:
                if below[0] in path:
                    raise InputError(f"{row.place}: switch {below[0]} is above and below {name}: a cycle.")
                stack.append(below[0])
                continue
            levels[name] = 1 + max((levels[child] for child in row.switches), default=0)
            path.discard(stack.pop())
    return levels


def tree_found(
    source: Source, rows: Mapping[str, SwitchRow], domains: Mapping[str, str] | None = None
) -> FabricFound:
    """Return the fabric that a tree describes.

    Raises
    ------
    InputError
        If a child is not defined, or switches form a cycle.
    """
    for name, row in rows.items():
        for child in row.switches:
            if child not in rows:
                raise InputError(
                    f"{row.place}: switch {name} has the child {child}, which is not defined; is the file cut?"
                )
        if name in row.switches:
            raise InputError(f"{row.place}: switch {name} is its own child.")
    levels = _levels(rows)
    hosts, ports = _hosts(source, rows)
    if not hosts:
        raise source.error(None, "its switches have no hosts; is the file cut?")
    parents: dict[str, list[str]] = {}
    for name, row in rows.items():
        for child in row.switches:
            parents.setdefault(child, []).append(name)
    roots = [name for name in rows if name not in parents]
    if len(roots) > 1:
        some = f"{', '.join(roots[:6])}{', ...' * (len(roots) > 6)}"
        source.anomalies.append(f"{source.name}: {len(roots)} switches have no parent: {some}.")
    return FabricFound(
        hosts=hosts,
        switches=levels,
        ports=tuple(ports),
        trunks=tuple(TrunkFound((child, parent)) for child, above in parents.items() for parent in above),
        domains=domains or {},
    )


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
                    f"{row.place}: host {host} is under {name} too; only its first switch is used ({hosts[host]})."
                )
                continue
            hosts[host] = row.place
            ports.append(PortFound(host, name, row.place))
    return hosts, ports
