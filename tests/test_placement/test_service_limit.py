"""The limit that a plan was made for goes with it and is held against every later score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from helpers import few_layers
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.plans.reading import plan_of_text
from placement.plans.writing import plan_to_dict, plan_to_json
from placement.scoring import with_loads
from test_placement.builders import reread
from topology import resolve_cluster

MODEL = few_layers("mixtral-8x7b", 3)


def loads(skew: float) -> ExpertLoads:
    return ExpertLoads(np.random.default_rng(0).lognormal(4, skew, (1, 3, 8)), ("s",), synthetic=False)


def planned(asked: PlanOptions, **workload: Any) -> Plan:
    deployment = Deployment(resolve_cluster("hgx-h100"), MODEL, Workload(**({"context": 2048} | workload)))
    return make_plan(deployment, loads(0.1), replace(asked, time_limit_s=0.0))


@pytest.mark.parametrize(
    ("asked", "workload", "limit_s"),
    [
        (PlanOptions(), {}, 0.05),
        (PlanOptions(tpot_s=0.005), {}, 0.005),
        (PlanOptions(tpot_s="none"), {}, None),
        (PlanOptions(goal="latency"), {}, None),
        (PlanOptions(), {"phase": "prefill"}, None),
    ],
)
def test_a_plan_carries_the_limit_it_holds(
    asked: PlanOptions, workload: dict[str, Any], limit_s: float | None
) -> None:
    plan = planned(asked, **workload)
    assert (plan.limit_s, plan.over_limit) == (limit_s, None)
    again = reread(plan)
    assert (again.limit_s, again.over_limit) == (limit_s, None)


@pytest.mark.parametrize("drafts", [{}, {"draft_tokens": 3, "accept_length": 2.5}])
def test_a_slower_step_exceeds_it_by_its_share(drafts: dict[str, Any]) -> None:
    plan = planned(PlanOptions(tpot_s=0.005), **drafts)
    slow = with_loads(plan, loads(2.0))
    assert slow.score.tpot_s > 0.005  # the time per token, not that of the step, which yields several
    assert slow.over_limit == pytest.approx(slow.score.tpot_s / 0.005 - 1)
    assert with_loads(replace(plan, limit_s=None), loads(2.0)).over_limit is None
    peaks = [1 / balance for balance in slow.balancedness.values()]
    assert (
        slow.proof.objective == pytest.approx(np.mean(peaks)) != plan.proof.objective
    )  # under the new loads


@pytest.mark.parametrize("wrong", ["0", "-1", "NaN", '"50"'])
def test_a_file_with_a_limit_that_cannot_be_is_refused(wrong: str) -> None:
    text = plan_to_json(plan_to_dict(planned(PlanOptions())))
    assert '"limit_s": 0.05' in text
    with pytest.raises(Exception, match=r"limit_s|NaN"):
        plan_of_text(text.replace('"limit_s": 0.05', f'"limit_s": {wrong}', 1), "plan.json")
