"""Layouts worth pricing: groups of GPUs, how many of them are the stages of a replica, and widths of parallelism."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from cost.inputs.machine import unlike_gpus
from cost.layouts.arrays import Index
from cost.layouts.deployable import WIDTHS, deployable_stage, deployable_stages, is_power_of_two
from cost.model import Model, MoeFfn
from topology.cluster import Cluster
from topology.scale_out import leaves_and_pods

Group = tuple[int, ...]


MAX_STAGES = 16
"""Stages of a replica at most."""
CACHED_PAIRS = 32
"""Clusters and models whose arrangements are kept: they depend on no figure of either."""


def domain_gpus(cluster: Cluster, gpus: Sequence[int] | None = None) -> list[Group]:
    """Return the GPUs of each scale-up domain, or those of ``gpus``, as indices into ``Cluster.gpus``."""
    if gpus is None:
        return _members(gpu.domain for gpu in cluster.gpus)
    return [tuple(gpus[at] for at in group) for group in _members(cluster.gpus[gpu].domain for gpu in gpus)]


def _members(domains: Iterable[int]) -> list[Group]:
    members: dict[int, list[int]] = {}
    for index, domain in enumerate(domains):
        members.setdefault(domain, []).append(index)
    return [tuple(gpus) for gpus in members.values()]


MAX_SPANNED_DOMAINS = 8
"""Whole domains up to which a replica may have several stages where some are left over."""
MAX_REPLICA_GPUS = 512
"""GPUs of a replica up to which any number of stages may be left over, and any number of whole domains join, also
where some are left over; beyond, those numbers that cut the cluster evenly."""


def group_sizes(domains: list[Group]) -> list[int]:
    """Sizes of groups worth pricing, largest first: inside a domain, of whole domains, and the whole cluster.

    What divides the largest domain, the powers of two, which cut heads evenly, and the widths that are deployed
    (:data:`cost.layouts.deployable.WIDTHS`); of whole domains few, and what divides them. Some leave GPUs idle: else
    one more host or domain could make all the others slower.
    """
    largest = max(len(domain) for domain in domains)
    full_domains = sum(len(domain) == largest for domain in domains)
    sizes = {size for size in range(1, largest + 1) if largest % size == 0 or is_power_of_two(size)}
    sizes |= {width for width in WIDTHS if width <= largest}
    sizes |= {
        largest * count
        for count in range(2, full_domains + 1)
        if full_domains % count == 0 or largest * count <= MAX_REPLICA_GPUS
    }
    sizes.add(sum(len(domain) for domain in domains))
    return sorted(sizes, reverse=True)


def equal_groups(domains: list[Group], size: int) -> list[Group]:
    """Cut groups of ``size`` from each domain, or join whole domains; GPUs left over stay idle."""
    groups = []
    joined: list[int] = []
    for domain in filter(None, domains):
        if len(domain) >= size:
            groups += [domain[start : start + size] for start in range(0, len(domain) - size + 1, size)]
            continue
        joined += domain
        if len(joined) == size:
            groups.append(tuple(joined))
        if len(joined) >= size:
            joined = []
    return groups


def cuts(cluster: Cluster, domains: list[Group], *, any_shape: bool) -> dict[int, list[Group]]:
    """Return groups of each size worth pricing (:func:`group_sizes`), largest first: deployable ones, or all."""
    hosts = None if any_shape else Hosts.of(cluster)
    return {
        size: equal_groups(domains if hosts is None else hosts.cut(domains, size), size)
        for size in group_sizes(domains)
        if hosts is None or hosts.deployable(size)
    }


@dataclass(frozen=True)
class Hosts:
    """The hosts of a cluster, which deployable layouts fill evenly (:mod:`cost.layouts.deployable`).

    Attributes
    ----------
    of_gpu:
        That of each GPU, ``[gpus]``.
    gpus, domain:
        GPUs under one, and of one domain; where they differ, of the largest.
    broken:
        GPUs of hosts that have lost some.
    """

    of_gpu: tuple[str, ...]
    gpus: int
    domain: int
    broken: frozenset[int]

    @classmethod
    def of(cls, cluster: Cluster) -> Hosts:
        """Return those of a cluster."""
        of_gpu = tuple(gpu.node for gpu in cluster.gpus)
        gpus_of_node, domains = Counter(of_gpu), cluster.spec.domains
        broken = frozenset(
            number
            for number, gpu in enumerate(cluster.gpus)
            if gpus_of_node[gpu.node] < domains[gpu.domain].gpus_per_node
        )
        return cls(
            of_gpu,
            max(domain.gpus_per_node for domain in domains),
            max(domain.gpus for domain in domains),
            broken,
        )

    def deployable(self, size: int, stages: int = 1, groups: int = 1) -> bool:
        """Whether stages may have ``size`` GPUs, and a replica so many; the cluster has ``groups`` of that size."""
        stage = deployable_stage(size, node=self.gpus, domain=self.domain)
        return stage and deployable_stages(stages, size, node=self.gpus, domain=self.domain, groups=groups)

    def cut(self, domains: Sequence[Group], size: int) -> list[Group]:
        """Return what groups of ``size`` are cut of: hosts for a part of one, else the whole hosts of each domain."""
        if size >= self.gpus:
            return [tuple(gpu for gpu in domain if gpu not in self.broken) for domain in domains]
        hosts: dict[str, list[int]] = {}
        for gpu in chain(*domains):
            hosts.setdefault(self.of_gpu[gpu], []).append(gpu)
        return [tuple(gpus) for gpus in hosts.values()]


def replicas_of(groups: Sequence[Group], stages: int) -> tuple[tuple[Group, ...], ...]:
    """Runs of ``stages`` groups, as many as there are."""
    end = len(groups) // stages * stages
    return tuple(tuple(groups[start : start + stages]) for start in range(0, end, stages))


@dataclass(frozen=True)
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
    alike: tuple[tuple[int, int], ...] = field(compare=False)
    runs: frozenset[int] = field(compare=False)
    cut: bool = True

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.replicas, self.cut))

    @property
    def stages(self) -> int:
        """Stages of a replica."""
        return len(self.replicas[0])

    @property
    def group(self) -> int:
        """GPUs of the largest stage."""
        return max(len(group) for group in self.replicas[0])

    @property
    def replica_gpus(self) -> int:
        """GPUs of the first replica."""
        return sum(map(len, self.replicas[0]))

    @cached_property
    def gpus_used(self) -> int:
        """GPUs of all replicas."""
        return sum(count * sum(map(len, self.replicas[replica])) for replica, count in self.alike)


class Candidates(NamedTuple):
    """Arrangements of a cluster, widest groups first: those always priced, and those that leave GPUs idle."""

    always: tuple[Arrangement, ...]
    idle: tuple[Arrangement, ...]


def candidates(cluster: Cluster, model: Model, *, any_shape: bool = True) -> Candidates:
    """Return groups of every size with every number of stages; without ``any_shape`` those that are deployable.

    Always priced are those that use all groups, and few whole domains with some left over (:data:`MAX_REPLICA_GPUS`,
    :data:`MAX_SPANNED_DOMAINS`); where domains differ in size, one stage on each domain comes last. The rest, up to
    :data:`MAX_REPLICA_GPUS` a replica, leaves GPUs idle and is priced where it is near the frontier: every size
    inside a domain and any number of whole ones, since what some domains hold, more of them hold too. Sizes that no
    tensor parallelism of a model without experts can have are left out there.
    """
    return _candidates(_Places.of(cluster), _Cut.of(model), None if any_shape else Hosts.of(cluster))


@lru_cache(maxsize=CACHED_PAIRS)
def _candidates(where: _Places, cut: _Cut, hosts: Hosts | None) -> Candidates:
    domains = where.domains
    largest = max(len(domain) for domain in domains)
    full_domains = sum(len(domain) == largest for domain in domains)
    usual = set(group_sizes(domains))
    wide_sizes = usual | {largest * n for n in range(2, min(full_domains, MAX_REPLICA_GPUS // largest) + 1)}
    if not cut.moe:
        wide_sizes = {size for size in wide_sizes if size <= largest and cut.heads % size == 0}
    max_stages = min(MAX_STAGES, cut.layers)
    always: list[Arrangement] = []
    idle: list[Arrangement] = []
    for size in sorted(usual | wide_sizes, reverse=True):
        if hosts is not None and not hosts.deployable(size):
            continue
        groups = equal_groups(domains if hosts is None else hosts.cut(domains, size), size)
        kinds = _GroupKinds.of(where, groups)
        for stages in range(1, min(max_stages, len(groups)) + 1):
            if hosts is not None and not hosts.deployable(size, stages, len(groups)):
                continue
            spanned = size // largest * stages  # whole domains of a replica; 0: parts of one
            if size in usual and (len(groups) % stages == 0 or 0 < spanned <= MAX_SPANNED_DOMAINS):
                always.append(kinds.arrangement(replicas_of(groups, stages)))
            elif size in wide_sizes and size * stages <= MAX_REPLICA_GPUS:
                idle.append(kinds.arrangement(replicas_of(groups, stages)))
    sizes = {len(domain) for domain in domains}
    whole_hosts = hosts is None or not hosts.broken
    if cut.moe and len(sizes) > 1 and len(domains) <= max_stages and whole_hosts:
        always.append(_GroupKinds.of(where, domains).arrangement((tuple(domains),), cut=False))
    return Candidates(tuple(always), tuple(idle))


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
    columns: tuple[int, ...]

    @classmethod
    def of(cls, model: Model) -> _Cut:
        """Return that of a model."""
        columns = tuple(layer.ffn.columns for layer in model.kinds if isinstance(layer.ffn, MoeFfn))
        heads = math.gcd(*(layer.attention.heads for layer in model.kinds))
        return cls(model.moe is not None, len(model.layers), heads, columns)


@dataclass(frozen=True)
class _Places:
    """Where each GPU of a cluster is, ``[gpus]``: its domain, leaf and pod; equal for clusters cut alike.

    ``marks`` say what sets GPUs apart (:func:`cost.inputs.machine.unlike_gpus`), ``kinds`` which domains are equal.
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
        marks = tuple(unlike_gpus(cluster).items())
        domain = tuple(gpu.domain for gpu in cluster.gpus)
        return cls(domain, tuple(leaf), tuple(pod), marks, cluster.domain_kind)

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
        The domain that a group lies in, the leaf and the pod (:class:`cost.inputs.layout.Place`), ``[3, groups]``;
        negative, and of no other group, where it lies in several.
    runs:
        Numbers of GPUs that a group of each kind has in one domain.
    """

    kind: Index
    place: Index
    runs: frozenset[int]

    @classmethod
    def of(cls, where: _Places, groups: Sequence[Group]) -> _GroupKinds:
        """Return those of ``groups``."""
        number: dict[object, int] = {}
        kinds: list[int] = []
        places: list[tuple[int, int, int]] = []
        runs: set[int] = set()
        leaf, pod, marks, kind_of = where.leaf, where.pod, dict(where.marks), where.kinds
        for index, group in enumerate(groups):
            parts: tuple[tuple[int, int], ...]
            domain = where.domain[group[0]]
            if domain == where.domain[group[-1]]:  # GPUs are in order of their domains
                parts = ((kind_of[domain], len(group)),)
            else:
                inside = Counter(map(where.domain.__getitem__, group))
                parts = tuple((kind_of[part], gpus) for part, gpus in inside.items())
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
        _, index, count = np.unique(key, axis=0, return_index=True, return_counts=True)
        order = np.argsort(index)
        alike = tuple(zip(index[order].tolist(), count[order].tolist(), strict=True))
        return Arrangement(replicas, alike, self.runs, cut)


def widths_of(model: Model, arrangement: Arrangement, *, cut_experts: bool) -> tuple[list[int], list[int]]:
    """Return the widths of tensor parallelism, and parts of an expert, that groups of ``arrangement`` may have."""
    if not arrangement.cut:
        return [1], [1]
    return group_widths(model, arrangement.group, arrangement.runs, cut_experts=cut_experts)


def group_widths(
    model: Model, group: int, runs: Collection[int], *, cut_experts: bool
) -> tuple[list[int], list[int]]:
    """Return those of a group of ``group`` GPUs, which has one of ``runs`` in each scale-up domain.

    Tensor parallelism stays in a domain, or is as wide as the group: over two nodes of 8 GPUs it is run at 16
    (DeepSeek-R1 in the documentation of SGLang and vLLM).
    """
    cut = _Cut.of(model)
    common = math.gcd(group, cut.heads, *runs)
    widths = [width for width in range(1, common + 1) if common % width == 0]
    if len(set(runs)) == 1 and common < group and cut.heads % group == 0:
        widths.append(group)  # over all its domains; wider groups of several such are not run
    if not cut.moe:
        return ([group] if group in widths else []), [1]
    if not cut_experts or set(runs) != {group}:
        return widths, [1]
    parts = [part for part in range(1, group + 1) if group % part == 0]
    return widths, [part for part in parts if all(columns % part == 0 for columns in cut.columns)]
