"""NVIDIA topograph's simulation models, the JSON of its graph engine, and Kubernetes nodes with its labels.

Models: ``switches`` (children by name) and ``blocks`` or ``capacity_blocks`` of hosts, each under a leaf, with
the accelerator domain in an annotation. Graph JSON: per instance the switches above it, nearest first. Nodes
(``kubectl get nodes -o yaml``) have both as labels, and what their GPUs are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.base.units import plural
from topology.importers.found import FabricFound, Format
from topology.importers.gpu_names import GpuName, product
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source
from topology.importers.tree import SwitchRow, parse_tree

_TIER = re.compile(r"fabric\.topograph\.run/tier-\d{1,2}")
_OLD_TIERS = tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core"))
_DOMAINS = ("/domain", "/accelerator", "gpu.clique")
_PRODUCTS = {"nvidia.com/gpu.product": "NVIDIA", "amd.com/gpu.product-name": "AMD"}


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
    for key in ("metadata", "labels"):
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


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

    def add(self, row: Fields, switch: str | None, hosts: Iterable[str]) -> None:
        """Add the hosts of a block or instance below a switch (None: left out)."""
        for host in hosts:
            if host in self.seen:
                raise InputError(f"{row.where}: host {host} is in {self.seen[host]} already.")
            self.seen[host] = row.where
        if switch is not None:
            self.hosts.setdefault(switch, []).extend(hosts)
            domain, part = self._domain(row)
            self.domains.update(dict.fromkeys(hosts, domain) if domain else {})
            self.subdomains.update(dict.fromkeys(hosts, part) if part else {})

    def _domain(self, row: Fields) -> tuple[str | None, str | None]:
        """Return the accelerator domain of a block or host, and the part of it where it is nested.

        They are under ``nvlink``, or under labels whose keys end in ``/domain`` (``gpu.clique``) and ``/sub-domain``.
        """
        domain, part = (row.name("nvlink") if row.has("nvlink") else None), None
        for table in [row.sub(holder) for holder in ("annotations", "labels") if row.has(holder)]:
            for key in table.names():
                if key.endswith("/sub-domain"):
                    part = part or table.name(key)
                elif key.endswith(_DOMAINS):
                    domain = domain or table.name(key)
                elif vendor := _PRODUCTS.get(key.removeprefix("beta.")):
                    self.gpu_names[product(table.name(key), vendor)] = None
        return domain, f"{domain}.{part}" if domain and part and not part.startswith(domain) else part


def parse_topograph(source: Source) -> FabricFound:
    """Return switches, hosts and accelerator domains."""
    data = source.fields()
    if data.has("items"):
        data = Fields({"instances": _instances(source, data)}, source.name)
    model = _graph(data) if data.has("instances") else _simulated(source, data)
    rows = {
        name: SwitchRow(f"{source.name}: switch {name}", tuple(below), tuple(model.hosts.get(name, ())))
        for name, below in model.children.items()
    }
    names = tuple(model.gpu_names)
    return parse_tree(source, rows, domains=model.domains, subdomains=model.subdomains, gpu_names=names)


def _instances(source: Source, data: Fields) -> list[dict[str, object]]:
    """Return Kubernetes nodes as the graph engine writes them."""
    rows: list[dict[str, object]] = []
    for node in data.subs("items", empty=True):
        labels = _labels(node.data)
        if tiers := _tiers(labels):
            name = node.sub("metadata").name("name")
            rows.append({"id": name, "network_layers": tiers, "labels": labels})
        else:
            source.anomalies.append(f"{node.where}: no label names a switch above this node; left out.")
    return rows


def _simulated(source: Source, data: Fields) -> _Model:
    """Read a model."""
    children, named_blocks = _switches(data)
    model = _Model(children)
    for block in [*data.subs("blocks", empty=True), *data.subs("capacity_blocks", empty=True)]:
        hosts = [host for text in block.name_list("nodes") for host in expand_hosts(text, block.at("nodes"))]
        switch = block.name("switch") if block.has("switch") else named_blocks.get(str(block.get("name")))
        if switch is not None and switch not in children:
            raise InputError(f"{block.where}: switch {switch} is not among `switches`.")
        if switch is None:
            source.anomalies.append(f"{block.where}: {plural(len(hosts), 'host')} under no switch; left out.")
        model.add(block, switch, hosts)
    if not any(model.hosts.values()):
        raise source.error(None, "its blocks have no hosts under a switch; is the file cut?")
    return model


def _switches(data: Fields) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the children of each switch, and the switch of each capacity block it names."""
    blocks: dict[str, str] = {}
    if isinstance(data.need("switches"), list):
        rows = {row.name("name"): row for row in data.subs("switches", empty=True)}
        blocks = {block: name for name, row in rows.items() for block in row.name_list("capacity_blocks")}
    else:
        table = data.sub("switches")
        rows = {name: Fields(table.get(name) or {}, table.at(name)) for name in table.names()}
    children = {name: row.name_list("switches") for name, row in rows.items()}
    for below in list(children.values()):
        for name in below:
            children.setdefault(name, [])
    return children, blocks


def _graph(data: Fields) -> _Model:
    """Read the JSON of the graph engine."""
    model, below = _Model(), dict[str, dict[str, None]]()
    for row in data.subs("instances", empty=True):
        host, layers = row.name("id"), row.name_list("network_layers")
        if not layers:
            raise InputError(f"{row.where}: host {host} has no network_layers.")
        model.add(row, layers[0], [host])
        for lower, upper in pairwise(layers):
            below.setdefault(upper, {})[lower] = None
    model.children = {name: list(below.get(name, ())) for name in dict.fromkeys([*model.hosts, *below])}
    return model


FORMAT = Format("topograph", parse_topograph, in_data=looks_like_topograph)
