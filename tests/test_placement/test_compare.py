"""Clusters side by side: the best of each at each speed, and what a gain is made of."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.serving.lengths import Lengths
from cost.serving.serving import Serving
from helpers import few_layers
from placement.analysis.compare import CompareRow, compare_clusters
from placement.analysis.gains import split_gains
from placement.analysis.lever import Reached
from placement.analysis.levers import Levers, find_levers
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from test_placement.builders import deployed, loads_for, quick
from topology import resolve_cluster
from topology.changes.overrides import overrides

FAST = PlanOptions(time_limit_s=0.0)
MIXTRAL = few_layers("mixtral-8x7b", 8)
LOADS = loads_for(MIXTRAL, "lognormal:0.63")


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
        for name in ("step_s", "batch", "tok_s_per_gpu", "tok_s_per_user", "bound_by"):
            assert getattr(row, name) == getattr(plan.score, name)
        assert row.evidence == plan.score.evidence.label
        assert row.layout is not None
        assert re.search(rf"\bEP ?{plan.layout.ep}\b", row.layout)
        assert re.search(rf"\bTP ?{plan.layout.tp}\b", row.layout)


def test_targets_are_met_or_said_to_be_out_of_reach() -> None:
    rows = compared("hgx-h100", "hgx-h200", targets=(30.0, 1e6))
    asked = [(row.cluster, row.target_tok_s_per_user) for row in rows]
    assert asked == [*product(("hgx-h100", "hgx-h200"), (30.0, 1e6))]
    for row in rows:
        if row.target_tok_s_per_user == 30.0:
            assert row.tok_s_per_user >= 30.0 * (1 - 1e-12)
            assert row.step_s == pytest.approx(1 / row.tok_s_per_user)
            continue
        empty = (row.tok_s_per_user, row.tok_s_per_gpu, row.step_s, row.batch, row.bound_by, row.layout)
        assert empty == (None,) * 6
        assert "out of reach" in row.reason


def test_a_model_that_does_not_fit_one_side_keeps_the_other() -> None:
    deepseek = resolve_model("deepseek-v3")
    sides = [Deployment(resolve_cluster(name), deepseek, Workload()) for name in ("hgx-h100", "hgx-b300")]
    first, second = compare_clusters(sides, loads_for(deepseek), FAST)
    assert first.tok_s_per_gpu is None
    assert "HBM capacity binds" in first.reason
    assert second.tok_s_per_gpu is not None


SPEEDS = (20.0, 120.0)


def on_cluster(name: str, *settings: str) -> Deployment:
    (cluster,) = overrides([resolve_cluster(name)], settings)
    return Deployment(cluster, MIXTRAL, Workload())


def priced(deployment: Deployment) -> list[float | None]:
    serving = Serving.of(deployment, Lengths.of(2048, 256), ttft_s=2.0, speeds=SPEEDS)
    bests = [serving.best(1 / speed) for speed in SPEEDS]
    return [None if best is None else best.output_tok_s_per_gpu for best in bests]


@pytest.mark.parametrize(
    ("setting", "step"),
    [
        ("gpu.hbm_bytes_per_s=2x", "HBM bandwidth"),
        ("gpu.flop_per_s=2x", "flop/s"),
        ("scale-up.link_bytes_per_s=0.01x", "fabric"),
    ],
)
def test_what_changes_alone_shows_up_alone(setting: str, step: str) -> None:
    before, after = on_cluster("hgx-h100"), on_cluster("hgx-h100", setting)
    gains = split_gains(before, after, SPEEDS, (priced(before), priced(after)), priced)
    for gain in gains:
        assert {name for name, factor in gain.factors.items() if factor != 1} <= {step}
    assert any(gain.factors[step] not in (1, None) for gain in gains)


@cache
def levers_of_a_plan() -> tuple[Plan, Levers]:
    """A plan of a model of three layers, and its levers."""
    deployment = deployed("mixtral-8x7b", "hgx-h100@16", 3, context=2048)
    plan = quick(deployment, "lognormal:0.63", tpot_s=0.005, tolerance=0.0)
    return plan, find_levers(plan)


@pytest.mark.wide
def test_what_only_adds_never_hurts_and_a_free_layout_is_never_behind_one_that_is_kept() -> None:
    _, levels = levers_of_a_plan()
    assert levels.unchanged.layout_kept.gain >= 0
    for row in levels.rows:
        if isinstance(row.layout_kept, Reached):
            assert row.layout_free.gain >= row.layout_kept.gain
            if row.kind == "hardware":
                assert row.layout_kept.gain + 1e-12 >= row.batch_kept.gain >= -1e-12
                assert row.layout_free.gain >= levels.unchanged.layout_free.gain - 1e-12
    gains = [row.gain for row in levels.rows]
    assert gains == sorted(gains, reverse=True)
