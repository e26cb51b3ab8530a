"""Re-plan one pool of a plan of several: the others stay as they are, on what is left of their links."""

from __future__ import annotations

from dataclasses import replace

from cost.experts.loads import ExpertLoads
from placement.budget import Cancel
from placement.migrate.degraded import cluster_without, described_anew
from placement.migrate.replan import Replanned, ReplanOptions, replan_plan
from placement.plan import Plan
from placement.pools import named_pools, one_pool, with_pools
from placement.progress import OnProgress
from placement.scoring import on_cluster, with_loads
from topology.base.errors import InputError, input_name
from topology.cluster import Cluster, ClusterView


def replan_pools(
    plan: Plan,
    loads: ExpertLoads | None,
    options: ReplanOptions,
    *,
    pool: int | None = None,
    cluster: Cluster | None = None,
    on_progress: OnProgress | None = None,
    cancel: Cancel | None = None,
) -> Replanned:
    """Return a plan whose pool number ``pool`` is re-planned (None: the one that lost GPUs, else the first).

    The rest is as :func:`placement.migrate.replan.replan_plan` takes it.

    Raises
    ------
    InputError
        If there is no such pool, or another one lost GPUs; else as of that function.
    InfeasibleError
        As of that function.
    """
    whole, names = plan.deployment.cluster.whole, named_pools(plan)
    now = cluster_without(whole if cluster is None else described_anew(whole, cluster), options.lost)
    left = {gpu.id for gpu in now.gpus}
    hurt = [
        number
        for number, own in enumerate(plan.pools)
        if any(own.deployment.cluster.gpus[gpu].id not in left for gpu in own.layout.gpus_in_use)
    ]
    chosen = (hurt or [0])[0] if pool is None else pool
    alone = one_pool(plan, chosen)
    if others := [names[number] for number in hurt if number != chosen]:
        raise InputError(
            f"GPUs of {' and '.join(others)} are lost too; one pool is re-planned at a time: give what is lost of "
            f"one ({input_name('lost')}), then re-plan the result for the next."
        )
    replanned = replan_plan(alone, loads, options, cluster=cluster, on_progress=on_progress, cancel=cancel)
    if plan.requests is None:
        return replanned
    pools = []
    for number, own in enumerate(plan.pools):
        kept = replace(own, requests=None, beside=())
        if number == chosen:
            kept = replanned.plan
        elif now is not whole:
            ids = [gpu.id for gpu in own.deployment.cluster.gpus]
            kept = on_cluster(kept, ClusterView(now, ids))
        same = loads is not None and own.deployment.model.name == alone.deployment.model.name
        pools.append(with_loads(kept, loads) if same and number != chosen and any(kept.experts) else kept)
    joined = replace(
        with_pools(pools, plan.requests), interrupted=replanned.plan.interrupted, origin="replanned"
    )
    return replace(replanned, plan=joined, pool=replanned.plan if plan.beside else None)
