"""The batch of a plan is the largest that its own placement holds within the time per token."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cost.experts.dispatch import DispatchPolicy
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.step.score import LayoutScorer
from helpers import few_layers
from placement.layouts.fitting import fitted_layouts
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.scoring import placement_scorer
from test_placement.builders import loads_for
from topology import Cluster, build_cluster, resolve_cluster

MODEL = few_layers("qwen3-30b-a3b", 2)
FAST = PlanOptions(time_limit_s=0.0, ep=8, tp=1, stages=1)


def unlike() -> Cluster:
    """Two GPUs of each of two kinds."""
    names = "hgx-h100", "hgx-b200"
    slow, fast = (replace(resolve_cluster(name).spec.domains[0], gpus=2, gpus_per_node=2) for name in names)
    return build_cluster(replace(resolve_cluster("hgx-h100@16").spec, name="unlike", domains=(slow, fast)))


@cache
def loads_of(text: str, seed: int = 0) -> ExpertLoads:
    return loads_for(MODEL, text, seed=seed)


def deployed(cluster: Cluster | None = None, batch: int = 0) -> Deployment:
    return Deployment(cluster or resolve_cluster("hgx-h100"), MODEL, Workload(batch=batch))


@cache
def balanced(cluster: str = "hgx-h100", ep: int = 8) -> LayoutScorer:
    """The layout that is asked for, with its experts balanced."""
    layouts = fitted_layouts(deployed(resolve_cluster(cluster)), None)
    return next(fit.scorer for fit in layouts if replace(FAST, ep=ep).admits(fit.layout))


def check_largest(plan: Plan, limit_s: float) -> None:
    """No larger batch is within the limit, of all there are."""
    scorer, _ = placement_scorer(plan)
    assert plan.score == scorer.at(plan.score.batch)
    near = range(max(1, plan.score.batch - 20), min(scorer.max_batch, plan.score.batch + 20) + 1)
    assert plan.score.batch == max(batch for batch in near if scorer.at(batch).tpot_s <= limit_s)


@pytest.mark.parametrize("loads", ["lognormal:1.2", "zipf:2"])
@pytest.mark.parametrize("batch", [1, 40])
def test_no_larger_batch_is_within_the_time(loads: str, batch: int) -> None:
    limit_s = balanced().at(batch).tpot_s * 1.001
    check_largest(make_plan(deployed(), loads_of(loads), replace(FAST, tpot_s=limit_s)), limit_s)


def test_skewed_loads_leave_experts_unread_and_more_sequences_in_time() -> None:
    """Where tokens are few: balanced experts are at the limit with 4 sequences a GPU."""
    options = replace(FAST, tpot_s=balanced().at(4).tpot_s)
    assert make_plan(deployed(), loads_of("zipf:2"), options).score.batch == 6
    assert make_plan(deployed(batch=4), loads_of("zipf:2"), options).score.batch == 4, "the user's stays"


def test_what_is_placed_for_all_loads_has_its_own_batch() -> None:
    """It is more even over both than the placement for their mean, which chose the layout."""
    tokens = np.concatenate([loads_of("lognormal:0.63", seed).tokens for seed in (0, 1)])
    loads = ExpertLoads(tokens, ("one", "other"), synthetic=False)
    where, limit_s = resolve_cluster("hgx-h100@32"), 1.1 * balanced("hgx-h100@32", 32).at(200).tpot_s
    check_largest(make_plan(deployed(where), loads, replace(FAST, ep=32, tpot_s=limit_s)), limit_s)


@pytest.mark.parametrize("split", ["even", "source"])
def test_of_unlike_gpus_too(split: DispatchPolicy) -> None:
    """How fast they are depends on the batch: what is scored again at the batch is within the time too."""
    options = replace(FAST, ep=4, split=split, tpot_s="none")
    first = make_plan(deployed(unlike(), batch=4), loads_of("zipf:1"), options)
    limit_s = 1.05 * first.score.tpot_s
    plan = make_plan(deployed(unlike()), loads_of("zipf:1"), replace(options, tpot_s=limit_s))
    assert plan.score.batch > 1
    check_largest(plan, limit_s)
