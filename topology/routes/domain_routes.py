"""Routes inside one scale-up domain, by its structure: switched, full mesh, torus, or whatever a raw graph has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topology.routes.demand import Demands, PairDemand, summed, uniform_demand
from topology.routes.ecmp import route_ecmp
from topology.routes.network import Network
from topology.routes.routed import Attempt, Routed, nothing_routed, route_first_way
from topology.routes.torus import Torus, torus_of
from topology.spec import DomainSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


_DETOUR = "some pairs have no direct route left and take fewest hops through other GPUs"
_OUTSIDE = "some pairs of one domain have no scale-up route and take links outside it"
_THROUGH = "some pairs have no route but through other GPUs, which forward for them"
_WHERE = "over the scale-up links of its domain"


class DomainRoutes(Protocol):
    """Routes between the GPUs of one domain, which are numbered from 0 here."""

    def route(self, pairs: PairDemand, members: Bools, amount: float) -> Routed:
        """Route some pairs, and ``amount`` bytes from each member to every other one."""

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair."""


def domain_routes(network: Network, domain: int, spec: DomainSpec, gpus: Ints) -> DomainRoutes:
    """Return the routes of a domain, whose GPUs have the numbers ``gpus`` in the network."""
    links = network.links_of_domain(domain)
    if spec.structure == "torus":
        return TorusRoutes(network, torus_of(network, spec, gpus), links, gpus)
    if spec.structure == "mesh":
        return MeshRoutes(network, links, gpus)
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

    def route(self, pairs: PairDemand, members: Bools, amount: float) -> Routed:
        """Route some pairs, and ``amount`` bytes from each member to every other one."""
        demand = Demands(len(self.gpus), [pairs, uniform_demand(members, amount)])
        return route_first_way(self.network, self.attempts, self.gpus, demand, _WHERE)

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair."""
        found = np.full(len(sources), -np.inf)
        demand = PairDemand(len(self.gpus), sources, targets, np.ones(len(sources)))
        for attempt in self.attempts:
            result = route_ecmp(self.network, attempt.links, self.gpus, demand, forward=attempt.forward)
            here = result.latency_s[result.labels[sources], result.labels[targets]]
            found = np.where(np.isinf(found), here, found)
            if np.isfinite(found).all():
                break
        return found


@dataclass(frozen=True)
class MeshRoutes:
    """The direct link; where it is down, the fewest hops through other GPUs."""

    network: Network
    links: Ints
    gpus: Ints

    def route(self, pairs: PairDemand, members: Bools, amount: float) -> Routed:
        """Route some pairs, and ``amount`` bytes from each member to every other one."""
        network = self.network
        sources, targets, amounts = pairs.pairs()
        found = nothing_routed(network)
        taking = np.zeros(len(network.names), dtype=bool)
        taking[self.gpus[members]] = True
        ends = taking[network.tail[self.links]] & taking[network.head[self.links]]
        used = self.links[ends]
        found.load_bytes[used] = amount
        count = int(members.sum())
        if amount > 0 and len(used) < count * (count - 1):
            demand = uniform_demand(members, amount).pairs()
            away = network.link_between(self.gpus[demand[0]], self.gpus[demand[1]]) < 0
            sources, targets, amounts = (
                np.concatenate([a, b[away]]) for a, b in zip((sources, targets, amounts), demand, strict=True)
            )
        link = network.link_between(self.gpus[sources], self.gpus[targets])
        direct = link >= 0
        found.load_bytes += summed(link[direct], amounts[direct], network.links)
        np.add.at(found.tier_bytes, network.tier[self.links], found.load_bytes[self.links])
        busy = found.load_bytes > 0
        found.longest_s = float(network.latency_s[busy].max(initial=0.0))
        if not direct.all():
            left = PairDemand(len(self.gpus), sources[~direct], targets[~direct], amounts[~direct])
            found.add(_detour(network, self.links, self.gpus, left))
        return found

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair."""
        link = self.network.link_between(self.gpus[sources], self.gpus[targets])
        detour = GraphRoutes(self.network, [Attempt(self.links, forward=True)], self.gpus)
        if (link >= 0).all():
            return self.network.latency_s[link]
        return np.where(link >= 0, self.network.latency_s[link], detour.seconds(sources, targets))


@dataclass(frozen=True)
class TorusRoutes:
    """Dimension order; where a link of it is down, the fewest hops."""

    network: Network
    torus: Torus
    links: Ints
    gpus: Ints

    def route(self, pairs: PairDemand, members: Bools, amount: float) -> Routed:
        """Route some pairs, and ``amount`` bytes from each member to every other one."""
        torus = self.torus
        if not self._whole and amount > 0:
            both = Demands(len(self.gpus), [pairs, uniform_demand(members, amount)]).pairs()
            pairs, amount = PairDemand(len(self.gpus), *both), 0.0
        sources, targets, amounts = pairs.pairs()
        found = nothing_routed(self.network)
        left = None
        if not self._whole:
            bad = torus.blocked(sources, targets)
            left = PairDemand(len(self.gpus), sources[bad], targets[bad], amounts[bad])
            pairs = PairDemand(len(self.gpus), sources[~bad], targets[~bad], amounts[~bad])
        moves = torus.pair_moves(pairs)
        if amount > 0:
            moves = [a + b for a, b in zip(moves, torus.uniform_moves(members, amount), strict=True)]
            found.longest_s = torus.uniform_hops(members, self._latency_s)
        found.load_bytes = torus.load(moves, self.network.links)
        found.tier_bytes = self._tier_bytes(pairs, members, amount)
        longest = torus.pair_hops(pairs.sources, pairs.targets, self._latency_s)
        found.longest_s = max(found.longest_s, float(longest.max(initial=0.0)))
        if left is not None and len(left.sources):
            found.add(_detour(self.network, self.links, self.gpus, left))
        return found

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair."""
        direct = self.torus.pair_hops(sources, targets, self._latency_s)
        if self._whole or not (bad := self.torus.blocked(sources, targets)).any():
            return direct
        detour = GraphRoutes(self.network, [Attempt(self.links, forward=True)], self.gpus)
        direct[bad] = detour.seconds(sources[bad], targets[bad])
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

    def _tier_bytes(self, pairs: PairDemand, members: Bools, amount: float) -> Floats:
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


def _detour(network: Network, links: Ints, gpus: Ints, demand: PairDemand) -> Routed:
    """Route pairs that lost their own way over the fewest hops, GPUs forwarding."""
    attempt = Attempt(links, forward=True, note=_DETOUR)
    return route_first_way(network, [attempt], gpus, demand, _WHERE)
