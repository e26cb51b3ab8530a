"""Every route of every pair of GPUs, written out one by one: the plain reading of the routing rules.

Slow and short on purpose: loads of ``topology.routes`` are held against these routes.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING

import networkx as nx

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology import Cluster

Path = tuple[float, tuple[str, ...]]  # share of the pair's bytes, nodes in order


class Paths:
    """Routes of one cluster; on rails after a hop inside the domain."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.graph = cluster.graph
        self.gpu = {gpu.id: gpu for gpu in cluster.gpus}
        out = cluster.spec.scale_out
        self.relay = out is not None and out.kind == "rail"
        self.leaving = {gpu for gpu in self.gpu if self._leaves(gpu)}

    def of(self, a: str, b: str) -> list[Path]:
        """Return the routes from GPU ``a`` to GPU ``b``."""
        one, two = self.gpu[a], self.gpu[b]
        if one.domain == two.domain:
            return self._inside(a, b)
        found = []
        for part, taker in self._near(b, self.leaving):
            for giver_part, giver in self._relays(a, self.gpu[taker].rail):
                hop = [(1.0, (a,))] if giver == a else self._inside(a, giver)
                end = [(1.0, (b,))] if taker == b else self._inside(taker, b)
                for (x, first), (y, middle), (z, last) in product(
                    hop, self._fewest_hops(giver, taker, self.graph), end
                ):
                    found.append((part * giver_part * x * y * z, (*first, *middle[1:], *last[1:])))
        return found

    def _leaves(self, gpu: str) -> bool:
        """Whether a GPU reaches another domain on its own links."""
        others = set(self.gpu) - {gpu}
        seen = nx.node_connected_component(self.graph.subgraph(set(self.graph) - others), gpu)
        around = {other for node in seen for other in self.graph[node]}
        return any(self.gpu[other].domain != self.gpu[gpu].domain for other in around & others)

    def _relays(self, a: str, rail: int) -> list[tuple[float, str]]:
        """Return the GPUs that hand over bytes from ``a`` for a rail."""
        if self.relay and not (self.gpu[a].rail == rail and a in self.leaving):
            found = self._near(a, {g for g in self.leaving if self.gpu[g].rail == rail} - {a})
            if found != [(1.0, a)]:
                return found
        return self._near(a, self.leaving)

    def _near(self, a: str, able: set[str]) -> list[tuple[float, str]]:
        """Return ``a`` if it is able, else those of its node that are, else of its domain, else itself, evenly."""
        own = self.gpu[a]
        near = (
            [a] * (a in able)
            or [g for g in self.gpu if g in able and self.gpu[g].node == own.node]
            or [g for g in self.gpu if g in able and self.gpu[g].domain == own.domain]
            or [a]
        )
        return [(1 / len(near), via) for via in near]

    def _inside(self, a: str, b: str) -> list[Path]:
        """Return the routes between two GPUs of one domain."""
        number = self.gpu[a].domain
        spec = self.cluster.spec.domains[number]
        up = self.graph.subgraph(
            n
            for n, data in self.graph.nodes(data=True)
            if data["kind"] in ("gpu", "switch") and data["domain"] == number
        )
        if spec.structure == "nested" or (spec.structure == "mesh" and not up.has_edge(a, b)):
            return self._fewest_hops(a, b, up, forward=True)
        if spec.structure == "torus":
            ways = list(self._dimension_order(a, b, spec.shape, spec.wrap))
            good = all(up.has_edge(*step) for _, nodes in ways for step in pairwise(nodes))
            return ways if good else self._fewest_hops(a, b, up, forward=True)
        return self._fewest_hops(a, b, up)

    def _fewest_hops(self, a: str, b: str, graph: nx.Graph[str], *, forward: bool = False) -> list[Path]:
        """Return all fewest-hop routes, shared at each node in proportion to healthy links."""
        if not forward:
            graph = graph.subgraph(n for n in graph if n in (a, b) or n not in self.gpu)
        far = nx.single_source_shortest_path_length(graph, b)

        def onward(node: str) -> list[Path]:
            if node == b:
                return [(1.0, (b,))]
            ahead = {
                n: d["count"] * d["health"] for n, d in graph[node].items() if far.get(n) == far[node] - 1
            }
            whole = sum(ahead.values())
            return [
                (weight / whole * share, (node, *rest))
                for n, weight in ahead.items()
                for share, rest in onward(n)
            ]

        return onward(a)

    def _dimension_order(
        self, a: str, b: str, shape: tuple[int, ...], wrap: tuple[bool, ...]
    ) -> Iterator[Path]:
        """Yield the routes along x, then y, ... the shorter way round, both ways where they are as long."""
        place = {
            (self.gpu[g].domain, data["coordinate"]): g
            for g, data in self.graph.nodes(data=True)
            if g in self.gpu
        }
        here, there = (self.graph.nodes[g]["coordinate"] for g in (a, b))
        ways = []
        for k, size in enumerate(shape):
            ahead = there[k] - here[k]
            turns = [ahead]
            if wrap[k] and ahead:
                ahead %= size
                turns = (
                    [ahead]
                    if 2 * ahead < size
                    else [ahead - size]
                    if 2 * ahead > size
                    else [ahead, ahead - size]
                )
            ways.append(turns)
        for turns in product(*ways):
            at = list(here)
            nodes = [a]
            for k, turn in enumerate(turns):
                for _ in range(abs(turn)):
                    at[k] = (at[k] + (1 if turn > 0 else -1)) % shape[k]
                    nodes.append(place.get((self.gpu[a].domain, tuple(at)), f"gone {at}"))
            yield 1 / len(list(product(*ways))), tuple(nodes)
