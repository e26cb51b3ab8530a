"""A network between classes of nodes that are linked alike: what fewest-hop routes need of it, and no more.

A GPU with one link hangs on its switch. Nodes with the same neighbours by the same links (*twins*: GPUs on the same
switch chips, leaves cabled alike, spines of one plane) are one class: routes between others pass all of them evenly,
and a route of a twin never passes another. What a twin itself sends and hears is kept apart from what passes through:
its class has an exit, an entry and a node for transit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from topology.graph import NODE_KINDS, SCALE_OUT_KINDS
from topology.routes.demand import ones_at
from topology.routes.network import Bools, Floats, Ints, Network

PLAIN, EXIT, ENTRY = range(3)
_LINKS_PER_STEP = 16  # links to look at for one number kept, at least
_MAX_BUCKETS = 16  # whose steps are put in order one by one
_NO_ROUTE = -100  # hops where there is no route: no difference to it is one, in 8 bits too


@dataclass(frozen=True)
class Ways:
    """Fewest-hop routes to some targets, one a column: their steps, those of one hop after those of the next.

    A state is a node and a column, ``node * columns + column``. ``first [hops + 1]`` is where the steps of each
    number of hops begin.
    """

    columns: int
    hops: Any
    link: Ints
    column: Ints
    tail: Ints
    head: Ints
    share: Floats
    first: Ints

    def inwards(self) -> Iterator[slice]:
        """Yield the steps from the nearest to the farthest."""
        for hop in range(1, len(self.first) - 1):
            yield slice(self.first[hop], self.first[hop + 1])

    def outwards(self) -> Iterator[slice]:
        """Yield the steps from the farthest to the nearest."""
        yield from reversed(list(self.inwards()))

    def longest(self, latency_s: Floats) -> Floats:
        """Return ``[nodes, columns]`` seconds of the longest of the routes, -inf where there is none."""
        if len(latency_s) and latency_s.min() == latency_s.max():
            return np.where(self.hops < 0, -np.inf, self.hops * latency_s[0])
        seconds = np.where(self.hops.reshape(-1) == 0, 0.0, -np.inf)
        for step in self.inwards():
            ahead = seconds[self.head[step]] + latency_s[self.link[step]]
            np.maximum.at(seconds, self.tail[step], ahead)
        return seconds.reshape(-1, self.columns)

    def crossing(self, inside: Bools) -> Floats:
        """Return ``[nodes, columns]`` the part of the bytes that takes a link of those ``inside``."""
        part = np.zeros(self.hops.size)
        for step in self.inwards():
            crosses = np.where(inside[self.link[step]], 1.0, part[self.head[step]])
            part += np.bincount(self.tail[step], self.share[step] * crosses, len(part))
        return part.reshape(-1, self.columns)

    def push(self, flow: Floats) -> Iterator[tuple[slice, Floats]]:
        """Move ``flow [states, kinds]`` to the targets; yield steps and what takes them, ``[steps, kinds]``."""
        for step in self.outwards():
            moved = flow[self.tail[step]] * self.share[step, None]
            flow += added(self.head[step], moved, len(flow))
            yield step, moved


def added(index: Ints, rows: Floats, size: int) -> Floats:
    """Return ``[size, columns]`` sums of ``rows`` by ``index``."""
    if rows.shape[1] == 1:
        return np.bincount(index, rows[:, 0], size)[:, None].astype(np.float64)
    return np.asarray(ones_at(index, np.arange(len(index)), (size, len(index))) @ rows)


class Classes:
    """The classes of a network.

    GPUs are those of ``gpus``, by their place there. Nodes are GPUs as senders, switches, GPUs as receivers.

    Attributes
    ----------
    lone, up, down:
        Which GPUs hang on a switch, and their link to it and from it.
    source, target:
        ``[gpus]`` node where the way of its bytes begins, and where that of bytes to it ends.
    senders, source_class:
        Nodes of the network between classes where bytes begin, and ``[gpus]`` which of them.
    receivers, target_class, target_rank, to_node:
        The same where they end; which of ``to_node``, the nodes that receive, those of a class together.
    tail, head, weight, latency_s, tier, kind:
        Links between classes; kind says whether a link is that of what a member sends, hears, or of neither.
    width:
        Numbers that the routes to one receiver take, as far as is known.
    spread:
        ``[links given, bundles]`` the part of each link in a bundle, those that share evenly.
    """

    def __init__(self, network: Network, gpus: Ints, links: Ints, *, forward: bool) -> None:
        self._forward = forward
        self._net, self._links = network, links
        tail, head, count = local_ends(network, gpus, links)
        self.nodes = len(gpus) + count
        self._hang(tail, head, len(gpus))
        self._share_nics()
        self._merge()
        self._aim()

    def _hang(self, tail: Ints, head: Ints, count: int) -> None:
        """Hang GPUs with one link on their switch: all that they send or receive is on it; keep the other links."""
        types, kind = self._net.types, self._net.type[self._links]
        latency, tier = types.latency_s[kind], types.tier[kind]
        out, into = tail < count, head < count
        self.up, self.down = np.zeros((2, count), dtype=np.int64)
        self.up[tail[out]], self.down[head[into]] = np.flatnonzero(out), np.flatnonzero(into)
        lone = (np.bincount(tail[out], minlength=count) == 1) & (not self._forward)
        lone[tail[out & into]] = False
        self.own_tier, self.own_s = -1, 0.0
        if lone.any():
            # the commonest latency and tier of them; the rest stay nodes
            up = self.up[lone]
            kinds, which, often = np.unique(
                np.stack([latency[up], tier[up]]), axis=1, return_inverse=True, return_counts=True
            )
            commonest = int(often.argmax())
            self.own_s, self.own_tier = float(kinds[0, commonest]), int(kinds[1, commonest])
            lone[np.flatnonzero(lone)[which.reshape(-1) != commonest]] = False
        self.lone = lone
        places = np.arange(count)
        entry = places if self._forward else places + self.nodes - count
        on = head[self.up] if len(head) else places
        self.source, self.target = np.where(lone, on, places), np.where(lone, on, entry)
        self.inner = np.flatnonzero(
            ~(out & lone[np.where(out, tail, 0)]) & ~(into & lone[np.where(into, head, 0)])
        )
        enters = into[self.inner]
        self._tail, self._head = tail[self.inner], head[self.inner]
        self._head = np.where(enters, entry[np.where(enters, self._head, 0)], self._head)

    def _share_nics(self) -> None:
        """Let GPUs and PCIe switches that are twins but for their own NICs share the NICs to a leaf.

        A NIC between one of them and a leaf passes on what it hears. All of them to one leaf become one node for what
        goes up and one for what comes down, so that no route turns round there. ``_outer`` is the link, of those
        inside, that carries the same as a NIC's other one; -1 where there is none.
        """
        net, inner_links = self._net, self._links[self.inner]
        tail, head, kind = self._tail, self._head, net.type[inner_links].astype(np.int64)
        self._outer = np.full(len(inner_links), -1, dtype=np.int64)
        kinds = np.full(self.nodes, -1, dtype=np.int64)
        kinds[tail], kinds[head] = net.kinds[net.tail[inner_links]], net.kinds[net.head[inner_links]]
        leaf = np.isin(kinds, [NODE_KINDS.index(switch) for switch in SCALE_OUT_KINDS])
        nic = kinds == NODE_KINDS.index("nic")
        nic[self.source] = nic[self.target] = False
        for end, far in ((tail, head), (head, tail)):
            for on_leaf in (leaf[far], ~leaf[far]):
                nic &= np.bincount(end[on_leaf], minlength=self.nodes) == 1
        if self._forward or not nic.any():
            return

        def links_of(end: Ints, far: Ints, *, on_leaf: bool) -> Ints:
            links = np.flatnonzero(nic[end] & (leaf[far] == on_leaf))
            return links[np.argsort(end[links])]

        up, up_outer = links_of(head, tail, on_leaf=False), links_of(tail, head, on_leaf=True)
        down, down_outer = links_of(tail, head, on_leaf=False), links_of(head, tail, on_leaf=True)
        self._outer[up], self._outer[down] = up_outer, down_outer
        users, node_count = np.zeros((2, len(up)), dtype=np.int64), self.nodes
        for _ in range(2):  # as if all users were twins, then by those that are
            tail, head = self._tail.copy(), self._head.copy()
            sides = ((up, up_outer, head[up_outer]), (down, down_outer, tail[down_outer]))
            self.nodes = node_count
            for number, (inner, outer, leaves) in enumerate(sides):
                facts = np.stack([leaves, kind[inner], kind[outer], users[number]])
                merged = np.unique(facts, axis=1, return_inverse=True)[1].reshape(-1) + self.nodes
                for link, ends in ((inner, (head, tail)), (outer, (tail, head))):
                    ends[number][link] = merged
                self.nodes += len(up)
            known = twins(tail, head, kind, self.nodes)
            users = np.stack([known[tail[up]], known[head[down]]])
        self._tail, self._head = tail, head

    def _merge(self) -> None:
        """Merge twins to classes, and make the links between classes."""
        from scipy.sparse import csr_array

        net, inner_links = self._net, self._links[self.inner]
        kind_of = net.type[inner_links]
        weight = net.types.weight[kind_of]
        labels = np.arange(self.nodes)
        if not self._forward:
            labels = twins(self._tail, self._head, kind_of.astype(np.int64), self.nodes)
        bears = np.zeros(self.nodes, dtype=bool)
        bears[self.source] = bears[self.target] = True
        alone = bears.copy()  # a switch with no link but to GPUs is no twin of another
        alone[self._tail] = alone[self._head] = False
        labels = np.where(alone, self.nodes + np.arange(self.nodes), labels)
        labels, size, split = _apart(labels, bears, self._tail, self._head)
        extra = len(size) + 2 * np.cumsum(split) - 2
        self.exit = np.where(split, extra, np.arange(len(size)))[labels]
        self._entry = np.where(split, extra + 1, np.arange(len(size)))[labels]
        self.count = len(size) + 2 * int(split.sum())
        a, b = labels[self._tail], labels[self._head]
        leaves, enters = np.flatnonzero(split[a]), np.flatnonzero(split[b])
        sources = np.concatenate([np.arange(len(a)), leaves, enters])
        tail = np.concatenate([a, self.exit[self._tail[leaves]], a[enters]])
        head = np.concatenate([b, b[leaves], self._entry[self._head[enters]]])
        none = np.full(len(a), -1, dtype=np.int64)
        member = np.concatenate([none, self._tail[leaves], self._head[enters]])
        kind = np.repeat([PLAIN, EXIT, ENTRY], [len(a), len(leaves), len(enters)])
        key, samples, link = np.unique(tail * self.count + head, return_index=True, return_inverse=True)
        self.tail, self.head = np.divmod(key, self.count)
        self.weight = np.bincount(link, weight[sources], len(key)) / size[a[sources[samples]]]
        kinds = kind_of[sources[samples]]
        self.latency_s, self.tier = net.types.latency_s[kinds], net.types.tier[kinds]
        self.kind = kind[samples]
        # links that share evenly what their class carries: a bundle
        self.bundles, bundle, often = np.unique(
            link * (self.nodes + 1) + member + 1, return_inverse=True, return_counts=True
        )
        shape = (len(self._links), len(often))
        outer = self._outer[sources]  # carries the same; what its class carries is of all
        unshared, shared = ~np.isin(sources, self._outer), np.flatnonzero(outer >= 0)
        chosen = np.concatenate([np.flatnonzero(unshared), shared])
        part, on = 1 / often[bundle[chosen]], np.concatenate([sources[unshared], outer[shared]])
        self.spread = csr_array((part, (self.inner[on], bundle[chosen])), shape=shape)
        self.width = max(1, len(key))
        ones = np.ones(len(key), dtype=np.float32)
        self._joins = csr_array((ones, (self.tail, self.head)), shape=(self.count, self.count))

    def _aim(self) -> None:
        """Number the classes that send and those that receive, with the nodes of a receiving class together."""
        self.senders, self.source_class = np.unique(self.exit[self.source], return_inverse=True)
        nodes = np.unique(self.target)
        to, which, members = np.unique(self._entry[nodes], return_inverse=True, return_counts=True)
        order = np.lexsort((nodes, which, members[which]))
        self.to_node = nodes[order]
        rank = np.zeros(self.nodes, dtype=np.int64)
        rank[self.to_node] = np.arange(len(nodes))
        self.target_rank = rank[self.target]
        by_size = np.argsort(members, kind="stable")
        self.receivers, self.members = to[by_size], members[by_size]
        self.begin = np.concatenate([[0], np.cumsum(self.members)])
        self.target_class = np.searchsorted(self.begin, self.target_rank, side="right") - 1
        self.lone_from, self.lone_to = (
            np.bincount(which[self.lone], minlength=size) > 0
            for which, size in ((self.source_class, len(self.senders)), (self.target_class, len(to)))
        )

    def bundle_of(self, link: Ints, member: Ints) -> Ints:
        """Return the bundle of links between classes; ``member`` is the node that sends or hears, else -1."""
        return np.asarray(np.searchsorted(self.bundles, link * (self.nodes + 1) + member + 1))

    def members_of(self, classes: Ints) -> Ints:
        """Return ``[classes, members]`` places among the nodes that receive; the classes have as many."""
        return self.begin[classes][:, None] + np.arange(self.members[classes[0]])

    def ways(self, targets: Ints) -> Ways:
        """Return the routes to some targets."""
        distinct, back = np.unique(targets, return_inverse=True)
        hops = np.full((self.count, len(distinct)), -1, dtype=np.int16)
        level = np.zeros(hops.shape, dtype=np.float32)
        level[distinct, np.arange(len(distinct))] = 1.0
        hop = 0
        while level.any():
            hops[level > 0] = hop
            hop += 1
            far = hops < 0
            if not far.any():
                break
            level = ((self._joins @ level > 0) & far).astype(np.float32)
        hops, columns = hops[:, back], len(targets)
        short = np.where(hops < 0, _NO_ROUTE, hops).astype(np.int8 if hop < -_NO_ROUTE else np.int16)
        # the flat index, for numpy finds it much faster than two
        steps = np.flatnonzero(np.take(short, self.tail, axis=0) - np.take(short, self.head, axis=0) == 1)
        link = steps // columns
        column = steps - link * columns
        far = short.reshape(-1)[self.tail[link] * columns + column]
        shallow = [np.flatnonzero(far == level) for level in range(hop if hop <= _MAX_BUCKETS else 0)]
        order = np.concatenate(shallow) if shallow else np.argsort(far, kind="stable")
        link, column, far = link[order], column[order], far[order]
        self.width = max(1, len(self.tail) // _LINKS_PER_STEP, 2 * len(link) // columns)
        tail, head = (ends[link] * columns + column for ends in (self.tail, self.head))
        weight = self.weight[link]
        share = weight / np.bincount(tail, weight, hops.size)[tail]
        return Ways(columns, hops, link, column, tail, head, share, np.searchsorted(far, np.arange(hop + 1)))

    @cached_property
    def sender_row(self) -> Ints:
        """``[nodes]`` row of each member of a class of several that sends, -1 for the other nodes."""
        row = np.full(self.nodes, -1, dtype=np.int64)
        link, member = np.divmod(self.bundles, self.nodes + 1)
        senders = np.unique(member[self.kind[link] == EXIT] - 1)
        row[senders] = np.arange(len(senders))
        return row

    @cached_property
    def by_bundle(self) -> Any:
        """Links by bundle, with the part of each."""
        return self.spread.tocsc()


def local_ends(network: Network, gpus: Ints, links: Ints) -> tuple[Ints, Ints, int]:
    """Return the ends of some links and how many nodes they have, numbered anew: some GPUs first, then the others."""
    tail, head = network.tail[links], network.head[links]
    ends = np.zeros(len(network.names), dtype=bool)
    ends[tail] = ends[head] = True
    ends[gpus] = False
    nodes = np.flatnonzero(ends)
    local = np.full(len(network.names), -1, dtype=np.int64)
    local[gpus], local[nodes] = np.arange(len(gpus)), len(gpus) + np.arange(len(nodes))
    return local[tail], local[head], len(gpus) + len(nodes)


def twins(tail: Ints, head: Ints, kind: Ints, nodes: int) -> Ints:
    """Return the class of each node: those with the same neighbours, both ways, by links of the same ``kind``."""
    ends, neighbours = np.concatenate([tail, head]), np.concatenate([head, tail])
    way = np.repeat([0, 1], len(tail))
    order = np.lexsort((neighbours, way, ends))
    rows = np.column_stack([way, neighbours, np.concatenate([kind, kind])])[order]
    starts = np.searchsorted(ends[order], np.arange(nodes + 1)).tolist()
    numbers: dict[bytes, int] = {}
    known = [numbers.setdefault(rows[a:b].tobytes(), len(numbers)) for a, b in pairwise(starts)]
    return np.array(known, dtype=np.int64)


def _apart(labels: Ints, bears: Bools, tail: Ints, head: Ints) -> tuple[Ints, Ints, Bools]:
    """Undo classes next to each other that both have GPUs; return classes, sizes, and which have GPUs of several."""
    for _ in range(2):
        labels = np.unique(labels, return_inverse=True)[1]
        size = np.bincount(labels)
        split = (np.bincount(labels, bears) > 0) & (size > 1)
        a, b = labels[tail], labels[head]
        adjacent = split[a] & split[b]
        smaller = np.where((size[a] < size[b]) | ((size[a] == size[b]) & (a < b)), a, b)[adjacent]
        undone = np.isin(labels, smaller)
        labels = np.where(undone, len(labels) + np.arange(len(labels)), labels)
    return np.unique(labels, return_inverse=True)[1], size, split
