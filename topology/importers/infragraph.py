"""InfraGraph (MLCommons), YAML or JSON: devices of components, instances of devices, and edges between them.

Both written forms are read: ``connections`` of dotted paths, and ``edges`` of sliced endpoints with a scheme.
A device with an ``xpu`` is a host; any other is a switch, whatever is inside it. Links of an xpu to switches or
other xpus are scale-up; those of a NIC scale-out. What is between an xpu and its NIC (PCIe) only says which NIC
is whose.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology.figures import Evidence, Figure
from topology.importers.data import Data, load_data
from topology.importers.found import WholeFound, WholeLink
from topology.importers.source import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topology.importers.source import Source

__all__ = ["looks_like_infragraph", "read_infragraph"]

KIND = "infragraph"
_MOST_NODES = 300_000
_MOST_EDGES = 1_000_000
_SLICE = re.compile(r"([\w./-]+?)(?:\[(\d*)(?::(\d*))?\])?")
_GIGA_BYTES = {
    "gigabytes_per_second": 1.0,
    "giga_bytes_per_second": 1.0,
    "gigabits_per_second": 1 / 8,
    "giga_bits_per_second": 1 / 8,
}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}
Node = tuple[str, int, str, int]
"""Instance, its index, component, its index."""


@dataclass
class _Device:
    """Components by name with kind and count, and edges inside as pairs with the name of their link."""

    where: str
    components: dict[str, tuple[str, int]]
    links: dict[str, Data]
    edges: list[tuple[tuple[str, int], tuple[str, int], str]]

    @property
    def is_host(self) -> bool:
        return any(kind == "xpu" for kind, _ in self.components.values())


@dataclass
class _Graph:
    """The expanded graph: edges between hosts and switches by NIC or xpu, anomalies on the way."""

    source: Source
    devices: dict[str, _Device]
    instances: dict[str, tuple[str, int]]
    anomalies: list[str] = field(default_factory=list)


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
    devices = {row.text("name"): _device(row) for row in data.subs("devices")}
    graph = _Graph(source, devices, {})
    outer = _outer_edges(source, data)
    used: dict[str, int] = defaultdict(int)
    for (a, _), (b, _), _ in outer:
        for name, index in (a, b):
            used[name] = max(used[name], index + 1)
    for row in data.subs("instances"):
        name, device = row.text("name"), row.text("device")
        if name in graph.instances:
            raise source.error(None, f"{row.where}: instance {name} is there twice.")
        count = (
            row.whole("count", least=1, most=_MOST_NODES) if row.has("count") else max(1, used.get(name, 1))
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
    if not any(devices[device].is_host for device, _ in graph.instances.values()):
        raise source.error(None, "no instance has a component of the kind xpu: there are no GPUs in it.")
    return _whole(graph, outer, _links(data))


def _device(row: Data) -> _Device:
    """Read one device."""
    components: dict[str, tuple[str, int]] = {}
    edges = _inner_edges(row)
    highest: dict[str, int] = defaultdict(int)
    for a, b, _ in edges:
        for name, index in (a, b):
            highest[name] = max(highest[name], index + 1)
    for item in row.subs("components"):
        name = item.text("name")
        kind = item.text("choice") if item.has("choice") else item.text("type")
        count = item.whole("count", least=1, most=100_000) if item.has("count") else max(1, highest[name])
        components[name] = (kind, count)
    for name, most in highest.items():
        if name in components and most > components[name][1]:
            raise_at = f"{row.where}: component {name} has {components[name][1]}, but an edge uses number {most - 1}."
            from topology.errors import InputError

            raise InputError(raise_at)
    return _Device(row.where, components, _links(row), edges)


def _links(row: Data) -> dict[str, Data]:
    return {link.text("name"): link for link in row.subs("links")}


def _inner_edges(row: Data) -> list[tuple[tuple[str, int], tuple[str, int], str]]:
    """Return the edges inside a device."""
    edges = []
    for text in row.items("connections"):
        parts = _dotted(text, f"{row.where}: connections", 5)
        edges.append(((parts[0], int(parts[1])), (parts[3], int(parts[4])), parts[2]))
    counts = {item.text("name"): item.get("count") or 1 for item in row.subs("components")}
    for edge in row.subs("edges"):
        ends = []
        for key in ("ep1", "ep2"):
            end = edge.sub(key)
            if end.has("device"):
                # a part inside a nested device: the device as a whole stands for it
                ends.append(_sliced(end.text("device"), counts, end.where))
            else:
                ends.append(_sliced(end.text("component"), counts, end.where))
        edges += [(a, b, edge.text("link")) for a, b in _scheme(edge, ends[0], ends[1])]
        if len(edges) > _MOST_EDGES:
            raise _too_large(edge.where)
    return edges


Outer = tuple[tuple[tuple[str, int], tuple[str, int]], tuple[tuple[str, int], tuple[str, int]], str]


def _outer_edges(source: Source, data: Data) -> list[Outer]:
    """Return the edges between instances."""
    found: list[Outer] = []
    for text in data.items("connections"):
        p = _dotted(text, f"{source.name}: connections", 9)
        found.append((((p[0], int(p[1])), (p[2], int(p[3]))), ((p[5], int(p[6])), (p[7], int(p[8]))), p[4]))
    devices = {row.text("name"): row for row in data.subs("devices")}
    counts: dict[str, int] = {}
    inside: dict[str, dict[str, int]] = {}
    for row in data.subs("instances"):
        counts[row.text("name")] = row.get("count") if isinstance(row.get("count"), int) else 1
        device = devices.get(row.text("device"))
        if device is not None:
            inside[row.text("name")] = {
                c.text("name"): c.get("count") or 1 for c in device.subs("components")
            }
    for edge in data.subs("edges"):
        ends = []
        for key in ("ep1", "ep2"):
            end = edge.sub(key)
            instances = _sliced(end.text("instance"), counts, end.where)
            component = end.text("component").split(".")[0]
            components = _sliced(component, inside.get(instances[0][0], {}), end.where)
            if len(instances) * len(components) > _MOST_EDGES:
                raise _too_large(edge.where)
            ends.append([(instance, part) for instance in instances for part in components])
        found += [(a, b, edge.text("link")) for a, b in _scheme(edge, ends[0], ends[1])]
        if len(found) > _MOST_EDGES:
            raise _too_large(edge.where)
    return found


def _scheme(edge: Data, left: list, right: list) -> list:  # type: ignore[type-arg]
    """Return the pairs that an edge's scheme makes of two lists of ends."""
    scheme = edge.text("scheme") if edge.has("scheme") else "one2one"
    if scheme == "many2many":
        if len(left) * len(right) > _MOST_EDGES:
            raise _too_large(edge.where)
        return [(a, b) for a in left for b in right if a != b]
    if scheme == "one2one":
        if len(left) != len(right):
            from topology.errors import InputError

            raise InputError(f"{edge.where}: one2one joins {len(left)} ends to {len(right)}.")
        return list(zip(left, right, strict=True))
    if scheme == "ring":
        members = left if left == right else [*left, *right]
        return (
            [(a, members[(i + 1) % len(members)]) for i, a in enumerate(members)] if len(members) > 1 else []
        )
    from topology.errors import InputError

    raise InputError(f"{edge.where}: scheme {shown(scheme)} is not one2one, many2many or ring.")


