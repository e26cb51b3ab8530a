"""Equal-cost multi-path: every fewest-hop route, shared at each hop in proportion to parallel links.

Routers hash flows over their equal-cost next hops (RFC 2992), so the share is decided hop by hop; many flows
together share evenly. GPUs do not forward for others unless ``forward`` says so. Destinations are handled many at a
time: the hop counts are a breadth-first search from the destinations, then bytes are pushed from the farthest nodes
inwards.

The graph is contracted first: GPUs that are linked alike become one terminal. Two cases keep the loads exact. GPUs
that hang on one switch: a GPU's own link carries all that it sends or receives. And planes: where every GPU has one
neighbour in each of the same separate parts of the network, with the same number of links to each part, and each
part is as short a way to every peer, then every route keeps to the plane it began in and each plane carries the same
share of everything. That the ways are as short is known after the search only (:attr:`Contracted.whole`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from topology.errors import InputError
from topology.routes.demand import Demand, Pairs, summed
from topology.routes.network import Bools, Floats, Ints, Network, connected_parts


@dataclass(frozen=True)
class Contracted:
    """A network between classes of terminals.

    A class has an ``exit`` node that links only leave and an ``entry`` node that links only enter, so nothing
    passes through it; they are one node where terminals forward.

    Attributes
    ----------
    labels:
        ``[terminals]`` class of each.
    exit, entry:
        ``[classes]`` nodes.
    tail, head, weight, latency_s, tier:
        Its links.
    origin:
        ``[links given]`` which of its links represents each link given.
    sender, receiver, part:
        ``[links given]`` the one terminal that sends, or receives, what the link carries, and the part of all its
        bytes that is; -1 where the link is one of those here.
    whole:
        ``[classes]`` links that fewest-hop routes from a class must begin with for its planes to be alike; empty
        where there are no planes.
    """

    nodes: int
    classes: int
    labels: Ints
    exit: Ints
    entry: Ints
    tail: Ints
    head: Ints
    weight: Floats
    latency_s: Floats
    tier: Ints
    origin: Ints
    sender: Ints
    receiver: Ints
    part: Floats
    whole: Floats

    def spread(self, load_bytes: Floats, sent: Floats, received: Floats) -> Floats:
        """Return the bytes on each link given, from those on the links here and the sums of each terminal."""
        load = load_bytes[self.origin] if len(self.origin) else np.zeros(0)
        load = np.where(self.sender >= 0, self.part * sent[self.sender], load)
        return np.where(self.receiver >= 0, self.part * received[self.receiver], load)


def contract(
    network: Network, links: Ints, terminals: Ints, *, forward: bool, planes: bool = True
) -> Contracted:
    """Contract the given links of ``network`` around its ``terminals`` (GPU numbers); ``planes``: those too."""
    place = np.full(len(network.names), -1, dtype=np.int64)
    place[terminals] = np.arange(len(terminals))
    tail, head = network.tail[links], network.head[links]
    ends = _Ends(network, links, place, len(terminals))
    labels, part = np.arange(len(terminals)), np.full(len(links), np.nan)
    planes = planes and not forward and ends.in_planes
    if planes:
        labels, part = ends.plane_classes()
    elif not forward:
        labels, part = ends.lone_classes()
    classes = int(labels.max(initial=-1)) + 1
    middle = np.setdiff1d(np.union1d(tail, head), terminals)
    inner = np.full(len(network.names), -1, dtype=np.int64)
    inner[middle] = np.arange(len(middle))
    exits = len(middle) + np.arange(classes)
    entries = exits if forward else exits + classes
    new_tail, new_head = inner[tail], inner[head]
    out, into = place[tail] >= 0, place[head] >= 0
    new_tail[out] = exits[labels[place[tail[out]]]]
    new_head[into] = entries[labels[place[head[into]]]]
    nodes = len(middle) + (classes if forward else 2 * classes)
    kept, origin = np.unique(new_tail * nodes + new_head, return_inverse=True)
    first = np.zeros(len(kept), dtype=np.int64)
    first[origin[::-1]] = np.arange(len(links))[::-1]
    known = ~np.isnan(part)
    weight = network.weight[links][first]
    whole = summed(new_tail[first], weight, nodes)[exits] if planes else np.zeros(0)
    return Contracted(
        nodes=nodes,
        classes=classes,
        labels=labels,
        exit=exits,
        entry=entries,
        tail=new_tail[first],
        head=new_head[first],
        weight=weight,
        latency_s=network.latency_s[links][first],
        tier=network.tier[links][first],
        origin=origin,
        sender=np.where(out & known, place[tail], -1),
        receiver=np.where(into & known, place[head], -1),
        part=np.nan_to_num(part),
        whole=whole,
    )


class _Ends:
    """The terminals' own links: who has which neighbours."""

    def __init__(self, network: Network, links: Ints, place: Ints, terminals: int) -> None:
        self._net, self._links, self._place, self._count = network, links, place, terminals
        self._tail, self._head = network.tail[links], network.head[links]
        self._out = np.flatnonzero(place[self._tail] >= 0)
        self._who = place[self._tail[self._out]]
        self._degree = np.bincount(self._who, minlength=terminals)
        self._direct = bool((place[self._head[self._out]] >= 0).any())
        # what must agree for two links to the same neighbour to be alike
        self._alike = np.stack([network.latency_s[links], network.tier[links], self._head], axis=1)

    @property
    def in_planes(self) -> bool:
        """Whether each terminal has one neighbour in each of the same parts of the network, by the same links."""
        if (
            not len(self._out)
            or self._direct
            or self._degree.min() != self._degree.max()
            or self._degree[0] < 2
        ):
            return False
        plane = self._plane[self._head[self._out]]
        names, count = np.unique(plane, return_counts=True)
        if len(names) != self._degree[0] or (count != self._count).any():
            return False
        if len(np.unique(self._who * len(self._net.names) + plane)) != len(plane):
            return False
        weight = self._net.weight[self._links[self._out]]
        least = np.full(len(self._net.names), np.inf)
        np.minimum.at(least, plane, weight)
        return bool((weight == least[plane]).all())

    def plane_classes(self) -> tuple[Ints, Floats]:
        """Return the class of each terminal, those with the same neighbours, and the part that each link carries."""
        order = np.lexsort((self._plane[self._head[self._out]], self._who))
        rows = self._alike[self._out][order].reshape(self._count, -1)
        _, labels = np.unique(rows, axis=0, return_inverse=True)
        weight = self._net.weight[self._links]
        whole = float(weight[self._out].sum()) / self._count
        end = (self._place[self._tail] >= 0) | (self._place[self._head] >= 0)
        return labels.reshape(-1), np.where(end, weight / whole, np.nan)

    def lone_classes(self) -> tuple[Ints, Floats]:
        """Return the same where only terminals with one neighbour, no terminal itself, are classes of several."""
        place = self._place
        lone = self._degree == 1
        lone[self._who[place[self._head[self._out]] >= 0]] = False
        alike = np.zeros((self._count, self._alike.shape[1]))
        alike[self._who] = self._alike[self._out]
        own = np.where(lone, -1, np.arange(self._count))
        _, labels = np.unique(np.column_stack([own, alike * lone[:, None]]), axis=0, return_inverse=True)
        part = np.full(len(self._links), np.nan)
        for ends in (self._tail, self._head):
            mine = np.flatnonzero(place[ends] >= 0)
            part[mine[lone[place[ends[mine]]]]] = 1.0
        return labels.reshape(-1), part

    @cached_property
    def _plane(self) -> Ints:
        """``[nodes]`` part of the network that a node is in when the terminals are taken away."""
        inner = (self._place[self._tail] < 0) & (self._place[self._head] < 0)
        return connected_parts(self._tail[inner], self._head[inner], len(self._net.names))


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
    missing: Bools

    def lost(self, pairs: Pairs) -> Bools:
        """Return which of some pairs have no route."""
        return np.asarray(self.missing[self.labels[pairs.sources], self.labels[pairs.targets]])

    def seconds(self, pairs: Pairs) -> Floats:
        """Return the seconds of the longest route of each of some pairs."""
        return np.asarray(self.latency_s[self.labels[pairs.sources], self.labels[pairs.targets]])


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
    load = small.spread(router.load_bytes, demand.sent(len(terminals)), demand.received(len(terminals)))
    return EcmpResult(load, router.tier_bytes, router.latency_s, small.labels, router.missing)


