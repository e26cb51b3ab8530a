"""NVIDIA topograph's simulation models, and the JSON of its graph engine.

Models: ``switches`` (children by name) and ``blocks`` or ``capacity_blocks`` of hosts, each under a leaf, with
the accelerator domain in an annotation. Graph JSON: per instance the switches above it, nearest first.
"""

from __future__ import annotations

from itertools import pairwise

from topology.importers.data import Data, load_data
from topology.importers.found import FabricFound
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source
from topology.importers.tree import SwitchRow, tree_found
from topology.reading import shown

KIND = "topograph"


def looks_like_topograph(data: object) -> bool:
    """Whether data have the keys of a model or of the graph engine."""
    if not isinstance(data, dict):
        return False
    rows = data.get("instances")
    graph = (
        isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict) and "network_layers" in rows[0]
    )
    return graph or ("switches" in data and ("blocks" in data or "capacity_blocks" in data))


def read_topograph(source: Source) -> FabricFound:
    """Return switches, hosts and accelerator domains.

    Raises
    ------
    InputError
        If a block names a switch that is not there, or a host is in two blocks.
    """
    data = load_data(source).mapping()
    return _graph(source, data) if data.has("instances") else _model(source, data)


def _model(source: Source, data: Data) -> FabricFound:
    """Read a model."""
    children, named_blocks = _switches(data)
    hosts: dict[str, list[str]] = {name: [] for name in children}
    domains: dict[str, str] = {}
    anomalies: list[str] = []
    seen: dict[str, str] = {}
    loose: list[str] = []
    for block in [*data.subs("blocks"), *data.subs("capacity_blocks")]:
        members = _members(block)
        switch = block.text("switch") if block.has("switch") else named_blocks.get(str(block.get("name")))
        if switch is not None and switch not in children:
            raise source.error(None, f"{block.where}: switch {switch} is not among `switches`.")
        for host in members:
            if host in seen:
                raise source.error(None, f"{block.where}: host {host} is in {seen[host]} already.")
            seen[host] = block.where
        if switch is None:
            loose += members
            anomalies.append(f"{block.where}: {len(members)} hosts under no switch; left out.")
            continue
        hosts[switch] += members
        domain = _domain(block)
        if domain is not None:
            domains.update(dict.fromkeys(members, domain))
    if not any(hosts.values()):
        raise source.error(None, "its blocks have no hosts under a switch; is the file cut?")
    rows = {
        name: SwitchRow(f"{source.name}: switch {name}", None, tuple(below), tuple(hosts[name]))
        for name, below in children.items()
    }
    return tree_found(
        source, KIND, rows, domains=domains, notes=_notes(rows, domains), anomalies=tuple(anomalies)
    )


def _switches(data: Data) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the children of each switch, and the switch of each capacity block it names."""
    raw = data.need("switches")
    if isinstance(raw, list):
        rows = {row.text("name"): row for row in data.subs("switches")}
        blocks = {str(block): name for name, row in rows.items() for block in row.items("capacity_blocks")}
    else:
        table = data.sub("switches")
        rows = {name: Data(table.get(name) or {}, f"{table.where}: {name}") for name in table}
        blocks = {}
    children = {name: [str(child) for child in row.items("switches")] for name, row in rows.items()}
    for below in list(children.values()):
        for name in below:
            children.setdefault(name, [])
    return children, blocks


def _members(block: Data) -> list[str]:
    """Return the hosts of a block."""
    members: list[str] = []
    for item in block.items("nodes"):
        if not isinstance(item, str | int) or isinstance(item, bool):
            raise_where = f"{block.where}: nodes"
            members += expand_hosts(shown(item), raise_where)
            continue
        members += expand_hosts(str(item), f"{block.where}: nodes")
    return members


def _domain(block: Data) -> str | None:
    """Return the accelerator domain of a block: an annotation whose key ends in ``/domain``, or ``nvlink``."""
    if block.has("nvlink"):
        return block.text("nvlink")
    for holder in ("annotations", "labels"):
        if block.has(holder):
            table = block.sub(holder)
            for key in table:
                if key.endswith(("/domain", "gpu.clique")):
                    return table.text(key)
    return None


def _graph(source: Source, data: Data) -> FabricFound:
    """Read the JSON of the graph engine."""
    below: dict[str, dict[str, None]] = {}
    hosts: dict[str, list[str]] = {}
    domains: dict[str, str] = {}
    seen: set[str] = set()
    for row in data.subs("instances"):
        host = row.text("id")
        if host in seen:
            raise source.error(None, f"{row.where}: host {host} is there twice.")
        seen.add(host)
        layers = [str(layer) for layer in row.items("network_layers")]
        if not layers:
            raise source.error(None, f"{row.where}: host {host} has no network_layers.")
        hosts.setdefault(layers[0], []).append(host)
        for lower, upper in pairwise(layers):
            below.setdefault(upper, {})[lower] = None
        domain = _domain(row)
        if domain is not None:
            domains[host] = domain
    names = dict.fromkeys([*hosts, *below])
    rows = {
        name: SwitchRow(
            f"{source.name}: switch {name}", None, tuple(below.get(name, ())), tuple(hosts.get(name, ()))
        )
        for name in names
    }
    return tree_found(source, KIND, rows, domains=domains, notes=_notes(rows, domains))


def _notes(rows: dict[str, SwitchRow], domains: dict[str, str]) -> tuple[str, ...]:
    """Return what was counted."""
    hosts = {host for row in rows.values() for host in row.hosts}
    count = len(set(domains.values()))
    return (f"{len(rows)} switches, {len(hosts)} hosts, {count} accelerator domains.",)