def _sliced(text: str, counts: Mapping[str, int], where: str) -> list[tuple[str, int]]:
    """Return (name, index) of ``host[0:4]``, ``host[2]`` or ``host`` (all of them)."""
    from topology.errors import InputError

    match = _SLICE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{where}: {shown(text)} is no name with a slice like host[0:4].")
    name, total = match[1], counts.get(match[1], 1)
    if name not in counts:
        raise InputError(f"{where}: {shown(name)} is not defined.")
    if "[" not in text:
        first, last = 0, total
    else:
        first = int((match[2] or "0")[:9])
        last = first + 1 if match[3] is None and match[2] else int(match[3][:9]) if match[3] else total
    if not 0 <= first < last <= total:
        raise InputError(f"{where}: {shown(text)} is outside 0 to {total - 1}.")
    return [(name, index) for index in range(first, last)]


def _dotted(text: object, where: str, parts: int) -> list[str]:
    """Return the parts of a dotted connection, numbers where numbers belong."""
    from topology.errors import InputError

    found = text.split(".") if isinstance(text, str) else []
    numbers = (1, 4) if parts == 5 else (1, 3, 6, 8)
    if len(found) != parts or not all(re.fullmatch(r"\d{1,9}", found[i]) for i in numbers):
        raise InputError(f"{where}: {shown(text)} is no path of {parts} parts with indexes.")
    return found


