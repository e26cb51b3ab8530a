"""Routes inside scale-up domains, by structure: switched, full mesh, torus, or whatever a raw graph has.

Switched domains whose GPUs all have the same links are routed at once, from row and column sums alone: where every
GPU has the same number of links to each chip, fewest-hop routes share a pair's bytes over all chips in that
proportion whoever the peers are, so a link carries its part of all that its GPU sends or receives. Equal to
multi-path routing (tested), and linear in GPUs. The other domains are routed in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from topology.routes.demand import NO_PAIRS, Demands, Pairs, joined, summed, uniform_demand
from topology.routes.ecmp import Attempt, Routed, nothing_routed, route_ecmp, route_first_way
from topology.routes.network import Bools, Floats, Ints, Network
from topology.routes.torus import Torus, torus_of
from topology.spec import DomainSpec


class ScaleUp:
    """Routes between GPUs of one domain; ``specs`` are the domains of the cluster."""

    def __init__(self, network: Network, specs: Sequence[DomainSpec]) -> None:
        self._net = network
        self._specs = specs
        self._domain = network.domain[: network.gpus]
        self._first = np.searchsorted(self._domain, np.arange(len(specs) + 1))
        switched = np.array([spec.switched for spec in specs], dtype=bool)
        self._alike = alike_domains(network, len(specs)) & switched
        domain = network.scale_up_domain
        self._links = np.flatnonzero((domain >= 0) & self._alike[domain])
        self._share = chip_share(network, self._links)
        self._hop_s = np.zeros(len(specs))
        self._hop_s[domain[self._links]] = network.latency_s[self._links]
        self._routes: dict[int, DomainRoutes] = {}

    def route(self, pairs: Pairs, members: Bools, amount: float) -> Routed:
        """Route pairs inside domains, and ``amount`` bytes from each member to every other of its domain.

        Raises
        ------
        InputError
            If a pair has no route.
        """
        taking = np.bincount(self._domain[members], minlength=len(self._specs))
        alike = self._alike[self._domain[pairs.sources]]
        found = self._route_alike(pairs.where(alike), members, amount * (taking - 1).astype(np.float64))
        rest = pairs.where(~alike)
        rest = rest.where(np.argsort(self._domain[rest.sources], kind="stable"))
        parts = np.searchsorted(self._domain[rest.sources], np.arange(len(self._specs) + 1))
        busy = (np.diff(parts) > 0) | ((taking > 1) & (amount > 0))
        for domain in np.flatnonzero(busy & ~self._alike):
            mine = rest.where(slice(parts[domain], parts[domain + 1]))
            first, last = self._first[domain], self._first[domain + 1]
            some = Pairs(mine.sources - first, mine.targets - first, mine.amounts)
            found.add(self._routes_of(int(domain)).route(some, members[first:last], amount))
        return found

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair inside a domain."""
        domain = self._domain[sources]
        found = 2 * self._hop_s[domain]
        for other in np.unique(domain[~self._alike[domain]]):
            mine = np.flatnonzero(domain == other)
            first = self._first[other]
            routes = self._routes_of(int(other))
            found[mine] = routes.seconds(sources[mine] - first, targets[mine] - first)
        return found

    def _routes_of(self, domain: int) -> DomainRoutes:
        """Return the routes of a domain, made once."""
        if domain not in self._routes:
            gpus = np.arange(self._first[domain], self._first[domain + 1])
            self._routes[domain] = domain_routes(self._net, domain, self._specs[domain], gpus)
        return self._routes[domain]

    def _route_alike(self, pairs: Pairs, members: Bools, to_others: Floats) -> Routed:
        """Route in the domains whose GPUs all have the same links; a member sends ``to_others[domain]`` in all."""
        network, found = self._net, nothing_routed(self._net)
        own = np.where(members & self._alike[self._domain], to_others[self._domain], 0.0)
        sent = summed(pairs.sources, pairs.amounts, network.gpus) + own
        received = summed(pairs.targets, pairs.amounts, network.gpus) + own
        if not len(self._links):
            return found
        tail, head = network.tail[self._links], network.head[self._links]
        up = tail < head  # GPUs are numbered before chips
        carried = np.where(up, sent[np.minimum(tail, head)], received[np.minimum(tail, head)])
        found.load_bytes[self._links] = self._share * carried
        tier = np.zeros(len(self._specs), dtype=np.int64)
        tier[network.scale_up_domain[self._links]] = network.tier[self._links]
        np.add.at(found.tier_bytes, tier[self._domain], sent)
        busy = self._domain[sent > 0]
        found.longest_s = float((2 * self._hop_s[busy]).max(initial=0.0))
        return found


