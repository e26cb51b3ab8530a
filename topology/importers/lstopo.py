"""hwloc's XML (``lstopo --of xml``, versions 1 to 3): the PCI tree of one host, its GPUs and NICs, NVLink and xGMI.

NVLink and xGMI stand in the matrices that hwloc calls distances, as the summed rate between two objects; hwloc
takes the rate of one link from the version of NVLink, so the number of links follows. Where there is no matrix,
the file does not say whether there are such links: hwloc cannot follow them to switches that the host does not see,
and needs NVML or ROCm to ask.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from topology.figures import Evidence, Figure
from topology.importers.found import Format, NodeFound, commonest
from topology.importers.nccl_xml import PciGpu, PciHost, PciPlaces
from topology.importers.source import Source
from topology.reading import Element, parse_xml, shown
from topology.units import plural

_ROOT = re.compile(r"\s*(<\?xml[^>]*>\s*)?(<!DOCTYPE\s+topology\b[^>]*>\s*)?<topology\b")
_CLASS = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE)
_BUSID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_COMPUTE = re.compile(r"(nvml|cuda|rsmi|ze|opencl)\d")
"""OS devices by which software reaches a GPU, those whose numbers software counts by first."""
_RDMA = re.compile(r"mlx\d+_|hfi\d|bnxt_re|irdma|efa_|rdmap|ionic_")
_VENDORS = ("10de", "1002", "8086", "1da3")
_DISPLAY = ("0302", "0380", "1200")
"""PCI classes of GPUs without a display; a management controller is of class 0300."""
_LINK_BW = {"P100": 20000, "B100": 50000, "B200": 50000, "B300": 50000}
"""MB/s of one NVLink that hwloc counts with, by model (topology-nvml.c); 25000 for those from V100 to H200."""
_USUAL_BW = 25000
_SM = {
    "A100": "80",
    "A800": "80",
    "GB200": "100",
    "B200": "100",
    "GB300": "103",
    "B300": "103",
    "MI300X": "gfx942",
    "MI325X": "gfx942",
    "MI355X": "gfx950",
} | dict.fromkeys(("H100", "H200", "H800", "H20", "GH200"), "90")
"""CUDA compute capability by model (NVIDIA's list), AMD's target (LLVM's)."""
_LINKED = re.compile(r"SXM|HGX|NVL|HBM3|G[BH]\d{3}|\bB\d{3}|H20\b|H200|H800")
"""Models whose NVLink goes to switches, which a virtual machine and hosts from B200 on do not see."""
_MODEL = re.compile(r"\b(GB?[BH]?\d{3}|[PVAHB]\d{2,3}|MI\d{3}X)\b")
_MOST_OBJECTS = 1024
_LONGEST_VALUE = 24
_DOWN = ("1", "2")
"""States of an InfiniBand port that carry nothing: down, and waiting for a subnet manager."""


@dataclass
class _Device:
    """A PCI device: bus id, class, vendor, the OS devices on it and the place it has."""

    element: Element
    busid: str
    kind: str
    vendor: str
    socket: str
    osdevs: list[Element] = field(default_factory=list)

    @property
    def number(self) -> tuple[int, int]:
        """Where software counts it: by NVML, else CUDA, ROCm and so on."""
        for rank, word in enumerate(("nvml", "rsmi", "cuda", "ze", "opencl")):
            for osdev in self.osdevs:
                if match := re.fullmatch(rf"{word}(?:\d+d)?(\d{{1,6}})(?:\.\d+)?", _attribute(osdev, "name")):
                    return rank, int(match[1])
        return 9, 0

    def info(self, name: str) -> str:
        """Return what an OS device, or the device itself, says of itself under ``name``."""
        for element in (*self.osdevs, self.element):
            for row in element.all("info"):
                if row.attributes.get("name") == name:
                    return row.attributes.get("value", "")
        return ""


@dataclass
class _Tree:
    """The walk over the objects of a file."""

    source: Source
    devices: dict[str, _Device] = field(default_factory=dict)
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rates: dict[str, Figure] = field(default_factory=dict)
    objects: dict[tuple[str, str], str] = field(default_factory=dict)
    matrices: list[Element] = field(default_factory=list)

    def walk(self, element: Element, socket: str, bridges: tuple[str, ...], device: _Device | None) -> None:
        """Collect what is below ``element``, which is inside ``socket``, below ``bridges`` and on ``device``."""
        if element.tag in ("distances2", "distances2hetero"):
            self.matrices.append(element)
            return
        kind = element.attributes.get("type", "") if element.tag == "object" else ""
        if kind in ("Package", "Socket") or (kind == "NUMANode" and not socket):
            # in version 1 a NUMA node is around what is in it, with or without a socket
            socket = f"{kind} {element.attributes.get('os_index', '0')}"
        if kind in ("Bridge", "PCIDev") and "pci_busid" in element.attributes:
            busid = self._busid(element)
            self._add_rate(element, busid)
            if kind == "Bridge":
                bridges = (*bridges, busid)
            else:
                device = self._device(element, busid, socket, bridges)
        elif kind == "OSDev" and device is not None:
            device.osdevs.append(element)
        if kind and device is not None:
            number = element.attributes.get("gp_index", element.attributes.get("os_index", ""))
            self.objects.setdefault((kind, number), device.busid)
        for child in element.children:
            self.walk(child, socket, bridges, device)

    def _busid(self, element: Element) -> str:
        busid = _attribute(element, "pci_busid").lower()
        if not _BUSID.fullmatch(busid):
            raise self.source.error(element.line, f"{shown(busid)} is not a PCI bus id like 0000:1a:00.0.")
        return busid

    def _add_rate(self, element: Element, busid: str) -> None:
        """Keep the rate of the link to what is above, in GB/s each way after the line code; 0 where unknown."""
        text = _attribute(element, "pci_link_speed")
        if not re.fullmatch(r"\d{1,6}(\.\d{1,9})?", text):
            if text:
                raise self.source.error(element.line, f"pci_link_speed {shown(text)} is not a rate in GB/s.")
            return
        if float(text) > 0:
            where = f"{self.source.name}, line {element.line}"
            self.rates[busid] = Figure(
                float(text) * 1e9, "byte/s", Evidence.MEASURED, where, f"{float(text):g} GB/s"
            )

    def _device(self, element: Element, busid: str, socket: str, bridges: tuple[str, ...]) -> _Device:
        if busid in self.devices:
            raise self.source.error(
                element.line,
                f"duplicate PCI device {busid} (first in line {self.devices[busid].element.line}).",
            )
        match = _CLASS.match(_attribute(element, "pci_type"))
        kind, vendor = (match[1].lower(), match[2].lower()) if match else ("", "")
        self.chains[busid] = bridges
        found = _Device(element, busid, kind, vendor, socket or "0")
        self.devices[busid] = found
        return found


def looks_like_hwloc(text: str) -> bool:
    """Whether an XML text is of hwloc: its root is ``topology``, with its objects inside."""
    return _ROOT.match(text[:4096]) is not None


def read_lstopo(source: Source) -> NodeFound:
    """Return the inside of the host that the file is of.

    Raises
    ------
    InputError
        If it is not a topology of hwloc, is cut, or contradicts itself.
    """
    root = parse_xml(source.text, source.name, doctype="topology")
    if root.tag != "topology" or not root.all("object"):
        raise source.error(root.line, f"<{root.tag}> is not hwloc's <topology> with its <object>s.")
    tree = _Tree(source)
    tree.walk(root, "", (), None)
    gpus = _gpus(tree)
    if not gpus:
        raise source.error(
            None,
            "has no GPU among its PCI devices; was it written without I/O devices, or by hwloc without PCI support?",
        )
    nics = _nics(tree)
    names = {gpu.busid: f"GPU{i}" for i, gpu in enumerate(gpus)}
    links = _Links(tree, gpus, names)
    told = bool(links.found) or _pcie_alone(gpus)
    if not told:
        source.notes.append(
            "No NVLink or xGMI matrix (hwloc needs NVML or ROCm for it, and cannot follow NVLink to switches "
            "outside the host)."
        )
    host = _host(tree, gpus if told else [], gpus, nics)
    places = PciPlaces(host, list(names))
    source.anomalies += _unlike_slots(tree, gpus, names)
    source.notes.append(f"{plural(len(gpus), 'GPU')}{_of_models(gpus)} and {plural(len(nics), 'NIC port')}.")
    return NodeFound(
        gpus=tuple(names.values()) if told else (),
        chips=tuple(links.chips.values()),
        links=tuple((a, b, count) for (a, b), count in links.found.items()),
        hidden=False,
        beyond=False,
        link_kind=links.kind if links.found else "pcie",
        nics=places.nics,
        sockets=tuple(gpu.socket for gpu in gpus) if told else (),
        pcie=tuple(places.rates.get(busid) for busid in names),
        switches=places.switches,
        uplinks=places.uplinks,
        devices=len(gpus),
        sm=_sm(gpus),
    )


def _attribute(element: Element, name: str) -> str:
    return element.attributes.get(name, "").strip()


def _gpus(tree: _Tree) -> list[_Device]:
    """Return the GPUs, as software counts them: devices that compute, else those of a GPU's class and vendor."""
    devices = [one for one in tree.devices.values() if one.kind[:2] in ("03", "12", "0b") or not one.kind]
    found = [
        one
        for one in devices
        if any(_COMPUTE.match(_attribute(osdev, "name")) for osdev in one.osdevs)
        and one.info("OpenCLDeviceType") in ("", "GPU")
    ]
    if not found:
        found = [one for one in devices if one.kind in _DISPLAY and one.vendor in _VENDORS]
        if found:
            tree.source.notes.append(
                "No CUDA, NVML or ROCm device in it: PCI devices of a GPU's class are the GPUs, as PCI orders them."
            )
    # rank first: those without the number that others have come last
    return sorted(found, key=lambda one: one.number)


def _nics(tree: _Tree) -> list[tuple[_Device, str]]:
    """Return the NICs with their names: adapters with RDMA if there are any, else all of the network class."""
    named: list[tuple[_Device, str]] = []
    plain: list[tuple[_Device, str]] = []
    for device in tree.devices.values():
        if device.kind[:2] != "02":
            continue
        names = [_attribute(osdev, "name") for osdev in device.osdevs]
        rdma = [osdev for osdev in device.osdevs if _has_rdma(osdev)]
        for osdev in rdma:
            named.append((device, _attribute(osdev, "name") or f"nic {device.busid}"))
            for row in osdev.all("info"):
                if (
                    re.fullmatch(r"Port\d+State", _attribute(row, "name"))
                    and _attribute(row, "value") in _DOWN
                ):
                    port = _attribute(row, "name")[4:-5]
                    tree.source.anomalies.append(f"{osdev.where}: port {port} of {named[-1][1]} is down.")
        if not rdma:
            plain.append((device, names[0] if names else f"nic {device.busid}"))
    if named and plain:
        tree.source.notes.append(
            f"Left out as NICs without RDMA: {', '.join(name for _, name in plain[:8])}{', ...' * (len(plain) > 8)}."
        )
    return named or plain


def _has_rdma(osdev: Element) -> bool:
    """Whether an OS device is an RDMA adapter: it has a GUID, or a name that such have."""
    return any("GUID" in _attribute(row, "name") for row in osdev.children) or bool(
        _RDMA.match(_attribute(osdev, "name"))
    )


def _host(
    tree: _Tree, told: Sequence[_Device], gpus: Sequence[_Device], nics: Sequence[tuple[_Device, str]]
) -> PciHost:
    """Return what places GPUs and NICs on PCIe, as of an NCCL dump."""
    ends = {gpu.busid for gpu in gpus} | {device.busid for device, _ in nics}
    return PciHost(
        tree.source,
        gpus=[PciGpu(gpu.busid, gpu.socket) for gpu in told],
        # a rate of -1 is one that is not known
        nets=[
            (Element("net", {"name": name, "speed": "-1"}, one.line, one.where), device.busid, device.socket)
            for device, name in nics
            for one in (device.element,)
        ],
        devices={} if told else {gpu.busid: (f"0x{gpu.kind or '0302'}", gpu.socket) for gpu in gpus},
        chains={busid: chain for busid, chain in tree.chains.items() if busid in ends},
        rates=tree.rates,
    )


class _Links:
    """Links between GPUs and switch chips: ``found`` counts them by names, ``chips`` names each chip by bus id."""

    def __init__(self, tree: _Tree, gpus: Sequence[_Device], names: Mapping[str, str]) -> None:
        self._tree, self._gpus, self._names = tree, gpus, names
        self.found: Counter[tuple[str, str]] = Counter()
        self.chips: dict[str, str] = {}
        self.kind = "nvlink"
        known = {_attribute(one, "name"): one for one in tree.matrices}
        if (matrix := known.get("NVLinkBandwidth")) is not None:
            self._nvlink(matrix)
        elif (matrix := known.get("XGMIBandwidth")) is not None:
            self.kind = "xgmi"
            self._xgmi(matrix, known.get("XGMIHops"))

    def _nvlink(self, matrix: Element) -> None:
        """Count NVLinks: the rate between two objects over that of one link."""
        ends, rates = self._values(matrix)
        models = {_model(gpu) for gpu in self._gpus}
        each = next(
            (bw for name, bw in _LINK_BW.items() if any(name in model for model in models)), _USUAL_BW
        )
        self._tree.source.notes.append(f"NVLink: {each / 1000:g} GB/s of hwloc's figures are one link.")
        chips = [one for one in dict.fromkeys(ends) if one and one not in self._names]
        self.chips = {busid: f"switch{i}" for i, busid in enumerate(sorted(chips))}
        left_out = 0.0
        for (a, b), rate in rates.items():
            if not ends[a] or not ends[b]:
                left_out += rate
                continue
            count, rest = divmod(rate, each)
            if rest or not count:
                raise self._tree.source.error(
                    matrix.line, f"NVLinkBandwidth {rate:g} MB/s is no whole number of links of {each} MB/s."
                )
            self._link(ends[a], ends[b], int(count))
        if left_out:
            self._tree.source.notes.append(
                "NVLink to a processor (POWER's NPU) is left out: it joins no GPUs."
            )

    def _xgmi(self, matrix: Element, hops: Element | None) -> None:
        """Count xGMI links: of direct neighbours, the rate over that of the narrowest."""
        ends, rates = self._values(matrix)
        if hops is not None:
            steps = self._values(hops)
            far = {frozenset((steps[0][a], steps[0][b])) for (a, b), count in steps[1].items() if count > 1}
            rates = {
                (a, b): rate for (a, b), rate in rates.items() if frozenset((ends[a], ends[b])) not in far
            }
        least = min(rates.values(), default=1.0)
        for (a, b), rate in rates.items():
            self._link(ends[a], ends[b], int(rate // least) if rate % least == 0 else 1)

    def _link(self, a: str, b: str, count: int) -> None:
        pair = [self._names.get(end) or self.chips[end] for end in (a, b)]
        if pair[0] in self.chips.values():
            pair.reverse()
        if pair[0] == pair[1]:
            self._tree.source.anomalies.append(
                f"{self._tree.source.name}: {pair[0]} links to itself; left out."
            )
        elif pair[0] not in self.chips.values():
            self.found[pair[0], pair[1]] += count

    def _values(self, matrix: Element) -> tuple[list[str], dict[tuple[int, int], float]]:
        """Return the bus id of each object of a matrix ("" of others), and its values above the diagonal."""
        source, objects = self._tree.source, self._tree.objects
        unique = _attribute(matrix, "type")
        count = matrix.count("nbobjs", most=_MOST_OBJECTS)
        if sum(len(part.content) for part in matrix.children) > _LONGEST_VALUE * (count + 1) ** 2 + 1000:
            raise source.error(matrix.line, f"{_attribute(matrix, 'name')} is too long for {count} objects.")
        texts = _words(matrix, "u64values")
        words = _words(matrix, "indexes")
        if len(words) != count or len(texts) != count * count:
            raise source.error(
                matrix.line,
                f"{_attribute(matrix, 'name')} has {len(words)} indexes and {len(texts)} values for {count} objects; "
                "is the file cut?",
            )
        if any(not re.fullmatch(r"\d{1,20}", text) for text in texts):
            raise source.error(matrix.line, f"{_attribute(matrix, 'name')}: a value is not a whole number.")
        ends = []
        for word in words:
            kind, _, number = word.rpartition(":") if ":" in word else (unique, "", word)
            end = objects.get((kind, number), "")
            if not end and kind in ("OSDev", "PCIDev"):
                raise source.error(matrix.line, f"no object is the {kind} {shown(number)} of its matrix.")
            ends.append(end)
        values: dict[tuple[int, int], float] = {}
        for a, b in combinations(range(count), 2):
            there, back = (int(texts[i * count + j]) for i, j in ((a, b), (b, a)))
            if there != back:
                raise source.error(
                    matrix.line,
                    f"{_attribute(matrix, 'name')} says {there} from {words[a]} to {words[b]}, and {back} back.",
                )
            if there:
                values[a, b] = there
        return ends, values


def _words(matrix: Element, tag: str) -> list[str]:
    return [word for part in matrix.all(tag) for word in part.content.split()]


def _model(gpu: _Device) -> str:
    return gpu.info("GPUModel") or gpu.info("PCIDevice")


def _of_models(gpus: Sequence[_Device]) -> str:
    models = Counter(_model(gpu) for gpu in gpus if _model(gpu))
    return f" ({', '.join(models)})" if models else ""


def _pcie_alone(gpus: Sequence[_Device]) -> bool:
    """Whether GPUs have no NVLink: NVML was asked, and they are of a kind whose links hwloc can follow."""
    asked = all(any(_attribute(one, "name").startswith("nvml") for one in gpu.osdevs) for gpu in gpus)
    return asked and not any(_LINKED.search(_model(gpu)) or not _model(gpu) for gpu in gpus)


def _sm(gpus: Sequence[_Device]) -> str:
    """Return the compute capability of the model that all GPUs are, none where that is not known."""
    found = {_SM.get(match[1], "") if (match := _MODEL.search(_model(gpu))) else "" for gpu in gpus}
    return found.pop() if len(found) == 1 else ""


def _unlike_slots(tree: _Tree, gpus: Sequence[_Device], names: Mapping[str, str]) -> Iterator[str]:
    """Yield GPUs whose PCIe link is slower or faster than that of most."""
    rates: dict[str, list[_Device]] = defaultdict(list)
    for gpu in gpus:
        rates[tree.rates[gpu.busid].text if gpu.busid in tree.rates else "unknown"].append(gpu)
    usual = commonest(tree.rates[gpu.busid].text for gpu in gpus if gpu.busid in tree.rates)
    for rate, members in rates.items():
        if usual is not None and rate != usual:
            for gpu in members:
                yield (
                    f"{gpu.element.where}: the PCIe link of {names[gpu.busid]} ({gpu.busid}) runs at {rate}, those "
                    f"of other GPUs at {usual} (a link that saves power is slower while idle)."
                )


FORMAT = Format("lstopo", read_lstopo, in_text=looks_like_hwloc)
