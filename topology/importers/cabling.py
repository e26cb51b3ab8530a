"""Hosts, rails and pods from how adapters are cabled.

Rail: the rank of an adapter's number among those that its naming scheme uses in the whole file, so that
``HCA-1/2/5/6`` and ``mlx5_0/1/4/5`` are both rails 0 to 3. A leaf's rail is that of most of its adapters.
Pod: leaves that share most of their hosts. Adapters without a host's name are placed by switch port: hosts sit
on the same port of each leaf of their pod. Nothing is dropped without a line that says so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import networkx as nx

from topology.base.names import natural
from topology.importers.found import FabricFound, PortFound, TrunkFound, commonest, levels_above, listed
from topology.importers.source import Source

_GENERIC = {
    "localhost", "localhost.localdomain", "ubuntu", "linux", "debian", "centos", "rocky", "(none)", "host",
}  # fmt: skip
_MANAGEMENT = re.compile(r"(^|[^a-z])c?ufm([^a-z]|$)", re.IGNORECASE)
_Key = TypeVar("_Key", bound=Hashable)


def _by(adapters: Iterable[PortFound], key: Callable[[PortFound], _Key]) -> dict[_Key, list[PortFound]]:
    groups: dict[_Key, list[PortFound]] = defaultdict(list)
    for adapter in adapters:
        groups[key(adapter)].append(adapter)
    return groups


def cabled_fabric(
    source: Source, switches: Collection[str], adapters: list[PortFound], trunks: Collection[TrunkFound]
) -> FabricFound:
    """Return the InfiniBand fabric of named switches and adapters."""
    report = source.anomalies
    managing = sorted({hca.host for hca in adapters if _MANAGEMENT.search(hca.host)})
    if managing:
        report.append(f"{source.name}: {listed(managing)}: management hosts without GPUs; left out.")
    adapters = [hca for hca in adapters if hca.host not in managing]
    rails = _rank(adapters)
    pods = _pods(adapters)
    for hca in adapters:
        if hca.host in _GENERIC:
            hca.host = f"{hca.host}-pod{pods[hca.switch]}-port{hca.switch_port}"
    leaf_rails = _leaf_rails(adapters, rails)
    adapters = _without_foreign(adapters, leaf_rails, rails, report)
    _place_unnamed(adapters, leaf_rails, pods, report)
    joined = nx.Graph([trunk.ends for trunk in trunks])
    joined.add_nodes_from(switches)
    leaves = _by(adapters, lambda hca: hca.switch)
    levels = levels_above([name for name in switches if name in leaves], joined)
    if adrift := [name for name in switches if name not in levels]:
        report.append(f"{source.name}: {listed(adrift)}: no host is reachable from it; left out.")
    hosts = _by(adapters, lambda hca: hca.host)
    adapters.sort(key=lambda a: (natural(a.host), -1 if a.rail is None else a.rail, natural(a.nic)))
    for hca in adapters:
        rail = leaf_rails.get(hca.switch)
        if hca.rail is not None and rail not in (None, hca.rail):
            same_rail = sum(neighbour.rail == rail for neighbour in leaves[hca.switch])
            leaf = f"{hca.switch}, a leaf of rail {rail} ({same_rail} others there)"
            report.append(f"{hca.place}: {hca.host} {hca.nic} (rail {hca.rail}) is on {leaf}.")
    return FabricFound(
        hosts={hca.host: hosts[hca.host][0].place for hca in adapters},
        switches=levels,
        ports=tuple(adapters),
        trunks=tuple(trunk for trunk in trunks if levels.keys() >= set(trunk.ends)),
        pods={
            host: f"pod{commonest(pods[hca.switch] for hca in members)}" for host, members in hosts.items()
        },
        switch_rails=leaf_rails,
        rails=rails,
        infiniband=True,
    )


def _rank(adapters: Sequence[PortFound]) -> int:
    """Give adapters their rail, the rank of their number in its naming scheme, and return how many there are.

    A number that a tenth of the scheme's usual adapters have is a rail.
    """
    schemes = {hca.nic: match for hca in adapters if (match := re.fullmatch(r"(.*?)(\d{1,6})", hca.nic))}
    counts = Counter((schemes[a.nic][1], int(schemes[a.nic][2])) for a in adapters if a.nic in schemes)
    peaks: dict[str, int] = defaultdict(int)
    for (prefix, _), count in counts.items():
        peaks[prefix] = max(peaks[prefix], count)
    usual = sorted(key for key, count in counts.items() if count * 10 >= peaks[key[0]])
    ranks = {key: rank for _, keys in groupby(usual, itemgetter(0)) for rank, key in enumerate(keys)}
    for hca in adapters:
        match = schemes.get(hca.nic)
        hca.rail = ranks.get((match[1], int(match[2]))) if match else None
    return 1 + max(ranks.values(), default=-1)


def _pods(adapters: Sequence[PortFound]) -> dict[str, int]:
    """Return the pod of each leaf: leaves that share most of their named hosts."""
    leaves = _by(adapters, lambda hca: hca.switch)
    hosts = {leaf: {hca.host for hca in named} - _GENERIC - {""} for leaf, named in leaves.items()}
    pods: dict[str, int] = {}
    firsts: list[str] = []
    for leaf in sorted(hosts, key=natural):
        named = hosts[leaf]
        alike = (
            i for i, a in enumerate(firsts) if len(named & hosts[a]) * 2 > min(len(named), len(hosts[a])) > 0
        )
        pods[leaf] = next(alike, len(firsts))
        if pods[leaf] == len(firsts):
            firsts.append(leaf)
    return pods


def _leaf_rails(adapters: Sequence[PortFound], rails: int) -> dict[str, int]:
    """Return the rail of each leaf, if leaves have one: no host is on a leaf twice."""
    per_leaf: dict[str, Counter[int]] = defaultdict(Counter)
    for hca in adapters:
        if hca.rail is not None:
            per_leaf[hca.switch][hca.rail] += 1
    pairs = Counter((hca.switch, hca.host) for hca in adapters if hca.host)
    aligned = sum(max(counts.values()) for counts in per_leaf.values())
    total = sum(counts.total() for counts in per_leaf.values())
    together = sum(count > 1 for count in pairs.values())
    if rails < 2 or not total or aligned * 4 < total * 3 or together * 4 >= len(pairs):
        return {}
    return {leaf: counts.most_common(1)[0][0] for leaf, counts in per_leaf.items()}


def _without_foreign(
    adapters: Sequence[PortFound], leaf_rails: Mapping[str, int], rails: int, report: list[str]
) -> list[PortFound]:
    """Leave out hosts all of whose adapters are on leaves of other rails: they are not cabled as GPU hosts."""
    gone = {
        host: members
        for host, members in _by(adapters, lambda hca: hca.host).items()
        if host
        and 1 < len(members) < rails
        and all(a.rail is not None and leaf_rails.get(a.switch, a.rail) != a.rail for a in members)
    }
    if gone:
        why = "no adapter is on a leaf of its rail, so this is not a GPU host; left out."
        report.append(f"{gone[min(gone)][0].place}: {listed(sorted(gone))}: {why}")
    return [hca for hca in adapters if hca.host not in gone]


def _place_unnamed(
    adapters: Sequence[PortFound], leaf_rails: Mapping[str, int], pods: Mapping[str, int], report: list[str]
) -> None:
    """Give adapters without a host's name to the host on the same port of the other leaves of their pod.

    The others are the fewest hosts that explain them: those of one port, then what is left.
    """
    unnamed = [hca for hca in adapters if not hca.host]
    if not unnamed:
        return

    def slot(hca: PortFound) -> tuple[int, int]:
        return pods[hca.switch], hca.switch_port

    named = _by((hca for hca in adapters if hca.host), slot)
    on_leaf = {(hca.switch, hca.host) for hca in adapters if hca.host}
    unplaced: list[PortFound] = []
    for hca in unnamed:
        counts = Counter(neighbour.host for neighbour in named.get(slot(hca), ())).most_common(2)
        clear = counts and (len(counts) == 1 or counts[0][1] > counts[1][1])
        if clear and (hca.switch, counts[0][0]) not in on_leaf:
            hca.host = counts[0][0]
            on_leaf.add((hca.switch, hca.host))
        else:
            unplaced.append(hca)
    by_slot = _by(unplaced, slot)
    groups = {slot: members for slot, members in by_slot.items() if len(members) > 1}
    lone = (members[0] for members in by_slot.values() if len(members) == 1)
    for hca in sorted(lone, key=lambda a: (a.switch, a.switch_port)):
        same_pod = (members for (pod, _), members in groups.items() if pod == pods[hca.switch])
        lacking = [
            members for members in same_pod if hca.switch not in {neighbour.switch for neighbour in members}
        ]
        if len(lacking) == 1:
            lacking[0].append(hca)
        else:
            groups[slot(hca)] = [hca]
    for (pod, port), members in groups.items():
        for hca in members:
            hca.host = f"unnamed-pod{pod}-port{port}"
    for hca in unnamed:
        hca.rail = leaf_rails.get(hca.switch, hca.rail)
    assigned, new = (
        len(unnamed) - len(unplaced),
        f"{len(unplaced)} taken as {len(groups)} hosts (unnamed-...)",
    )
    report.append(
        f"{unnamed[0].place}: {len(unnamed)} adapters do not name their host: {assigned} assigned to the host on "
        f"the same port of the other leaves, {new} by port."
    )
