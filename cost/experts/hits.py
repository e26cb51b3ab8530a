"""Which places the tokens of a step reach: followed in routing traces, or known from a limit on groups of experts.

Without either, experts are taken to be chosen independently (:func:`cost.experts.volumes.token_share`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from cost.experts.assignment import Assignment, numbered, sum_by_gpu, sum_by_place
from cost.experts.dispatch import DispatchPolicy, rank_choices, rank_tp, slot_shares, source_choices
from cost.experts.traces.routing import RoutingTrace
from topology.base.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenHits:
    """What tokens reach, by scenario (routing trace or loads), MoE layer and the GPU that they come from.

    There is one source where copies are chosen in the same way from everywhere (an even split, a linear programme),
    else each GPU of the EP group is one (``source``, ``rank``). Tokens are equally many from each GPU.

    Attributes
    ----------
    gpus:
        Chance that a token needs some expert on a GPU, ``[scenarios, layers, sources, gpus]``.
    pairs:
        Its choices that a GPU serves, ``[scenarios, layers, sources, gpus]``: no less than ``gpus``.
    nodes, domains:
        As ``gpus``, for the nodes and the scale-up domains of the group, ``[scenarios, layers, sources, places]``, in
        increasing order of their number.
    tokens:
        Tokens counted, over all traces; 0 where they are known without traces.
    """

    gpus: Floats
    pairs: Floats
    nodes: Floats
    domains: Floats
    tokens: int

    @property
    def traces(self) -> int:
        """Scenarios, which count equally."""
        return int(self.gpus.shape[0])

    @property
    def gpus_per_token(self) -> Floats:
        """GPUs that a token's experts lie on, ``[scenarios, layers]``."""
        return _per_token(self.gpus)

    @property
    def nodes_per_token(self) -> Floats:
        """Nodes that a token's experts lie on, its own among them, ``[scenarios, layers]``."""
        return _per_token(self.nodes)

    @property
    def domains_per_token(self) -> Floats:
        """Scale-up domains that a token's experts lie in, its own among them, ``[scenarios, layers]``."""
        return _per_token(self.domains)


def _per_token(chance: Floats) -> Floats:
    reached: Floats = chance.sum(axis=-1).mean(axis=-1)
    return reached


def _places(gpus: int, nodes: Ints, domains: Ints) -> tuple[Ints, Ints, Ints]:
    return np.arange(gpus, dtype=np.int64), numbered(nodes), numbered(domains)


def token_hits(
    assignment: Assignment,
    traces: Sequence[RoutingTrace],
    *,
    split: DispatchPolicy = "even",
    nodes: Ints,
    domains: Ints,
    speed: Floats | None = None,
) -> TokenHits:
    """Return what the tokens of ``traces`` reach under ``assignment``, exactly.

    A choice of an expert goes to one of its copies, from source ``s`` to place ``d`` with probability ``p[s, e, d]``
    (an even split: copies in proportion; ``source`` and ``rank``: the copy that the rank uses; ``lp``: the split that
    is best for the trace's own counts). A token of experts ``{e}`` reaches ``d`` with probability
    ``1 - prod (1 - p[s, e, d])``; the mean over tokens.

    Parameters
    ----------
    traces:
        Of the assignment's layers, in order.
    nodes, domains:
        Node and scale-up domain of each GPU of the group, ``[gpus]``.
    speed:
        As for :func:`cost.experts.dispatch.slot_shares`, where a linear programme splits.

    Raises
    ------
    InputError
        If a trace is of other layers or experts than the assignment.
    """
    places = _places(assignment.gpus, nodes, domains)
    found = []
    for trace in traces:
        if (trace.layers, trace.experts) != (assignment.layers, assignment.experts):
            raise InputError(
                f"{trace.name}: a trace of {trace.layers} layers x {trace.experts} experts does not fit an "
                f"assignment of {assignment.layers} layers x {assignment.experts} experts."
            )
        rows: list[list[Floats]] = []
        for layer, chosen in enumerate(_chosen(assignment, trace, split, nodes, speed)):
            slot_expert = assignment.slot_expert
            if layer and trace.repeated and (slot_expert[layer] == slot_expert[layer - 1]).all():
                rows.append(rows[-1])
            else:
                rows.append(_layer_hits(assignment, layer, chosen, trace, places))
        found.append([np.stack(level) for level in zip(*rows, strict=True)])
    pairs, gpus, by_node, by_domain = (np.stack(level) for level in zip(*found, strict=True))
    return TokenHits(gpus, pairs, by_node, by_domain, sum(trace.kept for trace in traces))


