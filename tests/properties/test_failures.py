"""What one failure would do: against assignments written out by hand, and against scoring what is left."""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads, read_loads
from cost.experts.tokens.reach import ExpertUse
from cost.experts.traces.counts import Wanted
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.step.score import LayoutScorer
from placement.analysis import failures
from placement.analysis.failures import find_failures
from placement.arrays import Bools
from placement.options import SPREADS, PlanOptions, Spread
from placement.plan import Plan
from placement.planner import make_plan
from placement.plans.findings import WhatIf
from placement.scoring import score_placement, stage_use
from topology import resolve_cluster
from topology.build import build_cluster
from topology.spec import Fault

MIXTRAL = resolve_model("mixtral-8x7b")


def loads_of(text: str, layers: int, experts: int) -> ExpertLoads:
    return read_loads([text], Wanted(tuple(range(layers)), layers, experts), seed=0)


@cache
def plan_of(
    cluster: str = "gb200-nvl72@8",
    redundant: int = 8,
    spread: Spread = "gpu",
    ep: int = 8,
    tp: int = 1,
    stages: int = 1,
    loads: str = "lognormal:0.63",
) -> Plan:
    deployment = Deployment(resolve_cluster(cluster), MIXTRAL, Workload(batch=8))
    options = PlanOptions(redundant, time_limit_s=0.0, ep=ep, tp=tp, stages=stages, spread=spread)
    return make_plan(deployment, loads_of(loads, 32, 8), options)


def what_if(plan: Plan, unit: Spread) -> WhatIf:
    assert plan.failures is not None
    return next(row for row in plan.failures.what_if if row.unit == unit)


def with_rows(plan: Plan, row: list[int], tokens: list[float]) -> Plan:
    """The plan with the same experts in every layer, and the same loads."""
    (entry,) = plan.experts
    assert entry is not None
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
    assert nodes is not None
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
    assert gpus is not None
    assert gpus.experts_at_risk == 0
    assert (gpus.experts, gpus.layers[0].worst) == ((), "")
    by_node = next(one for one in nodes.what_if if one.unit == "node")
    assert (by_node.choices, by_node.tried, by_node.experts_lost_most) == (2, 2, 32)
    assert by_node.tokens_lost_most == pytest.approx(2 / 12)
    assert by_node.tokens_lost_mean == pytest.approx(1.5 / 12)
    # without node 1 and expert 7: loads 4 + 1, 1 + 1, 2, 2; without node 0 and expert 1: 4 + 0.5, 2, 2, 0.5 + 1
    without_1, without_0 = (11 / 4) / 5, (10 / 4) / 4.5
    assert by_node.balancedness_worst == pytest.approx(min(without_1, without_0))
    assert by_node.balancedness_mean == pytest.approx((without_1 + without_0) / 2)


def test_what_is_left_is_scored_like_any_plan() -> None:
    """Losing the last GPU is the same placement on the other seven."""
    plan = plan_of(loads="uniform")
    (entry,), (stage,) = plan.experts, plan.layout.replicas[0]
    assert entry is not None
    seven = replace(stage, gpus=stage.gpus[:7])
    kept = entry.slot_gpu < 7
    rest = Assignment(entry.slot_expert[:, kept], entry.slot_gpu[kept], 8, 7)
    assert (rest.copies > 0).all(), "two copies of each expert: none is lost"
    layout = replace(plan.layout, replicas=((seven,),))
    score, balancedness = score_placement(plan.deployment, layout, (rest,), plan.loads)
    after = failures._Loss(plan, plan.loads).of(np.arange(8) == 7)
    assert after.tok_s_per_gpu == pytest.approx(score.tok_s_per_gpu)
    assert after.balancedness == pytest.approx(np.mean(list(balancedness.values())))
    assert (after.tokens_lost, after.experts_lost) == (0.0, 0)
    row = what_if(plan, "gpu")
    assert row.tok_s_per_gpu_worst <= after.tok_s_per_gpu < plan.score.tok_s_per_gpu
    assert row.balancedness_worst <= row.balancedness_mean <= 1


def test_copies_in_two_nodes_survive_the_loss_of_one() -> None:
    plan = plan_of(spread="node")
    assert plan.failures is not None
    assert plan.failures.spread == "node"
    assert plan.failures.experts_at_risk == 0
    assert what_if(plan, "node").tokens_lost_most == 0
    single = plan_of(redundant=0)
    assert single.failures is not None
    assert single.failures.experts_at_risk == 8 * 32
    assert single.failures.share_at_risk == pytest.approx(1.0)
    assert what_if(single, "gpu").tokens_lost_mean == pytest.approx(1 / 8)
    assert what_if(single, "gpu").experts_lost_most == 32


