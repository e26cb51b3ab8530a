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

_MAX_PLANES, _MAX_KINDS, _MAX_CELLS = 64, 16, 4_000_000
_ONE_LEAF_HOPS, _UNKNOWN_HOPS = 2, -2  # hops


def multipath(network: Network, links: Ints) -> Ecmp | Planes:
    """Return the routes between all GPUs over some links: plane by plane where the network has planes."""
    planes = planes_of(network, links)
    if planes is not None:
        routes = Planes(network, planes)
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
    if len(names) > _MAX_PLANES or len(np.unique(which * count + tail[out])) < len(which):
        return None
    part_of = part[np.where(out, head, tail)]
    kind = network.type[links]
    weight = network.types.weight[kind]
    planes = []
    for name in names:
        members = np.flatnonzero(part_of == name)
        rank = np.arange(nodes)
        rank[count:] = count + np.cumsum(part[count:] == name)
        members = members[np.lexsort((rank[head[members]], rank[tail[members]]))]
        ends, leaving = (tail[members], head[members]), out[members]
        weights, leaf = np.zeros(count), np.full(count, -1, dtype=np.int64)
        weights[ends[0][leaving]], leaf[ends[0][leaving]] = weight[members][leaving], ends[1][leaving]
        hangs = leaving | into[members]
        facts = [
            np.where(hangs, 0.0, weight[members]),
            *(column[kind[members]] for column in network.types[2:]),
        ]
        key = [rank[ends[0]], rank[ends[1]], *facts, weights / weights.max()]
        planes.append(_Plane(links[members], weights, leaf, b"".join(column.tobytes() for column in key)))
    return planes


class Planes:
    """Routes between GPUs over planes; equal planes are routed at once."""

    def __init__(self, network: Network, planes: Sequence[_Plane]) -> None:
        self._net, self._planes = network, planes
        groups: dict[bytes, list[_Plane]] = {}
        for plane in planes:
            groups.setdefault(plane.key, []).append(plane)
        weights = np.array(
            [sum((member.weight for member in group), np.zeros(1)) for group in groups.values()]
        )
        self._ways = []
        for group, total in zip(groups.values(), weights, strict=True):
            sample = int(total.argmax())
            links = np.stack([member.links for member in group])
            parts = np.array([member.weight[sample] / total[sample] for member in group])
            self._ways.append(Ecmp(network, np.arange(network.gpus)[None], links, parts))
        kinds, kind = np.unique(weights > 0, axis=1, return_inverse=True)
        self._kinds = kinds.T  # which planes the GPUs of each kind are on
        self._kind = kind.reshape(-1)
        # [kinds, ways, gpus] the part of its bytes to GPUs of a kind that each GPU sends over each way
        peer_weights = weights * self._kinds[:, :, None]
        total = peer_weights.sum(axis=1, keepdims=True)
        self._part = np.divide(peer_weights, total, out=np.zeros_like(peer_weights), where=total > 0)

    def target_classes(self, sources: Ints, targets: Ints) -> Ints:
        """Return ``[ways + 1, pairs]`` the same on each way, and which planes a target is on."""
        return np.vstack([*(way.target_classes(sources, targets) for way in self._ways), self._kind[targets]])

    @property
    def homogeneous(self) -> bool:
        """Whether each plane is as short a way between any two GPUs as the others that both are on."""
        if len(self._kinds) > _MAX_KINDS:
            return False
        for a, b in combinations(self._planes, 2):
            shared = (a.leaf >= 0) & (b.leaf >= 0)
            leaves = np.stack([a.leaf[shared], b.leaf[shared]])
            pairs = np.unique(leaves, axis=1).shape[1]
            if any(len(np.unique(leaf)) < pairs for leaf in leaves):
                return False
        return self._as_far

    @property
    def _as_far(self) -> bool:
        """Whether classes of GPUs are as many hops apart on each way."""
        labels = np.concatenate([way.classes for way in self._ways])
        labels = np.concatenate([labels, [self._kind]])
        samples = np.unique(labels, axis=1, return_index=True)[1]
        if len(self._ways) == 1:
            return True
        if len(samples) ** 2 > _MAX_CELLS:
            return False
        on = self._kinds[self._kind[samples]].T
        hops = np.array([way.hops(samples) for way in self._ways])
        hops[~(on[:, :, None] & on[:, None, :])] = _UNKNOWN_HOPS
        diagonal = np.arange(len(samples))
        lone = (hops[:, diagonal, diagonal] <= _ONE_LEAF_HOPS).any(axis=0)  # all of the class are on one leaf
        hops[:, diagonal[lone], diagonal[lone]] = _UNKNOWN_HOPS
        known = hops.max(axis=0)
        return bool(((hops == known) | (hops == _UNKNOWN_HOPS)).all())

    def route(self, demands: Sequence[Demand], where: str) -> Routed:
        """Route the sum of some demands between the GPUs."""
        routed = nothing_routed(self._net)
        for number, way in enumerate(self._ways):
            way_demands = []
            for kind, part in enumerate(self._part[:, number]):
                if len(self._kinds) == len(self._ways) == 1:
                    way_demands = list(demands)
                elif part.any():
                    way_demands += [demand.scaled(part, self._kind == kind) for demand in demands]
            routed.add(way.route(way_demands, where))
        for kind in range(len(self._kinds)):
            none = (~self._part[kind].any(axis=0)).astype(float)
            if none.any():  # no plane in common: said by the first way
                self._ways[0].refuse([demand.scaled(none, self._kind == kind) for demand in demands], where)
        return routed

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the longest route of each pair of GPUs, -inf where there is none."""
        seconds = np.full(len(sources), -np.inf)
        for number, way in enumerate(self._ways):
            on = np.flatnonzero(self._part[self._kind[targets], number, sources] > 0)
            seconds[on] = np.maximum(seconds[on], way.seconds(sources[on], targets[on]))
        return seconds

    def taken(self, sources: Ints, targets: Ints) -> Taken:
        """Return the links of each pair of GPUs, and the part of its bytes that takes each."""
        parts = []
        for number, way in enumerate(self._ways):
            part = self._part[self._kind[targets], number, sources]
            on = np.flatnonzero(part > 0)
            taken = way.taken(sources[on], targets[on])
            parts.append(Taken(taken.link, on[taken.pair], taken.part * part[on[taken.pair]]))
        return Taken.joined(parts)
