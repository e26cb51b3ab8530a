"""Simulations: choice of replicas, generation of requests, and the maximum rate within the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.machine import NearRuns
from cost.queueing.choice import Make, best_under_load, out_of_reach
from cost.queueing.load import (
    SEEDS,
    LoadLimits,
    closed_loop,
    conversations_on,
    most_requests,
    stream_of,
    under_load,
)
from cost.queueing.pools import EnginePools, pools_of
from cost.queueing.requests import Requests
from cost.queueing.result import Simulated
from cost.queueing.sessions import MadeSessions, RecordedSessions, Sessions
from cost.queueing.simulation import ROUTERS, SESSION_ROUTER
from cost.serving.lengths import Lengths
from cost.serving.pools import RateMatch
from cost.serving.serving import ONE_POOL, Serving
from cost.step.step import near_runs
from placement.budget import Budget
from placement.plan import Plan
from placement.progress import ProgressReporter
from placement.under_load import lengths_of_plan, pools_of_plan
from rackplan import inputs
from rackplan.layouts import served
from rackplan.requests import SimulateRequest, lengths_of
from topology.base.errors import InfeasibleError, input_name
from topology.base.units import plural

Heard = Callable[[float, bool], None]
MakeFor = Callable[[EnginePools], Make]


def simulated(request: SimulateRequest) -> Simulated:
    """Return what users see under a load (:func:`rackplan.answers.simulate`)."""
    reporter, budget = ProgressReporter(request.on_progress), Budget(cancel=request.cancel)
    trace, conversations = request.recorded, request.conversations
    router = request.router or (ROUTERS[0] if conversations is None else SESSION_ROUTER)
    plan = None if request.plan is None else inputs.plan_of(request.plan, request.settings)
    lengths = request.whole
    if plan is not None and trace is None and conversations is None:
        lengths = _lengths_of(request, plan)
    assert lengths is not None  # noqa: S101 - both phases are simulated
    notes = () if plan is None else tuple(_notes(request, plan, lengths))

    def heard(rate: float, keeps: bool) -> None:
        budget.unless_cancelled()
        reporter.stage(f"simulating: {rate:,.3g} requests/s {'keep' if keeps else 'miss'} the limits")

    def make_for(pools: EnginePools) -> Make:
        if trace is not None:
            return lambda rate, _: trace.at_rate(rate)
        if conversations is not None:
            return conversations_on(
                pools, conversations, cv=request.cv, arrivals=request.arrivals, seed=request.seed
            )
        return stream_of(pools, lengths, cv=request.cv, arrivals=request.arrivals, seed=request.seed)

    reporter.stage("pricing steps")
    if plan is None:
        deployment, pools, layouts, limits, rate, near = _chosen(request, make_for, heard)
    else:
        deployment, pools = plan.deployment, pools_of_plan(plan, lengths)
        ttft_s, tpot_s = request.limits_s[::-1]
        limits = LoadLimits(ttft_s, tpot_s)
        moe = deployment.model.moe is not None
        ordered = sorted(plan.pools, key=lambda pool: ("prefill", "both", "decode").index(pool.role))
        layouts = [pool.layout.short(moe=moe).partition(" x")[0] for pool in ordered]
        near = plan.near
        rate = plan.score.tok_s_per_gpu * len(deployment.cluster.gpus) / lengths.mean_osl / 2
    reporter.stage("simulating")
    make = make_for(pools)
    if conversations is not None:
        requests = _of_sessions(request, conversations, make)
    elif request.concurrency is not None:
        requests = closed_loop(pools, lengths, request.concurrency, cv=request.cv, seed=request.seed)
    else:
        requests = trace if trace is not None else make(request.req_s or 1.0, 0)
    result = under_load(pools, requests, limits, router)
    max_load, reason = None, "no limit was given that a rate could keep."
    if request.limits_s != (None, None):
        try:
            recorded = trace is not None or isinstance(conversations, RecordedSessions)
            seeds = 1 if recorded else SEEDS  # a recording is what it is
            max_load = most_requests(pools, make, limits, rate, router, heard, seeds)
            if not max_load.bounded:
                max_load, reason = (
                    None,
                    f"these {len(requests):,} requests keep the limits at any rate; use a longer trace.",
                )
        except InfeasibleError as error:
            reason = str(error)
    return Simulated(
        _load_words(request, requests),
        result.requests_per_s if requests.users else request.req_s or requests.rate,
        router,
        request.seed,
        deployment,
        pools,
        tuple(layouts),
        lengths,
        requests,
        limits,
        result,
        max_load,
        reason,
        make,
        near,
        notes,
    )


def _chosen(
    request: SimulateRequest, make_for: MakeFor, heard: Heard
) -> tuple[Deployment, EnginePools, list[str], LoadLimits, float, NearRuns]:
    """Return the way that keeps the limits at most requests per second, about that rate, and what runs near say.

    Raises
    ------
    InfeasibleError
        If none does even without waiting.
    """
    assert request.model is not None and request.cluster is not None  # noqa: S101, PT018 - else a plan is given
    where = inputs.cluster_of(request.cluster, request.settings)
    priced = served(inputs.deployment_of(request, request.model, where), request)
    serving, limits = priced.serving, LoadLimits(priced.serving.ttft_s, priced.tpot_s)
    widths = {name: value for name in ("ep", "tp", "stages") if (value := getattr(request, name)) is not None}
    if widths or request.batch:
        match = _own_layout(serving, widths, request.batch)
        pools, most = pools_of(serving, match), None
        if request.batch:
            seats = max(1, round(request.batch * serving.sides(match)[0][1].tp[match.decode]))
            pools = pools.admitting(seats)
    else:
        # requests choose the layout, whichever replica each of them goes to
        router = ROUTERS[0] if request.conversations is None else SESSION_ROUTER
        best = best_under_load(serving, limits, make_for, router, heard)
        if best is None:
            raise out_of_reach(serving, limits)
        match, pools, most = best.row, best.pools, best.requests_per_s
    layouts = [pool.worker_label(at) for _, pool, at, _ in serving.sides(match)]
    _, side, row, _ = serving.sides(match)[-1]
    near = near_runs(side.deployment, side.layout_of(row), match.batch)
    return side.deployment, pools, layouts, limits, most or match.requests_per_s / 2, near


def _own_layout(serving: Serving, widths: Mapping[str, int], batch: float) -> RateMatch:
    """Return the match of one pool with given widths, at the batch nearest to ``batch`` (0: with most throughput).

    Raises
    ------
    InfeasibleError
        If no layout that fits has them: those that do.
    """
    swept, matches = serving.both, serving.ways()[ONE_POOL]
    assert swept is not None  # noqa: S101 - one cluster serves both phases
    columns = {name: getattr(swept, name)[matches.decode] for name in ("ep", "tp", "stages")}
    able = np.ones(len(matches), dtype=bool)
    for name, value in widths.items():
        able &= columns[name] == value
    if not able.any():
        asked = ", ".join(f"{input_name(name)} {value}" for name, value in widths.items())
        shapes = sorted({swept.worker_label(int(row)) for row in matches.decode})
        listed = ", ".join(shapes[:_MAX_LISTED]) + ", ..." * (len(shapes) > _MAX_LISTED)
        raise InfeasibleError(
            f"{asked}: no such layout of {swept.deployment.model.name} on {swept.deployment.cluster.name} serves "
            f"these requests within the limit on the first token; {f'these do: {listed}' if shapes else 'none does'}"
            f". {input_name('any_shape')} allows widths that are not deployed."
        )
    rows = np.flatnonzero(able)
    if batch:
        return matches.row(int(rows[np.argmin(np.abs(np.log(matches.step_batch[rows] / batch)))]))
    return matches.row(int(rows[np.argmax(matches.requests_per_s[rows])]))


_MAX_LISTED = 8
"""Layouts that a refusal names."""


def _of_sessions(request: SimulateRequest, sessions: Sessions, make: Make) -> Requests:
    """Return the conversations at the rate or of the users asked for, or as they were recorded."""
    if request.concurrency is not None:
        return sessions.of_users(
            request.concurrency, cv=request.cv, arrivals=request.arrivals, seed=request.seed
        )
    if request.req_s is not None:
        return make(request.req_s, 0)
    rate = f"give {input_name('req_s')}, or {input_name('concurrency')} for conversations at a time"
    if isinstance(sessions, MadeSessions):
        raise request.refuse("sessions", "it says nothing of how many come", rate)
    starts = [
        at
        for at, before in zip_longest(sessions.requests.starts_s, sessions.requests.after, fillvalue=-1)
        if before < 0
    ]
    if len(starts) > 1 and not max(starts):
        raise request.refuse("sessions", "all its conversations begin at once", rate)
    return sessions.requests


def _load_words(request: SimulateRequest, requests: Requests) -> str:
    if request.sessions is not None:
        recorded = request.req_s is None and request.concurrency is None
        load = f"{requests.rate:,.3g} requests/s as recorded" if recorded else _rate_words(request)
        return f"conversations {request.sessions}, {load}"
    if request.trace is not None:
        failed = f", {plural(requests.left_out, 'failed one')} left out" if requests.left_out else ""
        return (
            f"trace {request.trace.name}, {plural(len(requests), 'request')}, {requests.rate:,.3g}/s{failed}"
        )
    return _rate_words(request)


def _rate_words(request: SimulateRequest) -> str:
    if request.concurrency is not None:
        return plural(request.concurrency, "user")
    arrivals = request.arrivals.replace("poisson", "Poisson")
    return f"{request.req_s:,.6g} request{'s' * (request.req_s != 1)}/s, {arrivals} arrivals"


def _notes(request: SimulateRequest, plan: Plan, lengths: Lengths) -> Iterator[str]:
    """Yield notes on the plan, and how one for decode alone is taken."""
    yield from inputs.plan_notes(plan)
    if request.trace is None and lengths_of_plan(plan) is None:
        usual = " (default)" if not any(map(request.given, ("isl", "osl", "lengths"))) else ""
        yield f"the plan is for decode only: its engines also prefill here, one pool for {lengths.brief()}{usual}"


def _lengths_of(request: SimulateRequest, plan: Plan) -> Lengths:
    """Return the lengths that are asked for; what is not given is as the plan was made for, or the default."""
    planned, complete = lengths_of_plan(plan), request.isl is not None and request.osl is not None
    if planned is None or complete or request.given("lengths"):
        return request.whole or lengths_of()
    isl = planned.isl[0] if request.isl is None else request.isl
    osl = planned.osl[0] if request.osl is None else request.osl
    hits = [pool.deployment.workload.prefix_hit for pool in plan.pools]
    return replace(
        Lengths.of(isl, osl), prefix_hit=request.prefix_hit if request.given("prefix_hit") else max(hits)
    )
