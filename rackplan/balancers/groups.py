"""Expert groups on nodes, as in EPLB's hierarchical policy; each node is a separate problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Floats, Ints
from placement.experts.problem import make_problem
from placement.experts.solve import solve


@dataclass(frozen=True, eq=False)
class NodeExperts:
    """The experts that each node holds, int64 ``[layers, nodes, experts of a node]``, growing in a node.

    A layer of a node is a row of the problem inside: ``layers x nodes`` rows of ``experts / nodes`` experts.
    """

    experts: Ints

    def loads(self, table: Floats) -> Floats:
        """Return ``[..., layers, experts]`` as ``[..., layers x nodes, experts of a node]``."""
        layers, nodes, size = self.experts.shape
        order = np.broadcast_to(self.experts.reshape(layers, -1), table.shape)
        return np.take_along_axis(table, order, axis=-1).reshape(*table.shape[:-2], layers * nodes, size)

    def inside(self, slot_expert: Experts) -> Experts:
        """Return ``[layers, slots]`` as ``[layers x nodes, slots of a node]``, experts numbered within their node."""
        layers, nodes, size = self.experts.shape
        place = np.empty((layers, nodes * size + 1), dtype=np.int64)
        place[:, -1] = -1  # an empty slot stays one
        row = np.arange(layers)[:, None]
        place[row, self.experts.reshape(layers, -1)] = np.arange(nodes * size) % size
        return place[row, slot_expert].reshape(layers * nodes, -1).astype(np.int32)

    def outside(self, slot_expert: Experts) -> Experts:
        """Invert :meth:`inside` for a placement."""
        layers, nodes, size = self.experts.shape
        experts = np.take_along_axis(
            self.experts.reshape(layers * nodes, size), slot_expert.astype(np.int64), axis=1
        )
        return experts.reshape(layers, -1).astype(np.int32)


def packed_groups(loads: Floats, groups: int, nodes: int) -> NodeExperts:
    """Assign groups of consecutive experts evenly to nodes, for ``loads`` ``[scenarios, layers, experts]``.

    A layer of zeros counts as even.
    """
    scenarios, layers, experts = loads.shape
    size = experts // groups
    known = np.where(loads.any(axis=2, keepdims=True), loads, 1.0)
    largest = known.max(axis=2, keepdims=True)  # the sum of loads near 1e308 overflows
    of_group = (known / largest).reshape(scenarios, layers, groups, size).sum(axis=3)
    # a group is to its node what a copy is to its GPU
    placed = solve(
        make_problem(of_group, np.full(nodes, groups // nodes)), exact=False
    ).assignment.slot_expert
    node_groups = np.sort(placed.reshape(layers, nodes, -1).astype(np.int64), axis=2)
    experts_of = node_groups[..., None] * size + np.arange(size)
    return NodeExperts(experts_of.reshape(layers, nodes, experts // nodes))


def groups_as_they_lie(slot_expert: Experts, experts: int, groups: int, nodes: int) -> NodeExperts | None:
    """Return the experts of each node if every group is on one node and nodes have equal numbers; else None."""
    layers, slots = slot_expert.shape
    size = experts // groups
    held = np.zeros((layers, nodes, experts), dtype=bool)
    node = np.arange(slots) // (slots // nodes)
    row, slot = np.nonzero(slot_expert >= 0)
    held[row, node[slot], slot_expert[row, slot]] = True
    by_group = held.reshape(layers, nodes, groups, size)
    complete = by_group.all(axis=3)
    if (by_group.any(axis=3) != complete).any() or (complete.sum(axis=1) != 1).any():
        return None
    if (complete.sum(axis=2) != groups // nodes).any():
        return None
    return NodeExperts(np.nonzero(held)[2].reshape(layers, nodes, experts // nodes).astype(np.int64))
