"""Hosts, rails and pods from how adapters are cabled.

Rail: the rank of an adapter's number among those that its naming scheme uses in the whole file, so that
``HCA-1/2/5/6`` and ``mlx5_0/1/4/5`` are both rails 0 to 3. A leaf's rail is that of most of its adapters.
Pod: leaves that share most of their hosts. Adapters without a host's name are placed by switch port: hosts sit
on the same port of each leaf of their pod. Nothing is dropped without a line that says so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topology.base.figures import Figure
from topology.base.names import natural
from topology.importers.found import FabricFound, PortFound, TrunkFound, levels_above, listed
from topology.importers.source import Source

_GENERIC = {
    "localhost", "localhost.localdomain", "ubuntu", "linux", "debian", "centos", "rocky", "(none)", "host",
}  # fmt: skip
_MANAGEMENT = re.compile(r"(^|[^a-z])c?ufm([^a-z]|$)", re.IGNORECASE)


@dataclass
class Adapter:
    """One cabled adapter port; ``host`` and ``nic`` are empty where its description does not name them."""

    host: str
    nic: str
    switch: str
    switch_port: int
    rate: Figure | None
    place: str
    guid: str
    rail: int | None = None

    @property
    def scheme(self) -> tuple[str, int] | None:
        """Prefix and number of its name (``mlx5_`` and 4), None where it has none."""
        match = re.fullmatch(r"(.*?)(\d{1,6})", self.nic)
        return (match[1], int(match[2])) if match else None


def cabled_fabric(
    source: Source,
    switches: Sequence[str],
    adapters: list[Adapter],
    trunks: Mapping[tuple[str, str], int],
    rates: Mapping[tuple[str, str], Figure | None],
) -> FabricFound:
    """Return the InfiniBand fabric of named switches and adapters."""
    report = source.anomalies
    managing = sorted({one.host for one in adapters if _MANAGEMENT.search(one.host)})
    if managing:
        report.append(f"{source.name}: {listed(managing)}: management hosts without GPUs; left out.")
    adapters = [one for one in adapters if one.host not in managing]
    rails = _rank(adapters)
    pods = _pods(adapters)
    for one in adapters:
        if one.host in _GENERIC:
            one.host = f"{one.host}-pod{pods[one.switch]}-port{one.switch_port}"
    leaf_rails = _leaf_rails(adapters, rails)
    adapters = _without_foreign(adapters, leaf_rails, rails, report)
    _place_unnamed(adapters, pods, leaf_rails, report)
    joined: dict[str, set[str]] = defaultdict(set)
    for a, b in trunks:
        joined[a].add(b)
        joined[b].add(a)
    leaves = {one.switch for one in adapters}
    levels = levels_above((name for name in switches if name in leaves), joined)
    hosts: dict[str, str] = {}
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    for one in adapters:
        hosts.setdefault(one.host, one.place)
        votes[one.host][pods[one.switch]] += 1
    adapters.sort(key=lambda a: (natural(a.host), -1 if a.rail is None else a.rail, natural(a.nic)))
    _audit(adapters, leaf_rails, report)
    if adrift := [name for name in switches if name not in levels]:
        report.append(f"{source.name}: {listed(adrift)}: no host is reachable from it; left out.")
    return FabricFound(
        hosts={one.host: hosts[one.host] for one in adapters},
        switches=levels,
        ports=tuple(PortFound(a.host, a.switch, a.place, a.nic, a.rate, a.rail) for a in adapters),
        trunks=tuple(
            TrunkFound(ends, count, rates[ends])
            for ends, count in trunks.items()
            if levels.keys() >= set(ends)
        ),
        pods={host: f"pod{count.most_common(1)[0][0]}" for host, count in votes.items()},
        switch_rails=leaf_rails,
        rails=rails,
        infiniband=True,
    )


def _rank(adapters: Sequence[Adapter]) -> int:
    """Give adapters their rail, the rank of their number in its naming scheme, and return how many there are."""
    numbers: dict[str, Counter[int]] = defaultdict(Counter)
    for prefix, number in [one.scheme for one in adapters if one.scheme]:
        numbers[prefix][number] += 1
    ranks: dict[tuple[str, int], int] = {}
    for prefix, counts in numbers.items():
        usual = sorted(number for number, count in counts.items() if count * 10 >= max(counts.values()))
        ranks.update({(prefix, number): rank for rank, number in enumerate(usual)})
    for one in adapters:
        one.rail = ranks.get(one.scheme) if one.scheme else one.rail
    return 1 + max(ranks.values(), default=-1)


def _pods(adapters: Sequence[Adapter]) -> dict[str, int]:
    """Return the pod of each leaf: leaves that share most of their named hosts."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for one in adapters:
        hosts[one.switch] |= {one.host} - _GENERIC - {""}
    pods: list[list[str]] = []
    for leaf in sorted(hosts, key=natural):
        for pod in pods:
            fewer = min(len(hosts[leaf]), len(hosts[pod[0]]))
            if len(hosts[leaf] & hosts[pod[0]]) * 2 > fewer > 0:
                pod.append(leaf)
                break
        else:
            pods.append([leaf])
    return {leaf: number for number, pod in enumerate(pods) for leaf in pod}