def alike_domains(network: Network, domains: int) -> Bools:
    """Return for each domain whether all its links join a GPU and a chip, each chip to every GPU alike."""
    links = np.flatnonzero(network.scale_up_domain >= 0)
    tail, head, weight = network.tail[links], network.head[links], network.weight[links]
    domain = network.scale_up_domain[links]
    nodes = len(network.names)
    down = (tail >= network.gpus) & (head < network.gpus)
    chip, load = tail[down], weight[down]
    degree = np.bincount(chip, minlength=nodes)
    least, most = np.full(nodes, np.inf), np.zeros(nodes)
    np.minimum.at(least, chip, load)
    np.maximum.at(most, chip, load)
    slowest, fastest = np.full(domains, np.inf), np.zeros(domains)
    latency = network.latency_s[links]
    np.minimum.at(slowest, domain, latency)
    np.maximum.at(fastest, domain, latency)
    size = np.bincount(network.domain[: network.gpus], minlength=domains)
    alike = (np.bincount(domain, minlength=domains) > 0) & (slowest == fastest)
    gpu_to_chip = (tail < network.gpus) & (head >= network.gpus)
    alike[domain[~down & ~gpu_to_chip]] = False
    chips = np.unique(chip)
    uneven = (degree[chips] != size[network.domain[chips]]) | (least[chips] != most[chips])
    alike[network.domain[chips[uneven]]] = False
    return np.asarray(alike)


def chip_share(network: Network, links: Ints) -> Floats:
    """Return the part of a GPU's bytes that each of the given links between GPUs and chips carries."""
    tail, head = network.tail[links], network.head[links]
    gpu = np.minimum(tail, head)  # GPUs are numbered before chips
    weight = network.weight[links]
    # both directions of a GPU's links are among those given
    whole = np.bincount(gpu, weight, network.gpus) / 2
    return weight / whole[gpu]


_DETOUR = "some pairs have no direct route left and take fewest hops through other GPUs"
_OUTSIDE = "some pairs of one domain have no scale-up route and take links outside it"
_THROUGH = "some pairs have no route but through other GPUs, which forward for them"
_WHERE = "over the scale-up links of its domain"


class DomainRoutes(Protocol):
    """Routes between the GPUs of one domain, which are numbered from 0 here."""

    def route(self, pairs: Pairs, members: Bools, amount: float) -> Routed:
        """Route some pairs, and ``amount`` bytes from each member to every other one."""

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair."""


def domain_routes(network: Network, domain: int, spec: DomainSpec, gpus: Ints) -> DomainRoutes:
    """Return the routes of a domain, whose GPUs have the numbers ``gpus`` in the network."""
    links = network.links_of_domain(domain)
    detour = GraphRoutes(network, [Attempt(links, forward=True, note=_DETOUR)], gpus)
    if spec.structure == "torus":
        return TorusRoutes(network, torus_of(network, spec, gpus), detour)
    if spec.structure == "mesh":
        return MeshRoutes(network, links, gpus, detour)
    attempts = [Attempt(links)]
    if spec.structure == "raw":
        attempts += [
            Attempt(np.arange(network.links), note=_OUTSIDE),
            Attempt(links, forward=True, note=_THROUGH),
        ]
    return GraphRoutes(network, attempts, gpus)


@dataclass(frozen=True)
class GraphRoutes:
    """Equal-cost multi-path over the links of the domain."""

    network: Network
    attempts: Sequence[Attempt]
    gpus: Ints

    def route(self, pairs: Pairs, members: Bools, amount: float) -> Routed:
        """Route some pairs, and ``amount`` bytes from each member to every other one."""
        demand = Demands([pairs, uniform_demand(members, amount)])
        return route_first_way(self.network, self.attempts, self.gpus, demand, _WHERE)

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair."""
        found = np.full(len(sources), -np.inf)
        demand = Pairs(sources, targets, np.ones(len(sources)))
        for attempt in self.attempts:
            result = route_ecmp(self.network, attempt.links, self.gpus, demand, forward=attempt.forward)
            found = np.where(np.isinf(found), result.seconds(demand), found)
            if np.isfinite(found).all():
                break
        return found


