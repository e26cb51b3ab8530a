"""Clusters side by side: the best of each at each speed, and what a gain is made of."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.serving.lengths import Lengths
from cost.serving.serving import Serving
from helpers import few_layers
from placement.analysis.compare import CompareRow, compare_clusters
from placement.analysis.gains import STEPS, Gain, split_gains
from placement.options import PlanOptions
from placement.planner import make_plan
from test_placement.builders import joined, loads_for
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


# --- what a gain is made of

SPEEDS = (20.0, 120.0)


def deployed(name: str, *settings: str) -> Deployment:
    (cluster,) = overrides([resolve_cluster(name)], settings)
    return Deployment(cluster, MIXTRAL, Workload())


def priced(deployment: Deployment) -> list[float | None]:
    found = Serving.of(deployment, Lengths.of(2048, 256), ttft_s=2.0, speeds=SPEEDS)
    bests = [found.best(1 / speed) for speed in SPEEDS]
    return [None if best is None else best.output_tok_s_per_gpu for best in bests]


def gains(before: Deployment, after: Deployment) -> list[Gain]:
    return split_gains(before, after, SPEEDS, (priced(before), priced(after)), priced)


def test_equal_clusters_gain_nothing_and_nothing_is_priced() -> None:
    one, other = deployed("hgx-h100"), deployed("hgx-h100")
    for gain in split_gains(one, other, SPEEDS, ((5.0, 2.0), (5.0, 2.0)), lambda _: pytest.fail("priced")):
        assert gain.gain == 1
        assert dict(gain.factors) == dict.fromkeys(STEPS, 1.0)


@pytest.mark.parametrize(
    ("setting", "step"),
    [
        ("gpu.hbm_bytes_per_s=2x", "HBM bandwidth"),
        ("gpu.flop_per_s=2x", "flop/s"),
        ("scale-up.link_bytes_per_s=0.01x", "fabric"),
    ],
)
def test_what_changes_alone_shows_up_alone(setting: str, step: str) -> None:
    found = gains(deployed("hgx-h100"), deployed("hgx-h100", setting))
    for gain in found:
        assert {name for name, factor in gain.factors.items() if factor != 1} <= {step}
    assert any(gain.factors[step] not in (1, None) for gain in found)


def test_a_machine_that_reaches_nothing_leaves_its_factor_to_the_next() -> None:
    after = deployed("gb200-nvl72@8")
    rates = iter([2.0, None, 3.0, 4.0, 4.0, 4.0])

    def price(_: Deployment) -> list[float | None]:
        return [next(rates)]

    before = deployed("hgx-h100", "gpu.fp8_flop_per_s=1.5x")
    (gain,) = split_gains(before, after, [20.0], ([1.0], [8.0]), price)
    assert list(gain.factors.values()) == [2.0, None, 1.5, pytest.approx(4 / 3), 1.0, 1.0, 2.0]


def test_no_split_where_one_does_not_reach_the_speed_or_has_several_chips() -> None:
    before, after = deployed("hgx-h100"), deployed("hgx-h200")
    (gain,) = split_gains(before, after, [20.0], ([None], [1.0]), lambda _: pytest.fail("priced"))
    assert (gain.gain, gain.factors) == (None, {})
    assert "hgx-h100 does not reach" in gain.reason
    mixed = replace(after, cluster=joined("hgx-h200", "hgx-h100"))
    (gain,) = split_gains(before, mixed, [20.0], ([1.0], [2.0]), lambda _: pytest.fail("priced"))
    assert (gain.gain, gain.factors) == (2.0, {})
    assert "several kinds" in gain.reason
