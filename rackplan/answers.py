"""One function per question, shared by command line, library and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from placement.progress import ProgressReporter
from rackplan import inputs, layouts, recipes, requests
from rackplan.requests import NO_LIMIT, limit_s
from topology.base.errors import InfeasibleError

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from cost.layouts import Sweep
    from cost.principles.economics import Economics
    from cost.principles.roofline import Rooflines
    from cost.queueing.result import Simulated
    from cost.serving.pools import RateMatch
    from cost.serving.result import Pools
    from cost.serving.serving import Serving
    from cost.serving.sizes import Refused, Sizes
    from cost.serving.sizing import Size
    from placement.analysis.comparison import Comparison
    from placement.analysis.levers import Levers
    from placement.migrate.replan import Replanned, ReplanOptions
    from placement.online.replayed import Replayed
    from placement.options import PlanOptions
    from placement.plan import Plan
    from rackplan.requests import PlanLike


def make_deployment(request: requests.DeploymentRequest | requests.SweepRequest) -> Deployment:
    """Return a deployment: a model on a cluster with a workload.

    >>> rackplan.make_deployment("mixtral-8x7b", "hgx-h100", context=8192).workload.context
    8192

    Raises
    ------
    InputError
        If a name means nothing, or figures cannot be used together.
    """
    where = inputs.cluster_of(request.cluster, request.settings)
    return inputs.deployment_of(request, request.model, where)


def plan_options(request: requests.PlanRequest) -> PlanOptions:
    """Return the options of the planner."""
    from placement.options import PlanOptions

    options: PlanOptions = request.as_options(PlanOptions, ttft_s=limit_s(request.ttft_ms))
    # whole requests try the fewest copies and more on each GPU in any case
    return replace(options, redundant=options.copies) if request.whole else options


def plan(request: requests.PlanRequest) -> Plan:
    """Return a plan: the placement, its proven gap, and the predicted step.

    >>> import rackplan
    >>> rackplan.plan("deepseek-v3", "gb200-nvl72", phase="decode", time_limit_s=0).layout.gpus_used
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
    from cost.inputs.deployment import NONE_DEPLOYABLE
    from placement.joint import Question, plan_jointly
    from placement.whole import Limits

    options, (deployments, shares) = plan_options(request), planned_deployments(request)
    models = [deployment.model for deployment in deployments]
    loads = [inputs.loads_of(model, request.loads, request.routing, seed=request.seed) for model in models]
    reporter, lengths = ProgressReporter(request.on_progress), request.whole
    if request.conversations is not None:
        if len(deployments) > 1:
            raise request.refuse("sessions", "conversations are of one model")
        served = layouts.conversations(deployments[0], request, request.limits_s[0])
        settled = layouts.settled(served, request, deployments[0])
        assert settled is not None  # noqa: S101 - conversations are whole requests
        lengths = settled.alike
    question = Question(
        tuple(deployments),
        tuple(shares),
        lengths,
        tuple(loads),
        options,
        Limits(*request.limits_s, request.usual)
        if lengths
        else Limits(request.usual_tpot_s, None, request.usual),
        reporter.layers,
        reporter.stage,
        request.cancel,
    )
    try:
        return plan_jointly(question)
    except InfeasibleError:
        if request.any_shape or len(deployments) == 1:
            raise
    any_shape = tuple(replace(deployment, any_shape=True) for deployment in deployments)
    result = plan_jointly(replace(question, deployments=any_shape))
    return replace(result, notes=(NONE_DEPLOYABLE, *result.notes))


