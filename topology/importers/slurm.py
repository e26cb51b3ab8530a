"""Slurm's ``topology.conf`` and ``topology.yaml``: trees of switches, blocks of hosts, rings and flat lists.

Both name hosts and switches alone: GPUs, rates and how many links a switch has come from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from topology.base.errors import InputError, input_name
from topology.base.reading import shown
from topology.base.schema import Name, validated
from topology.importers.found import FabricFound, Format
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source
from topology.importers.tree import SwitchRow, parse_tree

_PAIR = re.compile(r"\b(\w++)\s*+=\s*+(\S*+)")
_FIRST = re.compile(r"^[^\S\n]*+(SwitchName|BlockName|RingName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)
_CONFIGURATION = re.compile(r"^[^\S\n]*+NodeName\s*=", re.IGNORECASE | re.MULTILINE)
_GRES = re.compile(r"\bGres\s*=\s*(?:\S*,)?gpu:(?:([\w.-]+):)?(\d{1,3})\b", re.IGNORECASE)
_KEYS = ("switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes", "ringname", "level")
_KINDS = ("tree", "block", "ring", "torus3d", "flat")


class _Switch(BaseModel):
    switch: Name
    children: Name | None = None
    nodes: Name | None = None


class _Block(BaseModel):
    block: Name
    nodes: Name | None = None


class _Tree(BaseModel):
    switches: list[_Switch] | None = None


class _Blocks(BaseModel):
    blocks: list[_Block] | None = None


class _Topology(BaseModel):
    topology: Name
    cluster_default: Any = None
    tree: _Tree | None = None
    block: _Blocks | None = None
    ring: Any = None
    torus3d: Any = None
    flat: Any = None


def parse_slurm_conf(source: Source) -> FabricFound:
    """Return what a ``topology.conf`` says, or ``scontrol show topology``, which lists hosts at every level."""
    if _CONFIGURATION.search(source.text):
        gres = _GRES.search(source.text)
        gpu = f"{input_name('gpu')} {gres[1]} and " if gres and gres[1] else ""
        per = f"{input_name('gpus_per_node')} {gres[2]}" if gres else input_name("gpus_per_node")
        raise source.error(
            None, f"is the configuration of Slurm, not a topology: leave it out, and give {gpu}{per}."
        )
    switches: dict[str, SwitchRow] = {}
    blocks: dict[str, SwitchRow] = {}
    for number, line in _joined(source):
        pairs = _pairs(source, number, line)
        first, place = next(iter(pairs)), source.at(number)
        if first == "switchname":
            if "switches" not in pairs and "nodes" not in pairs:
                raise source.error(
                    number, f"switch {pairs[first]} has neither Nodes nor Switches; is the line truncated?"
                )
            below = "level" in pairs and "switches" in pairs
            row = _row(place, pairs.get("switches"), None if below else pairs.get("nodes"))
            for name in expand_hosts(pairs[first], place):
                _add(source, switches, "switch", name, row)
        elif first in ("blockname", "ringname"):
            _add(source, blocks, "block", pairs[first], _row(place, None, pairs.get("nodes") or None))
        elif first != "blocksizes":
            raise source.error(
                number, f"a line begins with SwitchName, BlockName, RingName or BlockSizes, not {first}."
            )
    if switches and blocks:
        raise source.error(
            None, "has switches and blocks in one file; Slurm reads only one kind. Split the file in two."
        )
    return parse_tree(source, switches) if switches else _blocks(source, blocks)


def parse_slurm_yaml(source: Source) -> FabricFound:
    """Return what a ``topology.yaml`` says: its default topology, else the only one, and a tree beside blocks."""
    if not isinstance(source.data, list):
        raise source.error(None, f"expected a list at the top, found {shown(source.data)}.")
    topologies: dict[str, tuple[str, _Topology]] = {}
    for i, item in enumerate(source.data, 1):
        where = f"{source.name}: topology {i}"
        one = validated(_Topology, item, where)
        if one.topology in topologies:
            raise source.error(None, f"duplicate topology {shown(one.topology)}.")
        topologies[one.topology] = where, one
    names = [name for name, (_, one) in topologies.items() if one.cluster_default is True]
    if not names and len(topologies) > 1:
        some = f"has {len(topologies)} topologies ({', '.join(topologies)}) and no default"
        raise source.error(None, f"{some}: set `cluster_default` of one.")
    chosen = next(iter(names or topologies))
    where, topology = topologies.pop(chosen)
    found = _topology(source, where, topology)
    # partitions choose a topology by its name: a tree beside blocks tells of the same hosts
    for name, (place, other) in topologies.items():
        pairs = (topology.tree, other.block), (topology.block, other.tree)
        beside = _topology(source, place, other) if any(None not in pair for pair in pairs) else None
        same_hosts = beside is not None and beside.hosts.keys() == found.hosts.keys()
        if beside is None or not same_hosts or (found.switches and found.domains):
            why = "it is not the default" if beside is None or same_hosts else "it names other hosts"
            source.anomalies.append(f"{place}: topology {name} is left out: {why}.")
            continue
        fabric, blocks = (found, beside) if found.switches else (beside, found)
        found = replace(fabric, domains=blocks.domains, domains_place=source.name, blocks=True)
    return found


def _topology(source: Source, where: str, topology: _Topology) -> FabricFound:
    """Return what one topology says."""
    name = topology.topology
    kinds = [kind for kind in _KINDS if getattr(topology, kind) is not None]
    if len(kinds) != 1:
        raise source.error(None, f"topology {name} needs exactly one of {', '.join(_KINDS)}.")
    rows: dict[str, SwitchRow] = {}
    if topology.tree is not None:
        for i, switch in enumerate(topology.tree.switches or ()):
            row = _row(f"{where}: tree: switches[{i}]", switch.children, switch.nodes)
            _add(source, rows, "switch", switch.switch, row)
        return parse_tree(source, rows)
    if topology.block is not None:
        for i, block in enumerate(topology.block.blocks or ()):
            _add(source, rows, "block", block.block, _row(f"{where}: block: blocks[{i}]", None, block.nodes))
        return _blocks(source, rows)
    texts = _node_lists(getattr(topology, kinds[0]))
    hosts = {host: where for text in texts for host in expand_hosts(text, where)}
    if not hosts:
        raise source.error(None, f"topology {name} is {kinds[0]}, which names no hosts and no switches.")
    return FabricFound(hosts)


def _row(place: str, switches: str | None, hosts: str | None) -> SwitchRow:
    """Return a switch or block with the names of two hostlists, either of which may be absent."""
    names = (() if text is None else tuple(expand_hosts(text, place)) for text in (switches, hosts))
    return SwitchRow(place, *names)


def _add(source: Source, rows: dict[str, SwitchRow], what: str, name: str, row: SwitchRow) -> None:
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
                    f"{block.place}: host {host} is in block {name}, but also in {domains[host]}."
                )
            hosts[host], domains[host] = block.place, name
    if not hosts:
        raise source.error(None, "its blocks have no hosts; is the file truncated?")
    return FabricFound(hosts, domains=domains, blocks=True)


def _joined(source: Source) -> Iterator[tuple[int, str]]:
    """Yield lines without comments, continued ones joined, with the number of the first."""
    text, start = "", 0
    for number, raw in enumerate(source.lines, 1):
        line = raw.split("#", 1)[0].rstrip()
        text, start = text + line.removesuffix("\\"), start or number
        if line.endswith("\\"):
            continue
        if text.strip():
            yield start, text.strip()
        text, start = "", 0
    if text.strip():
        raise source.error(len(source.lines), "ends in a continued line (\\); the file is truncated.")


def _pairs(source: Source, number: int, line: str) -> dict[str, str]:
    """Return ``key=value`` pairs of a line, keys in lower case."""
    pairs: dict[str, str] = {}
    if left := _PAIR.sub("", line).strip():
        raise source.error(number, f"{shown(left)} is not KEY=VALUE.")
    for name, value in _PAIR.findall(line):
        key = name.lower()
        if key not in _KEYS:
            raise source.error(number, f"unknown key {shown(name)}; topology.conf has {', '.join(_KEYS)}.")
        if key in pairs:
            raise source.error(number, f"duplicate key {name}.")
        if not value and (key != "nodes" or "blockname" not in pairs):  # a block may have no hosts yet
            raise source.error(number, f"{shown(f'{name}=')} is not KEY=VALUE.")
        pairs[key] = value
    return pairs


def _node_lists(value: object) -> list[str]:
    """Return every text under a key ``nodes`` or ``node``, however deep (rings and tori nest theirs)."""
    if isinstance(value, dict):
        own = [text for key, text in value.items() if key in ("nodes", "node") and isinstance(text, str)]
        return own + [text for inner in value.values() for text in _node_lists(inner)]
    return [text for inner in value for text in _node_lists(inner)] if isinstance(value, list) else []


def _looks_like_slurm(text: str) -> bool:
    return any(pattern.search(text) for pattern in (_FIRST, _CONFIGURATION))


CONF_FORMAT = Format("slurm-conf", parse_slurm_conf, in_text=_looks_like_slurm)
YAML_FORMAT = Format(
    "slurm-yaml",
    parse_slurm_yaml,
    in_data=lambda data: (
        isinstance(data, list) and isinstance((*data, None)[0], dict) and "topology" in data[0]
    ),
)
