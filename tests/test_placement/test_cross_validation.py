"""Several loads: what counts over them, in-sample and unseen, and Ctrl-C in the middle of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cost.experts.dispatch import DispatchPolicy
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from helpers import few_layers
from placement import planner
from placement.options import PlanOptions
from placement.planner import make_plan
from placement.verify import verify_plan
from topology import resolve_cluster

SETTING = Deployment(resolve_cluster("hgx-h100"), few_layers("mixtral-8x7b", 6), Workload(batch=8))


def loads_of(scenarios: int) -> ExpertLoads:
    tokens = np.random.default_rng(3).lognormal(0, 0.5, (scenarios, 6, 8))
    return ExpertLoads(tokens, tuple(f"load {i}" for i in range(scenarios)), synthetic=False)


def options_of(split: DispatchPolicy = "even") -> PlanOptions:
    return PlanOptions(8, time_limit_s=0.0, ep=8, tp=1, split=split)


@pytest.mark.wide
def test_each_load_in_sample_and_left_out() -> None:
    plan = make_plan(SETTING, loads_of(3), options_of())
    report = plan.scenarios
    assert [row.name for row in report.rows] == ["load 0", "load 1", "load 2"]
    assert report.in_sample == pytest.approx(np.mean(list(plan.balancedness.values())))
    (entry,) = plan.experts
    for row, scenario in zip(report.rows, loads_of(3).normalised, strict=True):
        each = entry.balancedness(scenario)
        assert row.in_sample == pytest.approx(each.mean())
        assert row.worst_layer == pytest.approx(each.min())
        assert row.left_out < row.in_sample
    # what is left out is what a plan made on the others has under it
    others = loads_of(3)
    two = ExpertLoads(others.tokens[1:], others.names[1:], synthetic=False)
    (blind,) = make_plan(SETTING, two, options_of()).experts
    assert report.rows[0].left_out == pytest.approx(blind.balancedness(others.normalised[0]).mean())


@pytest.mark.wide
@pytest.mark.parametrize(("split", "scenarios"), [("even", 1), ("source", 1), ("even", 3), ("lp", 3)])
def test_the_placement_that_chose_the_layout_is_kept(
    split: DispatchPolicy, scenarios: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    honest = make_plan(SETTING, loads_of(scenarios), options_of(split))
    monkeypatch.setattr("placement.experts.solve._Search.several_loads", stop)
    if split != "even":
        monkeypatch.setattr("placement.experts.solve.fit_to_split", stop)
    plan = make_plan(SETTING, loads_of(scenarios), options_of(split))
    assert plan.interrupted == (scenarios > 1 or split != "even")
    assert verify_plan(plan) == []
    assert plan.proof.bound <= plan.proof.objective + 1e-12
    if scenarios == 1:  # the objective is recomputed under the split that will run
        each = [1 / value for value in plan.balancedness.values()]
        assert plan.proof.objective == pytest.approx(np.mean(each))
    # judged as the honest plan is
    assert plan.proof.objective >= honest.proof.bound - 1e-9
    assert plan.score.tok_s_per_gpu == pytest.approx(honest.score.tok_s_per_gpu, rel=0.2)


def test_interrupted_at_the_start_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = planner.place

    def thorough_stops(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("thorough"):
            raise KeyboardInterrupt
        return honest(*args, **kwargs)

    monkeypatch.setattr(planner, "place", thorough_stops)
    plan = make_plan(SETTING, loads_of(1), options_of())
    assert plan.interrupted
    assert verify_plan(plan) == []
