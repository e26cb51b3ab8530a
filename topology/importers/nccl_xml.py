"""NCCL's topology XML (``NCCL_TOPO_DUMP_FILE``), RCCL's with it: PCI tree, NVLink or xGMI, NICs of one host.

A static input file of a cloud image has PCI devices alone: such a host has no GPU here, only devices. Targets
of ``fffffff:ff:ff.0`` are switches that NCCL does not see one by one, and that may join other hosts.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from topology.figures import Evidence, Figure
from topology.importers.found import NicFound, NodeFound
from topology.importers.nccl_links import attribute, read_links, whole
from topology.importers.source import Source
from topology.importers.xml_tree import Element, parse_xml
from topology.reading import shown

KIND = "nccl-xml"
_GPU_CLASSES = ("0x0302", "0x0300", "0x0380", "0x1200")
_GT = re.compile(r"(\d+(?:\.\d+)?) GT/s(?: PCIe)?")
_LINE_CODE = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""Payload share of PCIe's line code by transfer rate (PCI Express base specification: 8b/10b, 128b/130b, FLITs)."""


@dataclass
class _Gpu:
    """One GPU package: the elements that speak of it (two, where its dies are listed apart)."""

    busid: str
    socket: str
    bridge: tuple[str, ...]
    pcie: Figure | None
    elements: list[Element] = field(default_factory=list)


@dataclass
class _Host:
    """What the walk over the tree collects."""

    source: Source
    gpus: list[_Gpu] = field(default_factory=list)
    nets: list[tuple[Element, tuple[str, ...]]] = field(default_factory=list)
    devices: Counter[str] = field(default_factory=Counter)
    busids: dict[str, int] = field(default_factory=dict)


def read_nccl_xml(source: Source) -> NodeFound:
    """Return the inside of the host that the file is of.

    Raises
    ------
    InputError
        If it is no NCCL topology, is cut, or contradicts itself.
    """
    root = parse_xml(source)
    fragment = root.tag in ("pci", "cpu")
    if root.tag == "graphs":
        raise source.error(
            root.line,
            "is an NCCL graph (the routes NCCL chose), not a topology: dump one with NCCL_TOPO_DUMP_FILE.",
        )
    if root.tag != "system" and not fragment:
        raise source.error(root.line, f"<{root.tag}> is no NCCL topology, whose root is <system>.")
    host = _Host(source)
    for number, cpu in enumerate([root] if fragment else root.children):
        _walk(host, cpu, cpu.attributes.get("numaid", str(number)), ())
    if not host.gpus and not host.devices:
        raise source.error(None, "has no GPU and no PCI device: it is empty or cut.")
    return _node(host, fragment=fragment)


def _walk(host: _Host, element: Element, socket: str, bridges: tuple[str, ...]) -> None:
    """Collect GPUs, NICs and devices below ``element``; ``bridges`` are the PCI switches above it."""
    if element.tag == "pci":
        busid = attribute(host.source, element, "busid").lower()
        if busid in host.busids:
            raise host.source.error(
                element.line, f"PCI device {shown(busid)} comes twice (first in line {host.busids[busid]})."
            )
        host.busids[busid] = element.line
        if not element.children:
            host.devices[_class(element)] += 1
        below = (*bridges, busid) if _class(element).startswith("0x0604") else bridges
        packages = element.all("gpu")
        if packages:
            host.gpus.append(_Gpu(busid, socket, bridges, _pcie(host.source, element), packages))
        for nic in element.all("nic"):
            host.nets += [(net, bridges) for net in nic.all("net")]
        for child in element.all("pci"):
            _walk(host, child, socket, below)
    elif element.tag in ("cpu", "system"):
        for child in element.children:
            _walk(host, child, socket, bridges)
    elif element.tag == "nic":
        host.nets += [(net, bridges) for net in element.all("net")]


def _node(host: _Host, *, fragment: bool) -> NodeFound:
    """Return what was collected, in the form all importers share."""
    source = host.source
    _check_dev(host)
    host.gpus.sort(key=lambda gpu: int(gpu.elements[0].attributes.get("dev", "0")))
    names = {gpu.busid: f"GPU{i}" for i, gpu in enumerate(host.gpus)}
    found = read_links(source, names, {gpu.busid: gpu.elements for gpu in host.gpus})
    counts = Counter(dict.fromkeys(names.values(), 0))
    for a, b, count in found.links:
        for end in (a, b):
            if end in counts:
                counts[end] += count
    notes = [f"{len(host.gpus)} GPUs and {len(host.nets)} NIC ports."]
    devices = sum(n for kind_, n in host.devices.items() if kind_.startswith(_GPU_CLASSES))
    if not host.gpus:
        notes.append(
            f"No <gpu> (a static file, that NCCL completes at run time): 0 GPUs, {devices} PCI devices of a GPU's "
            "class."
        )
    if any(len(gpu.elements) > 1 for gpu in host.gpus):
        notes.append("Two <gpu> in one PCI device are the dies of one package, and counted as one GPU.")
    anomalies = [*_unlike(host, names, counts), *found.anomalies, *_unlike_nics(host)]
    if fragment:
        anomalies.insert(
            0, f"{source.name}: a fragment: the root is not <system>, so other GPUs may be missing."
        )
    return NodeFound(
        place=source.name,
        kind=KIND,
        gpus=tuple(names.values()),
        chips=found.chips,
        links=found.links,
        hidden=found.hidden,
        beyond=found.hidden,
        link_kind=found.kind,
        nics=_nics(host),
        sockets=tuple(gpu.socket for gpu in host.gpus),
        pcie=tuple(gpu.pcie for gpu in host.gpus),
        devices=devices,
        sm=_sm(host),
        notes=tuple(notes),
        anomalies=tuple(anomalies),
    )


