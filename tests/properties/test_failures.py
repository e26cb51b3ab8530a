"""What one failure would do: against assignments written out by hand, and against scoring what is left."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from placement.analysis.failures import find_failures
from placement.options import Spread
from placement.plan import Plan
from placement.plans.findings import WhatIf
from placement.scoring import score_placement
from test_placement.builders import deployed, quick
from topology import Cluster, resolve_cluster
from topology.build import build_cluster
from topology.spec import Fault


@cache
def plan_of(cluster: str | Cluster = "gb200-nvl72@8", loads: str = "lognormal:0.63", **asked: Any) -> Plan:
    deployment = deployed("mixtral-8x7b", cluster, batch=8)
    return quick(deployment, loads, **{"redundant": 8, "ep": 8, "tp": 1, **asked})


def what_if(plan: Plan, unit: Spread) -> WhatIf:
    return next(row for row in plan.failures.what_if if row.unit == unit)


def with_rows(plan: Plan, row: list[int], tokens: list[float]) -> Plan:
    """The plan with the same experts in every layer, and the same loads."""
    (entry,) = plan.experts
    slot_expert = np.tile(np.array(row, dtype=np.int32), (32, 1))
    experts = (Assignment(slot_expert, entry.slot_gpu, entry.experts, entry.gpus),)
    loads = ExpertLoads(np.tile(np.array(tokens), (1, 32, 1)), ("by hand",), synthetic=False)
    return replace(plan, experts=experts, loads=loads)


def test_by_hand() -> None:
    """Eight GPUs in two nodes of two slots: expert 0 in both nodes, 1 twice in one, the rest wherever."""
    row = [0, 1, 1, 2, 3, 4, 5, 6, 0, 7, 2, 3, 4, 5, 6, 7]
    tokens = [4.0, 2, 1, 1, 1, 1, 1, 1]
    plan = with_rows(plan_of(), row, tokens)
    nodes = find_failures(replace(plan, request=replace(plan.request, spread="node")))
    # expert 1 lies on GPUs 0 and 1 of node 0; expert 7 on GPUs 4 and 7 of node 1
    assert [(layer.experts, layer.share) for layer in nodes.layers] == [(2, pytest.approx(3 / 12))] * 32
    first = nodes.experts[0]
    assert (first.layer, first.expert, first.copies, first.domain) == (0, 1, 2, "d0.n0")
    assert first.share == pytest.approx(2 / 12)
    layer = nodes.layers[0]
    assert (layer.worst, layer.worst_experts, layer.worst_share) == ("d0.n0", 1, pytest.approx(2 / 12))
    assert nodes.experts_at_risk == 64
    assert nodes.share_at_risk == pytest.approx(3 / 12)
    gpus = find_failures(plan)
    assert gpus.experts_at_risk == 0
    assert (gpus.experts, gpus.layers[0].worst) == ((), "")
    by_node = next(loss for loss in nodes.what_if if loss.unit == "node")
    assert (by_node.choices, by_node.tried, by_node.experts_lost_most) == (2, 2, 32)
    assert by_node.tokens_lost_most == pytest.approx(2 / 12)
    assert by_node.tokens_lost_mean == pytest.approx(1.5 / 12)
    # without node 1 and expert 7: loads 4 + 1, 1 + 1, 2, 2; without node 0 and expert 1: 4 + 0.5, 2, 2, 0.5 + 1
    without_1, without_0 = (11 / 4) / 5, (10 / 4) / 4.5
    assert by_node.balancedness_worst == pytest.approx(min(without_1, without_0))
    assert by_node.balancedness_mean == pytest.approx((without_1 + without_0) / 2)
    lone = with_rows(
        plan_of(), [*row[:10], 0, *row[11:]], tokens
    )  # a third copy of expert 0 instead of one of 2
    copies = find_failures(replace(lone, request=replace(lone.request, spread="node"))).copies
    assert (copies.apart, copies.together, copies.single) == (5 * 32, 2 * 32, 32)


@pytest.mark.parametrize("broken", [(), (Fault(link=("d0.n0.g1", "d0.s1"), factor=0.5),)])
def test_what_is_left_is_scored_like_any_plan(broken: tuple[Fault, ...]) -> None:
    """Losing a GPU is the same placement on the other seven: the worst and the mean of all eight losses."""
    cluster = build_cluster(replace(resolve_cluster("gb200-nvl72@8").spec, faults=broken))
    plan = plan_of(cluster, "uniform")
    (entry,), (stage,) = plan.experts, plan.layout.replicas[0]
    scores, balancedness = [], []
    for lost in range(8):
        kept = entry.slot_gpu != lost
        slot_gpu = entry.slot_gpu[kept] - (entry.slot_gpu[kept] > lost)
        rest = Assignment(entry.slot_expert[:, kept], slot_gpu, 8, 7)
        assert (rest.copies > 0).all(), "two copies of each expert: none is lost"
        seven = replace(stage, gpus=tuple(gpu for gpu in stage.gpus if gpu != stage.gpus[lost]))
        layout = replace(plan.layout, replicas=((seven,),))
        score, by_layer = score_placement(plan.deployment, layout, (rest,), plan.loads)
        scores.append(score.tok_s_per_gpu)
        balancedness.append(np.mean(list(by_layer.values())))
    row = what_if(plan, "gpu")
    assert row.tok_s_per_gpu_worst == pytest.approx(min(scores))
    assert row.balancedness_worst == pytest.approx(min(balancedness))
    assert row.balancedness_mean == pytest.approx(np.mean(balancedness))
    assert (row.tokens_lost_most, row.experts_lost_most) == (0.0, 0)


def test_what_a_group_a_replica_and_a_stage_lose() -> None:
    """A tensor-parallel group stops whole, another replica goes on, a stage holds half of the layers."""
    assert what_if(plan_of(tp=2, redundant=0), "gpu").tokens_lost_mean == pytest.approx(2 / 8)
    replicas = plan_of("hgx-h100@16", redundant=0)
    row = what_if(replicas, "node")
    assert row.choices == 2
    assert row.tok_s_per_gpu_worst == pytest.approx(replicas.score.tok_s_per_gpu / 2)
    assert row.balancedness_worst == pytest.approx(np.mean(list(replicas.balancedness.values())))
    staged = plan_of("hgx-h100@16", redundant=0, stages=2)
    assert what_if(staged, "gpu").tokens_lost_mean == pytest.approx(1 / 16, rel=0.2)
    assert what_if(staged, "node").tok_s_per_gpu_worst == 0