def _leaf_rails(adapters: Sequence[Adapter], rails: int) -> dict[str, int]:
    """Return the rail of each leaf, if leaves have one: no host is on a leaf twice."""
    per_leaf: dict[str, Counter[int]] = defaultdict(Counter)
    for one in adapters:
        if one.rail is not None:
            per_leaf[one.switch][one.rail] += 1
    pairs = Counter((one.switch, one.host) for one in adapters if one.host)
    aligned = sum(max(counts.values()) for counts in per_leaf.values())
    total = sum(counts.total() for counts in per_leaf.values())
    together = sum(count > 1 for count in pairs.values())
    if rails < 2 or not total or aligned * 4 < total * 3 or together * 4 >= len(pairs):
        return {}
    return {leaf: counts.most_common(1)[0][0] for leaf, counts in per_leaf.items()}


def _without_foreign(
    adapters: Sequence[Adapter], leaf_rails: Mapping[str, int], rails: int, report: list[str]
) -> list[Adapter]:
    """Leave out hosts all of whose adapters are on leaves of other rails: they are not cabled as GPU hosts."""
    of_host: dict[str, list[Adapter]] = defaultdict(list)
    for one in adapters:
        of_host[one.host].append(one)
    gone = {
        host
        for host, own in of_host.items()
        if host
        and 1 < len(own) < rails
        and all(a.rail is not None and leaf_rails.get(a.switch, a.rail) != a.rail for a in own)
    }
    if gone:
        report.append(
            f"{of_host[min(gone)][0].place}: {listed(sorted(gone))}: no adapter is on a leaf of its rail, "
            "so this is not a GPU host; left out."
        )
    return [one for one in adapters if one.host not in gone]


def _place_unnamed(
    adapters: Sequence[Adapter], pods: Mapping[str, int], leaf_rails: Mapping[str, int], report: list[str]
) -> None:
    """Give adapters without a host's name to the host on the same port of the other leaves of their pod."""
    unnamed = [one for one in adapters if not one.host]
    if not unnamed:
        return
    on_port: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    on_leaf = {(one.switch, one.host) for one in adapters if one.host}
    for one in adapters:
        if one.host:
            on_port[pods[one.switch], one.switch_port][one.host] += 1
    rest: list[Adapter] = []
    for one in unnamed:
        (host, most), (_, second) = [
            *on_port[pods[one.switch], one.switch_port].most_common(2), ("", 0), ("", 0)
        ][:2]  # fmt: skip
        if most > second and (one.switch, host) not in on_leaf:
            one.host = host
            on_leaf.add((one.switch, host))
        else:
            rest.append(one)
    new = _name_hosts(rest, pods)
    for one in unnamed:
        one.rail = leaf_rails.get(one.switch, one.rail)
    report.append(
        f"{unnamed[0].place}: {len(unnamed)} adapters do not name their host: {len(unnamed) - len(rest)} "
        f"assigned to the host on the same port of the other leaves, {len(rest)} taken as {new} hosts "
        "(unnamed-...) by port."
    )


def _name_hosts(rest: Sequence[Adapter], pods: Mapping[str, int]) -> int:
    """Name the fewest hosts that explain adapters, and return their number: same port first, then what is left."""
    by_port: dict[tuple[int, int], list[Adapter]] = defaultdict(list)
    for one in rest:
        by_port[pods[one.switch], one.switch_port].append(one)
    groups = {key: members for key, members in by_port.items() if len(members) > 1}
    lone = [members[0] for members in by_port.values() if len(members) == 1]
    for one in sorted(lone, key=lambda a: (a.switch, a.switch_port)):
        pod = pods[one.switch]
        lacking = [
            members
            for (other, _), members in groups.items()
            if other == pod and all(member.switch != one.switch for member in members)
        ]
        if len(lacking) == 1:
            lacking[0].append(one)
        else:
            groups[pod, one.switch_port] = [one]
    for (pod, port), members in groups.items():
        for member in members:
            member.host = f"unnamed-pod{pod}-port{port}"
    return len(groups)


def _audit(adapters: Sequence[Adapter], leaf_rails: Mapping[str, int], report: list[str]) -> None:
    """Report adapters on a leaf of another rail."""
    for one in adapters:
        rail = leaf_rails.get(one.switch)
        if one.rail is not None and rail not in (None, one.rail):
            others = sum(other.switch == one.switch and other.rail == rail for other in adapters)
            report.append(
                f"{one.place}: {one.host} {one.nic} (rail {one.rail}) is on {one.switch}, a leaf of rail {rail} "
                f"({others} others there)."
            )
