"""Routes between domains: over the scale-up fabric to the right rail where the fabric has rails, then multi-path.

On rails the GPU of the own node that is on the destination's rail hands bytes to the fabric. NCCL calls it PXN:
bytes for another rail go over the scale-up fabric first, to a GPU whose NIC is on that rail, so that they need not
cross the spine only to change rails (NVIDIA technical blog, "Doubling all2all Performance with NVIDIA Collective
Communication Library 2.12"). For a GPU without a NIC others of its node, else of its domain, hand over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from topology.cluster import Gpu
from topology.routes.demand import NO_PAIRS, Demand, Demands, OuterDemand, Pairs, joined, ones_at, summed
from topology.routes.ecmp import EcmpResult, Routed, nothing_routed, route_ecmp, unreachable
from topology.routes.network import Bools, Floats, Ints, Network, connected_parts
from topology.routes.scale_up import ScaleUp


class _Near:
    """GPUs with a NIC by rail, of each node and each domain."""

    def __init__(self, gpus: Sequence[Gpu], rails: Ints, has_nic: Bools) -> None:
        self._found: dict[tuple[object, int], list[int]] = defaultdict(list)
        for number in np.flatnonzero(has_nic[: len(gpus)]).tolist():
            for place in (gpus[number].node, gpus[number].domain):
                self._found[place, int(rails[number])].append(number)

    def of(self, gpu: Gpu, rail: int) -> list[int]:
        """Return those of the node of ``gpu``, else of its domain."""
        return self._found.get((gpu.node, rail)) or self._found.get((gpu.domain, rail)) or []


def relays(gpus: Sequence[Gpu], rails: Ints, has_nic: Bools) -> Any:
    """Return the part ``[gpus * rails, gpus]`` that each GPU hands over for each source and destination rail.

    Row ``s * rails + r`` is for bytes from GPU ``s`` to GPUs on the rail numbered ``r`` in other domains: ``s``
    itself where it is on that rail, else the GPUs of its node that are, else those of its domain, evenly; ``s``
    where there are none. ``rails [gpus]`` numbers the rail of each GPU; only GPUs with a NIC hand over.
    """
    from scipy.sparse import csr_array

    count = int(rails.max(initial=0)) + 1
    near = _Near(gpus, rails, has_nic)
    rows: list[int] = []
    columns: list[int] = []
    parts: list[float] = []
    for number, gpu in enumerate(gpus):
        for rail in range(count):
            own = rail == rails[number] and has_nic[number]
            chosen = [number] if own else near.of(gpu, rail) or [number]
            rows += [number * count + rail] * len(chosen)
            columns += chosen
            parts += [1 / len(chosen)] * len(chosen)
    return csr_array((parts, (rows, columns)), shape=(len(gpus) * count, len(gpus)))


class Orphans:
    """GPUs whose NIC or leaf is missing, and who hands their bytes over, evenly.

    Parameters
    ----------
    has_nic:
        Which GPUs have a link out of their domain, ``[gpus]``.
    """

    def __init__(self, gpus: Sequence[Gpu], has_nic: Bools) -> None:
        near = _Near(gpus, np.zeros(len(gpus), dtype=np.int64), has_nic)
        lost = np.flatnonzero(~has_nic).tolist()
        self._stand_ins = {number: found for number in lost if (found := near.of(gpus[number], 0))}
        self.mask: Bools = np.zeros(len(gpus), dtype=bool)
        self.mask[list(self._stand_ins)] = True

    def pairs_of_uniform(self, members: Bools, amount: float, domain: Ints) -> Pairs:
        """Return the pairs between orphans and members of other domains, each with ``amount`` bytes."""
        who = np.flatnonzero(members)
        lost = np.flatnonzero(members & self.mask)
        if amount <= 0 or not len(lost):
            return NO_PAIRS
        there = np.repeat(lost, len(who)), np.tile(who, len(lost))
        rest = np.flatnonzero(members & ~self.mask)
        back = np.repeat(rest, len(lost)), np.tile(lost, len(rest))
        sources, targets = (np.concatenate(ends) for ends in zip(there, back, strict=True))
        away = domain[sources] != domain[targets]
        return Pairs(sources[away], targets[away], np.full(int(away.sum()), amount))

    def replaced(self, pairs: Pairs) -> tuple[Pairs, Pairs]:
        """Return the pairs between those who stand in, and the hops to and from them inside domains."""
        affected = self.mask[pairs.sources] | self.mask[pairs.targets]
        if not affected.any():
            return pairs, NO_PAIRS
        out: list[tuple[int, int, float]] = []
        hops: list[tuple[int, int, float]] = []
        for source, target, amount in zip(*(part.tolist() for part in pairs.where(affected)), strict=True):
            givers = self._stand_ins.get(source, [source])
            takers = self._stand_ins.get(target, [target])
            hops += [(source, giver, amount / len(givers)) for giver in givers if giver != source]
            hops += [(taker, target, amount / len(takers)) for taker in takers if taker != target]
            share = amount / (len(givers) * len(takers))
            out += [(giver, taker, share) for giver in givers for taker in takers]
        return joined(pairs.where(~affected), _columns(out)), _columns(hops)


def _columns(rows: list[tuple[int, int, float]]) -> Pairs:
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return Pairs(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2])


_ROWS = 2048  # groups handled at once
_HALF = 0.5  # between a count of none and of one


def links_between_domains(network: Network) -> Ints:
    """Return the links that can be on a route between domains.

    GPUs do not forward, so switches that reach the GPUs of one domain only lead nowhere, and neither do links
    between GPUs of one domain.
    """
    nodes, gpus = len(network.names), network.gpus
    tail, head = network.tail, network.head
    inner = (tail >= gpus) & (head >= gpus)
    part = connected_parts(tail[inner], head[inner], nodes)
    least, most = np.full(nodes, nodes), np.full(nodes, -1)
    hanging = (tail < gpus) & (head >= gpus)
    np.minimum.at(least, part[head[hanging]], network.domain[tail[hanging]])
    np.maximum.at(most, part[head[hanging]], network.domain[tail[hanging]])
    useful = (least < most)[part]
    useful[:gpus] = True
    direct = (tail < gpus) & (head < gpus) & (network.domain[tail] == network.domain[head])
    return np.flatnonzero(useful[tail] & useful[head] & ~direct)


class ScaleOut:
    """Routes between GPUs of different domains.

    ``relay`` says whether bytes change rails over the scale-up fabric first.
    """

    def __init__(self, network: Network, gpus: Sequence[Gpu], up: ScaleUp, *, relay: bool) -> None:
        self._net = network
        self._up = up
        self._domain = network.domain[: network.gpus]
        self._links = links_between_domains(network)
        has_nic = np.zeros(len(network.names), dtype=bool)
        has_nic[network.tail[self._links]] = True
        self.orphans = Orphans(gpus, has_nic[: network.gpus])
        if relay:
            _, self._rail = np.unique([gpu.rail for gpu in gpus], return_inverse=True)
            self._relays = relays(gpus, self._rail, has_nic)
        else:
            self._rail = np.zeros(network.gpus, dtype=np.int64)
            from scipy.sparse import eye_array

            self._relays = eye_array(network.gpus, format="csr")  # every GPU uses its own NIC
        self._rails = int(self._rail.max(initial=0)) + 1

    def route(self, pairs: Pairs, members: Bools, amount: float) -> tuple[Routed, Pairs]:
        """Route pairs between domains, and ``amount`` bytes from each member to every one of another domain.

        Returns also the hops inside domains to the GPUs that hand over; their bytes are not routed yet.

        Raises
        ------
        InputError
            If a pair has no route.
        """
        net = self._net
        several = len(np.unique(self._domain[members])) > 1
        uniform = self._uniform(members, amount) if amount > 0 and several else None
        if uniform is None and not len(pairs.sources):
            return nothing_routed(net), NO_PAIRS
        row = pairs.sources * self._rails + self._rail[pairs.targets]
        entry, which = self._entries(row)
        amounts = pairs.amounts[which] * self._relays.data[entry]
        handed = Pairs(self._relays.indices[entry], pairs.targets[which], amounts)
        parts: list[Demand] = [handed] if uniform is None else [handed, uniform]
        demand = Demands(parts)
        result = route_ecmp(net, self._links, np.arange(net.gpus), demand)
        if result.missing.any():
            every = demand.pairs()
            raise unreachable(net, every.where(result.lost(every)), "over the fabric between their domains")
        found = Routed.over(net, self._links, result)
        to_rail = summed(row, pairs.amounts, net.gpus * self._rails)
        if uniform is not None:
            to_rail += amount * self._uniform_to_rail(members)
        hops, hop_s = self._hops(to_rail)
        found.longest_s = float((hop_s[entry] + result.seconds(handed)).max(initial=0.0))
        if uniform is not None:
            longest = self._uniform_longest(uniform, members, result, hop_s)
            found.longest_s = max(found.longest_s, longest)
        return found, hops

    def _entries(self, row: Ints) -> tuple[Ints, Ints]:
        """Return the entries of the table of relays for each of some rows, and whose row each entry is."""
        first = self._relays.indptr[row]
        count = self._relays.indptr[row + 1] - first
        which = np.repeat(np.arange(len(row)), count)
        before = np.cumsum(count) - count
        return first[which] + np.arange(len(which)) - before[which], which

    def _groups(self, members: Bools) -> tuple[Ints, Ints]:
        """Return the entries of the table for rows of members, and each one's group: source domain, target rail."""
        rows = np.flatnonzero(np.repeat(members, self._rails))
        entry, which = self._entries(rows)
        source, rail = np.divmod(rows[which], self._rails)
        return entry, self._domain[source] * self._rails + rail

    def _uniform(self, members: Bools, amount: float) -> OuterDemand:
        """Return what members hand over: a group for each source domain and target rail."""
        from scipy.sparse import csr_array

        groups = (int(self._domain.max(initial=0)) + 1) * self._rails
        entry, group = self._groups(members)
        shape = (groups, self._net.gpus)
        senders = csr_array((self._relays.data[entry], (group, self._relays.indices[entry])), shape=shape)
        who = np.flatnonzero(members)
        place = self._domain[who] * self._rails + self._rail[who]
        receivers = ones_at(place, who, shape)
        each = np.arange(groups)
        kinds = ones_at(each % self._rails, each, (self._rails, groups))
        return OuterDemand(senders, receivers, kinds, amount)

    def _uniform_to_rail(self, members: Bools) -> Floats:
        """Return ``[gpus * rails]`` how many members of each rail and another domain each member sends to."""
        domains = int(self._domain.max(initial=0)) + 1
        place = self._domain * self._rails + self._rail
        there = np.bincount(place[members], minlength=domains * self._rails).reshape(domains, self._rails)
        others = there.sum(axis=0) - there
        return np.where(members[:, None], others[self._domain], 0).reshape(-1).astype(float)

    def _hops(self, to_rail: Floats) -> tuple[Pairs, Floats]:
        """Return the hops to the GPUs that hand over, and the seconds of each entry's hop."""
        rows = np.repeat(np.arange(len(to_rail)), np.diff(self._relays.indptr))
        source, target = rows // self._rails, self._relays.indices.astype(np.int64)
        amounts = to_rail[rows] * self._relays.data
        moving = (amounts > 0) & (source != target)
        seconds = np.zeros(len(rows))
        seconds[moving] = self._up.seconds(source[moving], target[moving])
        return Pairs(source, target, amounts).where(moving), seconds

    def _uniform_longest(
        self, uniform: OuterDemand, members: Bools, result: EcmpResult, hop_s: Floats
    ) -> float:
        """Return the seconds of the longest route of the uniform part, with the hop inside the domain."""
        labels, classes = result.labels, len(result.latency_s)
        gpus = self._net.gpus
        receivers = uniform.receivers @ ones_at(np.arange(gpus), labels, (gpus, classes))
        everyone = (uniform.kinds @ receivers).toarray()
        entry, group = self._groups(members)
        # groups of GPUs that hand over on one class of links, with the longest hop to them
        key, at = np.unique(group * classes + labels[self._relays.indices[entry]], return_inverse=True)
        hop = np.zeros(len(key))
        np.maximum.at(hop, at, hop_s[entry])
        longest = 0.0
        for first in range(0, len(key), _ROWS):
            some, start = np.divmod(key[first : first + _ROWS], classes)
            there = everyone[some % self._rails] - receivers[some].toarray() > _HALF
            seconds = np.where(there, result.latency_s[start] + hop[first : first + _ROWS, None], 0.0)
            longest = max(longest, float(seconds.max(initial=0.0)))
        return longest
