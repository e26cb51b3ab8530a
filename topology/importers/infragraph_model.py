"""The parts of an InfraGraph file: devices with components and edges, and edges between instances of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from topology.errors import InputError
from topology.figures import Evidence, Figure
from topology.importers.data import Data
from topology.importers.source import Source
from topology.reading import shown

MOST_NODES = 300_000
_MOST_EDGES = 1_000_000
_SLICE = re.compile(r"([\w./-]+?)(?:\[(\d*)(?::(\d*))?\])?")
_GIGA_BYTES = {
    "gigabytes_per_second": 1.0,
    "giga_bytes_per_second": 1.0,
    "gigabits_per_second": 1 / 8,
    "giga_bits_per_second": 1 / 8,
}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}

Part = tuple[str, int]
"""A component or instance, and its number."""
OuterEnd = tuple[Part, Part]
"""Instance and component."""
OuterEdge = tuple[OuterEnd, OuterEnd, str]
"""Two ends and the name of the link."""
_End = TypeVar("_End")


@dataclass
class Device:
    """Components by name with kind and count, and edges inside as pairs with the name of their link."""

    where: str
    components: dict[str, tuple[str, int]]
    links: dict[str, Data]
    edges: list[tuple[Part, Part, str]]

    @property
    def is_host(self) -> bool:
        """Whether it has an xpu."""
        return any(kind == "xpu" for kind, _ in self.components.values())


def read_device(row: Data) -> Device:
    """Read one device.

    Raises
    ------
    InputError
        If an edge uses a component that is not there.
    """
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
            has = components[name][1]
            raise InputError(f"{row.where}: component {name} has {has}, but an edge uses number {most - 1}.")
    return Device(row.where, components, links_of(row), edges)


def links_of(row: Data) -> dict[str, Data]:
    """Return the links of a device, or of the whole, by name."""
    return {link.text("name"): link for link in row.subs("links")}


def _inner_edges(row: Data) -> list[tuple[tuple[str, int], tuple[str, int], str]]:
    """Return the edges inside a device."""
    edges = []
    for text in row.items("connections"):
        parts = _dotted(text, f"{row.where}: connections", 5)
        edges.append(((parts[0], int(parts[1])), (parts[3], int(parts[4])), parts[2]))
    counts = {item.text("name"): _count(item) for item in row.subs("components")}
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


def read_outer_edges(source: Source, data: Data) -> list[OuterEdge]:
    """Return the edges between instances.

    Raises
    ------
    InputError
        If an end is not defined.
    """
    found: list[OuterEdge] = []
    for text in data.items("connections"):
        p = _dotted(text, f"{source.name}: connections", 9)
        found.append((((p[0], int(p[1])), (p[2], int(p[3]))), ((p[5], int(p[6])), (p[7], int(p[8]))), p[4]))
    counts, inside = _defined(data)
    for edge in data.subs("edges"):
        left, right = (_outer_ends(edge.sub(key), counts, inside) for key in ("ep1", "ep2"))
        found += [(a, b, edge.text("link")) for a, b in _scheme(edge, left, right)]
        if len(found) > _MOST_EDGES:
            raise _too_large(edge.where)
    return found


def _defined(data: Data) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Return how many there are of each instance, and of the components in it where its device is described."""
    devices = {row.text("name"): row for row in data.subs("devices")}
    counts: dict[str, int] = {}
    inside: dict[str, dict[str, int]] = {}
    for row in data.subs("instances"):
        counts[row.text("name")] = _count(row)
        device = devices.get(row.text("device"))
        if device is not None:
            inside[row.text("name")] = {part.text("name"): _count(part) for part in device.subs("components")}
    return counts, inside


def _outer_ends(end: Data, counts: Mapping[str, int], inside: Mapping[str, dict[str, int]]) -> list[OuterEnd]:
    """Return the (instance, component) pairs of one end."""
    instances = _sliced(end.text("instance"), counts, end.where)
    name = instances[0][0]
    if name not in inside:
        raise InputError(f"{end.where}: the device of {name} is not among the devices.")
    # of a part inside a nested device, the device as a whole is the component
    components = _sliced(end.text("component").split(".")[0], inside[name], end.where)
    if len(instances) * len(components) > _MOST_EDGES:
        raise _too_large(end.where)
    return [(instance, part) for instance in instances for part in components]


def _count(row: Data) -> int:
    """Return how many there are of a component or instance, one where it does not say."""
    return row.whole("count", least=1, most=MOST_NODES) if row.has("count") else 1


def _scheme(edge: Data, left: Sequence[_End], right: Sequence[_End]) -> list[tuple[_End, _End]]:
    """Return the pairs that an edge's scheme makes of two lists of ends."""
    scheme = edge.text("scheme") if edge.has("scheme") else "one2one"
    if scheme == "many2many":
        if len(left) * len(right) > _MOST_EDGES:
            raise _too_large(edge.where)
        return [(a, b) for a in left for b in right if a != b]
    if scheme == "one2one":
        if len(left) != len(right):
            raise InputError(f"{edge.where}: one2one joins {len(left)} ends to {len(right)}.")
        return list(zip(left, right, strict=True))
    if scheme == "ring":
        members = left if left == right else [*left, *right]
        return (
            [(a, members[(i + 1) % len(members)]) for i, a in enumerate(members)] if len(members) > 1 else []
        )
    raise InputError(f"{edge.where}: scheme {shown(scheme)} is not one2one, many2many or ring.")


def _sliced(text: str, counts: Mapping[str, int], where: str) -> list[tuple[str, int]]:
    """Return (name, index) of ``host[0:4]``, ``host[2]`` or ``host`` (all of them)."""
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
    if last - first > MOST_NODES:
        raise InputError(f"{where}: {shown(text)} is more than {MOST_NODES} parts.")
    return [(name, index) for index in range(first, last)]


def _dotted(text: object, where: str, parts: int) -> list[str]:
    """Return the parts of a dotted connection, numbers where numbers belong."""
    found = text.split(".") if isinstance(text, str) else []
    numbers = (1, 4) if parts == 5 else (1, 3, 6, 8)
    if len(found) != parts or not all(re.fullmatch(r"\d{1,9}", found[i]) for i in numbers):
        raise InputError(f"{where}: {shown(text)} is no path of {parts} parts with indexes.")
    return found


def _too_large(where: str) -> InputError:
    return InputError(f"{where}: makes more than {_MOST_EDGES} edges.")


def link_figures(source: Source, link: Data) -> tuple[Figure | None, Figure | None]:
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
