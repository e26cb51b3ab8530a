"""Stages over unlike groups: their problem says what the score says; orders that are better than the given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts.candidates import domain_gpus
from cost.layouts.evaluate import sweep
from cost.layouts.stages import Pricer
from cost.layouts.unlike_stages import order_problem, unlike_arrangements
from helpers import few_layers
from topology import Cluster, build_cluster, resolve_cluster

MODEL = few_layers("deepseek-v3", 8)


def mixed() -> Cluster:
    """A host of H200 and, after it, one of half as many B200."""
    spec = resolve_cluster("hgx-h200").spec
    fast = resolve_cluster("hgx-b200@8").spec.domains[0]
    return build_cluster(replace(resolve_cluster("hgx-h200@16").spec, domains=(*spec.domains, fast)))


def deployment(cluster: Cluster | str, *, phase: str = "decode", batch: int = 4) -> Deployment:
    where = resolve_cluster(cluster) if isinstance(cluster, str) else cluster
    return Deployment(where, MODEL, Workload(batch=batch, phase=phase))


@pytest.mark.wide
@pytest.mark.parametrize("cluster", [mixed(), "gb200-nvl72@76"])
def test_the_step_of_a_problem_is_that_of_the_sweep(cluster):
    where = deployment(cluster)
    pricer = Pricer(where)
    found = sweep(where, cut_experts=False)
    gpus = len(where.cluster.gpus)
    seen = 0
    for row in np.flatnonzero((found.stages == 2) & (found.replicas == 1) & (found.tp == 1)):
        if found.gpus[row] != gpus or found.batch[row] != np.round(found.batch[row]):
            continue
        stages = found.layout_of(row).replicas[0]
        groups = [stage.gpus for stage in stages]
        sequences = float(found.batch[row]) * gpus
        problem = order_problem(pricer, groups, sequences=sequences, stages=2)
        ranges = tuple(stage.layers for stage in stages)
        assert problem.step_seconds((0, 1), ranges) == pytest.approx(found.step_s[row], rel=1e-9)
        # the workspace of a stage is counted as if it had experts
        assert problem.fits((0, 1), ranges) or ranges[0].stop <= MODEL.moe_layers[0]
        seen += 1
    assert seen


def test_unlike_domains_come_in_a_better_order_than_that_of_the_cluster():
    where = deployment("gb200-nvl72@76")
    given = tuple(domain_gpus(where.cluster))
    turned = [what for what in unlike_arrangements(Pricer(where)) if what.replicas == (given[::-1],)]
    assert turned
    found = sweep(where, cut_experts=False)
    best = found.layout_of(int(np.argmax(found.tok_s_per_gpu)))
    assert found.tok_s_per_gpu.max() > 0
    assert best.gpus_used <= 76


def test_alike_domains_have_no_order_of_their_own():
    assert unlike_arrangements(Pricer(deployment("hgx-h100@16"))) == []
    assert unlike_arrangements(Pricer(deployment("gb200-nvl72"))) == []


def test_small_domains_that_are_alike_are_joined_beside_a_large_one():
    spec = resolve_cluster("gb200-nvl72@16").spec
    hosts = resolve_cluster("hgx-h200@16").spec
    cluster = build_cluster(replace(hosts, domains=(*spec.domains, *hosts.domains)))
    groups = {
        frozenset(len(group) for group in what.replicas[0])
        for what in unlike_arrangements(Pricer(deployment(cluster)))
        if not what.cut
    }
    assert frozenset({16, 8}) in groups


def test_orders_are_the_same_every_time():
    where = deployment(mixed())
    first, again = (unlike_arrangements(Pricer(where)) for _ in range(2))
    assert [what.replicas for what in first] == [what.replicas for what in again]


def test_groups_alike_count_as_one():
    where = deployment("gb200-nvl72@148")
    groups = domain_gpus(where.cluster)
    problem = order_problem(Pricer(where), groups, sequences=148.0, stages=3)
    assert problem.alike == (0, 0, 2)
