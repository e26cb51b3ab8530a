"""NVIDIA topograph's simulation models, the JSON of its graph engine, and Kubernetes nodes with its labels.

Models: ``switches`` (children by name) and ``blocks`` or ``capacity_blocks`` of hosts, each under a leaf, with
the accelerator domain in an annotation. Graph JSON: per instance the switches above it, nearest first. Nodes
(``kubectl get nodes -o yaml``) have both as labels, and what their GPUs are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from topology.base.errors import InputError
from topology.base.reading import shown
from topology.base.schema import Name, Text, validated
from topology.base.units import plural
from topology.base.values import require_name
from topology.importers.found import FabricFound, Format
from topology.importers.gpu_names import GpuName, product
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source, entries, first_row
from topology.importers.tree import SwitchRow, parse_tree

_TIER = re.compile(r"fabric\.topograph\.run/tier-\d{1,2}")
_OLD_TIERS = tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core"))
_DOMAINS = ("/domain", "/accelerator", "gpu.clique")
_PRODUCTS = {"nvidia.com/gpu.product": "NVIDIA", "amd.com/gpu.product-name": "AMD"}


_Placed = tuple[str, dict[str, Any], str | None, list[str]]
"""A place in the file, what it says of hosts, the switch that they hang on (None: left out), and their names."""
_Below = dict[str, dict[str, None]]
"""The switches below each switch, in order."""


def looks_like_topograph(data: object) -> bool:
    """Whether data have the keys of a model or of the graph engine, or are labelled nodes."""
    if not isinstance(data, dict):
        return False
    nodes = data.get("items")
    if "network_layers" in first_row(data.get("instances")):
        return True
    if isinstance(nodes, list) and any(_tiers(_within(node, "metadata", "labels")) for node in nodes):
        return True
    return "switches" in data and ("blocks" in data or "capacity_blocks" in data)


def _within(node: object, *keys: str) -> Any:
    """Return what is under keys of mappings in each other, None where one lacks."""
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _tiers(labels: object) -> list[object]:
    """Return the switches above a node by its labels, nearest first."""
    if not isinstance(labels, dict):
        return []
    tiers = [key for key in labels if isinstance(key, str) and _TIER.fullmatch(key)]
    tiers.sort(key=lambda key: int(key.rpartition("-")[2]))
    return [labels[key] for key in (*tiers, *_OLD_TIERS) if key in labels]


def parse_topograph(source: Source) -> FabricFound:
    """Return switches, hosts and accelerator domains."""
    data = validated(dict[Text, Any], source.data, source.name)
    below: _Below = {}
    graph = data.get("items") is not None or data.get("instances") is not None
    places: dict[str, str] = {}
    hosts: dict[str, list[str]] = defaultdict(list)
    domains, subdomains = dict[str, str](), dict[str, str]()
    names: dict[GpuName, None] = {}
    for where, entry, switch, members in (_instances if graph else _blocks)(source, data, below):
        for host in members:
            if host in places:
                raise InputError(f"{where}: host {host} is in {places[host]} already.")
            places[host] = where
        domain, part = _domain(entry, where, names if switch else {})
        if switch is not None:
            hosts[switch] += members
            domains.update(dict.fromkeys(members, domain) if domain else {})
            subdomains.update(dict.fromkeys(members, part) if part else {})
    if not any(hosts.values()):
        raise source.error(None, "has no hosts under a switch; is the file truncated?")
    rows = {
        name: SwitchRow(f"{source.name}: switch {name}", tuple(below.get(name, ())), tuple(hosts[name]))
        for name in dict.fromkeys([*(hosts if graph else ()), *below])
    }
    return parse_tree(source, rows, domains=domains, subdomains=subdomains, gpu_names=tuple(names))


def _domain(entry: dict[str, Any], where: str, names: dict[GpuName, None]) -> tuple[str | None, str | None]:
    """Return the accelerator domain of hosts, and the part of it where it is nested; add what their GPUs are called.

    They are under ``nvlink``, or under labels whose keys end in ``/domain`` (``gpu.clique``) and ``/sub-domain``.
    """
    domain, part = validated(Name | None, entry.get("nvlink"), f"{where}: nvlink"), None
    for kind in ("annotations", "labels"):
        labels = validated(dict[Text, Any] | None, entry.get(kind), f"{where}: {kind}") or {}
        for key, value in labels.items():
            vendor = _PRODUCTS.get(key.removeprefix("beta."))
            if not vendor and not key.endswith(("/sub-domain", *_DOMAINS)):
                continue
            name = require_name(value, f"{where}: {key}")
            if key.endswith("/sub-domain"):
                part = part or name
            elif key.endswith(_DOMAINS):
                domain = domain or name
            elif vendor:
                names[product(name, vendor)] = None
    return domain, f"{domain}.{part}" if domain and part and not part.startswith(domain) else part


def _instances(source: Source, data: dict[str, Any], below: _Below) -> Iterator[_Placed]:
    """Yield the hosts of the graph engine's JSON or of Kubernetes nodes, and fill in the switches."""
    key, nodes = ("instances", False) if data.get("items") is None else ("items", True)
    for where, row in entries(data[key], f"{source.name}: {key}"):
        labels = _within(row, "metadata", "labels") if nodes else row.get("labels")
        layers = _tiers(labels) if nodes else row.get("network_layers")
        if not layers:
            if not nodes:
                raise InputError(f"{where}: host {shown(row.get('id'))} has no network_layers.")
            source.anomalies.append(f"{where}: no label names a switch for this node; left out.")
            continue
        name = require_name(_within(row, "metadata", "name") if nodes else row.get("id"), f"{where}: id")
        switches = validated(list[Name], layers, f"{where}: network_layers")
        for lower, upper in pairwise(switches):
            below.setdefault(upper, {})[lower] = None
        yield where, {"labels": labels} if nodes else row, switches[0], [name]


def _blocks(source: Source, data: dict[str, Any], below: _Below) -> Iterator[_Placed]:
    """Yield the hosts of a model, and fill in the switches."""
    place, rows, of_block = f"{source.name}: switches", data.get("switches"), dict[str, str]()
    if isinstance(rows, list):
        named = [(require_name(row.get("name"), f"{at}: name"), row) for at, row in entries(rows, place)]
    else:
        table = validated(dict[Text, dict[Text, Any] | None], rows, place)
        named = [(name, row or {}) for name, row in table.items()]
    for name, row in named:
        at = f"{place}: {name}"
        below[name] = dict.fromkeys(validated(list[Name] | None, row.get("switches"), at) or ())
        blocks = validated(list[Name] | None, row.get("capacity_blocks"), at) or ()
        of_block.update(dict.fromkeys(blocks, name))
    for name in [name for members in below.values() for name in members]:
        below.setdefault(name, {})
    for key in ("blocks", "capacity_blocks"):
        for where, block in entries(data.get(key), f"{source.name}: {key}"):
            nodes = validated(list[Name] | None, block.get("nodes"), f"{where}: nodes") or ()
            hosts = [host for text in nodes for host in expand_hosts(text, f"{where}: nodes")]
            switch = validated(Name | None, block.get("switch"), f"{where}: switch")
            switch = switch or of_block.get(str(block.get("name")))
            if switch is None:
                source.anomalies.append(f"{where}: {plural(len(hosts), 'host')} without a switch; left out.")
            elif switch not in below:
                raise InputError(f"{where}: switch {switch} is not among `switches`.")
            yield where, block, switch, hosts


FORMAT = Format("topograph", parse_topograph, in_data=looks_like_topograph)
