"""Slurm's ``topology.conf`` and ``topology.yaml``: trees of switches, blocks of hosts, rings and flat lists.

Both name hosts and switches alone: GPUs, rates and how many links a switch has come from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from topology.base.errors import InputError
from topology.base.reading import Fields, shown
from topology.importers.found import FabricFound, Format
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source
from topology.importers.tree import SwitchRow, parse_tree

_PAIR = re.compile(r"\b(\w++)\s*+=\s*+(\S++)")
_FIRST = re.compile(r"^[^\S\n]*+(SwitchName|BlockName|RingName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)
_KEYS = ("switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes", "ringname")


def looks_like_slurm_conf(text: str) -> bool:
    """Whether a text has a line that only ``topology.conf`` has."""
    return _FIRST.search(text) is not None


def looks_like_slurm_yaml(data: object) -> bool:
    """Whether data are a list of topologies."""
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and "topology" in data[0]


def parse_slurm_conf(source: Source) -> FabricFound:
    """Return what a ``topology.conf`` says.

    Raises
    ------
    InputError
        If a line cannot be read, a name is duplicate, or switches and blocks are mixed.
    """
    switches: dict[str, SwitchRow] = {}
    blocks: dict[str, SwitchRow] = {}
    for number, line in _joined(source):
        pairs = _pairs(source, number, line)
        first = next(iter(pairs))
        if first == "switchname":
            if "switches" not in pairs and "nodes" not in pairs:
                raise source.error(
                    number, f"switch {pairs[first]} has neither Nodes nor Switches; is the line cut?"
                )
            row = _row(source.at(number), pairs.get("switches"), pairs.get("nodes"))
            for name in expand_hosts(pairs[first], row.place):
                _add(source, switches, "switch", name, row)
        elif first in ("blockname", "ringname"):
            name = pairs[first]
            _add(source, blocks, "block", name, _row(source.at(number), None, pairs.get("nodes")))
        elif first != "blocksizes":
            raise source.error(
                number, f"a line begins with SwitchName, BlockName, RingName or BlockSizes, not {first}."
            )
    if switches and blocks:
        raise source.error(
            None, "has switches and blocks in one file; Slurm reads one kind. Split it in two."
        )
    return parse_tree(source, switches) if switches else _blocks(source, blocks)


def parse_slurm_yaml(source: Source) -> FabricFound:
    """Return what one topology of a ``topology.yaml`` says: the default, else the only one.

    Raises
    ------
    InputError
        If keys are missing or of the wrong kind, or it is not clear which topology is meant.
    """
    if not isinstance(source.data, list):
        raise source.error(None, f"expected a list at the top, found {shown(source.data)}.")
    rows: dict[str, Fields] = {}
    for i, item in enumerate(source.data):
        one = Fields(item, f"{source.name}: topology {i + 1}")
        if one.name("topology") in rows:
            raise source.error(None, f"duplicate topology {shown(one.name('topology'))}.")
        rows[one.name("topology")] = one
    chosen = _chosen(source, rows)
    row = rows[chosen]
    kinds = [kind for kind in ("tree", "block", "ring", "torus3d", "flat") if row.has(kind)]
    if len(kinds) != 1:
        raise source.error(None, f"topology {chosen} needs exactly one of tree, block, ring, torus3d, flat.")
    if kinds[0] == "tree":
        return _yaml_tree(source, row.sub("tree"))
    if kinds[0] == "block":
        return _yaml_blocks(source, row.sub("block"))
    lists = _node_lists(row.get(kinds[0]))
    hosts = {host: row.where for text in lists for host in expand_hosts(text, row.where)}
    if not hosts:
        raise source.error(None, f"topology {chosen} is {kinds[0]}: it names no hosts and no switches.")
    return FabricFound(hosts)


def _chosen(source: Source, rows: Mapping[str, Fields]) -> str:
    """Return the topology to read."""
    default = [name for name, row in rows.items() if row.get("cluster_default") is True]
    if default or len(rows) == 1:
        return next(iter(default or rows))
    raise source.error(
        None, f"has {len(rows)} topologies ({', '.join(rows)}) and no default: set `cluster_default` of one."
    )


def _yaml_tree(source: Source, tree: Fields) -> FabricFound:
    """Return what a tree of a ``topology.yaml`` says."""
    switches: dict[str, SwitchRow] = {}
    for item in tree.subs("switches", empty=True):
        children, nodes = (item.name(key) if item.has(key) else None for key in ("children", "nodes"))
        _add(source, switches, "switch", item.name("switch"), _row(item.where, children, nodes))
    return parse_tree(source, switches)


def _yaml_blocks(source: Source, block: Fields) -> FabricFound:
    """Return what the blocks of a ``topology.yaml`` say."""
    blocks: dict[str, SwitchRow] = {}
    for item in block.subs("blocks", empty=True):
        nodes = item.name("nodes") if item.has("nodes") else None
        _add(source, blocks, "block", item.name("block"), _row(item.where, None, nodes))
    return _blocks(source, blocks)


def _row(place: str, switches: str | None, hosts: str | None) -> SwitchRow:
    """Return a switch or block with the names of two hostlists, either of which may be absent."""
    names = (() if text is None else tuple(expand_hosts(text, place)) for text in (switches, hosts))
    return SwitchRow(place, *names)


def _add(source: Source, rows: dict[str, SwitchRow], what: str, name: str, row: SwitchRow) -> None:
    """Add a switch or block under its name, which must be new."""
    if name in rows:
        first = rows[name].place.removeprefix(f"{source.name}: ")
        raise InputError(f"{row.place}: duplicate {what} {name} (first in {first}).")
    rows[name] = row


def _blocks(source: Source, blocks: Mapping[str, SwitchRow]) -> FabricFound:
    """Return hosts and the block each is in."""
    hosts: dict[str, str] = {}
    domains: dict[str, str] = {}
    for name, block in blocks.items():
        if not block.hosts:
            source.anomalies.append(f"{block.place}: block {name} has no hosts (a placeholder).")
        for host in block.hosts:
            if host in domains:
                raise InputError(
                    f"{block.place}: host {host} is in block {name}, and in {domains[host]} already."
                )
            hosts[host], domains[host] = block.place, name
    if not hosts:
        raise source.error(None, "its blocks have no hosts; is the file cut?")
    return FabricFound(hosts, domains=domains, blocks=True)


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
        raise source.error(number, f"{shown(left)} is not KEY=VALUE.")
    for match in _PAIR.finditer(line):
        key = match[1].lower()
        if key not in _KEYS:
            raise source.error(
                number, f"unknown key {shown(match[1])}; topology.conf has {', '.join(_KEYS)}."
            )
        if key in pairs:
            raise source.error(number, f"duplicate key {match[1]}.")
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


CONF_FORMAT = Format("slurm-conf", parse_slurm_conf, in_text=looks_like_slurm_conf)
YAML_FORMAT = Format("slurm-yaml", parse_slurm_yaml, in_data=looks_like_slurm_yaml)
