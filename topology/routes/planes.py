"""Multi-path over planes: separate networks between the same GPUs.

Where every GPU has at most one neighbour in each of several parts of a network that only GPUs join, and each part is
as short a way to every peer, a route keeps to the part it began in, and a GPU's bytes share over the parts that its
peer is on too, in proportion to its links. So each part is routed by itself, with its part of the demand, and those
that are alike (NVLink switch chips, NIC planes) at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from topology.routes.classes import local_ends
from topology.routes.demand import Demand
from topology.routes.ecmp import Ecmp, Routed, Taken, nothing_routed
from topology.routes.network import Floats, Ints, Network, connected_parts

_MOST_PLANES, _MOST_KINDS, _MOST_CELLS = 64, 16, 4_000_000
_ON_ONE_LEAF, _UNKNOWN = 2, -2  # hops


def multipath(network: Network, links: Ints) -> Ecmp | Planes:
    """Return the routes between all GPUs over some links: plane by plane where the network has planes."""
    found = planes_of(network, links)
    if found is not None:
        routes = Planes(network, found)
        if routes.homogeneous:
            return routes
    return Ecmp(network, np.arange(network.gpus)[None], links[None])


class _Plane:
    """One of the planes: its links, the weight ``[gpus]`` that each GPU's own has, its leaf, a key of equal ones."""

    def __init__(self, links: Ints, weight: Floats, leaf: Ints, key: bytes) -> None:
        self.links, self.weight, self.leaf, self.key = links, weight, leaf, key


def planes_of(network: Network, links: Ints) -> list[_Plane] | None:
    """Return the planes of a network, none where its GPUs have none, or two links to one."""
    count = network.gpus
    tail, head, nodes = local_ends(network, np.arange(count), links)
    out, into = tail < count, head < count
    if (out & into).any() or np.bincount(tail[out], minlength=1).max() < 2:
        return None
    part = connected_parts(tail[~out & ~into], head[~out & ~into], nodes)
    names, which = np.unique(part[head[out]], return_inverse=True)
    if len(names) > _MOST_PLANES or len(np.unique(which * count + tail[out])) < len(which):
        return None
    part_of = part[np.where(out, head, tail)]
    kind = network.type[links]
    weight = network.types.weight[kind]
    found = []
    for name in names:
        mine = np.flatnonzero(part_of == name)
        rank = np.arange(nodes)
        rank[count:] = count + np.cumsum(part[count:] == name)
        mine = mine[np.lexsort((rank[head[mine]], rank[tail[mine]]))]
        ends, own = (tail[mine], head[mine]), out[mine]
        weights, leaf = np.zeros(count), np.full(count, -1, dtype=np.int64)
        weights[ends[0][own]], leaf[ends[0][own]] = weight[mine][own], ends[1][own]
        hangs = own | into[mine]
        facts = [np.where(hangs, 0.0, weight[mine]), *(one[kind[mine]] for one in network.types[2:])]
        key = [rank[ends[0]], rank[ends[1]], *facts, weights / weights.max()]
        found.append(_Plane(links[mine], weights, leaf, b"".join(one.tobytes() for one in key)))
    return found


class Planes:
    """Routes between GPUs over planes; equal planes are routed at once."""

    def __init__(self, network: Network, planes: Sequence[_Plane]) -> None:
        self._net, self._planes = network, planes
        groups: dict[bytes, list[_Plane]] = {}
        for plane in planes:
            groups.setdefault(plane.key, []).append(plane)
        weights = np.array([sum((one.weight for one in group), np.zeros(1)) for group in groups.values()])
        self._ways = []
        for group, whole in zip(groups.values(), weights, strict=True):
            some = int(whole.argmax())
            links = np.stack([one.links for one in group])
            parts = np.array([one.weight[some] / whole[some] for one in group])
            self._ways.append(Ecmp(network, np.arange(network.gpus)[None], links, parts))
        kinds, kind = np.unique(weights > 0, axis=1, return_inverse=True)
        self._kinds = kinds.T  # which planes the GPUs of each kind are on
        self._kind = kind.reshape(-1)
        # [kinds, ways, gpus] the part of its bytes to GPUs of a kind that each GPU sends over each way
        there = weights * self._kinds[:, :, None]
        whole = there.sum(axis=1, keepdims=True)
        self._part = np.divide(there, whole, out=np.zeros_like(there), where=whole > 0)

    def target_classes(self, sources: Ints, targets: Ints) -> Ints:
        """Return ``[ways + 1, pairs]`` the same on each way, and which planes a target is on."""
        return np.vstack([*(way.target_classes(sources, targets) for way in self._ways), self._kind[targets]])

    @property
    def homogeneous(self) -> bool:
        """Whether each plane is as short a way between any two GPUs as the others that both are on."""
        if len(self._kinds) > _MOST_KINDS:
            return False
        for one, other in combinations(self._planes, 2):
            both = (one.leaf >= 0) & (other.leaf >= 0)
            leaves = np.stack([one.leaf[both], other.leaf[both]])
            pairs = np.unique(leaves, axis=1).shape[1]
            if any(len(np.unique(leaf)) < pairs for leaf in leaves):
                return False
        return self._as_far

    @property
    def _as_far(self) -> bool:
        """Whether classes of GPUs are as many hops apart on each way."""
        labels = np.concatenate([way.classes for way in self._ways])
        labels = np.concatenate([labels, [self._kind]])
        some = np.unique(labels, axis=1, return_index=True)[1]
        if len(self._ways) == 1:
            return True
        if len(some) ** 2 > _MOST_CELLS:
            return False
        on = self._kinds[self._kind[some]].T
        hops = np.array([way.hops(some) for way in self._ways])
        hops[~(on[:, :, None] & on[:, None, :])] = _UNKNOWN
        own = np.arange(len(some))
        lone = (hops[:, own, own] <= _ON_ONE_LEAF).any(axis=0)  # all of the class are on one leaf
        hops[:, own[lone], own[lone]] = _UNKNOWN
        known = hops.max(axis=0)
        return bool(((hops == known) | (hops == _UNKNOWN)).all())

    def route(self, demands: Sequence[Demand], where: str) -> Routed:
        """Route the sum of some demands between the GPUs."""
        found = nothing_routed(self._net)
        for number, way in enumerate(self._ways):
            mine = []
            for kind, part in enumerate(self._part[:, number]):
                if len(self._kinds) == len(self._ways) == 1:
                    mine = list(demands)
                elif part.any():
                    mine += [one.scaled(part, self._kind == kind) for one in demands]
            found.add(way.route(mine, where))
        for kind in range(len(self._kinds)):
            none = (~self._part[kind].any(axis=0)).astype(float)
            if none.any():  # no plane in common: said by the first way
                self._ways[0].refuse([one.scaled(none, self._kind == kind) for one in demands], where)
        return found

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the longest route of each pair of GPUs, -inf where there is none."""
        found = np.full(len(sources), -np.inf)
        for number, way in enumerate(self._ways):
            on = np.flatnonzero(self._part[self._kind[targets], number, sources] > 0)
            found[on] = np.maximum(found[on], way.seconds(sources[on], targets[on]))
        return found

    def taken(self, sources: Ints, targets: Ints) -> Taken:
        """Return the links of each pair of GPUs, and the part of its bytes that takes each."""
        found = []
        for number, way in enumerate(self._ways):
            part = self._part[self._kind[targets], number, sources]
            on = np.flatnonzero(part > 0)
            one = way.taken(sources[on], targets[on])
            found.append(Taken(one.link, on[one.pair], one.part * part[on[one.pair]]))
        return Taken.joined(found)
