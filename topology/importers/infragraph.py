"""InfraGraph (MLCommons), YAML or JSON: devices of components, instances of devices, and edges between them.

Both written forms are read: ``connections`` of dotted paths, and ``edges`` of sliced endpoints with a scheme.
A device with an ``xpu`` is a host; any other is a switch, whatever is inside it. Links of an xpu to switches or
other xpus are scale-up; those of a NIC scale-out. What is between an xpu and its NIC (PCIe) only says which NIC
is whose.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from networkx.utils import UnionFind

from topology.build import GPUS
from topology.errors import InputError
from topology.figures import Evidence, Figure
from topology.importers.found import Format, WholeFound, WholeLink, levels_above, switch_kind
from topology.importers.pcie import deal
from topology.importers.source import Source
from topology.reading import Fields, shown
from topology.spec import RawNode
from topology.units import plural

_MOST_NODES = 300_000
_MOST_EDGES = 1_000_000
_MOST_WIRES = 4_000_000
_MOST_INSIDE = 100_000
"""Edges inside one device: those of 72 GPUs and 18 switch chips are 1,296."""
_SLICE = re.compile(r"([\w./-]+?)(?:\[(\d*)(?::(\d*))?\])?")
_BYTES, _BITS = (1e9, "GB/s"), (1e9 / 8, "Gb/s")
_RATES = {
    "gigabytes_per_second": _BYTES,
    "giga_bytes_per_second": _BYTES,
    "gigabits_per_second": _BITS,
    "giga_bits_per_second": _BITS,
}
_TIMES = {"ns": (1e-9, "ns"), "us": (1e-6, "us"), "ms": (1e-3, "ms")}
_UNITS = {"bandwidth": ("byte/s", _RATES), "latency": ("s", _TIMES)}
"""What a link may say: the unit of each figure, and by key the factor to it and the unit as people write it."""

Part = tuple[str, int]
"""A component or instance, and its number."""
OuterEnd = tuple[Part, Part]
"""Instance and component."""
OuterEdge = tuple[OuterEnd, OuterEnd, str]
"""Two ends and the name of the link."""
_End = TypeVar("_End")


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
    top = source.fields()
    data = top.sub("infrastructure") if top.has("infrastructure") else top
    return _Graph(source, data).found()


def _ones(bits: int) -> list[int]:
    """Return the places of the ones in a number."""
    octets = np.frombuffer(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), dtype=np.uint8)
    found: list[int] = np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist()
    return found


@dataclass
class _Device:
    """Components by name with kind and count, and edges inside as pairs with the name of their link."""

    name: str
    where: str
    components: dict[str, tuple[str, int]]
    links: dict[str, Fields]
    edges: list[tuple[Part, Part, str]]

    @cached_property
    def xpus(self) -> list[Part]:
        """Its xpus; a device with any is a host."""
        return [(name, i) for name, (kind, n) in self.components.items() if kind == "xpu" for i in range(n)]

    @cached_property
    def joined_by(self) -> dict[frozenset[Part], str]:
        """The link between two of its parts."""
        return {frozenset((a, b)): link for a, b, link in self.edges}

    def role(self, name: str) -> str:
        """Return xpu, switch (scale-up) or other: a PCIe switch is other, by its name."""
        kind = self.components[name][0]
        if kind == "xpu":
            return "xpu"
        is_switch = kind == "switch" or (kind == "custom" and re.search(r"sw", name) is not None)
        return "switch" if is_switch and not re.search(r"pci", name, re.IGNORECASE) else "other"

    def served(self) -> dict[Part, tuple[list[Part], Part | None]]:
        """Return the xpus that each component serves, and the component between it and those.

        They are the nearest by hops inside that do not use scale-up switches; NICs near to the same are dealt.
        """
        joined: dict[Part, dict[Part, None]] = defaultdict(dict)
        for a, b, _ in self.edges:
            if all(self.role(end[0]) != "switch" for end in (a, b) if end[0] in self.components):
                joined[a][b] = joined[b][a] = None
        number = {xpu: i for i, xpu in enumerate(self.xpus)}
        bits = {xpu: 1 << i for xpu, i in number.items()}
        hops = dict.fromkeys(bits, 0)
        edge = list(bits)
        while edge:
            further: dict[Part, int] = {}
            for part in edge:
                for far in joined[part].keys() - hops.keys():
                    further[far] = further.get(far, 0) | bits[part]
            hops.update(dict.fromkeys(further, hops[edge[0]] + 1))
            bits.update(further)
            edge = list(further)
        sets = {own for part, own in bits.items() if part not in number}
        lists = {own: [self.xpus[i] for i in _ones(own)] for own in sets}
        near: dict[Part, list[Part]] = {}
        between: dict[Part, Part | None] = {}
        for start in ((name, i) for name, (_, count) in self.components.items() for i in range(count)):
            if start in number:
                continue
            own = bits.get(start, 0)
            near[start] = lists.get(own, self.xpus)
            for other in joined[start] if hops.get(start, 0) > 1 else ():
                if hops[other] < hops[start] and bits[other] & own & -own:
                    between[start] = other
        nics = [part for part in near if self.components[part[0]][0] == "nic"]
        dealt = deal([[number[xpu] for xpu in near[nic]] for nic in nics], [1.0] * len(nics), len(number))
        near.update({nic: [self.xpus[i] for i in own] for nic, own in zip(nics, dealt, strict=True)})
        return {part: (xpus, between.get(part)) for part, xpus in near.items()}


def _rows(data: Fields, key: str) -> dict[str, Fields]:
    """Return the rows under ``key`` by their names, which must differ; none where it is absent."""
    found: dict[str, Fields] = {}
    for row in data.subs(key, empty=True):
        if row.name("name") in found:
            raise InputError(f"{row.where}: duplicate name {shown(row.name('name'))}.")
        found[row.name("name")] = row
    return found


def _count(row: Fields, default: int = 1) -> int:
    """Return how many there are of a component or instance; ``default`` where it does not say."""
    count = row.count("count", most=_MOST_NODES) if row.has("count") else default
    if count > _MOST_NODES:
        raise InputError(f"{row.where}: edges use more than {_MOST_NODES} of it.")
    return count


def _read_device(row: Fields) -> _Device:
    """Read one device; edges may use more of a component than it counts only where it does not count."""
    components: dict[str, tuple[str, int]] = {}
    parts = _rows(row, "components")
    edges = _inner_edges(row, {name: _count(item) for name, item in parts.items()})
    highest: dict[str, int] = defaultdict(lambda: -1)
    for a, b, _ in edges:
        for name, index in (a, b):
            highest[name] = max(highest[name], index)
    for name, item in parts.items():
        kind = item.name("choice" if item.has("choice") else "type")
        components[name] = (kind, _count(item, max(1, highest[name] + 1)))
        if highest[name] >= components[name][1]:
            raise InputError(
                f"{row.where}: component {name} has {components[name][1]}, but an edge uses number {highest[name]}."
            )
    return _Device(row.name("name"), row.where, components, _rows(row, "links"), edges)


def _inner_edges(row: Fields, counts: Mapping[str, int]) -> list[tuple[Part, Part, str]]:
    """Return the edges inside a device that has so many of each component."""
    edges = []
    for text in row.items("connections"):
        parts = _dotted(text, row.at("connections"), 5)
        edges.append(((parts[0], int(parts[1])), (parts[3], int(parts[4])), parts[2]))
    for edge in row.subs("edges", empty=True):
        # a part inside a nested device: the device as a whole stands for it
        left, right = (
            _sliced(end.name("device" if end.has("device") else "component"), counts, end.where)
            for end in (edge.sub("ep1"), edge.sub("ep2"))
        )
        link = edge.name("link")
        edges += [(a, b, link) for a, b in _scheme(edge, left, right, _MOST_INSIDE)]
        if len(edges) > _MOST_INSIDE:
            raise _too_large(edge.where, _MOST_INSIDE)
    return edges


def _outer_edges(source: Source, data: Fields, devices: Mapping[str, _Device]) -> list[OuterEdge]:
    """Return the edges between instances."""
    found: list[OuterEdge] = []
    for text in data.items("connections"):
        p = _dotted(text, f"{source.name}: connections", 9)
        found.append((((p[0], int(p[1])), (p[2], int(p[3]))), ((p[5], int(p[6])), (p[7], int(p[8]))), p[4]))
    instances = data.subs("instances", empty=True)
    counts = {row.name("name"): _count(row) for row in instances}
    # the components of each instance whose device is described
    inside = {
        row.name("name"): {name: count for name, (_, count) in device.components.items()}
        for row in instances
        if (device := devices.get(row.name("device"))) is not None
    }
    for edge in data.subs("edges", empty=True):
        left, right = (_outer_ends(edge.sub(key), counts, inside) for key in ("ep1", "ep2"))
        link = edge.name("link")
        found += [(a, b, link) for a, b in _scheme(edge, left, right)]
        if len(found) > _MOST_EDGES:
            raise _too_large(edge.where)
    return found


def _outer_ends(
    end: Fields, counts: Mapping[str, int], inside: Mapping[str, dict[str, int]]
) -> list[OuterEnd]:
    """Return the (instance, component) pairs of one end."""
    instances = _sliced(end.name("instance"), counts, end.where)
    name = instances[0][0]
    if name not in inside:
        raise InputError(f"{end.where}: the device of {name} is not among the devices.")
    # of a part inside a nested device, the device as a whole is the component
    components = _sliced(end.name("component").split(".")[0], inside[name], end.where)
    if len(instances) * len(components) > _MOST_EDGES:
        raise _too_large(end.where)
    return [(instance, part) for instance in instances for part in components]


def _scheme(
    edge: Fields, left: Sequence[_End], right: Sequence[_End], most: int = _MOST_EDGES
) -> list[tuple[_End, _End]]:
    """Return the pairs that an edge's scheme makes of two lists of ends."""
    scheme = edge.name("scheme") if edge.has("scheme") else "one2one"
    if scheme == "many2many":
        if len(left) * len(right) > most:
            raise _too_large(edge.where, most)
        return [(a, b) for a in left for b in right if a != b]
    if scheme == "one2one":
        if len(left) != len(right):
            raise InputError(f"{edge.where}: one2one joins {len(left)} ends to {len(right)}.")
        return list(zip(left, right, strict=True))
    if scheme == "ring":
        members = left if left == right else [*left, *right]
        return list(zip(members, [*members[1:], members[0]], strict=True)) if len(members) > 1 else []
    raise InputError(f"{edge.where}: scheme {shown(scheme)} is not one2one, many2many or ring.")


