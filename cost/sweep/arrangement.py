"""Ways to cut a cluster into stages and replicas, and which of the replicas are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cost.gpu_groups import (
    MOST_STAGES,
    Group,
    domain_gpus,
    equal_groups,
    group_sizes,
    replicas_of,
    stage_counts,
)
from cost.model import Model
from topology.cluster import Cluster


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

    @property
    def gpus_used(self) -> int:
        """GPUs of all replicas."""
        return sum(len(group) for replica in self.replicas for group in replica)


def arrangements(cluster: Cluster, model: Model) -> list[Arrangement]:
    """Return groups of every size with every number of stages that leaves no group idle, widest groups first.

    Where domains differ in size, one stage on each domain comes last.
    """
    domains = domain_gpus(cluster)
    found = []
    for size in group_sizes(domains):
        groups = equal_groups(domains, size)
        parts = [_parts(cluster, group) for group in groups]
        found += [
            _arrangement(cluster, replicas_of(groups, stages), replicas_of(parts, stages))
            for stages in stage_counts(len(groups), len(model.layers))
        ]
    sizes = {len(domain) for domain in domains}
    if model.moe is not None and len(sizes) > 1 and len(domains) <= min(MOST_STAGES, len(model.layers)):
        parts = [_parts(cluster, domain) for domain in domains]
        found.append(_arrangement(cluster, (tuple(domains),), (tuple(parts),), cut=False))
    return found


def _parts(cluster: Cluster, group: Group) -> tuple[tuple[int, int], ...]:
    """Domains of a group in order, and its GPUs in each."""
    return tuple(Counter(cluster.gpus[gpu].domain for gpu in group).items())


def _arrangement(
    cluster: Cluster,
    replicas: tuple[tuple[Group, ...], ...],
    parts: Sequence[Sequence[tuple[tuple[int, int], ...]]],
    *,
    cut: bool = True,
) -> Arrangement:
    kinds = [id(domain) for domain in cluster.spec.domains]
    first: dict[object, int] = {}
    count: Counter[object] = Counter()
    runs: set[int] = set()
    for index, stages in enumerate(parts):
        where = [frozenset(domain for domain, _ in group) for group in stages]
        joints = tuple(len(a | b) == 1 for a, b in zip(where, [*where[1:], where[0]], strict=True))
        key = tuple(tuple((kinds[domain], gpus) for domain, gpus in group) for group in stages), joints
        first.setdefault(key, index)
        count[key] += 1
        runs.update(gpus for group in stages for _, gpus in group)
    alike = tuple((index, count[key]) for key, index in first.items())
    return Arrangement(replicas, alike, frozenset(runs), cut)
