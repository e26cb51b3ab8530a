"""A plan under load: its replicas as engines, whose steps are priced with experts as they are placed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cost.calibration.first_token import first_token_calibration
from cost.calibration.serving import require_engine
from cost.inputs.workload import Workload
from cost.memory.batches import batch_of
from cost.memory.budget import Ranks
from cost.queueing.pools import Array, EnginePool, EnginePools, engine_pool, joined
from cost.serving.lengths import Lengths
from cost.terms.experts import EXPERTS
from placement.plan import Plan
from placement.scoring import placement_scorer
from topology.base.errors import InputError, input_name


def lengths_of_plan(plan: Plan) -> Lengths | None:
    """Return the lengths of the requests that a plan was made for; None where it is for decode alone.

    Raises
    ------
    InputError
        If it is for prefill alone.
    """
    work = plan.deployment.workload
    if plan.requests is not None:
        isl, osl = plan.requests.isl, plan.requests.osl
        return None if isl is None or osl is None else Lengths.of(isl, osl)
    if work.phase == "both":
        return Lengths.of(round(work.prompt), round(work.answer))
    if work.phase == "prefill":
        raise InputError(
            f"the plan is for prefill only, but requests need both phases: plan with {input_name('isl')} and "
            f"{input_name('osl')}, or give {input_name('model')} and {input_name('cluster')} instead of a plan."
        )
    return None


def first_token_s(plan: Plan) -> float:
    """Return the seconds from the arrival of one prompt at idle engines of a plan for prefill to its first token.

    As a simulation of one pool has it: the step of a single prompt in one attention group, and what a request spends
    outside of steps (:mod:`cost.calibration.first_token`).
    """
    deployment, layout, known = plan.deployment, plan.layout, first_token_calibration()
    scorer, _ = placement_scorer(deployment, layout, plan.experts, plan.loads, plan.split, unlike=plan.unlike)
    alone_s = scorer.step_s(batch_of(1, layout.tp))
    return alone_s + known.seconds(require_engine(deployment.engine), "aggregated")


def pools_of_plan(plan: Plan, lengths: Lengths) -> EnginePools:
    """Return the replicas of a plan for whole requests as engines: one pool, or that which prefills and the other.

    Replicas that differ are as fast as the slowest, and have equally many GPUs. Those of a plan for decode alone
    prefill too.

    Raises
    ------
    InputError
        If it is for prefill alone, or its pools are unlike.
    """
    lengths_of_plan(plan)
    roles = [pool.role for pool in plan.pools]
    if len(roles) > 1 and sorted(roles) != ["decode", "prefill"]:
        raise InputError(
            f"the plan has {len(roles)} pools ({', '.join(roles)}); a simulation is of one pool, or of one that "
            "prefills and one that decodes, each of replicas alike."
        )
    if not plan.beside:
        return joined([_pool(plan, "both", lengths)], plan.deployment, plan.deployment)
    ordered = sorted(plan.pools, key=lambda pool: pool.role, reverse=True)  # prefill first
    whole = plan.deployment.cluster.whole
    prefills, decodes = (replace(pool.deployment, cluster=whole) for pool in ordered)
    return joined([_pool(pool, pool.role, lengths) for pool in ordered], decodes, prefills)


def _pool(plan: Plan, role: str, lengths: Lengths) -> EnginePool:
    deployment, layout = plan.deployment, plan.layout
    scorer, _ = placement_scorer(deployment, layout, plan.experts, plan.loads, plan.split, unlike=plan.unlike)

    def price(work: Workload, batch: Array) -> Array:
        terms = [scorer.terms_s(work, each) for each in batch.tolist()]
        return np.array([[sum(one.values()) for one in terms], [one.get(EXPERTS.name, 0.0) for one in terms]])

    workers = len(layout.replicas)
    gpus = layout.gpus_used // workers
    return engine_pool(
        deployment, price, role, Ranks.of(layout), gpus, workers, cache=scorer.cache, context=lengths.context
    )
