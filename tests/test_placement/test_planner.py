"""Whole plans: legal, never behind a baseline, reproducible, and within what was asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.machine import PEAK
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.layouts import choose, fitting
from placement.layouts.goals import aim_of
from placement.options import TOLERANCE, PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.plans.writing import plan_to_dict, plan_to_json, score_to_dict
from placement.verify import verify_plan
from test_placement.builders import loads_for, reread
from topology import resolve_cluster
from topology.base.errors import InfeasibleError

MOE_CASES = [
    ("mixtral-8x7b", "hgx-h100"),
    ("gpt-oss-20b", "gb200-nvl72@24"),
    ("deepseek-v3", "hgx-h100@16"),
    ("deepseek-v3", "gb200-nvl72@72"),
]
DENSE_CASES = [("llama-3.1-8b", "hgx-h100"), ("llama-3.1-70b", "hgx-h100@16")]


def fresh_plan(
    model: str,
    cluster: str,
    *,
    batch: int = 0,
    context: int = 4096,
    loads: str = "lognormal:0.63",
    tpot_s: float | Literal["none"] | None = "none",
    redundant: int | None = None,
    time_limit_s: float = 0.0,
    ep: int | None = None,
    stages: int | None = None,
) -> Plan:
    deployment = Deployment(
        resolve_cluster(cluster), resolve_model(model), Workload(context=context, batch=batch)
    )
    options = PlanOptions(redundant, tpot_s, time_limit_s, ep=ep, tp=1 if ep else None, stages=stages)
    return make_plan(deployment, loads_for(deployment.model, loads), options)


SHAPES = {"hgx-h100@16": {"ep": 8, "stages": 2}, "gb200-nvl72@72": {"ep": 36, "stages": 1}}
"""What DeepSeek-V3 is asked to be cut into, so that plans with stages and with replicas are among those below."""


def as_text(plan: Plan) -> str:
    return plan_to_json(plan_to_dict(plan))


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
    mine, theirs = json.loads(as_text(again)), json.loads(as_text(plan))
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


WIDE_AND_FAST = """
name: fast-links
domains:
  - {gpu: g, gpus: 16, gpus_per_node: 4, count: 2, structure: switch, links_per_switch: [9, 9], link: 100 GB/s,
     latency: 0.5 us}
fabric: {kind: rail, nic: 400 Gb/s, latency: 2 us}
gpus:
  g: {hbm_bytes: 185 GiB, hbm_bytes_per_s: 8 TB/s, bf16_flop_per_s: 2500 TFLOP/s, fp8_flop_per_s: 5000 TFLOP/s}
"""


@pytest.mark.wide
def test_layouts_are_chosen_by_experts_really_placed(tmp_path: Path) -> None:
    """Few experts on many GPUs are the fastest layout only while they are taken to be balanced."""
    path = tmp_path / "fast-links.yaml"
    path.write_text(WIDE_AND_FAST)
    deployment = Deployment(resolve_cluster(str(path)), resolve_model("mixtral-8x7b"), Workload(), PEAK)
    loads, options = loads_for(deployment.model, "zipf:1"), PlanOptions(time_limit_s=0.0)
    found = choose.candidates(
        deployment, fitting.fitted_layouts(deployment, None), None, aim_of(deployment, "throughput")
    )
    placed = [choose.place(candidate, loads, options) for candidate in found]
    best = max(trial.score.tok_s_per_gpu for trial in placed)
    assert placed[0].score.tok_s_per_gpu < (1 - TOLERANCE) * best  # else this shows nothing
    chosen = choose.choose_layout(deployment, loads, options)
    assert chosen.score.tok_s_per_gpu >= (1 - TOLERANCE) * best


@pytest.mark.wide
def test_experts_are_not_copied_to_fill_a_cluster() -> None:
    """Eight experts on 72 GPUs: groups of a few where they are nearly as good as one with 64 redundant copies."""
    deployment = Deployment(resolve_cluster("gb200-nvl72"), resolve_model("mixtral-8x7b"), Workload())
    chosen = choose.choose_layout(
        deployment, loads_for(deployment.model, "lognormal:0.63"), PlanOptions(time_limit_s=0, tolerance=0.05)
    )
    assert chosen.candidate.slots[0].sum() <= 16
    assert len(chosen.candidate.layout.replicas) > 1
