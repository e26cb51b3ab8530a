"""``ibnetdiscover``: every switch and adapter of an InfiniBand fabric, every cable seen from both its ends.

``ibnetdiscover -p`` lists the same ports, one a line, those without a cable too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from topology.base.figures import Evidence, Figure
from topology.base.reading import shown
from topology.importers.cabling import cabled_fabric
from topology.importers.found import FabricFound, Format, PortFound, TrunkFound, listed
from topology.importers.source import Source

_DEVICE = re.compile(r'(Switch|Ca|Rt)\s+(\d{1,9})\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?.*')
_END = r'"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-fA-F]+\))?'
_PORT = re.compile(rf"\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-fA-F]+\))?\s+{_END}\s*(?:#(.*))?")
_LISTED_END = r"(SW|CA|RT)\s+\d+\s+(\d{1,6})\s+0x([0-9a-fA-F]{1,16})"
_LISTED = re.compile(
    rf"{_LISTED_END}\s+(\S+\s+\S+)\s+(?:-\s+{_LISTED_END}\s+\(\s*'((?:(?!' - ').)*+)' - '.*'\s*\)|'(.*)')"
)
_FIRST_LINE = re.compile(
    rf'^(?:(?:Switch|Ca)\s+\d+\s+"[SH]-[0-9a-fA-F]+"|[^\S\n]*+({_LISTED_END}))', re.MULTILINE
)
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


class _Cable(NamedTuple):
    """What a line says of a port: the far device and its port, the rate without spaces, and the line."""

    far: str
    far_port: int
    rate: str
    line: int


@dataclass
class _Ports:
    """The devices (``S-...`` are switches) with their names and lines, and the cables by device and port."""

    source: Source
    names: dict[str, str] = field(default_factory=dict)
    lines: dict[str | tuple[str, int], int] = field(default_factory=dict)
    cables: dict[tuple[str, int], _Cable] = field(default_factory=dict)

    def add(self, line: int, guid: str, port: int, far: str, far_port: int, rate: str) -> None:
        """Add a cable."""
        self.source.once(self.lines, (guid, port), line, f"port {port}")
        match = _RATE.search(rate)
        if match is None:
            raise self.source.error(line, "has no width and speed like 4xNDR; is the line truncated?")
        self.cables[guid, port] = _Cable(far, far_port, f"{match[1]}x{match[2]}", line)


def parse_ibnetdiscover(source: Source) -> FabricFound:
    """Return the fabric, hosts gathered from their adapters."""
    start = _FIRST_LINE.search(source.text)
    ports = _listed(source) if start and start[1] else _devices(source)
    names = _switch_names(ports.names)
    if not names:
        raise source.error(None, "has no switch; is the file truncated?")
    _check_ends(ports)
    if routers := [guid for guid in ports.names if guid.startswith("R")]:
        source.note(ports.lines[routers[0]], f"{listed(routers)}: routers; left out.")
    order = {guid: place for place, guid in enumerate(ports.names)}
    cables = sorted(ports.cables.items(), key=lambda item: (order[item[0][0]], item[0][1]))
    several = Counter(guid for guid, _ in ports.cables)
    adapters: list[PortFound] = []
    links: dict[tuple[str, str], list[_Cable]] = defaultdict(list)
    for (guid, port), cable in cables:
        if guid.startswith("H") and _SHARP not in ports.names[guid]:
            if cable.far not in names:
                raise source.error(cable.line, f"{guid} is cabled to another adapter, {cable.far}.")
            host, nic = _host_and_nic(ports.names[guid])
            nic = f"{nic}.{port}" if nic and several[guid] > 1 else nic
            rate, place = _figure(source, cable), source.at(cable.line)
            adapters.append(PortFound(host, names[cable.far], place, nic, rate, cable.far_port))
        elif guid in names and cable.far in names and guid < cable.far:
            links[names[guid], names[cable.far]].append(cable)
    trunks = [_trunk(source, ends, group) for ends, group in links.items()]
    return cabled_fabric(source, names.values(), adapters, trunks)


def _trunk(source: Source, ends: tuple[str, str], cables: list[_Cable]) -> TrunkFound:
    """Return the cables between two switches as links of one rate, the slowest."""
    rates = [_figure(source, cable) for cable in cables]
    slowest = min(rates, key=lambda rate: rate.value)
    for rate, cable in zip(rates, cables, strict=True):
        if rate.value != slowest.value:
            remark = f"another link of the two at {slowest.text}; the slower rate is used for both"
            source.note(cable.line, f"{ends[0]} to {ends[1]} runs at {cable.rate}, {remark}.")
    return TrunkFound(ends, len(cables), slowest)


def _devices(source: Source) -> _Ports:
    """Read the report of devices with their ports."""
    fabric, guid, ports = _Ports(source), "", 0
    for number, line in enumerate(map(str.strip, source.lines), 1):
        if match := _DEVICE.fullmatch(line):
            guid, ports = match[3], int(match[2])
            source.once(fabric.lines, guid, number, guid)
            fabric.names[guid] = (match[4] or "").strip()
        elif match := _PORT.fullmatch(line):
            port = int(match[1][:6])
            if not 1 <= port <= ports:
                of = (
                    f"of a device with {ports} ports"
                    if guid
                    else "before any device; is the beginning missing?"
                )
                raise source.error(number, f"port {port} {of}.")
            fabric.add(number, guid, port, match[2], int(match[3][:6]), match[4] or "")
        elif line and not _FACT.fullmatch(line):
            raise source.error(number, f"{shown(line)} is no line of ibnetdiscover; is it truncated?")
    return fabric


def _listed(source: Source) -> _Ports:
    """Read the list of ports."""
    fabric = _Ports(source)
    for number, line in enumerate(map(str.strip, source.lines), 1):
        match = _LISTED.fullmatch(line)
        if match is None and line:
            raise source.error(number, f"{shown(line)} is no line of `ibnetdiscover -p`; is it truncated?")
        if match is not None:
            guid = _guid(*match.group(1, 2, 3))
            fabric.lines.setdefault(guid, number)
            fabric.names.setdefault(guid, (match[8] or match[9] or "").strip())
            if match[5]:
                far = _guid(*match.group(5, 6, 7))
                fabric.add(number, guid, int(match[2]), far, int(match[6]), match[4])
    return fabric


def _guid(kind: str, port: str, guid: str) -> str:
    """Return a device as the report of devices calls it: that of an adapter's port counts up from the device's."""
    return f"{_LETTERS[kind]}-{int(guid, 16) - (int(port) - 1 if kind == 'CA' else 0):016x}"


def _check_ends(ports: _Ports) -> None:
    """Both ends of a cable name each other, at the same rate."""
    for (guid, port), (far, far_port, rate, line) in ports.cables.items():
        back = ports.cables.get((far, far_port))
        if far not in ports.names:
            problem = f"{guid} is cabled to {far}, which is not described; is the file truncated?"
        elif back is None or (back.far, back.far_port) != (guid, port):
            far_line = back.line if back else ports.lines[far]
            problem = f"{guid} port {port} is cabled to {far} port {far_port}, but line {far_line} contradicts this."
        elif back.rate != rate:
            problem = f"the cable runs at {rate}, but at {back.rate} in line {back.line}."
        else:
            continue
        raise ports.source.error(line, problem)


def _switch_names(names: dict[str, str]) -> dict[str, str]:
    """Return the name of each switch by GUID: its node description without ``MF0;`` and model, if that is unique."""
    switches = {guid: name for guid, name in names.items() if guid.startswith("S")}
    short = {guid: re.sub(r"^MF0;(.*?)(:[^:]*)?$", r"\1", name) for guid, name in switches.items()}
    times = Counter(short.values())
    return {
        guid: name if name and times[name] == 1 and not _DEFAULT_NAME.search(name) else guid
        for guid, name in short.items()
    }


def _host_and_nic(description: str) -> tuple[str, str]:
    """Return host and NIC of a node description; empty where it is the adapter's default."""
    words = [] if _DEFAULT_NAME.search(description) else description.replace("'", "").split()
    host, nic, *_ = *words, "", ""
    return host, nic


def _figure(source: Source, cable: _Cable) -> Figure:
    """Return the data rate of ``4xNDR``."""
    width, _, speed = cable.rate.partition("x")
    gbit = int(width) * _LANE_GBIT_PER_S[speed]
    where = f"{source.name}, line {cable.line}: {cable.rate}"
    return Figure(gbit * 1e9 / 8, "byte/s", Evidence.MEASURED, where, f"{gbit:g} Gb/s")


FORMAT = Format(
    "ibnetdiscover", parse_ibnetdiscover, in_text=lambda text: _FIRST_LINE.search(text) is not None
)
