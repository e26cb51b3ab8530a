"""Slurm's ``topology.yaml`` and topograph's model: hosts, switches and domains.

A tree wants each host under one leaf. On rails a host is on several: the leaves that the same hosts share are one
switch of the tree, and so are the switches above them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from topology.base.errors import InputError
from topology.cluster import Cluster
from topology.importers.hostlist import compress_hosts

_MAX_NAME_CHARACTERS = 64
_SWITCH_KINDS = ("leaf", "spine", "core", "router")


@dataclass(frozen=True)
class Switch:
    """A switch of a tree: the hosts below it, or the switches."""

    name: str
    hosts: Sequence[str] = ()
    below: Sequence[str] = ()


def slurm_topology_yaml(cluster: Cluster) -> str:
    """Return the topologies of ``cluster`` as YAML.

    Raises
    ------
    InputError
        If it has neither several domains on a fabric nor several hosts in a domain: there is nothing to say.
    """
    tree, blocks = switch_tree(cluster), _hosts_by_domain(cluster)
    blocks = blocks if max(map(len, blocks.values())) > 1 else {}
    if not tree and not blocks:
        raise InputError(f"{cluster.name}: a single host has no Slurm topology.")
    lines: list[str] = []
    if tree:
        lines += ["- topology: tree", "  cluster_default: true", "  tree:", "    switches:"]
        for switch in tree:
            key, names = ("nodes", switch.hosts) if switch.hosts else ("children", switch.below)
            lines += [
                f"    - switch: {_quoted(switch.name)}",
                f"      {key}: {_quoted(compress_hosts(names))}",
            ]
    if blocks:
        lines += ["- topology: block", f"  cluster_default: {str(not tree).lower()}", "  block:"]
        lines += ["    block_sizes:", *(f"    - {size}" for size in _block_sizes(blocks)), "    blocks:"]
        for domain, members in blocks.items():
            lines += [f"    - block: d{domain}", f"      nodes: {_quoted(compress_hosts(members))}"]
    return "\n".join(lines) + "\n"


def topograph_model(cluster: Cluster) -> str:
    """Return hosts, switches and accelerator domains as a model of topograph, which its simulated providers read.

    A domain of several hosts is an accelerator domain; a switch of the tree has a block for each of its domains.
    """
    domain_of = {gpu.node: gpu.domain for gpu in cluster.gpus}
    blocks = _hosts_by_domain(cluster)
    wide = max(map(len, blocks.values())) > 1
    tree = switch_tree(cluster) or [Switch("switch0", list(domain_of))]
    lines = [f"# Supported block sizes: {', '.join(map(str, _block_sizes(blocks)))}", "switches:"]
    for switch in reversed(tree):
        lines.append(f"  {_quoted(switch.name)}:{'' if switch.below else ' {}'}")
        if switch.below:
            lines += ["    switches:", *(f"    - {_quoted(name)}" for name in switch.below)]
    lines.append("blocks:")
    for switch in tree:
        runs = groupby(switch.hosts, key=domain_of.__getitem__ if wide else lambda _: 0)
        for domain, members in runs:
            names = compress_hosts(members)
            lines += [f"- switch: {_quoted(switch.name)}", f"  nodes: [{_quoted(names)}]"]
            if wide:
                lines += ["  annotations:", f"    accelerator.topology.test/domain: d{domain}"]
    return "\n".join(lines) + "\n"


def _hosts_by_domain(cluster: Cluster) -> dict[int, dict[str, None]]:
    """Return the hosts of each domain, in order."""
    hosts: dict[int, dict[str, None]] = defaultdict(dict)
    for gpu in cluster.gpus:
        hosts[gpu.domain][gpu.node] = None
    return dict(hosts)


def _block_sizes(blocks: dict[int, dict[str, None]]) -> list[int]:
    """Return the block sizes that Slurm may plan with: the smallest domain, then doubled while blocks are enough.

    As topograph has them (pkg/translate/block.go). Of unequal domains only the base: larger sizes would count
    hosts that are not there.
    """
    sizes = [len(members) for members in blocks.values()]
    doubled = [min(sizes)]
    while min(sizes) == max(sizes) and doubled[-1] * 2 <= sum(sizes) and len(sizes) > 1:
        doubled.append(doubled[-1] * 2)
    return doubled


def switch_tree(cluster: Cluster) -> list[Switch]:
    """Return the switches of the tree, from the leaves up; none where no host is on a leaf."""
    graph = cluster.graph
    kinds: dict[str, str] = {node: data["kind"] for node, data in graph.nodes(data=True)}
    on: dict[str, set[str]] = {gpu.node: set() for gpu in cluster.gpus}
    for node, data in graph.nodes(data=True):
        if data["kind"] in ("gpu", "nic", "pcie", "host") and data["node"] in on:
            on[data["node"]] |= {leaf for leaf in graph[node] if kinds[leaf] in _SWITCH_KINDS}
    groups: dict[frozenset[str], list[str]] = {}
    # a host that misses a NIC belongs with those that share the leaves it has
    for host in sorted(on, key=lambda name: -len(on[name])):
        leaves = frozenset(on[host])
        home = next((key for key in groups if leaves and leaves <= key), leaves)
        if leaves:
            groups.setdefault(home, []).append(host)
    order = {host: place for place, host in enumerate(on)}
    rows = [(key, sorted(members, key=order.__getitem__)) for key, members in groups.items()]
    return _rows(cluster, sorted(rows, key=lambda row: order[row[1][0]]), kinds)


def _rows(
    cluster: Cluster, leaves: list[tuple[frozenset[str], list[str]]], kinds: dict[str, str]
) -> list[Switch]:
    """Return all switches: leaf sets, then the sets of switches above them, to one root."""
    graph = cluster.graph
    switches: list[Switch] = []
    below: dict[frozenset[str], str] = {}
    for number, (key, hosts) in enumerate(leaves):
        below[key] = _name(key, f"leaf{number}")
        switches.append(Switch(below[key], hosts))
    level, placed = 1, {switch for key in below for switch in key}
    while len(below) > 1:
        above: dict[frozenset[str], list[frozenset[str]]] = {}
        for key in below:
            beside = {neighbour for switch in key for neighbour in graph[switch]} - placed
            up = frozenset(neighbour for neighbour in beside if kinds[neighbour] in _SWITCH_KINDS)
            home = next((group for group in above if group & up), up)
            above.setdefault(home, []).append(key)
        if not any(above) or len(above) == len(below):
            above = {frozenset(): list(below)}
        placed |= {switch for key in above for switch in key}
        names = {key: _name(key, f"level{level}-{number}") for number, key in enumerate(above)}
        for key, children in above.items():
            switches.append(Switch(names[key], below=[below[child] for child in children]))
        below, level = names, level + 1
    return switches


def _name(switches: frozenset[str], fallback: str) -> str:
    """Return the name of the one switch, or a short one for a set of them."""
    if len(switches) == 1:
        name = next(iter(switches))
        if len(name) <= _MAX_NAME_CHARACTERS and not set(name) & set("[], "):
            return name
    return fallback


def _quoted(text: str) -> str:
    return f'"{text}"'
