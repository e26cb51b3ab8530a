"""What no step of stages in any order is below, and what none exceeds."""

from __future__ import annotations

import numpy as np

from cost.layouts.stage_order import OrderProblem
from placement.arrays import Floats


def least_tour(problem: OrderProblem) -> float:
    """Seconds of hops that no order is below.

    Its hops forward are at least the nearest of each group, of as many groups as there are stages; and they are a
    tree, so at least as long as the shortest edges of the minimum spanning tree (Kruskal: of all forests of so many
    edges the first ones are the least).
    """
    if problem.stages == 1:
        return 0.0
    many, none = problem.stages - 1, np.where(np.eye(problem.groups, dtype=bool), np.inf, 0.0)
    hops = problem.hop_seconds + none
    nearest = max(float(np.sort(hops.min(axis=axis))[:many].sum()) for axis in (0, 1))
    tree = _tree_edges(np.minimum(hops, hops.T))[:many].sum()
    return max(nearest, float(tree)) + float((problem.back_seconds + none).min())


def _tree_edges(weights: Floats) -> Floats:
    """Edges of the minimum spanning tree of a complete graph, shortest first, ``[groups - 1]`` (Prim)."""
    reached = weights[0].copy()
    left = np.ones(len(weights), dtype=bool)
    left[0] = False
    edges = []
    while left.any():
        nearest = int(np.where(left, reached, np.inf).argmin())
        edges.append(reached[nearest])
        left[nearest] = False
        reached = np.minimum(reached, weights[nearest])
    return np.sort(edges)


def least_seconds(problem: OrderProblem) -> float:
    """Seconds of a step that no order and split is below, as if each layer were on the group that is best at it."""
    totals, depth = problem.before[:, -1], problem.stages
    fastest = problem.seconds.min(axis=1)
    total = float((totals * fastest).sum()) + float(problem.first_seconds.min() + problem.last_seconds.min())
    return max(total + least_tour(problem), depth * float(fastest[totals > 0].max()))


def most_seconds(problem: OrderProblem) -> float:
    """Return seconds that no step exceeds: every layer on the slowest group, over the longest hops."""
    depth, totals = problem.stages, problem.before[:, -1]
    most = float((totals * problem.seconds.max(axis=1)).sum())
    most += float(problem.first_seconds.max() + problem.last_seconds.max())
    return depth * (most + float(problem.hop_seconds.max() + problem.back_seconds.max()))
