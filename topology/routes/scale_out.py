"""Routes between domains: over the scale-up fabric to the right rail where the fabric has rails, then multi-path.

On rails the GPU of the own node that is on the destination's rail hands bytes to the fabric. NCCL calls it PXN:
bytes for another rail go over the scale-up fabric first, to a GPU whose NIC is on that rail, so that they need not
cross the spine only to change rails (NVIDIA technical blog, "Doubling all2all Performance with NVIDIA Collective
Communication Library 2.12"). For a GPU without a NIC others of its node, else of its domain, hand over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from topology.base.units import plural
from topology.cluster import Gpu
from topology.routes.demand import Alike, Demand, Pairs, alike_apart, joined, ones_at, runs, summed, table
from topology.routes.ecmp import Routed, Taken
from topology.routes.network import Bools, Floats, Ints, Network, connected_parts
from topology.routes.planes import multipath
from topology.routes.scale_up import ScaleUp

_WHERE = "over the fabric between their domains"


class RelayHops(NamedTuple):
    """Ways of pairs of GPUs of different domains: a hop inside, the way between domains, and a hop inside.

    ``part[k]`` of the bytes of pair ``pair[k]`` goes to ``giver[k]``, to ``taker[k]`` and to its target.
    """

    pair: Ints
    giver: Ints
    taker: Ints
    part: Floats


class Handing:
    """Who hands over the bytes of a row, evenly: entries of rows, ``first [rows + 1]`` says where each row begins.

    Attributes
    ----------
    gpus, part:
        ``[entries]`` who hands over, and which part of the bytes.
    row:
        ``[entries]`` of which row.
    """

    def __init__(self, itself: Bools, keys: Sequence[tuple[Ints, Ints]], gpu: Ints) -> None:
        """Take for each row its GPU ``gpu`` where ``itself`` says so, else those of the first key that has any.

        A key gives the group of each row, and the group of each GPU (-1: not one that hands over); where no key has
        any, the row's own GPU is left alone.
        """
        count, settled = np.ones(len(itself), dtype=np.int64), np.array(itself)
        parts = []
        for rows, groups in keys:
            order = np.argsort(groups, kind="stable")
            begin = np.searchsorted(groups[order], rows)
            size = np.searchsorted(groups[order], rows, side="right") - begin
            takes = ~settled & (size > 0)
            count[takes] = size[takes]
            parts.append((np.flatnonzero(takes), order, begin[takes], size[takes]))
            settled |= takes
        self.count, self.first = count, np.cumsum(count) - count
        self.row = np.repeat(np.arange(len(itself)), count)
        self.gpus, self.part = gpu[self.row], (1 / count)[self.row]
        for rows, order, begin, size in parts:
            self.gpus[runs(self.first[rows], size)[0]] = order[runs(begin, size)[0]]

    def of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the entries of some rows, and which of them each is of."""
        if len(self.gpus) == len(self.count):
            return rows, np.arange(len(rows))
        return runs(self.first[rows], self.count[rows])


def links_between_domains(network: Network) -> Ints:
    """Return the links that can be on a route between domains.

    GPUs do not forward, so switches that reach the GPUs of one domain only lead nowhere, and neither do links
    between GPUs of one domain.
    """
    nodes, gpus, half = len(network.names), network.gpus, network.links // 2
    tail, head = network.tail[:half], network.head[:half]  # each link in one direction
    low, high = np.minimum(tail, head), np.maximum(tail, head)
    inner = low >= gpus
    part = connected_parts(low[inner], high[inner], nodes)
    hanging = (low < gpus) & (high >= gpus)
    lowest, highest = np.full(nodes, nodes), np.full(nodes, -1)
    np.minimum.at(lowest, part[high[hanging]], network.domain[low[hanging]])
    np.maximum.at(highest, part[high[hanging]], network.domain[low[hanging]])
    useful = (lowest < highest)[part]
    useful[:gpus] = True
    direct = (high < gpus) & (network.domain[low] == network.domain[high])
    links = np.flatnonzero(useful[low] & useful[high] & ~direct)
    return np.concatenate([links, links + half])


