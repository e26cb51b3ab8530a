"""What the summary says of failures."""

from __future__ import annotations

from cost.deployment import Deployment
from cost.loads import read_loads
from cost.resolve import resolve_model
from cost.workload import Workload
from placement.options import PlanOptions
from placement.planner import make_plan
from rackplan.views.findings import at_risk_words
from topology import resolve_cluster


def test_one_expert_is_said_in_the_singular() -> None:
    model = resolve_model("mixtral-8x7b")
    deployment = Deployment(resolve_cluster("hgx-h100"), model, Workload(4096, 8, "bf16", "decode"))
    loads = read_loads(["zipf:0.9"], seed=0, moe_layers=model.moe_layers, layers=32, experts=8)
    plan = make_plan(deployment, loads, PlanOptions(time_limit_s=0.0, ep=8, stages=1, redundant=0))
    assert plan.failures is not None
    assert "(1 expert, " in at_risk_words(plan.failures)
