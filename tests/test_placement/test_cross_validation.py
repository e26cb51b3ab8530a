"""Several loads: what counts over them, in-sample and unseen, and Ctrl-C in the middle of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from helpers import few_layers
from placement.options import Objective, PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from topology import resolve_cluster

pytestmark = pytest.mark.wide

SETTING = Deployment(resolve_cluster("hgx-h100"), few_layers("mixtral-8x7b", 6), Workload(batch=8))


@cache
def loads_of(scenarios: int) -> ExpertLoads:
    rng = np.random.default_rng(3)
    common = rng.lognormal(0, 0.5, (6, 8))
    tokens = common * rng.lognormal(0, 0.3, (scenarios, 6, 8))
    return ExpertLoads(tokens, tuple(f"load {i}" for i in range(scenarios)), synthetic=False)


def options_of(objective: Objective = "mean") -> PlanOptions:
    return PlanOptions(8, time_limit_s=0.0, ep=8, tp=1, objective=objective)


@cache
def planned(scenarios: int, objective: Objective = "mean") -> Plan:
    """Nobody changes a plan: tests share it."""
    return make_plan(SETTING, loads_of(scenarios), options_of(objective))


def test_each_load_in_sample_and_left_out() -> None:
    plan = planned(3)
    report = plan.scenarios
    assert report is not None
    assert [row.name for row in report.rows] == ["load 0", "load 1", "load 2"]
    assert report.in_sample == pytest.approx(np.mean(list(plan.balancedness.values())))
    (entry,) = plan.experts
    assert entry is not None
    for row, scenario in zip(report.rows, loads_of(3).normalised, strict=True):
        each = entry.balancedness(scenario)
        assert row.in_sample == pytest.approx(each.mean())
        assert row.worst_layer == pytest.approx(each.min())
        assert row.left_out is not None
        assert row.left_out < row.in_sample
    # what is left out is what a plan made on the others has under it
    others = loads_of(3)
    two = ExpertLoads(others.tokens[1:], others.names[1:], synthetic=False)
    (blind,) = make_plan(SETTING, two, options_of()).experts
    assert blind is not None
    assert report.rows[0].left_out == pytest.approx(blind.balancedness(others.normalised[0]).mean())


def test_the_worst_load_is_better_where_it_counts() -> None:
    mean, worst = planned(3), planned(3, "worst")
    assert mean.scenarios is not None
    assert worst.scenarios is not None

    def largest(plan: Any) -> float:
        """Mean over layers of the worst load's largest over mean GPU load."""
        (entry,) = plan.experts
        each = np.stack([1 / entry.balancedness(scenario) for scenario in loads_of(3).normalised])
        return float(each.max(axis=0).mean())

    assert largest(worst) <= largest(mean) * 1.001  # both searches lower a smooth stand-in of it
    assert worst.proof.objective == pytest.approx(largest(worst))
    assert worst.proof.bound <= worst.proof.objective
