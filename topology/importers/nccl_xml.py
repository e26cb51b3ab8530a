"""NCCL's topology XML (``NCCL_TOPO_DUMP_FILE``), RCCL's with it: PCI tree, NVLink or xGMI, NICs of one host.

A static input file of a cloud image has PCI devices alone: such a host has no GPU here, only devices. Targets
of ``fffffff:ff:ff.0`` are switches that NCCL does not see one by one, and that may join other hosts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topology.base.figures import Evidence, Figure
from topology.base.reading import Element, parse_xml, shown
from topology.importers.found import Format, NicFound, NodeFound, commonest
from topology.importers.pcie import distance, kept_switches, nearest
from topology.importers.source import Source

_GPU_CLASSES = ("0x0302", "0x0300", "0x0380", "0x1200")
_GPU_CLASS = "0x0302"
_NET_CLASS = "0x02"
_GT = re.compile(r"(\d+(?:\.\d+)?) GT/s(?: PCIe)?")
_LINE_CODE = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""Payload share of PCIe's line code by transfer rate (PCI Express base specification: 8b/10b, 128b/130b, FLITs)."""
_NOWHERE = re.compile(r"f+:ff:ff\.[0-9a-f]")
_BUSID = re.compile(r"[0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_LINK_TAGS = ("nvlink", "xgmi")
_MOST_LINKS = 1024


@dataclass
class PciGpu:
    """One GPU package: the elements that speak of it (two, where its dies are listed apart)."""

    busid: str
    socket: str
    elements: list[Element] = field(default_factory=list)


@dataclass
class PciHost:
    """What the walk over the tree collects."""

    source: Source
    gpus: list[PciGpu] = field(default_factory=list)
    nets: list[tuple[Element, str, str]] = field(default_factory=list)
    devices: dict[str, tuple[str, str]] = field(default_factory=dict)
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rates: dict[str, Figure] = field(default_factory=dict)
    busids: dict[str, int] = field(default_factory=dict)

    def walk(self, element: Element, socket: str, bridges: tuple[str, ...]) -> None:
        """Collect GPUs, NICs and devices below ``element``; ``bridges`` are the PCI switches above it."""
        below, kind, busid = bridges, element.attributes.get("class", "").lower(), ""
        if element.tag == "pci":
            busid = element.text("busid").lower()
            if busid in self.busids:
                raise self.source.error(
                    element.line, f"duplicate PCI device {shown(busid)} (first in line {self.busids[busid]})."
                )
            self.busids[busid] = element.line
            if (rate := _pcie(self.source, element)) is not None:
                self.rates[busid] = rate
            if not element.children:
                self.devices[busid] = kind, socket
            packages, nets = element.all("gpu"), element.all("nic")
            if packages:
                self.gpus.append(PciGpu(busid, socket, packages))
            if packages or nets or (not element.children and kind.startswith((*_GPU_CLASSES, _NET_CLASS))):
                self.chains[busid] = bridges
            if kind.startswith("0x0604"):
                below = (*bridges, busid)
            self.nets += [(net, busid, socket) for nic in nets for net in nic.all("net")]
        elif element.tag == "nic":
            self.nets += [(net, "", socket) for net in element.all("net")]
        for child in element.children:
            if element.tag in ("cpu", "system") or (element.tag == child.tag == "pci"):
                self.walk(child, socket, below)


def read_nccl_xml(source: Source) -> NodeFound:
    """Return the inside of the host that the file is of.

    Raises
    ------
    InputError
        If it is not an NCCL topology, is cut, or contradicts itself.
    """
    root = parse_xml(source.text, source.name)
    fragment = root.tag in ("pci", "cpu")
    if root.tag == "graphs":
        raise source.error(
            root.line,
            "is an NCCL graph (the routes NCCL chose), not a topology: dump one with NCCL_TOPO_DUMP_FILE.",
        )
    if root.tag != "system" and not fragment:
        raise source.error(root.line, f"<{root.tag}> is not an NCCL topology, whose root is <system>.")
    host = PciHost(source)
    for number, cpu in enumerate([root] if fragment else root.children):
        host.walk(cpu, cpu.attributes.get("numaid", str(number)), ())
    if not host.gpus and not host.devices:
        raise source.error(None, "has no GPU and no PCI device: it is empty or cut.")
    return _node(host, fragment=fragment)


def _node(host: PciHost, *, fragment: bool) -> NodeFound:
    """Return what was collected, in the form all importers share."""
    source = host.source
    _check_dev(host)
    host.gpus.sort(key=lambda gpu: int(gpu.elements[0].attributes.get("dev", "0")))
    names = {gpu.busid: f"GPU{i}" for i, gpu in enumerate(host.gpus)}
    if fragment:
        source.anomalies.append(
            f"{source.name}: a fragment: the root is not <system>, so other GPUs may be missing."
        )
    links = _Links(source, names, {gpu.busid: gpu.elements for gpu in host.gpus})
    source.anomalies += _unlike_links(host, names, links.found)
    devices = [busid for busid, (kind, _) in host.devices.items() if kind.startswith(_GPU_CLASSES)]
    places = PciPlaces(host, list(names) or devices)
    return NodeFound(
        gpus=tuple(names.values()),
        chips=tuple(dict.fromkeys(links.chips.values())),
        links=tuple((a, b, count) for (a, b), count in links.found.items()),
        hidden=links.hidden,
        beyond=links.hidden,
        link_kind="xgmi" if "xgmi" in links.tags else "nvlink" if links.tags else "pcie",
        nics=places.nics,
        sockets=tuple(gpu.socket for gpu in host.gpus),
        pcie=tuple(places.rates.get(busid) for busid in names or devices),
        switches=places.switches,
        uplinks=places.uplinks,
        devices=len(devices),
        sm=_sm(host),
    )


class _Links:
    """NVLink and xGMI elements of all GPUs, from each to switch chips or to other GPUs.

    ``found`` counts links by names, ``chips`` names each chip by bus id; with ``hidden`` they are not told apart.
    """

    def __init__(
        self, source: Source, names: Mapping[str, str], packages: Mapping[str, Sequence[Element]]
    ) -> None:
        self._source, self._names = source, names
        self.tags: set[str] = set()
        to_chip: Counter[tuple[str, str]] = Counter()
        to_gpu: Counter[tuple[str, str]] = Counter()
        for busid, elements in packages.items():
            for target, count in self._of_package(busid, elements).items():
                (to_gpu if target in names else to_chip)[busid, target] += count
        self.hidden = any(_NOWHERE.fullmatch(chip) for _, chip in to_chip)
        targets = sorted({chip for _, chip in to_chip})
        self.chips = {chip: "switch" if self.hidden else f"switch{i}" for i, chip in enumerate(targets)}
        self.found: Counter[tuple[str, str]] = Counter()
        for (busid, chip), count in to_chip.items():
            self.found[names[busid], self.chips[chip]] += count
        order = {busid: place for place, busid in enumerate(names)}
        for (a, b), count in to_gpu.items():
            back = to_gpu.get((b, a), 0)
            if back != count:
                one, two = names[a], names[b]
                raise source.error(
                    None, f"{one} lists {count} links to {two}, but {two} lists {back} to {one}."
                )
            if order[a] < order[b]:
                self.found[names[a], names[b]] += count

    def _of_package(self, busid: str, elements: Sequence[Element]) -> Counter[str]:
        """Return links by target of one package: dies share its links, so the larger count, not the sum."""
        package: Counter[tuple[str, str]] = Counter()
        for element in elements:
            own: Counter[tuple[str, str]] = Counter()
            for link in element.children:
                if link.tag not in _LINK_TAGS:
                    continue
                target, count = self._target(link, busid), link.count("count", most=_MOST_LINKS)
                if target == busid:
                    self._source.anomalies.append(
                        f"{link.where}: {self._names[busid]} links to itself; left out."
                    )
                else:
                    own[link.tag, target] += count
            package |= own
        self.tags |= {tag for tag, _ in package}
        found: Counter[str] = Counter()
        for (_, target), count in package.items():
            found[target] += count
        return found

    def _target(self, link: Element, busid: str) -> str:
        """Return the target of a link: a bus id, and that of a GPU is in the file."""
        target = link.text("target").lower()
        if _NOWHERE.fullmatch(target):
            return target
        if not _BUSID.fullmatch(target):
            raise self._source.error(link.line, f"link target {shown(target)} is not a PCI bus id.")
        if link.attributes.get("tclass", "").lower().startswith(_GPU_CLASS) and target not in self._names:
            raise self._source.error(
                link.line, f"{self._names[busid]} links to GPU {target}, which is not in the file."
            )
        return target


def _unlike_links(host: PciHost, names: Mapping[str, str], links: Mapping[tuple[str, str], int]) -> list[str]:
    """Return GPUs with another number of scale-up links than most."""
    counts = dict.fromkeys(names.values(), 0)
    for ends, count in links.items():
        for end in counts.keys() & ends:
            counts[end] += count
    usual = commonest(counts.values()) or max(counts.values(), default=0)
    return [
        f"{gpu.elements[0].where}: {names[gpu.busid]} ({gpu.busid}) has "
        f"{f'{have} scale-up links' if have else 'no scale-up link'}, other GPUs {usual}."
        for gpu, have in zip(host.gpus, counts.values(), strict=True)
        if have != usual
    ]


class PciPlaces:
    """Where GPUs (by bus id) and NICs are: the PCIe switches above them, and the rates of links.

    A card whose slot is slower than its ports is a switch of its own: they share the slot.
    """

    def __init__(self, host: PciHost, gpus: Sequence[str]) -> None:
        chains, self.rates = kept_switches(host.chains, host.rates)
        called = {
            busid: f"pcie{i}" for i, busid in enumerate(dict.fromkeys(b for c in chains.values() for b in c))
        }
        self.uplinks = {name: self.rates[busid] for busid, name in called.items() if busid in self.rates}
        chains = {device: tuple(called[busid] for busid in chain) for device, chain in chains.items()}
        self.switches = tuple(chains[busid] for busid in gpus)
        sockets = {gpu.busid: gpu.socket for gpu in host.gpus} | {d: s for d, (_, s) in host.devices.items()}
        names = Counter(net.attributes.get("name") for net, _, _ in host.nets)
        ports = [_port(host, net, number) for number, (net, _, _) in enumerate(host.nets)]
        ports = [
            (f"{name}.{net.attributes.get('port', i)}" if names[name] > 1 else name, rate)
            for i, ((name, rate), (net, _, _)) in enumerate(zip(ports, host.nets, strict=True))
        ]
        cards = [(card, socket) for _, card, socket in host.nets]
        if not host.gpus:
            found = [(d, s) for d, (kind, s) in host.devices.items() if kind.startswith(_NET_CLASS)]
            ports, cards = [*ports, *((card, None) for card, _ in found)], [*cards, *found]
        wide: dict[str, float] = defaultdict(float)
        for (_, rate), (card, _) in zip(ports, cards, strict=True):
            wide[card] += rate.value if rate else 0.0
        above = []
        for card, _ in cards:
            chain, slot = chains.get(card, ()), self.rates.get(card)
            if slot is not None and slot.value < wide[card]:
                chain = (*chain, f"slot {card}")
                self.uplinks[chain[-1]] = slot
            above.append(chain)
        near = nearest(
            [
                [
                    distance(own, chain, one_socket=sockets[gpu] == socket)
                    for gpu, own in zip(gpus, self.switches, strict=True)
                ]
                for chain, (_, socket) in zip(above, cards, strict=True)
            ]
        )
        self.nics = tuple(
            NicFound(name, own, rate, chain, socket)
            for (name, rate), own, chain, (_, socket) in zip(ports, near, above, cards, strict=True)
        )


def _port(host: PciHost, net: Element, number: int) -> tuple[str, Figure | None]:
    """Return name and rate of a NIC port."""
    # -1 is what a driver that does not know says
    unknown = net.attributes.get("speed", "").strip() in ("", "-1")
    speed = 0 if unknown else net.count("speed", least=0, most=100_000_000)
    # NCCL writes 10 Gb/s where the driver does not say; it is printed as any other figure
    text, where = f"{speed / 1000:g} Gb/s", f"{host.source.name}, line {net.line}"
    rate = Figure(speed * 1e6 / 8, "byte/s", Evidence.MEASURED, where, text) if speed else None
    return net.text("name") if "name" in net.attributes else f"nic{number}", rate


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


def _sm(host: PciHost) -> str:
    """Return the compute capability that all GPUs state, of AMD's the target (`gcn` of RCCL), or none."""
    values = {
        f"gfx{gcn.removeprefix('gfx')}"
        if (gcn := element.attributes.get("gcn"))
        else element.attributes.get("sm", "")
        for gpu in host.gpus
        for element in gpu.elements
    }
    if len(values) > 1:
        raise host.source.error(
            host.gpus[0].elements[0].line,
            f"GPUs of different generations (sm {', '.join(sorted(values))}) in one host.",
        )
    return values.pop() if values else ""


def _check_dev(host: PciHost) -> None:
    """Every GPU has a number, and no two the same."""
    seen: dict[int, int] = {}
    for gpu in host.gpus:
        for number in {element.count("dev", least=0) for element in gpu.elements}:
            if number in seen:
                raise host.source.error(
                    gpu.elements[0].line, f'duplicate <gpu dev="{number}"> (first in line {seen[number]}).'
                )
            seen[number] = gpu.elements[0].line


FORMAT = Format("nccl-xml", read_nccl_xml, in_text=lambda text: text.lstrip().startswith("<"))
