"""What is answered: one function a question, asked by all faces with the same request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from rackplan import inputs
from rackplan.requests import (
    NO_LIMIT,
    CompareRequest,
    DeploymentRequest,
    FleetRequest,
    PlanRequest,
    ReplanRequest,
    ReplayRequest,
    ScoreRequest,
    SizeRequest,
    SweepRequest,
    WhatIfRequest,
    seconds,
)
from topology.base.errors import InfeasibleError, InputError, input_name

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from cost.layouts import Sweep
    from cost.serving.sizing import Size
    from placement.analysis.levers import Levers
    from placement.fleet.fleet import Fleet
    from placement.fleet.options import Traffic
    from placement.migrate.replan import Replanned, ReplanOptions
    from placement.options import PlanOptions
    from placement.plan import Plan
    from rackplan.views.compare import Comparison
    from rackplan.views.pools import Pools
    from rackplan.views.replay import Replayed
    from topology.cluster import Cluster


def deployment(request: DeploymentRequest | SweepRequest | SizeRequest) -> Deployment:
    """Return what is priced: a model on a cluster under a workload.

    Raises
    ------
    InputError
        If a name means nothing, or figures cannot be used together.
    """
    where = inputs.clusters_of([request.cluster], request.settings)[0]
    return inputs.deployment_of(request, request.model, where)


def plan_options(request: PlanRequest) -> PlanOptions:
    """Return what is asked of the planner."""
    from placement.options import PlanOptions

    ttft_s = seconds(request.ttft_ms)
    return PlanOptions(
        redundant=request.redundant,
        tpot_s=request.tpot_s,
        time_limit_s=request.time_limit_s,
        seed=request.seed,
        ep=request.ep,
        tp=request.tp,
        stages=request.stages,
        tolerance=request.tolerance,
        spread=request.spread,
        objective=request.objective,
        split=request.split,
        goal=request.goal,
        ttft_s=None if isinstance(ttft_s, str) else ttft_s,
    )


def plan(request: PlanRequest) -> Plan:
    """Return a plan: what goes where, how close to the best possible that is, and what a step costs.

    >>> import rackplan
    >>> rackplan.plan("deepseek-v3", "gb200-nvl72", time_limit_s=0).layout.ep
    72

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If no layout fits: which limit binds, and what would fit.
    CancelledError
        If ``cancel`` says so before there is a plan.
    """
    from placement.planner import make_plan
    from placement.progress import ProgressReporter

    wanted = plan_options(request)
    priced = deployment(request)
    loads = inputs.loads_of(priced.model, request.loads, request.routing, seed=request.seed)
    told = ProgressReporter(request.on_progress)
    return make_plan(
        priced, loads, wanted, on_progress=told.layers, on_stage=told.stage, cancel=request.cancel
    )


def score(request: ScoreRequest) -> Plan:
    """Return a plan scored again from its assignment alone, under its loads or others.

    Raises
    ------
    InputError
        If the plan cannot be read, or the loads do not fit its model.
    """
    from placement.scoring import under_sparse_attention, with_loads

    scored = inputs.priced(request, inputs.plan_of(request.plan, request.settings))
    if request.sparse_attention:
        scored = under_sparse_attention(scored, str(request.sparse_attention))
    if request.loads is None and not request.routing:
        return with_loads(scored, scored.loads) if scored.loads is not None else scored
    model, seed = scored.deployment.model, scored.request.seed
    loads = inputs.loads_of(model, request.loads, request.routing, seed=seed)
    return scored if loads is None else with_loads(scored, loads)


def replan_options(request: ReplanRequest) -> ReplanOptions:
    """Return what is asked of the re-plan."""
    from placement.migrate.replan import ReplanOptions

    return ReplanOptions(
        lost=tuple(request.lost),
        max_moves=request.max_moves,
        max_bytes=request.max_bytes,
        horizon_s=request.horizon_s,
        time_limit_s=request.time_limit_s,
        seed=request.seed,
    )


def replan(request: ReplanRequest) -> Replanned:
    """Return a plan for other loads, or without what is ``lost``, that moves few copies; and the moves in order.

    Raises
    ------
    InputError
        If the plan, the loads or a name of what is lost cannot be used.
    InfeasibleError
        If what is left cannot hold the experts, or the budget is too small to restore them.
    """
    from placement.migrate.replan import replan_plan
    from placement.progress import ProgressReporter

    wanted, old = replan_options(request), inputs.plan_of(request.plan)
    other = None
    if request.loads is not None or request.routing:
        other = inputs.loads_of(old.deployment.model, request.loads, request.routing, seed=request.seed)
    now = None if request.cluster is None else inputs.cluster_of(request.cluster)
    told = ProgressReporter(request.on_progress)
    told.stage("re-planning")
    return replan_plan(old, other, wanted, cluster=now, on_progress=told.moves, cancel=request.cancel)


def what_if(request: WhatIfRequest) -> Levers:
    """Return what each lever of a plan would bring alone, the largest first.

    Raises
    ------
    InputError
        If the plan cannot be read, or a setting cannot be read or used.
    """
    from placement.analysis.levers import find_levers
    from placement.progress import ProgressReporter

    told = ProgressReporter(request.on_progress)
    return find_levers(inputs.plan_of(request.plan, request.settings), on_stage=told.stage)


def sweep(request: SweepRequest) -> Sweep:
    """Return every parallel layout at every batch, priced; of both phases together see :func:`rackplan.pools`.

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If nothing fits.
    """
    if request.pair is not None:
        raise InputError(
            f"{input_name('isl')} and {input_name('osl')}: two pools serve whole requests; rackplan.pools matches "
            "them."
        )
    priced = deployment(request)
    workload = replace(priced.workload, prefix_hit=request.prefix_hit)
    return swept(replace(priced, workload=workload), speeds=request.speeds)


def swept(deployment: Deployment, *, imbalance: float | None = 1.0, speeds: Sequence[float] = ()) -> Sweep:
    """Return every layout at every batch, priced.

    Raises
    ------
    InputError
        As of :func:`cost.layouts.sweep`.
    InfeasibleError
        If nothing fits: by how much.
    """
    from cost.layouts import sweep as sweep_layouts

    found = sweep_layouts(deployment, imbalance=imbalance, speeds=speeds)
    if not len(found):
        raise InfeasibleError(
            f"HBM capacity binds: no layout of {deployment.model.name} on {deployment.cluster.name} holds a sequence "
            f"of {deployment.workload.context:,} tokens; the nearest lacks {found.shortage_bytes / 1e9:.1f} GB per "
            "GPU."
        )
    return found


WORTH_SAYING, MOST_GPUS = 0.02, 128
"""Gain by layouts of any shape that is worth a word, and GPUs of a cluster up to which looking for it is quick."""


def plan_shape_notes(plan: Plan, request: PlanRequest) -> list[str]:
    """Say what layouts of any shape would gain over those that a plan was chosen from, where experts are balanced."""
    from cost.layouts import sweep as sweep_layouts

    deployment = plan.deployment
    free = request.goal == "throughput" and deployment.workload.decodes and not request.batch
    if not free or any(map(request.given, ("ep", "tp", "stages"))) or not _quick(deployment):
        return []
    speeds = () if plan.limit_s is None else (1 / plan.limit_s,)
    found = sweep_layouts(deployment, cut_experts=False, speeds=speeds)
    return shape_notes(found, speeds, cut_experts=False) if len(found) else []


def _quick(deployment: Deployment) -> bool:
    """Whether layouts that are deployable were priced, and few enough GPUs to price all others too."""
    return not deployment.any_shape and len(deployment.cluster.gpus) <= MOST_GPUS


def shape_notes(found: Sweep, speeds: Sequence[float] = (), *, cut_experts: bool = True) -> list[str]:
    """Say what layouts of any shape would gain over those of a sweep, at the one of ``speeds`` where it is most.

    Or that they are of any shape, since no other holds the model. Nothing is said of large clusters.
    """
    from cost.inputs.deployment import NONE_DEPLOYABLE
    from cost.layouts import best_at
    from cost.layouts import sweep as sweep_layouts

    deployment = found.deployment
    if deployment.none_deployable:
        return [NONE_DEPLOYABLE]
    if not _quick(deployment):
        return []
    other = sweep_layouts(
        replace(deployment, any_shape=True),
        imbalance=found.imbalance,
        speeds=speeds,
        cut_experts=cut_experts,
    )
    gains: list[tuple[float, float, str]] = []
    for speed in speeds or (0.0,):
        now, then = best_at(found, speed), best_at(other, speed)
        if now is not None and then is not None:
            gain = float(other.tok_s_per_gpu[then] / found.tok_s_per_gpu[now]) - 1
            gains.append((gain, speed, other.label(then)))
    gain, speed, label = max(gains, default=(0.0, 0.0, ""))
    if gain < WORTH_SAYING:
        return []
    at = f" at {speed:g} tok/s/user" if speed else ""
    return [f"any shape (`any_shape`): {gain:.1%} more tok/s/GPU{at}, {label}"]


def pools(request: SweepRequest) -> Pools:
    """Return a pool that prefills and one that decodes, matched so that neither waits for the other.

    Raises
    ------
    InputError
        If something given cannot be used, or no lengths of requests are.
    InfeasibleError
        If a pool does not fit.
    """
    names = [request.cluster, *([] if request.prefill_cluster is None else [request.prefill_cluster])]
    sides = inputs.clusters_of(names, request.settings)
    return matched(inputs.deployment_of(request, request.model, *sides), sides[-1], request)


def matched(deployment: Deployment, prefills: Cluster, request: SweepRequest) -> Pools:
    """Return two pools that are matched, ``prefills`` the cluster that prefills.

    Raises
    ------
    InputError
        If something asked cannot be used.
    InfeasibleError
        If no layout of one of them fits.
    """
    from cost.serving.lengths import serving_workloads
    from cost.serving.pools import match_rates
    from rackplan.views.pools import Pools

    if request.pair is None:
        raise InputError(
            f"{input_name('isl')} and {input_name('osl')}: two pools serve whole requests; give both."
        )
    isl, osl = request.pair
    decoding, prefilling = serving_workloads(deployment.workload, isl, osl, prefix_hit=request.prefix_hit)
    decode = swept(replace(deployment, workload=decoding), imbalance=None, speeds=request.speeds)
    prefill = swept(replace(deployment, cluster=prefills, workload=prefilling), imbalance=None)
    tpot_s = request.tpot_s if isinstance(request.tpot_s, float) else None
    ttft_s = request.limits_s[1]
    matches = match_rates(decode, prefill, osl=osl, ttft_s=ttft_s, tpot_s=tpot_s)
    return Pools(matches, decode, prefill, ttft_s=ttft_s, ttft_default=request.ttft_ms is None)


def compare(request: CompareRequest) -> Comparison:
    """Return the best that each cluster does for one model, at speeds per user (None: the usual one).

    Clusters by name have ``gpus`` GPUs, or as many as the largest of them.

    Raises
    ------
    InputError
        If something given cannot be used.
    """
    sides = inputs.equal_clusters(request.clusters, request.gpus, request.settings)
    return compared(inputs.deployment_of(request, request.model, *sides), sides, request)


def compared(first: Deployment, sides: Sequence[Cluster], request: CompareRequest) -> Comparison:
    """Return the best of ``first`` on each cluster of ``sides``.

    Raises
    ------
    InputError
        As of :func:`placement.analysis.compare.compare_clusters`.
    """
    from placement.analysis.compare import compare_clusters
    from placement.options import PlanOptions
    from placement.progress import ProgressReporter
    from rackplan.views.compare import Comparison

    free = request.tok_s_user == NO_LIMIT
    targets: Sequence[float] = () if isinstance(request.tok_s_user, str) else request.tok_s_user or ()
    wanted = PlanOptions(time_limit_s=0.0, seed=request.seed, tpot_s=NO_LIMIT if free else None)
    loads = inputs.loads_of(first.model, request.loads, seed=request.seed)
    told, turn = ProgressReporter(request.on_progress), count(1)
    rows = compare_clusters(
        sides,
        first.model,
        first.workload,
        loads,
        wanted,
        targets,
        engine=first.engine,
        correction=first.correction,
        any_shape=first.any_shape,
        on_progress=lambda name: told.stage(f"comparing {name}, {next(turn)} of {len(sides)}"),
    )
    usual = not targets and wanted.service_level(first.workload).usual
    return Comparison(tuple(rows), tuple(replace(first, cluster=side) for side in sides), loads, usual=usual)


def size(request: SizeRequest) -> Size:
    """Return how many of ``cluster`` serve ``tok_s`` output tokens per second, and what they cost and draw.

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If the model does not fit, or nothing keeps the limits.
    """
    from cost.serving.lengths import Lengths, read_lengths
    from cost.serving.limits import relax_default_limits
    from cost.serving.sizing import Demand
    from cost.serving.sizing import size as sized
    from placement.fleet.supply import FleetOnUnits

    priced = deployment(request)
    lengths = None if request.pair is None else Lengths.of(*request.pair)
    if request.lengths is not None:
        lengths = read_lengths(request.lengths)
    tpot_s, ttft_s = request.limits_s
    demand = Demand(
        tok_s=float(request.tok_s),
        utilization=request.utilization,
        spares=request.spares,
        tpot_s=tpot_s,
        ttft_s=None if lengths is None else ttft_s,
    )
    mixed = lengths is not None and len(lengths.isl) > 1

    def of(wanted: Demand) -> Size:
        fleet = None if mixed else FleetOnUnits(priced, wanted, lengths=lengths)
        return sized(priced, wanted, lengths=lengths, fleet=fleet)

    found, left_out = relax_default_limits(of, demand, request.usual)
    return replace(found, usual=request.usual, left_out=left_out)


def traffic_of(request: FleetRequest, where: Cluster) -> Traffic:
    """Return the models with their shares, lengths and limits.

    Raises
    ------
    InputError
        If a model cannot be read, or is given twice.
    """
    from placement.fleet.options import Traffic

    named, _ = inputs.shares_of(request.models)
    deployments = [inputs.deployment_of(request, name, where) for name, _ in named]
    names = [one.model.name for one in deployments]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise InputError(
            "a duplicate; give it once, with the sum of its shares.", field="models", value=twice
        )
    shares = [share for _, share in named]
    return Traffic.of(deployments, shares, request.pair, request.limits_s, usual=request.usual)


def fleet(request: FleetRequest) -> Fleet:
    """Return replicas of different shapes for a whole cluster, of one model or several with shares of the requests.

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If nothing fits, or nothing serves what is asked for.
    """
    from cost.inputs.deployment import NONE_DEPLOYABLE
    from placement.fleet.fleet import make_fleet
    from placement.fleet.options import FleetOptions, require_goal
    from placement.progress import ProgressReporter

    wanted = FleetOptions(
        goal=None if request.goal is None else require_goal(request.goal),
        tok_s=None if request.tok_s is None else float(request.tok_s),
        utilization=request.utilization,
        spares=request.spares,
        time_limit_s=request.time_limit_s,
        seed=request.seed,
    )
    where = inputs.clusters_of([request.cluster], request.settings)[0]
    say = ProgressReporter(request.on_progress).stage
    try:
        found = make_fleet(where, traffic_of(request, where), wanted, on_stage=say)
    except InfeasibleError:
        if request.any_shape:
            raise
        found = make_fleet(where, traffic_of(replace(request, any_shape=True), where), wanted, on_stage=say)
        found = replace(found, notes=(NONE_DEPLOYABLE, *found.notes))
    return replace(found, notes=(*inputs.shares_of(request.models)[1], *found.notes))


def replay(request: ReplayRequest) -> Replayed:
    """Return what balancers make of recorded loads: each plans on what it has seen and is scored on what comes next.

    Raises
    ------
    InputError
        If something given cannot be used, or there are fewer than two windows.
    InfeasibleError
        If no plan fits.
    """
    from rackplan.replaying import replayed

    return replayed(request)
