"""What a plan's moves cost: bytes and sources as a re-plan counts them, seconds as its links say."""

from __future__ import annotations

import numpy as np
import pytest

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from helpers import few_layers
from placement.migrate.moved import expert_bytes
from placement.migrate.steps import Step, nearest_sources, transfers
from placement.online.links import Links, fetched
from placement.online.policy import Group
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


@pytest.mark.parametrize("name", ["hgx-h200@32", "gb200-nvl72@24"])
def test_sources_and_seconds_are_those_of_a_replan(name):
    cluster, rng, layers, size = resolve_cluster(name), np.random.default_rng(1), 3, 44e6
    gpus = len(cluster.gpus)

    def drawn():
        rows = [
            np.concatenate([rng.permutation(32), rng.integers(0, 32, 2 * gpus - 32)]) for _ in range(layers)
        ]
        return np.stack(rows).astype(np.int32)

    names = [gpu.node for gpu in cluster.gpus]
    node, domain = (
        np.array([names.index(each) for each in names]),
        np.array([gpu.domain for gpu in cluster.gpus]),
    )
    old, new = drawn(), drawn()
    task = Group(np.full(gpus, 2), 32, old, node, domain).task(old)
    found = fetched(task, new, node, domain, np.full(layers, size))
    holders: dict[tuple[int, int], list[int]] = {}
    for layer, gpu, expert in np.argwhere(task.held).tolist():
        holders.setdefault((layer, expert), []).append(gpu)
    come = np.argwhere(task.problem.on_gpus(new) & ~task.held).tolist()
    each = dict.fromkeys(range(layers), size)
    steps = nearest_sources(cluster, [Step(a, b, 0, c, None) for a, b, c in come], holders, each)
    assert found.source.tolist() == [step.source for step in steps]
    assert Links(cluster).seconds([found]) == pytest.approx(transfers(cluster, steps, each).seconds)