def planned_deployments(request: requests.PlanRequest) -> tuple[list[Deployment], list[float]]:
    """Return what is planned: each model on the cluster, and its share of the requests.

    Raises
    ------
    InputError
        If a model cannot be read, is given twice, or several are asked about one phase that is prefill.
    """
    where = inputs.cluster_of(request.cluster, request.settings)
    named, _ = inputs.shares_of(request.model)
    deployments = [inputs.deployment_of(request, name, where) for name, _ in named]
    names = [deployment.model.name for deployment in deployments]
    inputs.refuse_twice(names, "model", "give it once, with the sum of its shares")
    if len(names) > 1:
        why = "several models are planned as pools of any layouts for whole requests or decode"
        for name in ("ep", "tp", "stages", "batch", "redundant", "routing", "afd"):
            request.refuse_given([name], why)
        if request.phase == "prefill" or request.goal == "latency":
            raise request.refuse("phase" if request.phase == "prefill" else "goal", why)
    if request.alone:
        deployments = [
            replace(deployment, workload=replace(deployment.workload, prefix_hit=request.prefix_hit))
            for deployment in deployments
        ]
    return deployments, [share for _, share in named]


def score(request: requests.ScoreRequest) -> Plan:
    """Return a plan re-scored from its assignment, under its own or other loads.

    >>> rackplan.score("out", loads="zipf:0.4").balancedness  # doctest: +SKIP

    Raises
    ------
    InputError
        If the plan cannot be read, or the loads do not fit its model.
    """
    return scores(request, [request.plan])[0]


def scores(request: requests.ScoreRequest, plans: Sequence[PlanLike]) -> list[Plan]:
    """Return several plans re-scored alike; prices and powers may be of GPUs of any of them.

    Raises
    ------
    InputError
        As :func:`score`.
    """
    originals = [inputs.plan_of(plan, request.settings) for plan in plans]
    clusters = [plan.deployment.cluster for plan in originals]
    return [_scored(request, inputs.priced(request, plan, *clusters)) for plan in originals]


def _scored(request: requests.ScoreRequest, scored: Plan) -> Plan:
    from placement.pools import each_pool
    from placement.scoring import under_sparse_attention, with_loads

    if request.sparse_attention:
        rule = str(request.sparse_attention)
        scored = each_pool(scored, lambda pool: under_sparse_attention(pool, rule))
    model, seed = scored.deployment.model, scored.request.seed
    if request.loads is None and not request.routing:
        return (
            scored if scored.loads is None else each_pool(scored, lambda pool: with_loads(pool, pool.loads))
        )
    loads = inputs.loads_of(model, request.loads, request.routing, seed=seed)

    def under(pool: Plan) -> Plan:
        return with_loads(pool, loads if pool.deployment.model.name == model.name else pool.loads)

    return each_pool(scored, under)


def replan_options(request: requests.ReplanRequest) -> ReplanOptions:
    """Return the options of the re-plan."""
    from placement.migrate.replan import ReplanOptions

    return request.as_options(ReplanOptions)


def replan(request: requests.ReplanRequest) -> Replanned:
    """Return a plan for other loads or without the ``lost`` parts that moves few copies, and the moves in order.

    >>> plan = rackplan.plan("qwen3-30b-a3b", "hgx-h100", phase="decode", redundant=16, batch=128, time_limit_s=0)
    >>> len(rackplan.replan(plan, lost="d0.n0.g3").plan.layout.replicas[0][0].gpus)
    7

    Raises
    ------
    InputError
        If the plan, the loads or a name of what is lost cannot be used.
    InfeasibleError
        If what is left cannot hold the experts, or the budget is too small to restore them.
    """
    from placement.migrate.pools import replan_pools

    options, old = replan_options(request), inputs.plan_of(request.plan)
    loads = None
    if request.loads is not None or request.routing:
        loads = inputs.loads_of(old.deployment.model, request.loads, request.routing, seed=request.seed)
    cluster = None if request.cluster is None else inputs.cluster_of(request.cluster)
    reporter = ProgressReporter(request.on_progress)
    reporter.stage("re-planning")
    return replan_pools(
        old,
        loads,
        options,
        pool=request.pool,
        cluster=cluster,
        on_progress=reporter.moves,
        cancel=request.cancel,
    )


