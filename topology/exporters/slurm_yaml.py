"""Slurm's ``topology.yaml``: a tree of the hosts and switches, and blocks where domains hold several hosts.

Slurm's tree wants each host under one leaf. On rails a host is on several: the leaves that the same hosts share are
one switch of the tree, and so are the switches above them.
"""

from __future__ import annotations

from collections import defaultdict

from topology.cluster import Cluster
from topology.errors import InputError
from topology.importers.hostlist import compress_hosts

_LONGEST_NAME = 64
_OUT = ("leaf", "spine", "core", "router")


def slurm_topology_yaml(cluster: Cluster) -> str:
    """Return the topologies of ``cluster`` as YAML.

    Raises
    ------
    InputError
        If it has neither several domains on a fabric nor several hosts in a domain: there is nothing to say.
    """
    tree, blocks = _tree(cluster), _blocks(cluster)
    if not tree and not blocks:
        raise InputError(f"{cluster.name}: one host; a Slurm topology has nothing to say of it.")
    lines: list[str] = []
    if tree:
        lines += ["- topology: tree", "  cluster_default: true", "  tree:", "    switches:", *tree]
    if blocks:
        lines += ["- topology: block", f"  cluster_default: {str(not tree).lower()}", "  block:", *blocks]
    return "\n".join(lines) + "\n"


def _blocks(cluster: Cluster) -> list[str]:
    """Return one block for each domain, where some domain holds several hosts."""
    hosts: dict[int, dict[str, None]] = defaultdict(dict)
    for gpu in cluster.gpus:
        hosts[gpu.domain][gpu.node] = None
    sizes = [len(members) for members in hosts.values()]
    if max(sizes) < 2:
        return []
    lines = ["    block_sizes:", f"    - {min(sizes)}"]
    whole = min(sizes)
    while min(sizes) == max(sizes) and whole * 2 <= sum(sizes) and len(sizes) > 1:
        whole *= 2
        lines.append(f"    - {whole}")
    lines.append("    blocks:")
    for domain, members in hosts.items():
        lines += [f"    - block: d{domain}", f"      nodes: {_quoted(compress_hosts(members))}"]
    return lines


def _tree(cluster: Cluster) -> list[str]:
    """Return the switches of the tree, from the leaves up; none where no host is on a leaf."""
    graph = cluster.graph
    kinds: dict[str, str] = {node: data["kind"] for node, data in graph.nodes(data=True)}
    hubs = {
        node: data["node"] for node, data in graph.nodes(data=True) if data["kind"] in ("nic", "pcie", "host")
    }
    on: dict[str, set[str]] = defaultdict(set)
    for gpu in cluster.gpus:
        on[gpu.node] |= {leaf for leaf in graph[gpu.id] if kinds[leaf] in _OUT}
    for hub, host in hubs.items():
        if host is not None:
            on[host] |= {leaf for leaf in graph[hub] if kinds[leaf] in _OUT}
    groups: dict[frozenset[str], list[str]] = {}
    # a host that misses a NIC belongs with those that share the leaves it has
    for host in sorted(on, key=lambda name: -len(on[name])):
        leaves = frozenset(on[host])
        home = next((key for key in groups if leaves and leaves <= key), leaves)
        if leaves:
            groups.setdefault(home, []).append(host)
    order = {gpu.node: place for place, gpu in enumerate(cluster.gpus)}
    levels = [[(key, sorted(members, key=order.__getitem__)) for key, members in groups.items()]]
    levels[0].sort(key=lambda row: order[row[1][0]])
    return _rows(cluster, levels[0], kinds)


def _rows(
    cluster: Cluster, leaves: list[tuple[frozenset[str], list[str]]], kinds: dict[str, str]
) -> list[str]:
    """Return the lines of all switches: leaf sets, then the sets of switches above them, to one root."""
    graph = cluster.graph
    lines: list[str] = []
    below: dict[frozenset[str], tuple[str, set[str]]] = {}
    for number, (key, hosts) in enumerate(leaves):
        name = _name(key, f"leaf{number}")
        lines += [f"    - switch: {_quoted(name)}", f"      nodes: {_quoted(compress_hosts(hosts))}"]
        below[key] = (name, set(key))
    level, seen = 1, {switch for key in below for switch in key}
    while len(below) > 1:
        above: dict[frozenset[str], list[frozenset[str]]] = {}
        for key, (_, members) in below.items():
            up = frozenset(
                other
                for switch in members
                for other in graph[switch]
                if kinds[other] in _OUT and other not in seen
            )
            home = next((one for one in above if one & up), up)
            above.setdefault(home, []).append(key)
        if not any(above) or len(above) == len(below):
            above = {frozenset(): list(below)}
        seen |= {switch for key in above for switch in key}
        new: dict[frozenset[str], tuple[str, set[str]]] = {}
        for number, (key, children) in enumerate(above.items()):
            name = _name(key, f"level{level}-{number}")
            names = compress_hosts([below[child][0] for child in children])
            lines += [f"    - switch: {_quoted(name)}", f"      children: {_quoted(names)}"]
            new[key or frozenset({name})] = (name, set(key))
        below, level = new, level + 1
    return lines


def _name(switches: frozenset[str], fallback: str) -> str:
    """Return the name of the one switch, or a short one for a set of them."""
    if len(switches) == 1:
        name = next(iter(switches))
        if len(name) <= _LONGEST_NAME and not set(name) & set("[], "):
            return name
    return fallback


def _quoted(text: str) -> str:
    return f'"{text}"'
