"""A cluster's graph as arrays: nodes by number (GPUs first, in the cluster's order) and directed links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topology.cluster import Cluster
from topology.graph import NODE_KINDS, SCALE_UP_KINDS
from topology.wiring import Bools, Floats, Ints, Wiring, connected_parts

__all__ = ["Bools", "Floats", "Ints", "Network", "connected_parts", "network_of"]
_RANK = ("leaf", "spine", "core")


class LinkTypes(NamedTuple):
    """What directed links can be: ``weight`` is parallel links times health, how equal-cost routes share."""

    weight: Floats
    bytes_per_s: Floats
    latency_s: Floats
    tier: Ints


@dataclass(frozen=True)
class Network:
    """Directed links of a cluster: link ``e`` and link ``e + links / 2`` are the two directions of one edge.

    Attributes
    ----------
    names, kinds:
        Id of each node, and its place in ``NODE_KINDS``; node ``i`` is GPU number ``i`` for ``i < gpus``.
    gpus:
        How many GPUs there are.
    domain:
        ``[nodes]`` number of the scale-up domain, -1 outside.
    tail, head:
        ``[links]`` node a directed link leaves, and the node it enters.
    types, type:
        The few types that links have, and ``[links]`` which one each is of.
    tiers:
        Names of the tiers.
    coordinates:
        ``coordinate`` of each GPU, None where it has none.
    """

    names: tuple[str, ...]
    kinds: Ints
    gpus: int
    domain: Ints
    tail: Ints
    head: Ints
    types: LinkTypes
    type: NDArray[np.int32]
    tiers: tuple[str, ...]
    coordinates: tuple[tuple[int, ...] | None, ...]

    @property
    def links(self) -> int:
        """Directed links."""
        return len(self.tail)

    @cached_property
    def number(self) -> dict[str, int]:
        """Number of each node by its id."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def bytes_per_s(self) -> Floats:
        """``[links]`` rate in this direction."""
        return self.types.bytes_per_s[self.type]

    @property
    def tier(self) -> Ints:
        """``[links]`` number of the tier."""
        return self.types.tier[self.type]

    @property
    def scale_up_domain(self) -> Ints:
        """``[links]`` domain of a scale-up link (both ends GPUs or chips of one domain), -1 for the others."""
        up = np.isin(self.kinds, [NODE_KINDS.index(kind) for kind in SCALE_UP_KINDS])
        domain = np.where(up, self.domain, -1)
        joined = domain[self.tail]
        joined[joined != domain[self.head]] = -1
        return joined

    @cached_property
    def _by_ends(self) -> tuple[Ints, Ints]:
        """Links ordered by their two ends, with the key they are ordered by."""
        key = self.tail * len(self.names) + self.head
        order = np.argsort(key, kind="stable")
        return key[order], order

    def link_between(self, a: Ints, b: Ints) -> Ints:
        """Return the link from each of ``a`` to each of ``b``, -1 where there is none."""
        keys, order = self._by_ends
        pair_keys = a * len(self.names) + b
        if not len(keys):
            return np.full(pair_keys.shape, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(keys, pair_keys), len(keys) - 1)
        return np.where(keys[at] == pair_keys, order[at], -1)


def network_of(cluster: Cluster) -> Network:
    """Return the links of ``cluster`` in both directions, in the order of its graph."""
    wiring = cluster.wiring
    nodes = len(wiring.names)
    gpus = np.array([wiring.number[gpu.id] for gpu in cluster.gpus], dtype=np.int64)
    not_gpu = np.ones(nodes, dtype=bool)
    not_gpu[gpus] = False
    order = np.concatenate([gpus, np.flatnonzero(not_gpu)])
    number = np.empty(nodes, dtype=np.int64)
    number[order] = np.arange(nodes)
    tiers, types, kind = _types(wiring)
    link = wiring.in_order
    ends = number[wiring.a[link]], number[wiring.b[link]]
    swapped = wiring.a[link] > wiring.b[link]
    ends = np.where(swapped, ends[1], ends[0]), np.where(swapped, ends[0], ends[1])
    return Network(
        names=tuple(map(wiring.names.__getitem__, order.tolist())),
        kinds=wiring.kind_number[order],
        gpus=len(gpus),
        domain=wiring.domain[order],
        tail=np.concatenate(ends),
        head=np.concatenate(ends[::-1]),
        types=types,
        type=np.tile(kind[link].astype(np.int32), 2),
        tiers=tiers,
        coordinates=tuple(map(wiring.coordinate.__getitem__, gpus.tolist())),
    )


def _types(wiring: Wiring) -> tuple[tuple[str, ...], LinkTypes, Ints]:
    """Return the names of the tiers in order of their first links, the types, and ``[links]`` of which each is."""
    kind, pod = wiring.kind_number, wiring.numbered["pod"]
    same_pod = pod[wiring.a] == pod[wiring.b]
    type_of = np.zeros(len(wiring.a), dtype=np.int64)
    for values in (wiring.fabric, kind[wiring.a], kind[wiring.b], same_pod, wiring.count, wiring.health):
        different = np.unique(values)
        type_of = type_of * len(different) + np.searchsorted(different, values)
    type_of = np.searchsorted(np.unique(type_of), type_of)
    # the first link of each: written last
    order = wiring.in_order[::-1]
    place = np.zeros(int(type_of.max(initial=-1)) + 1, dtype=np.int64)
    place[type_of[order]] = np.arange(len(order))[::-1]
    samples = wiring.in_order[place]
    tiers: dict[str, int] = {}
    tier = np.zeros(len(samples))
    for position in np.argsort(place).tolist():
        link = samples[position]
        ends = wiring.kinds[wiring.a[link]], wiring.kinds[wiring.b[link]]
        name = _tier(wiring.fabrics[wiring.fabric[link]].name, *ends, same_pod=bool(same_pod[link]))
        tier[position] = tiers.setdefault(name, len(tiers))
    facts = [wiring.count * wiring.health, wiring.bytes_per_s, wiring.latency_s]
    rows = np.stack([*(values[samples] for values in facts), tier], axis=1)
    rows, which = np.unique(rows, axis=0, return_inverse=True)
    weight, rate, latency, number = rows.T
    return tuple(tiers), LinkTypes(weight, rate, latency, number.astype(np.int64)), which.reshape(-1)[type_of]


def _tier(fabric: str, kind_a: str, kind_b: str, *, same_pod: bool) -> str:
    """Name the tier of a link: its fabric, and outside a domain the switches that it leads up to."""
    kinds = {kind_a, kind_b}
    if kinds == {"router"}:
        return f"{fabric} {'group' if same_pod else 'global'}"
    if "router" in kinds:
        return f"{fabric} router"
    ranks = [rank for rank in _RANK if rank in kinds]
    return f"{fabric} {ranks[-1]}" if ranks else str(fabric)
