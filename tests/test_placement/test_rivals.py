"""Rivals on the slots of a given placement: the same scores as where a plan is made from scratch."""

from __future__ import annotations

import numpy as np
import pytest

from cost.deployment import Deployment
from cost.loads import ExpertLoads
from cost.workload import Workload
from helpers import few_layers
from placement.options import PlanOptions
from placement.planner import make_plan
from placement.scoring import score_rivals
from topology import resolve_cluster


@pytest.mark.parametrize(("cluster", "redundant"), [("hgx-h100", 8), ("hgx-h100@16", 8), ("hgx-h100", 3)])
def test_they_score_as_in_a_plan(cluster: str, redundant: int) -> None:
    tokens = np.random.default_rng(1).lognormal(4, 0.7, (2, 8, 8))
    deployment = Deployment(resolve_cluster(cluster), few_layers("mixtral-8x7b", 8), Workload(2048, 8))
    options = PlanOptions(redundant, time_limit_s=0.0)
    plan = make_plan(deployment, ExpertLoads(tokens, ("a", "b"), synthetic=False), options)
    assert plan.loads is not None
    rivals = score_rivals(plan.deployment, plan.layout, plan.experts, plan.loads, plan.split)
    assert set(rivals) == set(plan.baselines) == {"linear", "eplb_global", "eplb_hierarchical"}
    for name, entry in rivals.items():
        assert entry.reason == plan.baselines[name].reason
        assert entry.balancedness == pytest.approx(plan.baselines[name].balancedness)