def _chosen(
    assignment: Assignment, trace: RoutingTrace, split: DispatchPolicy, nodes: Ints, speed: Floats | None
) -> Iterator[Floats]:
    """Yield by layer the fraction of a source's tokens of the slot's expert that go to it, ``[sources, slots]``."""
    tp = rank_tp(split)
    if split == "source":
        yield from (source_choices(assignment, layer, nodes) for layer in range(assignment.layers))
    elif tp is not None:
        yield from (rank_choices(assignment, layer, tp) for layer in range(assignment.layers))
    else:
        load = trace.counts.astype(np.float64)
        yield from slot_shares(assignment, split, load=load, speed=speed)[:, None]


def _layer_hits(
    assignment: Assignment, layer: int, chosen: Floats, trace: RoutingTrace, places: Sequence[Ints]
) -> list[Floats]:
    """Pairs by GPU, then chances by each kind of place, ``[sources, places]``, of one layer."""
    slot_expert, slot_gpu = assignment.slot_expert[layer].astype(np.int64), assignment.slot_gpu
    choices = trace.choices[layer].astype(np.int64)
    choices = choices[(choices >= 0).any(axis=1)]
    used = np.bincount(choices[choices >= 0], minlength=trace.experts) / max(1, len(choices))
    pairs = sum_by_gpu(chosen * used[slot_expert], slot_gpu, assignment.gpus)
    return [
        pairs,
        *(_traced(choices, slot_expert, place[slot_gpu], chosen, trace.experts) for place in places),
    ]


def _traced(choices: Ints, slot_expert: Ints, slot_place: Ints, chosen: Floats, experts: int) -> Floats:
    """Return the chance that a token reaches each place, the mean over tokens, ``[sources, places]``.

    Parameters
    ----------
    choices:
        ``[tokens, k]`` experts, -1 for none; each token has one at least.
    slot_expert, slot_place:
        Expert and place of each slot, ``[slots]``.
    chosen:
        Fraction of a source's tokens of the slot's expert that go to the slot, ``[sources, slots]``.

    Notes
    -----
    Most experts always go to one place: those are marked in a table of tokens and places. What is left are choices of
    experts whose tokens are split over places. Tokens that bring the same such experts to a place are counted once,
    with how many they are, so that all sources are computed at the cost of one.
    """
    places = int(slot_place.max()) + 1
    # expert and place, once for each pair of them
    key, entry = np.unique(slot_expert * places + slot_place, return_inverse=True)
    expert, place = key // places, key % places
    # sources that choose in the same way are computed once
    chance, source = np.unique(_summed(chosen, entry.reshape(-1), key.size), axis=0, return_inverse=True)
    count = np.bincount(expert, minlength=experts)
    # where the tokens of an expert all go; the last is of a choice that was not used
    home = np.full(experts + 1, -1, dtype=np.int64)
    home[expert] = np.where(count[expert] == 1, place, -1)
    at = home[choices]
    sure = np.zeros((len(choices), places), dtype=bool)
    token, which = np.nonzero(at >= 0)
    sure[token, at[token, which]] = True
    reached = np.broadcast_to(sure.sum(axis=0, dtype=np.float64), (len(chance), places))
    token, which = np.nonzero((at < 0) & (choices >= 0))
    if token.size:
        of = choices[token, which]
        entries = np.repeat((np.cumsum(count) - count)[of], count[of]) + _within(count[of])
        cell = np.repeat(token, count[of]) * places + place[entries]
        unsure = ~sure.reshape(-1)[cell]
        reached = reached + _reached_by_chance(chance, place, places, cell[unsure], entries[unsure])
    mean: Floats = reached[source.reshape(-1)] / max(1, len(choices))
    return mean