def what_if(request: requests.WhatIfRequest) -> Levers:
    """Return the gain of each lever of a plan on its own, largest first.

    >>> plan = rackplan.plan("mixtral-8x7b", "hgx-h100", phase="decode", time_limit_s=0)
    >>> rackplan.what_if(plan).largest[0].name
    'context'

    Raises
    ------
    InputError
        If the plan cannot be read, or a setting cannot be read or used.
    """
    from placement.analysis.levers import find_levers
    from placement.pools import one_pool

    reporter = ProgressReporter(request.on_progress)
    return find_levers(
        one_pool(inputs.plan_of(request.plan, request.settings), request.pool), on_stage=reporter.stage
    )


def sweep(request: requests.SweepRequest) -> Sweep | Pools:
    """Price every parallel layout at every batch, for one phase or for whole requests.

    >>> rackplan.sweep("mixtral-8x7b", "hgx-h100", isl=2048, osl=512).best.one_pool
    False

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If nothing fits, or keeps the limits: the best that can be reached.
    """
    from cost.queueing.choice import match_under_load
    from cost.queueing.load import LoadLimits
    from placement.whole import Limits, refuse_limits

    if not request.alone:
        names = [name for name in (request.cluster, request.prefill_cluster) if name is not None]
        sides = inputs.clusters_of(names, request.settings)
        pools = layouts.served(inputs.deployment_of(request, request.model, *sides), request, *sides[1:])
        serving, tpot_s = pools.serving, pools.tpot_s
        if pools.best is None:
            refuse_limits(serving, Limits(tpot_s, serving.ttft_s))
        if request.ttft_p99_s is None:
            return pools
        loaded = match_under_load(serving, LoadLimits(request.ttft_p99_s, tpot_s))
        return replace(pools, ttft_p99_s=request.ttft_p99_s, loaded=loaded)
    priced = make_deployment(request)
    workload = replace(priced.workload, prefix_hit=request.prefix_hit)
    alone = layouts.swept(replace(priced, workload=workload), speeds=request.speeds)
    return replace(layouts.within_limit(alone, request), afd=request.afd)


def simulate(request: requests.SimulateRequest) -> Simulated:
    """Simulate the latencies of requests on the replicas of a plan, or of a model on a cluster.

    Without a plan the replicas are those that keep the limits at most requests per second, in one pool or two.

    >>> plan = rackplan.plan("mixtral-8x7b", "hgx-h100", isl=2048, osl=256, time_limit_s=0)
    >>> rackplan.simulate(plan, req_s=2).overloaded
    False

    Raises
    ------
    InputError
        If something given cannot be used, or a request does not fit the cache of a replica.
    InfeasibleError
        If the model does not fit, or nothing keeps the limits even without waiting.
    CancelledError
        If ``cancel`` says so.
    """
    from rackplan.simulating import simulated

    return simulated(request)


def roofline(request: requests.RooflineRequest) -> Rooflines:
    """Return the blackboard of a model on each of several clusters.

    >>> round(rackplan.roofline("deepseek-v3", "lecture-72").boards[0].figures["bf16_flop_per_byte"])
    300

    Raises
    ------
    InputError
        If something given cannot be used.
    """
    from cost.principles.roofline import Roofline, Rooflines

    sides = inputs.clusters_of(request.cluster, request.settings)
    inputs.refuse_twice([side.name for side in sides], "cluster", "give each cluster once")
    boards = (
        Roofline(side, request.stages, request.batches or (), request.req_s, request.tok_s)
        for side in inputs.deployments_of(request, request.model, sides)
    )
    return Rooflines(tuple(boards))


def economics(request: requests.EconomicsRequest) -> Economics:
    """Return what prices tell, what a cached token costs, and what a model costs over its life.

    >>> round(rackplan.economics().figures["price_kv_bytes"])
    1600

    Raises
    ------
    InputError
        If something given cannot be used.
    """
    from cost.principles.economics import Economics, Listed
    from cost.principles.lecture import lecture
    from cost.principles.roofline import Roofline
    from cost.principles.tiers import tiers_set

    cluster = inputs.cluster_of(request.cluster, request.settings)
    board = Roofline(inputs.deployment_of(request, request.model or "deepseek-v3", cluster))
    listed = Listed(request.price_in, request.price_out, request.price_cached, *request.price_long)
    usual = {key: cited.value or 0.0 for key, cited in lecture().items()}
    known = request.model is not None
    active = request.active or (board.deployment.model.active_params if known else usual["active_params"])
    kv_bytes = board.figures["kv_bytes_per_token"] if known else usual["price_kv_bytes"]
    return Economics(
        board, listed, active, kv_bytes or 0.0, request.tok_s, request.months, tiers_set(request.tiers)
    )