class ScaleOut:
    """Routes between GPUs of different domains.

    ``relay`` says whether bytes change rails over the scale-up fabric first.
    """

    def __init__(self, network: Network, gpus: Sequence[Gpu], up: ScaleUp, *, relay: bool) -> None:
        self._net, self._up = network, up
        self._domain = network.domain[: network.gpus]
        links = links_between_domains(network)
        self._ways = multipath(network, links)
        has_nic = np.zeros(len(network.names), dtype=bool)
        has_nic[network.tail[links]] = True
        nic, numbers = has_nic[: network.gpus], np.arange(network.gpus)
        nodes: dict[tuple[int, str], int] = {}
        node = np.array(
            [nodes.setdefault((gpu.domain, gpu.node), len(nodes)) for gpu in gpus], dtype=np.int64
        )
        near = [(places, np.where(nic, places, -1)) for places in (node, self._domain)]
        self._takers = Handing(nic, near, numbers)
        self.orphans: Bools = ~nic & (self._takers.gpus[self._takers.first] != numbers)
        self._rail = np.unique([gpu.rail for gpu in gpus], return_inverse=True)[1] if relay else 0 * numbers
        self._rails = int(self._rail.max(initial=0)) + 1
        rows, rail = np.repeat(numbers, self._rails), np.tile(np.arange(self._rails), network.gpus)
        # to a rail: its own NIC on it, those of its node or domain, its own NIC, any of its node or domain
        on_rail = [
            (places[rows] * self._rails + rail, np.where(nic, places * self._rails + self._rail, -1))
            for places in (node, self._domain)
        ]
        off_rail = [(np.where(nic[rows], -2, places[rows]), groups) for places, groups in near]
        self._givers = Handing(nic[rows] & (rail == self._rail[rows]), [*on_rail, *off_rail], rows)
        self._from = self._givers.row // self._rails  # [entries] whose bytes they are
        self._give_s = self._hop_s(self._from, self._givers.gpus)
        self._take_s = self._hop_s(self._takers.gpus, self._takers.row)

    def _hop_s(self, sources: Ints, targets: Ints) -> Floats:
        """Return the seconds of each hop inside a domain, none where it is to itself."""
        seconds, moves = np.zeros(len(sources)), np.flatnonzero(sources != targets)
        seconds[moves] = self._up.seconds(sources[moves], targets[moves])
        return seconds

    def _entries(self, sources: Ints, targets: Ints) -> tuple[Ints, Ints, Ints]:
        """Return pairs of GPUs, once for each way, and the entries of those who hand over for them."""
        take, pair = self._takers.of(targets)
        give, way = self._givers.of(sources[pair] * self._rails + self._rail[self._takers.gpus[take]])
        return pair[way], give, take[way]

    def relayed(self, sources: Ints, targets: Ints) -> RelayHops:
        """Return who hands over the bytes of pairs of GPUs."""
        pair, give, take = self._entries(sources, targets)
        part = self._givers.part[give] * self._takers.part[take]
        return RelayHops(pair, self._givers.gpus[give], self._takers.gpus[take], part)

    def target_classes(self, sources: Ints, targets: Ints) -> Ints:
        """Return ``[facts, pairs]``: ways from one GPU to targets in other domains with the same facts are alike."""
        row, taker = sources * self._rails + self._rail[targets], self._takers.first[targets]
        alone = (self._givers.count[row] == 1) & (self._takers.gpus[taker] == targets)
        giver = self._givers.gpus[self._givers.first[row]]
        classes = self._ways.target_classes(giver, targets)
        return np.vstack([classes, self._rail[targets], np.where(alone, -1, targets)])

    def direct(self, sources: Ints, targets: Ints) -> Taken:
        """Return the links of bytes that GPUs hand to the fabric for GPUs of other domains themselves."""
        return self._ways.taken(sources, targets)

    def route(self, pairs: Pairs, alike: Alike) -> tuple[Routed, Pairs]:
        """Route pairs between domains, and what GPUs that send alike send to those of other domains.

        Returns also the hops inside domains to and from the GPUs that hand over; their bytes are not routed yet.
        """
        demands, give_bytes, take_bytes = self._of_alike(alike)
        pair, give, take = self._entries(pairs.sources, pairs.targets)
        amounts = pairs.amounts[pair] * self._givers.part[give] * self._takers.part[take]
        give_bytes += summed(give, amounts, len(give_bytes))
        take_bytes += summed(take, amounts, len(take_bytes))
        seconds = self._give_s[give] + self._take_s[take]
        handed = Pairs(self._givers.gpus[give], self._takers.gpus[take], amounts)
        while len(seconds):
            same_latency = seconds == seconds[0]
            demand = handed.where(same_latency).demand(self._net.gpus)
            demands.append(replace(demand, seconds=float(seconds[0])))
            handed, seconds = handed.where(~same_latency), seconds[~same_latency]
        routed = self._ways.route(demands, _WHERE)
        ends = alike.senders | (alike.weights > 0)
        ends[pairs.sources] = ends[pairs.targets] = True
        if count := int((ends & self.orphans).sum()):
            routed.notes.append(
                f"{plural(count, 'GPU')} without a link out of {'its' if count == 1 else 'their'} domain "
                f"{'hands' if count == 1 else 'hand'} over to others of {'its' if count == 1 else 'their'} node or "
                "domain."
            )
        hops = joined(
            Pairs(self._from, self._givers.gpus, give_bytes),
            Pairs(self._takers.gpus, self._takers.row, take_bytes),
        )
        return routed, hops.where((hops.sources != hops.targets) & (hops.amounts > 0))

    def _of_alike(self, alike: Alike) -> tuple[list[Demand], Floats, Floats]:
        """Return what GPUs that send alike send to those of other domains, by the seconds of the hops inside.

        Returns also the bytes of each entry of those who hand over. Groups are of a source domain and a target rail.
        """
        domains = int(self._domain.max(initial=0)) + 1
        groups, shape = domains * self._rails, (domains * self._rails, self._net.gpus)
        giving, heard = alike.senders[self._from], self._takers.part * alike.weights[self._takers.row]
        taker = self._takers.gpus
        out_group = self._domain[self._from] * self._rails + self._givers.row % self._rails
        in_group = self._domain[taker] * self._rails + self._rail[taker]
        group_weights = summed(in_group, heard, groups).reshape(domains, self._rails)
        size = np.bincount(self._domain[alike.senders], minlength=domains)
        give_bytes = (
            alike.amount
            * self._givers.part
            * giving
            * (group_weights.sum(axis=0) - group_weights).reshape(-1)[out_group]
        )
        take_bytes = alike.amount * heard * (size.sum() - size)[self._domain[self._takers.row]]
        several = np.count_nonzero((size > 0) | group_weights.any(axis=1)) > 1
        group_numbers = np.arange(groups)
        kinds = ones_at(group_numbers % self._rails, group_numbers, (self._rails, groups))
        demands = []
        for give_s in np.unique(self._give_s[giving]) if several else ():
            a = np.flatnonzero(giving & (self._give_s == give_s))
            senders = table(out_group[a], self._givers.gpus[a], self._givers.part[a], shape)
            for take_s in np.unique(self._take_s[heard > 0]):
                b = np.flatnonzero((heard > 0) & (self._take_s == take_s))
                receivers = table(in_group[b], taker[b], heard[b], shape)
                demands.append(alike_apart(senders, receivers, kinds, alike.amount, float(give_s + take_s)))
        return demands, give_bytes, take_bytes
