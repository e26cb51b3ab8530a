"""Routes inside the scale-up domains of a cluster: all domains that are linked alike at once, the others in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topology.routes.demand import PairDemand, Pairs, summed
from topology.routes.domain_routes import DomainRoutes, domain_routes
from topology.routes.network import Network
from topology.routes.routed import Routed, nothing_routed
from topology.routes.switched import alike_domains, chip_share
from topology.spec import DomainSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ScaleUp:
    """Routes between GPUs of one domain; ``specs`` are the domains of the cluster."""

    def __init__(self, network: Network, specs: Sequence[DomainSpec]) -> None:
        self._net = network
        self._specs = specs
        self._domain = network.domain[: network.gpus]
        self._first = np.searchsorted(self._domain, np.arange(len(specs) + 1))
        self._size = np.diff(self._first)
        switched = np.array([spec.structure == "switch" for spec in specs], dtype=bool)
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
        sources, targets, amounts = pairs
        taking = np.bincount(self._domain[members], minlength=len(self._specs))
        alike = self._alike[self._domain[sources]]
        found = self._route_alike(
            (sources[alike], targets[alike], amounts[alike]),
            members,
            amount * (taking - 1).astype(np.float64),
        )
        rest = np.flatnonzero(~alike)
        rest = rest[np.argsort(self._domain[sources[rest]], kind="stable")]
        parts = np.searchsorted(self._domain[sources[rest]], np.arange(len(self._specs) + 1))
        busy = (np.diff(parts) > 0) | ((taking > 1) & (amount > 0))
        for domain in np.flatnonzero(busy & ~self._alike):
            mine = rest[parts[domain] : parts[domain + 1]]
            first, last = self._first[domain], self._first[domain + 1]
            some = PairDemand(int(last - first), sources[mine] - first, targets[mine] - first, amounts[mine])
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
        sent = summed(pairs[0], pairs[2], network.gpus) + own
        received = summed(pairs[1], pairs[2], network.gpus) + own
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