def compare(request: requests.CompareRequest) -> Comparison:
    """Compare the best results of several clusters for one model at given speeds per user (None: the default).

    Clusters by name have ``gpus`` GPUs, or as many as the largest of all; ``name@GPUS``, files and objects have
    those that they have. Where sizes differ the summary says so: read it per GPU, megawatt and USD.

    >>> rackplan.compare(["hgx-h100", "gb200-nvl72"], "mixtral-8x7b", tok_s_user=50).rows[1].gpus
    72

    Raises
    ------
    InputError
        If something given cannot be used.
    """
    from cost.money.budget import clusters_within

    if request.budget:
        units = inputs.clusters_of(request.clusters, request.settings)
        sides, scales = clusters_within(
            inputs.book_of(request, *units), units, mw=request.mw, usd_h=request.usd_h
        )
    else:
        sides, scales = inputs.compared_clusters(request.clusters, request.gpus, request.settings), {}
    names = [side.name for side in sides]  # by which rows, bills and drawings are told apart
    inputs.refuse_twice(names, "clusters", "give each cluster once, under its own name")
    comparison = compared(inputs.deployments_of(request, request.model, sides), request)
    rows = tuple(row.times(scales.get(row.cluster, 1.0)) for row in comparison.rows)
    comparison = replace(comparison, rows=rows, scales=scales, budget=request.budget)
    return replace(comparison, others=tuple(recipes.recipes_compared(comparison, request)))


def compared(deployments: Sequence[Deployment], request: requests.CompareRequest) -> Comparison:
    """Compare the best results on several priced clusters."""
    from cost.queueing.choice import match_under_load
    from cost.queueing.load import LoadLimits
    from placement.analysis.compare import compare_clusters, compare_serving
    from placement.analysis.comparison import Comparison
    from placement.options import USUAL_TPOT, PlanOptions

    free = request.tok_s_user == NO_LIMIT
    targets: Sequence[float] = () if isinstance(request.tok_s_user, str) else request.tok_s_user or ()
    reporter, turn = ProgressReporter(request.on_progress), count(1)

    def on_progress(name: str) -> None:
        reporter.stage(f"comparing {name}, {next(turn)} of {len(deployments)}")

    if not request.alone:
        usual = not (targets or free)
        speeds = (1 / USUAL_TPOT.value,) if usual else targets
        servings: dict[str, Serving] = {}

        def serving(deployment: Deployment) -> Serving:
            name = deployment.cluster.name
            on_progress(name)
            servings[name] = layouts.serving_of(deployment, request, [1 / speed for speed in speeds])
            return servings[name]

        def rates(deployment: Deployment, targets: Sequence[float | None]) -> list[float | None]:
            reporter.stage("splitting the gain")
            try:
                return recipes.rates_at(deployment, request, targets)
            except InfeasibleError:
                return [None] * len(targets)

        def loaded(serving: Serving, speed: float | None) -> RateMatch | None:
            if request.ttft_p99_s is None:
                return None
            reporter.stage(f"simulating {serving.decode.deployment.cluster.name}")
            return match_under_load(serving, LoadLimits(request.ttft_p99_s, speed and 1 / speed))

        rows = compare_serving(deployments, serving, speeds, usual=usual, loaded=loaded)
        return Comparison(
            tuple(rows),
            tuple(deployments),
            None,
            usual=usual,
            lengths=request.whole,
            ttft_s=request.ttft_s,
            ttft_p99_s=request.ttft_p99_s,
            rates=rates,
            servings=servings,
            placed_by=inputs.loads_of(deployments[0].model, seed=request.seed),
        )
    tpot_s = NO_LIMIT if free else None
    options = PlanOptions(time_limit_s=0.0, seed=request.seed, tpot_s=tpot_s, ttft_s=request.prefill_s)
    loads = inputs.loads_of(deployments[0].model, request.loads, seed=request.seed)
    rows = compare_clusters(deployments, loads, options, targets, on_progress=on_progress)
    usual = not targets and options.service_level(deployments[0].workload).usual
    return Comparison(tuple(rows), tuple(deployments), loads, usual=usual, placed_by=loads)


