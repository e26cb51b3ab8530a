"""Smaller graphs for routing: GPUs that are linked alike become one terminal.

Two cases keep the loads exact. GPUs that hang on one switch: a GPU's own link carries all that it sends or receives.
And planes: where every GPU has one neighbour in each of the same separate parts of the network, with the same number
of links to each part, and each part is as short a way to every peer, then every route keeps to the plane it began in
and each plane carries the same share of everything. That the ways are as short is known after the search only
(:attr:`Contracted.whole`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from topology.routes.demand import summed
from topology.routes.network import Network

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
        ``[links given]`` which of its links stands for each link given.
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
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        inner = (self._place[self._tail] < 0) & (self._place[self._head] < 0)
        shape = (len(self._net.names),) * 2
        joined = csr_array((np.ones(int(inner.sum())), (self._tail[inner], self._head[inner])), shape=shape)
        return np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)
