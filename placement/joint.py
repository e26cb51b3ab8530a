"""Decide all of a plan together: one layout a pool, or replicas that differ from domain to domain, of several models.

One layout a pool comes first. Where the bound over all layouts that were priced leaves more than the tolerance to
gain, CP-SAT chooses replicas of any shapes over the domains (:mod:`placement.fleet`); their experts are placed, and
what those reach is told to the next choice. Of the two the better one is taken, the simpler one within the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.serving.lengths import Lengths
from placement.analysis.failures import FEW_TOKENS
from placement.budget import Budget, Cancel
from placement.fleet.fleet import Fleet, Pool, make_fleet
from placement.fleet.options import DECODE, PREFILL, WORTH_S, FleetOptions, Traffic
from placement.fleet.pricing import Kind
from placement.layouts.choose import choose_layout
from placement.layouts.fitting import Fitted
from placement.layouts.shapes import Shape
from placement.options import AUTO, OFF, PlanOptions
from placement.pairing import Side, Stages, paired
from placement.plan import ROUNDING, Asked, Decision, Idle, Plan
from placement.planner import Rival, fast_plan, make_plan, reached_by
from placement.pools import with_pools
from placement.progress import OnProgress, Say
from placement.whole import Limits, alone_on, fits_of, plan_requests
from topology.base.errors import InfeasibleError, NoAnswerError

_ROUNDS, _PRICED_OFF, _EQUAL = 4, 0.01, 1e-6
"""Choices at most, each by what the plans of those before it reach; the part of its price by which a plan may be
behind before the next one; the part by which rates that are alike differ."""
_SEARCH_S = 4.0
"""The solver's own seconds of one choice at most: a default plan shall not keep anybody waiting."""
DECIDED = "which replicas of which layouts stand on which domains, and which of them prefill"
"""The decision of CP-SAT."""


@dataclass(frozen=True, eq=False)
class Question:
    """What is planned: models with their shares of the requests on one cluster, within limits.

    ``lengths``: of whole requests; None: one phase as the deployment has it. The rest is as
    :func:`placement.planner.make_plan` takes it.
    """

    deployments: tuple[Deployment, ...]
    shares: tuple[float, ...]
    lengths: Lengths | None
    loads: tuple[ExpertLoads | None, ...]
    options: PlanOptions
    limits: Limits
    on_progress: OnProgress | None = None
    on_stage: Say | None = None
    cancel: Cancel | None = None

    @property
    def heard(self) -> dict[str, Any]:
        """Who hears of the planning, and what ends it, as keywords of :func:`placement.planner.make_plan`."""
        return {"on_progress": self.on_progress, "on_stage": self.on_stage, "cancel": self.cancel}

    @property
    def open(self) -> bool:
        """Whether replicas of any layout may be taken: nothing is asked for that one layout a pool has."""
        deployment, options = self.deployments[0], self.options
        free = not options.widths and options.redundant != AUTO and not deployment.workload.batch
        free &= options.afd == OFF
        alone = self.lengths is None and (options.goal != "throughput" or options.ttft_s is not None)
        return free and not alone and deployment.workload.decodes


def plan_jointly(question: Question) -> Plan:
    """Return a verified plan of one pool or several.

    Raises
    ------
    InputError
        As of :func:`placement.planner.make_plan`.
    InfeasibleError
        If nothing fits, or keeps the limits that are not usual: which limit binds.
    CancelledError
        If it is cancelled before there is a plan.
    """
    options = question.options

    def rival(simple: Plan) -> Plan | Decision | None:
        known = simple.decision
        if not question.open or (known is not None and known.gap <= options.tolerance):
            return known
        try:
            joint, fleet = _joint(question, simple)
            if joint.totals.tok_s > simple.totals.tok_s * (1 + options.tolerance):
                return _planned(question, fleet, joint)
        except (InfeasibleError, NoAnswerError) as error:
            return known and replace(known, search=f"CP-SAT: {error}")
        return _declined(simple, joint)

    if len(question.deployments) == 1 and (question.lengths is None or options.goal == "throughput"):
        try:
            return _simple(question, rival)
        except InfeasibleError as error:
            if not question.open:
                raise
            refused = error
        try:
            return _planned(question, *_joint(question, None)[::-1])
        except (InfeasibleError, NoAnswerError):
            raise refused from None
    return _planned(question, *_joint(question, None)[::-1])


def _simple(question: Question, rival: Rival) -> Plan:
    """Return the plan of one layout a pool, or what its ``rival`` has."""
    (deployment,), (loads,) = question.deployments, question.loads
    heard, options = question.heard | {"rival": rival}, question.options
    if question.lengths is None:
        return make_plan(deployment, loads, options, **heard)
    return plan_requests(deployment, question.lengths, loads, options, question.limits, **heard)