def _reached_by_chance(chance: Floats, place: Ints, places: int, cell: Ints, entries: Ints) -> Floats:
    """Return the expected number of cells (a token at a place) that some entry brings, ``[sources, places]``.

    ``chance [sources, entries]``, ``place [entries]``: of an expert at a place; ``entries`` may each bring ``cell``.
    """
    order = np.argsort(cell, kind="stable")
    cell, entries = cell[order], entries[order]
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    sizes = np.diff(starts, append=cell.size)
    alone = np.bincount(entries[starts[sizes == 1]], minlength=place.size)
    reached = _summed(chance * alone, place, places)
    several = sizes > 1
    if several.any():
        # a set of entries is known by the sum of random numbers, one for each entry
        marks = np.random.default_rng(0).integers(1, 2**63, place.size, dtype=np.uint64)
        marked = np.add.reduceat(marks[entries], starts)[several]
        _, first, times = np.unique(marked, return_index=True, return_counts=True)
        starts, sizes = starts[several][first], sizes[several][first]
        members = entries[np.repeat(starts, sizes) + _within(sizes)]
        runs = np.cumsum(sizes) - sizes
        missed = np.multiply.reduceat(1.0 - chance[:, members], runs, axis=1)
        reached += _summed((1.0 - missed) * times, place[members[runs]], places)
    return reached


def _summed(values: Floats, group: Ints, groups: int) -> Floats:
    """Sum of each group's columns, ``[rows, columns]`` to ``[rows, groups]``."""
    found = np.zeros((groups, len(values)))
    np.add.at(found, group, values.T)
    return found.T


def _within(lengths: Ints) -> Ints:
    """Return 0, 1, .. for each run of these lengths."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)


# A limit on the groups of experts that a token may use tells which experts are reached together, without a trace.
_MOST_CHOICES = 4096
"""Choices of groups that are summed over; DeepSeek-V3 has 70."""
_CELLS = 1 << 16
"""Choices x places of the layers worked out at once: what a core's cache holds; with 70 choices and 50,000 places all
layers take 7 GB."""
_ROUNDS = 30  # of scaling: loads of 0.1 to 4 times the mean are met to 0.1 %


def limited_hits(
    assignment: Assignment,
    slot_share: Floats,
    load: Floats,
    top_k: int,
    limit: tuple[int, int],
    *,
    nodes: Ints,
    domains: Ints,
) -> TokenHits | None:
    """Return what tokens reach under ``assignment`` where each uses experts of few groups; None without a limit.

    Parameters
    ----------
    slot_share:
        Fraction of a layer's token-expert pairs that each slot takes, ``[scenarios, layers, slots]``.
    load:
        ``[scenarios, layers, experts]``, in any unit.
    top_k:
        Experts of a token.
    limit:
        Groups of consecutive experts, and how many of them a token may use; 0, 0: no limit.
    nodes, domains:
        Node and scale-up domain of each GPU of the group, ``[gpus]``.

    Notes
    -----
    A token draws its groups, then its experts among theirs in proportion to load. The chance of a choice of groups is
    a product of weights, one a group, with which groups get their load. Of the load of the groups drawn a part ``s``
    is served at a place, which then stands for ``s`` of their experts, all alike: it is missed with probability
    ``C(E - s E, K) / C(E, K)``, as in :meth:`cost.experts.use.ExpertUse.token_share`. Experts of one group in one
    place are reached together, which is what tells an aligned placement from another.
    """
    groups, chosen = limit
    if not groups or comb(groups, chosen) > _MOST_CHOICES:
        return None
    size = assignment.experts // groups
    group_load = load.reshape(*load.shape[:2], groups, size).sum(axis=3)
    choices = _choices_of_groups(group_load.tobytes(), group_load.shape, chosen)
    served = _served(assignment, slot_share, groups)
    pairs = top_k * sum_by_gpu(slot_share, assignment.slot_gpu, assignment.gpus)
    # loads that no choice of groups can give are met as near as can be: no place is reached beyond its choices
    gpus, by_node, by_domain = (
        np.minimum(_by_groups(served, place, choices, top_k, chosen * size), sum_by_place(pairs, place))
        for place in _places(assignment.gpus, nodes, domains)
    )
    gpus, pairs, by_node, by_domain = (values[:, :, None] for values in (gpus, pairs, by_node, by_domain))
    return TokenHits(gpus, pairs, by_node, by_domain, 0)


@dataclass(frozen=True, eq=False)
class _GroupChoices:
    """Choices of groups: the groups of each, ``[choices, chosen]``; of each the load of its groups and the chance.

    ``drawn`` and ``weight``: ``[scenarios, layers, choices]``.
    """

    picked: Ints
    drawn: Floats
    weight: Floats


@lru_cache(maxsize=1)
def _choices_of_groups(group_load: bytes, shape: tuple[int, ...], chosen: int) -> _GroupChoices:
    """Return the choices for loads ``[scenarios, layers, groups]``, by value: placements are compared on the same."""
    load = np.frombuffer(group_load).reshape(shape)
    load = load / load.sum(axis=2, keepdims=True)
    picked = np.array([*combinations(range(shape[2]), chosen)])
    drawn = load[..., picked].sum(axis=3)
    return _GroupChoices(picked, drawn, _weights(load, drawn, picked))


def _weights(group_load: Floats, drawn: Floats, picked: Ints) -> Floats:
    """Chance of each choice of groups, ``[scenarios, layers, choices]``, so that groups get their load on the whole.

    A group has its load's part of each choice that it is in.
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


