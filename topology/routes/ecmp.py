"""Equal-cost multi-path: every fewest-hop route, shared at each hop in proportion to parallel links.

Routers hash flows over their equal-cost next hops (RFC 2992), so the share is decided hop by hop; many flows
together share evenly. GPUs do not forward for others unless ``forward`` says so.

The work grows with classes of nodes (:mod:`topology.routes.classes`), not with nodes. Networks that are equal but for
their numbers (the domains of a cluster) are routed at once, as *copies*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from topology.base.errors import InputError
from topology.routes.classes import ENTRY, EXIT, PLAIN, Classes, Ways, added
from topology.routes.demand import Demand, members, runs
from topology.routes.network import Bools, Floats, Ints, Network

_MAX_CELLS = 2_000_000  # numbers in the largest arrays that are made at once


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


class Taken(NamedTuple):
    """Which links the bytes of pairs take: ``part[k]`` of pair number ``pair[k]`` is on link ``link[k]``."""

    link: Ints
    pair: Ints
    part: Floats

    @classmethod
    def none(cls) -> Taken:
        """Return no links."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))

    @classmethod
    def joined(cls, parts: Sequence[Taken]) -> Taken:
        """Return all of some; a link and a pair may come several times."""
        link, pair, part = (np.concatenate(column) for column in zip(cls.none(), *parts, strict=True))
        return cls(link, pair, part)

    def of(self, numbers: Ints) -> Taken:
        """Return the same where the pairs have other ``numbers``."""
        return Taken(self.link, numbers[self.pair], self.part)


class _Sums(NamedTuple):
    """Sums of a demand over the classes of a network.

    ``to_nodes`` are by sending class and receiving node, ``to_classes`` by sending node and receiving class,
    ``near [nodes, copies]`` are the bytes between GPUs that hang on one switch.
    """

    demand: Demand
    to_nodes: Demand
    to_classes: Demand
    near: Floats

    def without(self, cells: Floats, row: Ints, column: Ints, node: Ints) -> Floats:
        """Return ``cells`` without what stays at a switch, which is in a row and column for each node."""
        cells[row, column] -= self.near[node]
        cells[cells <= self.demand.least] = 0.0
        return cells


