"""NVIDIA topograph's simulation models, the JSON of its graph engine, and Kubernetes nodes with its labels.

Models: ``switches`` (children by name) and ``blocks`` or ``capacity_blocks`` of hosts, each under a leaf, with
the accelerator domain in an annotation. Graph JSON: per instance the switches above it, nearest first. Nodes
(``kubectl get nodes -o yaml``) have both as labels, and what their GPUs are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


class _Row(BaseModel):
    nvlink: Name | None = None
    annotations: dict[Text, Any] | None = None
    labels: dict[Text, Any] | None = None


class _Instance(_Row):
    id: Name
    network_layers: list[Name] | None = None


class _Block(_Row):
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


def looks_like_topograph(data: object) -> bool:
    """Whether data have the keys of a model or of the graph engine, or are labelled nodes."""
    if not isinstance(data, dict):
        return False
    rows, nodes = data.get("instances"), data.get("items")
    if isinstance(rows, list) and rows and isinstance(rows[0], dict) and "network_layers" in rows[0]:
        return True
    if isinstance(nodes, list) and any(_tiers(_labels(node)) for node in nodes):
        return True
    return "switches" in data and ("blocks" in data or "capacity_blocks" in data)


def _labels(node: object) -> Mapping[object, object]:
    """Return the labels of a Kubernetes node, none of anything else."""
    labels = _within(node, "metadata", "labels")
    return labels if isinstance(labels, dict) else {}


def _within(node: object, *keys: str) -> object:
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _tiers(labels: Mapping[object, object]) -> list[object]:
    """Return the switches above a node by its labels, nearest first."""
    tiers = [key for key in labels if isinstance(key, str) and _TIER.fullmatch(key)]
    tiers.sort(key=lambda key: int(key.rpartition("-")[2]))
    return [labels[key] for key in (*tiers, *_OLD_TIERS) if key in labels]


@dataclass
class _Model:
    """Switches with children and hosts, and the accelerator domain of each host and the part of it that it is in."""

    children: dict[str, list[str]] = field(default_factory=dict)
    hosts: dict[str, list[str]] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    subdomains: dict[str, str] = field(default_factory=dict)
    gpu_names: dict[GpuName, None] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)

    def add(self, row: _Row, where: str, switch: str | None, hosts: Sequence[str]) -> None:
        """Add the hosts of a block or instance, at ``where``, below a switch (None: left out)."""
        for host in hosts:
            if host in self.seen:
                raise InputError(f"{where}: host {host} is in {self.seen[host]} already.")
            self.seen[host] = where
        if switch is not None:
            self.hosts.setdefault(switch, []).extend(hosts)
            domain, part = self._domain(row, where)
            self.domains.update(dict.fromkeys(hosts, domain) if domain else {})
            self.subdomains.update(dict.fromkeys(hosts, part) if part else {})

    def _domain(self, row: _Row, where: str) -> tuple[str | None, str | None]:
        """Return the accelerator domain of a block or host, and the part of it where it is nested.

        They are under ``nvlink``, or under labels whose keys end in ``/domain`` (``gpu.clique``) and ``/sub-domain``.
        """
        domain, part = row.nvlink, None
        for key, value in [*(row.annotations or {}).items(), *(row.labels or {}).items()]:
            vendor = _PRODUCTS.get(key.removeprefix("beta."))
            if not vendor and not key.endswith(("/sub-domain", *_DOMAINS)):
                continue
            name = require_name(value, f"{where}: {key}")
            if key.endswith("/sub-domain"):
                part = part or name
            elif key.endswith(_DOMAINS):
                domain = domain or name
            elif vendor:
                self.gpu_names[product(name, vendor)] = None
        return domain, f"{domain}.{part}" if domain and part and not part.startswith(domain) else part


def parse_topograph(source: Source) -> FabricFound:
    """Return switches, hosts and accelerator domains."""
    data = validated(_File, source.data, source.name)
    if data.items is not None:
        model = _graph(source, _instances(source, data.items))
    else:
        model = _simulated(source, data) if data.instances is None else _graph(source, data.instances)
    rows = {
        name: SwitchRow(f"{source.name}: switch {name}", tuple(below), tuple(model.hosts.get(name, ())))
        for name, below in model.children.items()
    }
    names = tuple(model.gpu_names)
    return parse_tree(source, rows, domains=model.domains, subdomains=model.subdomains, gpu_names=names)


def _instances(source: Source, nodes: Sequence[object]) -> list[_Instance]:
    """Return Kubernetes nodes as the graph engine writes them."""
    rows: list[_Instance] = []
    for number, node in enumerate(nodes):
        labels, where = _labels(node), f"{source.name}: items[{number}]"
        if tiers := _tiers(labels):
            name = require_name(_within(node, "metadata", "name"), f"{where}: metadata: name")
            rows.append(validated(_Instance, {"id": name, "network_layers": tiers, "labels": labels}, where))
        else:
            source.anomalies.append(f"{where}: no label names a switch for this node; left out.")
    return rows


def _simulated(source: Source, data: _File) -> _Model:
    """Read a model."""
    where = f"{source.name}: switches"
    if isinstance(data.switches, list):
        named = {row.name: row for row in validated(list[_NamedSwitch], data.switches, where)}
        switches: dict[str, _Switch] = {**named}
        of_block = {block: name for name, row in named.items() for block in row.capacity_blocks or ()}
    else:
        table = validated(dict[Text, _Switch | None], data.switches, where)
        switches, of_block = {name: row or _Switch() for name, row in table.items()}, {}
    children = {name: list(row.switches or ()) for name, row in switches.items()}
    for below in list(children.values()):
        for name in below:
            children.setdefault(name, [])
    model = _Model(children)
    for key, rows in (("blocks", data.blocks), ("capacity_blocks", data.capacity_blocks)):
        for number, block in enumerate(rows or ()):
            where = f"{source.name}: {key}[{number}]"
            hosts = [host for text in block.nodes or () for host in expand_hosts(text, f"{where}: nodes")]
            switch = block.switch or of_block.get(str(block.name))
            if switch is not None and switch not in children:
                raise InputError(f"{where}: switch {switch} is not among `switches`.")
            if switch is None:
                source.anomalies.append(f"{where}: {plural(len(hosts), 'host')} without a switch; left out.")
            model.add(block, where, switch, hosts)
    if not any(model.hosts.values()):
        raise source.error(None, "its blocks have no hosts under a switch; is the file truncated?")
    return model


def _graph(source: Source, instances: Sequence[_Instance]) -> _Model:
    """Read the JSON of the graph engine."""
    model, below = _Model(), dict[str, dict[str, None]]()
    for number, row in enumerate(instances):
        where = f"{source.name}: instances[{number}]"
        if not row.network_layers:
            raise InputError(f"{where}: host {row.id} has no network_layers.")
        model.add(row, where, row.network_layers[0], [row.id])
        for lower, upper in pairwise(row.network_layers):
            below.setdefault(upper, {})[lower] = None
    model.children = {name: list(below.get(name, ())) for name in dict.fromkeys([*model.hosts, *below])}
    return model


FORMAT = Format("topograph", parse_topograph, in_data=looks_like_topograph)
