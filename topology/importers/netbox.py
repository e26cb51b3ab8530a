"""NetBox: cables, interfaces and devices of its REST interface (JSON) or of its CSV exports, in one file or several.

A cable joins interfaces by device and name. What rate it has, the types of its interfaces say; which devices are
hosts, the roles of devices; a file of cables alone has neither, so types are asked for and roles taken from names.
The rate of an InfiniBand type is that of four lanes.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from topology.errors import InputError
from topology.figures import Evidence, Figure
from topology.importers.cabling import Adapter, cabled_fabric
from topology.importers.found import FabricFound, Format, Found
from topology.importers.source import Source
from topology.reading import Fields
from topology.units import plural

Port = tuple[str, str]
"""A device and its interface."""
_ETHERNET = re.compile(r"(\d+(?:\.\d+)?)(g|t)?base", re.IGNORECASE)
_LABEL = re.compile(r"\((\d+(?:\.\d+)?)(GE|TE|ME)\)")
_INFINIBAND = {
    "sdr": 8, "ddr": 16, "qdr": 32, "fdr10": 40, "fdr": 54.5, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800
}  # fmt: skip
"""Gb/s of four lanes."""
_NO_LINK = ("virtual", "bridge", "lag", "other")
_INTERFACE = re.compile(r"(dcim[.> ]+)?interface", re.IGNORECASE)
_PANEL = re.compile(r"(dcim[.> ]+)?(front|rear) ?port", re.IGNORECASE)
_CONNECTED = ("connected", "")
_ROLES = (
    ("management", r"(?<![a-z])(oob|mgmt|management|bmc|ipmi|console|pdu)"),
    ("other", r"storage|firewall|router|patch|(?<![a-z])(nas|login|bastion|jump|ufm)(?![a-z])"),
    ("switch", r"spine|leaf|leaves|switch|(?<![a-z])(tor|core|agg|aggregation|access|rail|fabric)(?![a-z])"),
    ("host", r"server|host|compute|worker|node|gpu|dgx|hgx|(?<![a-z])(gb|b|h|a|mi)\d{3}"),
)  # fmt: skip
"""What a role or a device's name says, the first that fits."""
_COLUMNS = {
    "cable": ({"side_a_device", "side_b_device"}, {"device a", "device b"}),
    "interface": ({"device", "name", "type"},),
    "device": ({"name", "role"}, {"name", "device_role"}, {"name", "device role"}),
}
_LEFT_OUT = {"management": "of the management", "other": "that are neither hosts nor switches"}
_SLOWER = 8
"""NICs that are slower than the fastest by more than this are the management's."""
_MOST_NAMED = 8


@dataclass(frozen=True)
class _Cable:
    """The ports at both ends of a cable, as many as break out."""

    ends: tuple[tuple[Port, ...], tuple[Port, ...]]
    place: str


@dataclass(frozen=True)
class NetboxFound(Found):
    """What one file has: cables, the rate of ports (None: not said), roles of devices, and ``lost`` cables by why."""

    source: Source
    cables: tuple[_Cable, ...] = ()
    rates: Mapping[Port, Figure | None] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)


def looks_like_netbox_csv(text: str) -> bool:
    """Whether the first line has the columns of NetBox's cables, interfaces or devices."""
    return bool(_kind_of_columns(text.lstrip().split("\n", 1)[0]))


def is_netbox_json(data: object) -> bool:
    """Whether data have rows of NetBox's cables, interfaces or devices."""
    return any(_kind_of_row(row) for _, rows in _tables(data) for row in rows[:1])


def read_netbox(source: Source) -> NetboxFound:
    """Return the rows of one file.

    Raises
    ------
    InputError
        If a row lacks what it needs, or the file is one page of several.
    """
    reader = _Reader(source)
    if source.text.lstrip().startswith(("{", "[")):
        for where, rows in _tables(source.data):
            for number, row in enumerate(rows):
                reader.add(Fields(row, f"{source.name}: {where}[{number}]"))
        _check_pages(source, source.data)
    else:
        for line, row in _csv_rows(source):
            reader.add_csv(row, line)
    found = reader.found()
    if not (found.cables or found.rates or found.roles or found.lost):
        raise source.error(None, "has no row of a cable, an interface or a device.")
    return found