def _served(assignment: Assignment, slot_share: Floats, groups: int) -> Floats:
    """Part of a layer's load that a GPU serves of each group, ``[scenarios, layers, groups, gpus]``."""
    scenarios, layers, _ = slot_share.shape
    group = assignment.slot_expert.astype(np.int64) // (assignment.experts // groups)
    cell = (np.arange(layers)[:, None] * groups + group) * assignment.gpus + assignment.slot_gpu
    cells = layers * groups * assignment.gpus
    by_group = np.stack([np.bincount(cell.ravel(), each.ravel(), cells) for each in slot_share])
    return by_group.astype(np.float64).reshape(scenarios, layers, groups, assignment.gpus)


def _by_groups(served: Floats, place: Ints, choices: _GroupChoices, top_k: int, experts: int) -> Floats:
    """Chance that a token reaches each place, ``[scenarios, layers, places]``; ``experts``: of the groups chosen."""
    there = sum_by_place(served, place)  # [scenarios, layers, groups, places]
    reached = np.empty((*there.shape[:2], there.shape[3]))
    rows = reached.reshape(-1, there.shape[3])  # a view
    there, drawn, weight = (
        values.reshape(len(rows), *values.shape[2:]) for values in (there, choices.drawn, choices.weight)
    )
    most = max(1, _CELLS // (len(choices.picked) * there.shape[2]))
    for first in range(0, len(rows), most):
        some = slice(first, first + most)
        rows[some] = _by_choices(there[some], drawn[some], weight[some], choices.picked, top_k, experts)
    return reached


def _by_choices(
    there: Floats, drawn: Floats, weight: Floats, picked: Ints, top_k: int, experts: int
) -> Floats:
    """The same of some layers, ``[layers, places]``: their load at each place is ``there``, by group."""
    share = there[:, picked[:, 0]]
    for column in picked.T[1:]:
        share += there[:, column]
    share /= np.maximum(drawn, 1e-300)[..., None]
    others = np.minimum(share, 1.0)  # shares are never below 0; in place, which takes a third less time
    others *= experts
    np.subtract(experts, others, out=others)
    missed, part = np.ones_like(others), np.empty_like(others)
    for draw in range(top_k):
        np.subtract(others, draw, out=part)
        part /= experts - draw
        missed *= np.maximum(part, 0.0, out=part)
    hit = np.subtract(1.0, missed, out=missed)
    share *= top_k
    np.minimum(hit, share, out=hit)
    hit *= weight[..., None]
    reached: Floats = np.minimum(hit.sum(axis=1), 1.0)  # sums of chances round
    return reached
