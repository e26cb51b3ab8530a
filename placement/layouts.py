"""The parallel layouts worth costing on a cluster: groups of GPUs, stages, replicas, tensor parallelism."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cost.model import Model
    from topology.cluster import Cluster

__all__ = ["Shape", "enumerate_shapes"]

MOST_STAGES = 16
TP_WIDTHS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Shape:
    """A layout before its layers are split: for each replica, the GPUs of each of its stages in order."""

    replicas: tuple[tuple[tuple[int, ...], ...], ...]
    tp: int


def enumerate_shapes(cluster: Cluster, model: Model) -> Iterator[Shape]:
    """Yield the layouts to cost.

    Groups of equal size are cut from each domain, or joined from whole domains; a stage takes one group, a
    replica a run of stages. Where domains differ, one stage on each is offered too. Tensor parallelism stays
    in a domain and divides the query heads. A model without experts has one tensor-parallel group a stage.
    """
    domains = _domain_gpus(cluster)
    domain_of = [gpu.domain for gpu in cluster.gpus]
    heads = min(layer.attention.heads for layer in model.layers)
    seen: set[Shape] = set()
    for size in _group_sizes(domains):
        groups = _groups(domains, size)
        runs = {run for group in groups for run in Counter(domain_of[gpu] for gpu in group).values()}
        widths = [tp for tp in TP_WIDTHS if heads % tp == 0 and all(run % tp == 0 for run in runs)]
        if model.moe is None:
            widths = [size] if size in widths else []
        for stages in _stage_counts(len(groups), len(model.layers)):
            for tp in widths:
                shape = Shape(_replicas(groups, stages), tp)
                if shape not in seen:
                    seen.add(shape)
                    yield shape
    if model.moe is not None and 1 < len(domains) <= min(MOST_STAGES, len(model.layers)):
        uneven = Shape((tuple(domains),), 1)
        if len({len(domain) for domain in domains}) > 1:
            yield uneven


def _domain_gpus(cluster: Cluster) -> list[tuple[int, ...]]:
    members: dict[int, list[int]] = {}
    for index, gpu in enumerate(cluster.gpus):
        members.setdefault(gpu.domain, []).append(index)
    return [tuple(gpus) for gpus in members.values()]


def _group_sizes(domains: list[tuple[int, ...]]) -> list[int]:
    """Divisors of the largest domain, whole runs of it, and the whole cluster; largest first."""
    largest = max(len(domain) for domain in domains)
    whole = sum(len(domain) == largest for domain in domains)
    sizes = {size for size in range(1, largest + 1) if largest % size == 0}
    sizes |= {largest * count for count in range(2, whole + 1) if whole % count == 0}
    sizes.add(sum(len(domain) for domain in domains))
    return sorted(sizes, reverse=True)


def _groups(domains: list[tuple[int, ...]], size: int) -> list[tuple[int, ...]]:
    """Cut groups of ``size`` from each domain, or join whole domains; GPUs left over stay idle."""
    groups = []
    joined: tuple[int, ...] = ()
    for domain in domains:
        if len(domain) >= size:
            groups += [domain[start : start + size] for start in range(0, len(domain) - size + 1, size)]
            continue
        joined += domain
        if len(joined) == size:
            groups.append(joined)
        if len(joined) >= size:
            joined = ()
    return groups


def _stage_counts(groups: int, layers: int) -> list[int]:
    """Stage counts that leave no group idle, and one stage for each."""
    most = min(groups, layers, MOST_STAGES)
    return [count for count in range(1, most + 1) if groups % count == 0]


def _replicas(groups: list[tuple[int, ...]], stages: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    whole = len(groups) // stages * stages
    return tuple(tuple(groups[start : start + stages]) for start in range(0, whole, stages))