def joined_netbox(found: Sequence[Found]) -> list[Found]:
    """Return what was found in files, those of NetBox as one fabric in the place of the first.

    Raises
    ------
    InputError
        If they have no cable between a host and a switch.
    """
    parts = [one for one in found if isinstance(one, NetboxFound)]
    if not parts:
        return list(found)
    fabric = _Fabric(parts).found()
    rest = [one for one in found if not isinstance(one, NetboxFound)]
    place = found.index(parts[0])
    return [*rest[:place], fabric, *rest[place:]]


def _kind_of_columns(line: str) -> str:
    columns = {name.strip().strip('"').lower() for name in re.split("[,;\t]", line)}
    return next((kind for kind, sets in _COLUMNS.items() if any(one <= columns for one in sets)), "")


def _kind_of_row(row: object) -> str:
    """Return whether a row is a cable, an interface or a device, "" if none of them."""
    if not isinstance(row, dict):
        return ""
    if ("a_terminations" in row and "b_terminations" in row) or "termination_a" in row:
        return "cable"
    if "name" in row and "device" in row and "type" in row:
        return "interface"
    return "device" if "name" in row and ("role" in row or "device_role" in row) else ""


def _tables(data: object) -> list[tuple[str, list[object]]]:
    """Return the lists of rows of a document with their names: itself, a page of REST, or several of either."""
    if isinstance(data, list):
        return [("", data)]
    if not isinstance(data, dict):
        return []
    if isinstance(data.get("results"), list):
        return [("results", data["results"])]
    inner = data["data"] if isinstance(data.get("data"), dict) else data
    found = []
    for key in ("cables", "interfaces", "devices", "cable_list", "interface_list", "device_list"):
        rows = inner.get(key)
        rows = rows.get("results") if isinstance(rows, dict) else rows
        if isinstance(rows, list):
            found.append((key, rows))
    return found


def _check_pages(source: Source, data: object) -> None:
    """Refuse a page that others follow or precede."""
    pages = [data, *data.values()] if isinstance(data, dict) else []
    for page in pages:
        if isinstance(page, dict) and (page.get("next") or page.get("previous")):
            raise source.error(
                None,
                "is one page of several; ask for all at once, with ?limit=0, or put the pages' rows into one list.",
            )


