"""What moves between any two plans, counted against sets of what each GPU holds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from helpers import few_layers
from placement.migrate.moved import moved, why_not_counted
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from topology import build_cluster, resolve_cluster
from topology.base.errors import InputError
from topology.changes.overrides import overrides
from topology.spec import Fault

LAYERS = 4


@cache
def plan_of(cluster: str, seed: int = 0, model: str = "mixtral-8x7b", **asked: int) -> Plan:
    deployment = Deployment(resolve_cluster(cluster), few_layers(model, LAYERS), Workload(2048, 8))
    moe = deployment.model.moe
    loads = None
    if moe is not None:
        tokens = np.random.default_rng(seed).lognormal(4, 0.7, (1, LAYERS, moe.experts))
        loads = ExpertLoads(tokens, ("made",), synthetic=False)
    return make_plan(deployment, loads, PlanOptions(time_limit_s=0.0, **asked))  # type: ignore[arg-type]


def holdings(plan: Plan) -> set[tuple[str, int, int]]:
    """GPU, layer and expert of every copy."""
    moves = set()
    for stages in plan.layout.replicas:
        for stage, part in zip(stages, plan.experts, strict=True):
            assert part is not None
            for row, layer in enumerate(stage.layers):
                for slot, gpu in enumerate(part.slot_gpu):
                    name = plan.deployment.cluster.gpus[stage.gpus[gpu]].id
                    moves.add((name, layer, int(part.slot_expert[row, slot])))
    return moves


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({"seed": 0, "redundant": 8}, {"seed": 1, "redundant": 8}),
        ({"ep": 8}, {"ep": 4}),
        ({"stages": 2}, {"stages": 1}),
        ({"ep": 2, "stages": 2}, {"ep": 8, "stages": 1}),
        ({"redundant": 0, "ep": 8}, {"redundant": 16, "ep": 8}),
    ],
)
def test_moves_are_counted_as_sets_say(before: dict[str, int], after: dict[str, int]) -> None:
    old, new = plan_of("hgx-h100", **before), plan_of("hgx-h100", **after)
    moves = moved(old, new)
    held, wanted = holdings(old), holdings(new)
    assert moves.moves == len(wanted - held)
    assert moves.left == len(held - wanted)
    assert moves.copies == len(wanted)
    for layer, count in moves.of_layer.items():
        assert count == len({copy for copy in wanted - held if copy[1] == layer})
    assert moves.bytes == pytest.approx(sum(moves.transfer.bytes_by_distance.values()))
    assert (moves.transfer.seconds == 0) == (moves.moves == 0)


def test_figures_and_faults_do_not_make_another_machine() -> None:
    plan = plan_of("hgx-h100")
    spec = plan.deployment.cluster.spec
    faster = overrides([build_cluster(spec)], ["gpu.hbm_bytes_per_s=2x"])[0]
    slower = build_cluster(replace(spec, faults=(Fault(gpu="d0.n0.g3", factor=0.5),)))
    for cluster in (faster, slower):
        other = replace(plan, deployment=replace(plan.deployment, cluster=cluster))
        assert moved(plan, other).moves == 0


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"cluster": "hgx-h100@16"}, "the clusters differ: hgx-h100 and hgx-h100@16"),
        ({"cluster": "hgx-h200"}, "the clusters differ: hgx-h100 and hgx-h200"),
        (
            {"cluster": "hgx-h100", "model": "olmoe-1b-7b"},
            "few layers has different experts",
        ),
    ],
)
def test_what_cannot_be_counted_says_why(other: dict[str, str], why: str) -> None:
    plans = plan_of("hgx-h100"), plan_of(**other)
    assert why_not_counted(*plans).startswith(why)
    with pytest.raises(InputError, match=f"cannot be counted: {why}"):
        moved(*plans)
