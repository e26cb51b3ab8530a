"""Layouts and batches worth pricing: groups of GPUs, stages, replicas, widths, and whole sequences of each group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from cost.layout import StageSpec
from cost.layouts.front import pareto
from cost.machine import unlike_gpus
from cost.model import Model, MoeFfn
from cost.terms.experts import expert_columns
from topology.base.errors import InputError
from topology.cluster import Cluster
from topology.scale_out import leaves_and_pods

Group = tuple[int, ...]


MOST_STAGES = 16
MOST_REMEMBERED = 32
"""Clusters and models whose arrangements are kept: they depend on no figure of either."""


def domain_gpus(cluster: Cluster) -> list[Group]:
    """Return the GPUs of each scale-up domain, as indices into ``Cluster.gpus``."""
    return _members(gpu.domain for gpu in cluster.gpus)


def _members(domains: Iterable[int]) -> list[Group]:
    members: dict[int, list[int]] = {}
    for index, domain in enumerate(domains):
        members.setdefault(domain, []).append(index)
    return [tuple(gpus) for gpus in members.values()]


MOST_JOINED = 96
"""GPUs up to which any number of whole domains makes a group, also where some are left over; beyond, those numbers
that cut the cluster evenly."""
MOST_SPANNED = 8
"""Whole domains up to which a replica may have several stages where some are left over."""


def group_sizes(domains: list[Group]) -> list[int]:
    """Sizes of groups worth pricing, largest first: inside a domain, of whole domains, and the whole cluster.

    What divides the largest domain, and the powers of two, which cut heads evenly; of whole domains few, and what
    divides them. Some leave GPUs idle: else one more host or domain could make all the others slower.
    """
    largest = max(len(domain) for domain in domains)
    whole = sum(len(domain) == largest for domain in domains)
    sizes = {size for size in range(1, largest + 1) if largest % size == 0 or size & (size - 1) == 0}
    sizes |= {
        largest * count
        for count in range(2, whole + 1)
        if whole % count == 0 or largest * count <= MOST_JOINED
    }
    sizes.add(sum(len(domain) for domain in domains))
    return sorted(sizes, reverse=True)


def equal_groups(domains: list[Group], size: int) -> list[Group]:
    """Cut groups of ``size`` from each domain, or join whole domains; GPUs left over stay idle."""
    groups = []
    joined: list[int] = []
    for domain in domains:
        if len(domain) >= size:
            groups += [domain[start : start + size] for start in range(0, len(domain) - size + 1, size)]
            continue
        joined += domain
        if len(joined) == size:
            groups.append(tuple(joined))
        if len(joined) >= size:
            joined = []
    return groups


def replicas_of(groups: Sequence[Group], stages: int) -> tuple[tuple[Group, ...], ...]:
    """Runs of ``stages`` groups, as many as there are."""
    whole = len(groups) // stages * stages
    return tuple(tuple(groups[start : start + stages]) for start in range(0, whole, stages))


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Groups of GPUs lined up as the stages of replicas.

    Attributes
    ----------
    replicas:
        For each replica the GPUs of each of its stages, in order.
    alike:
        First of each set of replicas that cost the same, and how many they are.
    runs:
        Numbers of GPUs that a group has in one scale-up domain.
    cut:
        Whether groups may be cut by tensor parallelism at all (not where their sizes differ).
    """

    replicas: tuple[tuple[Group, ...], ...]
    alike: tuple[tuple[int, int], ...]
    runs: frozenset[int]
    cut: bool = True

    @property
    def stages(self) -> int:
        """Stages of a replica."""
        return len(self.replicas[0])

    @property
    def group(self) -> int:
        """GPUs of the largest stage."""
        return max(len(group) for group in self.replicas[0])

    @cached_property
    def gpus_used(self) -> int:
        """GPUs of all replicas."""
        return sum(count * sum(map(len, self.replicas[first])) for first, count in self.alike)


@dataclass(frozen=True, eq=False)
class Variant:
    """An arrangement with its layers split: ``ranges[stage]``."""

    arrangement: Arrangement
    ranges: tuple[range, ...]

    def stages(self, replica: int) -> tuple[StageSpec, ...]:
        """The stages of one replica."""
        groups = self.arrangement.replicas[replica]
        return tuple(StageSpec(gpus, layers) for gpus, layers in zip(groups, self.ranges, strict=True))


