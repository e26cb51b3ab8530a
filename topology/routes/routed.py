"""What routing some bytes did: bytes on links and tiers, and the latency of the longest route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from topology.errors import InputError
from topology.routes.demand import Demand, PairDemand
from topology.routes.ecmp import route_ecmp
from topology.routes.network import Network

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class Routed:
    """Bytes on each link and tier of a network, seconds of the longest route used, and what a reader must know."""

    load_bytes: Floats
    tier_bytes: Floats
    longest_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    def add(self, other: Routed) -> None:
        """Add what other bytes did."""
        self.load_bytes += other.load_bytes
        self.tier_bytes += other.tier_bytes
        self.longest_s = max(self.longest_s, other.longest_s)
        self.notes += [note for note in other.notes if note not in self.notes]


def nothing_routed(network: Network) -> Routed:
    """Return empty links."""
    return Routed(np.zeros(network.links), np.zeros(len(network.tiers)))


@dataclass(frozen=True)
class Attempt:
    """Some links to route over, whether GPUs forward there, and the note where this is not the usual way."""

    links: Ints
    forward: bool = False
    note: str = ""


def route_first_way(
    network: Network, attempts: Sequence[Attempt], terminals: Ints, demand: Demand, where: str
) -> Routed:
    """Route each pair over the first of ``attempts`` that joins it.

    Raises
    ------
    InputError
        If none joins some pair; the message names one.
    """
    found = nothing_routed(network)
    for attempt in attempts:
        result = route_ecmp(network, attempt.links, terminals, demand, forward=attempt.forward)
        left = None
        if result.missing.any():
            sources, targets, amounts = demand.pairs()
            bad = result.missing[result.labels[sources], result.labels[targets]]
            left = PairDemand(len(terminals), sources[bad], targets[bad], amounts[bad])
            if bad.all():
                demand = left
                continue
            demand = PairDemand(len(terminals), sources[~bad], targets[~bad], amounts[~bad])
            result = route_ecmp(network, attempt.links, terminals, demand, forward=attempt.forward)
        one = nothing_routed(network)
        one.load_bytes[attempt.links] = result.load_bytes
        one.tier_bytes = result.tier_bytes
        one.longest_s = float(result.latency_s.max(initial=0.0))
        one.notes = [attempt.note] if attempt.note else []
        found.add(one)
        if left is None:
            return found
        demand = left
    sources, targets, _ = demand.pairs()
    raise unreachable(network, terminals[sources], terminals[targets], where)


def unreachable(network: Network, sources: Ints, targets: Ints, where: str) -> InputError:
    """Return the error that names the first of some pairs of GPUs which no route joins."""
    a, b = network.names[sources[0]], network.names[targets[0]]
    more = f" (nor do {len(sources) - 1:,} other pairs)" if len(sources) > 1 else ""
    return InputError(
        f"traffic: GPU {a} does not reach GPU {b} {where}{more}; mend the links, or give the GPU as broken."
    )
