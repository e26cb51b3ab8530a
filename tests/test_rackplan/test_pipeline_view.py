"""The pipeline of a plan over several racks, in the summary and in the picture, by hand-computed figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rackplan.views.pipeline import pipeline_blocks, plan_hops

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.terms.pipeline import BUBBLE, HOPS
from helpers import few_layers
from placement.options import PlanOptions
from placement.plan import OrderProof
from placement.planner import make_plan
from rackplan.report.pictures.overlay import plan_overlay
from rackplan.views.blocks import Text
from topology import resolve_cluster


def test_layers_hops_and_bubble_of_two_racks() -> None:
    model = few_layers("llama-3.1-8b", 6)
    deployment = Deployment(resolve_cluster("gb200-nvl72@144"), model, Workload(batch=10))
    plan = make_plan(deployment, None, PlanOptions(stages=2, tp=1, time_limit_s=0))
    assert len(plan.layout.replicas) == 72
    hops = plan_hops(plan)
    # 10 sequences on each of 2 GPUs, half of them in a micro-batch, BF16 vectors of 4,096; sampled int32 back
    assert [hop.bytes for hop in hops] == [10 * 4096 * 2, 10 * 4]
    assert sum(hop.seconds for hop in hops) == pytest.approx(plan.score.terms_s[HOPS.name])
    words = {block.label: block.text for block in pipeline_blocks(plan) if isinstance(block, Text)}
    assert words["Stages"].startswith("layers 0-")
    assert " on d0 (1 gb200)" in words["Stages"]
    assert "S0 to S1 81.9 kB in " in words["Hops"]
    assert words["Bubble"].startswith(f"{plan.score.terms_s[BUBBLE.name] * 1e3:.2f} ms")
    assert any("; to S1 81.9 kB in " in line for line in plan_overlay(plan).key)
    ordered = replace(plan, order=OrderProof("OPTIMAL", 0.1, 0.09, 0.1, in_turn=0.12))
    lines = [block.text for block in pipeline_blocks(ordered) if isinstance(block, Text)]
    assert lines[1].startswith("100.00 ms per step, OPTIMAL: ")
    assert lines[1].endswith(
        "90.00 ms for all orders and splits of the layers with balanced experts, gap 10.00%"
    )
    assert lines[2] == "in cluster order: 120.00 ms (+20.0%)"
    one = make_plan(deployment, None, PlanOptions(stages=1, tp=1, time_limit_s=0))
    assert pipeline_blocks(one) == []