def _sliced(text: str, counts: Mapping[str, int], where: str) -> list[Part]:
    """Return (name, index) of ``host[0:4]``, ``host[2]`` or ``host`` (all of them)."""
    match = _SLICE.fullmatch(text)
    if match is None:
        raise InputError(f"{where}: {shown(text)} is not a name with a slice like host[0:4].")
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
    found = text.split(".") if isinstance(text, str) else []
    numbers = (1, 4) if parts == 5 else (1, 3, 6, 8)
    if len(found) != parts or not all(re.fullmatch(r"\d{1,9}", found[i]) for i in numbers):
        raise InputError(f"{where}: {shown(text)} is not a path of {parts} parts with indexes.")
    return found


def _too_large(where: str, most: int = _MOST_EDGES) -> InputError:
    return InputError(f"{where}: makes more than {most:,} edges.")


def _link_figures(source: Source, link: Fields) -> tuple[Figure | None, Figure | None]:
    """Return rate and latency of a link, None where the file has none (transfers per second are no rate)."""
    holder = link.sub("physical") if link.has("physical") else link
    where = f"{source.name}, link {link.name('name')}"
    figures: dict[str, Figure] = {}
    for what, (unit, known) in _UNITS.items():
        given = holder.sub(what) if holder.has(what) else None
        for key, (factor, word) in known.items():
            if given is not None and given.has(key):
                value = given.number(key)
                figures[what] = Figure(value * factor, unit, Evidence.USER, where, f"{value:g} {word}")
    return figures.get("bandwidth"), figures.get("latency")


