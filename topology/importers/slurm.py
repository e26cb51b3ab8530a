"""Slurm's ``topology.conf`` and ``topology.yaml``: trees of switches, blocks of hosts, rings and flat lists.

Both name hosts and switches alone: GPUs, rates and how many links a switch has come from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from topology.base.errors import InputError, input_name
from topology.base.reading import shown
from topology.base.schema import Name, Text, validated
from topology.base.values import require_name
from topology.importers.found import FabricFound, Format
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source, entries, first_row, unwrapped
from topology.importers.tree import SwitchRow, parse_tree

_PAIR = re.compile(r"\b(\w++)\s*+=\s*+(\S*+)")
_FIRST_KEY = re.compile(
    r"^[^\S\n]*+(SwitchName|BlockName|RingName|BlockSizes|(NodeName))\s*=", re.IGNORECASE | re.MULTILINE
)
_GRES = re.compile(r"\bGres\s*=\s*(?:\S*,)?gpu:(?:([\w.-]+):)?(\d{1,3})\b", re.IGNORECASE)
_KEYS = ("switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes", "ringname", "level")
_KINDS = ("tree", "block", "ring", "torus3d", "flat")
_LISTS = {"tree": ("switch", "switches"), "block": ("block", "blocks")}


class _Rows(dict[str, SwitchRow]):
    """Switches or blocks by name, no two of one name, of hostlists of which either may be absent."""

    def add(self, place: str, name: str, switches: str | None, hosts: str | None) -> None:
        if name in self:
            raise InputError(f"{place}: duplicate {name} (first in {self[name].place}).")
        self[name] = SwitchRow(
            place, *(() if text is None else expand_hosts(text, place) for text in (switches, hosts))
        )


def parse_slurm_conf(source: Source) -> FabricFound:
    """Return what a ``topology.conf`` says, or ``scontrol show topology``, which lists hosts at every level."""
    if any(match[2] for match in _FIRST_KEY.finditer(source.text)):
        gres = _GRES.search(source.text)
        gpu = f"{input_name('gpu')} {gres[1]} and " if gres and gres[1] else ""
        per = f"{input_name('gpus_per_node')} {gres[2]}" if gres else input_name("gpus_per_node")
        problem = f"is the configuration of Slurm, not a topology: leave it out, and give {gpu}{per}."
        raise source.error(None, problem)
    switches, blocks = _Rows(), _Rows()
    for number, line in _joined(source):
        pairs = _pairs(source, number, line)
        keyword, place, nodes = next(iter(pairs)), source.at(number), pairs.get("nodes")
        if keyword == "switchname":
            if "switches" not in pairs and nodes is None:
                problem = f"switch {pairs[keyword]} has neither Nodes nor Switches; is the line truncated?"
                raise source.error(number, problem)
            below = "level" in pairs and "switches" in pairs
            for name in expand_hosts(pairs[keyword], place):
                switches.add(place, name, pairs.get("switches"), None if below else nodes)
        elif keyword in ("blockname", "ringname"):
            blocks.add(place, pairs[keyword], None, nodes or None)
        elif keyword != "blocksizes":
            problem = f"a line begins with SwitchName, BlockName, RingName or BlockSizes, not {keyword}."
            raise source.error(number, problem)
    if switches and blocks:
        problem = "has switches and blocks in one file; Slurm reads only one kind. Split the file in two."
        raise source.error(None, problem)
    return parse_tree(source, switches) if switches else _blocks(source, blocks)


def parse_slurm_yaml(source: Source) -> FabricFound:
    """Return what a ``topology.yaml`` says: its default topology, else the only one, and a tree beside blocks."""
    topologies: dict[str, tuple[str, dict[str, Any]]] = {}
    for number, (_, topology) in enumerate(entries(unwrapped(source.data), source.name), 1):
        where = f"{source.name}: topology {number}"
        name = require_name(topology.get("topology"), f"{where}: topology")
        if name in topologies:
            raise source.error(None, f"duplicate topology {shown(name)}.")
        topologies[name] = where, topology
    defaults = [name for name, (_, item) in topologies.items() if item.get("cluster_default") is True]
    if not defaults and len(topologies) != 1:
        several = f"has {len(topologies)} topologies ({', '.join(topologies)}) and no default"
        raise source.error(None, f"{several}: set `cluster_default` of one.")
    where, topology = topologies.pop([*defaults, *topologies][0])
    fabric = _topology(source, where, topology)
    # partitions choose a topology by its name: a tree beside blocks tells of the same hosts
    for name, (place, alternative) in topologies.items():
        kinds = {kind for item in (topology, alternative) for kind in item if item[kind] is not None}
        beside = _topology(source, place, alternative) if kinds >= _LISTS.keys() else None
        if beside is not None and beside.hosts.keys() != fabric.hosts.keys():
            source.anomalies.append(f"{place}: topology {name} is left out: it names other hosts.")
        elif beside is None or (fabric.switches and fabric.domains):
            source.anomalies.append(f"{place}: topology {name} is left out: it is not the default.")
        else:
            tree, blocks = (fabric, beside) if fabric.switches else (beside, fabric)
            fabric = replace(tree, domains=blocks.domains, domains_place=source.name, blocks=True)
    return fabric


def _topology(source: Source, where: str, topology: dict[str, Any]) -> FabricFound:
    """Return what one topology says."""
    kinds = [kind for kind in _KINDS if topology.get(kind) is not None]
    if len(kinds) != 1:
        raise InputError(f"{where}: needs exactly one of {', '.join(_KINDS)}.")
    (kind,), rows = kinds, _Rows()
    if kind in _LISTS:
        name, list_key = _LISTS[kind]
        inside = validated(dict[Text, Any], topology[kind], f"{where}: {kind}")
        for place, row in entries(inside.get(list_key), f"{where}: {kind}: {list_key}"):
            switches, hosts = (
                validated(Name | None, row.get(key), f"{place}: {key}") for key in ("children", "nodes")
            )
            rows.add(place, require_name(row.get(name), f"{place}: {name}"), switches, hosts)
        return parse_tree(source, rows) if kind == "tree" else _blocks(source, rows)
    texts = _node_lists(topology[kind])
    members = {host: where for text in texts for host in expand_hosts(text, where)}
    if not members:
        raise InputError(f"{where}: is {kind}, which names no hosts and no switches.")
    return FabricFound(members)


def _blocks(source: Source, blocks: _Rows) -> FabricFound:
    """Return hosts and the block each is in."""
    hosts, domains = dict[str, str](), dict[str, str]()
    for name, (place, _, members) in blocks.items():
        if not members:
            source.anomalies.append(f"{place}: block {name} has no hosts (a placeholder).")
        for host in members:
            if host in domains:
                raise InputError(f"{place}: host {host} is in block {name}, but also in {domains[host]}.")
            hosts[host], domains[host] = place, name
    if not hosts:
        raise source.error(None, "its blocks have no hosts; is the file truncated?")
    return FabricFound(hosts, domains=domains, blocks=True)


def _joined(source: Source) -> Iterator[tuple[int, str]]:
    """Yield lines without comments, continued ones joined, with the number of the first."""
    parts: list[str] = []
    for number, raw in enumerate(source.lines, 1):
        line = raw.split("#", 1)[0].rstrip()
        parts.append(line.removesuffix("\\"))
        if line.endswith("\\"):
            continue
        if text := "".join(parts).strip():
            yield number - len(parts) + 1, text
        parts = []
    if parts:
        problem = "ends in a continued line (\\); the file is truncated."
        raise source.error(len(source.lines) - len(parts) + 1, problem)


def _pairs(source: Source, number: int, line: str) -> dict[str, str]:
    """Return ``key=value`` pairs of a line, keys in lower case."""
    pairs: dict[str, str] = {}
    if leftover := _PAIR.sub("", line).strip():
        raise source.error(number, f"{shown(leftover)} is not KEY=VALUE.")
    for name, value in _PAIR.findall(line):
        key = name.lower()
        if key not in _KEYS or key in pairs:
            raise source.error(number, f"unknown or duplicate key {name}; known are {', '.join(_KEYS)}.")
        if not value and (key != "nodes" or "blockname" not in pairs):  # a block may have no hosts yet
            raise source.error(number, f"{shown(f'{name}=')} is not KEY=VALUE.")
        pairs[key] = value
    return pairs


def _node_lists(value: object) -> list[str]:
    """Return every text under a key ``nodes`` or ``node``, however deep (rings and tori nest theirs)."""
    if isinstance(value, dict):
        texts = [text for key, text in value.items() if key in ("nodes", "node") and isinstance(text, str)]
        return texts + [text for inner in value.values() for text in _node_lists(inner)]
    return [text for inner in value for text in _node_lists(inner)] if isinstance(value, list) else []


CONF_FORMAT = Format("slurm-conf", parse_slurm_conf, in_text=lambda text: _FIRST_KEY.search(text) is not None)
YAML_FORMAT = Format("slurm-yaml", parse_slurm_yaml, in_data=lambda data: "topology" in first_row(data))
