"""Make a plan: find the layout, split the layers, place the experts, compare with the baselines, verify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cost.experts.loads import ExpertLoads
from cost.experts.tokens.traffic import TokenTraffic
from cost.inputs.deployment import Deployment
from cost.serving.limits import out_of_reach, rounded_up
from placement.analysis.failures import FEW_TOKENS, find_failures
from placement.analysis.redundancy import choose_redundant
from placement.arrays import Floats
from placement.budget import Budget, Cancel
from placement.experts.cross_validation import check_scenarios, how_left_out
from placement.experts.placing import group_problem
from placement.experts.problem import search_state
from placement.experts.result import ExpertResult
from placement.layouts.choose import Placed, choose_layout, largest_batch_held, place
from placement.layouts.fitting import Fitted
from placement.layouts.order import improve_order
from placement.options import AUTO, PlanOptions
from placement.plan import ROUNDING, BaselineScore, Decision, Plan, Proof
from placement.plans.findings import TrafficReport
from placement.progress import OnProgress, Say
from placement.scoring import ExpertPlacement, score_placement, score_rivals
from placement.traffic.choose import choose_by_traffic, place_by_all
from placement.verify import verify_plan
from topology.base.errors import InputError, called, input_name

Rival = Callable[[Plan], Plan | Decision | None]
"""Returns a better plan than one, or how it was decided that there is none."""
_MIN_FASTER = 0.001  # of the goal's figure


def make_plan(
    deployment: Deployment,
    loads: ExpertLoads | None,
    options: PlanOptions | None = None,
    *,
    on_progress: OnProgress | None = None,
    on_stage: Callable[[str], None] | None = None,
    cancel: Cancel | None = None,
    layouts: Sequence[Fitted] | Placed | None = None,
    rival: Rival | None = None,
) -> Plan:
    """Return a verified plan, with one of ``layouts`` if given, or with the one that was chosen.

    ``on_progress`` hears layers done, all layers, objective, bound and seconds, at the end of the search too;
    ``cancel`` ends it as Ctrl-C does: the best plan so far is finished the fast way. ``rival`` is asked once the
    layout is chosen, before its experts are searched for: it returns a better plan, or what was decided.

    Raises
    ------
    CancelledError
        If ``cancel`` says so before there is a plan.
    InputError
        If a model with experts comes without loads, or the number of copies is to be chosen for one without experts.
    InfeasibleError
        If nothing fits in HBM, or no layout meets the time per token: with the limit that binds, by how much,
        and what would fit.
    """
    model, say = deployment.model, on_stage or (lambda _: None)
    options = options or PlanOptions()
    if model.moe is not None and loads is None:
        raise InputError(
            f"{model.name} has {model.moe.experts} routed experts per layer, placed by their loads; give "
            "rackplan.make_loads(model, ...), a file, an array or a generator such as lognormal:0.63.",
            field="loads",
            value="None",
        )
    request, curve, budget = (options, None, Budget(options.time_limit_s, on_progress, cancel=cancel))
    judged = loads and loads.divided()
    if judged is not None and not judged.routing:
        loads = judged
    sampled = judged and judged.sampled(FEW_TOKENS)
    if options.redundant == AUTO:
        say("choosing the number of copies")
        if sampled is None:
            raise InputError(
                f"{deployment.model.name} has no experts to replicate; leave out {input_name('redundant')}.",
                field="redundant",
                value="auto",
            )
        curve = choose_redundant(deployment, sampled, options, budget, say)
        request, options = replace(options, redundant=curve.chosen), curve.on_layout(options)
    say("comparing layouts")
    budget.unless_cancelled()
    fast = layouts
    if not isinstance(fast, Placed):
        fast = choose_layout(deployment, sampled, options, fast, say=say)
    decision = closed_by(fast_plan(fast, loads).totals.tok_s, fast.most_tok_s) if fast.most_tok_s else None
    if rival is not None:
        answer = rival(replace(fast_plan(fast, loads), decision=decision))
        if isinstance(answer, Plan):
            return answer
        decision = answer
    with budget.keeping():  # that is an answer
        order = None
        if layouts is None:
            with budget:
                fast, order = improve_order(deployment, fast, sampled, options, budget)
        placed, report, traffic = _placed(fast, loads, judged, options, budget, say)
        plan = _finish(placed, loads, judged, options, budget, say)
        plan = replace(
            plan,
            by_traffic=report,
            traffic=traffic,
            request=request,
            redundancy=curve,
            order=order,
            passed_over=_passed_over(fast, deployment),
            service_level=fast.service_level,
            limit_s=fast.candidate.limit_s,
            decision=decision and reached_by(decision, plan.totals.tok_s),
            apart=fast.apart,
        )
        violations = verify_plan(plan)
        if violations:
            raise AssertionError(f"the planner made an illegal plan, please report it: {violations[0]}")
    if plan.over_limit and not (budget.interrupted or options.service_level(deployment.workload).usual):
        nearest = rounded_up(plan.score.tpot_s * 1e3)
        best = f"with experts placed under these loads the nearest layout takes {nearest} ms"
        option = "tpot_ms" if deployment.workload.decodes else "ttft_ms"
        raise out_of_reach("limit_s", option, plan.limit_s or 0.0, deployment.cluster.name, best)
    return replace(plan, interrupted=budget.interrupted)


def fast_plan(fast: Placed, loads: ExpertLoads | None) -> Plan:
    """Return a layout with its experts placed the fast way as a plan: what it serves is known, and no more."""
    where, nothing = fast.candidate, Proof("FEASIBLE", 1.0, 1.0, 0.0)
    return Plan(
        where.deployment,
        where.layout,
        fast.experts,
        loads,
        fast.score,
        fast.balancedness,
        nothing,
        limit_s=where.limit_s,
    )


def reached_by(decision: Decision, tok_s: float) -> Decision:
    """Return a decision on throughput with the figure of the plan that was made by it."""
    bound = max(decision.bound, tok_s)
    return replace(decision, objective=tok_s, bound=bound, gap=1 - tok_s / bound)


def closed_by(tok_s: float, most_tok_s: float, left_out: str = "") -> Decision:
    """Return what is left to decide of one layout a pool, by the bound over all layouts that were priced.

    ``left_out``: what the bound does not cover, in words.
    """
    bound = max(tok_s, most_tok_s)
    return Decision(
        what="which replicas of which layouts stand on which domains",
        search="no call of CP-SAT: no mix of the layouts that were priced serves more than the bound"
        + left_out,
        status="OPTIMAL" if tok_s >= bound * (1 - ROUNDING) else "FEASIBLE",
        objective=tok_s,
        bound=bound,
        gap=1 - tok_s / bound,
        unit="output tok/s",
    )


def _placed(
    fast: Placed,
    loads: ExpertLoads | None,
    judged: ExpertLoads | None,
    options: PlanOptions,
    budget: Budget,
    say: Say,
) -> tuple[Placed, TrafficReport | None, TokenTraffic | None]:
    """Return the experts placed by ``loads``; with tokens held out in ``judged``, as was best on those."""
    trial, report, traffic = None, None, None
    apart = fast.candidate.layout.apart is not None  # which experts a token needs together matters not
    if judged is not None and judged.routing and not apart:
        trial = place(fast.candidate, judged, options, thorough=True)
        trial, report, traffic = choose_by_traffic(trial, judged, options, budget, say)
    say("placing experts")
    placed = None
    with budget:
        placed = place((trial or fast).candidate, loads, options, budget=budget, thorough=True)
    placed = placed or trial or _cut_short(fast, loads, options)
    results = placed.results
    if results:
        budget.tell(lambda: search_state(*_by_layer(results)), at_once=True)
    if loads is None or apart:
        return placed, None, None
    if trial is None:
        return choose_by_traffic(placed, loads, options, budget, say)
    return *place_by_all(placed, trial, report, loads, options, budget, say), traffic


def _passed_over(chosen: Placed, deployment: Deployment) -> str:
    """Return which layout is better by the estimate, by more than anybody would overlook; empty if none is."""
    better = chosen.passed_over
    if better is None or better.worth[1] < chosen.worth[1] * (1 + _MIN_FASTER):
        return ""
    layout, moe = better.candidate.layout, deployment.model.moe is not None
    ep = f"{called('ep')} {layout.ep} " if moe else ""
    figure = f"{better.score.tok_s_per_gpu:,.0f} tok/s/GPU"
    if better.candidate.aim.goal == "latency":
        figure = f"{better.score.tok_s_per_user:,.1f} tok/s/user"
    gain = better.worth[1] / chosen.worth[1] - 1
    how = f"{ep}{called('tp')} {layout.tp} {called('stages')} {layout.stages}"
    return f"{layout.short(moe=moe)} is estimated at {figure} ({gain:+.1%}): {how}"


def _cut_short(fast: Placed, loads: ExpertLoads | None, options: PlanOptions) -> Placed:
    """Return the placement that chose the layout, judged as the one wanted would be."""
    if loads is None:
        return fast
    results = tuple(
        replace(result.under(group_problem(group, loads, options)), interrupted=True)
        for group, result in zip(fast.groups, fast.results, strict=True)
    )
    candidate, score, balancedness = largest_batch_held(
        fast.candidate, fast.experts, loads, options.split, fair=True
    )
    return replace(fast, candidate=candidate, results=results, score=score, balancedness=balancedness)


def _finish(
    placed: Placed,
    loads: ExpertLoads | None,
    judged: ExpertLoads | None,
    options: PlanOptions,
    budget: Budget,
    say: Say,
) -> Plan:
    candidate = placed.candidate
    notes = [note for result in placed.results for note in result.log]
    scenarios = None
    if loads is not None and len(loads.tokens) > 1 and placed.results and not budget.interrupted:
        say("leaving out each of the loads")
        scenarios = check_scenarios(placed, loads, options, budget, say)
        notes.append(how_left_out(placed))
    baselines = _without_spread(placed, judged, options)
    if judged is not None and placed.results:
        where = candidate.deployment, candidate.layout
        rivals = score_rivals(ExpertPlacement(*where, placed.experts, judged, options.split))
        baselines = {**rivals, **baselines}
    plan = Plan(
        deployment=candidate.deployment,
        layout=candidate.layout,
        experts=placed.experts,
        loads=loads,
        score=placed.score,
        balancedness=placed.balancedness,
        proof=Proof.of_layers(*_by_layer(placed.results))
        if placed.results
        else Proof("OPTIMAL", 1.0, 1.0, 0.0),
        baselines=baselines,
        notes=tuple(dict.fromkeys(notes)),
        request=options,
        scenarios=scenarios,
        search="; ".join(dict.fromkeys(result.search for result in placed.results if result.search)),
    )
    if candidate.layout.apart is not None:
        return replace(plan, notes=(*plan.notes, "with attention apart, failures are not priced"))
    say("losing GPUs, nodes and racks")
    with budget:
        sampled = None if loads is None else loads.sampled(FEW_TOKENS)
        return replace(plan, failures=find_failures(replace(plan, loads=sampled), say))
    return plan


def _by_layer(results: Sequence[ExpertResult]) -> tuple[Floats, Floats]:
    """Largest over mean GPU load of all layers, and what none can be below, ``[layers]``."""
    loads, bounds = zip(*((result.max_load, result.bound) for result in results), strict=True)
    return np.concatenate(loads), np.concatenate(bounds)


def _without_spread(
    placed: Placed, loads: ExpertLoads | None, options: PlanOptions
) -> dict[str, BaselineScore]:
    """Score what would be without failure domains, so that everybody sees what the rule costs."""
    if options.spread == "gpu" or loads is None or not placed.results:
        return {}
    free = place(placed.candidate, loads, replace(options, spread="gpu"), thorough=len(loads.tokens) > 1)
    deployment, layout = placed.candidate.deployment, placed.candidate.layout
    score, balancedness = score_placement(deployment, layout, free.experts, loads, options.split)
    return {"without_spread": BaselineScore("", balancedness, score)}
