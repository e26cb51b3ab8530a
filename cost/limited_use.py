"""What tokens reach where a model limits the groups of experts of each: co-activation known without a trace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from cost.assignment import Assignment
from cost.dispatch import ExpertUse
from cost.terms.alltoall_volumes import Routing
from cost.token_hits import Floats, Ints, TokenHits, numbered

_MOST_CHOICES = 4096
"""Choices of groups that are summed over; DeepSeek-V3 has 70."""
_CELLS = 1 << 16
"""Choices x places of the layers worked out at once: what a core's cache holds; with 70 choices and 50,000 places all
layers take 7 GB."""
_ROUNDS = 30  # of scaling: loads of 0.1 to 4 times the mean are met to 0.1 %


def limited_hits(
    assignment: Assignment, use: ExpertUse, load: Floats, routing: Routing, *, nodes: Ints, domains: Ints
) -> TokenHits | None:
    """Return what tokens reach under ``assignment`` where each uses experts of few groups; None without a limit.

    Parameters
    ----------
    use:
        What slots take, of this assignment.
    load:
        ``[scenarios, layers, experts]``, in any unit.
    routing:
        The model's; groups are consecutive experts.
    nodes, domains:
        Node and scale-up domain of each GPU of the group, ``[gpus]``.

    Notes
    -----
    A token draws its groups, then its experts among theirs in proportion to load. The chance of a choice of groups is
    a product of weights, one a group, with which groups get their load. Of the load of the groups drawn a part ``s``
    is served at a place, which then stands for ``s`` of their experts, all alike: it is missed with probability
    ``C(E - s E, K) / C(E, K)``, as in :meth:`cost.dispatch.ExpertUse.token_share`. Experts of one group in one place
    are reached together, which is what tells an aligned placement from another.
    """
    groups, chosen = routing.groups, routing.topk_groups
    if not groups or comb(groups, chosen) > _MOST_CHOICES:
        return None
    size = routing.experts // groups
    group_load = load.reshape(*load.shape[:2], groups, size).sum(axis=3)
    picked, drawn, weight = _choices(group_load.tobytes(), group_load.shape, chosen)
    served = _served(assignment, use, groups, size)
    places: Sequence[Ints] = (
        np.arange(assignment.gpus, dtype=np.int64),
        numbered(nodes),
        numbered(domains),
    )
    pairs = routing.top_k * use.share
    # loads that no choice of groups can give are met as near as can be: no place is reached beyond its choices
    reached = [
        np.minimum(
            _reached(served, place, picked, drawn, weight, routing, chosen * size), _by_place(pairs, place)
        )
        for place in places
    ]
    gpus, by_node, by_domain = (chance[:, :, None] for chance in reached)
    return TokenHits(gpus, pairs[:, :, None], by_node, by_domain, places[1], places[2], 0)


@lru_cache(maxsize=1)
def _choices(group_load: bytes, shape: tuple[int, ...], chosen: int) -> tuple[Ints, Floats, Floats]:
    """Return choices of groups, the load and the chance of each; the same loads are often asked for once more."""
    load = np.frombuffer(group_load).reshape(shape)
    load = load / load.sum(axis=2, keepdims=True)
    picked = np.array([*combinations(range(shape[2]), chosen)])
    drawn = load[..., picked].sum(axis=3)
    weight = _weights(load, drawn, picked)
    for found in (picked, drawn, weight):
        found.flags.writeable = False
    return picked, drawn, weight


def _weights(group_load: Floats, drawn: Floats, picked: Ints) -> Floats:
    """Chance of each choice of groups, ``[scenarios, layers, choices]``, so that groups get their load on the whole.

    A group has its load's part of each choice that it is in. ``picked``: the groups of each, ``[choices, chosen]``.
    """
    groups = group_load.shape[2]
    choices = np.stack([np.flatnonzero((picked == group).any(axis=1)) for group in range(groups)])
    each = np.maximum(group_load, 1e-12)
    rate = each.copy()
    weight = np.ones_like(drawn)
    part = np.maximum(drawn, 1e-12)
    for _ in range(_ROUNDS):
        log = np.log(rate)[..., picked].sum(axis=3)
        weight = np.exp(log - log.max(axis=2, keepdims=True))
        weight /= weight.sum(axis=2, keepdims=True)
        got = each * (weight / part)[..., choices].sum(axis=3)
        rate *= np.clip(each / np.maximum(got, 1e-12), 0.2, 5.0)
        rate = np.clip(rate / rate.max(axis=2, keepdims=True), 1e-9, 1.0)
    return weight


def _served(assignment: Assignment, use: ExpertUse, groups: int, size: int) -> Floats:
    """Part of a layer's load that a GPU serves of each group, ``[scenarios, layers, groups, gpus]``."""
    scenarios, layers, _ = use.slot_share.shape
    group = assignment.slot_expert.astype(np.int64) // size
    cell = (np.arange(layers)[:, None] * groups + group) * assignment.gpus + assignment.slot_gpu
    by_group = np.stack(
        [
            np.bincount(cell.ravel(), each.ravel(), layers * groups * assignment.gpus)
            for each in use.slot_share
        ]
    )
    return by_group.astype(np.float64).reshape(scenarios, layers, groups, assignment.gpus)


def _by_place(values: Floats, place: Ints) -> Floats:
    """Sum values ``[.., gpus]`` over the GPUs of each place, ``[.., places]``: in a fixed order, as BLAS has none."""
    order = np.argsort(place, kind="stable")
    found: Floats = np.add.reduceat(
        values[..., order], np.unique(place[order], return_index=True)[1], axis=-1
    )
    return found


def _reached(
    served: Floats, place: Ints, picked: Ints, drawn: Floats, weight: Floats, routing: Routing, experts: int
) -> Floats:
    """Chance that a token reaches each place, ``[scenarios, layers, places]``."""
    there = _by_place(served, place)  # [scenarios, layers, groups, places]
    reached = np.empty((*there.shape[:2], there.shape[3]))
    rows = reached.reshape(-1, there.shape[3])  # a view
    there, drawn, weight = (values.reshape(len(rows), *values.shape[2:]) for values in (there, drawn, weight))
    most = max(1, _CELLS // (len(picked) * there.shape[2]))
    for first in range(0, len(rows), most):
        some = slice(first, first + most)
        rows[some] = _reached_of_choices(there[some], drawn[some], weight[some], picked, routing, experts)
    return reached


def _reached_of_choices(
    there: Floats, drawn: Floats, weight: Floats, picked: Ints, routing: Routing, experts: int
) -> Floats:
    """The same of some layers, ``[layers, places]``: their load at each place is ``there``, by group."""
    share = there[:, picked[:, 0]]
    for column in picked.T[1:]:
        share += there[:, column]
    share /= np.maximum(drawn, 1e-300)[..., None]
    others = np.minimum(share, 1.0)  # shares are never below 0
    others *= experts
    np.subtract(experts, others, out=others)
    missed, part = np.ones_like(others), np.empty_like(others)
    for draw in range(routing.top_k):
        np.subtract(others, draw, out=part)
        part /= experts - draw
        missed *= np.maximum(part, 0.0, out=part)
    hit = np.subtract(1.0, missed, out=missed)
    share *= routing.top_k
    np.minimum(hit, share, out=hit)
    hit *= weight[..., None]
    reached: Floats = np.minimum(hit.sum(axis=1), 1.0)  # sums of chances round
    return reached
