"""Cutting a cluster into equal groups of GPUs, and lining groups up as the stages of replicas."""

from __future__ import annotations

from typing import TypeVar

from topology.cluster import Cluster

Group = tuple[int, ...]


_Part = TypeVar("_Part")


MOST_STAGES = 16


def domain_gpus(cluster: Cluster) -> list[Group]:
    """Return the GPUs of each scale-up domain, as indices into ``Cluster.gpus``."""
    members: dict[int, list[int]] = {}
    for index, gpu in enumerate(cluster.gpus):
        members.setdefault(gpu.domain, []).append(index)
    return [tuple(gpus) for gpus in members.values()]


def group_sizes(domains: list[Group]) -> list[int]:
    """Divisors of the largest domain, whole runs of it, and the whole cluster; largest first."""
    largest = max(len(domain) for domain in domains)
    whole = sum(len(domain) == largest for domain in domains)
    sizes = {size for size in range(1, largest + 1) if largest % size == 0}
    sizes |= {largest * count for count in range(2, whole + 1) if whole % count == 0}
    sizes.add(sum(len(domain) for domain in domains))
    return sorted(sizes, reverse=True)


def equal_groups(domains: list[Group], size: int) -> list[Group]:
    """Cut groups of ``size`` from each domain, or join whole domains; GPUs left over stay idle."""
    groups = []
    joined: Group = ()
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


def stage_counts(groups: int, layers: int) -> list[int]:
    """Stage counts that leave no group idle, and one stage for each."""
    most = min(groups, layers, MOST_STAGES)
    return [count for count in range(1, most + 1) if groups % count == 0]


def replicas_of(groups: list[_Part], stages: int) -> tuple[tuple[_Part, ...], ...]:
    """Runs of ``stages`` groups, as many as there are."""
    whole = len(groups) // stages * stages
    return tuple(tuple(groups[start : start + stages]) for start in range(0, whole, stages))