def _too_large(where: str) -> Exception:
    from topology.errors import InputError

    return InputError(f"{where}: makes more than {_MOST_EDGES} edges.")


def _whole(graph: _Graph, outer: list[Outer], links: dict[str, Data]) -> WholeFound:
    """Expand hosts, then contract everything to GPUs and switches."""
    source = graph.source
    nodes: dict[str, tuple[str, str | None, str | None, int | None]] = {}
    wires: dict[tuple[str, str, str, bool], int] = defaultdict(int)
    rates: dict[str, tuple[Figure | None, Figure | None]] = {}
    switches: dict[str, None] = {}
    for name, (device_name, count) in graph.instances.items():
        device = graph.devices[device_name]
        for i in range(count):
            if device.is_host:
                _expand_host(graph, device, f"{name}.{i}", nodes, wires, rates)
            else:
                switches[f"{name}.{i}"] = None
            if len(nodes) > _MOST_NODES:
                raise source.error(None, f"has more than {_MOST_NODES} nodes.")
    near = {name: _near(device) for name, device in graph.devices.items() if device.is_host}
    neighbours: dict[str, set[str]] = defaultdict(set)
    for number, (a, b, link) in enumerate(outer):
        if link not in links:
            raise source.error(None, f"edge {number}: link {link} is not among the links.")
        rates.setdefault(link, _figures(source, links[link]))
        left, right = _end(graph, a, near), _end(graph, b, near)
        scale_up = _is_xpu(graph, a) or _is_xpu(graph, b)
        if len(left) != 1 or len(right) != 1:
            hub = (
                f"{a[0][0]}.{a[0][1]}.{a[1][0]}.{a[1][1]}"
                if len(left) != 1
                else f"{b[0][0]}.{b[0][1]}.{b[1][0]}.{b[1][1]}"
            )
            nodes[hub] = ("nic", None, None, None)
            for gpu in left if len(left) != 1 else right:
                wires[gpu, hub, link, False] += 1
            left, right = ([hub], right) if len(left) != 1 else (left, [hub])
        wires[left[0], right[0], link, scale_up] += 1
        neighbours[left[0]].add(right[0])
        neighbours[right[0]].add(left[0])
    _add_switches(graph, nodes, switches, neighbours, wires)
    whole = tuple(
        WholeLink((a, b), count, rates[link][0], up, link, rates[link][1])
        for (a, b, link, up), count in wires.items()
    )
    gpus = sum(kind == "gpu" for kind, *_ in nodes.values())
    notes = (f"{gpus} xpus, {len(nodes) - gpus} other nodes, {sum(wires.values())} links.",)
    return WholeFound(source.name, KIND, _with_domains(nodes, whole), whole, notes, tuple(graph.anomalies))


def _expand_host(
    graph: _Graph,
    device: _Device,
    host: str,
    nodes: dict[str, tuple[str, str | None, str | None, int | None]],
    wires: dict[tuple[str, str, str, bool], int],
    rates: dict[str, tuple[Figure | None, Figure | None]],
) -> None:
    """Add the xpus of one host, and their links to each other and to switches inside it."""
    kinds = device.components
    position = 0
    for component, (kind, count) in kinds.items():
        if kind == "xpu":
            for i in range(count):
                nodes[f"{host}.{component}.{i}"] = ("gpu", None, host, position)
                position += 1
    for (a, i), (b, j), link in device.edges:
        for name in (a, b):
            if name not in kinds:
                raise graph.source.error(None, f"{device.where}: component {name} of an edge is not defined.")
        pair = {_role(a, kinds), _role(b, kinds)}
        if "xpu" not in pair or not pair <= {"xpu", "switch"}:
            continue
        for name, number in ((a, i), (b, j)):
            nodes.setdefault(f"{host}.{name}.{number}", ("switch", None, host, None))
        if link not in device.links:
            raise graph.source.error(None, f"{device.where}: link {link} of an edge is not among its links.")
        rates.setdefault(f"{device.where}: {link}", _figures(graph.source, device.links[link]))
        wires[f"{host}.{a}.{i}", f"{host}.{b}.{j}", f"{device.where}: {link}", True] += 1