def _declined(simple: Plan, joint: Plan) -> Decision:
    """Return what was decided where one layout a pool is taken: what replicas of any layout would bring."""
    decision, tok_s = joint.decision, simple.totals.tok_s
    assert decision is not None  # noqa: S101 - it was chosen
    gain = joint.totals.tok_s / tok_s - 1
    words = f"it serves {gain:.1%} more, and one layout a pool is simpler"
    if gain <= _EQUAL:
        words = "it serves no more than one layout a pool"
    bound = decision.bound if decision.bound >= tok_s or simple.decision is None else simple.decision.bound
    status = "OPTIMAL" if tok_s >= bound * (1 - _EQUAL) else "FEASIBLE"
    reworded = replace(decision, search=f"{decision.search}; {words}", status=status, bound=bound, idle=())
    return reached_by(reworded, tok_s)


def _joint(question: Question, simple: Plan | None) -> tuple[Plan, Fleet]:
    """Return the best replicas that CP-SAT chose, by what the plans of those before it reach, experts placed fast."""
    limits, near_per_s = question.limits, 0.0
    if simple is not None:
        level = simple.requests
        tpot_s, ttft_s = (simple.limit_s, None) if level is None else (level.tpot_limit_s, level.ttft_limit_s)
        limits, near_per_s = Limits(tpot_s, ttft_s), simple.totals.requests_per_s or 0.0
    options = question.options
    traffic = Traffic.of(
        question.deployments,
        question.shares,
        question.lengths,
        (limits.tpot_s, limits.ttft_s),
        redundant=options.copies,
        usual=limits.usual,
        near_per_s=near_per_s,
    )
    any_shape = any(deployment.any_shape for deployment in question.deployments)
    fleet_options = FleetOptions(
        goal=options.goal, seed=options.seed, most_layouts=None if any_shape else FleetOptions.most_layouts
    )
    reached: dict[Kind, float] = {}
    best: tuple[Plan, Fleet] | None = None
    budget = Budget(None, cancel=question.cancel).part(_SEARCH_S / WORTH_S)
    for _ in range(_ROUNDS):
        fleet = make_fleet(
            question.deployments[0].cluster,
            traffic,
            fleet_options,
            on_stage=question.on_stage,
            budget=budget,
            reached=reached,
        )
        places, words = _places(fleet)
        plans = [_placed(question, fleet, pool, places) for pool in fleet.pools]
        ordered = _ordered(plans)
        if len(ordered) == len(plans):
            plan = with_pools(ordered, replace(_asked(question, fleet, simple), pairing=words))
            first_s, limit_s = plan.late
            if first_s:
                traffic = replace(traffic, ttft_s=(traffic.ttft_s or limit_s) * limit_s / first_s)
                continue
            if best is None or _cost(plan, options.goal) < _cost(best[0], options.goal):
                best = plan, fleet
        parts = {
            pool.column.kind: 0.0
            if plan is None
            else plan.score.tok_s_per_gpu * len(plan.deployment.cluster.gpus) / pool.tok_s
            for pool, plan in zip(fleet.pools, plans, strict=True)
        }
        behind = {kind: part for kind, part in parts.items() if part < 1 - _PRICED_OFF}
        if not behind or fleet.interrupted:
            break
        reached |= {kind: part * reached.get(kind, 1.0) for kind, part in behind.items()}
    if best is None:
        raise InfeasibleError("no replicas that fit the domains hold the limits with their experts placed")
    plan, fleet = best
    return replace(plan, decision=_decision(fleet, plan)), fleet


def _planned(question: Question, fleet: Fleet, joint: Plan) -> Plan:
    """Return the plan of chosen replicas, their experts searched for and judged as those of any plan."""
    plans: list[Plan] = []
    places, heard = _places(fleet)[0], question.heard
    for pool in fleet.pools:
        deployment, opts, fits = _fits(question, fleet, pool, places)
        if plans and plans[0].interrupted:  # what is left is finished the fast way, and not cancelled again
            opts, heard = replace(opts, time_limit_s=0.0), heard | {"cancel": None}
        planned = make_plan(deployment, question.loads[pool.model], opts, layouts=fits, **heard)
        plans.append(replace(planned, request=replace(opts, tpot_s=question.options.tpot_s)))
    plan = with_pools(_ordered(plans), joint.requests)
    if plan.late[0]:
        raise InfeasibleError("with experts placed the first token is late")
    return replace(plan, decision=_decision(fleet, plan), interrupted=any(part.interrupted for part in plans))


