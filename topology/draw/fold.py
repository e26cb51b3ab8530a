"""Coarse view of the graph: hosts, switches by tier, pods that share leaves, and equal parts.

Two parts have one shape if they have the same parts and the same links (kind of the other end, count, rate, health):
only those may be drawn as one. A missing uplink or a broken GPU makes its owner different from its siblings. Tiers,
pods and groups are those of the cluster as built: what is broken changes links, not where a switch is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan, nan
from typing import Any

import numpy as np

from topology.base.names import natural
from topology.base.units import format_quantity
from topology.cluster import Cluster, Gpu
from topology.physical import as_built
from topology.wiring import Ints, Wiring

Shape = tuple[object, ...]
_UNPUBLISHED = 0.0  # replaces a rate that is not a number, which would not equal itself


class Links(Counter[tuple[float, float]]):
    """Links between two places: how many of each rate (bytes/s, as built) and health (1: as built)."""

    def add(self, edge: Mapping[str, Any], times: int = 1) -> None:
        """Add the links of one edge of the graph, or of several with the same attributes."""
        rate = edge["link_bytes_per_s"]
        self[_UNPUBLISHED if isnan(rate) else rate, edge["health"]] += edge["count"] * times

    @classmethod
    def of(cls, edges: Iterable[Mapping[str, Any]]) -> Links:
        """Return the links of some edges of the graph."""
        total = cls()
        for edge in edges:
            total.add(edge)
        return total

    @classmethod
    def sum(cls, parts: Iterable[Links]) -> Links:
        """Return all links of ``parts`` together."""
        total = cls()
        for part in parts:
            total.update(part)
        return total

    @property
    def count(self) -> int:
        """How many links there are."""
        return self.total()

    @property
    def degraded(self) -> bool:
        """Whether any runs below its rate."""
        return any(health < 1 for _, health in self)

    @property
    def bytes_per_s(self) -> float:
        """Bytes/s of all together, per direction, as they are now; NaN if a rate is not published."""
        if any(rate == _UNPUBLISHED for rate, _ in self):
            return nan
        return sum(count * rate * health for (rate, health), count in self.items())

    def text(self) -> str:
        """Return "18 x 25 GB/s = 450 GB/s each way"; links of a lower rate or health are added."""
        if not self:
            return "no link"
        parts = []
        for (rate, health), count in sorted(self.items(), reverse=True):
            slow = "" if health >= 1 else f" x {health:.3g}"
            term = "unpublished rate" if rate == _UNPUBLISHED else f"{format_quantity(rate, 'byte/s')}{slow}"
            parts.append(f"{count:,} x {term}" if self.count > 1 else term)
        text = " + ".join(parts)
        if isnan(self.bytes_per_s):
            return text
        if self.count == 1 and " x " not in text:
            return f"{text} each way"
        return f"{text} = {format_quantity(self.bytes_per_s, 'byte/s')} each way"


@dataclass
class Host:
    """One host: ``gpus`` are numbers in the cluster, ``broken`` the ids of GPUs that are out of service."""

    id: str
    domain: int
    rack: str
    gpus: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    up: Links = field(default_factory=Links)
    shape: Shape = ()

    @property
    def places(self) -> int:
        """GPUs as built, broken ones too."""
        return len(self.gpus) + len(self.broken)


@dataclass
class Switch:
    """A switch of a scale-up domain (``tier`` is ``chip``, or ``upper`` above those) or of a tier of the fabric.

    ``up``, ``down``: links to the tiers above and below; ``side``, ``far``: to its own tier, in its group and beyond.
    """

    id: str
    tier: str
    domain: int | None
    rail: int | None
    group: str
    up: Links = field(default_factory=Links)
    down: Links = field(default_factory=Links)
    side: Links = field(default_factory=Links)
    far: Links = field(default_factory=Links)
    shape: Shape = ()

    @property
    def links(self) -> Links:
        """All that it has left."""
        return Links.sum((self.up, self.down, self.side, self.far))


@dataclass
class Pod:
    """Hosts that share leaves (or the routers of one group), and those leaves."""

    number: int
    hosts: list[Host]
    leaves: list[Switch]
    shape: Shape = ()

    @property
    def domains(self) -> list[int]:
        """Domains with hosts in the pod, in order."""
        return list(dict.fromkeys(host.domain for host in self.hosts))


@dataclass
class Group:
    """Pods under the same spines."""

    pods: list[Pod]
    spines: list[Switch]
    shape: Shape = ()


_INSIDE = ("nic", "pcie", "host")
_TIERS = ("chip", "upper", "router", "leaf", "spine", "core")
# What the other end of a link is: from a host a tier (its place in _TIERS) or one of the first three here, from a
# switch one of the others.
_MATE, _PEER, _PART = 6, 7, 8
_OF_SWITCH = {9: "up", 10: "down", 11: "side", 12: "far"}


class Fold:
    """Hosts, switches and groups of pods of a cluster.

    Attributes
    ----------
    hosts, switches:
        Hosts in order, switches by id.
    groups:
        Pods under the same spines.
    domain_shapes:
        The same number for domains that are the same.
    gpu_links:
        Scale-up links of each GPU.
    degraded:
        Ends and health of each link below its rate.
    owner:
        The host of each GPU that works and part of a host, by id.
    number:
        Number of each GPU by its id.
    specs, raw:
        The domains as specified, and whether they are a raw graph.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._gpus, self._wiring, self.specs = cluster.gpus, cluster.wiring, cluster.spec.domains
        self.raw = cluster.spec.raw is not None
        self.number = {gpu.id: i for i, gpu in enumerate(cluster.gpus)}
        built = as_built(cluster.whole, moved=True)
        self._built = built.wiring
        by_id = self._hosts(built.gpus)
        self.hosts = list(by_id.values())
        self.owner = self._owners(by_id)
        self.switches = _switches(built.wiring)
        self.gpu_links = [Links() for _ in cluster.gpus]
        wiring = self._wiring
        self.degraded: list[tuple[str, str, float]] = []
        for link in wiring.in_order[wiring.health[wiring.in_order] < 1].tolist():
            a, b = sorted((int(wiring.a[link]), int(wiring.b[link])))
            self.degraded.append((wiring.names[a], wiring.names[b], float(wiring.health[link])))
        self._ends: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        self._read_links()
        self._shapes()
        self.domain_shapes = self._domain_shapes()
        self.groups = self._groups(self._pods())

    @cached_property
    def slow_switches(self) -> dict[str, float]:
        """Switches all of whose links, several, run at one health below 1, by id."""
        slow: dict[str, float] = {}
        for name, switch in self.switches.items():
            links = switch.links
            healths = {health for _, health in links}
            if links.count > 1 and len(healths) == 1 and (health := healths.pop()) < 1:
                slow[name] = health
        return slow

    @property
    def pods(self) -> list[Pod]:
        """All pods, in order."""
        return [pod for group in self.groups for pod in group.pods]

    def chips(self, domain: int, tier: str = "chip") -> list[Switch]:
        """Scale-up switch chips of a domain, in order; ``tier`` is ``chip`` or ``upper``."""
        return self._chips.get((domain, tier), [])

    @cached_property
    def _chips(self) -> dict[tuple[int | None, str], list[Switch]]:
        """Switches by domain and tier."""
        chips: dict[tuple[int | None, str], list[Switch]] = defaultdict(list)
        for switch in self.switches.values():
            chips[switch.domain, switch.tier].append(switch)
        return chips

    def chip_ids(self, domains: Iterable[int]) -> list[str]:
        """Ids of the scale-up switch chips of some domains, of both tiers."""
        return [s.id for n in domains for tier in ("chip", "upper") for s in self.chips(n, tier)]

    def tier(self, name: str) -> list[Switch]:
        """Switches of a tier, in order."""
        return [s for s in self.switches.values() if s.tier == name]

    @cached_property
    def rails(self) -> int:
        """How many rails the leaves are of."""
        return len({leaf.rail for leaf in self.tier("leaf")} - {None})

    @cached_property
    def hosts_by_domain(self) -> list[list[Host]]:
        """Hosts of each domain, in order."""
        hosts: list[list[Host]] = [[] for _ in self.specs]
        for host in self.hosts:
            hosts[host.domain].append(host)
        return hosts

    @cached_property
    def _parts(self) -> dict[str, list[str]]:
        """Ids of the GPUs of each host and of everything inside it, by host."""
        parts: dict[str, list[str]] = defaultdict(list)
        for name, host in self.owner.items():
            parts[host.id].append(name)
        return parts

    def parts(self, hosts: Iterable[Host]) -> list[str]:
        """Ids of the working GPUs of some hosts and of everything inside those: NICs too."""
        return [name for host in hosts for name in self._parts.get(host.id, ())]

    @cached_property
    def cabled(self) -> dict[str, list[Switch]]:
        """Switches that each host was cabled to, by its id: those without a working link too."""
        built = self._built
        home = self.owner | {name: host for host in self.hosts for name in host.broken}
        owner, hub = self._places(built, home), self._ranks(built) >= 0
        cabled: dict[str, list[Switch]] = {host.id: [] for host in self.hosts}
        low, high = np.concatenate([(built.a, built.b), (built.b, built.a)], axis=1)
        chosen = (owner[low] >= 0) & hub[high]
        for host, switch in np.unique(np.stack([owner[low], high])[:, chosen], axis=1).T.tolist():
            cabled[self.hosts[host].id].append(self.switches[built.names[switch]])
        return cabled

    def damaged(self, number: int) -> bool:
        """Whether scale-up links of a domain, or GPUs that end some, are broken or degraded."""
        lost = self._wiring.lost_bytes_per_s
        return any(self._gpus[i].id in lost for host in self.hosts_by_domain[number] for i in host.gpus)

    def scale_up_links(self, hosts: Iterable[Host]) -> Links:
        """Scale-up links of the GPUs of some hosts."""
        return Links.sum(self.gpu_links[i] for host in hosts for i in host.gpus)

    def _hosts(self, built: Iterable[Gpu]) -> dict[str, Host]:
        """Return the hosts in order, with their working and broken GPUs."""
        broken = set(self._wiring.broken_gpus)
        hosts: dict[str, Host] = {}
        for gpu in built:
            if gpu.id in self.number or gpu.id in broken:
                host = hosts.setdefault(gpu.node, Host(gpu.node, gpu.domain, gpu.rack))
                if gpu.id in broken:
                    host.broken.append(gpu.id)
                else:
                    host.gpus.append(self.number[gpu.id])
        return hosts

    def _owners(self, hosts: Mapping[str, Host]) -> dict[str, Host]:
        """Return the host of every GPU, NIC, PCIe switch and host processor."""
        owner = {gpu.id: hosts[gpu.node] for gpu in self._gpus}
        wiring = self._wiring
        inside = [n for n, kind in enumerate(wiring.kinds) if kind in _INSIDE]
        owner |= {wiring.names[n]: hosts[host] for n in inside if (host := wiring.node[n] or "") in hosts}
        inherited = owner
        while inherited:  # those without a host of their own: that of a neighbour
            inherited = {}
            for name in (wiring.names[n] for n in inside if wiring.names[n] not in owner):
                neighbours = sorted(wiring.neighbours(name))
                near = next((owner[neighbour] for neighbour in neighbours if neighbour in owner), None)
                inherited |= {name: near} if near is not None else {}
            owner |= inherited
        return owner

    def _places(self, wiring: Wiring, owner: Mapping[str, Host]) -> Ints:
        """Return the place in ``hosts`` of the host that each node is in, -1 outside."""
        place = {host.id: n for n, host in enumerate(self.hosts)}
        return np.array([place[owner[name].id] if name in owner else -1 for name in wiring.names])

    def _ranks(self, wiring: Wiring) -> Ints:
        """Return the place in ``_TIERS`` of each node, -1 for those that are no switch."""
        of = self.switches
        return np.array([_TIERS.index(of[name].tier) if name in of else -1 for name in wiring.names])

    def _read_links(self) -> None:
        """Give each host, GPU and switch its links, those with the same attributes at once."""
        wiring = self._wiring
        rates = wiring.link_bytes_per_s
        classes = np.stack([rates.view(np.int64), wiring.count, wiring.health.view(np.int64)])
        _, samples, kind = np.unique(classes, axis=1, return_index=True, return_inverse=True)
        names = {"count": wiring.count, "link_bytes_per_s": rates, "health": wiring.health}
        edges = [{name: values[link].item() for name, values in names.items()} for link in samples]
        owner, rank = self._places(wiring, self.owner), self._ranks(wiring)
        gpu = np.array([name in self.number for name in wiring.names], dtype=bool)
        groups = {switch.group: i for i, switch in enumerate(self.switches.values())}
        group = np.array([groups[self.switches[n].group] if n in self.switches else -1 for n in wiring.names])
        a, b = np.concatenate([wiring.a, wiring.b]), np.concatenate([wiring.b, wiring.a])
        host, outer = owner[a] >= 0, owner[b] >= 0
        same_host, gpus = owner[a] == owner[b], gpu[a] & gpu[b]
        inner = np.select([same_host & gpus, same_host], [_MATE, _PART], _PEER)
        equal = np.where(group[a] == group[b], 11, 12)
        between = np.select([outer, rank[a] < rank[b], rank[a] > rank[b]], [10, 9, 10], equal)
        relation = np.where(host, np.where(outer, inner, rank[b]), between)
        known = (host | (rank[a] >= 0)) & (outer | (rank[b] >= 0))
        rows = np.stack([a, relation, np.tile(kind.reshape(-1), 2)])[:, known]
        rows, counts = np.unique(rows, axis=1, return_counts=True)
        for node, end_kind, attributes, count in np.vstack([rows, counts]).T.tolist():
            name, edge = wiring.names[node], edges[attributes]
            self._ends[name].append((end_kind, attributes, count))
            if end_kind in _OF_SWITCH:
                getattr(self.switches[name], _OF_SWITCH[end_kind]).add(edge, count)
            elif name in self.number and end_kind in (0, _MATE, _PEER):
                self.gpu_links[self.number[name]].add(edge, count)
            elif 0 < end_kind < _MATE:
                self.owner[name].up.add(edge, count)

    def _shapes(self) -> None:
        """Give each switch and each host its shape: a host's GPUs and everything inside, each with its links."""
        for switch in self.switches.values():
            switch.shape = (switch.tier, *self._ends[switch.id])
        known: dict[Shape, Shape] = {}  # equal shapes become one object: cheaper to hash and to keep
        for host in self.hosts:
            gpus = [(self._gpus[i].rail, *self._ends[self._gpus[i].id]) for i in host.gpus]
            inner = sorted(self._ends[name] for name in self.parts([host]) if name not in self.number)
            shape = (self.specs[host.domain].gpu.name, len(host.broken), *gpus, *map(tuple, inner))
            host.shape = known.setdefault(shape, shape)

    def _domain_shapes(self) -> list[int]:
        """Return the shape of each domain: its number among those that differ."""
        names: dict[object, int] = {}
        shapes: list[int] = []
        for number, (spec, hosts) in enumerate(zip(self.specs, self.hosts_by_domain, strict=True)):
            chips = tuple(self.switches[name].shape for name in self.chip_ids([number]))
            inner = tuple(host.shape for host in hosts)
            key = (spec.part, spec.gpu.name, spec.structure, getattr(spec, "shape", ()), inner, chips)
            shapes.append(names.setdefault(key, len(names)))
        return shapes

    def _pods(self) -> list[Pod]:
        """Put hosts that share a leaf, or a group of routers, into pods."""
        from networkx.utils import UnionFind

        joined: UnionFind[str] = UnionFind()
        beside: dict[int, str] = {}
        above = {host.id: [s.group for s in self.cabled[host.id] if s.domain is None] for host in self.hosts}
        for host in sorted(self.hosts, key=lambda host: not above[host.id]):
            joined.union(host.id, *above[host.id])
            if not above[host.id]:  # without a link to the fabric: drawn beside the others of its domain
                joined.union(beside.get(host.domain, host.id), host.id)
            beside.setdefault(host.domain, host.id)
        members: dict[str, list[Host]] = defaultdict(list)
        for host in self.hosts:
            members[joined[host.id]].append(host)
        leaves: dict[str, list[Switch]] = defaultdict(list)
        for switch in self.switches.values():
            if switch.tier in ("leaf", "router"):
                leaves[joined[switch.group]].append(switch)
        roots = [*members, *(root for root in leaves if root not in members)]
        return [Pod(n, members.get(root, []), leaves.get(root, [])) for n, root in enumerate(roots)]

    def _groups(self, pods: list[Pod]) -> list[Group]:
        """Put pods under the same spines together, and give pods and groups their shapes."""
        from networkx.utils import UnionFind

        joined: UnionFind[object] = UnionFind()
        for pod in pods:
            domains = (("domain", number) for number in pod.domains)
            joined.union(pod.number, *(leaf.id for leaf in pod.leaves), *domains)
        pods_of = Counter(number for pod in pods for number in pod.domains)
        built, rank = self._built, self._ranks(self._built)
        low, high = _TIERS.index("router"), _TIERS.index("spine")
        fabric = (rank >= low) & (rank <= high)
        for link in np.flatnonzero(fabric[built.a] & fabric[built.b]).tolist():
            joined.union(built.names[built.a[link]], built.names[built.b[link]])
        members: dict[object, list[Pod]] = defaultdict(list)
        for pod in pods:
            hosts: dict[int, list[Shape]] = defaultdict(list)
            for host in pod.hosts:
                hosts[host.domain].append(host.shape)
            rows = ((self.domain_shapes[n], pods_of[n], tuple(shapes)) for n, shapes in hosts.items())
            pod.shape = (tuple(leaf.shape for leaf in pod.leaves), *rows)
            members[joined[pod.number]].append(pod)
        over: dict[object, list[Switch]] = defaultdict(list)
        for spine in self.tier("spine"):
            over[joined[spine.id]].append(spine)
        return [
            Group(inner, over[root], (tuple(p.shape for p in inner), tuple(s.shape for s in over[root])))
            for root, inner in members.items()
        ]


def _switches(built: Wiring) -> dict[str, Switch]:
    """Return every switch with its tier; a plain switch is in the first one if hosts hang on it."""
    switches: dict[str, Switch] = {}
    for n in np.flatnonzero(built.is_kind("switch", *_TIERS[2:])).tolist():
        name, tier = built.names[n], built.kinds[n]
        domain, rail, pod = (
            None if (value := int(built.numbered[key][n])) < 0 else value for key in ("domain", "rail", "pod")
        )
        if tier == "switch":
            under, alone = ("leaf", "spine") if domain is None else ("chip", "upper")
            tier = under if built.on_hosts[n] else alone
        # a first-tier switch is alone, a router one of its group
        group = name if pod is None or tier != "router" else f"group {pod}"
        switches[name] = Switch(name, tier, domain, rail, group)
    return dict(sorted(switches.items(), key=lambda item: natural(item[0])))
