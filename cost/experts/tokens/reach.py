"""What the tokens of a layer reach: the chance that a token needs some expert on a GPU, a node, a domain.

One question, four states of knowledge: even experts (:func:`hit_chance`); loads alone, so that experts are taken to
be chosen independently (:meth:`ExpertUse.token_share`); a limit on groups of experts (:func:`limited_hits`); routing
traces (:func:`token_hits`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from itertools import combinations
from math import ceil, comb, floor, perm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.experts.assignment import Assignment, numbered, sum_by_gpu, sum_by_place
from cost.experts.dispatch import DispatchPolicy, slot_choices, slot_shares
from cost.experts.loads import ExpertLoads
from cost.experts.quota import FilledQuota, fill_quota, fill_scenarios
from cost.experts.traces.routing import RoutingTrace
from topology.base.errors import InputError
from topology.base.units import added

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MAX_GPUS = 2**31


@dataclass(frozen=True)
class Routing:
    """How tokens choose among the experts of a layer, with equally loaded experts.

    Attributes
    ----------
    experts, top_k:
        Logical experts, and how many of them a token uses.
    groups, topk_groups:
        A token may only use experts of ``topk_groups`` out of ``groups`` groups of consecutive experts
        (DeepSeek-V3 report, section 2.1.2: 4 of 8); 0, 0: no such limit.
    spread:
        A token's experts always lie on as many GPUs as they can (the "perfect router" of kernel benchmarks).
    """

    experts: int
    top_k: int
    groups: int = 0
    topk_groups: int = 0
    spread: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.experts:
            raise InputError(f"top_k {self.top_k}: must lie between 1 and the {self.experts} experts.")
        if bool(self.groups) != bool(self.topk_groups):
            raise InputError(
                f"groups {self.groups}, topk_groups {self.topk_groups}: give both, or 0 and 0 for no limit."
            )
        if self.groups and not (
            self.topk_groups <= self.groups <= self.experts
            and self.experts % self.groups == 0
            and self.top_k <= self.topk_groups * (self.experts // self.groups)
        ):
            raise InputError(
                f"groups {self.groups}, topk_groups {self.topk_groups}: {self.top_k} of {self.experts} "
                "experts cannot be chosen with these limits."
            )


def hit_chance(routing: Routing, part_gpus: ArrayLike, ep: ArrayLike) -> Floats:
    """Chance that a token uses some expert on ``part_gpus`` consecutive GPUs out of ``ep``.

    The mean over all such parts, ``[...]`` as the arguments broadcast. Experts lie in order, equally many a GPU
    (a part of an expert where they do not divide). Without groups a part of ``m`` experts is missed with
    probability ``C(E - m, K) / C(E, K)``; with groups the same among the experts of the groups chosen,
    averaged over all choices of groups: exact, also where parts and groups do not line up.
    """
    part, group = np.broadcast_arrays(np.asarray(part_gpus, dtype=np.int64), np.asarray(ep, dtype=np.int64))
    keys, inverse = np.unique(
        part * _MAX_GPUS + group, return_inverse=True
    )  # few shapes, many configurations
    chances = np.array([_hit_chance(routing, *divmod(int(key), _MAX_GPUS)) for key in keys])
    return chances[inverse].reshape(part.shape)


@cache
def _hit_chance(routing: Routing, part_gpus: int, ep: int) -> float:
    if part_gpus >= ep:
        return 1.0
    if routing.spread:
        return min(1.0, routing.top_k * part_gpus / ep)
    experts, top_k = routing.experts, routing.top_k
    cap = top_k * part_gpus / ep  # pieces of an expert draw no more tokens than it has
    if not routing.groups:
        return min(cap, 1.0 - float(missed_chance(experts, np.array([experts * part_gpus / ep]), top_k)[0]))
    width = Fraction(routing.groups * part_gpus, ep)  # groups that one part covers
    chances = []
    for i in range(min(width.denominator, ep // part_gpus)):
        start, end = i * width, (i + 1) * width
        groups = map(Fraction, range(floor(start), ceil(end)))
        covered = [min(end, group + 1) - max(start, group) for group in groups]
        chances.append(_grouped(routing, tuple(sorted(covered))))
    return min(cap, added(chances) / len(chances))


@cache
def _grouped(routing: Routing, covered: tuple[Fraction, ...]) -> float:
    """Chance that a token hits some of the experts in ``covered`` parts of groups, one for each group."""
    size, uncovered = routing.experts // routing.groups, routing.groups - len(covered)
    ways = Counter({(0, 0.0): 1})  # to choose so many of the groups, with so many of the experts
    for part in covered:
        for (chosen, held), ways_here in [*ways.items()]:
            ways[chosen + 1, held + float(part) * size] += ways_here
    able = {key: ways_here for key, ways_here in ways.items() if key[0] <= routing.topk_groups}
    missed = missed_chance(
        routing.topk_groups * size, np.array([held for _, held in able]), routing.top_k
    ).tolist()
    total: float = added(
        ways_here * comb(uncovered, routing.topk_groups - chosen) * chance
        for ((chosen, _), ways_here), chance in zip(able.items(), missed, strict=True)
    )
    return 1.0 - total / comb(routing.groups, routing.topk_groups)


def missed_chance(experts: int, held: Floats, top_k: int) -> Floats:
    """Chance that none of ``top_k`` different experts out of ``experts`` is among ``held``, for each entry of that.

    ``C(experts - held, top_k) / C(experts, top_k)``; ``held`` need not be whole.
    """
    rest_experts = np.subtract(experts, held)
    rest_experts[rest_experts <= top_k - 1] = (
        0.0  # too few of the rest for a draw of top_k: some expert held is in each
    )
    missed = rest_experts / perm(experts, top_k)
    for _ in range(1, top_k):  # in place, which takes a third less time
        rest_experts -= 1.0
        missed *= rest_experts
    return missed


# Experts as they are placed.


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
    quota: int = 0,
) -> TokenHits:
    """Return the exact destinations of the tokens of ``traces`` under ``assignment``.

    A choice of an expert goes to one of its copies, from source ``s`` to place ``d`` with probability ``p[s, e, d]``
    (an even split: copies in proportion; ``source`` and ``rank``: the copy that the rank uses; ``lp`` and
    ``quota``: as the trace's own counts say). A token of experts ``{e}`` reaches ``d`` with probability
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
    hits = []
    for trace in traces:
        if (trace.layers, trace.experts) != (assignment.layers, assignment.experts):
            raise InputError(
                f"{trace.name}: a trace of {trace.layers} layers x {trace.experts} experts does not fit an "
                f"assignment of {assignment.layers} layers x {assignment.experts} experts."
            )
        rows: list[list[Floats]] = []
        load = trace.counts.astype(np.float64)
        held = assignment
        if split == "quota":
            filled = fill_quota(assignment, load, quota, speed, domains)
            held, choose = filled.assignment, iter(filled.shares[:, None])
        else:
            choose = slot_choices(assignment, split, load=load, nodes=nodes, speed=speed)
        of_slot = [place[held.slot_gpu] for place in _places(held.gpus, nodes, domains)]
        experts = held.slot_expert.astype(np.int64)
        for layer, chosen in enumerate(choose):
            if layer and trace.repeated and (experts[layer] == experts[layer - 1]).all():
                rows.append(rows[-1])
                continue
            choices = trace.choices[layer].astype(np.int64)
            choices = choices[(choices >= 0).any(axis=1)]
            used = np.bincount(choices[choices >= 0], minlength=trace.experts) / max(1, len(choices))
            pairs = sum_by_gpu(chosen * used[experts[layer]], held.slot_gpu, held.gpus)
            reached = (_traced(choices, experts[layer], place, chosen, trace.experts) for place in of_slot)
            rows.append([pairs, *reached])
        hits.append([np.stack(level) for level in zip(*rows, strict=True)])
    all_pairs, gpus, by_node, by_domain = (np.stack(level) for level in zip(*hits, strict=True))
    return TokenHits(gpus, all_pairs, by_node, by_domain, sum(trace.kept for trace in traces))


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
        _, index, times = np.unique(marked, return_index=True, return_counts=True)
        starts, sizes = starts[several][index], sizes[several][index]
        members = entries[np.repeat(starts, sizes) + _within(sizes)]
        runs = np.cumsum(sizes) - sizes
        missed = np.multiply.reduceat(1.0 - chance[:, members], runs, axis=1)
        reached += _summed((1.0 - missed) * times, place[members[runs]], places)
    return reached


def _summed(values: Floats, group: Ints, groups: int) -> Floats:
    """Sum of each group's columns, ``[rows, columns]`` to ``[rows, groups]``."""
    sums = np.zeros((groups, len(values)))
    np.add.at(sums, group, values.T)
    return sums.T


def _within(lengths: Ints) -> Ints:
    """Return 0, 1, .. for each run of these lengths."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)


# A limit on the groups of experts that a token may use tells which experts are reached together, without a trace.
_MAX_CHOICES = 4096
"""Choices of groups that are summed over; DeepSeek-V3 has 70."""
_MAX_CELLS = 1 << 16
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
    whole: Whole | None = None,
) -> TokenHits | None:
    """Return token destinations under ``assignment`` with limited expert groups; None without a limit.

    Parameters
    ----------
    assignment:
        Of the layers; where quota slots hold something else in each scenario, of those of one after the other.
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
    whole:
        What the assignment is left of, under the same loads: GPUs that serve what they did are reached as they were.

    Notes
    -----
    A token draws its groups, then its experts among theirs in proportion to load. The chance of a choice of groups is
    a product of weights, one a group, with which groups get their load. Of the load of the groups drawn a part ``s``
    is served at a place, which then stands for ``s`` of their experts, all alike: it is missed with probability
    ``C(E - s E, K) / C(E, K)``, as in :meth:`ExpertUse.token_share`. Experts of one group in one
    place are reached together, which is what tells an aligned placement from another.
    """
    groups, chosen = limit
    if not groups or comb(groups, chosen) > _MAX_CHOICES:
        return None
    size = assignment.experts // groups
    group_load = load.reshape(*load.shape[:2], groups, size).sum(axis=3)
    choices = _choices_of_groups(group_load.tobytes(), group_load.shape, chosen)
    served = _served(assignment, slot_share, groups)
    pairs = top_k * sum_by_gpu(slot_share, assignment.slot_gpu, assignment.gpus)
    places = _places(assignment.gpus, nodes, domains)
    served_at = [sum_by_place(served, place) for place in places]
    if whole is None or whole.use.hits is None:
        reached = _by_groups(served_at[0], choices, top_k, chosen * size)
    else:
        served_before = _served(whole.assignment, whole.use.slot_share, groups)[..., whole.left]
        reached = whole.use.hits.gpus[:, :, 0, whole.left]
        changed = np.nonzero((served_at[0] != served_before).any(axis=2))
        reached[changed] = _by_groups_of_cells(served_at[0], changed, choices, top_k, chosen * size)
    reached_places = [
        reached,
        *(_by_groups(values, choices, top_k, chosen * size) for values in served_at[1:]),
    ]
    # loads that no choice of groups can give are met as near as can be: no place is reached beyond its choices
    gpus, by_node, by_domain = (
        np.minimum(values, sum_by_place(pairs, place))
        for values, place in zip(reached_places, places, strict=True)
    )
    gpus, pairs, by_node, by_domain = (values[:, :, None] for values in (gpus, pairs, by_node, by_domain))
    return TokenHits(gpus, pairs, by_node, by_domain, 0)


@dataclass(frozen=True, eq=False)
class Whole:
    """An EP group of which a part is left: its assignment and use, and its GPUs that are left, ``[gpus left]``."""

    assignment: Assignment
    use: ExpertUse
    left: Ints


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
    target = np.maximum(group_load, 1e-12)
    rate = target.copy()
    weight = np.ones_like(drawn)
    part = np.maximum(drawn, 1e-12)
    for _ in range(_ROUNDS):
        log = np.log(rate)[..., picked].sum(axis=3)
        weight = np.exp(log - log.max(axis=2, keepdims=True))
        weight /= weight.sum(axis=2, keepdims=True)
        sums = target * (weight / part)[..., choices].sum(axis=3)
        rate *= np.clip(target / np.maximum(sums, 1e-12), 0.2, 5.0)
        rate = np.clip(rate / rate.max(axis=2, keepdims=True), 1e-9, 1.0)
    return weight


def _served(assignment: Assignment, slot_share: Floats, groups: int) -> Floats:
    """Part of a layer's load that a GPU serves of each group, ``[scenarios, layers, groups, gpus]``."""
    scenarios, layers, slots = slot_share.shape
    expert = assignment.slot_expert.astype(np.int64).reshape(-1, layers, slots)
    group = expert // (assignment.experts // groups)
    cell = (np.arange(layers)[:, None] * groups + group) * assignment.gpus + assignment.slot_gpu
    cells = layers * groups * assignment.gpus
    of_scenario = zip(np.broadcast_to(cell, slot_share.shape), slot_share, strict=True)
    by_group = np.stack([np.bincount(at.ravel(), share.ravel(), cells) for at, share in of_scenario])
    return by_group.astype(np.float64).reshape(scenarios, layers, groups, assignment.gpus)


def _by_groups_of_cells(
    served: Floats, cells: tuple[Ints, ...], choices: _GroupChoices, top_k: int, experts: int
) -> Floats:
    """As :func:`_by_groups`, of some cells ``[scenario, layer, place]`` alone, ``[cells]``."""
    scenario, layer, place = cells
    rows = served[scenario, layer, :, place][None, ..., None]  # each is a layer with one place
    of_cells = replace(
        choices, drawn=choices.drawn[None, scenario, layer], weight=choices.weight[None, scenario, layer]
    )
    return _by_groups(rows, of_cells, top_k, experts)[0, :, 0] if len(place) else np.zeros(0)


def _by_groups(served: Floats, choices: _GroupChoices, top_k: int, experts: int) -> Floats:
    """Chance that a token reaches each place, ``[scenarios, layers, places]``.

    ``served``: part of a layer's load that a place serves of each group, ``[scenarios, layers, groups, places]``;
    ``experts``: of the groups chosen.
    """
    rows, drawn, weight = (
        values.reshape(-1, *values.shape[2:]) for values in (served, choices.drawn, choices.weight)
    )
    size = max(1, _MAX_CELLS // (len(choices.picked) * served.shape[3]))
    reached = [
        _by_choices(rows[part], drawn[part], weight[part], choices.picked, top_k, experts)
        for part in (slice(start, start + size) for start in range(0, len(rows), size))
    ]
    return np.concatenate(reached).reshape(*served.shape[:2], served.shape[3])


def _by_choices(
    served: Floats, drawn: Floats, weight: Floats, picked: Ints, top_k: int, experts: int
) -> Floats:
    """The same of some layers, ``[layers, places]``: their load at each place is ``served``, by group."""
    share = served[:, picked[:, 0]]
    for column in picked.T[1:]:
        share += served[:, column]
    share /= np.maximum(drawn, 1e-300)[..., None]
    held = np.minimum(share, 1.0)  # shares are never below 0
    held *= experts
    missed = missed_chance(experts, held, top_k)
    hit = np.subtract(1.0, missed, out=missed)
    share *= top_k
    np.minimum(hit, share, out=hit)
    hit *= weight[..., None]
    reached: Floats = np.minimum(hit.sum(axis=1), 1.0)  # sums of chances round
    return reached


@dataclass(frozen=True, eq=False)
class ExpertUse:
    """What some layers' experts ask of each GPU of their EP group, by scenario.

    Attributes
    ----------
    share:
        Fraction of a layer's token-expert pairs that a GPU receives, ``[scenarios, layers, gpus]``.
    slot_share:
        The same for each slot, ``[scenarios, layers, slots]``.
    slot_gpu:
        GPU of each slot, ``[slots]``.
    experts, top_k:
        Logical experts, and how many of them a token uses.
    repeats:
        How many equal layers each row stands for.
    hits:
        What tokens reach where it is known from traces (:func:`token_hits`) or from a limit on groups
        (:func:`limited_hits`); None: experts are taken to be chosen independently of each other.
    filled:
        Where quota slots are filled: by scenario and layer, one after the other; they are among the slots.
    """

    share: Floats
    slot_share: Floats
    slot_gpu: NDArray[np.int32]
    experts: int
    top_k: int
    repeats: int = 1
    hits: TokenHits | None = None
    filled: FilledQuota | None = None

    @property
    def gpus(self) -> int:
        """GPUs of the EP group."""
        return int(self.share.shape[2])

    @property
    def fixed_slots(self) -> Ints:
        """Slots of each GPU that hold the same in every batch, ``[gpus]``: not those of a quota."""
        slots = np.bincount(self.slot_gpu, minlength=self.gpus)
        return slots if self.filled is None else np.maximum(slots - self.filled.quota, 0)

    @cached_property
    def digest(self) -> bytes:
        """A few bytes that are equal for equal uses, as a key: the arrays themselves are long."""
        digest = blake2b(f"{self.experts} {self.top_k} {self.repeats}".encode(), digest_size=20)
        hits = (
            () if self.hits is None else (self.hits.gpus, self.hits.pairs, self.hits.nodes, self.hits.domains)
        )
        copies = () if self.filled is None else (self.filled.busiest,)
        for array in (self.slot_gpu, self.share, self.slot_share, *hits, *copies):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()

    def touched_slots(self, tokens: float) -> Floats:
        """Expected slots of each GPU that some of ``tokens`` tokens use, ``[scenarios, layers, gpus]``.

        A token uses a slot with probability ``top_k * slot_share``, so a slot is read with probability
        ``1 - (1 - p) ** tokens``: nearly all of them at large batch, few at small.
        """
        touched = -np.expm1(tokens * self._log_missed)
        return sum_by_gpu(touched, self.slot_gpu, self.gpus)

    @cached_property
    def _log_missed(self) -> Floats:
        """Log of the chance that a token misses a slot, ``[scenarios, layers, slots]``, the same at every batch."""
        chance = np.clip(self.top_k * self.slot_share, 0.0, 1.0)
        log_missed: Floats = np.log1p(-np.minimum(chance, 1 - 1e-15))
        return log_missed

    def token_share(self, limit: tuple[int, int] = (0, 0)) -> Floats:
        """Fraction of the tokens that a place receives, one copy a place, ``[scenarios, layers, places of share]``.

        It is the chance that a token reaches the place if experts are chosen independently.

        Parameters
        ----------
        limit:
            Groups of experts, and how many of them a token may use, which lowers it as much as for even placement;
            0, 0: no limit.

        Notes
        -----
        A place with share ``s`` of the pairs stands for ``m = s * experts`` equally likely experts, and a token
        misses it with probability ``C(experts - m, top_k) / C(experts, top_k)``: exact for equal loads.
        A part of an expert draws no more tokens than it has pairs.
        """
        missed = missed_chance(self.experts, self.share * self.experts, self.top_k)
        share = np.minimum(1.0 - missed, self.top_k * self.share)
        if not limit[0]:
            return share
        free = float(hit_chance(Routing(self.experts, self.top_k), 1, self.gpus))
        limited = float(hit_chance(Routing(self.experts, self.top_k, *limit), 1, self.gpus))
        return share * (limited / free)


def expert_use(
    assignment: Assignment,
    loads: ExpertLoads,
    top_k: int,
    *,
    split: DispatchPolicy = "even",
    nodes: Ints | None = None,
    speed: Floats | None = None,
    quota: int = 0,
) -> ExpertUse:
    """Return the use of ``assignment`` under ``loads``, an expert's tokens split over its copies as the engine does.

    ``split``, ``nodes`` and ``speed``: as for :func:`cost.experts.dispatch.slot_shares`; an LP splits each scenario
    anew, and ``quota`` slots of each GPU are filled anew, within places that are called ``nodes`` here.

    Raises
    ------
    InputError
        If the loads are of other layers or experts than the assignment.
    """
    tokens = loads.tokens
    if tokens.shape[1:] != (assignment.layers, assignment.experts):
        raise InputError(
            f"loads of {tokens.shape[1]} layers x {tokens.shape[2]} experts do not fit an assignment of "
            f"{assignment.layers} layers x {assignment.experts} experts."
        )
    fraction = loads.normalised / tokens.shape[2]
    if split == "quota":
        filled = fill_scenarios(assignment, fraction, quota, speed, nodes)
        held = filled.assignment
        slot_share = held.slot_load(fraction.reshape(-1, held.experts), filled.shares)
        slot_share = slot_share.reshape(*fraction.shape[:2], held.slots)
        share = sum_by_gpu(slot_share, held.slot_gpu, held.gpus)
        return ExpertUse(share, slot_share, held.slot_gpu, held.experts, top_k, filled=filled)
    shares = [
        None
        if split == "even"  # divided by the copies, not multiplied: the same bits as ever
        else slot_shares(assignment, split, load=scenario, nodes=nodes, speed=speed)
        for scenario in fraction
    ]
    slot_share = np.stack([assignment.slot_load(*row) for row in zip(fraction, shares, strict=True)])
    share = sum_by_gpu(slot_share, assignment.slot_gpu, assignment.gpus)
    return ExpertUse(share, slot_share, assignment.slot_gpu, assignment.experts, top_k)


def balanced_use(
    layers: int,
    slots_per_gpu: Ints,
    experts: int,
    top_k: int,
    speed: Floats | None = None,
) -> ExpertUse:
    """Return the use of an ideal placement: every GPU with slots receives the same, spread evenly over its slots.

    With ``speed`` ``[gpus]`` it receives in proportion to that, so that all take equally long.

    No placement receives less on its busiest GPU. (At a few tokens a step skew may still help a little: fewer
    experts are read.)
    """
    gpus = len(slots_per_gpu)
    slot_gpu = np.repeat(np.arange(gpus, dtype=np.int32), slots_per_gpu)
    weight = np.where(slots_per_gpu > 0, 1.0 if speed is None else speed, 0.0)
    share = weight / weight.sum()
    per_slot = share / np.maximum(slots_per_gpu, 1)
    shape = (1, 1)
    return ExpertUse(
        np.broadcast_to(share, (*shape, gpus)),
        np.broadcast_to(per_slot[slot_gpu], (*shape, len(slot_gpu))),
        slot_gpu,
        experts,
        top_k,
        repeats=layers,
    )
