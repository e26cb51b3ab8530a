"""NCCL's topology XML (``NCCL_TOPO_DUMP_FILE``), RCCL's with it: PCI tree, NVLink or xGMI, NICs of one host.

A static input file of a cloud image has PCI devices alone: such a host has no GPU here, only devices. Targets
of ``fffffff:ff:ff.0`` are switches that NCCL does not see one by one, and that may join other hosts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from topology.base.figures import Evidence, Figure
from topology.base.reading import shown
from topology.base.units import format_quantity
from topology.importers.found import Format, NicFound, NodeFound, commonest
from topology.importers.gpu_names import GpuName, architecture, pci_device
from topology.importers.pcie import distance, kept_switches, nearest
from topology.importers.source import Source
from topology.importers.xml_tree import Element, parse_xml

_GPU_CLASSES = ("0x0302", "0x0300", "0x0380", "0x1200")
_GPU_CLASS = "0x0302"
_NET_CLASS = "0x02"
_BRIDGE_CLASS = "0x0604"
_GT = re.compile(r"(\d+(?:\.\d+)?) GT/s(?: PCIe)?")
_LINE_CODE = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""Payload share of PCIe's line code by transfer rate (PCI Express base specification: 8b/10b, 128b/130b, FLITs)."""
_NOWHERE = re.compile(r"f+:ff:ff\.[0-9a-f]")
_BUSID = re.compile(r"[0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_VENDORS = {"nvlink": "NVIDIA", "xgmi": "AMD"}
_MOST_LINKS = 1024
_MOST_SPEED = 2**31 - 1
_MOST_MEGABITS = 10_000_000
"""A `speed` above 10 Tb/s is not in Mb/s, as NCCL writes it: libfabric's plug-in for Slingshot writes kb/s."""


class _Gpu(NamedTuple):
    """One GPU package: the elements that speak of it (two, where its dies are listed apart)."""

    busid: str
    socket: str
    elements: list[Element]


class _Port(NamedTuple):
    """A NIC port: the card that it is on, and the socket of that."""

    name: str
    rate: Figure | None
    card: str
    socket: str


@dataclass
class _Host:
    """What the walk over the PCI tree collects: GPUs, NIC ports, and devices with class and socket.

    ``chains`` are the bridges above a device from the root down, ``rates`` those of PCIe links by bus id.
    """

    source: Source
    gpus: list[_Gpu] = field(default_factory=list)
    nets: list[tuple[Element, str, str]] = field(default_factory=list)
    devices: dict[str, tuple[str, str]] = field(default_factory=dict)
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rates: dict[str, Figure] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    gpu_names: dict[GpuName, None] = field(default_factory=dict)

    def walk(self, element: Element, socket: str, bridges: tuple[str, ...]) -> None:
        """Collect what is below ``element``; ``bridges`` are the PCI switches above it."""
        below = bridges
        if element.tag == "pci":
            below = self._device(element, socket, bridges)
        elif element.tag == "nic":
            self.nets += [(net, "", socket) for net in element.all("net")]
        for child in element.children:
            if element.tag in ("cpu", "system") or (element.tag == child.tag == "pci"):
                self.walk(child, socket, below)

    def _device(self, element: Element, socket: str, bridges: tuple[str, ...]) -> tuple[str, ...]:
        """Collect a PCI device, and return the bridges above what is below it."""
        attributes, busid = element.attributes, element.text("busid").lower()
        kind = attributes.get("class", "").lower()
        if busid in self.lines:
            raise self.source.error(
                element.line, f"duplicate PCI device {shown(busid)} (first in line {self.lines[busid]})."
            )
        self.lines[busid] = element.line
        if (rate := _pcie(self.source, element)) is not None:
            self.rates[busid] = rate
        if not element.children:
            self.devices[busid] = kind, socket
        packages, nets = element.all("gpu"), element.all("nic")
        if packages:
            self.gpus.append(_Gpu(busid, socket, packages))
        name = pci_device(attributes.get("vendor", ""), attributes.get("device", ""))
        if name is not None and (packages or kind.startswith(_GPU_CLASSES)):
            self.gpu_names[name] = None
        if packages or nets or (not element.children and kind.startswith((*_GPU_CLASSES, _NET_CLASS))):
            self.chains[busid] = bridges
        self.nets += [(net, busid, socket) for nic in nets for net in nic.all("net")]
        return (*bridges, busid) if kind.startswith(_BRIDGE_CLASS) else bridges


def parse_nccl_xml(source: Source) -> NodeFound:
    """Return the inside of the host that the file is of."""
    root = parse_xml(source.text, source.name)
    fragment = root.tag in ("pci", "cpu")
    if root.tag == "graphs":
        problem = (
            "is an NCCL graph (the routes NCCL chose), not a topology: dump one with NCCL_TOPO_DUMP_FILE."
        )
        raise source.error(root.line, problem)
    if root.tag != "system" and not fragment:
        raise source.error(root.line, f"<{root.tag}> is not an NCCL topology, whose root is <system>.")
    host = _Host(source)
    for number, cpu in enumerate([root] if fragment else root.children):
        host.walk(cpu, cpu.attributes.get("numaid", str(number)), ())
    if not host.gpus and not host.devices:
        raise source.error(None, "has no GPU and no PCI device; it is empty or truncated.")
    if fragment:
        source.anomalies.append(
            f"{source.name}: a fragment, since the root is not <system>; other GPUs may be missing."
        )
    return _node(host)


def _node(host: _Host) -> NodeFound:
    """Return what was collected, in the form all importers share."""
    numbers: dict[int, int] = {}
    for gpu in host.gpus:
        line = gpu.elements[0].line
        for dev in {element.count("dev", least=0) for element in gpu.elements}:
            if numbers.setdefault(dev, line) != line:
                raise host.source.error(line, f'duplicate <gpu dev="{dev}"> (first in line {numbers[dev]}).')
    host.gpus.sort(key=lambda gpu: int(gpu.elements[0].attributes.get("dev", "0")))
    names = {gpu.busid: f"GPU{i}" for i, gpu in enumerate(host.gpus)}
    tags, to_chip, links = _links(host, names)
    hidden = any(_NOWHERE.fullmatch(chip) for _, chip in to_chip)
    targets = sorted({chip for _, chip in to_chip})
    chips = {chip: "switch" if hidden else f"switch{i}" for i, chip in enumerate(targets)}
    found: Counter[tuple[str, str]] = Counter()
    for (busid, chip), count in to_chip.items():
        found[names[busid], chips[chip]] += count
    found.update(links)
    devices = [busid for busid, (kind, _) in host.devices.items() if kind.startswith(_GPU_CLASSES)]
    chains, rates = kept_switches(host.chains, host.rates)
    every = dict.fromkeys(bridge for chain in chains.values() for bridge in chain)
    called = {busid: f"pcie{i}" for i, busid in enumerate(every)}
    chains = {device: tuple(called[busid] for busid in chain) for device, chain in chains.items()}
    uplinks = {name: rates[busid] for busid, name in called.items() if busid in rates}
    gpus = list(names) or devices
    readings: list[str] = []
    nics = _nics(host, gpus, chains, uplinks, rates, readings)
    _note_slow(host, {nic.name: nic.rate for nic in nics}, "NIC", "the port")
    _note_slow(host, {name: rates.get(busid) for busid, name in names.items()}, "GPU", "the PCIe link")
    for gpu in host.gpus:
        ranks = len({one.attributes.get("dev") for one in gpu.elements})  # dies of a package share a number
        if ranks > 1:
            host.source.anomalies.append(
                f"{host.source.name}, line {gpu.elements[0].line}: {ranks} ranks on one PCI device (MIG slices, "
                f"partitions, or processes that share it) are one GPU, {names[gpu.busid]}."
            )
    return NodeFound(
        gpus=tuple(names.values()),
        chips=tuple(dict.fromkeys(chips.values())),
        links=tuple((a, b, count) for (a, b), count in found.items()),
        hidden=hidden,
        beyond=hidden,
        link_kind="xgmi" if "xgmi" in tags else "nvlink" if tags else "pcie",
        nics=nics,
        sockets=tuple(gpu.socket for gpu in host.gpus),
        pcie=tuple(rates.get(busid) for busid in gpus),
        switches=tuple(chains[busid] for busid in gpus),
        uplinks=uplinks,
        devices=len(devices),
        gpu_names=_gpu_names(host, tags),
        readings=tuple(readings),
    )


def _note_slow(host: _Host, rates: Mapping[str, Figure | None], kind: str, what: str) -> None:
    """Name parts whose link is slower than most of their kind."""
    usual = commonest(rate.value for rate in rates.values() if rate is not None)
    for name, rate in rates.items():
        if usual is not None and rate is not None and rate.value < usual:
            own, others = (format_quantity(value, "byte/s") for value in (rate.value, usual))
            host.source.anomalies.append(
                f"{host.source.name}: {what} of {name} runs at {own} each way ({rate.text or rate.source}), that of "
                f"most {kind}s at {others}."
            )


def _links(
    host: _Host, names: Mapping[str, str]
) -> tuple[set[str], Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Return the kinds of links, those from GPUs to chips by bus id, and those between GPUs by name."""
    tags: set[str] = set()
    to_chip: Counter[tuple[str, str]] = Counter()
    to_gpu: Counter[tuple[str, str]] = Counter()
    for gpu in host.gpus:
        package: Counter[tuple[str, str]] = Counter()
        for element in gpu.elements:  # dies share the links of a package: the larger count, not the sum
            package |= _links_of_die(host.source, element, gpu.busid, names)
        for (tag, target), count in package.items():
            tags.add(tag)
            (to_gpu if target in names else to_chip)[gpu.busid, target] += count
    order = {busid: place for place, busid in enumerate(names)}
    found: Counter[tuple[str, str]] = Counter()
    for (a, b), count in to_gpu.items():
        one, two, back = names[a], names[b], to_gpu.get((b, a), 0)
        if back != count:
            raise host.source.error(
                None, f"{one} lists {count} links to {two}, but {two} lists {back} to {one}."
            )
        if order[a] < order[b]:
            found[one, two] += count
    return tags, to_chip, found


def _links_of_die(
    source: Source, element: Element, busid: str, names: Mapping[str, str]
) -> Counter[tuple[str, str]]:
    """Return the links of one die by kind and target: a bus id, and that of a GPU is in the file."""
    found: Counter[tuple[str, str]] = Counter()
    for link in element.children:
        if link.tag not in _VENDORS:
            continue
        target, count = link.text("target").lower(), link.count("count", most=_MOST_LINKS)
        nowhere = _NOWHERE.fullmatch(target)
        if not nowhere and not _BUSID.fullmatch(target):
            raise source.error(link.line, f"link target {shown(target)} is not a PCI bus id.")
        to_gpu = not nowhere and link.attributes.get("tclass", "").lower().startswith(_GPU_CLASS)
        if to_gpu and target not in names:
            raise source.error(link.line, f"{names[busid]} links to GPU {target}, which is not in the file.")
        if target == busid:
            source.anomalies.append(f"{link.where}: {names[busid]} links to itself; ignored.")
        else:
            found[link.tag, target] += count
    return found


def _nics(
    host: _Host,
    gpus: Sequence[str],
    chains: Mapping[str, tuple[str, ...]],
    uplinks: dict[str, Figure],
    rates: Mapping[str, Figure],
    readings: list[str],
) -> tuple[NicFound, ...]:
    """Return NIC ports and the GPUs (by bus id) that each is near to.

    A card whose slot is slower than its ports is a switch of its own: they share the slot.
    """
    sockets = {gpu.busid: gpu.socket for gpu in host.gpus} | {d: s for d, (_, s) in host.devices.items()}
    ports = _ports(host, readings)
    wide: dict[str, float] = defaultdict(float)
    for port in ports:
        wide[port.card] += port.rate.value if port.rate else 0.0
    above = []
    for port in ports:
        chain, slot = chains.get(port.card, ()), rates.get(port.card)
        if slot is not None and slot.value < wide[port.card]:
            chain = (*chain, f"slot {port.card}")
            uplinks[chain[-1]] = slot
        above.append(chain)
    distances = [
        [distance(chains[gpu], chain, one_socket=sockets[gpu] == port.socket) for gpu in gpus]
        for chain, port in zip(above, ports, strict=True)
    ]
    return tuple(
        NicFound(port.name, near, port.rate, chain, port.socket)
        for port, near, chain in zip(ports, nearest(distances), above, strict=True)
    )


def _ports(host: _Host, readings: list[str]) -> list[_Port]:
    """Return the NIC ports; of a file without GPUs its network devices, too."""
    times = Counter(net.attributes.get("name") for net, _, _ in host.nets)
    ports = []
    for number, (net, card, socket) in enumerate(host.nets):
        name = net.text("name") if "name" in net.attributes else f"nic{number}"
        if times[name] > 1:
            name = f"{name}.{net.attributes.get('port', number)}"
        ports.append(_Port(name, _speed(host.source, net, readings), card, socket))
    if not host.gpus:
        cards = [(card, at) for card, (kind, at) in host.devices.items() if kind.startswith(_NET_CLASS)]
        ports += [_Port(card, None, card, at) for card, at in cards]
    return ports


def _speed(source: Source, net: Element, readings: list[str]) -> Figure | None:
    """Return the rate of a NIC port, None where the driver does not know it."""
    if net.attributes.get("speed", "").strip() in ("", "-1"):
        return None
    speed = net.count("speed", least=0, most=_MOST_SPEED)
    # NCCL writes 10 Gb/s where the driver does not say; it is printed as any other figure
    bits = speed * (1e3 if speed > _MOST_MEGABITS else 1e6)
    text, where = f"{bits / 1e9:g} Gb/s", f"{source.name}, line {net.line}"
    if speed > _MOST_MEGABITS:
        readings.append(
            f'NIC of {source.name}: speed="{speed}" read as kb/s, {text}, since it is too fast in Mb/s.'
        )
    return Figure(bits / 8, "byte/s", Evidence.MEASURED, where, text) if speed else None


def _pcie(source: Source, element: Element) -> Figure | None:
    """Return the rate of a device's PCIe link, per direction: transfers x lanes x line code."""
    speed, width = element.attributes.get("link_speed", ""), element.attributes.get("link_width", "")
    match = _GT.match(speed)
    lanes = int(width) if width.isdecimal() and len(width) < 4 else 0
    if match is None or float(match[1]) not in _LINE_CODE or not 0 < lanes <= 32:
        return None
    rate = float(match[1]) * 1e9 / 8 * lanes * _LINE_CODE[float(match[1])]
    where = f"{source.name}, line {element.line}: {speed} x {width}"
    return Figure(rate, "byte/s", Evidence.DERIVED, where)


def _gpu_names(host: _Host, tags: set[str]) -> tuple[GpuName, ...]:
    """Return what names the GPUs: architecture (NVIDIA's `sm`, AMD's `gcn`), PCI ids, and the kind of links."""
    targets = {
        f"gfx{gcn.removeprefix('gfx')}"
        if (gcn := element.attributes.get("gcn"))
        else element.attributes.get("sm", "")
        for gpu in host.gpus
        for element in gpu.elements
    }
    if len(targets) > 1:
        raise host.source.error(
            host.gpus[0].elements[0].line,
            f"GPUs of different generations (sm {', '.join(sorted(targets))}) in one host.",
        )
    names = [architecture(target) for target in targets if target]
    links = [GpuName(f"{_VENDORS[tag]}'s {tag}", _VENDORS[tag]) for tag in sorted(tags)]
    return (*names, *host.gpu_names, *links)


FORMAT = Format("nccl-xml", parse_nccl_xml, in_text=lambda text: text.lstrip().startswith("<"))
