"""Bytes on every link of a cluster for any traffic between its GPUs, the bottleneck, and a bound of the time.

The bound is the largest bytes over rate of any directed link, plus the latency of the longest route used: nothing on
these routes is faster. :func:`topology.routes.fair_s` says when flows that share fairly end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from topology.base.errors import InputError, MissingFigureError
from topology.cluster import Cluster
from topology.fabrics.fabric import CabledFabric
from topology.routes.demand import NO_PAIRS, Alike, Pairs, joined, nothing_alike, table
from topology.routes.ecmp import Routed, Taken, nothing_routed
from topology.routes.network import Bools, Floats, Ints, Network, network_of
from topology.routes.scale_out import RelayHops, ScaleOut
from topology.routes.scale_up import ScaleUp
from topology.routes.traffic import Traffic, pattern_traffic

_TIE = 1e-9  # relative difference of seconds below which links count as equally hot


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link: the ids it goes from and to, bytes, bytes/s of all its parallel links, seconds."""

    ends: tuple[str, str]
    load_bytes: float
    bytes_per_s: float
    seconds: float
    tier: str


@dataclass(frozen=True)
class LinkGroup:
    """Links of one tier that are busy equally long, the first of them, and how many there are."""

    link: Link
    count: int


class TierLoad(NamedTuple):
    """Bytes that cross a tier, once each (in each domain, where handed over), and its busiest link's seconds."""

    bytes: float
    seconds: float


@dataclass(frozen=True)
class LinkLoads:
    """Traffic on the links of a network.

    Attributes
    ----------
    network:
        The links.
    load_bytes:
        ``[links]`` bytes on each directed link.
    latency_s:
        Seconds of the longest route used.
    total_bytes:
        Bytes between different GPUs, each once.
    senders:
        GPUs that send anything.
    notes:
        What is not as usual about the routes.
    """

    network: Network
    load_bytes: Floats
    tier_bytes: Floats
    latency_s: float
    total_bytes: float
    senders: int
    notes: tuple[str, ...] = ()

    @cached_property
    def seconds(self) -> Floats:
        """``[links]`` bytes over rate."""
        busy = self.load_bytes > 0
        return np.divide(self.load_bytes, self.network.bytes_per_s, out=np.zeros(len(busy)), where=busy)

    @property
    def transfer_s(self) -> float:
        """Seconds that the busiest link needs."""
        return float(self.seconds.max(initial=0.0))

    @property
    def bound_s(self) -> float:
        """Seconds of the busiest link and the longest route's latency: no schedule on these routes is faster."""
        return self.transfer_s + self.latency_s

    @property
    def bottleneck(self) -> Link:
        """The busiest link; the first in the order of the graph where several are equally busy."""
        return next(self.links(self.busiest[:1]))

    @cached_property
    def busiest(self) -> Ints:
        """Numbers of the links that are busy as long as the busiest, in the order of the graph."""
        least = self.transfer_s * (1 - _TIE)
        return np.flatnonzero((self.seconds >= least) & (self.load_bytes > 0))

    @property
    def tiers(self) -> dict[str, TierLoad]:
        """Load of each tier by name."""
        net = self.network
        seconds = np.zeros(len(net.tiers))
        np.maximum.at(seconds, net.tier, self.seconds)
        return {
            name: TierLoad(float(self.tier_bytes[i]), float(seconds[i])) for i, name in enumerate(net.tiers)
        }

    @property
    def scale_up_bytes(self) -> float:
        """Bytes that cross links inside domains."""
        return float(self.tier_bytes[self._up_tiers].sum())

    @property
    def scale_out_bytes(self) -> float:
        """Bytes that cross links between domains: those of its busiest tier."""
        return float(self.tier_bytes[~self._up_tiers].max(initial=0.0))

    def hottest(self, n: int) -> list[LinkGroup]:
        """Return the ``n`` hottest groups of links, each group equally busy and of one tier."""
        net, remaining = self.network, self.seconds.copy()
        groups: list[LinkGroup] = []
        while len(groups) < n and (peak := remaining.max(initial=0.0)) > 0:
            alike = np.flatnonzero(remaining >= peak * (1 - _TIE))
            remaining[alike] = 0.0
            _, samples, count = np.unique(
                net.types.tier[net.type[alike]], return_index=True, return_counts=True
            )
            order = np.argsort(samples)
            groups += map(LinkGroup, self.links(alike[samples[order]]), count[order].tolist())
        return groups[:n]

    def of(self, a: str, b: str) -> float:
        """Return the bytes that the link from ``a`` to ``b`` carries.

        Raises
        ------
        InputError
            If no link joins them.
        """
        net = self.network
        known = a in net.number and b in net.number
        ends = [np.array([net.number[name]]) for name in (a, b)] if known else []
        link = int(net.link_between(ends[0], ends[1])[0]) if known else -1
        if link < 0:
            raise InputError(f"no link goes from {a} to {b}.")
        return float(self.load_bytes[link])

    def shares(self) -> dict[tuple[str, str], float]:
        """Return how long every directed link is busy over the busiest, by its two ends; of the busiest exactly 1."""
        shares, net = self.seconds / max(self.transfer_s, np.finfo(float).tiny), self.network
        shares[self.busiest] = 1.0
        ends = ([net.names[node] for node in nodes.tolist()] for nodes in (net.tail, net.head))
        return dict(zip(zip(*ends, strict=True), shares.tolist(), strict=True))

    @property
    def _up_tiers(self) -> Bools:
        """``[tiers]`` whether a tier is inside domains."""
        up = np.zeros(len(self.network.tiers), dtype=bool)
        up[self.network.tier[self.network.scale_up_domain >= 0]] = True
        return up

    def links(self, numbers: Ints) -> Iterator[Link]:
        """Yield some directed links, by their numbers in the network."""
        net = self.network
        columns = (net.tail, net.head, self.load_bytes, net.bytes_per_s, self.seconds, net.type)
        tiers = [net.tiers[tier] for tier in net.types.tier.tolist()]
        for a, b, load, rate, seconds, kind in zip(
            *(column[numbers].tolist() for column in columns), strict=True
        ):
            yield Link((net.names[a], net.names[b]), load, rate, seconds, tiers[kind])


