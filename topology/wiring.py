"""A cluster's nodes and links as arrays: what structures and fabrics lay, and what routes and counts read.

The graph of :mod:`topology.graph` is made from them for whoever walks node by node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topology.graph import INSIDE_KINDS, NODE_KINDS, SCALE_UP_KINDS, edge_attributes, node_attributes
from topology.spec import FabricSpec

if TYPE_CHECKING:
    import networkx as nx

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Names = Sequence[str | None]
Coordinates = Sequence[tuple[int, ...] | None]

NUMBERED = ("domain", "rail", "plane", "pod")
"""Node attributes that are numbers, -1 where a node has none."""


class Laying:
    """Nodes and links of a domain, a fabric or a cluster as they are laid, numbered from 0.

    The first ``gpus`` numbers are GPUs that are told elsewhere; ``coordinates`` are their places in a torus.
    """

    def __init__(self, gpus: int, coordinates: Coordinates | None = None) -> None:
        self.gpus = gpus
        self.coordinates: Coordinates = [None] * gpus if coordinates is None else coordinates
        self.names: list[str] = []
        self.kinds: list[str] = []
        self.node: list[str | None] = []
        self.rack: list[str | None] = []
        self.fabrics: dict[FabricSpec, int] = {}
        self._numbered: dict[str, list[Ints]] = {key: [] for key in NUMBERED}
        self._links: list[Ints] = []

    def add(
        self,
        kind: str | Sequence[str],
        names: Sequence[str],
        node: Names | None = None,
        rack: Names | None = None,
        **known: ArrayLike,
    ) -> Ints:
        """Add nodes of a kind, or of one each, and return their numbers; ``known`` holds one for all, or for each.

        Names and hosts are those inside the domain (``s1`` for ``d0.s1``); of a fabric, whole ones.
        """
        start = self.gpus + len(self.names)
        self.names += names
        self.kinds += [kind] * len(names) if isinstance(kind, str) else kind
        self.node += [None] * len(names) if node is None else node
        self.rack += [None] * len(names) if rack is None else rack
        for key, rows in self._numbered.items():
            rows.append(np.broadcast_to(np.asarray(known.get(key, -1), dtype=np.int64), len(names)))
        return np.arange(start, start + len(names))

    def link(self, fabrics: Sequence[FabricSpec], a: ArrayLike, b: ArrayLike, count: ArrayLike) -> None:
        """Lay ``count`` links from each of ``a`` to each of ``b``, none where it is 0.

        All are broadcast against each other, ``fabrics`` along the last axis.
        """
        number = self._numbers(fabrics)
        parts = [part.reshape(-1) for part in np.broadcast_arrays(a, b, number, count)]
        rows = np.stack(parts).astype(np.int64)
        self._links.append(rows[:, rows[3] > 0])

    def links_of(self, laying: Laying, number: Ints) -> None:
        """Lay the links of another laying, ``number`` the node here of each of its nodes, row by row if several."""
        a, b, fabric, count = laying.links
        rows = number[..., a], number[..., b], self._numbers(tuple(laying.fabrics))[fabric], count
        self._links.append(np.stack([part.reshape(-1) for part in np.broadcast_arrays(*rows)]))

    def _numbers(self, fabrics: Sequence[FabricSpec]) -> Ints:
        return np.array(
            [self.fabrics.setdefault(fabric, len(self.fabrics)) for fabric in fabrics], dtype=np.int64
        )

    def numbered(self, key: str) -> Ints:
        """Return one of ``NUMBERED`` of each node that was added."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._numbered[key]])

    @property
    def links(self) -> Ints:
        """``[4, links]`` both ends, number of the fabric, and count, as laid."""
        return np.concatenate([np.zeros((4, 0), dtype=np.int64), *self._links], axis=1)