@dataclass(frozen=True)
class MeshRoutes:
    """The direct link; where it is down, the fewest hops through other GPUs."""

    network: Network
    links: Ints
    gpus: Ints
    detour: GraphRoutes

    def route(self, pairs: Pairs, members: Bools, amount: float) -> Routed:
        """Route some pairs, and ``amount`` bytes from each member to every other one."""
        network = self.network
        found = nothing_routed(network)
        taking = np.zeros(len(network.names), dtype=bool)
        taking[self.gpus[members]] = True
        ends = taking[network.tail[self.links]] & taking[network.head[self.links]]
        used = self.links[ends]
        found.load_bytes[used] = amount
        count = int(members.sum())
        if amount > 0 and len(used) < count * (count - 1):
            demand = uniform_demand(members, amount).pairs()
            away = network.link_between(self.gpus[demand.sources], self.gpus[demand.targets]) < 0
            pairs = joined(pairs, demand.where(away))
        link = network.link_between(self.gpus[pairs.sources], self.gpus[pairs.targets])
        direct = link >= 0
        found.load_bytes += summed(link[direct], pairs.amounts[direct], network.links)
        np.add.at(found.tier_bytes, network.tier[self.links], found.load_bytes[self.links])
        busy = found.load_bytes > 0
        found.longest_s = float(network.latency_s[busy].max(initial=0.0))
        if not direct.all():
            found.add(self.detour.route(pairs.where(~direct), np.zeros_like(members), 0.0))
        return found

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair."""
        link = self.network.link_between(self.gpus[sources], self.gpus[targets])
        if (link >= 0).all():
            return self.network.latency_s[link]
        return np.where(link >= 0, self.network.latency_s[link], self.detour.seconds(sources, targets))


@dataclass(frozen=True)
class TorusRoutes:
    """Dimension order; where a link of it is down, the fewest hops."""

    network: Network
    torus: Torus
    detour: GraphRoutes

    def route(self, pairs: Pairs, members: Bools, amount: float) -> Routed:
        """Route some pairs, and ``amount`` bytes from each member to every other one."""
        torus = self.torus
        if not self._whole and amount > 0:
            pairs, amount = joined(pairs, uniform_demand(members, amount).pairs()), 0.0
        found = nothing_routed(self.network)
        left = NO_PAIRS
        if not self._whole:
            bad = torus.blocked(pairs.sources, pairs.targets)
            left, pairs = pairs.where(bad), pairs.where(~bad)
        moves = torus.pair_moves(pairs)
        if amount > 0:
            moves = [a + b for a, b in zip(moves, torus.uniform_moves(members, amount), strict=True)]
            found.longest_s = torus.uniform_hops(members, self._latency_s)
        found.load_bytes = torus.load(moves, self.network.links)
        found.tier_bytes = self._tier_bytes(pairs, members, amount)
        longest = torus.pair_hops(pairs.sources, pairs.targets, self._latency_s)
        found.longest_s = max(found.longest_s, float(longest.max(initial=0.0)))
        if len(left.sources):
            found.add(self.detour.route(left, np.zeros_like(members), 0.0))
        return found

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair."""
        direct = self.torus.pair_hops(sources, targets, self._latency_s)
        if self._whole or not (bad := self.torus.blocked(sources, targets)).any():
            return direct
        direct[bad] = self.detour.seconds(sources[bad], targets[bad])
        return direct

    @property
    def _whole(self) -> bool:
        """Whether no link of the grid is missing."""
        torus = self.torus
        lines = [(size, wrap) for size, wrap in zip(torus.shape, torus.wrap, strict=True) if size > 1]
        ends = sum(torus.size if wrap else torus.size // size * (size - 1) for size, wrap in lines)
        return int((torus.plus >= 0).sum()) == ends

    @property
    def _latency_s(self) -> Floats:
        """``[dimensions]`` seconds of one hop."""
        latency = self.network.latency_s
        rows = [row[row >= 0] for row in self.torus.plus]
        return np.array([latency[row].max(initial=0.0) if len(row) else 0.0 for row in rows])

    def _tier_bytes(self, pairs: Pairs, members: Bools, amount: float) -> Floats:
        """Return the bytes that move in any dimension of each tier."""
        torus, found = self.torus, np.zeros(len(self.network.tiers))
        rows = [np.unique(self.network.tier[row[row >= 0]]) for row in torus.plus]
        here, there = torus.places(pairs.sources), torus.places(pairs.targets)
        grid = torus.places(np.flatnonzero(members))
        count = int(members.sum())
        for tier in np.unique(np.concatenate(rows)) if rows else []:
            mine = [k for k, row in enumerate(rows) if tier in row]
            moves = (here[mine] != there[mine]).any(axis=0)
            found[tier] = pairs.amounts[moves].sum()
            if amount > 0:
                # all pairs, less those that agree in every dimension of this tier
                _, alike = np.unique(grid[mine], axis=1, return_counts=True)
                found[tier] += amount * (count**2 - float((alike.astype(float) ** 2).sum()))
        return found
