"""Minimum-cost flow by OR-Tools, arcs as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from placement.arrays import Ints
from topology.errors import InfeasibleError, NoAnswerError


class Arcs(NamedTuple):
    """Arcs of one kind: ends, and whole numbers of capacity and of cost of a unit, ``[arcs]`` or one for all."""

    tail: ArrayLike
    head: ArrayLike
    capacity: ArrayLike
    cost: ArrayLike


def least_cost_flow(kinds: Sequence[Arcs], supply: Ints) -> tuple[int, Ints]:
    """Return the least cost of meeting ``supply`` ``[nodes]``, and the flow on each arc of the first kind.

    Raises
    ------
    InfeasibleError
        If capacities are too small.
    NoAnswerError
        If the solver gives up.
    """
    solver: Any = SimpleMinCostFlow()
    first: Any = None
    for kind in kinds:
        tail, head, capacity, cost = np.broadcast_arrays(*kind)
        arcs = solver.add_arcs_with_capacity_and_unit_cost(
            tail.astype(np.int32), head.astype(np.int32), capacity.astype(np.int64), cost.astype(np.int64)
        )
        first = arcs if first is None else first
    solver.set_nodes_supplies(np.arange(supply.size, dtype=np.int32), supply.astype(np.int64))
    status = solver.solve()
    if status == solver.INFEASIBLE:
        raise InfeasibleError("capacities are too small for what has to flow.")
    if status != solver.OPTIMAL:
        raise NoAnswerError(f"the minimum-cost flow ended without an answer ({status}).")
    return int(solver.optimal_cost()), np.asarray(solver.flows(first), dtype=np.int64)
