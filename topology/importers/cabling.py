"""Hosts, rails and pods from how adapters are cabled.

Rail: the rank of an adapter's number among those that its naming scheme uses in the whole file, so that
``HCA-1/2/5/6`` and ``mlx5_0/1/4/5`` are both rails 0 to 3. A leaf's rail is that of most of its adapters.
Pod: leaves that share most of their hosts. Adapters without a host's name are placed by switch port: hosts sit
on the same port of each leaf of their pod. Nothing is dropped without a line that says so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from topology.base.figures import Figure
from topology.base.names import natural
from topology.importers.found import FabricFound, PortFound, TrunkFound, levels_above
from topology.importers.source import Source

_GENERIC = (
    "localhost",
    "localhost.localdomain",
    "ubuntu",
    "linux",
    "debian",
    "centos",
    "rocky",
    "(none)",
    "host",
)
_MANAGEMENT = re.compile(r"(^|[^a-z])c?ufm([^a-z]|$)", re.IGNORECASE)
_MOST_LISTED = 12
_Row = TypeVar("_Row", bound=tuple[Any, ...])


@dataclass(frozen=True)
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


def cabled_fabric(
    source: Source,
    switches: Sequence[str],
    adapters: Sequence[Adapter],
    trunks: Mapping[tuple[str, str], int],
    rates: Mapping[tuple[str, str], Figure | None],
) -> FabricFound:
    """Return the fabric of named switches and adapters."""
    cabling = _Cabling(source, list(adapters))
    cabling.leave_out_management()
    cabling.rank()
    cabling.find_pods()
    cabling.gather_generic()
    cabling.find_leaf_rails()
    cabling.leave_out_foreign()
    cabling.place_unnamed()
    joined: dict[str, set[str]] = defaultdict(set)
    for a, b in trunks:
        joined[a].add(b)
        joined[b].add(a)
    leaves = {adapter.switch for adapter in cabling.adapters}
    levels = levels_above((name for name in switches if name in leaves), joined)
    cabling.audit()
    if adrift := [name for name in switches if name not in levels]:
        source.anomalies.append(f"{source.name}: {_listed(adrift)}: no host is reached from there; left out.")
    hosts: dict[str, str] = {}
    for adapter in cabling.adapters:
        hosts.setdefault(adapter.host, adapter.place)
    ports = tuple(
        PortFound(a.host, a.switch, a.place, a.nic, a.rate, a.rail)
        for a in sorted(cabling.adapters, key=_order)
    )
    return FabricFound(
        hosts=dict(_in_order(hosts.items())),
        switches=levels,
        ports=ports,
        trunks=tuple(
            TrunkFound(ends, count, rates[ends])
            for ends, count in trunks.items()
            if all(end in levels for end in ends)
        ),
        pods=cabling.host_pods(),
        switch_rails=cabling.leaf_rails,
        rails=cabling.rails,
    )


class _Cabling:
    """Adapters on their way from descriptions to hosts with rails."""

    def __init__(self, source: Source, adapters: list[Adapter]) -> None:
        self.place, self.anomalies = source.name, source.anomalies
        self.adapters = adapters
        self.pod_of: dict[str, int] = {}
        self.leaf_rails: dict[str, int] = {}
        self.rails = 0

    def leave_out_management(self) -> None:
        """Leave out hosts whose name says that they manage the fabric."""
        gone = {adapter.host for adapter in self.adapters if _MANAGEMENT.search(adapter.host)}
        if gone:
            self.anomalies.append(
                f"{self.place}: {_listed(sorted(gone))}: management hosts without GPUs; left out."
            )
            self.adapters = [adapter for adapter in self.adapters if adapter.host not in gone]

    def rank(self) -> None:
        """Give each named adapter its rail: the rank of its number in its naming scheme."""
        numbers: dict[str, Counter[int]] = defaultdict(Counter)
        for adapter in self.adapters:
            if key := _scheme(adapter.nic):
                numbers[key[0]][key[1]] += 1
        ranks: dict[tuple[str, int], int] = {}
        for scheme, counts in numbers.items():
            usual = [number for number, count in counts.items() if count * 10 >= max(counts.values())]
            ranks.update({(scheme, number): rank for rank, number in enumerate(sorted(usual))})
        self.rails = 1 + max(ranks.values(), default=-1)
        self.adapters = [
            replace(adapter, rail=ranks.get(key)) if (key := _scheme(adapter.nic)) else adapter
            for adapter in self.adapters
        ]

    def find_pods(self) -> None:
        """Group leaves that share most of their named hosts."""
        hosts: dict[str, set[str]] = defaultdict(set)
        for adapter in self.adapters:
            hosts[adapter.switch]
            if adapter.host and adapter.host not in _GENERIC:
                hosts[adapter.switch].add(adapter.host)
        pods: list[list[str]] = []
        for leaf in sorted(hosts, key=natural):
            for pod in pods:
                shared = len(hosts[leaf] & hosts[pod[0]])
                if shared * 2 > min(len(hosts[leaf]), len(hosts[pod[0]])) > 0:
                    pod.append(leaf)
                    break
            else:
                pods.append([leaf])
        self.pod_of = {leaf: number for number, pod in enumerate(pods) for leaf in pod}

    def gather_generic(self) -> None:
        """Take hosts with a default name apart by pod and switch port."""
        self.adapters = [
            replace(
                adapter, host=f"{adapter.host}-pod{self.pod_of[adapter.switch]}-port{adapter.switch_port}"
            )
            if adapter.host in _GENERIC
            else adapter
            for adapter in self.adapters
        ]

    def find_leaf_rails(self) -> None:
        """Find the rail of each leaf, if leaves have one: no host is on a leaf twice."""
        per_leaf: dict[str, Counter[int]] = defaultdict(Counter)
        pairs: Counter[tuple[str, str]] = Counter()
        for adapter in self.adapters:
            if adapter.rail is not None:
                per_leaf[adapter.switch][adapter.rail] += 1
            if adapter.host:
                pairs[adapter.switch, adapter.host] += 1
        aligned = sum(max(counts.values()) for counts in per_leaf.values())
        total = sum(sum(counts.values()) for counts in per_leaf.values())
        if (
            self.rails > 1
            and total
            and aligned * 4 >= total * 3
            and sum(n > 1 for n in pairs.values()) * 4 < len(pairs)
        ):
            self.leaf_rails = {leaf: counts.most_common(1)[0][0] for leaf, counts in per_leaf.items()}

    def leave_out_foreign(self) -> None:
        """Leave out hosts all of whose adapters are on leaves of other rails: they are not cabled as GPU hosts."""
        of_host: dict[str, list[Adapter]] = defaultdict(list)
        for adapter in self.adapters:
            of_host[adapter.host].append(adapter)
        gone = {
            host
            for host, own in of_host.items()
            if host
            and len(own) > 1
            and len(own) < self.rails
            and all(a.rail is not None and self.leaf_rails.get(a.switch, a.rail) != a.rail for a in own)
        }
        if gone:
            self.anomalies.append(
                f"{of_host[min(gone)][0].place}: {_listed(sorted(gone))}: no adapter is on a leaf of its own rail, "
                "so no GPU host; left out."
            )
            self.adapters = [adapter for adapter in self.adapters if adapter.host not in gone]

    def place_unnamed(self) -> None:
        """Give adapters without a host's name to the host on the same port of the other leaves of their pod."""
        unnamed = [adapter for adapter in self.adapters if not adapter.host]
        if not unnamed:
            return
        on_port: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        on_leaf: dict[str, set[str]] = defaultdict(set)
        for adapter in self.adapters:
            if adapter.host:
                on_port[self.pod_of[adapter.switch], adapter.switch_port][adapter.host] += 1
                on_leaf[adapter.switch].add(adapter.host)
        given: dict[str, str] = {}
        for adapter in unnamed:
            candidates = on_port[self.pod_of[adapter.switch], adapter.switch_port].most_common(2)
            clear = len(candidates) == 1 or (len(candidates) == 2 and candidates[0][1] > candidates[1][1])
            if clear and candidates[0][0] not in on_leaf[adapter.switch]:
                given[adapter.guid] = candidates[0][0]
                on_leaf[adapter.switch].add(candidates[0][0])
        by_port = len(given)
        rest = [adapter for adapter in unnamed if adapter.guid not in given]
        new = self._new_hosts(rest, given)
        self.adapters = [
            replace(adapter, host=given[adapter.guid], rail=self.leaf_rails.get(adapter.switch, adapter.rail))
            if adapter.guid in given
            else adapter
            for adapter in self.adapters
        ]
        self.anomalies.append(
            f"{unnamed[0].place}: {len(unnamed)} adapters do not name their host: {by_port} given to the host on the "
            f"same port of the other leaves, {len(rest)} taken as {new} hosts (unnamed-...) by port."
        )

    def _new_hosts(self, rest: list[Adapter], given: dict[str, str]) -> int:
        """Make the fewest hosts that explain ``rest``: same port first, then what is left of each leaf in order."""
        by_port: dict[tuple[int, int], list[Adapter]] = defaultdict(list)
        for adapter in rest:
            by_port[self.pod_of[adapter.switch], adapter.switch_port].append(adapter)
        groups = {
            f"unnamed-pod{pod}-port{port}": (pod, members)
            for (pod, port), members in by_port.items()
            if len(members) > 1
        }
        lone = [members[0] for members in by_port.values() if len(members) == 1]
        for adapter in sorted(lone, key=lambda a: (a.switch, a.switch_port)):
            pod = self.pod_of[adapter.switch]
            lacking = [
                members
                for other, members in groups.values()
                if other == pod and all(member.switch != adapter.switch for member in members)
            ]
            if len(lacking) == 1:
                lacking[0].append(adapter)
            else:
                groups[f"unnamed-pod{pod}-port{adapter.switch_port}"] = (pod, [adapter])
        for name, (_, members) in groups.items():
            given.update({adapter.guid: name for adapter in members})
        return len(groups)

    def audit(self) -> None:
        """Report adapters on a leaf of another rail."""
        for adapter in sorted(self.adapters, key=_order):
            rail = self.leaf_rails.get(adapter.switch)
            if adapter.rail is not None and rail is not None and adapter.rail != rail:
                others = sum(a.switch == adapter.switch and a.rail == rail for a in self.adapters)
                self.anomalies.append(
                    f"{adapter.place}: {adapter.host} {adapter.nic} (rail {adapter.rail}) is on {adapter.switch}, "
                    f"a leaf of rail {rail} ({others} others there)."
                )

    def host_pods(self) -> dict[str, str]:
        """Return the pod of each host: that of most of its leaves."""
        votes: dict[str, Counter[int]] = defaultdict(Counter)
        for adapter in self.adapters:
            votes[adapter.host][self.pod_of[adapter.switch]] += 1
        return {host: f"pod{count.most_common(1)[0][0]}" for host, count in _in_order(votes.items())}


def _scheme(nic: str) -> tuple[str, int] | None:
    """Return prefix and number of a NIC's name (``mlx5_`` and 4), None where it has none."""
    match = re.fullmatch(r"(.*?)(\d{1,6})", nic)
    return (match[1], int(match[2])) if match else None


def _in_order(rows: Iterable[_Row]) -> list[_Row]:
    """Sort rows by the names that they begin with."""
    return sorted(rows, key=lambda row: natural(row[0]))


def _order(adapter: Adapter) -> tuple[list[tuple[int, int, str]], int, list[tuple[int, int, str]]]:
    """Order ports by host, rail and NIC."""
    return natural(adapter.host), -1 if adapter.rail is None else adapter.rail, natural(adapter.nic)


def _listed(names: Sequence[str]) -> str:
    """Return names with commas, the number of the rest at the end."""
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more
