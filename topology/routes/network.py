"""A cluster's graph as arrays: nodes by number (GPUs first, in the cluster's order) and directed links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from topology.cluster import Cluster
from topology.graph import NODE_KINDS, SCALE_UP_KINDS
from topology.wiring import Bools, Floats, Ints, Wiring, connected_parts

__all__ = ["Bools", "Floats", "Ints", "Network", "connected_parts", "network_of"]
_RANK = ("leaf", "spine", "core")


@dataclass(frozen=True)
class Network:
    """Directed links of a cluster: link ``e`` and link ``e + links / 2`` are the two directions of one edge.

    Attributes
    ----------
    names, kinds:
        Id and kind of each node; node ``i`` is GPU number ``i`` for ``i < gpus``.
    gpus:
        How many GPUs there are.
    domain:
        ``[nodes]`` number of the scale-up domain, -1 outside.
    tail, head:
        ``[links]`` node a directed link leaves, and the node it enters.
    weight:
        ``[links]`` parallel links times health: how equal-cost routes share.
    bytes_per_s, latency_s:
        ``[links]`` rate in this direction, seconds of one hop.
    tiers, tier:
        Names of the tiers, and ``[links]`` which one a link is in.
    coordinates:
        ``coordinate`` of each GPU in its torus, None outside.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    gpus: int
    domain: Ints
    tail: Ints
    head: Ints
    weight: Floats
    bytes_per_s: Floats
    latency_s: Floats
    tiers: tuple[str, ...]
    tier: Ints
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
    def scale_up_domain(self) -> Ints:
        """``[links]`` domain of a scale-up link (both ends GPUs or chips of one domain), -1 for the others."""
        up = np.array([kind in SCALE_UP_KINDS for kind in self.kinds], dtype=bool)
        a, b = self.tail, self.head
        inside = up[a] & up[b] & (self.domain[a] == self.domain[b])
        return np.where(inside, self.domain[a], -1)

    @cached_property
    def _by_ends(self) -> tuple[Ints, Ints]:
        """Links ordered by their two ends, with the key they are ordered by."""
        key = self.tail * len(self.names) + self.head
        order = np.argsort(key, kind="stable")
        return key[order], order

    def link_between(self, a: Ints, b: Ints) -> Ints:
        """Return the link from each of ``a`` to each of ``b``, -1 where there is none."""
        keys, order = self._by_ends
        wanted = a * len(self.names) + b
        if not len(keys):
            return np.full(wanted.shape, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, order[at], -1)


def network_of(cluster: Cluster) -> Network:
    """Return the links of ``cluster`` in both directions, in the order of its graph."""
    wiring = cluster.wiring
    nodes = len(wiring.names)
    ours = np.array([wiring.number[gpu.id] for gpu in cluster.gpus], dtype=np.int64)
    others = np.ones(nodes, dtype=bool)
    others[ours] = False
    order = np.concatenate([ours, np.flatnonzero(others)])
    number = np.empty(nodes, dtype=np.int64)
    number[order] = np.arange(nodes)
    link = wiring.in_order
    first, second = (end(wiring.a[link], wiring.b[link]) for end in (np.minimum, np.maximum))
    tiers, tier = _tiers(wiring, first, second, wiring.fabric[link])
    twice = np.tile(link, 2)
    names, places = order.tolist(), ours.tolist()
    return Network(
        names=tuple(wiring.names[i] for i in names),
        kinds=tuple(wiring.kinds[i] for i in names),
        gpus=len(ours),
        domain=wiring.domain[order],
        tail=number[np.concatenate([first, second])],
        head=number[np.concatenate([second, first])],
        weight=(wiring.count * wiring.health)[twice],
        bytes_per_s=wiring.bytes_per_s[twice],
        latency_s=wiring.latency_s[twice],
        tiers=tiers,
        tier=np.tile(tier, 2),
        coordinates=tuple(wiring.coordinate[i] for i in places),
    )


def _tiers(wiring: Wiring, first: Ints, second: Ints, fabric: Ints) -> tuple[tuple[str, ...], Ints]:
    """Return the names of the tiers, in order of their first links, and which one each link is in."""
    kind, pod = wiring.kind_number, wiring.numbered["pod"]
    key = (fabric * len(NODE_KINDS) + kind[first]) * len(NODE_KINDS) + kind[second]
    key = 2 * key + (pod[first] == pod[second])
    at = np.full(int(key.max(initial=-1)) + 1, len(key))
    at[key[::-1]] = np.arange(len(key))[::-1]  # the first link of each is written last
    names: dict[str, int] = {}
    number = np.zeros(len(at), dtype=np.int64)
    for row in np.argsort(at)[: int((at < len(key)).sum())].tolist():
        link = at[row]
        one, two = wiring.kinds[first[link]], wiring.kinds[second[link]]
        name = _tier(wiring.fabrics[fabric[link]].name, one, two, row % 2 == 1)
        number[row] = names.setdefault(name, len(names))
    return tuple(names), number[key]


def _tier(fabric: str, kind_a: str, kind_b: str, same_pod: bool) -> str:
    """Name the tier of a link: its fabric, and outside a domain the switches that it leads up to."""
    kinds = {kind_a, kind_b}
    if kinds == {"router"}:
        return f"{fabric} {'group' if same_pod else 'global'}"
    if "router" in kinds:
        return f"{fabric} router"
    ranks = [rank for rank in _RANK if rank in kinds]
    return f"{fabric} {ranks[-1]}" if ranks else str(fabric)
