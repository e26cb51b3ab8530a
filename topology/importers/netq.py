"""NVIDIA NetQ's topology graph (JSON of its REST interface): devices in tiers, and cables by interface."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from topology.errors import InputError
from topology.importers.found import FabricFound, Format, PortFound, TrunkFound, unlike
from topology.importers.source import Source
from topology.reading import Fields, shown
from topology.units import plural


def looks_like_netq(data: object) -> bool:
    """Whether data have NetQ's links."""
    rows = data if isinstance(data, list) else [data]
    return any(
        isinstance(row, dict)
        and isinstance(row.get("links"), list)
        and any(isinstance(link, dict) and "compounded_links" in link for link in row["links"])
        for row in rows
    )


def read_netq(source: Source) -> FabricFound:
    """Return hosts, switches by tier, and the cables between them.

    Raises
    ------
    InputError
        If a link ends at a device that is not listed, or counts disagree.
    """
    rows = source.data if isinstance(source.data, list) else [source.data]
    parts = [Fields(row, f"{source.name}: [{i}]") for i, row in enumerate(rows)]
    graph = _Graph(source)
    for part in parts:
        for group in part.subs("nodes", empty=True):
            for device in group.subs("compounded_nodes", empty=True) or [group]:
                graph.add_device(device)
    for part in parts:
        for link in part.subs("links", empty=True):
            graph.add_cables(link)
    return graph.found()


@dataclass
class _Graph:
    """Devices by id with their names and tiers (hosts: -1), the cables of hosts, and those between switches."""

    source: Source
    names: dict[str, str] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    tiers: dict[str, int] = field(default_factory=dict)
    seen: dict[tuple[str, str], str] = field(default_factory=dict)
    ports: list[PortFound] = field(default_factory=list)
    trunks: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add_device(self, device: Fields) -> None:
        """Add a device; hosts are those that are no switch."""
        key, name = device.name("id"), device.name("name")
        if key in self.names:
            raise InputError(f"{device.where}: duplicate device {key}.")
        if name in self.called:
            raise InputError(f"{device.where}: two devices are called {name}.")
        self.names[key] = name
        self.called.add(name)
        tier = device.count("tier", least=-1, most=16)
        self.tiers[key] = max(tier, 1) if device.get("device_type") == "switch" else -1

    def add_cables(self, link: Fields) -> None:
        """Add the cables of one bundle."""
        cables, size = link.subs("compounded_links", empty=True), link.get("size")
        if size is not None and size != len(cables):
            raise InputError(f"{link.where}: size is {shown(size)}, but {len(cables)} cables are listed.")
        for cable in cables:
            ends = [(end.name("node"), end.name("interface")) for end in cable.subs("interfaces", empty=True)]
            if len(ends) != 2:
                raise InputError(f"{cable.where}: {len(ends)} ends; a cable has two.")
            for device, interface in ends:
                if device not in self.names:
                    raise InputError(f"{cable.where}: device {shown(device)} is not among the nodes.")
                if first := self.seen.get((device, interface)):
                    name = f"{self.names[device]} {interface}"
                    raise InputError(f"{cable.where}: {name} is cabled twice (first in {first}).")
                self.seen[device, interface] = cable.where
            (low, nic), (high, _) = sorted(ends, key=lambda end: self.tiers[end[0]])
            a, b = self.names[low], self.names[high]
            if self.tiers[high] < 0:
                raise InputError(f"{cable.where}: joins two hosts, {a} and {b}.")
            if self.tiers[low] < 0:
                self.ports.append(PortFound(a, b, cable.where, nic=nic))
            else:
                self.trunks[a, b] += 1

    def found(self) -> FabricFound:
        """Return what was collected; a host without a cable is left out."""
        name = self.source.name
        hosts = {self.names[key]: f"{name}: device {key}" for key, tier in self.tiers.items() if tier < 0}
        switches = {self.names[key]: tier for key, tier in self.tiers.items() if tier >= 0}
        wired = {port.host for port in self.ports}
        if not wired:
            raise self.source.error(None, "has no cable between a host and a switch.")
        up = Counter[str]()
        for (lower, _), count in self.trunks.items():
            up[lower] += count
        most = max(up.values(), default=0)
        self.source.anomalies += [
            *(
                f"{place}: host {host} has no cable; left out."
                for host, place in hosts.items()
                if host not in wired
            ),
            *(
                f"{name}: host {host} has {count} cables, most have {usual}."
                for host, count, usual in unlike(Counter(port.host for port in self.ports))
            ),
            *(
                f"{name}: switch {switch} has {count} uplinks, another of its tier has {most}."
                for switch, count in up.items()
                if count != most
            ),
        ]
        cables = f"{plural(len(self.ports), 'cable')} of hosts, {self.trunks.total()} of switches"
        self.source.notes.append(
            f"{plural(len(switches), 'switch')}, {plural(len(wired), 'host')}, {cables}."
        )
        return FabricFound(
            hosts={host: place for host, place in hosts.items() if host in wired},
            switches=switches,
            ports=tuple(sorted(self.ports, key=lambda port: (port.host, port.nic))),
            trunks=tuple(TrunkFound(ends, count) for ends, count in self.trunks.items()),
        )


FORMAT = Format("netq", read_netq, in_data=looks_like_netq)