@dataclass(frozen=True)
class Wiring:
    """Nodes in the order of the graph, and links, each once.

    Attributes
    ----------
    names, kinds, node, rack, coordinate:
        ``[nodes]`` attributes of :mod:`topology.graph`, ``names`` the ids.
    numbered:
        ``[nodes]`` ``domain``, ``rail``, ``plane`` and ``pod``; -1 where there is none.
    fabrics:
        The fabrics that links have.
    a, b, fabric, count, health:
        ``[links]`` both ends, number of the fabric, parallel links, and the part of the rate that is left.
    broken_gpus, broken_links:
        What was built and does not work.
    lost_bytes_per_s:
        What each GPU lost of its scale-up rate, by id.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    node: tuple[str | None, ...]
    rack: tuple[str | None, ...]
    coordinate: tuple[tuple[int, ...] | None, ...]
    numbered: Mapping[str, Ints]
    fabrics: tuple[FabricSpec, ...]
    a: Ints
    b: Ints
    fabric: Ints
    count: Ints
    health: Floats
    broken_gpus: tuple[str, ...] = ()
    broken_links: tuple[tuple[str, str], ...] = ()
    lost_bytes_per_s: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, laying: Laying, coordinate: Coordinates) -> Wiring:
        """Return what was laid, all of it, with the place of each node in its torus."""
        a, b, fabric, count = laying.links
        return cls(
            names=tuple(laying.names),
            kinds=tuple(laying.kinds),
            node=tuple(laying.node),
            rack=tuple(laying.rack),
            coordinate=tuple(coordinate),
            numbered={key: laying.numbered(key) for key in NUMBERED},
            fabrics=tuple(laying.fabrics),
            a=a,
            b=b,
            fabric=fabric,
            count=count,
            health=np.ones(len(a)),
        )

    @cached_property
    def number(self) -> dict[str, int]:
        """Number of each node by its id."""
        return {name: i for i, name in enumerate(self.names)}

    @property
    def domain(self) -> Ints:
        """``[nodes]`` number of the scale-up domain, -1 outside."""
        return self.numbered["domain"]

    @cached_property
    def in_order(self) -> Ints:
        """Links as a graph lists them: by the end that comes first."""
        return np.argsort(np.minimum(self.a, self.b), kind="stable")

    @property
    def link_bytes_per_s(self) -> Floats:
        """``[links]`` bytes/s of one link per direction as built; NaN where nobody has published it."""
        return np.array([fabric.link_bytes_per_s.value for fabric in self.fabrics])[self.fabric]

    @property
    def bytes_per_s(self) -> Floats:
        """``[links]`` bytes/s per direction of all parallel links, as they work."""
        return self.count * self.link_bytes_per_s * self.health

    @property
    def latency_s(self) -> Floats:
        """``[links]`` seconds of one hop."""
        return np.array([fabric.latency_s.value for fabric in self.fabrics])[self.fabric]

    def is_kind(self, *kinds: str) -> Bools:
        """Return ``[nodes]`` whether a node is of one of some kinds."""
        matches = np.array([kind in kinds for kind in NODE_KINDS])
        return matches[self.kind_number]

    @cached_property
    def kind_number(self) -> Ints:
        """``[nodes]`` place of its kind in ``NODE_KINDS``."""
        of = {kind: i for i, kind in enumerate(NODE_KINDS)}
        return np.array([of[kind] for kind in self.kinds], dtype=np.int64)

    @cached_property
    def _at(self) -> tuple[Ints, Ints]:
        """Links by the nodes that they touch, in order, and where each node's begin."""
        ends = np.stack([self.a, self.b], axis=1).reshape(-1)
        order = np.argsort(ends, kind="stable")
        return order // 2, np.searchsorted(ends[order], np.arange(len(self.names) + 1))

    def links_at(self, node: int) -> Ints:
        """Return the links of a node, in order."""
        links, starts = self._at
        return links[starts[node] : starts[node + 1]]

    def others(self, node: int) -> Ints:
        """Return the nodes at the other ends of the links of a node, in order."""
        links = self.links_at(node)
        return self.a[links] + self.b[links] - node

    def neighbours(self, name: str) -> list[str]:
        """Return the ids of the nodes at the other ends of the links of a node, in order."""
        return [self.names[node] for node in self.others(self.number[name]).tolist()]

    @cached_property
    def on_hosts(self) -> Bools:
        """``[nodes]`` whether a node has a link to a GPU, a NIC or another part of a host."""
        host = self.is_kind("gpu", "nic", *INSIDE_KINDS)
        linked = np.zeros(len(self.names), dtype=bool)
        linked[self.a[host[self.b]]] = linked[self.b[host[self.a]]] = True
        return linked

    @cached_property
    def scale_up_ends(self) -> Bools:
        """``[links, 2]`` whether a link is a scale-up link of the node at each of its ends.

        Those between GPUs and switch chips of one domain; of a GPU that has none, those to the inside of its host.
        """
        up, inside, gpu = self.is_kind(*SCALE_UP_KINDS), self.is_kind(*INSIDE_KINDS), self.is_kind("gpu")
        a, b = self.a, self.b
        joined = up[a] & up[b] & (self.domain[a] == self.domain[b])
        linked = np.zeros(len(self.names), dtype=bool)
        linked[a[joined]] = linked[b[joined]] = True
        alone = gpu & ~linked
        return np.stack([joined | (alone[a] & inside[b]), joined | (alone[b] & inside[a])], axis=1)

    @cached_property
    def scale_up_bytes_per_s(self) -> Floats:
        """``[nodes]`` bytes/s per direction of the scale-up links of a node."""
        ends = np.stack([self.a, self.b], axis=1)[self.scale_up_ends]
        rates = np.stack([self.bytes_per_s] * 2, axis=1)[self.scale_up_ends]
        return np.asarray(np.bincount(ends, rates, len(self.names)), dtype=np.float64)

    def find(self, pairs: Sequence[tuple[str, str]]) -> Ints:
        """Return the link between each two nodes, -1 where there is none."""
        nodes = len(self.names)
        link_keys = np.minimum(self.a, self.b) * nodes + np.maximum(self.a, self.b)
        order = np.argsort(link_keys, kind="stable")
        number = self.number
        ends = np.array([[number[a], number[b]] for a, b in pairs], dtype=np.int64).reshape(-1, 2)
        pair_keys = ends.min(axis=1, initial=nodes) * nodes + ends.max(axis=1, initial=0)
        at = np.minimum(np.searchsorted(link_keys[order], pair_keys), len(link_keys) - 1)
        return (
            np.where(link_keys[order[at]] == pair_keys, order[at], -1)
            if len(link_keys)
            else np.full(len(ends), -1)
        )

    def without(self, gone: Bools, links: Ints) -> Wiring:
        """Return the wiring without some nodes (``[nodes]``), their links, and some links."""
        stays = np.flatnonzero(~gone)
        intact = ~(gone[self.a] | gone[self.b])
        intact[links] = False
        number = np.cumsum(~gone) - 1

        def selected(values: Sequence[object]) -> tuple[object, ...]:
            return tuple(values[i] for i in stays.tolist())

        fields = {
            key: selected(getattr(self, key)) for key in ("names", "kinds", "node", "rack", "coordinate")
        }
        fields |= {key: getattr(self, key)[intact] for key in ("fabric", "count", "health")}
        numbered = {key: values[stays] for key, values in self.numbered.items()}
        return replace(self, **fields, numbered=numbered, a=number[self.a[intact]], b=number[self.b[intact]])  # type: ignore[arg-type]

    def graph(self, name: str) -> nx.Graph[str]:
        """Return the graph, with the attributes of :mod:`topology.graph`."""
        import networkx as nx

        graph: nx.Graph[str] = nx.Graph(
            name=name, broken_gpus=self.broken_gpus, broken_links=self.broken_links
        )
        numbered = zip(*(self.numbered[key].tolist() for key in NUMBERED), strict=True)
        rows = zip(self.names, self.kinds, self.node, self.rack, self.coordinate, numbered, strict=True)
        for identity, kind, node, rack, coordinate, numbers in rows:
            known = {key: number for key, number in zip(NUMBERED, numbers, strict=True) if number >= 0}
            graph.add_node(
                identity, **node_attributes(kind, node=node, rack=rack, coordinate=coordinate, **known)
            )
        links = zip(*(part.tolist() for part in (self.a, self.b, self.fabric, self.count)), strict=True)
        known_edges: dict[tuple[int, int], dict[str, object]] = {}
        for a, b, fabric, count in links:
            if (fabric, count) not in known_edges:
                known_edges[fabric, count] = edge_attributes(self.fabrics[fabric], count)
            graph.add_edge(self.names[a], self.names[b], **known_edges[fabric, count])
        rates = self.bytes_per_s
        for link in np.flatnonzero(self.health < 1).tolist():
            data = graph.edges[self.names[self.a[link]], self.names[self.b[link]]]
            data.update(health=float(self.health[link]), bytes_per_s=float(rates[link]))
        return graph


def connected_parts(tail: Ints, head: Ints, nodes: int) -> Ints:
    """Return ``[nodes]`` the number of the connected part that each node is in, by the given links."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    joined = csr_array((np.ones(len(tail)), (tail, head)), shape=(nodes, nodes))
    return np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)
