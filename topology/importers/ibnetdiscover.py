"""``ibnetdiscover``: every switch and adapter of an InfiniBand fabric, every cable seen from both its ends.

``ibnetdiscover -p`` lists the same ports, one a line, those without a cable too.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from topology.base.figures import Evidence, Figure
from topology.base.reading import shown
from topology.importers.cabling import Adapter, cabled_fabric
from topology.importers.found import FabricFound, Format, TrunkFound
from topology.importers.source import Source

_DEVICE = re.compile(r'(Switch|Ca|Rt)\s+(\d{1,9})\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?.*')
_END = r'"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-fA-F]+\))?'
_PORT = re.compile(rf"\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-fA-F]+\))?\s+{_END}\s*(?:#(.*))?")
_LISTED_END = r"(SW|CA|RT)\s+\d+\s+(\d{1,6})\s+0x([0-9a-fA-F]{1,16})"
_LISTED = re.compile(rf"{_LISTED_END}\s+(\S+\s+\S+)\s+(?:-\s+{_LISTED_END}\s+\(\s*'(.*)' - '.*'\s*\)|'(.*)')")
_FIRST = re.compile(rf'^(?:(?:Switch|Ca)\s+\d+\s+"[SH]-[0-9a-fA-F]+"|\s*({_LISTED_END}))', re.MULTILINE)
_LETTERS = {"SW": "S", "CA": "H", "RT": "R"}
_FACT = re.compile(r"[A-Za-z]\w*=\S.*|DDR|#.*")
_RATE = re.compile(r"\b(1|2|4|8|12)x\s*(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
_LANE_GBIT_PER_S = {
    "SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 13.64, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
    "XDR": 200.0,
}  # fmt: skip
"""Data rate of one lane by speed (InfiniBand Trade Association, roadmap; SDR to QDR after 8b/10b)."""
_DEFAULT_NAME = re.compile(r"^MT\d{3,6}\b|ConnectX|Mellanox|NVIDIA|^InfiniBand\b|^\(?none\)?$", re.IGNORECASE)
_SHARP = "Aggregation Node"
_MOST_PORTS = 10_000


class _Cable(NamedTuple):
    """What a port line says: the far device and its port, the rate as written without spaces, and the line."""

    far: str
    far_port: int
    rate: str
    line: int


@dataclass
class _Device:
    """A switch (``S-...``), adapter or router: its cables by port."""

    guid: str
    ports: int
    name: str
    line: int
    cables: dict[int, _Cable] = field(default_factory=dict)

    def add(self, source: Source, line: int, port: int, far: str, far_port: int, rate: str) -> None:
        """Add a cable."""
        if not 1 <= port <= self.ports:
            raise source.error(line, f"port {port} of a device with {self.ports} ports.")
        if port in self.cables:
            raise source.error(line, f"duplicate port {port} (first in line {self.cables[port].line}).")
        match = _RATE.search(rate)
        if match is None:
            raise source.error(line, "has no width and speed like 4xNDR; is the line truncated?")
        self.cables[port] = _Cable(far, far_port, f"{match[1]}x{match[2]}", line)


def parse_ibnetdiscover(source: Source) -> FabricFound:
    """Return the fabric, hosts gathered from their adapters."""
    first = _FIRST.search(source.text)
    devices = _listed(source) if first and first[1] else _devices(source)
    names = _switch_names(devices)
    if not names:
        raise source.error(None, "has no switch; is the file truncated?")
    _check_ends(source, devices)
    trunks: dict[tuple[str, str], TrunkFound] = {}
    for device in devices.values():
        for _, cable in sorted(device.cables.items()):
            if device.guid not in names or cable.far not in names or device.guid > cable.far:
                continue
            ends, rate = (names[device.guid], names[cable.far]), _figure(source, cable)
            old = trunks.get(ends)
            if old is not None and old.rate is not None:
                if rate.value != old.rate.value:
                    other = f"another link of the two at {old.rate.text}; the slower rate is used for both"
                    source.note(cable.line, f"{ends[0]} to {ends[1]} runs at {cable.rate}, {other}.")
                rate = min(old.rate, rate, key=lambda figure: figure.value)
            trunks[ends] = TrunkFound(ends, 1 + (old.count or 0 if old else 0), rate)
    return cabled_fabric(source, names.values(), _adapters(source, devices, names), trunks.values())


def _devices(source: Source) -> dict[str, _Device]:
    """Read the report of devices with their ports."""
    devices: dict[str, _Device] = {}
    current: _Device | None = None
    for number, line in enumerate(map(str.strip, source.lines), 1):
        if match := _DEVICE.fullmatch(line):
            guid, ports = match[3], min(int(match[2]), _MOST_PORTS)
            if guid in devices:
                raise source.error(number, f"duplicate {guid} (first in line {devices[guid].line}).")
            current = devices[guid] = _Device(guid, ports, (match[4] or "").strip(), number)
        elif match := _PORT.fullmatch(line):
            if current is None:
                raise source.error(number, "a port before any Switch or Ca line; is the beginning missing?")
            current.add(source, number, int(match[1][:6]), match[2], int(match[3][:6]), match[4] or "")
        elif line and not _FACT.fullmatch(line):
            raise source.error(number, f"{shown(line)} is no line of ibnetdiscover; is it truncated?")
    return devices


def _listed(source: Source) -> dict[str, _Device]:
    """Read the list of ports."""
    devices: dict[str, _Device] = {}
    for number, line in enumerate(map(str.strip, source.lines), 1):
        match = _LISTED.fullmatch(line)
        if match is None and line:
            raise source.error(number, f"{shown(line)} is no line of `ibnetdiscover -p`; is it truncated?")
        if match is not None:
            guid, name = _guid(*match.group(1, 2, 3)), (match[8] or match[9] or "").strip()
            device = devices.setdefault(guid, _Device(guid, _MOST_PORTS, name, number))
            if match[5]:
                far = _guid(*match.group(5, 6, 7))
                device.add(source, number, int(match[2]), far, int(match[6]), match[4])
    return devices


def _guid(kind: str, port: str, guid: str) -> str:
    """Return a device as the report of devices calls it: that of an adapter's port counts up from the device's."""
    return f"{_LETTERS[kind]}-{int(guid, 16) - (int(port) - 1 if kind == 'CA' else 0):016x}"


def _check_ends(source: Source, devices: dict[str, _Device]) -> None:
    """Both ends of a cable name each other, at the same rate."""
    for guid, device in devices.items():
        for port, (far, far_port, rate, line) in device.cables.items():
            if far not in devices:
                problem = f"{guid} is cabled to {far}, which is not described; is the file truncated?"
                raise source.error(line, problem)
            back = devices[far].cables.get(far_port)
            if back is None or (back.far, back.far_port) != (guid, port):
                other = back.line if back else devices[far].line
                problem = f"{guid} port {port} is cabled to {far} port {far_port}, but line {other} contradicts this."
                raise source.error(line, problem)
            if back.rate != rate:
                raise source.error(line, f"the cable runs at {rate}, but at {back.rate} in line {back.line}.")


def _switch_names(devices: dict[str, _Device]) -> dict[str, str]:
    """Return the name of each switch by GUID: its node description without ``MF0;`` and model, if that is unique."""
    short = {
        guid: re.sub(r"^MF0;(.*?)(:[^:]*)?$", r"\1", device.name)
        for guid, device in devices.items()
        if guid.startswith("S")
    }
    times = Counter(short.values())
    return {
        guid: name if name and times[name] == 1 and not _DEFAULT_NAME.search(name) else guid
        for guid, name in short.items()
    }


def _adapters(source: Source, devices: dict[str, _Device], names: dict[str, str]) -> list[Adapter]:
    """Return every cabled adapter port, with host and NIC where its description names them."""
    found = []
    for guid, device in devices.items():
        if not guid.startswith("H") or _SHARP in device.name:
            continue
        words = [] if _DEFAULT_NAME.search(device.name) else device.name.replace("'", "").split()
        host, nic, *_ = *words, "", ""
        for port, cable in sorted(device.cables.items()):
            if cable.far not in names:
                raise source.error(cable.line, f"{guid} is cabled to another adapter, {cable.far}.")
            label = nic if len(device.cables) == 1 or not nic else f"{nic}.{port}"
            rate, place = _figure(source, cable), source.at(cable.line)
            found.append(Adapter(host, label, names[cable.far], cable.far_port, rate, place))
    return found


def _figure(source: Source, cable: _Cable) -> Figure:
    """Return the data rate of ``4xNDR``."""
    width, _, speed = cable.rate.partition("x")
    gbit = int(width) * _LANE_GBIT_PER_S[speed]
    where = f"{source.name}, line {cable.line}: {cable.rate}"
    return Figure(gbit * 1e9 / 8, "byte/s", Evidence.MEASURED, where, f"{gbit:g} Gb/s")


FORMAT = Format("ibnetdiscover", parse_ibnetdiscover, in_text=lambda text: _FIRST.search(text) is not None)