def _ordered(plans: Sequence[Plan | None]) -> list[Plan]:
    """Return the plans of pools, those that decode first, the largest first: they tell what users see."""
    roles = ("decode", "both", "prefill")
    ordered = [plan for plan in plans if plan is not None]
    return sorted(ordered, key=lambda plan: (roles.index(plan.role), -plan.layout.gpus_used))


def _placed(
    question: Question, fleet: Fleet, pool: Pool, places: Mapping[Pool, tuple[Stages, ...]]
) -> Plan | None:
    """Return what all replicas of a pool give with experts placed the fast way; None where they miss their limit."""
    loads = question.loads[pool.model]
    try:
        deployment, opts, fits = _fits(question, fleet, pool, places)
        placed = choose_layout(deployment, loads and loads.divided().sampled(FEW_TOKENS), opts, fits)
    except InfeasibleError:
        return None
    return fast_plan(placed, loads)


def _places(fleet: Fleet) -> tuple[dict[Pool, tuple[Stages, ...]], str]:
    """Return the GPUs of the replicas of each pool, beside each other as far as that goes, and what decided."""
    sides = [
        Side(
            pool.role == PREFILL,
            pool.column.requests_per_s,
            tuple(replica.stages for replica in pool.replicas),
        )
        for pool in fleet.pools
    ]
    apart = {pool.role for pool in fleet.pools} == {PREFILL, DECODE}
    alone = len({pool.model for pool in fleet.pools}) == 1
    if not (apart and alone):
        return {pool: side.workers for pool, side in zip(fleet.pools, sides, strict=True)}, ""
    moved, words = paired(fleet.cluster, sides, seed=fleet.options.seed)
    return dict(zip(fleet.pools, moved, strict=True)), words


def _fits(
    question: Question, fleet: Fleet, pool: Pool, places: Mapping[Pool, tuple[Stages, ...]]
) -> tuple[Deployment, PlanOptions, list[Fitted]]:
    """Return the GPUs of a pool, its options, and its layout with each number of copies that it may have."""
    traffic, column, options = fleet.traffic, pool.column, question.options
    deployment = traffic.deployment(pool.model, pool.role)
    deployment, replicas = alone_on(deployment, places[pool])
    opts = replace(options, ttft_s=None, tpot_s=None, goal="throughput")
    if pool.role == PREFILL:
        opts, deployment = (replace(opts, split=options.prefill_split), deployment.with_batch(column.batch))
    elif math.isfinite(column.limit_s):
        opts = replace(opts, tpot_s=column.limit_s * (1 + ROUNDING) / deployment.workload.tokens_per_step)
    else:
        deployment = deployment.with_batch(column.batch)
    return (
        deployment,
        opts,
        fits_of(deployment, Shape(replicas, column.tp, dcp=column.dcp, pcp=column.pcp), None, opts),
    )


def _asked(question: Question, fleet: Fleet, simple: Plan | None) -> Asked:
    """Return what was asked for, with what is known of one layout a pool."""
    names = [deployment.model.name for deployment in question.deployments]
    traffic, lengths = fleet.traffic, question.lengths
    if simple is not None and simple.requests is not None:
        return simple.requests
    return Asked(
        isl=None if lengths is None else lengths.isl[0],
        osl=None if lengths is None else lengths.osl[0],
        shares=dict(zip(names, question.shares, strict=True)) if len(names) > 1 else {},
        tpot_limit_s=traffic.tpot_s,
        ttft_limit_s=traffic.ttft_s,
        defaults=tuple(sorted(question.limits.usual)),
        left_out=fleet.notes,
    )


def _cost(plan: Plan, goal: str) -> float:
    """Return what is to be least: by the goal, of a token where it is no throughput."""
    totals = plan.totals
    used = totals if totals.used is None else totals.used
    if goal == "usd":
        return used.usd_per_million_tokens or math.inf
    if goal == "power":
        return 1 / (used.tok_s_per_mw or math.ulp(0.0))
    return -totals.tok_s if goal == "throughput" else 1 / used.tok_s_per_gpu


def _decision(fleet: Fleet, plan: Plan) -> Decision:
    """Return what CP-SAT decided, and proved of it; rates are those of plans."""
    proof, tok_s, ids = fleet.proof, plan.totals.tok_s, [gpu.id for gpu in fleet.cluster.gpus]
    status, objective, bound, gap = proof.status, proof.objective, proof.bound, proof.gap
    if fleet.options.goal == "throughput":
        objective, bound = tok_s, max(bound, tok_s)
        gap = 1 - objective / bound
        status = "OPTIMAL" if status == "OPTIMAL" and gap <= _PRICED_OFF else "FEASIBLE"
    idle = tuple(Idle(tuple(ids[gpu] for gpu in entry.gpus), entry.reason) for entry in fleet.idle)
    return Decision(DECIDED, fleet.search, status, objective, bound, gap, fleet.unit, idle)