def _unlike(host: _Host, names: dict[str, str], counts: Counter[str]) -> list[str]:
    """Return GPUs with another number of scale-up links than most."""
    usual = Counter(counts.values()).most_common(1)[0][0] if counts else 0
    usual = usual or max(counts.values(), default=0)
    found = []
    for gpu in host.gpus:
        name, line = names[gpu.busid], gpu.elements[0].line
        if counts[name] != usual:
            have = f"{counts[name]} scale-up links" if counts[name] else "no scale-up link"
            where = f"{host.source.name}: line {line}"
            found.append(f"{where}: {name} ({gpu.busid}) has {have}, other GPUs {usual}.")
    return found


def _unlike_nics(host: _Host) -> list[str]:
    """Return NIC ports that run at another rate than most."""
    rates = Counter(net.attributes.get("speed", "") for net, _ in host.nets)
    usual = rates.most_common(1)[0][0] if rates else ""
    return [
        f"{host.source.name}: line {net.line}: {shown(net.attributes.get('name', '?'))} runs at "
        f"{shown(net.attributes.get('speed', '?'))} Mb/s, other NICs at {usual}."
        for net, _ in host.nets
        if net.attributes.get("speed", "") != usual
    ]


def _nics(host: _Host) -> tuple[NicFound, ...]:
    """Return the NIC ports, each with its rate and the GPUs below the same PCI switch."""
    nics = []
    for number, (net, bridges) in enumerate(host.nets):
        speed = whole(host.source, net, "speed", 100_000_000, least=0)
        # NCCL writes 10 Gb/s where the driver does not say; it is printed as any other figure
        rate = Figure(
            speed * 1e6 / 8,
            "byte/s",
            Evidence.MEASURED,
            f"{host.source.name}, line {net.line}",
            f"{speed / 1000:g} Gb/s",
        )
        near = _nearest([gpu.bridge for gpu in host.gpus], bridges)
        nics.append(NicFound(net.attributes.get("name", f"nic{number}"), near, rate if speed else None))
    return tuple(nics)


def _nearest(gpus: list[tuple[str, ...]], bridges: tuple[str, ...]) -> tuple[int, ...]:
    """Return the GPUs that share the most PCI switches with a NIC, at least one."""
    shared = [sum(1 for a, b in zip(gpu, bridges, strict=False) if a == b) for gpu in gpus]
    most = max(shared, default=0)
    return tuple(i for i, count in enumerate(shared) if count == most) if most else ()


def _pcie(source: Source, element: Element) -> Figure | None:
    """Return the rate of a device's PCIe link, per direction: transfers x lanes x line code."""
    speed, width = element.attributes.get("link_speed", ""), element.attributes.get("link_width", "")
    match = _GT.match(speed)
    if (
        match is None
        or not width.isdecimal()
        or float(match[1]) not in _LINE_CODE
        or not 0 < int(width) <= 32
    ):
        return None
    rate = float(match[1]) * 1e9 / 8 * int(width) * _LINE_CODE[float(match[1])]
    return Figure(rate, "byte/s", Evidence.DERIVED, f"{source.name}, line {element.line}: {speed} x {width}")


def _sm(host: _Host) -> str:
    """Return the compute capability that all GPUs state, or none."""
    values = {element.attributes.get("sm", "") for gpu in host.gpus for element in gpu.elements}
    if len(values) > 1:
        raise host.source.error(
            host.gpus[0].elements[0].line,
            f"GPUs of different generations (sm {', '.join(sorted(values))}) in one host.",
        )
    return values.pop() if values else ""


def _check_dev(host: _Host) -> None:
    """Every GPU has a number, and no two the same."""
    seen: dict[int, int] = {}
    for gpu in host.gpus:
        numbers = {whole(host.source, element, "dev", 1_000_000, least=0) for element in gpu.elements}
        for number in numbers:
            if number in seen:
                raise host.source.error(
                    gpu.elements[0].line, f'<gpu dev="{number}"> comes twice (first in line {seen[number]}).'
                )
            seen[number] = gpu.elements[0].line


def _class(element: Element) -> str:
    return element.attributes.get("class", "").lower()
