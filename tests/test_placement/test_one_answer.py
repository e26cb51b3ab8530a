"""Plan, comparison and sweep say the same of one question: experts used alike, one service level."""

from __future__ import annotations

import pytest

from cost.experts.loads import ExpertLoads, read_loads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import best_at, sweep
from cost.resolve import resolve_model
from placement.analysis.compare import compare_clusters
from placement.layouts.choose import candidates, choose_layout
from placement.layouts.fitting import fitted_layouts
from placement.layouts.goals import aim_of
from placement.layouts.price import faster_splits, promised
from placement.options import PlanOptions
from placement.planner import make_plan
from placement.verify import verify_plan
from topology import resolve_cluster

SAME = 1e-3
"""What plan and sweep may differ by, as a part of tok/s."""


def loads_for(deployment: Deployment) -> ExpertLoads | None:
    moe, model = deployment.model.moe, deployment.model
    if moe is None:
        return None
    return read_loads(
        ["uniform"], moe_layers=model.moe_layers, layers=len(model.layers), experts=moe.experts, seed=0
    )


@pytest.mark.wide
@pytest.mark.parametrize(
    ("model", "cluster"),
    [
        ("mixtral-8x7b", "hgx-h20@16"),
        ("qwen3-30b-a3b", "hgx-h100@16"),
        ("gpt-oss-20b", "mi300x"),
        ("llama-3.1-70b", "hgx-h200@16"),
        ("deepseek-v2-lite", "gb200-nvl72@8"),
    ],
)
def test_plan_comparison_and_sweep_agree_at_a_speed(model: str, cluster: str) -> None:
    deployment = Deployment(resolve_cluster(cluster), resolve_model(model), Workload(3000))
    loads, layouts = loads_for(deployment), fitted_layouts(deployment, None)
    targets = (12.0, 20.0, 50.0)
    found = sweep(deployment, cut_experts=False, speeds=targets)
    options = PlanOptions(time_limit_s=0, tolerance=0.0)
    rows = compare_clusters([deployment], loads, options, targets)
    assert len(rows) == len(targets)
    for target, row in zip(targets, rows, strict=True):
        index = best_at(found, target)
        assert index is not None
        swept = float(found.tok_s_per_gpu[index])
        plan = choose_layout(
            deployment, loads, PlanOptions(time_limit_s=0, tpot_s=1 / target, tolerance=0.0), layouts
        )
        assert plan.score.tok_s_per_gpu == pytest.approx(swept, rel=SAME), found.label(index)
        assert row.tok_s_per_gpu == pytest.approx(swept, rel=SAME)
        assert plan.score.tok_s_per_user >= target * (1 - 1e-12)


def test_without_a_limit_they_agree_too() -> None:
    deployment = Deployment(resolve_cluster("hgx-h200@16"), resolve_model("llama-3.1-70b"), Workload(3000))
    found = sweep(deployment, cut_experts=False)
    plan = choose_layout(deployment, None, PlanOptions(time_limit_s=0, tpot_s="none", tolerance=0.0))
    assert plan.score.tok_s_per_gpu == pytest.approx(float(found.tok_s_per_gpu.max()), rel=SAME)


def test_a_split_for_the_batch_is_a_plan_of_its_own() -> None:
    deployment = Deployment(resolve_cluster("hgx-h20@16"), resolve_model("mixtral-8x7b"), Workload(3000))
    options = PlanOptions(time_limit_s=0, stages=2, ep=8, tp=1, tpot_s=0.08)
    plan = make_plan(deployment, loads_for(deployment), options)
    assert verify_plan(plan) == []
    (only,) = (fit for fit in fitted_layouts(deployment, None) if options.admits(fit.layout))
    widest = [len(stage.layers) for stage in only.layout.replicas[0]]
    assert [len(stage.layers) for stage in plan.layout.replicas[0]] != widest
    assert plan.score.tpot_s <= 0.08


def test_one_stage_has_no_other_split() -> None:
    deployment = Deployment(resolve_cluster("hgx-h100"), resolve_model("mixtral-8x7b"), Workload())
    assert faster_splits(deployment, [], None, None) == []


@pytest.mark.parametrize("tpot_s", [0.02, None])
def test_no_layout_is_better_than_a_sweep_promises(tpot_s: float | None) -> None:
    deployment = Deployment(resolve_cluster("hgx-h100@16"), resolve_model("mixtral-8x7b"), Workload(3000))
    layouts = fitted_layouts(deployment, None)
    promise = promised(deployment, layouts, tpot_s, None)
    found = candidates(deployment, layouts, tpot_s, aim_of(deployment, "throughput"))
    most = {id(fit): each for fit, each in zip(layouts, promise.tolist(), strict=True)}
    assert found
    for one in found:
        assert one.score.tok_s_per_gpu <= most[id(one.fitted)] * (1 + 1e-9)
    assert max(most.values()) < 1.1 * max(one.score.tok_s_per_gpu for one in found)