class _Graph:
    """The nodes, links and anomalies that devices, instances and edges make."""

    def __init__(self, source: Source, data: Fields) -> None:
        self._source = source
        self._devices = {name: _read_device(row) for name, row in _rows(data, "devices").items()}
        self._outer = _outer_edges(source, data, self._devices)
        self._links = _rows(data, "links")
        self._instances: dict[str, tuple[_Device, int]] = {}
        self._nodes: dict[str, RawNode] = {}
        self._wires: Counter[tuple[str, str, str, bool]] = Counter()
        self._rates: dict[str, tuple[Figure | None, Figure | None]] = {}
        self._add_instances(data)
        if not any(device.xpus for device, _ in self._instances.values()):
            raise source.error(None, "no instance has a component of the kind xpu: there are no GPUs in it.")

    def found(self) -> WholeFound:
        """Expand hosts, then contract everything to GPUs and switches."""
        switches: dict[str, None] = {}
        xpus = sum(len(device.xpus) * count for device, count in self._instances.values())
        if xpus > GPUS:
            raise self._source.error(None, f"{xpus:,} xpus; at most {GPUS:,} are imported.")
        inside = sum(len(device.edges) * count for device, count in self._instances.values() if device.xpus)
        if inside > _MOST_WIRES:
            raise self._source.error(
                None, f"its hosts have {inside:,} edges inside; at most {_MOST_WIRES:,} are imported."
            )
        for name, (device, count) in self._instances.items():
            for i in range(count):
                if device.xpus:
                    self._expand_host(device, f"{name}.{i}")
                else:
                    switches[f"{name}.{i}"] = None
                if len(self._nodes) > _MOST_NODES:
                    raise self._source.error(None, f"has more than {_MOST_NODES} nodes.")
        self._add_switches(switches, self._add_outer())
        links = tuple(
            WholeLink((a, b), count, self._rates[link][0], up, link, self._rates[link][1])
            for (a, b, link, up), count in self._wires.items()
        )
        gpus = sum(node.kind == "gpu" for node in self._nodes.values())
        self._source.notes.append(
            f"{plural(gpus, 'xpu')}, {plural(len(self._nodes) - gpus, 'other node')}, "
            f"{plural(self._wires.total(), 'link')}."
        )
        return WholeFound(_with_domains(list(self._nodes.values()), links), links)

    def _add_instances(self, data: Fields) -> None:
        """Add instances; one whose device is not described is left out if nothing is cabled to it."""
        used: dict[str, int] = defaultdict(int)
        for (a, _), (b, _), _ in self._outer:
            for name, index in (a, b):
                used[name] = max(used[name], index + 1)
        for name, row in _rows(data, "instances").items():
            device, count = row.name("device"), _count(row, max(1, used.get(name, 1)))
            if device in self._devices:
                self._instances[name] = (self._devices[device], count)
                continue
            if name in used:
                raise InputError(
                    f"{row.where}: device {device} is not among the devices, but edges use {name}."
                )
            self._source.anomalies.append(
                f"{row.where}: device {device} of {name} is not described, and nothing is cabled to it; left out."
            )

    def _expand_host(self, device: _Device, host: str) -> None:
        """Add the xpus of one host, and their links to each other and to switches inside it."""
        for position, (name, i) in enumerate(device.xpus):
            self._add_node(RawNode(f"{host}.{name}.{i}", "gpu", node=host, rail=position))
        for (a, i), (b, j), link in device.edges:
            for name in (a, b):
                if name not in device.components:
                    raise InputError(f"{device.where}: component {name} of an edge is not defined.")
            roles = {device.role(a), device.role(b)}
            if "xpu" not in roles or not roles <= {"xpu", "switch"}:
                continue
            ends = (f"{host}.{a}.{i}", f"{host}.{b}.{j}")
            for end in ends:
                self._add_node(RawNode(end, "switch", node=host))
            if link not in device.links:
                raise InputError(f"{device.where}: link {link} of an edge is not among its links.")
            key = f"{device.where}: {link}"
            self._add_rate(key, device.links[link])
            self._wires[(*ends, key, True)] += 1

    def _add_node(self, node: RawNode) -> None:
        """Add a node, once."""
        self._nodes.setdefault(node.id, node)

    def _add_rate(self, key: str, link: Fields) -> None:
        """Read the figures of a link, once."""
        if key not in self._rates:
            self._rates[key] = _link_figures(self._source, link)

    def _add_outer(self) -> dict[str, set[str]]:
        """Add the links between instances, and return who is joined to whom."""
        near = {device.name: device.served() for device in self._devices.values() if device.xpus}
        neighbours: dict[str, set[str]] = defaultdict(set)
        for number, (*ends, link) in enumerate(self._outer):
            if link not in self._links:
                raise self._source.error(None, f"edge {number}: link {link} is not among the links.")
            self._add_rate(link, self._links[link])
            left, right = (self._one_end(end, near, link) for end in ends)
            scale_up = any(
                self._instances[instance][0].components[part][0] == "xpu" for (instance, _), (part, _) in ends
            )
            self._wires[left, right, link, scale_up] += 1
            neighbours[left].add(right)
            neighbours[right].add(left)
        used = {
            (self._instances[instance][0].name, part)
            for *ends, _ in self._outer
            for (instance, _), part in ends
        }
        for device in {device.name: device for device, _ in self._instances.values() if device.xpus}.values():
            nics = [
                (name, i)
                for name, (kind, count) in device.components.items()
                if kind == "nic"
                for i in range(count)
            ]
            bare = [f"{name}.{i}" for name, i in nics if (device.name, (name, i)) not in used]
            if bare and len(bare) < len(nics):
                self._source.notes.append(f"NICs of {device.name} without a cable: {', '.join(bare)}.")
        return neighbours

    def _one_end(
        self, end: OuterEnd, near: Mapping[str, Mapping[Part, tuple[list[Part], Part | None]]], link: str
    ) -> str:
        """Return the node that one end of an outer edge is: a switch, an xpu, or a NIC that several xpus share."""
        (instance, i), (component, j) = end
        if instance not in self._instances:
            raise self._source.error(None, f"an edge uses the instance {instance}, which is not defined.")
        device, count = self._instances[instance]
        if i >= count:
            raise self._source.error(
                None, f"an edge uses {instance}.{i}, but there are {count} of {instance}."
            )
        place = f"{instance}.{i}.{component}.{j}"
        if component not in device.components or j >= device.components[component][1]:
            raise self._source.error(None, f"an edge uses {place}, which {device.name} does not have.")
        if not device.xpus:
            return f"{instance}.{i}"
        if device.components[component][0] == "xpu":
            return place
        served, between = near[device.name][component, j]
        host = f"{instance}.{i}"
        xpus = [f"{host}.{name}.{number}" for name, number in served]
        if len(xpus) == 1:
            return xpus[0]
        self._add_node(RawNode(place, "nic", node=host))
        if between is not None:
            hub = f"{host}.{between[0]}.{between[1]}"
            self._add_node(
                RawNode(hub, "host" if device.components[between[0]][0] == "cpu" else "pcie", node=host)
            )
            self._wires[hub, place, link, False] += 1
        for part, xpu in zip(served, xpus, strict=True):
            inner = device.joined_by.get(frozenset((part, between))) if between is not None else None
            key = f"{device.where}: {inner}"
            if inner in device.links:
                self._add_rate(key, device.links[inner])
            if self._rates.get(key, (None, None))[0] is not None:
                self._wires[xpu, hub, key, False] = 1
            else:
                # PCIe without a rate is taken as no narrower than the NICs
                self._wires[xpu, place if between is None else hub, link, False] += 1
        return place

    def _add_switches(self, switches: Mapping[str, None], neighbours: Mapping[str, set[str]]) -> None:
        """Add switch devices: scale-up where xpus hang on them directly, else by hops from the hosts."""
        up = {end for a, b, _, scale_up in self._wires if scale_up for end in (a, b) if end in switches}
        hosts = {name for name, node in self._nodes.items() if node.kind in ("gpu", "nic")}
        joined = {name: neighbours[name] & switches.keys() - up for name in switches if name in neighbours}
        leaves = [name for name in joined if name not in up and neighbours[name] & hosts]
        levels = levels_above(leaves, joined)
        alone = switches.keys() - up - levels.keys()
        for name in switches:
            if name in up:
                self._add_node(RawNode(name, "switch"))
            elif name in levels:
                self._add_node(RawNode(name, switch_kind(levels[name])))
            else:
                how = "has no way to a host" if neighbours.get(name) else "is cabled to nothing"
                self._source.anomalies.append(f"{self._source.name}: switch {name} {how}; left out.")
        for wire in [wire for wire in self._wires if alone & {*wire[:2]}] if alone else ():
            del self._wires[wire]


def _with_domains(nodes: Sequence[RawNode], links: tuple[WholeLink, ...]) -> tuple[RawNode, ...]:
    """Name the domain of GPUs and chips joined by scale-up links after its first GPU's host, or the host alone."""
    joined: UnionFind[str] = UnionFind()
    for link in links:
        if link.scale_up:
            joined.union(*link.between)
    first: dict[str, str] = {}
    for node in nodes:
        if node.kind == "gpu":
            first.setdefault(joined[node.id], node.node or node.id)
    return tuple(
        replace(node, domain=first.get(joined[node.id])) if node.kind in ("gpu", "switch") else node
        for node in nodes
    )


FORMAT = Format("infragraph", read_infragraph, in_data=looks_like_infragraph)
