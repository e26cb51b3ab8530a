"""Slurm's ``topology.conf`` and ``topology.yaml``: trees of switches, blocks of hosts, rings and flat lists.

Both name hosts and switches alone: GPUs, rates and how many links a switch has come from elsewhere.
"""

from __future__ import annotations

import re

from topology.importers.data import Data, load_data
from topology.importers.found import FabricFound
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source
from topology.importers.tree import SwitchRow, tree_found
from topology.reading import shown

CONF = "slurm-conf"
YAML = "slurm-yaml"
_PAIR = re.compile(r"(\w+)\s*=\s*(\S+)")
_FIRST = re.compile(r"^\s*(SwitchName|BlockName|RingName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)
_KEYS = ("switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes", "ringname")
_LONGEST_RING = 16


def looks_like_slurm_conf(text: str) -> bool:
    """Whether a text has a line that only ``topology.conf`` has."""
    return _FIRST.search(text) is not None


def looks_like_slurm_yaml(data: object) -> bool:
    """Whether data are a list of topologies."""
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and "topology" in data[0]


def read_slurm_conf(source: Source) -> FabricFound:
    """Return what a ``topology.conf`` says.

    Raises
    ------
    InputError
        If a line cannot be read, a name is there twice, or switches and blocks are mixed.
    """
    switches: dict[str, SwitchRow] = {}
    blocks: dict[str, tuple[int, list[str]]] = {}
    notes: list[str] = []
    for number, line in _joined(source):
        pairs = _pairs(source, number, line)
        first = next(iter(pairs))
        where = f"{source.name}: line {number}"
        if first == "blocksizes":
            notes.append(f"BlockSizes {pairs['blocksizes']}.")
        elif first == "switchname":
            _switch(source, number, pairs, switches)
        elif first in ("blockname", "ringname"):
            name = pairs[first]
            if name in blocks:
                raise source.error(number, f"{name} is there twice (first in line {blocks[name][0]}).")
            blocks[name] = (number, expand_hosts(pairs["nodes"], where) if "nodes" in pairs else [])
            if first == "ringname":
                notes.append(f"Ring {name}: an order of its hosts for scheduling; it says nothing of cables.")
        else:
            raise source.error(
                number, f"a line begins with SwitchName, BlockName, RingName or BlockSizes, not {first}."
            )
    if switches and blocks:
        raise source.error(
            None, "has switches and blocks in one file; Slurm reads one kind. Split it in two."
        )
    if switches:
        if any("linkspeed" in _pairs(source, n, line) for n, line in _joined(source)):
            notes.append("LinkSpeed is not used: Slurm leaves its unit open.")
        return tree_found(source, CONF, switches, notes=(*_counted(switches), *notes))
    return _blocks(
        source,
        CONF,
        {name: (f"{source.name}: line {n}", n, hosts) for name, (n, hosts) in blocks.items()},
        notes,
    )


def read_slurm_yaml(source: Source, topology: str | None = None) -> FabricFound:
    """Return what one topology of a ``topology.yaml`` says: the one named, else the default, else the only one.

    Raises
    ------
    InputError
        If keys are missing or of the wrong kind, or it is not clear which topology is meant.
    """
    rows = [
        Data(item, f"{source.name}: topology {i + 1}") for i, item in enumerate(load_data(source).top_list())
    ]
    names = [row.text("topology") for row in rows]
    if len(set(names)) != len(names):
        raise source.error(
            None, f"topology {shown(next(n for n in names if names.count(n) > 1))} is there twice."
        )
    row = rows[_chosen(source, rows, names, topology)]
    notes = [f"Topology {row.text('topology')}."]
    if len(rows) > 1:
        others = [name for name in names if name != row.text("topology")]
        notes.append(f"Left out: {', '.join(others)} (--topology NAME takes another).")
    kinds = [kind for kind in ("tree", "block", "ring", "torus3d", "flat") if row.has(kind)]
    if len(kinds) != 1:
        raise source.error(
            None, f"topology {row.text('topology')} needs exactly one of tree, block, ring, torus3d, flat."
        )
    return _of_kind(source, row, kinds[0], notes)


def _of_kind(source: Source, row: Data, kind: str, notes: list[str]) -> FabricFound:
    """Return what one topology of a given kind says."""
    if kind == "tree":
        switches: dict[str, SwitchRow] = {}
        for item in row.sub("tree").subs("switches"):
            name = item.text("switch")
            if name in switches:
                raise source.error(None, f"{item.where}: switch {name} is there twice.")
            children = tuple(expand_hosts(item.text("children"), item.where)) if item.has("children") else ()
            hosts = tuple(expand_hosts(item.text("nodes"), item.where)) if item.has("nodes") else ()
            switches[name] = SwitchRow(item.where, None, children, hosts)
        return tree_found(source, YAML, switches, notes=(*_counted(switches), *notes))
    if kind == "block":
        block = row.sub("block")
        sizes = block.get("block_sizes")
        if isinstance(sizes, list):
            notes.append(f"Block sizes {', '.join(str(size)[:12] for size in sizes[:8])}.")
        blocks: dict[str, tuple[str, int | None, list[str]]] = {}
        for item in block.subs("blocks"):
            name = item.text("block")
            if name in blocks:
                raise source.error(None, f"{item.where}: block {name} is there twice.")
            hosts_ = expand_hosts(item.text("nodes"), item.where) if item.has("nodes") else []
            blocks[name] = (item.where, None, hosts_)
        return _blocks(source, YAML, blocks, notes)
    hosts_of = {
        host: row.where for text in _node_lists(row.get(kind)) for host in expand_hosts(text, row.where)
    }
    if not hosts_of:
        raise source.error(
            None, f"topology {row.text('topology')} is {kind}: it names no hosts and no switches."
        )
    notes.append(f"A {kind} topology names hosts and no switches.")
    return FabricFound(source.name, YAML, hosts_of, notes=tuple(notes))


def _chosen(source: Source, rows: list[Data], names: list[str], topology: str | None) -> int:
    """Return the number of the topology to read."""
    if topology is not None:
        if topology not in names:
            raise source.error(None, f"--topology {topology}: the file has {', '.join(names)}.")
        return names.index(topology)
    default = [i for i, row in enumerate(rows) if row.get("cluster_default") is True]
    if default:
        return default[0]
    if len(rows) == 1:
        return 0
    raise source.error(
        None, f"has {len(rows)} topologies and no default: give --topology, one of {', '.join(names)}."
    )


def _switch(source: Source, number: int, pairs: dict[str, str], switches: dict[str, SwitchRow]) -> None:
    """Add one ``SwitchName`` line."""
    where = f"{source.name}: line {number}"
    if "switches" not in pairs and "nodes" not in pairs:
        raise source.error(
            number, f"switch {pairs['switchname']} has neither Nodes nor Switches; is the line cut?"
        )
    children = tuple(expand_hosts(pairs["switches"], where)) if "switches" in pairs else ()
    hosts = tuple(expand_hosts(pairs["nodes"], where)) if "nodes" in pairs else ()
    for name in expand_hosts(pairs["switchname"], where):
        if name in switches:
            raise source.error(number, f"switch {name} is there twice (first in line {switches[name].line}).")
        switches[name] = SwitchRow(where, number, children, hosts)


def _blocks(
    source: Source, kind: str, blocks: dict[str, tuple[str, int | None, list[str]]], notes: list[str]
) -> FabricFound:
    """Return hosts and the block each is in."""
    hosts: dict[str, str] = {}
    domains: dict[str, str] = {}
    anomalies = []
    for name, (where, line, members) in blocks.items():
        if not members:
            anomalies.append(f"{where}: block {name} has no hosts (a placeholder).")
        for host in members:
            if host in domains:
                raise source.error(line, f"host {host} is in block {name}, and in {domains[host]} already.")
            hosts[host], domains[host] = where, name
    if not hosts:
        raise source.error(None, "its blocks have no hosts; is the file cut?")
    sizes = {name: len(members) for name, (_, _, members) in blocks.items() if members}
    usual = max(set(sizes.values()), key=list(sizes.values()).count)
    if list(sizes.values()).count(usual) > len(sizes) / 2:
        anomalies += [
            f"{blocks[name][0]}: block {name} has {size} hosts, most blocks have {usual}."
            for name, size in sizes.items()
            if size != usual
        ]
    notes.insert(0, f"{len(sizes)} blocks, {len(hosts)} hosts.")
    return FabricFound(
        source.name, kind, hosts, domains=domains, blocks=True, notes=tuple(notes), anomalies=tuple(anomalies)
    )


def _counted(switches: dict[str, SwitchRow]) -> list[str]:
    hosts = {host for row in switches.values() for host in row.hosts}
    return [f"{len(switches)} switches, {len(hosts)} hosts."]


def _joined(source: Source) -> list[tuple[int, str]]:
    """Return lines without comments, continued ones joined, with the number of the first."""
    found: list[tuple[int, str]] = []
    open_line = ""
    start = 0
    for number, raw in enumerate(source.lines, 1):
        line = raw.split("#", 1)[0].rstrip()
        start = start or number
        if line.endswith("\\"):
            open_line += line[:-1]
            continue
        text = (open_line + line).strip()
        if text:
            found.append((start, text))
        open_line, start = "", 0
    if open_line.strip():
        raise source.error(len(source.lines), "ends in a line that goes on (\\): the file is cut.")
    return found


def _pairs(source: Source, number: int, line: str) -> dict[str, str]:
    """Return ``key=value`` pairs of a line, keys in lower case."""
    pairs: dict[str, str] = {}
    if left := _PAIR.sub("", line).strip():
        raise source.error(number, f"{shown(left)} is no KEY=VALUE.")
    for match in _PAIR.finditer(line):
        key = match[1].lower()
        if key not in _KEYS:
            raise source.error(
                number, f"unknown key {shown(match[1])}; topology.conf has {', '.join(_KEYS)}."
            )
        if key in pairs:
            raise source.error(number, f"{match[1]} is there twice.")
        pairs[key] = match[2]
    return pairs


def _node_lists(value: object) -> list[str]:
    """Return every text under a key ``nodes`` or ``node``, however deep (rings and tori nest theirs)."""
    if isinstance(value, dict):
        own = [text for key, text in value.items() if key in ("nodes", "node") and isinstance(text, str)]
        return own + [text for inner in value.values() for text in _node_lists(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _node_lists(inner)]
    return []
