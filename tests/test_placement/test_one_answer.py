"""Plan, comparison and sweep say the same of one question: experts used alike, one service level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import best_at, sweep
from cost.resolve import resolve_model
from placement.analysis.compare import compare_clusters
from placement.layouts.choose import choose_layout
from placement.layouts.fitting import fitted_layouts
from placement.options import PlanOptions
from placement.planner import make_plan
from placement.verify import verify_plan
from test_placement.builders import deployed, loads_for, quick, reread
from topology import resolve_cluster
from topology.base.errors import InfeasibleError, InputError

SAME = 1e-3
"""What plan and sweep may differ by, as a part of tok/s."""


@pytest.mark.wide
@pytest.mark.parametrize(
    ("model", "cluster"),
    [
        ("mixtral-8x7b", "hgx-h20@16"),
        ("qwen3-30b-a3b", "hgx-h100@16"),
        ("gpt-oss-20b", "mi300x"),
        ("llama-3.1-70b", "hgx-h200@16"),
    ],
)
def test_plan_comparison_and_sweep_agree_at_a_speed(model: str, cluster: str) -> None:
    deployment = deployed(model, cluster, context=3000)
    loads, layouts = loads_for(deployment.model), fitted_layouts(deployment, None)
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


CLUSTERS = ("hgx-h100", "hgx-h100@16", "hgx-h100@1", "hgx-a100-40gb", "l40s@4", "hgx-b200", "gb200-nvl72@8")
MODELS = ("llama-3.1-70b", "llama-3.1-405b", "qwen3-235b-a22b", "gpt-oss-120b", "mixtral-8x7b", "deepseek-v3")


@given(
    st.sampled_from(MODELS),
    st.sampled_from(CLUSTERS),
    st.sampled_from([None, "fp8", "nvfp4"]),
    st.sampled_from([1024, 32_768, 131_072, 524_288]),
    st.sampled_from(["decode", "prefill"]),
)
@settings(deadline=None, max_examples=10)
def test_plan_and_sweep_agree_on_what_fits(
    model: str, cluster: str, weights: str | None, context: int, phase: str
) -> None:
    """One sequence a tensor-parallel group is the least there is, for both."""
    where = resolve_cluster(cluster)
    deployment = Deployment(where, resolve_model(model, weights=weights), Workload(context, phase=phase))
    found = sweep(deployment)
    level = {} if phase == "prefill" else {"tpot_s": "none"}
    options = PlanOptions(time_limit_s=0, tolerance=0.0, **level)  # type: ignore[arg-type]
    if not len(found):
        with pytest.raises(InfeasibleError, match="HBM capacity binds"):
            choose_layout(deployment, loads_for(deployment.model), options)
        return
    plan = choose_layout(deployment, loads_for(deployment.model), options)
    assert plan.score.tok_s_per_gpu == pytest.approx(float(found.tok_s_per_gpu.max()), rel=0.06)


@pytest.mark.usefixtures("nine_tenths")
def test_a_group_holds_fewer_sequences_than_it_has_gpus() -> None:
    """TensorRT-LLM#3577: over 300,000 tokens."""
    model = resolve_model("llama-3.1-405b", weights="fp8")
    deployment = Deployment(resolve_cluster("hgx-h100"), model, Workload(131_072))
    plan = make_plan(deployment, None, PlanOptions(time_limit_s=0, tpot_s="none"))
    assert (plan.layout.tp, plan.score.batch) == (8, 3 / 8)
    assert verify_plan(plan) == []


@pytest.mark.parametrize(
    ("model", "cluster", "widths"),
    [("gpt-oss-20b", "hgx-h200@4", (1, 4, 4)), ("llama-3.1-405b", "hgx-h100@16", (16, 1, 16))],
)
def test_what_tensor_parallelism_cuts_has_the_price_of_the_sweep(
    model: str, cluster: str, widths: tuple[int, int, int]
) -> None:
    """With expert parallelism off, the default of engines, experts too: nothing to place. And over two nodes."""
    deployment, (ep, moe_tp, tp) = deployed(model, cluster), widths
    plan = quick(deployment, ep=ep if moe_tp > 1 else None, tp=tp, stages=1, tpot_s="none")
    assert (plan.layout.ep, plan.layout.moe_tp, plan.layout.tp) == widths
    assert plan.experts == (None,)
    assert verify_plan(plan) == []
    found = sweep(deployment)
    rows = np.flatnonzero((found.moe_tp == moe_tp) & (found.tp == tp) & (found.stages == 1))
    assert plan.score.tok_s_per_gpu == pytest.approx(float(found.tok_s_per_gpu[rows].max()), rel=SAME)
    assert plan.score.max_batch == found.max_batch[rows[0]]
    again = reread(plan)
    assert again.layout == plan.layout
    assert again.score.step_s == plan.score.step_s
    with pytest.raises(InputError, match=r"cuts each into 4 parts|has no routed experts"):
        plan.require_experts()