def size(request: requests.SizeRequest) -> Size | Sizes:
    """Return how many units of ``cluster`` serve a demand, or what a budget buys, with cost and power.

    Of several clusters, a list, these are side by side; one that cannot has the reason in its place.

    >>> rackplan.size("mixtral-8x7b", "hgx-h200", tok_s="100k", tpot_ms=20).gpus
    160

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If no cluster can: the model does not fit, nothing keeps the limits, or a budget is too small.
    """
    from cost.serving.sizes import Refused, Sizes

    sides = inputs.clusters_of(request.cluster, request.settings)
    results: list[Size | Refused] = []
    for deployment in inputs.deployments_of(request, request.model, sides):
        try:
            results.append(_sized(deployment, request))
        except InfeasibleError as error:
            results.append(Refused(deployment, error))
    sizes = Sizes(tuple(results))
    if not sizes.sizes:
        raise sizes.refused[0].error
    return sizes if len(results) > 1 else sizes.sizes[0]


def _sized(priced: Deployment, request: requests.SizeRequest) -> Size:
    from cost.money.kv_memory import AUTO
    from cost.queueing.conversations import cheapest
    from cost.serving.limits import relax_default_limits
    from cost.serving.sizing import Demand
    from cost.serving.sizing import size as sized
    from placement.fleet.supply import FleetOnUnits

    (tpot_s, ttft_s), usual = request.limits_s, request.usual
    conversations, points = layouts.conversations(priced, request, tpot_s), []
    if conversations is not None and [*request.kv_tier] == [AUTO]:
        ProgressReporter(request.on_progress).stage("trying memory for caches")
        points = conversations.points(priced.prices.memory)
        priced = replace(priced, prices=replace(priced.prices, memory=cheapest(points).memory))
    lengths = layouts.settled(conversations, request, priced)
    if request.usd_m is not None:
        tpot_s, usual = None, usual - {"tpot_s"}
    think_s = conversations.sessions.pause_s if conversations and not request.think_s else request.think_s
    limit_s = None if lengths is None else ttft_s
    demand = request.as_options(Demand, tpot_s=tpot_s, ttft_s=limit_s, think_s=think_s)
    mixed = lengths is not None and len(lengths.isl) > 1

    def of(trial: Demand) -> Size:
        if trial.usd_m is not None:
            trial = sized(priced, trial, lengths=lengths).demand
        fleet = None if mixed else FleetOnUnits(priced, trial, lengths=lengths)
        return sized(priced, trial, lengths=lengths, fleet=fleet)

    result, left_out = relax_default_limits(of, demand, usual)
    if request.ttft_p99_s is not None:
        on_average = of(replace(result.demand, ttft_p99_s=None)).gpus
        return replace(result, usual=usual, left_out=left_out, on_average=on_average, caches=tuple(points))
    recipe_gain = recipes.size_under_other(result, priced, request)
    return replace(result, usual=usual, left_out=left_out, other=recipe_gain, caches=tuple(points))


def replay(request: requests.ReplayRequest) -> Replayed:
    """Replay recorded loads through balancers: each plans on past windows and is scored on the next one.

    >>> rackplan.replay("out", loads="windows.npy", policies=["static", "vllm"])  # doctest: +SKIP

    Raises
    ------
    InputError
        If something given cannot be used, or there are fewer than two windows.
    InfeasibleError
        If no plan fits.
    """
    from rackplan.replaying import replayed

    return replayed(request)