def _csv_rows(source: Source) -> Iterable[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file by lower-case column, each with its line."""
    lines = source.text.lstrip().split("\n")
    reader = csv.reader(lines, delimiter=next((one for one in ",;\t" if one in lines[0]), ","), strict=True)
    try:
        columns = [name.strip().lower() for name in next(reader)]
        if len(set(columns)) != len(columns):
            raise source.error(1, f"has the column {Counter(columns).most_common(1)[0][0]} twice.")
        for cells in reader:
            if not any(cells):
                continue
            if len(cells) != len(columns):
                raise source.error(
                    reader.line_num, f"{len(cells)} cells for {len(columns)} columns; is the file cut?"
                )
            yield reader.line_num, dict(zip(columns, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        raise source.error(reader.line_num, f"not valid CSV ({error}).") from None


class _Reader:
    """The rows of one file on their way to cables, rates and roles."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._cables: list[_Cable] = []
        self._rates: dict[Port, Figure | None] = {}
        self._roles: dict[str, str] = {}
        self._lost: Counter[str] = Counter()

    def found(self) -> NetboxFound:
        """Return what was read."""
        return NetboxFound(self._source, tuple(self._cables), self._rates, self._roles, self._lost)

    def add(self, row: Fields) -> None:
        """Add a row of JSON."""
        kind = _kind_of_row(row.data)
        if kind == "cable":
            self._add_cable(row)
        elif kind == "interface":
            self._add_interface(row)
        elif kind == "device":
            self._device(row)
        else:
            raise self._source.error(None, f"{row.where} is no cable, interface or device.")

    def add_csv(self, row: Mapping[str, str], line: int) -> None:
        """Add a row of CSV."""
        kind = _kind_of_columns(",".join(row))
        where = self._source.at(line)
        if kind == "interface":
            self._set_rate((row["device"], row["name"]), row["type"], row.get("speed", ""), where)
        elif kind == "device":
            self._roles[row["name"]] = (
                row.get("role") or row.get("device_role") or row.get("device role") or ""
            )
        else:
            ends = []
            for side in "ab":
                device = row.get(f"side_{side}_device", row.get(f"device {side}", ""))
                names = row.get(f"side_{side}_name", row.get(f"termination {side}", ""))
                what = row.get(f"side_{side}_type", "dcim.interface")
                ports = [(device, name.strip()) for name in names.split(",") if name.strip()]
                ends.append([(what, port) for port in ports])
            self._cable(ends, row.get("status", ""), where)

    def _add_cable(self, row: Fields) -> None:
        ends = []
        for side in "ab":
            if row.has(f"{side}_terminations"):
                terms = row.subs(f"{side}_terminations", empty=True)
                ends.append([(self._type(term), self._port(term)) for term in terms])
            else:  # before NetBox 3.3 a cable had one termination at each end
                what = row.name(f"termination_{side}_type") if row.has(f"termination_{side}_type") else ""
                ends.append([(what or "dcim.interface", self._port(row.sub(f"termination_{side}")))])
        self._cable(ends, _value(row, "status"), row.where)

    def _cable(self, ends: Sequence[Sequence[tuple[str, Port]]], status: str, where: str) -> None:
        """Add a cable between interfaces; others, and those that do not carry yet, are counted."""
        kinds = [what for end in ends for what, _ in end]
        if not all(ends):
            self._lost["with an end that is nowhere"] += 1
        elif any(_PANEL.fullmatch(what) for what in kinds):
            self._lost["that end at patch panels"] += 1
        elif not all(_INTERFACE.fullmatch(what) for what in kinds):
            self._lost["of power, console or circuits"] += 1
        elif status.lower() not in _CONNECTED:
            self._lost[f"that are {status.lower()}"] += 1
        elif not all(name and device for end in ends for _, (device, name) in end):
            raise InputError(f"{where}: a cable's end has no device or no interface.")
        else:
            a, b = (tuple(port for _, port in end) for end in ends)
            self._cables.append(_Cable((a, b), where))

    def _type(self, term: Fields) -> str:
        return term.name("object_type") if term.has("object_type") else "dcim.interface"

    def _port(self, term: Fields) -> Port:
        """Return device and interface of a termination; what else it says of them is kept."""
        inner = term.sub("object") if term.has("object") else term
        if not inner.has("device") or not isinstance(inner.get("device"), dict):
            return "", inner.name("name") if inner.has("name") else ""
        port = self._device(inner.sub("device")), inner.name("name")
        if _value(inner, "type"):
            self._set_rate(port, _value(inner, "type"), _value(inner, "speed"), inner.where)
        return port

    def _add_interface(self, row: Fields) -> None:
        """Add an interface: its rate, and the far end where it says so."""
        port = self._device(row.sub("device")), row.name("name")
        self._set_rate(port, _value(row, "type"), _value(row, "speed"), row.where)
        if row.get("mgmt_only") is True:
            self._roles.setdefault(f"{port[0]} {port[1]}", "management")
        far = row.get("connected_endpoints")
        kind = row.get("connected_endpoints_type")
        if isinstance(far, list) and far and _INTERFACE.fullmatch(str(kind or "interface")):
            ends = tuple(self._port(end) for end in row.subs("connected_endpoints"))
            if all(device and name for device, name in ends):
                self._cables.append(_Cable(((port,), ends), row.where))

    def _device(self, row: Fields) -> str:
        """Return the name of a device, and keep its role where it has one."""
        if isinstance(row.get("name"), str):
            name = row.name("name")
        else:  # a device needs no name
            name = row.name("display") if row.has("display") else f"device {row.name('id')}"
        for key in ("role", "device_role"):
            if role := _value(row, key):
                self._roles[name] = role
        return name

    def _set_rate(self, port: Port, kind: str, speed: str, where: str) -> None:
        """Keep the rate of a port: the speed that was set for it, else that of its type."""
        if kind.lower() in _NO_LINK:
            return
        gigabits = _gigabits(kind)
        if re.fullmatch(r"\d{1,12}", speed) and int(speed):
            gigabits = int(speed) / 1e6
        rate = None
        if gigabits:
            text = f"{gigabits:g} Gb/s"
            rate = Figure(gigabits * 1e9 / 8, "byte/s", Evidence.USER, f"{where}: {kind}", text)
        if self._rates.get(port) is None:
            self._rates[port] = rate


def _value(row: Fields, key: str) -> str:
    """Return what is under ``key``: a text, a number, or the value, slug or name of a mapping; "" if nothing is."""
    value = row.get(key)
    if isinstance(value, dict):
        value = next((value[one] for one in ("value", "slug", "name", "label") if value.get(one)), "")
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _gigabits(kind: str) -> float | None:
    """Return Gb/s of an interface type, by NetBox's value or label; None where it does not say."""
    if match := re.match(r"infiniband-(\w+)|(\w+) \([\d.]+ Gbps\)", kind, re.IGNORECASE):
        return _INFINIBAND.get((match[1] or match[2]).lower())
    if match := _LABEL.search(kind):
        return float(match[1]) * {"ME": 1e-3, "GE": 1.0, "TE": 1e3}[match[2]]
    if match := _ETHERNET.match(kind):
        return float(match[1]) * {"": 1e-3, "g": 1.0, "t": 1e3}[(match[2] or "").lower()]
    return None


class _Fabric:
    """Cables of all files, without what is no part of the fabric."""

    def __init__(self, parts: Sequence[NetboxFound]) -> None:
        self._source = Source(" and ".join(one.place for one in parts), "")
        self._notes = [line for one in parts for line in one.notes]
        self._anomalies = [line for one in parts for line in one.anomalies]
        self._kind = parts[0].kind
        self._rates: dict[Port, Figure | None] = {}
        self._roles: dict[str, str] = {}
        for part in parts:
            self._roles |= part.roles
            for port, rate in part.rates.items():
                self._rates[port] = rate or self._rates.get(port)
        self._lost = sum((Counter(one.lost) for one in parts), Counter[str]())
        self._cables, self._broken_out = _pairs(cable for one in parts for cable in one.cables)
        self._links = Counter(port for ends in self._cables for port in ends)

    def found(self) -> FabricFound:
        """Return hosts, switches and the links between them, with rails where names of NICs tell."""
        if not self._cables:
            raise self._source.error(None, "has no cable between two interfaces; add NetBox's cables.")
        kinds = self._kinds()
        between = self._between(kinds)
        adapters: list[Adapter] = []
        trunks: Counter[tuple[str, str]] = Counter()
        rates: dict[tuple[str, str], Figure | None] = {}
        for (a, b), place in between.items():
            rate = self._rate(a, b, place)
            host = next((port for port in (a, b) if kinds[port[0]] == "host"), None)
            if host is not None:
                far = b if host == a else a
                number = re.findall(r"\d{1,9}", far[1])
                port = int(number[-1]) if number else 0
                adapters.append(Adapter(*host, far[0], port, rate, place, " ".join(host)))
                continue
            low, high = sorted((a[0], b[0]))
            trunks[low, high] += 1
            old = rates.setdefault((low, high), rate)
            if old is not None and rate is not None and old.value != rate.value:
                rates[low, high] = min(old, rate, key=lambda one: one.value)
                self._anomalies.append(
                    f"{place}: {low} to {high} runs at {rate.text}, another link of the two at {old.text}; both are "
                    "taken at the slower."
                )
        if not adapters:
            raise self._source.error(None, "has no cable between a host and a switch.")
        adapters = self._without_slow(adapters)
        switches = [name for name, kind in kinds.items() if kind == "switch"]
        self._tell(adapters, switches, trunks)
        fabric = cabled_fabric(self._source, switches, adapters, trunks, rates)
        notes, anomalies = (*self._notes, *self._source.notes), (*self._anomalies, *self._source.anomalies)
        return replace(fabric, place=self._source.name, kind=self._kind, notes=notes, anomalies=anomalies)

    def _kinds(self) -> dict[str, str]:
        """Return what each cabled device is: host, switch, or neither."""
        devices = dict.fromkeys(port[0] for ends in self._cables for port in ends)
        kinds: dict[str, str] = {}
        unnamed = []
        for device in devices:
            role = self._roles.get(device, "")
            kinds[device] = _kind_by_words(role) or (_kind_by_words(device) if not role else "other")
            if not role:
                unnamed.append(device)
        if not any(kind == "host" for kind in kinds.values()):
            # what is cabled to switches and is none is a host
            near = {
                port[0]
                for ends in self._cables
                for port, far in (ends, ends[::-1])
                if kinds[far[0]] == "switch" and not kinds[port[0]]
            }
            kinds |= dict.fromkeys(near, "host")
        strange = [device for device, kind in kinds.items() if not kind]
        if unnamed and (strange or not any(kind == "switch" for kind in kinds.values())):
            raise self._source.error(
                None,
                f"does not say what {', '.join(strange[:3] or unnamed[:3])} is, a host or a switch: add NetBox's "
                "devices with their roles.",
            )
        if unnamed:
            self._notes.append(
                "Hosts and switches are told by their names: no file has the roles of all devices."
            )
        left = Counter(kind for kind in kinds.values() if kind in ("management", "other"))
        for kind, count in left.items():
            some = [device for device, one in kinds.items() if one == kind][:_MOST_NAMED]
            self._notes.append(
                f"{plural(count, 'device')} {_LEFT_OUT[kind]} ({', '.join(some)}{', ...' * (count > len(some))}): "
                "left out with their cables."
            )
        return kinds

    def _between(self, kinds: Mapping[str, str]) -> dict[tuple[Port, Port], str]:
        """Return the links between hosts and switches; refuse a port that has two."""
        seen: dict[Port, str] = {}
        kept = {}
        for (a, b), place in self._cables.items():
            if {kinds[a[0]], kinds[b[0]]} - {"host", "switch"}:
                continue
            if any(self._roles.get(f"{device} {name}") == "management" for device, name in (a, b)):
                self._lost["of management interfaces"] += 1
                continue
            if kinds[a[0]] == kinds[b[0]] == "host":
                raise InputError(f"{place}: joins two hosts, {a[0]} and {b[0]}.")
            if a[0] == b[0]:
                raise InputError(f"{place}: joins {a[0]} to itself.")
            for port in (a, b):
                if port in seen and port not in self._broken_out:
                    raise InputError(f"{place}: {port[0]} {port[1]} is cabled twice (first in {seen[port]}).")
                seen[port] = place
            kept[a, b] = place
        return kept

    def _rate(self, a: Port, b: Port, place: str) -> Figure | None:
        """Return the rate of a link: that of its slower end, of which a port that breaks out gives a part."""
        known: list[Figure] = []
        for port in (a, b):
            rate, links = self._rates.get(port), self._links[port]
            if rate is not None and links > 1:
                part = rate.value / links
                rate = replace(rate, value=part, text=f"{part * 8 / 1e9:g} Gb/s")
            if rate is not None:
                known.append(rate)
        if len(known) == 2 and known[0].value != known[1].value:
            self._anomalies.append(
                f"{place}: {a[0]} {a[1]} is of {known[0].text} and {b[0]} {b[1]} of {known[1].text}; the link is "
                "taken at the slower."
            )
        return min(known, key=lambda one: one.value, default=None)

    def _without_slow(self, adapters: list[Adapter]) -> list[Adapter]:
        """Leave out NICs far slower than the others: those of the management."""
        most = max((one.rate.value for one in adapters if one.rate is not None), default=0.0)
        kept = [one for one in adapters if one.rate is None or one.rate.value * _SLOWER >= most]
        if slow := len(adapters) - len(kept):
            self._notes.append(
                f"{slow} cables of hosts are slower than an eighth of the fastest: the management's, left out."
            )
        return kept

    def _tell(
        self, adapters: Sequence[Adapter], switches: Sequence[str], trunks: Counter[tuple[str, str]]
    ) -> None:
        hosts = {one.host for one in adapters}
        self._notes.append(
            f"{plural(len(switches), 'switch')}, {plural(len(hosts), 'host')}, {plural(len(adapters), 'cable')} of "
            f"hosts, {trunks.total()} of switches."
        )
        for why, count in self._lost.items():
            hint = "; add NetBox's interfaces, which know both ends" if "panels" in why else ""
            line = f"{plural(count, 'cable')} {why}: left out{hint}."
            (self._notes if "power" in why or "management" in why else self._anomalies).append(line)


def _kind_by_words(text: str) -> str:
    return next((kind for kind, words in _ROLES if re.search(words, text, re.IGNORECASE)), "")


def _pairs(cables: Iterable[_Cable]) -> tuple[dict[tuple[Port, Port], str], set[Port]]:
    """Return the links of cables with their places, each once, and the ports that break out to several."""
    found: dict[tuple[Port, Port], str] = {}
    broken_out: set[Port] = set()
    for cable in cables:
        a, b = sorted(cable.ends, key=len)
        if len(a) not in (1, len(b)):
            raise InputError(
                f"{cable.place}: a cable from {len(a)} ports to {len(b)}: which joins which is not said."
            )
        if len(a) < len(b):
            broken_out.add(a[0])
            a *= len(b)
        for one, other in zip(a, b, strict=True):
            if (one, other) not in found and (other, one) not in found:
                found[one, other] = cable.place
    return found, broken_out


FORMAT = Format("netbox", read_netbox, in_text=looks_like_netbox_csv, in_data=is_netbox_json)
