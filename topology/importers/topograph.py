"""NVIDIA topograph's simulation models, the JSON of its graph engine, and Kubernetes nodes with its labels.

Models: ``switches`` (children by name) and ``blocks`` or ``capacity_blocks`` of hosts, each under a leaf, with
the accelerator domain in an annotation. Graph JSON: per instance the switches above it, nearest first. Nodes
(``kubectl get nodes -o yaml``) have both as labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.base.units import plural
from topology.importers.found import FabricFound, Format
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source
from topology.importers.tree import SwitchRow, tree_found

_TIER = re.compile(r"fabric\.topograph\.run/tier-\d{1,2}")
_OLD_TIERS = tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core"))
_DOMAINS = ("/domain", "/accelerator", "gpu.clique")


def looks_like_topograph(data: object) -> bool:
    """Whether data have the keys of a model or of the graph engine."""
    if not isinstance(data, dict):
        return False
    rows = data.get("instances")
    graph = (
        isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict) and "network_layers" in rows[0]
    )
    nodes = data.get("items")
    labelled = isinstance(nodes, list) and any(_tiers(_labels(node)) for node in nodes)
    return graph or labelled or ("switches" in data and ("blocks" in data or "capacity_blocks" in data))


def _labels(node: object) -> dict[object, object]:
    """Return the labels of a Kubernetes node, none of anything else."""
    for key in ("metadata", "labels"):
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def _tiers(labels: Mapping[object, object]) -> list[object]:
    """Return the switches above a node by its labels, nearest first."""
    tiers = [key for key in labels if isinstance(key, str) and _TIER.fullmatch(key)]
    tiers.sort(key=lambda key: int(key.rpartition("-")[2]))
    return [labels[key] for key in (*tiers, *_OLD_TIERS) if key in labels]


def read_topograph(source: Source) -> FabricFound:
    """Return switches, hosts and accelerator domains.

    Raises
    ------
    InputError
        If a block names a switch that is not there, or a host is in two blocks.
    """
    data = source.fields()
    if data.has("items"):
        rows = []
        for node in data.subs("items", empty=True):
            labels = _labels(node.data)
            if tiers := _tiers(labels):
                rows.append(
                    {"id": node.sub("metadata").name("name"), "network_layers": tiers, "labels": labels}
                )
            else:
                source.anomalies.append(f"{node.where}: no label names a switch above this node; left out.")
        data = Fields({"instances": rows}, source.name)
    return _graph(source, data) if data.has("instances") else _model(source, data)


def _model(source: Source, data: Fields) -> FabricFound:
    """Read a model."""
    children, named_blocks = _switches(data)
    hosts: dict[str, list[str]] = {name: [] for name in children}
    domains: dict[str, str] = {}
    inner: dict[str, str] = {}
    seen: dict[str, str] = {}
    for block in [*data.subs("blocks", empty=True), *data.subs("capacity_blocks", empty=True)]:
        members = [
            host for text in block.name_list("nodes") for host in expand_hosts(text, block.at("nodes"))
        ]
        switch = block.name("switch") if block.has("switch") else named_blocks.get(str(block.get("name")))
        if switch is not None and switch not in children:
            raise InputError(f"{block.where}: switch {switch} is not among `switches`.")
        for host in members:
            if host in seen:
                raise InputError(f"{block.where}: host {host} is in {seen[host]} already.")
            seen[host] = block.where
        if switch is None:
            source.anomalies.append(
                f"{block.where}: {plural(len(members), 'host')} under no switch; left out."
            )
            continue
        hosts[switch] += members
        domain, part = _domain(block)
        domains.update(dict.fromkeys(members, domain) if domain else {})
        inner.update(dict.fromkeys(members, part) if part else {})
    if not any(hosts.values()):
        raise source.error(None, "its blocks have no hosts under a switch; is the file cut?")
    return _found(source, children, hosts, domains, inner)


def _switches(data: Fields) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the children of each switch, and the switch of each capacity block it names."""
    if isinstance(data.need("switches"), list):
        rows = {row.name("name"): row for row in data.subs("switches", empty=True)}
        blocks = {block: name for name, row in rows.items() for block in row.name_list("capacity_blocks")}
    else:
        table = data.sub("switches")
        rows = {name: Fields(table.get(name) or {}, table.at(name)) for name in table.names()}
        blocks = {}
    children = {name: row.name_list("switches") for name, row in rows.items()}
    for below in list(children.values()):
        for name in below:
            children.setdefault(name, [])
    return children, blocks


def _domain(row: Fields) -> tuple[str | None, str | None]:
    """Return the accelerator domain of a block or host, and the part of it that it is in where it is nested.

    They are under ``nvlink``, or under labels whose keys end in ``/domain`` (``gpu.clique``) and ``/sub-domain``.
    """
    domain, part = (row.name("nvlink") if row.has("nvlink") else None), None
    for holder in ("annotations", "labels"):
        table = row.sub(holder) if row.has(holder) else None
        for key in table.names() if table is not None else ():
            if table is not None and domain is None and key.endswith(_DOMAINS):
                domain = table.name(key)
            elif table is not None and part is None and key.endswith("/sub-domain"):
                part = table.name(key)
    return domain, f"{domain}.{part}" if domain and part and not part.startswith(domain) else part


def _graph(source: Source, data: Fields) -> FabricFound:
    """Read the JSON of the graph engine."""
    below: dict[str, dict[str, None]] = {}
    hosts: dict[str, list[str]] = {}
    domains: dict[str, str] = {}
    inner: dict[str, str] = {}
    seen: set[str] = set()
    for row in data.subs("instances", empty=True):
        host, layers = row.name("id"), row.name_list("network_layers")
        if host in seen:
            raise InputError(f"{row.where}: duplicate host {host}.")
        seen.add(host)
        if not layers:
            raise InputError(f"{row.where}: host {host} has no network_layers.")
        hosts.setdefault(layers[0], []).append(host)
        for lower, upper in pairwise(layers):
            below.setdefault(upper, {})[lower] = None
        domain, part = _domain(row)
        domains.update({host: domain} if domain else {})
        inner.update({host: part} if part else {})
    children = {name: list(below.get(name, ())) for name in dict.fromkeys([*hosts, *below])}
    return _found(source, children, hosts, domains, inner)


def _found(
    source: Source,
    children: dict[str, list[str]],
    hosts: dict[str, list[str]],
    domains: dict[str, str],
    inner: dict[str, str],
) -> FabricFound:
    """Return the tree of switches with children and hosts."""
    rows = {
        name: SwitchRow(f"{source.name}: switch {name}", tuple(below), tuple(hosts.get(name, ())))
        for name, below in children.items()
    }
    return replace(tree_found(source, rows, domains), subdomains=inner)


FORMAT = Format("topograph", read_topograph, in_data=looks_like_topograph)
