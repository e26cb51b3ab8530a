"""Whole plans: legal, never behind a baseline, of the largest batch in time, stages in the best order, read back."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from cost.experts.dispatch import DispatchPolicy
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts.candidates import domain_gpus
from cost.step.score import LayoutScorer
from helpers import few_layers
from placement import planner
from placement.layouts import fitting, shapes
from placement.layouts.fitting import fitted_layouts
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.plans.writing import plan_to_dict, plan_to_json, score_to_dict
from placement.scoring import placement_scorer, with_loads
from placement.verify import verify_plan
from test_placement.builders import deployed, joined, loads_for, quick, reread
from topology import Cluster, build_cluster, resolve_cluster
from topology.base.errors import InfeasibleError

MOE_CASES = [
    ("mixtral-8x7b", "hgx-h100"),
    ("gpt-oss-20b", "gb200-nvl72@24"),
    ("deepseek-v3", "hgx-h100@16"),
    ("deepseek-v3", "gb200-nvl72@72"),
]
DENSE_CASES = [("llama-3.1-8b", "hgx-h100"), ("llama-3.1-70b", "hgx-h100@16")]


def fresh_plan(
    model: str, cluster: str, *, batch: int = 0, loads: str = "lognormal:0.63", **asked: Any
) -> Plan:
    deployment = deployed(model, cluster, batch=batch)
    options = PlanOptions(time_limit_s=0.0, **{"tpot_s": "none", **asked})
    return make_plan(deployment, loads_for(deployment.model, loads), options)


SHAPES = {
    "hgx-h100@16": {"ep": 8, "tp": 1, "stages": 2},
    "gb200-nvl72@72": {"ep": 36, "tp": 1, "stages": 1},
}
"""What DeepSeek-V3 is asked to be cut into, so that plans with stages and with replicas are among those below."""


@pytest.mark.parametrize(("model", "cluster"), MOE_CASES + DENSE_CASES)
def test_a_plan(model: str, cluster: str) -> None:
    """Legal at the largest batch, never behind a baseline, its proof that of the arrays, read back the same."""
    plan = fresh_plan(model, cluster, **(SHAPES.get(cluster, {}) if model == "deepseek-v3" else {}))
    check_legal(plan)
    check_reads_back(plan)
    if plan.deployment.model.moe is None:
        assert (plan.loads, plan.baselines, plan_to_dict(plan)["experts"]["layers"]) == (None, {}, {})
    else:
        check_baselines(plan)
        check_proof(plan)


def check_legal(plan: Plan) -> None:
    assert verify_plan(plan) == []
    assert plan.score.batch == plan.deployment.workload.batch == plan.score.max_batch
    assert 0 < plan.score.lower_step_s <= plan.score.step_s
    assert plan.score.hbm_bytes["free"] >= 0
    gpus, used = len(plan.deployment.cluster.gpus), plan.layout.gpus_used
    assert plan.score.tok_s_per_gpu * gpus == pytest.approx(plan.score.tok_s_per_gpu_used * used)
    assert plan.score.tok_s_per_user * plan.score.step_s == pytest.approx(1.0)


def check_baselines(plan: Plan) -> None:
    """Every layer is at least as balanced as under every baseline."""
    assert set(plan.balancedness) == set(plan.deployment.model.moe_layers)
    assert {"linear", "eplb_global", "eplb_hierarchical"} == set(plan.baselines)
    assert plan.baselines["eplb_global"].score is not None
    for name, rival in plan.baselines.items():
        assert (rival.score is None) == bool(rival.reason), name
        for layer, theirs in rival.balancedness.items():
            assert plan.balancedness[layer] >= theirs - 1e-9, f"{name}, layer {layer}"
        if rival.score is not None:
            assert set(rival.balancedness) == set(plan.balancedness)
            assert rival.score.batch == plan.score.batch
            # balance does not see which experts share a GPU, and so how many are read
            assert plan.score.step_s <= rival.score.step_s * (1 + 1e-4)


def check_proof(plan: Plan) -> None:
    """The objective is recomputed here from the arrays, the bound is below it."""
    ratios = []
    for stage, experts in zip(plan.layout.replicas[0], plan.experts, strict=True):
        rows = [row for row, layer in enumerate(plan.deployment.model.moe_layers) if layer in stage.layers]
        if experts is not None:
            per_gpu = experts.gpu_load(plan.loads.mean[rows])
            ratios += (per_gpu.max(axis=1) / per_gpu.mean(axis=1)).tolist()
    assert len(ratios) == len(plan.deployment.model.moe_layers)
    assert plan.proof.objective == pytest.approx(np.mean(ratios))
    assert 1.0 - 1e-9 <= plan.proof.bound <= plan.proof.objective + 1e-9
    assert plan.proof.gap == pytest.approx(max(0.0, 1 - plan.proof.bound / plan.proof.objective))
    if plan.proof.status == "OPTIMAL":
        assert plan.proof.gap == pytest.approx(0.0, abs=1e-9)


def check_reads_back(plan: Plan) -> None:
    again = reread(plan)
    assert (again.differences, again.request, again.origin) == ("", plan.request, "planned")
    assert score_to_dict(again.score, dict(again.balancedness)) == score_to_dict(
        plan.score, dict(plan.balancedness)
    )
    assert again.layout == plan.layout
    assert again.proof == plan.proof
    mine, theirs = (json.loads(plan_to_json(plan_to_dict(kept))) for kept in (again, plan))
    for key in ("stages", "experts", "layout", "inputs"):
        assert mine[key] == theirs[key]


def test_between_balanced_and_real_experts_the_refusal_names_a_time_that_works() -> None:
    """All experts on one of eight GPUs: ideal balance promises what no placement keeps."""
    with pytest.raises(InfeasibleError, match="out of reach") as refusal:
        fresh_plan("mixtral-8x7b", "hgx-h100", batch=64, tpot_s=1e-3)
    balanced_ms = float(str(refusal.value).split("takes ")[1].split(" ms")[0])
    with pytest.raises(InfeasibleError, match="out of reach") as real:
        fresh_plan("mixtral-8x7b", "hgx-h100", batch=64, tpot_s=balanced_ms * 1.01e-3, loads="zipf:3")
    real_ms = float(str(real.value).split("takes ")[1].split(" ms")[0])
    assert real_ms > balanced_ms
    assert "at batch 64" in str(real.value)
    plan = fresh_plan("mixtral-8x7b", "hgx-h100", batch=64, tpot_s=real_ms * 1.01e-3, loads="zipf:3")
    assert plan.score.step_s <= real_ms * 1.01e-3


EIGHT = deployed("mixtral-8x7b", "hgx-h100", 6, batch=8)


def lognormal_loads(scenarios: int) -> ExpertLoads:
    tokens = np.random.default_rng(3).lognormal(0, 0.5, (scenarios, 6, 8))
    return ExpertLoads(tokens, tuple(f"load {i}" for i in range(scenarios)), synthetic=False)


WIDE_EP = PlanOptions(8, time_limit_s=0.0, ep=8, tp=1)


@pytest.mark.wide
def test_each_load_in_sample_and_left_out() -> None:
    plan = make_plan(EIGHT, lognormal_loads(3), WIDE_EP)
    report = plan.scenarios
    assert [row.name for row in report.rows] == ["load 0", "load 1", "load 2"]
    assert report.in_sample == pytest.approx(np.mean(list(plan.balancedness.values())))
    (entry,) = plan.experts
    for row, scenario in zip(report.rows, lognormal_loads(3).normalised, strict=True):
        each = entry.balancedness(scenario)
        assert row.in_sample == pytest.approx(each.mean())
        assert row.worst_layer == pytest.approx(each.min())
        assert row.left_out < row.in_sample
    # what is left out is what a plan made on the others has under it
    others = lognormal_loads(3)
    two = ExpertLoads(others.tokens[1:], others.names[1:], synthetic=False)
    (blind,) = make_plan(EIGHT, two, WIDE_EP).experts
    assert report.rows[0].left_out == pytest.approx(blind.balancedness(others.normalised[0]).mean())


def test_interrupted_at_the_start_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = planner.place

    def thorough_stops(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("thorough"):
            raise KeyboardInterrupt
        return honest(*args, **kwargs)

    monkeypatch.setattr(planner, "place", thorough_stops)
    plan = make_plan(EIGHT, lognormal_loads(1), WIDE_EP)
    assert plan.interrupted
    assert verify_plan(plan) == []


MODEL = few_layers("qwen3-30b-a3b", 2)
FAST = PlanOptions(time_limit_s=0.0, ep=8, tp=1, stages=1)


def unlike() -> Cluster:
    """Two GPUs of each of two kinds."""
    names = "hgx-h100", "hgx-b200"
    slow, fast = (replace(resolve_cluster(name).spec.domains[0], gpus=2, gpus_per_node=2) for name in names)
    return build_cluster(replace(resolve_cluster("hgx-h100@16").spec, name="unlike", domains=(slow, fast)))


def on_cluster(cluster: Cluster | None = None, batch: int = 0) -> Deployment:
    return Deployment(cluster or resolve_cluster("hgx-h100"), MODEL, Workload(batch=batch))


@cache
def balanced() -> LayoutScorer:
    """The layout that is asked for, with its experts balanced."""
    return next(fit.scorer for fit in fitted_layouts(on_cluster(), None) if FAST.admits(fit.layout))


def check_largest(plan: Plan, limit_s: float) -> None:
    """No larger batch is within the limit, of all there are."""
    scorer, _ = placement_scorer(plan)
    assert plan.score == scorer.at(plan.score.batch)
    near = range(max(1, plan.score.batch - 20), min(scorer.max_batch, plan.score.batch + 20) + 1)
    assert plan.score.batch == max(batch for batch in near if scorer.at(batch).tpot_s <= limit_s)


@pytest.mark.parametrize("loads", ["lognormal:1.2", "zipf:2"])
@pytest.mark.parametrize("batch", [1, 40])
def test_no_larger_batch_is_within_the_time(loads: str, batch: int) -> None:
    limit_s = balanced().at(batch).tpot_s * 1.001
    check_largest(make_plan(on_cluster(), loads_for(MODEL, loads), replace(FAST, tpot_s=limit_s)), limit_s)


@pytest.mark.parametrize("split", ["even", "source"])
def test_of_unlike_gpus_too(split: DispatchPolicy) -> None:
    """How fast they are depends on the batch: what is scored again at the batch is within the time too."""
    options = replace(FAST, ep=4, split=split, tpot_s="none")
    first = make_plan(on_cluster(unlike(), batch=4), loads_for(MODEL, "zipf:1"), options)
    limit_s = 1.05 * first.score.tpot_s
    plan = make_plan(on_cluster(unlike()), loads_for(MODEL, "zipf:1"), replace(options, tpot_s=limit_s))
    assert plan.score.batch > 1
    check_largest(plan, limit_s)


def planned(asked: dict[str, Any], **workload: Any) -> Plan:
    return quick(deployed("mixtral-8x7b", "hgx-h100", 3, **workload), "lognormal:0.1", **asked)


@pytest.mark.parametrize("drafts", [{}, {"draft_tokens": 3, "accept_length": 2.5}])
def test_a_slower_step_exceeds_it_by_its_share(drafts: dict[str, Any]) -> None:
    plan = planned({"tpot_s": 0.005}, context=2048, **drafts)
    skewed = loads_for(plan.deployment.model, "zipf:3")
    slow = with_loads(plan, skewed)
    assert slow.score.tpot_s > 0.005  # the time per token, not that of the step, which yields several
    assert slow.over_limit == pytest.approx(slow.score.tpot_s / 0.005 - 1)
    assert with_loads(replace(plan, limit_s=None), skewed).over_limit is None
    peaks = [1 / balance for balance in slow.balancedness.values()]
    assert slow.proof.objective == pytest.approx(np.mean(peaks)) != plan.proof.objective


UNLIKE = joined("gb200-nvl72@4", "hgx-h100")
"""A rack of four and a host of eight that is slower and has less memory."""


def staged() -> Plan:
    return quick(deployed("mixtral-8x7b", UNLIKE, 8, batch=8), "zipf:0.5", time_limit_s=0.5, stages=2, ep=8)


def test_stages_over_unlike_domains_are_in_the_best_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proven and read back; whatever order the candidates came in, the solver's is as good as the best of all."""
    plan = staged()
    assert verify_plan(plan) == []
    assert plan.order.status == "OPTIMAL"
    assert plan.order.bound <= plan.order.objective
    assert plan.order.in_turn is None or plan.order.in_turn >= plan.order.objective
    again = reread(plan)
    assert not again.differences
    assert (again.order, again.layout, again.score.step_s) == (plan.order, plan.layout, plan.score.step_s)
    for order in permutations(domain_gpus(UNLIKE)):
        offered = [shapes.Shape((order,), 1)]
        monkeypatch.setattr(fitting, "shapes_of", lambda *_, offered=offered, **_cut: offered)
        assert staged().score.tok_s_per_gpu == pytest.approx(plan.score.tok_s_per_gpu, rel=1e-3)