class Ecmp:
    """Routes between the GPUs of a network, or of several that are alike.

    Parameters
    ----------
    network:
        All nodes and links.
    places:
        ``[copies, terminals]`` numbers of the GPUs of each copy.
    links:
        ``[copies, links]`` directed links that the routes may take, in the same order in each copy. Of one copy of
        GPUs ``[planes, links]`` are of equal networks between them.
    parts:
        ``[planes]`` part of all bytes that takes each of those networks.
    forward:
        Whether GPUs pass on bytes of others.
    """

    def __init__(
        self,
        network: Network,
        places: Ints,
        links: Ints,
        parts: Floats | None = None,
        *,
        forward: bool = False,
    ) -> None:
        self._net, self._places = network, places
        self._planes = [(links, 1.0)] if parts is None else [*zip(links[:, None], parts, strict=True)]
        copies, count = places.shape
        self._copy = np.full(network.gpus, -1, dtype=np.int64)
        self._copy[places] = np.arange(copies)[:, None]
        self._place = np.zeros(network.gpus, dtype=np.int64)
        self._place[places] = np.arange(count)
        self._c = Classes(network, places[0], links[0], forward=forward)

    def _chunks(self, heard: Bools) -> Iterator[Ints]:
        """Yield receiving classes with a GPU of ``heard [terminals]``, those with as many members some at a time."""
        used = np.flatnonzero(np.bincount(self._c.target_class, heard, len(self._c.receivers)))
        while len(used):
            members = int(self._c.members[used[0]])
            count = _MAX_CELLS // max(self._c.width, self._c.count * members * len(self._places))
            end = min(max(1, count), int(np.argmin(np.append(self._c.members[used] == members, False))))
            yield used[:end]
            used = used[end:]

    def route(self, demands: Sequence[Demand], where: str) -> Routed:
        """Route the sum of some demands between the GPUs."""
        copies, routed = len(self._places), nothing_routed(self._net)
        none = np.zeros(self._net.gpus)
        sent = sum((demand.sent for demand in demands), none)[self._places]
        received = sum((demand.received for demand in demands), none)[self._places]
        sums = [self._sums(demand) for demand in demands]
        bundles, plain = np.zeros((len(self._c.bundles), copies)), np.zeros((len(self._c.tail), copies))
        for class_sums in sums:
            if class_sums.near.any():
                routed.longest_s = max(routed.longest_s, class_sums.demand.seconds + 2 * self._c.own_s)
                routed.tier_bytes[self._c.own_tier] += class_sums.near.sum()
        for classes in self._chunks(np.asarray(received.any(axis=0))):
            ways = self._c.ways(self._c.receivers[classes])
            longest = ways.longest(self._c.latency_s)[self._c.senders]
            longest += self._c.own_s * (self._c.lone_from[:, None] * 1.0 + self._c.lone_to[classes])
            shape = (len(self._c.senders), len(classes), int(self._c.members[classes[0]]), copies)
            bytes_to: Floats = np.zeros(shape)
            for class_sums in sums:
                part = self._to_nodes(class_sums, self._c.members_of(classes).reshape(-1)).reshape(shape)
                used = (part > 0).any(axis=(2, 3))
                if (missing := used & (ways.hops[self._c.senders] < 0)).any():
                    raise self._unreachable(class_sums.demand, missing, classes, where)
                routed.longest_s = max(
                    routed.longest_s, class_sums.demand.seconds + longest[used].max(initial=0.0)
                )
                bytes_to += part
            if bytes_to.any():
                self._add_tiers(routed, ways, bytes_to.sum(axis=(2, 3)), classes)
                self._add_loads(bundles, plain, ways, bytes_to, classes)
                self._add_exits(bundles, ways, sums, classes)
        shared = np.flatnonzero(self._c.kind == PLAIN)
        bundles[self._c.bundle_of(shared, np.full_like(shared, -1))] = plain[shared]
        loads = (self._c.spread @ bundles).T
        lone = np.flatnonzero(self._c.lone)
        loads[:, self._c.up[lone]], loads[:, self._c.down[lone]] = sent[:, lone], received[:, lone]
        for links, share in self._planes:
            routed.load_bytes[links] = share * loads
        return routed

    def refuse(self, demands: Sequence[Demand], where: str) -> None:
        """Reject bytes of demands that no route can be found for."""
        for demand in demands:
            cells = demand.between()
            if cells.data.any():
                pair = int(cells.data.argmax())
                raise unreachable(self._net, int(cells.row[pair]), int(cells.col[pair]), where)

    def _sums(self, demand: Demand) -> _Sums:
        """Return the sums of a demand over the classes."""
        (sources, nodes), (rows, classes), hung = self._members
        to_nodes, to_classes = demand.by_class(sources, nodes), demand.by_class(rows, classes)
        near = demand.by_class(hung, nodes).within().reshape(len(self._places), len(self._c.to_node)).T
        return _Sums(demand, to_nodes, to_classes, near)

    @cached_property
    def _members(self) -> tuple[tuple[Any, Any], tuple[Any, Any], Any]:
        """Who sends and receives as members of which classes, of which are summed to nodes, to classes, and near."""
        row = self._c.sender_row

        def of(local: Ints, size: int) -> Any:
            local_class = local[self._place]  # of each GPU of the cluster, -1 for those of no copy
            known = (self._copy >= 0) & (local_class >= 0)
            return members(np.where(known, self._copy * size + local_class, -1), len(self._places) * size)

        senders, nodes, rows = len(self._c.senders), len(self._c.to_node), int(row.max(initial=-1)) + 1
        ranks = of(self._c.target_rank, nodes)
        hung = of(np.where(self._c.lone, self._c.target_rank, -1), nodes)
        receivers = of(self._c.target_class, len(self._c.receivers))
        return (of(self._c.source_class, senders), ranks), (of(row[self._c.source], rows), receivers), hung

    def _to_nodes(self, sums: _Sums, ranks: Ints) -> Floats:
        """Return the bytes ``[sending classes, nodes, copies]`` to some of the nodes that receive."""
        cells = self._cells(sums.to_nodes, len(self._c.senders), ranks, len(self._c.to_node))
        sender = np.searchsorted(self._c.senders, self._c.exit[self._c.to_node[ranks]])
        return sums.without(cells, np.minimum(sender, len(self._c.senders) - 1), np.arange(len(ranks)), ranks)

    def _to_classes(self, sums: _Sums, classes: Ints) -> Floats:
        """Return the bytes ``[sending nodes, classes, copies]`` of members of classes to some receiving classes."""
        rows = int(self._c.sender_row.max(initial=-1)) + 1
        cells = self._cells(sums.to_classes, rows, classes, len(self._c.receivers))
        ranks = self._c.members_of(classes)
        row = self._c.sender_row[self._c.to_node[ranks]]
        column, member = np.nonzero(row >= 0)
        return sums.without(cells, row[column, member], column, ranks[column, member])

    def _cells(self, demand: Demand, rows: int, chosen: Ints, columns: int) -> Floats:
        """Return ``[rows, columns chosen, copies]`` sums."""
        copies = len(self._places)
        receivers = (np.arange(copies)[:, None] * columns + chosen).reshape(-1)
        amounts = replace(demand, receivers=demand.receivers[:, receivers]).between()
        cells = np.zeros((rows, len(chosen), copies))
        cells[amounts.row % rows, amounts.col % len(chosen), amounts.row // rows] = amounts.data
        return cells

    def _add_tiers(self, routed: Routed, ways: Ways, bytes_to: Floats, classes: Ints) -> None:
        """Add the bytes ``[senders, columns]`` that cross each tier."""
        for tier in {*self._c.tier.tolist(), self._c.own_tier} - {-1}:
            inside = self._c.tier == tier
            part = ways.crossing(inside)[self._c.senders] if inside.any() else np.zeros_like(bytes_to)
            if tier == self._c.own_tier:
                part[self._c.lone_from[:, None] | self._c.lone_to[classes]] = 1.0
            routed.tier_bytes[tier] += float((bytes_to * part).sum())

    def _add_loads(self, bundles: Floats, plain: Floats, ways: Ways, bytes_to: Floats, classes: Ints) -> None:
        """Add what takes each link between classes, of one that hears for each of its members."""
        _, columns, members, copies = bytes_to.shape
        flow = np.zeros((self._c.count, columns, members * copies))
        flow[self._c.senders] = bytes_to.reshape(len(self._c.senders), columns, -1)
        several = bool((self._c.kind == ENTRY).any())
        for step, moved in ways.push(flow.reshape(-1, members * copies)):
            link, by_member = ways.link[step], moved.reshape(-1, members, copies)
            plain += added(link, by_member.sum(axis=1), len(plain))
            if several:
                ends = np.flatnonzero(self._c.kind[link] == ENTRY)
                node = self._c.to_node[self._c.members_of(classes)[ways.column[step][ends]]]
                bundles[self._c.bundle_of(link[ends, None], node)] = by_member[ends]

    def _add_exits(self, bundles: Floats, ways: Ways, sums: Sequence[_Sums], classes: Ints) -> None:
        """Add what each member of a class sends on each of its links."""
        link, member = np.divmod(self._c.bundles, self._c.nodes + 1)
        leave = np.flatnonzero(self._c.kind[link] == EXIT)
        if not len(leave):
            return
        begins = np.flatnonzero(self._c.kind[ways.link] == EXIT)
        part = np.zeros((len(self._c.tail), ways.columns))
        part[ways.link[begins], ways.column[begins]] = ways.share[begins]
        to_classes = np.sum([self._to_classes(demand_sums, classes) for demand_sums in sums], axis=0)
        rows = max(1, _MAX_CELLS // to_classes[0].size)
        for block in np.split(leave, np.arange(rows, len(leave), rows)):
            amounts = to_classes[self._c.sender_row[member[block] - 1]]
            bundles[block] += np.einsum("ijg,ij->ig", amounts, part[link[block]])

    def _unreachable(self, demand: Demand, missing: Bools, classes: Ints, where: str) -> InputError:
        """Return the error that names a pair with bytes and no route."""
        a, x = np.argwhere(missing)[0]
        routed = self._copy >= 0
        sources = np.flatnonzero(routed & (self._c.source_class[self._place] == a))
        targets = np.flatnonzero(routed & (self._c.target_class[self._place] == classes[x]))
        pairs = (demand.senders[:, sources].T @ demand.receivers[:, targets]).tocoo()
        pair = int(np.argmax(demand.amount * pairs.data > demand.least))
        ends = (sources[pairs.row[pair]], targets[pairs.col[pair]])
        return unreachable(self._net, int(ends[0]), int(ends[1]), where)

    @property
    def classes(self) -> Ints:
        """``[2, terminals]`` class of each GPU as one that sends, and as one that receives."""
        return np.stack([self._c.source_class, self._c.target_class])

    def target_classes(self, sources: Ints, targets: Ints) -> Ints:
        """Return ``[1, pairs]`` class of each target, apart from those on the same switch as the source."""
        i, j = self._place[sources], self._place[targets]
        return np.stack([2 * self._c.target_class[j] + (self._c.source[i] == self._c.target[j])])

    def hops(self, terminals: Ints) -> Ints:
        """Return the hops ``[sender, receiver]`` between some GPUs of one copy, -1 where no route joins them.

        Between a GPU and itself they are those to another one of its class.
        """
        ends, column = np.unique(self._c.target_class[terminals], return_inverse=True)
        hops = self._c.ways(self._c.receivers[ends]).hops[self._c.senders[self._c.source_class[terminals]]][
            :, column
        ]
        lone = self._c.lone[terminals].astype(np.int64)
        return np.where(hops < 0, -1, hops + lone[:, None] + lone)

    @cached_property
    def joins_all(self) -> bool:
        """Whether every GPU of a copy reaches every other one."""
        source, target = self._c.source_class, self._c.target_class
        # in a class of its own
        lonely = (np.bincount(source)[source] == 1) & (np.bincount(target)[target] == 1)
        step = max(1, _MAX_CELLS // max(1, len(self._c.tail)))
        for start in range(0, len(self._c.receivers), step):
            missing = self._c.ways(self._c.receivers[start : start + step]).hops[self._c.senders] < 0
            in_block = lonely & (target >= start) & (target < start + step)
            missing[source[in_block], target[in_block] - start] = False
            if missing.any():
                return False
        return True

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the longest route of each pair of GPUs of one copy, -inf where there is none."""
        i, j = self._place[sources], self._place[targets]
        a, x = self._c.senders[self._c.source_class[i]], self._c.receivers[self._c.target_class[j]]
        seconds = np.full(len(i), -np.inf)
        ends, column = np.unique(x, return_inverse=True)
        step = max(1, _MAX_CELLS // max(1, len(self._c.tail)))
        for start in range(0, len(ends), step):
            longest = self._c.ways(ends[start : start + step]).longest(self._c.latency_s)
            in_block = np.flatnonzero((column >= start) & (column < start + step))
            seconds[in_block] = longest[a[in_block], column[in_block] - start]
        seconds[self._c.source[i] == self._c.target[j]] = 0.0
        seconds += self._c.own_s * (self._c.lone[i] * 1.0 + self._c.lone[j])
        return seconds

    def taken(self, sources: Ints, targets: Ints) -> Taken:
        """Return the links of each pair of GPUs of one copy, and the part of its bytes that takes each."""
        i, j = self._place[sources], self._place[targets]
        places, away = np.arange(len(i)), np.flatnonzero(self._c.source[i] != self._c.target[j])
        hung, hangs = places[self._c.lone[i]], places[self._c.lone[j]]
        parts = [
            Taken(self._c.up[i[hung]], hung, np.ones(len(hung))),
            Taken(self._c.down[j[hangs]], hangs, np.ones(len(hangs))),
        ]
        a, x = self._c.senders[self._c.source_class[i]], self._c.receivers[self._c.target_class[j]]
        classes, kind = np.unique(a[away] * self._c.count + x[away], return_inverse=True)
        order = np.argsort(kind, kind="stable")
        kind, away = kind[order], away[order]
        step = max(1, _MAX_CELLS // max(1, len(self._c.tail), self._c.count))
        for start in range(0, len(classes), step):
            between = self._between_classes(classes[start : start + step])
            begin, end = np.searchsorted(kind, [start, start + step])
            block, which = away[begin:end], kind[begin:end] - start
            bounds = np.searchsorted(between.pair, np.arange(step + 1))
            at, pair = runs(bounds[which], np.diff(bounds)[which])
            pair, link, part = block[pair], between.link[at], between.part[at]
            member = np.stack([np.full_like(pair, -1), self._c.source[i[pair]], self._c.target[j[pair]]])
            bundle = self._c.bundle_of(link, member[self._c.kind[link], np.arange(len(pair))])
            at, entry = runs(self._c.by_bundle.indptr[bundle], np.diff(self._c.by_bundle.indptr)[bundle])
            spread = self._c.by_bundle.data[at] * part[entry]
            parts.append(Taken(self._c.by_bundle.indices[at], pair[entry], spread))
        link, pair, part = Taken.joined(parts)
        copy = self._copy[sources[pair]]
        return Taken.joined(
            [Taken(links[copy, link], pair, plane_part * part) for links, plane_part in self._planes]
        )

    def _between_classes(self, classes: Ints) -> Taken:
        """Return the links between classes that pairs of classes (nodes ``a * count + x``) take, by pair."""
        a, x = np.divmod(classes, self._c.count)
        ways = self._c.ways(x)
        flow = np.zeros((self._c.count, len(classes)))
        flow[a, np.arange(len(classes))] = 1.0
        parts = [(step, moved[:, 0]) for step, moved in ways.push(flow.reshape(-1, 1))]
        part = np.zeros(len(ways.link))
        for step, moved in parts:
            part[step] = moved
        used = np.flatnonzero(part)
        used = used[np.argsort(ways.column[used], kind="stable")]
        return Taken(ways.link[used], ways.column[used], part[used])


def unreachable(network: Network, source: int, target: int, where: str) -> InputError:
    """Return the error for a pair of GPUs that no route joins."""
    a, b = network.names[source], network.names[target]
    return InputError(
        f"traffic: GPU {a} does not reach GPU {b} {where}; fix the links, or mark the GPU as broken."
    )
