"""Groups of similar scenarios, one vote per group, and the loads used in a search.

Windows of one recording, or the same prompts at two lengths, are nearly one load: heard one by one they outvote what
is rare. A group is of scenarios that are all within :data:`ALIKE_DISTANCE` of each other; each group has one vote,
shared by its scenarios. For loads not seen, each group is also heard pushed away from the nearest other one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Floats, Index, Ints

ALIKE_DISTANCE = 0.15
"""Root mean square of the difference of two loads, as part of the mean load, below which they are alike."""
FURTHER = 0.8
"""How far a group is pushed from its nearest neighbour, as a part of the way between the two."""
FURTHER_VOTE = 0.4
"""Of what is pushed away, where a group has one."""
MOST_HEARD = 16
"""Loads that a search hears, besides those pushed away: of more the most alike are joined to their mean."""

_FURTHEST = 0.5  # root mean square, that a group is pushed: scenarios may have nothing in common
_MIN_PUSHED_PART = 0.02  # of its load, that an expert keeps when pushed
_SAME = 1e-6  # the same up to rounding


def distances(loads: Floats) -> Floats:
    """Return the root mean square difference of each two of ``loads`` ``[scenarios, ...]``, of mean 1."""
    flat = loads.reshape(len(loads), -1)
    size = flat.shape[1]
    square = (flat * flat).sum(axis=1)
    apart: Floats = np.sqrt(np.maximum(square[:, None] + square - 2 * (flat @ flat.T), 0.0) / size)
    apart = np.round(apart, 6)  # a product of matrices has other last digits on other processors
    np.fill_diagonal(apart, 0.0)
    return apart


def distinct(loads: Floats) -> Index:
    """Return which of ``loads`` ``[scenarios, layers, experts]`` are none of the earlier ones over again."""
    again = np.tril(distances(loads) < _SAME, -1).any(axis=1)
    return np.flatnonzero(~again)


def group_scenarios(loads: Floats, *, most: int = MOST_HEARD) -> tuple[Ints, Ints]:
    """Return the group of each of ``loads`` ``[scenarios, layers, experts]``, and its part of what is heard.

    All of a group are within :data:`ALIKE_DISTANCE` of each other (complete linkage: a chain of windows is several
    groups), or there are ``most`` groups, of the nearest. Parts are those at most ``most`` nearest ones, each within
    a group.
    """
    count = len(loads)
    if count == 1:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    apart = distances(loads)
    tree = linkage(squareform((apart + apart.T) / 2, checks=False), "complete")
    group = fcluster(tree, ALIKE_DISTANCE, "distance")
    if group.max() > most:
        group = fcluster(tree, most, "maxclust")
    part = np.arange(count) if count <= most else fcluster(tree, most, "maxclust") - 1
    return _numbered(group), _numbered(part)


def votes(group: Ints) -> Floats:
    """Return the vote of each scenario, ``[scenarios]``: each group has one, and they sum to 1."""
    size = np.bincount(group)
    shared: Floats = 1.0 / (size[group] * size.size)
    return shared


def heard(loads: Floats, *, further: bool) -> tuple[Floats, Floats]:
    """Return the loads that a search shall listen to, ``[heard, layers, experts]``, and their votes.

    ``loads`` ``[scenarios, layers, experts]`` are distinct, of mean 1. ``further``: with each group's mean pushed
    away from that of its nearest neighbour, where there is one.
    """
    group, part = group_scenarios(loads)
    vote = votes(group)
    searched = _means(loads, part)
    weight = np.bincount(part, weights=vote)
    groups = int(group.max()) + 1
    if further and groups > 1:
        centre = _means(loads, group)
        apart = distances(centre)
        np.fill_diagonal(apart, np.inf)
        away = centre - centre[apart.argmin(axis=1)]
        push = np.minimum(FURTHER, _FURTHEST / apart.min(axis=1))
        pushed = np.maximum(centre + push[:, None, None] * away, _MIN_PUSHED_PART * centre)
        searched = np.concatenate([searched, pushed / pushed.mean(axis=2, keepdims=True)])
        weight = np.concatenate([weight, np.full(groups, FURTHER_VOTE / groups)])
    return searched, weight / weight.sum()


def _means(loads: Floats, group: Ints) -> Floats:
    return np.stack([loads[group == number].mean(axis=0) for number in range(int(group.max()) + 1)])


def _numbered(group: NDArray[np.integer]) -> Ints:
    """Number groups in the order of their first scenarios."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    numbered: Ints = rank[inverse.reshape(-1)]
    return numbered
