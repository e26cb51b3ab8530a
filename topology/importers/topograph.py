"""NVIDIA topograph's simulation models, the JSON of its graph engine, and Kubernetes nodes with its labels.

Models: ``switches`` (children by name) and ``blocks`` or ``capacity_blocks`` of hosts, each under a leaf, with
the accelerator domain in an annotation. Graph JSON: per instance the switches above it, nearest first. Nodes
(``kubectl get nodes -o yaml``) have both as labels, and what their GPUs are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from topology.base.errors import InputError
from topology.base.schema import Name, Text, validated
from topology.base.units import plural
from topology.base.values import require_name
from topology.importers.found import FabricFound, Format
from topology.importers.gpu_names import GpuName, product
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source
from topology.importers.tree import SwitchRow, parse_tree

_TIER = re.compile(r"fabric\.topograph\.run/tier-\d{1,2}")
_OLD_TIERS = tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core"))
_DOMAINS = ("/domain", "/accelerator", "gpu.clique")
_PRODUCTS = {"nvidia.com/gpu.product": "NVIDIA", "amd.com/gpu.product-name": "AMD"}


class _Hosts(BaseModel):
    """Hosts of one place: one instance, or those of a block below a switch."""

    nvlink: Name | None = None
    annotations: dict[Text, Any] | None = None
    labels: dict[Text, Any] | None = None


class _Instance(_Hosts):
    id: Name
    network_layers: list[Name] | None = None


class _Block(_Hosts):
    nodes: list[Name] | None = None
    switch: Name | None = None
    name: Any = None


class _Switch(BaseModel):
    switches: list[Name] | None = None


class _NamedSwitch(_Switch):
    name: Name
    capacity_blocks: list[Name] | None = None


class _File(BaseModel):
    items: list[Any] | None = None
    instances: list[_Instance] | None = None
    switches: Any = None
    blocks: list[_Block] | None = None
    capacity_blocks: list[_Block] | None = None


_Placed = tuple[str, _Hosts, str | None, Sequence[str]]
"""A place in the file, what it says of hosts, the switch that they hang on (None: left out), and their names."""


def looks_like_topograph(data: object) -> bool:
    """Whether data have the keys of a model or of the graph engine, or are labelled nodes."""
    if not isinstance(data, dict):
        return False
    rows, nodes = data.get("instances"), data.get("items")
    if isinstance(rows, list) and rows and isinstance(rows[0], dict) and "network_layers" in rows[0]:
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
    data = validated(_File, source.data, source.name)
    instances = data.instances if data.items is None else _nodes(source, data.items)
    children: dict[str, dict[str, None]] = {}
    placed = _blocks(source, data, children) if instances is None else _instances(source, instances, children)
    places: dict[str, str] = {}
    hosts: dict[str, list[str]] = defaultdict(list)
    domains, subdomains = dict[str, str](), dict[str, str]()
    names: dict[GpuName, None] = {}
    for where, said, switch, some in placed:
        for host in some:
            if host in places:
                raise InputError(f"{where}: host {host} is in {places[host]} already.")
            places[host] = where
        if switch is not None:
            hosts[switch] += some
            domain, part = _domain(said, where, names)
            domains.update(dict.fromkeys(some, domain) if domain else {})
            subdomains.update(dict.fromkeys(some, part) if part else {})
    if not any(hosts.values()):
        raise source.error(None, "has no hosts under a switch; is the file truncated?")
    rows = {
        name: SwitchRow(f"{source.name}: switch {name}", tuple(below), tuple(hosts[name]))
        for name, below in children.items()
    }
    return parse_tree(source, rows, domains=domains, subdomains=subdomains, gpu_names=tuple(names))


def _domain(said: _Hosts, where: str, names: dict[GpuName, None]) -> tuple[str | None, str | None]:
    """Return the accelerator domain of hosts, and the part of it where it is nested; add what their GPUs are called.

    They are under ``nvlink``, or under labels whose keys end in ``/domain`` (``gpu.clique``) and ``/sub-domain``.
    """
    domain, part = said.nvlink, None
    for key, value in [*(said.annotations or {}).items(), *(said.labels or {}).items()]:
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


def _nodes(source: Source, nodes: Sequence[object]) -> list[_Instance]:
    """Return Kubernetes nodes as the graph engine writes them."""
    rows: list[_Instance] = []
    for number, node in enumerate(nodes):
        labels, where = _within(node, "metadata", "labels"), f"{source.name}: items[{number}]"
        if tiers := _tiers(labels):
            name = require_name(_within(node, "metadata", "name"), f"{where}: metadata: name")
            rows.append(validated(_Instance, {"id": name, "network_layers": tiers, "labels": labels}, where))
        else:
            source.anomalies.append(f"{where}: no label names a switch for this node; left out.")
    return rows


def _instances(
    source: Source, instances: Sequence[_Instance], children: dict[str, dict[str, None]]
) -> Iterator[_Placed]:
    """Yield the hosts of the graph engine's JSON, and fill in the switches."""
    leaves = dict.fromkeys(row.network_layers[0] for row in instances if row.network_layers)
    children.update((name, {}) for name in leaves)
    for number, row in enumerate(instances):
        where = f"{source.name}: instances[{number}]"
        if not row.network_layers:
            raise InputError(f"{where}: host {row.id} has no network_layers.")
        for lower, upper in pairwise(row.network_layers):
            children.setdefault(upper, {})[lower] = None
        yield where, row, row.network_layers[0], [row.id]


def _blocks(source: Source, data: _File, children: dict[str, dict[str, None]]) -> Iterator[_Placed]:
    """Yield the hosts of a model, and fill in the switches."""
    where, of_block = f"{source.name}: switches", dict[str, str]()
    if isinstance(data.switches, list):
        for named in validated(list[_NamedSwitch], data.switches, where):
            children[named.name] = dict.fromkeys(named.switches or ())
            of_block.update(dict.fromkeys(named.capacity_blocks or (), named.name))
    else:
        table: Mapping[str, _Switch | None] = validated(dict[Text, _Switch | None], data.switches, where)
        children.update(
            (name, dict.fromkeys(row.switches or () if row else ())) for name, row in table.items()
        )
    for name in [name for below in children.values() for name in below]:
        children.setdefault(name, {})
    for key, rows in (("blocks", data.blocks), ("capacity_blocks", data.capacity_blocks)):
        for number, block in enumerate(rows or ()):
            where = f"{source.name}: {key}[{number}]"
            hosts = [host for text in block.nodes or () for host in expand_hosts(text, f"{where}: nodes")]
            switch = block.switch or of_block.get(str(block.name))
            if switch is None:
                source.anomalies.append(f"{where}: {plural(len(hosts), 'host')} without a switch; left out.")
            elif switch not in children:
                raise InputError(f"{where}: switch {switch} is not among `switches`.")
            yield where, block, switch, hosts


FORMAT = Format("topograph", parse_topograph, in_data=looks_like_topograph)
