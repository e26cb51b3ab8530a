"""What a plan's moves cost: bytes and sources as a re-plan counts them, seconds as its links say."""

from __future__ import annotations

import numpy as np
import pytest

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from helpers import few_layers
from placement.migrate.moved import expert_bytes
from placement.online.setting import plan_setting
from placement.options import PlanOptions
from placement.planner import make_plan
from topology.files.resolve import resolve_cluster

LAYERS = 2


def plan_of(cluster="hgx-h100", **asked):
    loads = ExpertLoads(
        np.random.default_rng(0).lognormal(4, 0.5, (1, LAYERS, 8)), ("drawn",), synthetic=False
    )
    deployment = Deployment(resolve_cluster(cluster), few_layers("mixtral-8x7b", LAYERS), Workload(batch=8))
    return make_plan(deployment, loads, PlanOptions(time_limit_s=0.0, **asked))


def test_a_swap_of_two_experts_by_hand():
    """Two copies travel from GPU to GPU over links of 450 GB/s, both ways at once."""
    plan = plan_of(ep=8, redundant=0)
    setting = plan_setting(plan, 100)
    old = setting.groups[0].start
    new = old.copy()
    new[1, [0, 5]] = old[1, [5, 0]]
    moves = setting.costs.moves([old], [new])
    size = expert_bytes(plan)[1]
    assert size == 3 * 4096 * 14336 * 2
    assert (moves.copies, moves.bytes) == (2, 2 * size)
    assert moves.seconds == pytest.approx(size / 450e9, rel=0.01)
    assert setting.costs.moves([old], [old]).seconds == 0


def test_replicas_move_at_once():
    plan = plan_of(ep=4, redundant=0)
    replicas = len(plan.layout.replicas)
    assert replicas == 2
    setting = plan_setting(plan, 100)
    old = setting.groups[0].start
    new = old.copy()
    new[0, [0, -1]] = old[0, [-1, 0]]
    moves = setting.costs.moves([old], [new])
    assert (moves.copies, setting.copies) == (2 * replicas, old.size * replicas)
    assert moves.seconds == pytest.approx(expert_bytes(plan)[0] / 450e9, rel=0.01)
