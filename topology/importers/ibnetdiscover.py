"""``ibnetdiscover``: every switch and adapter of an InfiniBand fabric, every cable seen from both its ends."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from topology.base.figures import Evidence, Figure
from topology.base.reading import shown
from topology.importers.cabling import Adapter, cabled_fabric
from topology.importers.found import FabricFound, Format
from topology.importers.source import Source

_FIRST = re.compile(r'^(Switch|Ca)\s+\d+\s+"[SH]-[0-9a-fA-F]+"', re.MULTILINE)
_DEVICE = re.compile(r'(Switch|Ca|Rt)\s+(\d{1,9})\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?.*')
_PORT = re.compile(
    r'\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-fA-F]+\))?\s+"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\[ext \d+\])?'
    r"(?:\([0-9a-fA-F]+\))?\s*(?:#(.*))?"
)
_FACT = re.compile(r"[A-Za-z]\w*=\S.*|DDR|#.*")
_RATE = re.compile(r"\b(\d{1,2})x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
_LANE_GB_PER_S = {
    "SDR": 2.0 / 8,
    "DDR": 4.0 / 8,
    "QDR": 8.0 / 8,
    "FDR10": 10.0 / 8,
    "FDR": 13.64 / 8,
    "EDR": 25.0 / 8,
    "HDR": 50.0 / 8,
    "NDR": 100.0 / 8,
    "XDR": 200.0 / 8,
}
"""Data rate of one lane by speed (InfiniBand Trade Association, roadmap; SDR to QDR after 8b/10b)."""
_WIDTHS = ("1", "2", "4", "8", "12")
_DEFAULT_NAME = re.compile(r"^MT\d{3,6}\b|ConnectX|Mellanox|NVIDIA|^InfiniBand\b|^\(?none\)?$", re.IGNORECASE)
_SHARP = "Aggregation Node"


@dataclass
class _Device:
    """A switch or adapter: its ports by number, with the far end, rate and line."""

    kind: str
    guid: str
    ports: int
    name: str
    line: int
    cables: dict[int, tuple[str, int, str, int]] = field(default_factory=dict)


def parse_ibnetdiscover(source: Source) -> FabricFound:
    """Return the fabric, hosts gathered from their adapters."""
    devices = _devices(source)
    _check_ends(source, devices)
    names = _switch_names(devices)
    adapters = _adapters(source, devices, names)
    trunks: Counter[tuple[str, str]] = Counter()
    rates: dict[tuple[str, str], Figure] = {}
    for device in devices.values():
        for far, _, rate, line in device.cables.values():
            if device.kind == "Switch" and far in names and device.guid < far:
                ends = (names[device.guid], names[far])
                figure = _figure(source, rate, line)
                old = rates.setdefault(ends, figure)
                if figure.value != old.value:
                    source.anomalies.append(
                        f"{source.at(line)}: {ends[0]} to {ends[1]} runs at {rate}, another link of the two "
                        f"at {old.text}; the slower rate is used for both."
                    )
                    rates[ends] = min(old, figure, key=lambda f: f.value)
                trunks[ends] += 1
    return cabled_fabric(source, tuple(names.values()), adapters, trunks, rates)


def _devices(source: Source) -> dict[str, _Device]:
    """Read the file line by line."""
    devices: dict[str, _Device] = {}
    current: _Device | None = None
    for number, line in enumerate(source.lines, 1):
        text = line.strip()
        if not text:
            continue
        if match := _DEVICE.fullmatch(text):
            current = _Device(
                match[1], match[3], min(int(match[2]), 10_000), (match[4] or "").strip(), number
            )
            if current.guid in devices:
                raise source.error(
                    number, f"duplicate {current.guid} (first in line {devices[current.guid].line})."
                )
            devices[current.guid] = current
        elif match := _PORT.fullmatch(text):
            if current is None:
                raise source.error(number, "a port before any Switch or Ca line; is the beginning missing?")
            _add_port(source, number, current, match)
        elif text.startswith("["):
            raise source.error(number, f"{shown(text)} is not a complete port line; is the file truncated?")
        elif not _FACT.fullmatch(text):
            raise source.error(number, f"{shown(text)} is not a line of ibnetdiscover.")
    if not any(device.kind == "Switch" for device in devices.values()):
        raise source.error(None, "has no switch; is the file truncated?")
    return devices


def _add_port(source: Source, number: int, device: _Device, match: re.Match[str]) -> None:
    """Add one port line to its device."""
    port = int(match[1][:6])
    if not 1 <= port <= device.ports:
        raise source.error(number, f"port {port} of a device with {device.ports} ports.")
    if port in device.cables:
        raise source.error(number, f"duplicate port {port} (first in line {device.cables[port][3]}).")
    rate = _RATE.search(match[4] or "")
    if rate is None or rate[1] not in _WIDTHS:
        raise source.error(number, "has no width and speed like 4xNDR at the end; is the line truncated?")
    device.cables[port] = (match[2], int(match[3][:6]), rate[0], number)


def _check_ends(source: Source, devices: dict[str, _Device]) -> None:
    """Both ends of a cable name each other, at the same rate."""
    for device in devices.values():
        for port, (far, far_port, rate, line) in device.cables.items():
            if far not in devices:
                raise source.error(
                    line, f"{device.guid} is cabled to {far}, which is not described; is the file truncated?"
                )
            back = devices[far].cables.get(far_port)
            if back is None or back[:2] != (device.guid, port):
                raise source.error(
                    line,
                    f"{device.guid} port {port} is cabled to {far} port {far_port}, but "
                    f"{f'line {back[3]}' if back else f'{far} (line {devices[far].line})'} contradicts this.",
                )
            if back[2] != rate:
                raise source.error(line, f"the cable runs at {rate}, but at {back[2]} in line {back[3]}.")


def _switch_names(devices: dict[str, _Device]) -> dict[str, str]:
    """Return the name of each switch by GUID: its node description without ``MF0;`` and model, if that is unique."""
    switches = [device for device in devices.values() if device.kind == "Switch"]
    short = {
        device.guid: re.sub(r"^MF0;|:[^:]*$", "", device.name)
        if device.name.startswith("MF0;")
        else device.name
        for device in switches
    }
    times = Counter(short.values())
    return {
        guid: name if name and times[name] == 1 and not _DEFAULT_NAME.search(name) else guid
        for guid, name in short.items()
    }


def _adapters(source: Source, devices: dict[str, _Device], names: dict[str, str]) -> list[Adapter]:
    """Return every cabled adapter port, with host and NIC where its description names them."""
    found = []
    for device in devices.values():
        if device.kind != "Ca" or _SHARP in device.name:
            continue
        host, nic = _host_and_nic(device.name)
        for port, (far, far_port, rate, line) in sorted(device.cables.items()):
            if far not in names:
                raise source.error(line, f"{device.guid} is cabled to another adapter, {far}.")
            label = nic if len(device.cables) == 1 or not nic else f"{nic}.{port}"
            figure = _figure(source, rate, line)
            found.append(Adapter(host, label, names[far], far_port, figure, source.at(line), device.guid))
    return found


def _host_and_nic(description: str) -> tuple[str, str]:
    """Return host and NIC of a node description; empty where it is the adapter's default."""
    words = description.replace("'", "").split()
    if not words or _DEFAULT_NAME.search(description):
        return "", ""
    return (words[0], words[1]) if len(words) > 1 else (words[0], "")


def _figure(source: Source, rate: str, line: int) -> Figure:
    """Return the data rate of ``4xNDR``."""
    width, _, speed = rate.partition("x")
    value = int(width) * _LANE_GB_PER_S[speed] * 1e9
    where, text = f"{source.name}, line {line}: {rate}", f"{value * 8 / 1e9:g} Gb/s"
    return Figure(value, "byte/s", Evidence.MEASURED, where, text)


FORMAT = Format("ibnetdiscover", parse_ibnetdiscover, in_text=lambda text: _FIRST.search(text) is not None)
