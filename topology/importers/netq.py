"""NVIDIA NetQ's topology graph (JSON of its REST interface): devices in tiers, and cables by interface."""

from __future__ import annotations

from topology.importers.data import Data, load_data
from topology.importers.found import FabricFound, PortFound, TrunkFound
from topology.importers.source import Source
from topology.reading import shown

KIND = "netq"


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
    loaded = load_data(source)
    parts = loaded.value if isinstance(loaded.value, list) else [loaded.value]
    names: dict[str, str] = {}
    tiers: dict[str, int] = {}
    for i, part in enumerate(parts):
        _devices(source, Data(part, f"{source.name}: [{i}]"), names, tiers)
    ports: list[PortFound] = []
    trunks: dict[tuple[str, str], int] = {}
    seen: dict[tuple[str, str], str] = {}
    for i, part in enumerate(parts):
        for link in Data(part, f"{source.name}: [{i}]").subs("links"):
            _cables(source, link, names, tiers, seen, ports, trunks)
    hosts = {names[key]: f"{source.name}: device {key}" for key, tier in tiers.items() if tier < 0}
    wired = {port.host for port in ports}
    anomalies = [
        f"{place}: host {name} has no cable; left out." for name, place in hosts.items() if name not in wired
    ]
    anomalies += _unlike(source, ports, trunks)
    switches = {names[key]: tier for key, tier in tiers.items() if tier >= 0}
    if not wired:
        raise source.error(None, "has no cable between a host and a switch.")
    between = sum(trunks.values())
    return FabricFound(
        place=source.name,
        kind=KIND,
        hosts={name: place for name, place in hosts.items() if name in wired},
        switches=switches,
        ports=tuple(sorted(ports, key=lambda port: (port.host, port.nic))),
        trunks=tuple(TrunkFound(ends, count) for ends, count in trunks.items()),
        notes=(
            f"{len(switches)} switches, {len(wired)} hosts, {len(ports)} cables of hosts, {between} of switches.",
        ),
        anomalies=tuple(anomalies),
    )


def _devices(source: Source, part: Data, names: dict[str, str], tiers: dict[str, int]) -> None:
    """Collect devices; hosts are those without a tier that are no switch."""
    for group in part.subs("nodes"):
        for device in group.subs("compounded_nodes") or [group]:
            key, name = device.text("id"), device.text("name")
            if key in names:
                raise source.error(None, f"{device.where}: device {key} is there twice.")
            if name in names.values():
                raise source.error(None, f"{device.where}: two devices are called {name}.")
            switch = device.get("device_type") == "switch"
            tier = device.get("tier")
            if isinstance(tier, bool) or not isinstance(tier, int) or not -1 <= tier <= 16:
                raise source.error(
                    None, f"{device.where}: tier {shown(tier)} must be a whole number from -1 to 16."
                )
            names[key] = name
            tiers[key] = max(tier, 1) if switch else -1


def _cables(
    source: Source,
    link: Data,
    names: dict[str, str],
    tiers: dict[str, int],
    seen: dict[tuple[str, str], str],
    ports: list[PortFound],
    trunks: dict[tuple[str, str], int],
) -> None:
    """Add the cables of one bundle."""
    cables = link.subs("compounded_links")
    if link.has("size") and link.get("size") != len(cables):
        raise source.error(
            None, f"{link.where}: size is {shown(link.get('size'))}, but {len(cables)} cables are listed."
        )
    for cable in cables:
        ends = cable.subs("interfaces")
        if len(ends) != 2:
            raise source.error(None, f"{cable.where}: {len(ends)} ends; a cable has two.")
        pair = [(end.text("node"), end.text("interface")) for end in ends]
        for end in pair:
            if end[0] not in names:
                raise source.error(None, f"{cable.where}: device {shown(end[0])} is not among the nodes.")
            if end in seen:
                raise source.error(
                    None, f"{cable.where}: {names[end[0]]} {end[1]} is cabled twice (first in {seen[end]})."
                )
            seen[end] = cable.where
        (a, if_a), (b, if_b) = sorted(pair, key=lambda end: tiers[end[0]])
        if tiers[b] < 0:
            raise source.error(None, f"{cable.where}: joins two hosts, {names[a]} and {names[b]}.")
        if tiers[a] < 0:
            ports.append(PortFound(names[a], names[b], cable.where, nic=if_a))
            continue
        _ = if_b
        ends_ = (names[a], names[b])
        trunks[ends_] = trunks.get(ends_, 0) + 1


def _unlike(source: Source, ports: list[PortFound], trunks: dict[tuple[str, str], int]) -> list[str]:
    """Return hosts with another number of cables than most, and switches of unlike uplinks."""
    from collections import Counter

    found = []
    cables = Counter(port.host for port in ports)
    usual = Counter(cables.values()).most_common(1)[0][0] if cables else 0
    found += [
        f"{source.name}: host {host} has {count} cables, most have {usual}."
        for host, count in cables.items()
        if count != usual
    ]
    up = Counter[str]()
    for (lower, _), count in trunks.items():
        up[lower] += count
    if len(set(up.values())) > 1:
        most = max(up.values())
        found += [
            f"{source.name}: switch {name} has {count} uplinks, another of its tier has {most}."
            for name, count in up.items()
            if count != most
        ]
    return found