def arrangements(cluster: Cluster, model: Model) -> list[Arrangement]:
    """Return groups of every size with every number of stages, widest groups first.

    Few whole domains may be left over (:data:`MOST_JOINED`, :data:`MOST_SPANNED`), groups inside domains not: those
    are in :func:`left_over`. Where domains differ in size, one stage on each domain comes last.
    """
    return list(_arrangements(_Places.of(cluster), _Cut.of(model)))


@lru_cache(maxsize=MOST_REMEMBERED)
def _arrangements(where: _Places, cut: _Cut) -> tuple[Arrangement, ...]:
    domains = where.domains
    largest = max(len(domain) for domain in domains)
    found = []
    most = min(MOST_STAGES, cut.layers)
    for size in group_sizes(domains):
        groups = equal_groups(domains, size)
        kinds = _GroupKinds.of(where, groups)
        found += [
            kinds.arrangement(replicas_of(groups, stages))
            for stages in range(1, min(most, len(groups)) + 1)
            if _always(len(groups), stages, size // largest)
        ]
    sizes = {len(domain) for domain in domains}
    if cut.moe and len(sizes) > 1 and len(domains) <= most:
        kinds = _GroupKinds.of(where, domains)
        found.append(kinds.arrangement((tuple(domains),), cut=False))
    return tuple(found)


MOST_REPLICA_GPUS = 512
"""GPUs of a replica up to which any number of stages may be left over, and any number of domains join."""


def left_over(cluster: Cluster, model: Model) -> list[Arrangement]:
    """Return the arrangements that leave GPUs idle and that :func:`arrangements` lacks, widest groups first.

    Every size inside a domain and any number of whole ones, each with every number of stages, up to
    :data:`MOST_REPLICA_GPUS` a replica: what some domains hold, more of them hold too. Sizes that no tensor
    parallelism of a model without experts can have are left out.
    """
    return list(_left_over(_Places.of(cluster), _Cut.of(model)))


@lru_cache(maxsize=MOST_REMEMBERED)
def _left_over(where: _Places, cut: _Cut) -> tuple[Arrangement, ...]:
    domains = where.domains
    largest = max(len(domain) for domain in domains)
    whole = sum(len(domain) == largest for domain in domains)
    known = group_sizes(domains)
    joined = range(2, min(whole, MOST_REPLICA_GPUS // largest) + 1)
    sizes = {*known, *(largest * count for count in joined)}
    if not cut.moe:
        sizes = {size for size in sizes if size <= largest and cut.heads % size == 0}
    most = min(MOST_STAGES, cut.layers)
    found = []
    for size in sorted(sizes, reverse=True):
        groups = equal_groups(domains, size)
        deep = range(1, min(most, len(groups), MOST_REPLICA_GPUS // size) + 1)
        more = [s for s in deep if size not in known or not _always(len(groups), s, size // largest)]
        if more:
            kinds = _GroupKinds.of(where, groups)
            found += [kinds.arrangement(replicas_of(groups, stages)) for stages in more]
    return tuple(found)


def _always(groups: int, stages: int, spanned: int) -> bool:
    """Whether ``stages`` of groups over ``spanned`` whole domains (0: parts of one) are priced without a look."""
    return groups % stages == 0 or 0 < spanned * stages <= MOST_SPANNED


def arrangement_of(
    cluster: Cluster, replicas: tuple[tuple[Group, ...], ...], *, cut: bool = True
) -> Arrangement:
    """Return groups lined up as the stages of replicas; ``cut`` as in :class:`Arrangement`."""
    groups = [group for stages in replicas for group in stages]
    return _GroupKinds.of(_Places.of(cluster), groups).arrangement(replicas, cut=cut)


@dataclass(frozen=True)
class _Cut:
    """What of a model says how groups of GPUs may cut it; equal for models that may be cut alike.

    ``heads``: of which every width of tensor parallelism is a divisor. ``columns``: of the experts of each MoE layer.
    """

    moe: bool
    layers: int
    heads: int
    columns: tuple[float, ...]

    @classmethod
    def of(cls, model: Model) -> _Cut:
        """Return that of a model."""
        ffns = [layer.ffn for layer in model.kinds if isinstance(layer.ffn, MoeFfn)]
        columns = tuple(expert_columns(ffn, model.expert_hidden) for ffn in ffns)
        heads = int(np.gcd.reduce([layer.attention.heads for layer in model.kinds]))
        return cls(model.moe is not None, len(model.layers), heads, columns)


@dataclass(frozen=True)
class _Places:
    """Where each GPU of a cluster is, ``[gpus]``: its domain, leaf and pod; equal for clusters cut alike.

    ``marks`` say what sets GPUs apart (:func:`cost.machine.unlike_gpus`), ``kinds`` which domains are alike.
    """

    domain: tuple[int, ...]
    leaf: tuple[int, ...]
    pod: tuple[int, ...]
    marks: tuple[tuple[int, tuple[float, int]], ...]
    kinds: tuple[int, ...]

    @classmethod
    def of(cls, cluster: Cluster) -> _Places:
        """Return those of a cluster."""
        leaf, pod = leaves_and_pods(cluster.spec, cluster.gpus)
        number: dict[int, int] = {}
        kinds = tuple(number.setdefault(id(domain), len(number)) for domain in cluster.spec.domains)
        marks = tuple(unlike_gpus(cluster).items())
        return cls(tuple(gpu.domain for gpu in cluster.gpus), tuple(leaf), tuple(pod), marks, kinds)

    @property
    def domains(self) -> list[Group]:
        """The GPUs of each domain (:func:`domain_gpus`)."""
        return _members(self.domain)


@dataclass(frozen=True, eq=False)
class _GroupKinds:
    """What groups of GPUs cost by, ``[groups]``.

    Attributes
    ----------
    kind:
        Equal for groups with as many GPUs in domains of the same kinds that are unlike others in the same places.
    place:
        The domain that a group lies in, the leaf and the pod (:class:`cost.layout.Place`), ``[3, groups]``;
        negative, and of no other group, where it lies in several.
    runs:
        Numbers of GPUs that a group of each kind has in one domain.
    """

    kind: NDArray[np.int64]
    place: NDArray[np.int64]
    runs: frozenset[int]

    @classmethod
    def of(cls, where: _Places, groups: Sequence[Group]) -> _GroupKinds:
        """Return those of ``groups``."""
        number: dict[object, int] = {}
        kinds: list[int] = []
        places: list[tuple[int, int, int]] = []
        runs: set[int] = set()
        leaf, pod, marks, spec_ids = where.leaf, where.pod, dict(where.marks), where.kinds
        for index, group in enumerate(groups):
            parts: tuple[tuple[int, int], ...]
            domain = where.domain[group[0]]
            if domain == where.domain[group[-1]]:  # GPUs are in order of their domains
                parts = ((spec_ids[domain], len(group)),)
            else:
                inside = Counter(map(where.domain.__getitem__, group))
                parts = tuple((spec_ids[part], gpus) for part, gpus in inside.items())
                domain = -1 - index
            unlike = (
                tuple((place, marks[gpu]) for place, gpu in enumerate(group) if gpu in marks) if marks else ()
            )
            kinds.append(number.setdefault((parts, unlike), len(number)))
            # leaves and pods are in order of the hosts
            one_leaf, one_pod = leaf[group[0]] == leaf[group[-1]], pod[group[0]] == pod[group[-1]]
            near = leaf[group[0]] if one_leaf else -1 - index, pod[group[0]] if one_pod else -1 - index
            places.append((domain, *near))
            runs.update(gpus for _, gpus in parts)
        return cls(np.array(kinds), np.array(places).T, frozenset(runs))

    def arrangement(self, replicas: tuple[tuple[Group, ...], ...], *, cut: bool = True) -> Arrangement:
        """Return the groups, lined up in their order as the stages of ``replicas``."""
        shape = len(replicas), len(replicas[0])
        size = shape[0] * shape[1]
        place = self.place[:, :size].reshape(3, *shape)
        # the nearest of domain, leaf and pod that a stage has in common with the next
        apart = np.cumprod(place != np.roll(place, -1, axis=2), axis=0).sum(axis=0)
        key = np.hstack([self.kind[:size].reshape(shape), apart])
        _, first, count = np.unique(key, axis=0, return_index=True, return_counts=True)
        order = np.argsort(first)
        alike = tuple(zip(first[order].tolist(), count[order].tolist(), strict=True))
        return Arrangement(replicas, alike, self.runs, cut)


@dataclass(frozen=True, eq=False)
class LayoutTable:
    """Layouts side by side, ``[layouts]``: their variant, width of tensor parallelism, parts of an expert."""

    variant: NDArray[np.int64]
    tp: NDArray[np.int64]
    moe_tp: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tp)

    def rows(self, which: NDArray[np.bool_]) -> LayoutTable:
        """Some of them."""
        return LayoutTable(self.variant[which], self.tp[which], self.moe_tp[which])


def layouts_of(
    model: Model, variants: Sequence[Variant], redundant: int | None, *, cut_experts: bool
) -> LayoutTable:
    """Return every layout of ``variants``, those of a variant next to each other.

    Tensor parallelism stays in a domain and divides the query heads. A model without experts has one
    tensor-parallel group a stage. With ``cut_experts``, groups that lie in one domain may also cut each expert into
    ``moe_tp`` parts of whole columns and spread them over ``ep = group / moe_tp`` places. No GPU holds two copies of
    one expert.
    """
    rows: list[tuple[int, int, int]] = []
    known: dict[int, tuple[list[int], list[int]]] = {}
    for number, variant in enumerate(variants):
        what = variant.arrangement
        if id(what) not in known:
            known[id(what)] = widths_of(model, what, cut_experts=cut_experts)
        widths, parts = known[id(what)]
        if model.moe is not None:
            smallest = min(len(stage) for stage in what.replicas[0])
            copies = model.moe.experts + (redundant or 0)
            parts = [part for part in parts if -(-copies // (smallest // part)) <= model.moe.experts]
        rows += [(number, tp, part) for tp in widths for part in parts]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return LayoutTable(table[:, 0], table[:, 1], table[:, 2])


def widths_of(model: Model, what: Arrangement, *, cut_experts: bool) -> tuple[list[int], list[int]]:
    """Return the widths of tensor parallelism, and the parts of an expert, that the groups of ``what`` may have."""
    if not what.cut:
        return [1], [1]
    return group_widths(model, what.group, what.runs, cut_experts=cut_experts)


def group_widths(
    model: Model, group: int, runs: Collection[int], *, cut_experts: bool
) -> tuple[list[int], list[int]]:
    """Return those of a group of ``group`` GPUs, which has one of ``runs`` in each scale-up domain."""
    widths, parts = _widths(_Cut.of(model), group, frozenset(runs), cut_experts=cut_experts)
    return list(widths), list(parts)


@lru_cache(maxsize=4096)
def _widths(
    cut: _Cut, group: int, runs: frozenset[int], *, cut_experts: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    widths = tuple(w for w in _divisors(group) if cut.heads % w == 0 and all(run % w == 0 for run in runs))
    if not cut.moe:
        return ((group,) if group in widths else ()), (1,)
    if not cut_experts or runs != {group}:
        return widths, (1,)
    return widths, tuple(part for part in _divisors(group) if all(each % part == 0 for each in cut.columns))


def _divisors(number: int) -> list[int]:
    return [part for part in range(1, number + 1) if number % part == 0]


def slots_of(experts: int, ep: NDArray[np.float64], redundant: int | None) -> NDArray[np.float64]:
    """Expert copies of a layer over ``ep`` places: ``redundant`` more than experts; None: the fewest that divide.

    Raises
    ------
    InputError
        If there would be fewer copies than experts.
    """
    if redundant is None:
        return np.ceil(experts / ep) * ep
    if redundant < 0:
        raise InputError(f"`redundant` {redundant}: expected 0 or more copies above one of each expert.")
    return np.full_like(ep, experts + redundant)


STEPS = 8
"""Batches between one and its double."""
MOST_BETWEEN = 1024
"""Batches priced between two neighbours of the grid at most: every whole one up to about 11,000 sequences."""
_ALIKE = 1e-9


def batch_grid(most: float, steps: float = STEPS) -> NDArray[np.float64]:
    """Return whole numbers from 1 to ``most``, about ``steps`` of them between each and its double."""
    if most < 1:
        return np.zeros(0)
    octaves = np.arange(int(np.ceil(np.log2(most) * steps)) + 1)
    grid = np.unique(np.round(2.0 ** (octaves / steps)))
    return grid[grid <= most]


def most_that_fit(room: NDArray[np.float64], tp: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the largest batch: whole sequences per GPU, or of a group of ``tp`` GPUs where one each is too many."""
    whole = np.floor(room)
    return np.where(whole >= 1, whole, np.maximum(0.0, np.floor(room * tp)) / tp)


def batches_of(
    most: NDArray[np.float64], tp: NDArray[np.int64], steps: float = STEPS
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the batches of each layout: its index and the sequences per GPU, both ``[configurations]``.

    An attention group of ``tp`` GPUs works on whole sequences, so the least batch is ``1 / tp``. From one sequence
    per GPU on they are whole numbers; the largest that fits is always among them.
    """
    wide = int(tp.max(initial=1))
    whole = batch_grid(float(most.max(initial=0.0)), steps)
    few = np.unique(batch_grid(wide, steps)[:, None] / np.unique(tp))
    few = few[few < 1]
    sequences = few * tp[:, None]
    fits = (few <= most[:, None]) & (np.abs(sequences - np.round(sequences)) < _ALIKE)
    under, column = np.nonzero(fits)
    many = np.searchsorted(whole, most, side="right")
    from_one, place = expand(np.zeros_like(many), many, np.arange(len(many)))
    there = np.where(many > 0, np.append(whole, 0.0)[many - 1] == most, np.any(few == most[:, None], axis=1))
    missing = np.flatnonzero((most > 0) & ~there)
    layouts = np.concatenate([under, from_one, missing])
    batch = np.concatenate([few[column], whole[place], most[missing]])
    order = np.argsort(layouts, kind="stable")
    return layouts[order], batch[order]


def expand(
    start: NDArray[np.int64], length: NDArray[np.int64], groups: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of ``groups``, one group after the other.

    Parameters
    ----------
    start, length:
        First row and number of rows of each group there is.
    groups:
        Which groups are wanted, repeats allowed, ``[n]``.

    Returns
    -------
    For each row the position in ``groups`` that it is of, and the row itself.
    """
    many = length[groups]
    owner = np.repeat(np.arange(len(groups)), many)
    before = np.cumsum(many) - many
    return owner, np.arange(len(owner)) + np.repeat(start[groups] - before, many)


def may_be_best(
    speed: NDArray[np.float64],
    rate: NDArray[np.float64],
    other_speed: NDArray[np.float64] | None = None,
    other_rate: NDArray[np.float64] | None = None,
) -> NDArray[np.bool_]:
    """Return whether what lies between neighbours, ``[configurations - 1]``, may be on the frontier.

    Parameters
    ----------
    speed, rate:
        Tokens per second of a sequence and of a GPU; those of a layout next to each other by growing batch.
    other_speed, other_rate:
        Of other configurations that are known.

    Notes
    -----
    A larger batch takes no shorter step and yields no lower rate, so that what lies between two neighbours is no
    faster than the first and yields no more than the second: where one configuration does both, none is needed.
    """
    speeds, rates = speed, rate
    if other_speed is not None and other_rate is not None:
        speeds, rates = np.concatenate([speed, other_speed]), np.concatenate([rate, other_rate])
    edge = pareto(speeds, rates)[::-1]  # the fastest first: at any speed the last that is as fast yields most
    as_fast = np.searchsorted(-speeds[edge], -speed[:-1] * (1 - _ALIKE), side="right") - 1
    return np.asarray(rates[edge][as_fast] < rate[1:] * (1 - _ALIKE))


def batches_between(
    layout: NDArray[np.int64],
    batch: NDArray[np.float64],
    tp: NDArray[np.int64],
    able: NDArray[np.bool_],
    most: int = MOST_BETWEEN,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the batches between neighbours of the grid that may lie on the frontier: layouts, and batches.

    Without them a chip with more memory could lose to one whose largest batch happens to lie between two steps.

    Parameters
    ----------
    layout, batch, tp:
        Configurations ``[configurations]``, those of a layout next to each other by growing batch.
    able:
        Whether what lies between one and the next may be on it (:func:`may_be_best`).
    most:
        Batches between two neighbours at most, evenly spread where there are more.
    """
    first = np.flatnonzero(able & (layout[1:] == layout[:-1]))
    second = first + 1
    # of whole sequences: each GPU's, or below one each a group's
    unit = np.where(batch[first] < 1, tp[first], 1)
    low, high = np.round(batch[first] * unit), np.round(batch[second] * unit)
    many = np.minimum(high - low - 1, most).astype(np.int64)
    owner, place = expand(np.ones_like(many), many, np.arange(len(many)))
    step = (high - low)[owner] / (many[owner] + 1)
    sequences = low[owner] + np.round(place * step)
    return layout[first][owner], sequences / unit[owner]
