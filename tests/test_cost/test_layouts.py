"""Layouts and their words; sweeps against the scorer of single layouts; stages over unlike groups."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from cost.experts.tokens.reach import balanced_use
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import Sweep, best_at, sweep
from cost.layouts.candidates import cuts, domain_gpus
from cost.layouts.stages import Pricer
from cost.layouts.unlike_stages import order_problem, unlike_arrangements
from cost.resolve import resolve_model
from cost.step.score import LayoutScorer
from helpers import few_layers
from topology import Cluster, build_cluster, resolve_cluster
from topology.base.errors import InfeasibleError
from toys import even_slots

WORKLOAD = Workload()


def scorer_of(layouts_swept: Sweep, index: int, redundant: int | None) -> LayoutScorer:
    """The scorer of one layout of a sweep, its experts balanced."""
    where, layout = layouts_swept.deployment, layouts_swept.layout_of(index)
    moe = where.model.moe
    uses = []
    for stages in layout.replicas:
        row = []
        for stage in stages:
            gpus = len(stage.gpus)
            count = sum(layer in stage.layers for layer in where.model.moe_layers)
            if moe is None or not count:
                row.append(None)
                continue
            slots = moe.experts + (-moe.experts % gpus if redundant is None else redundant)
            row.append(balanced_use(count, even_slots(slots, gpus), moe.experts, moe.top_k))
        uses.append(row)
    return LayoutScorer(where, layout, uses)


@cache
def swept(model: str, cluster: str, workload: Workload = WORKLOAD, **options: Any) -> Sweep:
    return sweep(Deployment(resolve_cluster(cluster), resolve_model(model), workload), **options)


@pytest.mark.wide
def test_every_batch_near_the_frontier_by_pricing_all() -> None:
    layouts_swept = swept("mixtral-8x22b", "hgx-h200@16")
    best = {}
    for index in range(len(layouts_swept)):
        key = int(layouts_swept.layout[index]), int(layouts_swept.tp[index]), int(layouts_swept.moe_tp[index])
        best[key] = index
    edge = layouts_swept.frontier()
    priced = {(layouts_swept.label(i), float(layouts_swept.batch[i])) for i in range(len(layouts_swept))}
    for target in np.linspace(10, 60, 6):
        index = best_at(layouts_swept, target)
        assert index is not None
        assert index in edge or layouts_swept.tok_s_per_gpu[index] == layouts_swept.tok_s_per_gpu[edge].max()
        if (
            layouts_swept.batch[index] < layouts_swept.max_batch[index]
        ):  # one more sequence is too slow, and was tried
            more = layouts_swept.batch[index] + 1 / layouts_swept.tp[index]
            assert (layouts_swept.label(index), more) in priced
    for key, last in best.items():
        if key[2] > 1:
            continue
        scorer = scorer_of(layouts_swept, last, None)
        for batch in range(1, int(layouts_swept.max_batch[last]) + 1, 37):
            score = scorer.at(batch)
            row = best_at(layouts_swept, score.tok_s_per_user * (1 - 1e-9))
            assert row is not None
            assert layouts_swept.tok_s_per_gpu[row] >= score.tok_s_per_gpu * (1 - 1e-9), (key, batch)


def test_a_sweep_without_a_layout_says_what_is_lacking() -> None:
    there = Deployment(resolve_cluster("hgx-h100"), resolve_model("deepseek-v3"), Workload())
    with pytest.raises(
        InfeasibleError, match=r"no layout of deepseek-v3 on hgx-h100 .* the closest lacks [0-9.]+ GB"
    ):
        sweep(there).that_fits()
    fitting = sweep(Deployment(there.cluster, resolve_model("mixtral-8x7b"), Workload()))
    assert fitting.that_fits() is fitting


MODEL = few_layers("deepseek-v3", 8)


def mixed() -> Cluster:
    """A host of H200 and, after it, one of half as many B200."""
    spec = resolve_cluster("hgx-h200").spec
    fast = resolve_cluster("hgx-b200@8").spec.domains[0]
    return build_cluster(replace(resolve_cluster("hgx-h200@16").spec, domains=(*spec.domains, fast)))


def eight_layers(cluster: Cluster | str, *, phase: str = "decode", batch: int = 4) -> Deployment:
    where = resolve_cluster(cluster) if isinstance(cluster, str) else cluster
    return Deployment(where, MODEL, Workload(batch=batch, phase=phase))


def test_unlike_domains_come_in_a_better_order_than_that_of_the_cluster():
    where = eight_layers("gb200-nvl72@76")
    given = tuple(domain_gpus(where.cluster))
    orders, again = ([what.replicas for what in unlike_arrangements(Pricer(where))] for _ in range(2))
    assert (given[::-1],) in orders
    assert orders == again, "the same every time"


def test_sizes_that_engines_deploy_beside_those_of_any_shape():
    rack = resolve_cluster("gb200-nvl72")
    usual, every = (set(cuts(rack, domain_gpus(rack), any_shape=any_shape)) for any_shape in (False, True))
    assert every - usual == {3, 6, 9, 18}, "no whole nodes of four, or no power of two under one host"


def test_groups_alike_count_as_one():
    assert unlike_arrangements(Pricer(eight_layers("hgx-h100@16"))) == [], "alike domains have no order"
    where = eight_layers("gb200-nvl72@148")
    groups = domain_gpus(where.cluster)
    problem = order_problem(Pricer(where), groups, sequences=148.0, stages=3)
    assert problem.alike == (0, 0, 2)
