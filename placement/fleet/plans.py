"""A plan of each kind of replica: its experts placed, on a cluster that is the GPUs of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from placement.budget import Budget
from placement.fleet.fleet import Fleet, Pool
from placement.fleet.options import DECODE, PREFILL
from placement.layouts.fitting import Fitting, batch_that_fits, fitted, stage_slots
from placement.layouts.shapes import Shape
from placement.options import NO_LIMIT, PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.progress import Say, silent
from topology.base.errors import InfeasibleError
from topology.cluster import ClusterView

_EVEN = 0.9
"""Balancedness of the worst layer below which a copy more on each GPU is tried."""


@dataclass(frozen=True, eq=False)
class PoolPlan:
    """The plan of a pool's first replica; None where none can be, with the reason."""

    plan: Plan | None
    reason: str = ""


def plan_pools(
    fleet: Fleet,
    loads: Mapping[int, ExpertLoads | None],
    options: PlanOptions,
    *,
    on_stage: Say | None = None,
) -> tuple[list[PoolPlan], bool]:
    """Return :func:`plan_pool` of each pool, and whether Ctrl-C came: those that are left have no plan then."""
    say, budget = on_stage or silent, Budget()
    plans = []
    with budget.keeping():
        for number, pool in enumerate(fleet.pools):
            if budget.interrupted:
                plans.append(PoolPlan(None, "not planned: interrupted"))
                continue
            say(f"planning replica {number + 1} of {len(fleet.pools)}")
            plans.append(plan_pool(fleet, pool, loads, options))
    return plans, budget.interrupted


def plan_pool(
    fleet: Fleet, pool: Pool, loads: Mapping[int, ExpertLoads | None], options: PlanOptions
) -> PoolPlan:
    """Return the plan of the first replica of ``pool``: its layout and batch, its experts placed under ``loads``.

    Where experts as placed would miss the time per token, the plan has the largest batch that keeps it. A batch below
    one sequence per GPU (one for a tensor-parallel group) is planned as one per GPU.
    """
    deployment = fleet.traffic.deployments[pool.model][pool.role == PREFILL]
    if deployment is None:
        raise ValueError(f"no deployment for {pool.role}")
    stages = pool.replicas[0].stages
    members = [gpu for stage in stages for gpu in stage]
    cluster = ClusterView(fleet.cluster, [fleet.cluster.gpus[gpu].id for gpu in members])
    number = {gpu: index for index, gpu in enumerate(sorted(members))}
    groups = tuple(tuple(number[gpu] for gpu in stage) for stage in stages)
    shape = Shape((groups,), pool.column.tp)
    batch = max(1, int(pool.column.batch))
    here = replace(deployment, cluster=cluster, workload=deployment.workload.with_batch(batch))
    asked = fleet.traffic.redundant
    made = _planned(here, shape, fleet, pool, loads[pool.model], replace(options, redundant=asked))
    moe = here.model.moe
    balancedness = {} if made.plan is None else made.plan.balancedness
    if asked is None and moe and made.plan and min(balancedness.values(), default=1.0) < _EVEN:
        # one copy more on each GPU evens out what the fewest that divide cannot
        group = max(shape.replicas[0], key=len)
        more = (-(-moe.experts // len(group)) + 1) * len(group) - moe.experts
        other = _planned(here, shape, fleet, pool, loads[pool.model], replace(options, redundant=more))
        if other.plan is not None and other.plan.score.tok_s_per_gpu > made.plan.score.tok_s_per_gpu:
            return other
    return made


def _planned(
    deployment: Deployment,
    shape: Shape,
    fleet: Fleet,
    pool: Pool,
    loads: ExpertLoads | None,
    options: PlanOptions,
) -> PoolPlan:
    """Return the plan with so many redundant copies."""
    slots = stage_slots(deployment, shape, options.copies)
    if slots is None:
        return PoolPlan(None, "no slots for the experts on these GPUs")
    most = batch_that_fits(deployment, shape, slots)
    if most < 1:
        return PoolPlan(None, "HBM does not hold one sequence per GPU")
    deployment = deployment.with_batch(min(deployment.workload.batch, most))
    found = fitted(deployment, Fitting(shape, slots, most))
    if found is None:
        return PoolPlan(None, "HBM does not hold the batch with the layers in whole kibibytes")
    limit_s = (fleet.traffic.tpot_s if pool.role == DECODE else None) or NO_LIMIT
    stages = found.layout.stages
    asked = replace(options, tpot_s=limit_s, tp=shape.tp, stages=stages, ep=found.layout.ep)
    try:
        return PoolPlan(make_plan(deployment, loads, asked, layouts=[replace(found, fixed=False)]))
    except InfeasibleError as error:
        return PoolPlan(None, str(error))
