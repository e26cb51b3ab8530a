"""NCCL's topology XML (``NCCL_TOPO_DUMP_FILE``), RCCL's with it: PCI tree, NVLink or xGMI, NICs of one host.

A static input file of a cloud image has PCI devices alone: such a host has no GPU here, only devices. Targets
of ``fffffff:ff:ff.0`` are switches that NCCL does not see one by one, and that may join other hosts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure
from topology.base.reading import DEEPEST, shown
from topology.base.units import format_quantity
from topology.base.values import MAX_COUNT, require_name
from topology.importers.found import Format, NicFound, NodeFound, commonest
from topology.importers.gpu_names import GpuName, architecture, pci_device
from topology.importers.pcie import distance, kept_switches, nearest
from topology.importers.source import Source

_GPU_CLASSES = ("0x0302", "0x0300", "0x0380", "0x1200")
_GPU_CLASS = "0x0302"
_NET_CLASS = "0x02"
_BRIDGE_CLASS = "0x0604"
_GT = re.compile(r"(\d+(?:\.\d+)?) GT/s(?: PCIe)?")
_LINE_CODE = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""Payload share of PCIe's line code by transfer rate (PCI Express base specification: 8b/10b, 128b/130b, FLITs)."""
_HIDDEN_SWITCH = re.compile(r"f+:ff:ff\.[0-9a-f]")
_BUSID = re.compile(r"[0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_VENDORS = {"nvlink": "NVIDIA", "xgmi": "AMD"}
_MAX_LINKS = 1024
_MAX_SPEED = 2**31 - 1
_MAX_MEGABITS = 10_000_000
"""A `speed` above 10 Tb/s is not in Mb/s, as NCCL writes it: libfabric's plug-in for Slingshot writes kb/s."""
_Links = Counter[tuple[str, str]]


@dataclass(eq=False)
class _Element:
    """One XML element: its attributes, children in order, and the line of its start tag."""

    source: Source
    tag: str
    attributes: dict[str, str]
    line: int
    children: list[_Element] = field(default_factory=list)

    def all(self, tag: str) -> list[_Element]:
        """Return the children called ``tag``."""
        return [child for child in self.children if child.tag == tag]

    def get(self, name: str) -> str:
        """Return an attribute, empty where it is absent."""
        return self.attributes.get(name, "")

    def text(self, name: str) -> str:
        """Return an attribute that must be there and not empty."""
        value = self.get(name).strip()
        if not value:
            raise self.source.error(self.line, f"<{self.tag}> has no `{name}`.")
        return require_name(value, f"{self.source.at(self.line)}: <{self.tag}> {name}")

    def count(self, name: str, *, minimum: int = 1, maximum: int = MAX_COUNT) -> int:
        """Return an attribute that is a whole number from ``minimum`` to ``maximum``."""
        text = self.text(name)
        if not text.isdecimal() or len(text) > 12 or not minimum <= int(text) <= maximum:
            must = f"must be a whole number from {minimum} to {maximum}"
            raise self.source.error(self.line, f"<{self.tag} {name}={shown(text)}> {must}.")
        return int(text)


@dataclass(frozen=True, eq=False)
class _Device:
    """A PCI device, ``bridges`` those above it from the root down; without a ``busid`` NICs that name none.

    ``dies`` are the elements that speak of a GPU: two, where those of a package are listed apart.
    """

    element: _Element
    busid: str
    kind: str
    socket: str
    bridges: tuple[str, ...]
    dies: Sequence[_Element]
    nics: Sequence[_Element]

    def is_leaf(self, *classes: str) -> bool:
        """Whether it is a PCI device of some classes with nothing below it."""
        return bool(self.busid) and not self.element.children and self.kind.startswith(classes)


def _devices(element: _Element, socket: str, bridges: tuple[str, ...]) -> Iterator[_Device]:
    """Yield what is at and below ``element``, in the order of the file."""
    if element.tag == "pci":
        busid, kind = element.text("busid").lower(), element.get("class").lower()
        yield _Device(element, busid, kind, socket, bridges, element.all("gpu"), element.all("nic"))
        if kind.startswith(_BRIDGE_CLASS):
            bridges = (*bridges, busid)
    elif element.tag == "nic":
        yield _Device(element, "", "", socket, bridges, (), [element])
    for child in element.children:
        if element.tag in ("cpu", "system") or element.tag == child.tag == "pci":
            yield from _devices(child, socket, bridges)


def parse_nccl_xml(source: Source) -> NodeFound:
    """Return the inside of the host that the file is of."""
    root = _parse_xml(source)
    if root.tag == "graphs":
        why = "is an NCCL graph (the routes NCCL chose), not a topology: dump one with NCCL_TOPO_DUMP_FILE."
        raise source.error(root.line, why)
    fragment = root.tag in ("pci", "cpu")
    if root.tag != "system" and not fragment:
        raise source.error(root.line, f"<{root.tag}> is not an NCCL topology, whose root is <system>.")
    devices: list[_Device] = []
    for number, cpu in enumerate([root] if fragment else root.children):
        devices += _devices(cpu, cpu.attributes.get("numaid", str(number)), ())
    lines: dict[str, int] = {}
    for device in devices:
        if device.busid:
            source.once(lines, device.busid, device.element.line, f"PCI device {shown(device.busid)}")
    packages = _packages(source, devices)
    cards = [device for device in devices if device.is_leaf(*_GPU_CLASSES)]
    if not packages and not any(device.is_leaf("") for device in devices):
        raise source.error(None, "has no GPU and no PCI device; it is empty or truncated.")
    if fragment:
        source.note(root.line, "a fragment, since the root is not <system>; other GPUs may be missing.")
    names = {gpu.busid: f"GPU{i}" for i, gpu in enumerate(packages)}
    tags, links = _links(source, packages, names)
    chips = sorted({target for _, target in links} - names.keys())
    hidden = any(map(_HIDDEN_SWITCH.fullmatch, chips))
    called = names | {chip: "switch" if hidden else f"switch{i}" for i, chip in enumerate(chips)}
    counts = _Links()
    for (a, b), count in links.items():
        counts[called[a], called[b]] += count

    rates = {pci.busid: rate for pci in devices if pci.busid and (rate := _pcie(pci.element)) is not None}
    ends = [pci for pci in devices if pci.dies or pci.nics or pci.is_leaf(*_GPU_CLASSES, _NET_CLASS)]
    chains, slowest = kept_switches({pci.busid: pci.bridges for pci in ends if pci.busid}, rates)
    pcie = {bridge: "" for chain in chains.values() for bridge in chain}
    pcie = {bridge: f"pcie{i}" for i, bridge in enumerate(pcie)}
    chains = {busid: tuple(pcie[bridge] for bridge in chain) for busid, chain in chains.items()}
    uplinks = {name: slowest[bridge] for bridge, name in pcie.items() if bridge in slowest}
    gpus = packages or cards
    nics, slots = _nics(source, ends, gpus, chains, slowest)
    _note_slow(source, {nic.name: nic.rate for nic in nics}, "NIC", "the port")
    _note_slow(source, {name: slowest.get(busid) for busid, name in names.items()}, "GPU", "the PCIe link")
    for gpu in packages:
        ranks = len({die.get("dev") for die in gpu.dies})  # dies of a package share a number
        if ranks > 1:
            why = "MIG slices, partitions, or processes that share it"
            text = f"{ranks} ranks on one PCI device ({why}) are one GPU, {names[gpu.busid]}."
            source.note(gpu.dies[0].line, text)
    return NodeFound(
        gpus=tuple(names.values()),
        chips=tuple(dict.fromkeys(called[chip] for chip in chips)),
        links=tuple((a, b, count) for (a, b), count in counts.items()),
        hidden=hidden,
        beyond=hidden,
        link_kind="xgmi" if "xgmi" in tags else "nvlink" if tags else "pcie",
        nics=nics,
        sockets=tuple(gpu.socket for gpu in packages),
        pcie=tuple(slowest.get(gpu.busid) for gpu in gpus),
        switches=tuple(chains[gpu.busid] for gpu in gpus),
        uplinks=uplinks | slots,
        devices=len(cards),
        gpu_names=_gpu_names(source, packages, devices, tags),
    )


def _packages(source: Source, devices: Sequence[_Device]) -> list[_Device]:
    """Return the GPUs by their numbers, of which no two have the same."""
    packages = [device for device in devices if device.dies]
    lines: dict[int, int] = {}
    for gpu in packages:
        for dev in {die.count("dev", minimum=0) for die in gpu.dies}:  # dies of a package may share one
            source.once(lines, dev, gpu.dies[0].line, f'<gpu dev="{dev}">')
    return sorted(packages, key=lambda gpu: gpu.dies[0].count("dev", minimum=0))


def _links(source: Source, gpus: Sequence[_Device], names: Mapping[str, str]) -> tuple[set[str], _Links]:
    """Return the kinds of links, and their number by bus ids: to chips, then between GPUs, each pair once."""
    tags: set[str] = set()
    to_chip, between = _Links(), _Links()
    for gpu in gpus:
        package = _Links()
        for die in gpu.dies:  # dies share the links of a package: the larger count, not the sum
            package |= _links_of_die(source, die, gpu.busid, names)
        for (tag, target), count in package.items():
            tags.add(tag)
            (between if target in names else to_chip)[gpu.busid, target] += count
    order = {busid: place for place, busid in enumerate(names)}
    for (a, b), count in between.items():
        if (back := between.get((b, a), 0)) != count:
            problem = f"lists {count} links to {names[b]}, but {names[b]} lists {back} to {names[a]}."
            raise source.error(None, f"{names[a]} {problem}")
        if order[a] < order[b]:
            to_chip[a, b] = count
    return tags, to_chip


def _links_of_die(source: Source, die: _Element, busid: str, names: Mapping[str, str]) -> _Links:
    """Return the links of one die by kind and target: a bus id, and that of a GPU is in the file."""
    counts = _Links()
    for link in die.children:
        if link.tag not in _VENDORS:
            continue
        target, count = link.text("target").lower(), link.count("count", maximum=_MAX_LINKS)
        nowhere = _HIDDEN_SWITCH.fullmatch(target)
        if not nowhere and not _BUSID.fullmatch(target):
            raise source.error(link.line, f"link target {shown(target)} is not a PCI bus id.")
        to_gpu = not nowhere and link.get("tclass").lower().startswith(_GPU_CLASS)
        if to_gpu and target not in names:
            raise source.error(link.line, f"{names[busid]} links to GPU {target}, which is not in the file.")
        if target == busid:
            source.note(link.line, f"{names[busid]} links to itself; ignored.")
        else:
            counts[link.tag, target] += count
    return counts


def _nics(
    source: Source,
    devices: Sequence[_Device],
    gpus: Sequence[_Device],
    chains: Mapping[str, tuple[str, ...]],
    rates: Mapping[str, Figure],
) -> tuple[tuple[NicFound, ...], dict[str, Figure]]:
    """Return NIC ports with the GPUs that each is near to, and the slots that ports share.

    A card whose slot is slower than its ports is a switch of its own. Of a file without GPUs, network devices are
    ports, too.
    """
    nets = [(net, card) for card in devices for nic in card.nics for net in nic.all("net")]
    times = Counter(net.attributes.get("name") for net, _ in nets)
    ports: list[tuple[str, Figure | None, _Device]] = []
    for number, (net, card) in enumerate(nets):
        name = net.text("name") if "name" in net.attributes else f"nic{number}"
        if times[name] > 1:
            name = f"{name}.{net.attributes.get('port', number)}"
        ports.append((name, _speed(source, net), card))
    if not any(device.dies for device in devices):
        ports += [(pci.busid, None, pci) for pci in devices if pci.is_leaf(_NET_CLASS)]
    wide: dict[str, float] = defaultdict(float)
    for _, rate, card in ports:
        wide[card.busid] += rate.value if rate else 0.0
    above = {card: chains.get(card, ()) for card in wide}
    slots = {card: f"slot {card}" for card in wide if card in rates and rates[card].value < wide[card]}
    above.update((card, (*above[card], slot)) for card, slot in slots.items())
    distances = [
        [distance(chains[gpu.busid], above[card.busid], one_socket=gpu.socket == card.socket) for gpu in gpus]
        for _, _, card in ports
    ]
    nics = tuple(
        NicFound(name, near, rate, above[card.busid], card.socket)
        for (name, rate, card), near in zip(ports, nearest(distances), strict=True)
    )
    return nics, {slot: rates[card] for card, slot in slots.items()}


def _note_slow(source: Source, rates: Mapping[str, Figure | None], kind: str, noun: str) -> None:
    """Name parts whose link is slower than most of their kind."""
    usual = commonest(rate.value for rate in rates.values() if rate is not None)
    for name, rate in rates.items():
        if usual is not None and rate is not None and rate.value < usual:
            rate_text, usual_text = (format_quantity(value, "byte/s") for value in (rate.value, usual))
            rate_text = f"{rate_text} each way ({rate.text or rate.source})"
            source.note(None, f"{noun} of {name} runs at {rate_text}, that of most {kind}s at {usual_text}.")


def _speed(source: Source, net: _Element) -> Figure | None:
    """Return the rate of a NIC port, None where the driver does not know it."""
    if net.get("speed").strip() in ("", "-1"):
        return None
    speed = net.count("speed", minimum=0, maximum=_MAX_SPEED)
    # NCCL writes 10 Gb/s where the driver does not say; it is printed as any other figure
    bits = speed * (1e3 if speed > _MAX_MEGABITS else 1e6)
    text, where = f"{bits / 1e9:g} Gb/s", f"{source.name}, line {net.line}"
    if speed > _MAX_MEGABITS:
        why = "since it is too fast in Mb/s"
        source.readings.append(f'NIC of {source.name}: speed="{speed}" read as kb/s, {text}, {why}.')
    return Figure(bits / 8, "byte/s", Evidence.MEASURED, where, text) if speed else None


def _pcie(element: _Element) -> Figure | None:
    """Return the rate of a device's PCIe link, per direction: transfers x lanes x line code."""
    speed, width = element.get("link_speed"), element.get("link_width")
    match = _GT.match(speed)
    lanes = int(width) if width.isdecimal() and len(width) < 4 else 0
    if match is None or float(match[1]) not in _LINE_CODE or not 0 < lanes <= 32:
        return None
    rate = float(match[1]) * 1e9 / 8 * lanes * _LINE_CODE[float(match[1])]
    where = f"{element.source.name}, line {element.line}: {speed} x {width}"
    return Figure(rate, "byte/s", Evidence.DERIVED, where)


def _gpu_names(
    source: Source, gpus: Sequence[_Device], devices: Sequence[_Device], tags: set[str]
) -> tuple[GpuName, ...]:
    """Return what names the GPUs: architecture (NVIDIA's `sm`, AMD's `gcn`), PCI ids, and the kind of links."""
    dies = [die for gpu in gpus for die in gpu.dies]
    targets = {f"gfx{gcn.removeprefix('gfx')}" if (gcn := die.get("gcn")) else die.get("sm") for die in dies}
    if len(targets) > 1:
        generations = f"GPUs of different generations (sm {', '.join(sorted(targets))}) in one host."
        raise source.error(gpus[0].dies[0].line, generations)
    cards = [pci.element for pci in devices if pci.dies or pci.kind.startswith(_GPU_CLASSES)]
    ids = (pci_device(card.get("vendor"), card.get("device")) for card in cards)
    named = dict.fromkeys(name for name in ids if name is not None)
    links = [GpuName(f"{_VENDORS[tag]}'s {tag}", _VENDORS[tag]) for tag in sorted(tags)]
    return (*(architecture(target) for target in targets if target), *named, *links)


def _parse_xml(source: Source) -> _Element:
    """Return the root element of an XML text.

    Raises
    ------
    InputError
        If the text is not well-formed (of a cut file the message names the element left open), nested too
        deeply, or has a document type or entities.
    """
    parser = expat.ParserCreate()
    root = _Element(source, "", {}, 0)
    path = [root]

    def refuse(*_: object) -> None:
        problem = "a document type or entity (<!DOCTYPE ...>) is not supported; remove it."
        raise source.error(parser.CurrentLineNumber, problem)

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = _Element(source, tag, attributes, parser.CurrentLineNumber)
        if len(path) > DEEPEST:
            raise source.error(element.line, f"elements are nested more than {DEEPEST} levels deep.")
        path[-1].children.append(element)
        path.append(element)

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: path.pop()
    try:
        parser.Parse(source.text.strip(), True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        if path[1:]:
            problem += f"; <{path[-1].tag}> of line {path[-1].line} is not closed"
        where = f"{source.at(error.lineno)}: column {error.offset + 1}"
        raise InputError(f"{where}: not valid XML ({problem}).") from None
    except (ValueError, LookupError) as error:
        raise source.error(None, f"not valid XML ({shown(str(error))}).") from None
    return root.children[0]


FORMAT = Format("nccl-xml", parse_nccl_xml, in_text=lambda text: text.lstrip().startswith("<"))
