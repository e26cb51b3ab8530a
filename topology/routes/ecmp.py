"""Equal-cost multi-path: every fewest-hop route, shared at each hop in proportion to parallel links.

Routers hash flows over their equal-cost next hops (RFC 2992), so the share is decided hop by hop; many flows together
share evenly. GPUs do not forward for others unless ``forward`` says so. Destinations are handled many at a time: the
hop counts are a breadth-first search from the destinations, then bytes are pushed from the farthest nodes inwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topology.routes.contract import Contracted, contract
from topology.routes.demand import Demand
from topology.routes.network import Network

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_CHUNK_CELLS = 4_000_000  # links x destinations held at once


@dataclass(frozen=True)
class EcmpResult:
    """What a demand does to some links.

    Attributes
    ----------
    load_bytes:
        ``[links given]`` bytes on each.
    tier_bytes:
        ``[tiers]`` bytes that crossed a tier, each once however many of its links it took.
    latency_s:
        ``[classes, classes]`` seconds of the longest route between two classes, -inf where none is used.
    labels:
        ``[terminals]`` class of each terminal.
    missing:
        ``[classes, classes]`` whether there are bytes between two classes but no route; those bytes are left out.
    """

    load_bytes: Floats
    tier_bytes: Floats
    latency_s: Floats
    labels: Ints
    missing: NDArray[np.bool_]


def route_ecmp(
    network: Network, links: Ints, terminals: Ints, demand: Demand, *, forward: bool = False
) -> EcmpResult:
    """Route ``demand`` between ``terminals`` (GPU numbers) over the given directed links of ``network``.

    With ``forward`` the terminals pass on traffic of others, as the chips of a torus do.
    """
    small = contract(network, links, terminals, forward=forward)
    router = _pushed(small, demand, len(network.tiers))
    if router.uneven:
        small = contract(network, links, terminals, forward=forward, planes=False)
        router = _pushed(small, demand, len(network.tiers))
    load = small.spread(router.load_bytes, demand.sent(), demand.received())
    return EcmpResult(load, router.tier_bytes, router.latency_s, small.labels, router.missing)


def _pushed(small: Contracted, demand: Demand, tiers: int) -> _Router:
    """Push a demand through a contracted network."""
    between = demand.between(small.labels, small.classes)
    router = _Router(small, tiers)
    wanted = np.flatnonzero(between.any(axis=0))
    step = max(1, _CHUNK_CELLS // max(1, len(small.tail)))
    for first in range(0, len(wanted), step):
        if router.uneven:
            break
        chunk = wanted[first : first + step]
        router.push(between[:, chunk], chunk)
    return router


class _Router:
    """Pushes bytes through a contracted network, a set of destinations at a time."""

    def __init__(self, small: Contracted, tiers: int) -> None:
        from scipy.sparse import csr_array

        self._net = small
        shape = (small.nodes, small.nodes)
        self._weights: Any = csr_array((small.weight, (small.tail, small.head)), shape=shape)
        self._back: Any = self._weights.T.tocsr()
        # for each tier the links outside it, over which bytes that have not crossed it yet move on
        self._outside: list[tuple[int, Any, Ints]] = []
        for tier in np.unique(small.tier):
            inside = np.flatnonzero(small.tier == tier)
            rest = np.flatnonzero(small.tier != tier)
            back = csr_array((small.weight[rest], (small.head[rest], small.tail[rest])), shape=shape)
            self._outside.append((int(tier), back, inside))
        order = np.argsort(small.tail, kind="stable")
        self._order = order
        self._starts = np.flatnonzero(np.diff(small.tail[order], prepend=-1))
        self._start_nodes = small.tail[order][self._starts]
        self.load_bytes = np.zeros(len(small.tail))
        self.tier_bytes = np.zeros(tiers)
        self.latency_s = np.full((small.classes, small.classes), -np.inf)
        self.missing = np.zeros((small.classes, small.classes), dtype=bool)
        self.uneven = False

    def push(self, between: Floats, targets: Ints) -> None:
        """Push ``between [classes, targets]`` bytes to the target classes."""
        net = self._net
        steps = self._levels(net.entry[targets])
        reached = np.any([level[net.exit] > 0 for level in steps], axis=0)
        self.missing[:, targets] = (between > 0) & ~reached
        used = (between > 0) & reached
        flow = np.zeros((net.nodes, len(targets)))
        flow[net.exit] = np.where(used, between, 0.0)
        fresh = {tier: flow.copy() for tier, _, _ in self._outside}
        for hop in range(len(steps) - 1, 0, -1):
            here, after = steps[hop], steps[hop - 1]
            onward = self._weights @ after
            if len(net.whole):
                begins = (here[net.exit] > 0) & used
                self.uneven |= bool((begins & (onward[net.exit] != net.whole[:, None])).any())
            share = np.divide(here, onward, out=np.zeros_like(onward), where=(here > 0) & (onward > 0))
            out = flow * share
            flow += after * (self._back @ out)
            sends, takes = np.asarray(out.any(axis=1)), np.asarray(after.any(axis=1))
            busy = np.flatnonzero(sends[net.tail] & takes[net.head])
            tail, head, weight = net.tail[busy], net.head[busy], net.weight[busy]
            self.load_bytes[busy] += weight * np.einsum("ij,ij->i", out[tail], after[head])
            for tier, back, inside in self._outside:
                new = fresh[tier] * share
                fresh[tier] += after * (back @ new)
                edge = inside[np.isin(inside, busy)]
                crossing = np.einsum("ij,ij->i", new[net.tail[edge]], after[net.head[edge]])
                self.tier_bytes[tier] += float(net.weight[edge] @ crossing)
        longest = self._longest(steps)
        self.latency_s[:, targets] = np.where(used, longest[net.exit], -np.inf)

    def _levels(self, entries: Ints) -> list[Floats]:
        """Return for 0, 1, ... hops which nodes are that far from each target: 1 or 0, ``[nodes, targets]``."""
        shape = (self._net.nodes, len(entries))
        seen = np.zeros(shape, dtype=bool)
        level = np.zeros(shape)
        level[entries, np.arange(len(entries))] = 1.0
        steps = []
        while level.any():
            steps.append(level)
            seen |= level > 0
            level = ((self._weights @ level > 0) & ~seen).astype(float)
        return steps

    def _longest(self, steps: list[Floats]) -> Floats:
        """Return the seconds of the longest fewest-hop route from each node to each target."""
        net = self._net
        seconds = np.full(steps[0].shape, -np.inf)
        seconds[steps[0] > 0] = 0.0
        tail, head, latency = (values[self._order] for values in (net.tail, net.head, net.latency_s))
        for hop in range(1, len(steps)):
            ahead = np.where(steps[hop - 1] > 0, seconds, -np.inf)
            best = np.full_like(seconds, -np.inf)
            if len(tail):
                best[self._start_nodes] = np.maximum.reduceat(
                    ahead[head] + latency[:, None], self._starts, axis=0
                )
            seconds = np.where(steps[hop] > 0, best, seconds)
        return seconds
