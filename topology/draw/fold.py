"""The graph seen from afar: hosts, scale-up chips, switches by tier, pods that share leaves, and who is like whom.

Two things are alike if they have the same parts and the same links (kind of the other end, count, rate,
health). Only things that are alike may be drawn as one; a missing uplink or a broken GPU makes its owner
different from its siblings. Tiers, pods and groups are those of the cluster as built: what is broken changes links,
not where a switch is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from networkx.utils import UnionFind

from topology.base.names import natural
from topology.build import build_cluster
from topology.cluster import Cluster
from topology.draw.parts import Group, Host, Links, Pod, Shape, Switch
from topology.wiring import Bools, Ints, Wiring

_TIERS = ("core", "spine", "leaf", "router")
_INSIDE = ("nic", "pcie", "host")


class Fold:
    """Hosts, switches and groups of pods of a cluster: the graph is read once, then what it holds is grouped.

    Attributes
    ----------
    hosts, switches:
        Hosts in order, switches by id.
    groups:
        Pods under the same spines.
    domain_shapes:
        The same for domains that are alike.
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
        self._ends: dict[str, Counter[Shape]] = defaultdict(Counter)
        self.number = {gpu.id: i for i, gpu in enumerate(cluster.gpus)}
        built = _as_built(cluster)
        by_id = _hosts(cluster, built)
        self.hosts = list(by_id.values())
        self.owner = self._owners(by_id)
        self.switches = _switches(built.wiring)
        self._built = built.wiring
        self.gpu_links = [Links() for _ in cluster.gpus]
        self.degraded: list[tuple[str, str, float]] = []
        self._read_links()
        self._host_shapes()
        self.domain_shapes = self._domain_shapes()
        self.groups = self._groups(self._pods())

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
        found: dict[tuple[int | None, str], list[Switch]] = defaultdict(list)
        for switch in self.switches.values():
            found[switch.domain, switch.tier].append(switch)
        return found

    @cached_property
    def hosts_by_domain(self) -> list[list[Host]]:
        """Hosts of each domain, in order."""
        found: list[list[Host]] = [[] for _ in self.specs]
        for host in self.hosts:
            found[host.domain].append(host)
        return found

    @cached_property
    def _parts(self) -> dict[str, list[str]]:
        """Ids of the GPUs of each host and of everything inside it, by host."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, host in self.owner.items():
            found[host.id].append(name)
        return found

    @cached_property
    def cabled(self) -> dict[str, list[Switch]]:
        """Switches that each host was cabled to, by its id: those without a working link too."""
        built, place = self._built, {host.id: n for n, host in enumerate(self.hosts)}
        home = self.owner | {name: host for host in self.hosts for name in host.broken}
        owner = np.array([place[home[name].id] if name in home else -1 for name in built.names])
        hub = np.array([name in self.switches for name in built.names], dtype=bool)
        found: dict[str, list[Switch]] = {host.id: [] for host in self.hosts}
        low, high = np.concatenate([(built.a, built.b), (built.b, built.a)], axis=1)
        chosen = (owner[low] >= 0) & hub[high]
        for host, switch in _columns(*np.unique(np.stack([owner[low], high])[:, chosen], axis=1)):
            found[self.hosts[host].id].append(self.switches[built.names[switch]])
        return found

    def damaged(self, number: int) -> bool:
        """Whether scale-up links of a domain, or GPUs that end some, are broken or degraded."""
        lost = self._wiring.lost_bytes_per_s
        return any(self._gpus[i].id in lost for host in self.hosts_by_domain[number] for i in host.gpus)

    def parts(self, hosts: Iterable[Host]) -> list[str]:
        """Ids of the working GPUs of some hosts and of everything inside those: NICs too."""
        return [name for host in hosts for name in self._parts.get(host.id, ())]

    @cached_property
    def rails(self) -> int:
        """How many rails the leaves are of."""
        return len({leaf.rail for leaf in self.tier("leaf")} - {None})

    def chip_ids(self, domains: Iterable[int], *tiers: str) -> list[str]:
        """Ids of the scale-up switch chips of some domains: of all tiers, or of ``tiers``."""
        return [s.id for n in domains for tier in tiers or ("chip", "upper") for s in self.chips(n, tier)]

    def scale_up_links(self, hosts: Iterable[Host]) -> Links:
        """Scale-up links of the GPUs of some hosts."""
        return Links.sum(self.gpu_links[i] for host in hosts for i in host.gpus)

    def tier(self, name: str) -> list[Switch]:
        """Switches of a tier, in order."""
        return [s for s in self.switches.values() if s.tier == name]

    def _owners(self, hosts: Mapping[str, Host]) -> dict[str, Host]:
        """Return the host of every GPU, NIC, PCIe switch and host processor."""
        owner = {gpu.id: hosts[gpu.node] for gpu in self._gpus}
        wiring = self._wiring
        inside = [n for n, kind in enumerate(wiring.kinds) if kind in _INSIDE]
        owner |= {wiring.names[n]: hosts[host] for n in inside if (host := wiring.node[n] or "") in hosts}
        left = [wiring.names[n] for n in inside if wiring.names[n] not in owner]
        while left:  # those that do not say: the host of a neighbour
            found = {}
            for name in left:
                others = sorted(wiring.names[n] for n in wiring.others(wiring.number[name]).tolist())
                near = next((owner[n] for n in others if n in owner), None)
                if near is not None:
                    found[name] = near
            if not found:
                break
            owner.update(found)
            left = [name for name in left if name not in owner]
        return owner

    def _read_links(self) -> None:
        """Add every link to what it joins, those that are alike at once, in the order of the graph."""
        wiring = self._wiring
        classes = np.stack([wiring.fabric, wiring.count, wiring.health.view(np.int64)])
        _, first, number = np.unique(classes, axis=1, return_index=True, return_inverse=True)
        rates = wiring.link_bytes_per_s[first].tolist()
        edges = [_edge(wiring, link, rate) for link, rate in zip(first.tolist(), rates, strict=True)]
        for link in wiring.in_order[wiring.health[wiring.in_order] < 1].tolist():
            first_end, last_end = sorted((int(wiring.a[link]), int(wiring.b[link])))
            health = float(wiring.health[link])
            self.degraded.append((wiring.names[first_end], wiring.names[last_end], health))
        order = wiring.in_order
        one, two = (end(wiring.a[order], wiring.b[order]) for end in (np.minimum, np.maximum))
        edge = number.reshape(-1)[order]
        hosts = {host.id: place for place, host in enumerate(self.hosts)}
        owner = np.array([hosts[self.owner[name].id] if name in self.owner else -1 for name in wiring.names])
        gpu = np.array([name in self.number for name in wiring.names], dtype=bool)
        hub = np.array([name in self.switches for name in wiring.names], dtype=bool)
        for away in (False, True):
            inside = (owner[one] >= 0) & (owner[two] >= 0) & ((owner[one] == owner[two]) != away)
            peers = (gpu[one] & gpu[two])[inside]
            for end in (one, two):
                for node, kind, both, count in _alike(end[inside], edge[inside], peers):
                    self._inside(wiring.names[node], edges[kind], count, same=not away, gpus=bool(both))
        down, up = (owner[one] >= 0) & hub[two], (owner[two] >= 0) & hub[one]
        hanging = down | up
        ends, switches = np.where(down, one, two)[hanging], np.where(down, two, one)[hanging]
        for node, switch, kind, count in _alike(ends, switches, edge[hanging]):
            self._to_switch(wiring.names[node], self.switches[wiring.names[switch]], edges[kind], count)
        between = hub[one] & hub[two]
        for low, high, kind in _columns(one[between], two[between], edge[between]):
            a, b = wiring.names[low], wiring.names[high]
            self._between_switches(self.switches[a], self.switches[b], edges[kind])

    def _note(self, name: str, kind: str, edge: Mapping[str, Any], count: int) -> None:
        """Add link ends to the shape of their owner."""
        self._ends[name][kind, edge["count"], edge["link_bytes_per_s"], edge["health"]] += count

    def _inside(self, end: str, edge: Mapping[str, Any], count: int, *, same: bool, gpus: bool) -> None:
        """Add ends of links between two GPUs, or inside a host."""
        self._note(end, "in" if same else "peer", edge, count)
        if gpus and end in self.number:
            self.gpu_links[self.number[end]].add(edge, count)

    def _to_switch(self, end: str, switch: Switch, edge: Mapping[str, Any], count: int) -> None:
        """Add links from a part of a host to a switch."""
        self._note(end, switch.tier, edge, count)
        switch.down.add(edge, count)
        if switch.tier == "chip":
            if end in self.number:
                self.gpu_links[self.number[end]].add(edge, count)
        else:
            self.owner[end].up.setdefault(switch.id, Links()).add(edge, count)

    def _between_switches(self, a: Switch, b: Switch, edge: Mapping[str, Any]) -> None:
        """Add a link between two switches."""
        if a.tier == b.tier:
            for one, two in ((a, b), (b, a)):
                (one.side if a.group == b.group else one.far).add(edge)
                one.above.add(two.id)
        else:
            high, low = (a, b) if _height(a) > _height(b) else (b, a)
            high.down.add(edge)
            low.up.add(edge)
            low.above.add(high.id)

    def _host_shapes(self) -> None:
        """Give each host its shape: its GPUs and everything inside, each with its links."""
        known: dict[Shape, Shape] = {}  # equal shapes become one object: cheaper to hash and to keep
        for host in self.hosts:
            parts = [self._end_shape(self._gpus[i].id, self._gpus[i].rail) for i in host.gpus]
            inside = (name for name in self.parts([host]) if name not in self.number)
            others = sorted(self._end_shape(name, 0) for name in inside)
            part = self.specs[host.domain].gpu.name
            shape = (part, len(host.broken), *parts, *others)
            host.shape = known.setdefault(shape, shape)

    def _end_shape(self, name: str, rail: int | None) -> Shape:
        """Return the shape of one GPU or part of a host."""
        return (-1 if rail is None else rail, *sorted(self._ends[name].items()))

    def _domain_shapes(self) -> list[Shape]:
        """Return the shape of each domain."""
        of: list[list[Shape]] = [[] for _ in self.specs]
        for host in self.hosts:
            of[host.domain].append(host.shape)
        chips: list[list[Shape]] = [[] for _ in of]
        for switch in self.switches.values():
            if switch.domain is not None and switch.tier in ("chip", "upper"):
                chips[switch.domain].append(switch.shape)
        names: dict[object, int] = {}
        shapes: list[Shape] = []
        for spec, inner, outer in zip(self.specs, of, chips, strict=True):
            key = (
                spec.part,
                spec.gpu.name,
                spec.structure,
                getattr(spec, "shape", ()),
                tuple(inner),
                tuple(outer),
            )
            shapes.append((names.setdefault(key, len(names)),))
        return shapes

    def _pods(self) -> list[Pod]:
        """Put hosts that share a leaf, or a group of routers, into pods."""
        joined: UnionFind[str] = UnionFind()
        beside: dict[int, str] = {}
        above = {host.id: [s.group for s in self.cabled[host.id] if s.domain is None] for host in self.hosts}
        for host in sorted(self.hosts, key=lambda host: not above[host.id]):
            up = above[host.id]
            joined.union(host.id, *up)
            if not up:  # without a link to the fabric: drawn beside the others of its domain
                joined.union(beside.get(host.domain, host.id), host.id)
            beside.setdefault(host.domain, host.id)
        members: dict[str, list[Host]] = defaultdict(list)
        for host in self.hosts:
            members[joined[host.id]].append(host)
        leaves: dict[str, list[Switch]] = defaultdict(list)
        for switch in self.switches.values():
            if switch.tier in ("leaf", "router"):
                leaves[joined[switch.group]].append(switch)
        alone = [root for root in leaves if root not in members]
        pods = [Pod(n, part, leaves.get(root, [])) for n, (root, part) in enumerate(members.items())]
        return pods + [Pod(len(pods) + n, [], leaves[root]) for n, root in enumerate(alone)]

    def _groups(self, pods: list[Pod]) -> list[Group]:
        """Put pods under the same spines together, and give pods and groups their shapes."""
        joined: UnionFind[str] = UnionFind()
        spines = {s.id for s in self.switches.values() if s.tier == "spine"}
        first = {s.id for s in self.switches.values() if s.tier in ("leaf", "router")}
        parts: dict[int, Counter[int]] = defaultdict(Counter)
        for pod in pods:
            joined.union(f"pod {pod.number}", *(leaf.id for leaf in pod.leaves))
            for host in pod.hosts:
                parts[host.domain][pod.number] += 1
        for domain in parts.values():
            joined.union(*(f"pod {number}" for number in domain))
        built = self._built
        some = np.array([name in spines or name in first for name in built.names], dtype=bool)
        for a, b in _columns(*(end[some[built.a] & some[built.b]] for end in (built.a, built.b))):
            joined.union(built.names[a], built.names[b])
        members: dict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            pod.shape = _pod_shape(pod, parts, self.domain_shapes)
            members[joined[f"pod {pod.number}"]].append(pod)
        over: dict[str, list[Switch]] = defaultdict(list)
        for name in self.switches:
            if name in spines:
                over[joined[name]].append(self.switches[name])
        return [
            Group(inner, over[root], (tuple(p.shape for p in inner), tuple(s.shape for s in over[root])))
            for root, inner in members.items()
        ]


def _edge(wiring: Wiring, link: int, rate: float) -> dict[str, Any]:
    """Return what the graph says of a link."""
    return {"count": int(wiring.count[link]), "link_bytes_per_s": rate, "health": float(wiring.health[link])}


def _columns(*columns: Ints) -> Iterable[tuple[int, ...]]:
    """Return the rows of some columns."""
    return zip(*(column.tolist() for column in columns), strict=True)


def _alike(*columns: Ints | Bools) -> Iterable[tuple[int, ...]]:
    """Return the different rows of some columns, in order of the first of each, and how many there are of it."""
    rows = np.stack(columns).astype(np.int64)
    sizes = tuple(rows.max(axis=1, initial=0) + 1)
    _, first, count = np.unique(
        np.ravel_multi_index(tuple(rows), sizes), return_index=True, return_counts=True
    )
    order = np.argsort(first)
    return _columns(*rows[:, first[order]], count[order])


def _as_built(cluster: Cluster) -> Cluster:
    """Return the whole cluster with nothing broken; cables that end elsewhere than planned end there."""
    spec = cluster.spec
    if not spec.faults:
        return cluster.whole
    moved = tuple(fault for fault in spec.faults if fault.cabled_to is not None)
    return build_cluster(replace(spec, faults=moved))


def _switches(built: Wiring) -> dict[str, Switch]:
    """Return every switch with its tier; a plain switch is in the first one if hosts hang on it."""
    found: dict[str, Switch] = {}
    host = built.is_kind("gpu", *_INSIDE)
    linked = np.zeros(len(host), dtype=bool)
    linked[built.a[host[built.b]]] = linked[built.b[host[built.a]]] = True
    for n in np.flatnonzero(built.is_kind("switch", *_TIERS)).tolist():
        name, tier = built.names[n], built.kinds[n]
        domain, rail, pod = (
            None if (value := int(built.numbered[key][n])) < 0 else value for key in ("domain", "rail", "pod")
        )
        if tier == "switch":
            under, alone = ("leaf", "spine") if domain is None else ("chip", "upper")
            tier = under if linked[n] else alone
        # a first-tier switch is alone, a router one of its group
        group = name if pod is None or tier != "router" else f"group {pod}"
        found[name] = Switch(name, tier, domain, rail, group)
    return dict(sorted(found.items(), key=lambda item: natural(item[0])))


def _hosts(cluster: Cluster, built: Cluster) -> dict[str, Host]:
    """Return the hosts in order, with their working and broken GPUs."""
    place = {gpu.id: i for i, gpu in enumerate(cluster.gpus)}
    broken = set(cluster.wiring.broken_gpus)
    hosts: dict[str, Host] = {}
    for gpu in built.gpus:
        if gpu.id in place or gpu.id in broken:
            host = hosts.setdefault(gpu.node, Host(gpu.node, gpu.domain, gpu.rack))
            if gpu.id in broken:
                host.broken.append(gpu.id)
            else:
                host.gpus.append(place[gpu.id])
    return hosts


def _height(switch: Switch) -> int:
    """Return how far up a switch is."""
    return ("chip", "upper", "router", "leaf", "spine", "core").index(switch.tier)


def _pod_shape(pod: Pod, parts: Mapping[int, Counter[int]], domain_shapes: list[Shape]) -> Shape:
    """Return the shape of a pod: its leaves, and its hosts by domain."""
    rows = []
    for domain in pod.domains:
        hosts = tuple(host.shape for host in pod.hosts if host.domain == domain)
        spread = tuple(number - pod.number for number in parts[domain])
        rows.append((domain_shapes[domain], len(spread), hosts))
    return (tuple(leaf.shape for leaf in pod.leaves), tuple(rows))