def _pushed(small: Contracted, demand: Demand, tiers: int) -> _Flow:
    """Push a demand through a contracted network."""
    between = demand.between(small.labels, small.classes)
    router = _Flow(small, tiers)
    wanted = np.flatnonzero(between.any(axis=0))
    step = max(1, _CHUNK_CELLS // max(1, len(small.tail)))
    for first in range(0, len(wanted), step):
        if router.uneven:
            break
        chunk = wanted[first : first + step]
        router.push(between[:, chunk], chunk)
    return router


class _Flow:
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


@dataclass
class Routed:
    """Bytes on each link and tier of a network, seconds of the longest route used, and what a reader must know."""

    load_bytes: Floats
    tier_bytes: Floats
    longest_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    @classmethod
    def over(cls, network: Network, links: Ints, result: EcmpResult) -> Routed:
        """Return what was routed over some links of a network."""
        found = nothing_routed(network)
        found.load_bytes[links] = result.load_bytes
        found.tier_bytes = result.tier_bytes
        found.longest_s = float(result.latency_s.max(initial=0.0))
        return found

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
            pairs = demand.pairs()
            bad = result.lost(pairs)
            left = pairs.where(bad)
            if bad.all():
                demand = left
                continue
            demand = pairs.where(~bad)
            result = route_ecmp(network, attempt.links, terminals, demand, forward=attempt.forward)
        one = Routed.over(network, attempt.links, result)
        one.notes = [attempt.note] if attempt.note else []
        found.add(one)
        if left is None:
            return found
        demand = left
    sources, targets, amounts = demand.pairs()
    raise unreachable(network, Pairs(terminals[sources], terminals[targets], amounts), where)


def unreachable(network: Network, pairs: Pairs, where: str) -> InputError:
    """Return the error that names the first of some pairs of GPUs which no route joins."""
    a, b = network.names[pairs.sources[0]], network.names[pairs.targets[0]]
    count = len(pairs.sources) - 1
    more = f" (nor do {count:,} other pairs)" if count else ""
    return InputError(
        f"traffic: GPU {a} does not reach GPU {b} {where}{more}; mend the links, or give the GPU as broken."
    )
