"""Clusters side by side: the best of each at each speed, reasons where there is none."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cost.experts.loads import read_loads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.analysis.compare import CompareRow, compare_clusters
from placement.options import PlanOptions
from placement.planner import make_plan
from topology import resolve_cluster

FAST = PlanOptions(time_limit_s=0.0)
MIXTRAL = resolve_model("mixtral-8x7b")
LOADS = read_loads(["lognormal:0.63"], moe_layers=MIXTRAL.moe_layers, layers=32, experts=8, seed=0)


def compared(*names: str, targets: tuple[float, ...] = ()) -> list[CompareRow]:
    sides = [Deployment(resolve_cluster(name), MIXTRAL, Workload()) for name in names]
    return compare_clusters(sides, LOADS, FAST, targets)


def test_a_row_is_the_plan_of_that_cluster() -> None:
    rows = compared("hgx-h100", "hgx-h200")
    assert [row.cluster for row in rows] == ["hgx-h100", "hgx-h200"]
    for row in rows:
        # a comparison takes the fastest layout, not the simplest alike
        fastest = replace(FAST, tolerance=0.0)
        plan = make_plan(Deployment(resolve_cluster(row.cluster), MIXTRAL, Workload()), LOADS, fastest)
        assert (row.gpus, row.target_tok_s_per_user, row.reason) == (8, 20.0, "")
        assert (row.step_s, row.batch) == (plan.score.step_s, plan.score.batch)
        assert (row.tok_s_per_gpu, row.tok_s_per_user) == (
            plan.score.tok_s_per_gpu,
            plan.score.tok_s_per_user,
        )
        assert (row.bound_by, row.evidence) == (plan.score.bound_by, plan.score.evidence.label)
        assert row.layout is not None
        assert re.search(rf"\bEP ?{plan.layout.ep}\b", row.layout)
        assert re.search(rf"\bTP ?{plan.layout.tp}\b", row.layout)


def test_a_usual_speed_that_nobody_reaches_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement.analysis.compare.USUAL_TOK_S", 1e6)
    for row in compared("hgx-h100", "hgx-h200"):
        assert row.target_tok_s_per_user is None
        assert row.tok_s_per_gpu is not None
        assert row.reason == ""


def test_targets_are_met_or_said_to_be_out_of_reach() -> None:
    rows = compared("hgx-h100", "hgx-h200", targets=(30.0, 1e6))
    assert [(row.cluster, row.target_tok_s_per_user) for row in rows] == [
        ("hgx-h100", 30.0),
        ("hgx-h100", 1e6),
        ("hgx-h200", 30.0),
        ("hgx-h200", 1e6),
    ]
    for row in rows:
        if row.target_tok_s_per_user == 30.0:
            assert row.tok_s_per_user is not None
            assert row.tok_s_per_user >= 30.0 * (1 - 1e-12)
            assert row.step_s == pytest.approx(1 / row.tok_s_per_user)
            continue
        empty = (row.tok_s_per_user, row.tok_s_per_gpu, row.step_s, row.batch, row.bound_by, row.layout)
        assert empty == (None,) * 6
        assert "out of reach" in row.reason


def test_a_model_that_does_not_fit_one_side_keeps_the_other() -> None:
    deepseek = resolve_model("deepseek-v3")
    sides = [Deployment(resolve_cluster(name), deepseek, Workload()) for name in ("hgx-h100", "hgx-b300")]
    loads = read_loads(["uniform"], moe_layers=deepseek.moe_layers, layers=61, experts=256, seed=0)
    first, second = compare_clusters(sides, loads, FAST)
    assert first.tok_s_per_gpu is None
    assert "HBM capacity binds" in first.reason
    assert second.tok_s_per_gpu is not None