def _role(name: str, kinds: Mapping[str, tuple[str, int]]) -> str:
    """Return xpu, switch (scale-up) or other: a PCIe switch is none, by its name."""
    kind = kinds[name][0]
    if kind == "xpu":
        return "xpu"
    is_switch = kind == "switch" or (kind == "custom" and re.search(r"sw", name) is not None)
    return "switch" if is_switch and not re.search(r"pci", name, re.IGNORECASE) else "other"


def _near(device: _Device) -> dict[tuple[str, int], list[tuple[str, int]]]:
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


def _end(
    graph: _Graph,
    end: tuple[tuple[str, int], tuple[str, int]],
    near: dict[str, dict[tuple[str, int], list[tuple[str, int]]]],
) -> list[str]:
    """Return the nodes that one end of an outer edge stands for: a switch, an xpu, or the xpus of a NIC."""
    (instance, i), (component, j) = end
    if instance not in graph.instances:
        raise graph.source.error(None, f"an edge uses the instance {instance}, which is not defined.")
    device_name, count = graph.instances[instance]
    device = graph.devices[device_name]
    if i >= count:
        raise graph.source.error(None, f"an edge uses {instance}.{i}, but there are {count} of {instance}.")
    if component not in device.components or j >= device.components[component][1]:
        raise graph.source.error(
            None, f"an edge uses {instance}.{i}.{component}.{j}, which {device_name} does not have."
        )
    if not device.is_host:
        return [f"{instance}.{i}"]
    if device.components[component][0] == "xpu":
        return [f"{instance}.{i}.{component}.{j}"]
    return [f"{instance}.{i}.{name}.{number}" for name, number in near[device_name][component, j]]


def _is_xpu(graph: _Graph, end: tuple[tuple[str, int], tuple[str, int]]) -> bool:
    device = graph.devices[graph.instances[end[0][0]][0]]
    return device.components[end[1][0]][0] == "xpu"


def _add_switches(
    graph: _Graph,
    nodes: dict[str, tuple[str, str | None, str | None, int | None]],
    switches: Mapping[str, None],
    neighbours: Mapping[str, set[str]],
    wires: Mapping[tuple[str, str, str, bool], int],
) -> None:
    """Add switch devices: scale-up where xpus hang on them directly, else by hops from the hosts."""
    up = {end for a, b, _, scale_up in wires if scale_up for end in (a, b) if end in switches}
    levels = {
        name: 1
        for name in switches
        if name not in up
        and any(nodes.get(other, ("",))[0] in ("gpu", "nic") for other in neighbours.get(name, ()))
    }
    edge = list(levels)
    while edge:
        level = levels[edge[0]] + 1
        edge = sorted(
            {
                o
                for name in edge
                for o in neighbours[name]
                if o in switches and o not in levels and o not in up
            }
        )
        levels.update(dict.fromkeys(edge, level))
    for name in switches:
        if name in up:
            nodes[name] = ("switch", None, None, None)
        elif name in levels:
            nodes[name] = (("leaf", "spine", "core")[min(levels[name], 3) - 1], None, None, None)
        else:
            graph.anomalies.append(f"{graph.source.name}: switch {name} is cabled to nothing; left out.")


def _with_domains(
    nodes: dict[str, tuple[str, str | None, str | None, int | None]], links: tuple[WholeLink, ...]
) -> dict[str, tuple[str, str | None, str | None, int | None]]:
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


def _figures(source: Source, link: Data) -> tuple[Figure | None, Figure | None]:
    """Return rate and latency of a link, None where the file has none (transfers per second are no rate)."""
    holder = link.sub("physical") if link.has("physical") else link
    rate = latency = None
    where = f"{source.name}, link {link.text('name')}"
    if holder.has("bandwidth"):
        bandwidth = holder.sub("bandwidth")
        for key, factor in _GIGA_BYTES.items():
            if bandwidth.has(key):
                value = bandwidth.number(key)
                unit = "GB/s" if factor == 1 else "Gb/s"
                rate = Figure(value * factor * 1e9, "byte/s", Evidence.USER, where, f"{value:g} {unit}")
    if holder.has("latency"):
        times = holder.sub("latency")
        for key, factor in _SECONDS.items():
            if times.has(key):
                value = times.number(key)
                latency = Figure(value * factor, "s", Evidence.USER, where, f"{value:g} {key}")
    return rate, latency