def test_a_replica_lost_leaves_the_other() -> None:
    plan = plan_of("hgx-h100@16", redundant=0)
    assert len(plan.layout.replicas) == 2
    row = what_if(plan, "node")
    assert row.choices == 2
    assert row.tok_s_per_gpu_worst == pytest.approx(plan.score.tok_s_per_gpu / 2)
    assert row.balancedness_worst == pytest.approx(np.mean(list(plan.balancedness.values())))


def test_a_tensor_parallel_group_stops_as_a_whole() -> None:
    plan = plan_of(tp=2, redundant=0)
    row = what_if(plan, "gpu")
    assert row.tokens_lost_mean == pytest.approx(2 / 8)
    assert row.choices == 8


def test_stages() -> None:
    """Of two stages the one that lost a GPU holds half the layers."""
    plan = plan_of("hgx-h100@16", redundant=0, stages=2)
    row = what_if(plan, "gpu")
    assert 0 < row.tokens_lost_mean < 1 / 8
    assert row.tokens_lost_mean == pytest.approx(1 / 16, rel=0.2)
    assert what_if(plan, "node").tok_s_per_gpu_worst == 0


def test_dense_models_have_none() -> None:
    deployment = Deployment(resolve_cluster("hgx-h100"), resolve_model("llama-3.1-8b"), Workload(batch=2))
    assert make_plan(deployment, None, PlanOptions(time_limit_s=0.0)).failures is None


@pytest.mark.parametrize("split", ["even", "source", "lp"])
def test_under_every_split(split: str) -> None:
    deployment = Deployment(resolve_cluster("gb200-nvl72@8"), MIXTRAL, Workload(batch=8))
    options = PlanOptions(8, time_limit_s=0.0, ep=8, tp=1, split=split)  # type: ignore[arg-type]
    plan = make_plan(deployment, loads_of("uniform", 32, 8), options)
    row = what_if(plan, "gpu")
    assert 0 < row.balancedness_worst <= row.balancedness_mean + 1e-9
    assert row.balancedness_mean < 1
    assert row.tokens_lost_most == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("model", "cluster", "change", "options"),
    [
        ("mixtral-8x7b", "hgx-h100@32", "", {"ep": 8, "tp": 1, "redundant": 3}),
        ("mixtral-8x7b", "hgx-h100@32", "", {"ep": 16, "tp": 2, "stages": 2}),
        ("mixtral-8x7b", "gb200-nvl72@16", "", {"ep": 4, "tp": 1, "redundant": 8}),
        ("mixtral-8x7b", "hgx-h100@32", "faults", {"ep": 8, "tp": 1}),
        ("deepseek-v3", "hgx-h200@48", "", {"ep": 24, "tp": 1, "redundant": 32}),
    ],
)
def test_losses_are_as_without_what_is_known_of_others(
    model: str, cluster: str, change: str, options: dict[str, int]
) -> None:
    """Each loss, scored by a plan that has seen all others, is what one that has seen none computes."""
    built = resolve_cluster(cluster)
    if change:
        broken = (Fault(gpu="d3.n0.g2", factor=0.5), Fault(link=("d0.n0.g1", "d0.s1"), factor=0.5))
        built = build_cluster(replace(built.spec, faults=broken))
    deployment = Deployment(built, resolve_model(model), Workload(batch=8))
    moe = deployment.model.moe
    assert moe is not None
    loads = loads_of("zipf:0.7", len(deployment.model.moe_layers), moe.experts)
    plan = make_plan(deployment, loads, PlanOptions(time_limit_s=0.0, **options))  # type: ignore[arg-type]
    assert plan.loads is not None
    known = failures._Loss(plan, plan.loads)
    for unit in SPREADS:
        number = deployment.numbered(unit)
        for choice in range(int(number.max()) + 1):
            after, plain = known.of(number == choice), plainly(plan, plan.loads, number == choice)
            assert astuple(after) == pytest.approx(astuple(plain), rel=1e-12, abs=1e-15)


def plainly(plan: Plan, loads: ExpertLoads, lost: Bools) -> failures._After:
    """What is left, all of it computed for this loss alone."""

    def scorer(*given: Any, near: object) -> LayoutScorer:
        return LayoutScorer(*given)

    def use(*given: Any) -> ExpertUse:
        return stage_use(*given[:5])

    with pytest.MonkeyPatch.context() as patch:
        loss = failures._Loss(plan, loads)
        patch.setattr(failures, "LayoutScorer", scorer)
        patch.setattr(failures, "stage_use", use)
        return loss._after(lost)
