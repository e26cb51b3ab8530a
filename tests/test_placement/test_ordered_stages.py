"""Stages over unlike domains in a plan: never slower than in the cluster's order, proven, kept in the file, said."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts.candidates import domain_gpus
from helpers import few_layers
from placement.layouts import fitting, shapes
from placement.migrate.replan import ReplanOptions, replan_plan
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.plans.reading import read_plan
from placement.plans.writing import plan_to_dict
from placement.scoring import on_cluster
from placement.verify import verify_plan
from test_placement.builders import joined, loads_for, reread
from topology import Cluster

MODEL = few_layers("mixtral-8x7b", 8)
UNLIKE = joined("gb200-nvl72@4", "hgx-h100")
"""A rack of four and a host of eight that is slower and has less memory."""


def plan_of(cluster: Cluster, *, batch: int = 8, **options: object) -> Plan:
    deployment = Deployment(cluster, MODEL, Workload(batch=batch))
    loads = loads_for(MODEL, "zipf:0.5", seed=1)
    return make_plan(deployment, loads, PlanOptions(**{"time_limit_s": 0.5, "stages": 2, "ep": 8, **options}))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(UNLIKE)


def test_a_plan_over_unlike_domains_is_legal_and_its_order_proven(plan: Plan) -> None:
    assert verify_plan(plan) == []
    assert plan.order.status == "OPTIMAL"
    assert plan.order.bound <= plan.order.objective
    assert plan.order.in_turn is None or plan.order.in_turn >= plan.order.objective
    again = reread(plan)
    assert not again.differences
    assert again.order == plan.order
    assert [stage.gpus for stage in again.layout.replicas[0]] == [s.gpus for s in plan.layout.replicas[0]]
    assert again.score.step_s == plan.score.step_s


def test_a_worse_order_is_put_right(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever order the candidates came in, the solver's is as good as the best of all."""
    best = plan.score.tok_s_per_gpu
    for order in permutations(domain_gpus(UNLIKE)):
        offered = [shapes.Shape((order,), 1)]
        monkeypatch.setattr(fitting, "shapes_of", lambda *_, offered=offered, **_cut: offered)
        found = plan_of(UNLIKE)
        assert found.score.tok_s_per_gpu == pytest.approx(best, rel=1e-3)


@pytest.mark.wide
def test_another_order_has_the_largest_batch_within_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_s = 3 * plan_of(UNLIKE, batch=4).score.tpot_s
    for order in permutations(domain_gpus(UNLIKE)):
        offered = [shapes.Shape((order,), 1)]
        monkeypatch.setattr(fitting, "shapes_of", lambda *_, offered=offered, **_cut: offered)
        found = plan_of(UNLIKE, batch=0, tpot_s=limit_s)
        longer = plan_of(UNLIKE, batch=found.score.batch + 1)
        assert found.score.tpot_s <= limit_s < longer.score.tpot_s


def test_a_plan_without_the_key_is_read(plan: Plan, tmp_path: Path) -> None:
    data = plan_to_dict(plan)
    del data["order"]
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert read_plan(tmp_path / "plan.json").order is None


@pytest.mark.wide
def test_what_was_proven_of_another_machine_is_dropped(plan: Plan) -> None:
    assert on_cluster(plan, plan.deployment.cluster).order is None
    lost = plan.layout.replicas[0][0].gpus[0]
    changed = replan_plan(
        plan, None, ReplanOptions(lost=(plan.deployment.cluster.gpus[lost].id,), time_limit_s=0.0)
    )
    assert changed.plan.order is None
    kept = replan_plan(plan, plan.loads, ReplanOptions(max_moves=0, time_limit_s=0.0))
    assert kept.plan.order == plan.order
