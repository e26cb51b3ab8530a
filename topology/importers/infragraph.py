"""InfraGraph (MLCommons), YAML or JSON: devices of components, instances of devices, and edges between them.

Both written forms are read: ``connections`` of dotted paths, and ``edges`` of sliced endpoints with a scheme.
A device with an ``xpu`` is a host; any other is a switch, whatever is inside it. Links of an xpu to switches or
other xpus are scale-up; those of a NIC scale-out. What is between an xpu and its NIC (PCIe) only says which NIC
is whose.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topology.figures import Figure
from topology.importers.data import Data, load_data
from topology.importers.found import WholeFound, WholeLink
from topology.importers.infragraph_model import (
    MOST_NODES,
    Device,
    OuterEdge,
    OuterEnd,
    Part,
    link_figures,
    links_of,
    read_device,
    read_outer_edges,
)
from topology.importers.source import Source

KIND = "infragraph"
Node = tuple[str, str | None, str | None, int | None]
"""Kind, domain, host and rail."""


@dataclass
class _Graph:
    """The devices and instances of a file, and the nodes, links and anomalies made of them."""

    source: Source
    devices: dict[str, Device]
    instances: dict[str, tuple[str, int]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    wires: dict[tuple[str, str, str, bool], int] = field(default_factory=lambda: defaultdict(int))
    rates: dict[str, tuple[Figure | None, Figure | None]] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)

    def device(self, end: OuterEnd) -> Device:
        """Return the device that one end of an outer edge is in."""
        return self.devices[self.instances[end[0][0]][0]]


def looks_like_infragraph(data: object) -> bool:
    """Whether data have devices with components, or an infrastructure around them."""
    if not isinstance(data, dict):
        return False
    inner = data.get("infrastructure", data)
    return (
        isinstance(inner, dict) and "devices" in inner and ("instances" in inner or "infrastructure" in data)
    )


def read_infragraph(source: Source) -> WholeFound:
    """Return hosts, their xpus, and the switches between them.

    Raises
    ------
    InputError
        If an edge names an instance, component or link that is not there, or there is no xpu.
    """
    top = load_data(source).mapping()
    data = top.sub("infrastructure") if top.has("infrastructure") else top
    graph = _Graph(source, {row.text("name"): read_device(row) for row in data.subs("devices")})
    outer = read_outer_edges(source, data)
    _add_instances(graph, data, outer)
    if not any(graph.devices[device].is_host for device, _ in graph.instances.values()):
        raise source.error(None, "no instance has a component of the kind xpu: there are no GPUs in it.")
    return _whole(graph, outer, links_of(data))


def _add_instances(graph: _Graph, data: Data, outer: Sequence[OuterEdge]) -> None:
    """Add instances; one whose device is not described is left out if nothing is cabled to it."""
    source, devices = graph.source, graph.devices
    used: dict[str, int] = defaultdict(int)
    for (a, _), (b, _), _ in outer:
        for name, index in (a, b):
            used[name] = max(used[name], index + 1)
    for row in data.subs("instances"):
        name, device = row.text("name"), row.text("device")
        if name in graph.instances:
            raise source.error(None, f"{row.where}: instance {name} is there twice.")
        count = (
            row.whole("count", least=1, most=MOST_NODES) if row.has("count") else max(1, used.get(name, 1))
        )
        if device not in devices:
            if name in used:
                raise source.error(
                    None, f"{row.where}: device {device} is not among the devices, but edges use {name}."
                )
            graph.anomalies.append(
                f"{row.where}: device {device} of {name} is not described, and nothing is cabled to it; left out."
            )
            continue
        graph.instances[name] = (device, count)


def _whole(graph: _Graph, outer: Sequence[OuterEdge], links: Mapping[str, Data]) -> WholeFound:
    """Expand hosts, then contract everything to GPUs and switches."""
    source = graph.source
    switches: dict[str, None] = {}
    for name, (device_name, count) in graph.instances.items():
        device = graph.devices[device_name]
        for i in range(count):
            if device.is_host:
                _expand_host(graph, device, f"{name}.{i}")
            else:
                switches[f"{name}.{i}"] = None
            if len(graph.nodes) > MOST_NODES:
                raise source.error(None, f"has more than {MOST_NODES} nodes.")
    neighbours = _add_outer(graph, outer, links)
    _add_switches(graph, switches, neighbours)
    whole = tuple(
        WholeLink((a, b), count, graph.rates[link][0], up, link, graph.rates[link][1])
        for (a, b, link, up), count in graph.wires.items()
    )
    gpus = sum(kind == "gpu" for kind, *_ in graph.nodes.values())
    notes = (f"{gpus} xpus, {len(graph.nodes) - gpus} other nodes, {sum(graph.wires.values())} links.",)
    nodes = _with_domains(graph.nodes, whole)
    return WholeFound(source.name, KIND, nodes, whole, notes, tuple(graph.anomalies))


def _expand_host(graph: _Graph, device: Device, host: str) -> None:
    """Add the xpus of one host, and their links to each other and to switches inside it."""
    kinds = device.components
    xpus = [f"{host}.{name}.{i}" for name, (kind, n) in kinds.items() if kind == "xpu" for i in range(n)]
    graph.nodes.update({xpu: ("gpu", None, host, position) for position, xpu in enumerate(xpus)})
    for (a, i), (b, j), link in device.edges:
        for name in (a, b):
            if name not in kinds:
                raise graph.source.error(None, f"{device.where}: component {name} of an edge is not defined.")
        roles = {_role(a, kinds), _role(b, kinds)}
        if "xpu" not in roles or not roles <= {"xpu", "switch"}:
            continue
        for name, number in ((a, i), (b, j)):
            graph.nodes.setdefault(f"{host}.{name}.{number}", ("switch", None, host, None))
        if link not in device.links:
            raise graph.source.error(None, f"{device.where}: link {link} of an edge is not among its links.")
        key = f"{device.where}: {link}"
        if key not in graph.rates:
            graph.rates[key] = link_figures(graph.source, device.links[link])
        graph.wires[f"{host}.{a}.{i}", f"{host}.{b}.{j}", key, True] += 1


def _add_outer(graph: _Graph, outer: Sequence[OuterEdge], links: Mapping[str, Data]) -> dict[str, set[str]]:
    """Add the links between instances, and return who is joined to whom."""
    near = {name: _near(device) for name, device in graph.devices.items() if device.is_host}
    neighbours: dict[str, set[str]] = defaultdict(set)
    for number, (a, b, link) in enumerate(outer):
        if link not in links:
            raise graph.source.error(None, f"edge {number}: link {link} is not among the links.")
        if link not in graph.rates:
            graph.rates[link] = link_figures(graph.source, links[link])
        left, right = (_one_end(graph, end, near, link) for end in (a, b))
        scale_up = any(graph.device(end).components[end[1][0]][0] == "xpu" for end in (a, b))
        graph.wires[left, right, link, scale_up] += 1
        neighbours[left].add(right)
        neighbours[right].add(left)
    return neighbours


def _one_end(graph: _Graph, end: OuterEnd, near: Mapping[str, Mapping[Part, list[Part]]], link: str) -> str:
    """Return the node that one end of an outer edge is: a switch, an xpu, or a NIC that several xpus share."""
    (instance, i), (component, j) = end
    if instance not in graph.instances:
        raise graph.source.error(None, f"an edge uses the instance {instance}, which is not defined.")
    device_name, count = graph.instances[instance]
    device = graph.devices[device_name]
    if i >= count:
        raise graph.source.error(None, f"an edge uses {instance}.{i}, but there are {count} of {instance}.")
    place = f"{instance}.{i}.{component}.{j}"
    if component not in device.components or j >= device.components[component][1]:
        raise graph.source.error(None, f"an edge uses {place}, which {device_name} does not have.")
    if not device.is_host:
        return f"{instance}.{i}"
    if device.components[component][0] == "xpu":
        return place
    xpus = [f"{instance}.{i}.{name}.{number}" for name, number in near[device_name][component, j]]
    if len(xpus) == 1:
        return xpus[0]
    graph.nodes.setdefault(place, ("nic", None, f"{instance}.{i}", None))
    for xpu in xpus:
        # PCIe is taken as no narrower than the NIC
        graph.wires[xpu, place, link, False] += 1
    return place


def _role(name: str, kinds: Mapping[str, tuple[str, int]]) -> str:
    """Return xpu, switch (scale-up) or other: a PCIe switch is none, by its name."""
    kind = kinds[name][0]
    if kind == "xpu":
        return "xpu"
    is_switch = kind == "switch" or (kind == "custom" and re.search(r"sw", name) is not None)
    return "switch" if is_switch and not re.search(r"pci", name, re.IGNORECASE) else "other"


def _near(device: Device) -> dict[Part, list[Part]]:
    """Return the xpus nearest to each component, by hops inside the device that do not use scale-up switches."""
    joined: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for a, b, _ in device.edges:
        if all(_role(end[0], device.components) != "switch" for end in (a, b) if end[0] in device.components):
            joined[a].add(b)
            joined[b].add(a)
    xpus = [(name, i) for name, (kind, n) in device.components.items() if kind == "xpu" for i in range(n)]
    found = {}
    for name, (_, count) in device.components.items():
        for i in range(count):
            level, seen = {(name, i)}, {(name, i)}
            hits: list[tuple[str, int]] = []
            while level and not hits:
                level = {other for part in level for other in joined[part]} - seen
                seen |= level
                hits = [xpu for xpu in xpus if xpu in level]
            found[name, i] = hits or xpus
    return found


def _add_switches(graph: _Graph, switches: Mapping[str, None], neighbours: Mapping[str, set[str]]) -> None:
    """Add switch devices: scale-up where xpus hang on them directly, else by hops from the hosts."""
    up = {end for a, b, _, scale_up in graph.wires if scale_up for end in (a, b) if end in switches}
    hosts = {name for name, (kind, *_) in graph.nodes.items() if kind in ("gpu", "nic")}
    level = [name for name in switches if name not in up and neighbours.get(name, set()) & hosts]
    levels = dict.fromkeys(level, 1)
    while level:
        above = {other for name in level for other in neighbours[name] if other in switches}
        level = sorted(above - levels.keys() - up)
        levels.update(dict.fromkeys(level, max(levels.values()) + 1))
    for name in switches:
        if name in up:
            graph.nodes[name] = ("switch", None, None, None)
        elif name in levels:
            graph.nodes[name] = (("leaf", "spine", "core")[min(levels[name], 3) - 1], None, None, None)
        else:
            graph.anomalies.append(f"{graph.source.name}: switch {name} is cabled to nothing; left out.")


def _with_domains(nodes: Mapping[str, Node], links: tuple[WholeLink, ...]) -> dict[str, Node]:
    """Name the domain of GPUs and chips joined by scale-up links after its first GPU's host, or the host alone."""
    group: dict[str, str] = {}

    def root(name: str) -> str:
        while group.setdefault(name, name) != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    for link in links:
        if link.scale_up:
            a, b = (root(end) for end in link.between)
            group[max(a, b)] = min(a, b)
    first: dict[str, str] = {}
    for name, (kind, _, host, _) in nodes.items():
        if kind == "gpu":
            first.setdefault(root(name), host or name)
    return {
        name: (kind, first.get(root(name)) if kind in ("gpu", "switch") else None, host, rail)
        for name, (kind, _, host, rail) in nodes.items()
    }
