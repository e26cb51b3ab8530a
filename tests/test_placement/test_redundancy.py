"""How many copies: the numbers tried, the curve, the knee, and that the choice is what a plan would score."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.analysis.redundancy import choose_redundant
from placement.budget import Budget
from placement.layouts.choose import choose_layout
from placement.options import PlanOptions
from test_placement.builders import loads_for
from topology import resolve_cluster
from topology.base.errors import InputError

pytestmark = pytest.mark.wide


def setting_of(cluster="hgx-h100", model="gpt-oss-20b", **workload):
    return Deployment(resolve_cluster(cluster), resolve_model(model), Workload(**workload))


@pytest.mark.parametrize("split", ["even", "source"])
def test_points_are_scored_as_a_plan_with_as_many_copies(split):
    deployment = setting_of(context=2048)
    loads = loads_for(deployment.model, "lognormal:1")
    options = PlanOptions(time_limit_s=0, split=split, ep=8, tp=1, stages=1)
    found = choose_redundant(deployment, loads, options, Budget())
    assert found.points[0].redundant == 0
    assert [p.redundant for p in found.points] == sorted(p.redundant for p in found.points)
    best = found.best
    assert all(best.tok_s_per_gpu >= p.tok_s_per_gpu for p in found.points)
    if split == "even":
        again = choose_layout(deployment, loads, found.on_layout(options))
        assert again.score.tok_s_per_gpu == pytest.approx(best.tok_s_per_gpu, rel=1e-9)
        assert again.score.batch == best.batch
    # more slots hold more weights and leave less for the cache
    full = [p for p in found.points if (p.redundant + 32) % 8 == 0]
    for fewer, more in pairwise(full):
        assert more.expert_bytes > fewer.expert_bytes
        assert more.max_batch <= fewer.max_batch


def test_copies_pay_where_loads_are_skewed_and_not_where_they_are_even():
    deployment = setting_of(context=2048)
    options = PlanOptions(time_limit_s=0, ep=8, tp=1, stages=1)
    even = choose_redundant(deployment, loads_for(deployment.model), options)
    skewed = choose_redundant(deployment, loads_for(deployment.model, "zipf:1"), options)
    assert even.best.redundant == 0
    assert skewed.best.redundant > 0
    assert skewed.best.balancedness > skewed.points[0].balancedness


def test_a_model_without_experts_is_refused():
    deployment = setting_of(model="llama-3.1-8b")
    with pytest.raises(InputError, match="no experts to replicate"):
        choose_redundant(deployment, None, PlanOptions(time_limit_s=0))
