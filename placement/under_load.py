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
    alone_s = placement_scorer(plan)[0].step_s(batch_of(1, plan.layout.group_gpus))
    return alone_s + first_token_calibration().seconds(require_engine(plan.deployment.engine), "aggregated")


def pools_of_plan(plan: Plan, lengths: Lengths) -> EnginePools:
    """Return the replicas of a plan for whole requests as engines, the pools that prefill first.

    Replicas of a pool that differ are as fast as the slowest, and have equally many GPUs. Those of a plan for decode
    alone prefill too. A pool gets requests by what it can serve.

    Raises
    ------
    InputError
        If it is for prefill alone, or serves several models.
    """
    lengths_of_plan(plan)
    models = dict.fromkeys(pool.deployment.model.name for pool in plan.pools)
    if len(models) > 1:
        raise InputError(f"the plan serves {' and '.join(models)}; a simulation is of one model.")
    requests, apart = plan.requests, any(pool.role == "prefill" for pool in plan.pools)
    sides = [(pool, pool.role if apart else "both", 1.0, 1.0) for pool in plan.pools]
    if requests is not None:
        sides = [
            # what prefills holds its part of a step's prompts, the rest what Little's law says
            (pool, role, part, part * served.step_s if role == "prefill" else served.batch * served.gpus)
            for (pool, role, *_), part, served in zip(sides, requests.parts, requests.pools, strict=True)
        ]
    sides.sort(key=lambda side: ("prefill", "both", "decode").index(side[1]))
    cluster = plan.deployment.cluster.whole if plan.beside else plan.deployment.cluster
    prefilling, decoding = (replace(sides[at][0].deployment, cluster=cluster) for at in (0, -1))
    return joined(
        [replace(_pool(pool, role, lengths), share=part, held=held) for pool, role, part, held in sides],
        decoding,
        prefilling,
    )


def _pool(plan: Plan, role: str, lengths: Lengths) -> EnginePool:
    deployment, layout = plan.deployment, plan.layout
    if layout.apart is not None:
        raise InputError(f"attention apart is not simulated; plan with {input_name('afd')} off.")
    scorer, _ = placement_scorer(plan)

    def price(work: Workload, batch: Array) -> Array:
        terms = [scorer.terms_s(work, size) for size in batch.tolist()]
        return np.array([[sum(row.values()) for row in terms], [row.get(EXPERTS.name, 0.0) for row in terms]])

    workers = len(layout.replicas)
    gpus = layout.gpus_used // workers
    return engine_pool(
        deployment, price, role, Ranks.of(layout), gpus, workers, cache=scorer.cache, context=lengths.context
    )
