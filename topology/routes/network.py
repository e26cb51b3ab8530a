"""A cluster's graph as arrays: nodes by number (GPUs first, in the cluster's order) and directed links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from topology.cluster import Cluster
from topology.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SCALE_UP_KINDS = ("gpu", "switch")
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
    def _by_domain(self) -> tuple[Ints, Ints]:
        """Scale-up links ordered by domain, and where each domain's begin."""
        order = np.argsort(self.scale_up_domain, kind="stable")
        domains = int(self.domain.max(initial=-1)) + 1
        return order, np.searchsorted(self.scale_up_domain[order], np.arange(domains + 1))

    def links_of_domain(self, domain: int) -> Ints:
        """Return the numbers of the scale-up links of a domain."""
        order, first = self._by_domain
        return order[first[domain] : first[domain + 1]]

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


def connected_parts(tail: Ints, head: Ints, nodes: int) -> Ints:
    """Return ``[nodes]`` the number of the connected part that each node is in, by the given links."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    joined = csr_array((np.ones(len(tail)), (tail, head)), shape=(nodes, nodes))
    return np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)


def network_of(cluster: Cluster) -> Network:
    """Return the graph of ``cluster`` as arrays.

    Raises
    ------
    InputError
        If the graph lacks one of the cluster's GPUs.
    """
    graph = cluster.graph
    gpus = [gpu.id for gpu in cluster.gpus]
    for gpu in gpus:
        if gpu not in graph:
            raise InputError(f"{cluster.name}: GPU {gpu} is not in the graph of the cluster.")
    others = set(gpus)
    names = (*gpus, *(node for node in graph if node not in others))
    number = {name: i for i, name in enumerate(names)}
    nodes = graph.nodes
    domains = [nodes[name].get("domain") for name in names]
    tiers: dict[str, int] = {}
    rows: list[tuple[int, int, float, float, float, int]] = []
    seen: dict[tuple[object, ...], int] = {}
    kinds = tuple(str(nodes[name]["kind"]) for name in names)
    for a, b, data in graph.edges(data=True):
        i, j = number[a], number[b]
        key = (data["fabric"], kinds[i], kinds[j], nodes[a].get("pod") == nodes[b].get("pod"))
        if key not in seen:
            seen[key] = tiers.setdefault(_tier(*key), len(tiers))
        weight = data["count"] * data.get("health", 1.0)
        rows.append((i, j, weight, data["bytes_per_s"], data["latency_s"], seen[key]))
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    ends = table[:, :2].astype(np.int64)
    twice = np.concatenate([table, table])
    return Network(
        names=names,
        kinds=kinds,
        gpus=len(gpus),
        domain=np.array([-1 if value is None else value for value in domains], dtype=np.int64),
        tail=np.concatenate([ends[:, 0], ends[:, 1]]),
        head=np.concatenate([ends[:, 1], ends[:, 0]]),
        weight=twice[:, 2],
        bytes_per_s=twice[:, 3],
        latency_s=twice[:, 4],
        tiers=tuple(tiers),
        tier=twice[:, 5].astype(np.int64),
        coordinates=tuple(nodes[gpu].get("coordinate") for gpu in gpus),
    )


def _tier(fabric: object, kind_a: str, kind_b: str, same_pod: bool) -> str:
    """Name the tier of a link: its fabric, and outside a domain the switches that it leads up to."""
    kinds = {kind_a, kind_b}
    if kinds == {"router"}:
        return f"{fabric} {'group' if same_pod else 'global'}"
    if "router" in kinds:
        return f"{fabric} router"
    ranks = [rank for rank in _RANK if rank in kinds]
    return f"{fabric} {ranks[-1]}" if ranks else str(fabric)
