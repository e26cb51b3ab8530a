"""What a plan adds to the picture: tags by stage and replica, loads as colour, a key that explains."""

from __future__ import annotations

import pytest

from cost.deployment import Deployment
from cost.loads import read_loads
from cost.resolve import resolve_model
from cost.workload import Workload
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from rackplan.views.overlay import plan_overlay
from topology import resolve_cluster
from topology.draw import dot_source


def plan_of(model: str, cluster: str, stages: int | None = None) -> Plan:
    deployment = Deployment(
        resolve_cluster(cluster), resolve_model(model), Workload(4096, 0, "bf16", "decode")
    )
    moe = deployment.model.moe
    loads = None
    if moe is not None:
        rows = {
            "moe_layers": deployment.model.moe_layers,
            "layers": len(deployment.model.layers),
            "experts": moe.experts,
        }
        loads = read_loads(["lognormal:0.63"], seed=0, **rows)
    return make_plan(deployment, loads, PlanOptions(time_limit_s=0.0, stages=stages))


@pytest.mark.wide
@pytest.mark.parametrize(
    ("model", "cluster", "wanted"), [("llama-3.1-70b", "hgx-h100@16", 1), ("deepseek-v3", "hgx-h100@72", 3)]
)
def test_every_gpu_has_the_tag_of_its_stage(model: str, cluster: str, wanted: int) -> None:
    plan = plan_of(model, cluster, wanted)
    overlay = plan_overlay(plan)
    overlay.check(len(plan.deployment.cluster.gpus))
    several = plan.layout.stages > 1 or len(plan.layout.replicas) > 1
    assert several
    groups = {}
    for r, stages in enumerate(plan.layout.replicas):
        for s, stage in enumerate(stages):
            tags = {overlay.tags[gpu] for gpu in stage.gpus}
            assert len(tags) == 1
            groups[r, s] = tags.pop()
    assert len(set(groups.values())) == len(groups)
    assert len(overlay.key) >= plan.layout.stages - 1
    text = dot_source(plan.deployment.cluster, overlay=overlay)
    assert all(tag in text for tag in groups.values())
