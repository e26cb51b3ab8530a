"""Levers of a plan: each is the score of what changed, none that only adds hurts, and what cannot be says why."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from helpers import few_layers
from placement.analysis import levers as table
from placement.analysis.lever import Lever, Reached, ServiceLevel
from placement.analysis.levers import Levers, find_levers
from placement.layouts.price import first_tokens
from placement.options import Goal, PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.scoring import score_placement
from test_placement.builders import loads_for
from topology import resolve_cluster
from topology.changes.overrides import overrides


@cache
def plan(
    cluster: str = "hgx-h100@16",
    model: str = "mixtral-8x7b",
    batch: int = 0,
    tpot_s: float | Literal["none"] | None = 0.005,
    goal: Goal = "throughput",
    ttft_s: float | None = None,
) -> Plan:
    """A plan of a model of three layers."""
    cut = few_layers(model, 3)
    deployment = Deployment(resolve_cluster(cluster), cut, Workload(context=2048, batch=batch))
    asked = PlanOptions(tpot_s=tpot_s, time_limit_s=0.0, tolerance=0.0, goal=goal, ttft_s=ttft_s)
    return make_plan(deployment, loads_for(cut, "lognormal:0.63"), asked)


@cache
def levers(*asked: object) -> Levers:
    return find_levers(plan(*asked))  # type: ignore[arg-type]


def row(found: Levers, name: str, change: str) -> Lever:
    return next(one for one in found.rows if (one.name, one.change) == (name, change))


def reached(found: Reached | str | None) -> Reached:
    assert isinstance(found, Reached), found
    return found


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "part", "figure"),
    [
        ("HBM bandwidth", "gpu", "hbm_bytes_per_s"),
        ("flop/s", "gpu", "flop_per_s"),
        ("scale-up bandwidth", "scale-up", "link_bytes_per_s"),
        ("scale-out bandwidth", "scale-out", "link_bytes_per_s"),
    ],
)
def test_with_the_batch_kept_a_lever_is_the_plan_scored_on_what_changed(
    name: str, part: str, figure: str
) -> None:
    before = plan()
    for change, factor in (("+10%", 1.1), ("x2", 2.0)):
        cluster = overrides([before.deployment.cluster], [f"{part}.{figure}={factor!r}x"])[0]
        deployment = replace(before.deployment, cluster=cluster)
        score, _ = score_placement(deployment, before.layout, before.experts, before.loads, before.split)
        found = reached(row(levers(), name, change).batch_kept)
        assert (found.step_s, found.tok_s_per_gpu) == (score.step_s, score.tok_s_per_gpu)
        assert found.gain == pytest.approx(score.tok_s_per_gpu / before.score.tok_s_per_gpu - 1)


@pytest.mark.wide
@pytest.mark.parametrize("asked", [(), ("hgx-h100", "mixtral-8x7b", 7, None)])
def test_what_only_adds_never_hurts_and_a_free_layout_is_never_behind_one_that_is_kept(
    asked: tuple[object, ...],
) -> None:
    found = levers(*asked)
    assert reached(found.unchanged.layout_kept).gain >= 0
    for one in found.rows:
        if one.kind == "hardware" and isinstance(one.layout_kept, Reached):
            assert reached(one.batch_kept).gain >= -1e-12
            assert one.layout_kept.gain >= reached(one.batch_kept).gain - 1e-12
            assert reached(one.layout_free).gain >= reached(found.unchanged.layout_free).gain - 1e-12
        if isinstance(one.layout_kept, Reached):
            assert reached(one.layout_free).gain >= one.layout_kept.gain
    gains = [one.gain for one in found.rows]
    assert gains == sorted(gains, reverse=True)


@pytest.mark.wide
def test_the_service_level_is_what_was_asked_for_or_the_plans_own() -> None:
    assert ServiceLevel.of(plan()) == ServiceLevel(0.005, asked=True)
    own = plan("hgx-h100", "mixtral-8x7b", 7, None)
    assert ServiceLevel.of(own) == ServiceLevel(own.score.tpot_s, asked=False)
    largest = plan("hgx-h100", "mixtral-8x7b", 0, "none")
    assert ServiceLevel.of(largest) == ServiceLevel(None, asked=False)
    usual = plan("hgx-h100", "mixtral-8x7b", 0, None)
    assert ServiceLevel.of(usual) == ServiceLevel(0.05, asked=True)
    given = plan("hgx-h100", "mixtral-8x7b", 7, 0.005)
    assert ServiceLevel.of(given) == ServiceLevel(given.score.tpot_s, asked=False)


@pytest.mark.wide
def test_a_time_to_the_first_token_holds_under_every_change() -> None:
    asked = "hgx-h100", "mixtral-8x7b", 7, None
    fastest_s = min(first_tokens(plan(*asked).deployment, None).values())
    found = levers(*asked, "throughput", 1.1 * fastest_s)
    longer = row(found, "context", "x2")
    assert isinstance(longer.batch_kept, str)
    assert "the first token after" in longer.batch_kept
    faster = reached(row(found, "flop/s", "x2").layout_free)
    assert faster.gain >= reached(found.unchanged.layout_free).gain


@pytest.mark.parametrize(
    ("cluster", "narrower"), [("hgx-b200", "nvfp4"), ("mi355x", "mxfp4"), ("hgx-h100", "mxfp4")]
)
def test_narrower_weights_are_in_the_format_that_the_chip_multiplies(cluster: str, narrower: str) -> None:
    """An H100 multiplies no FP4, so it reads the open format."""
    deployment = Deployment(resolve_cluster(cluster), resolve_model("deepseek-v3"), Workload())
    bench: Any = SimpleNamespace(plan=SimpleNamespace(deployment=deployment), row=lambda *row: row)
    rows: Any = (*table.weights(bench), *table.cache(bench))
    found = {(name, change): to for name, _, change, to, _ in rows}
    assert found == {
        ("weights", "narrower"): f"{narrower} from fp8",
        ("weights", "wider"): "bf16 from fp8",
        ("KV cache", "narrower"): "fp8 from bf16",
    }