class Router:
    """Routes of one cluster, made once for any number of traffics.

    Where the fabric has rails, bytes for another rail go over the scale-up fabric first.
    """

    def __init__(self, cluster: Cluster) -> None:
        out = cluster.spec.scale_out
        rails = isinstance(out, CabledFabric) and out.rails
        self._name = cluster.name
        self._net = network_of(cluster)
        self._up = ScaleUp(self._net, cluster.spec.domains)
        several = len(cluster.spec.domains) > 1
        self._out = ScaleOut(self._net, cluster.gpus, self._up, relay=rails) if several else None
        self._uniform: dict[tuple[int, bytes], float] = {}

    @property
    def network(self) -> Network:
        """The links."""
        return self._net

    def loads(self, traffic: Traffic) -> LinkLoads:
        """Return the loads of ``traffic``.

        Raises
        ------
        InputError
            If it is for another number of GPUs, or some pair of GPUs has no route.
        MissingFigureError
            If it takes a link whose rate nobody has published.
        """
        net = self._net
        if traffic.gpus != net.gpus:
            raise InputError(
                f"traffic for {traffic.gpus} GPUs does not fit {self._name}, which has {net.gpus}."
            )
        routed = nothing_routed(net)
        for alike in traffic.alike():
            routed.add(self._route(NO_PAIRS, alike))
        for pairs in traffic.blocks():
            routed.add(self._route(pairs, nothing_alike(net.gpus)))
        self.require_rates(np.flatnonzero(routed.load_bytes > 0))
        return LinkLoads(
            network=net,
            load_bytes=routed.load_bytes,
            tier_bytes=routed.tier_bytes,
            latency_s=float(routed.longest_s),
            total_bytes=traffic.total_bytes,
            senders=traffic.senders,
            notes=tuple(routed.notes),
        )

    def relayed(self, sources: Ints, targets: Ints) -> RelayHops:
        """Return who hands over the bytes of pairs of GPUs; inside a domain it is the target itself."""
        domain = self._net.domain[: self._net.gpus]
        inside = np.flatnonzero(domain[sources] == domain[targets])
        local = RelayHops(inside, targets[inside], targets[inside], np.ones(len(inside)))
        away = np.flatnonzero(domain[sources] != domain[targets])
        if self._out is None or not len(away):
            return local
        between = self._out.relayed(sources[away], targets[away])
        between = between._replace(pair=away[between.pair])
        return RelayHops(*(np.concatenate(columns) for columns in zip(local, between, strict=True)))

    def target_classes(self, sources: Ints, targets: Ints) -> Ints:
        """Return ``[pairs, facts]``: routes from one GPU are as long and as shared to targets with the same facts."""
        facts = np.stack([targets])
        domain = self._net.domain[: self._net.gpus]
        if self._out is not None:
            classes = self._out.target_classes(sources, targets)
            facts = np.where(domain[sources] == domain[targets], facts, -1 - classes)
        return np.asarray(facts.T)

    def direct(self, sources: Ints, targets: Ints) -> Taken:
        """Return the links of bytes that a GPU sends to another itself, with the part of them on each."""
        domain = self._net.domain[: self._net.gpus]
        inside = np.flatnonzero(domain[sources] == domain[targets])
        parts = [self._up.taken(sources[inside], targets[inside]).of(inside)]
        away = np.flatnonzero(domain[sources] != domain[targets])
        if self._out is not None and len(away):
            parts.append(self._out.direct(sources[away], targets[away]).of(away))
        return Taken.joined(parts)

    def taken(self, sources: Ints, targets: Ints) -> Taken:
        """Return the part of the bytes of each pair of different GPUs that is on each link.

        Raises
        ------
        InputError
            If a pair has no route.
        """
        hops = self.relayed(sources, targets)
        parts = []
        for a, b in pairwise((sources[hops.pair], hops.giver, hops.taker, targets[hops.pair])):
            moves = np.flatnonzero(a != b)
            hop = self.direct(a[moves], b[moves]).of(moves)
            parts.append(Taken(hop.link, hops.pair[hop.pair], hop.part * hops.part[hop.pair]))
        return Taken.joined(parts)

    def shares(self, sources: Ints, targets: Ints) -> Any:
        """Return the same as a sparse matrix ``[links, pairs]``."""
        link, pair, part = self.taken(sources, targets)
        return table(link, pair, part, (self._net.links, len(sources)))

    def uniform_within_domains(self, gpus: Sequence[int]) -> float:
        """Return the bytes/s that each of ``gpus`` sends in an all-to-all with those of its domain: the slowest's.

        Without latency; infinite where no two are of one domain.

        Raises
        ------
        InputError
            If some pair has no route.
        """
        parts, mixed_gpus = self._up.parts(np.asarray(gpus, dtype=np.int64))
        for key, part in parts.items():
            if key not in self._uniform:
                self._uniform[key] = self._uniform_among(part)
        mixed = self._uniform_among(mixed_gpus) if len(mixed_gpus) else np.inf
        return min(mixed, *(self._uniform[key] for key in parts), np.inf)

    def _uniform_among(self, gpus: Ints) -> float:
        """The same, all of them routed at once."""
        net, members = self._net, np.zeros(self._net.gpus, dtype=bool)
        members[gpus] = True
        routed = self._up.route(NO_PAIRS, Alike(members, members.astype(float), 1.0))
        self.require_rates(np.flatnonzero(routed.load_bytes > 0))
        used = np.flatnonzero(routed.load_bytes)
        size = np.bincount(net.domain[: net.gpus][members])
        # a domain whose pairs go outside it may meet others there: then the busiest link is that of all
        seconds, domain = routed.load_bytes[used] / net.bytes_per_s[used], net.scale_up_domain[used]
        longest = np.full(len(size), seconds[domain < 0].max(initial=0.0))
        np.maximum.at(longest, domain[domain >= 0], seconds[domain >= 0])
        return float(((size - 1)[size > 1] / longest[size > 1]).min(initial=np.inf))

    def _route(self, pairs: Pairs, alike: Alike) -> Routed:
        """Route pairs, and what GPUs that send alike send."""
        domain = self._net.domain[: self._net.gpus]
        inside = domain[pairs.sources] == domain[pairs.targets]
        routed, hops = nothing_routed(self._net), NO_PAIRS
        if self._out is not None:
            routed, hops = self._out.route(pairs.where(~inside), alike)
        routed.add(self._up.route(joined(pairs.where(inside), hops), alike))
        return routed

    def require_rates(self, links: Ints) -> None:
        """Reject bytes on links, given by number, of which one has no rate.

        Raises
        ------
        MissingFigureError
            If one has none.
        """
        unknown = links[~np.isfinite(self._net.bytes_per_s[links])]
        if len(unknown):
            a, b = (self._net.names[ends[unknown[0]]] for ends in (self._net.tail, self._net.head))
            raise MissingFigureError(
                f"{self._name}: the rate of the link {a} - {b} is not published, so its traffic has no time."
            )


def uniform_bytes_per_s(cluster: Cluster, gpus: Sequence[int], router: Router | None = None) -> float:
    """Return the bytes/s that each of ``gpus`` sends in an all-to-all of equal parts among them, without latency.

    In a switched domain this is the sum of a GPU's links; on rings it falls with the longest dimension, since
    bytes take several links (time ``k / 8 * bytes / link rate`` for an even ring of ``k``, twice that for a line).

    ``router`` is the cluster's, if it has been made already.

    Raises
    ------
    InputError
        If there are fewer than two GPUs, or some pair has no route.
    """
    loads = (router or Router(cluster)).loads(pattern_traffic("all-to-all", len(cluster.gpus), 1.0, gpus))
    return 1.0 / loads.transfer_s
