"""The parallel layouts worth costing on a cluster: groups of GPUs, stages, replicas, tensor parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cost.layouts.candidates import (
    MOST_STAGES,
    domain_gpus,
    equal_groups,
    group_sizes,
    replicas_of,
    stage_counts,
)
from cost.model import Model
from topology.cluster import Cluster

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
    domains = domain_gpus(cluster)
    domain_of = [gpu.domain for gpu in cluster.gpus]
    heads = min(layer.attention.heads for layer in model.layers)
    seen: set[Shape] = set()
    for size in group_sizes(domains):
        groups = equal_groups(domains, size)
        runs = {run for group in groups for run in Counter(domain_of[gpu] for gpu in group).values()}
        widths = [tp for tp in TP_WIDTHS if heads % tp == 0 and all(run % tp == 0 for run in runs)]
        if model.moe is None:
            widths = [size] if size in widths else []
        for stages in stage_counts(len(groups), len(model.layers)):
            for tp in widths:
                shape = Shape(replicas_of(groups, stages), tp)
                if shape not in seen:
                    seen.add(shape)
                    yield shape
    if model.moe is not None and 1 < len(domains) <= min(MOST_STAGES, len(model.layers)):
        uneven = Shape((tuple(domains),), 1)
        if len({len(domain) for domain in domains}) > 1:
            yield uneven
