"""Make a plan: find the layout, split the layers, place the experts, compare with the rivals, verify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cost.assignment import Assignment
from cost.deployment import Deployment
from cost.dispatch import Split
from cost.loads import ExpertLoads
from cost.score import Score
from placement.bisection import last_where
from placement.experts import OnProgress
from placement.failures import find_failures
from placement.fit import fastest_step_s, refuse_capacity, refuse_layout, refuse_speed
from placement.options import AUTO, PlanOptions
from placement.placing import cut_short, place_group, stage_groups
from placement.plan import (
    BaselineScore,
    Plan,
    Proof,
    placement_scorer,
    score_placement,
)
from placement.result import ExpertResult
from placement.search import candidates, fitted_layouts
from placement.verify_plan import verify_plan
from topology.errors import InputError

Known = dict[tuple[object, ...], ExpertResult]
Say = Callable[[str], None]

if TYPE_CHECKING:
    from placement.placing import StageGroup
    from placement.redundancy import RedundancyCurve
    from placement.search import Candidate, Fitted


MOST_PLACED = 80
"""Fast layouts whose experts are really placed before the best of them is taken, or a time per token given up."""


_OVERLOOKED = 0.01  # of the throughput


@dataclass(frozen=True, eq=False)
class Placed:
    """A candidate with its experts placed; ``results`` has one entry for each group of stages that are alike.

    ``passed_over`` is a faster one that a simpler was taken for; None where there is none.
    """

    candidate: Candidate
    experts: tuple[Assignment | None, ...]
    groups: tuple[StageGroup, ...]
    results: tuple[ExpertResult, ...]
    score: Score
    balancedness: dict[int, float]
    passed_over: Placed | None = None


def make_plan(
    deployment: Deployment,
    loads: ExpertLoads | None,
    options: PlanOptions,
    *,
    on_progress: OnProgress | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Plan:
    """Return a verified plan.

    Raises
    ------
    InputError
        If the number of copies is to be chosen for a model without experts.
    InfeasibleError
        If nothing fits in HBM, or no layout meets the time per token: with the limit that binds, by how much,
        and what would fit.
    """
    say = on_stage or (lambda _: None)
    asked, curve = options, None
    if options.redundant == AUTO:
        say("choosing the number of copies")
        curve = _curve(deployment, loads, options)
        asked, options = replace(options, redundant=curve.best.redundant), curve.asked(options)
    say("comparing layouts")
    fast = choose_layout(deployment, loads, options)
    say("placing experts")
    limit = options.time_limit_s
    try:
        placed = _place(
            fast.candidate, loads, options, time_limit_s=limit, thorough=True, on_progress=on_progress
        )
    except KeyboardInterrupt:
        placed = _cut_short(fast, loads, options)
    plan = _finish(placed, loads, options, say)
    interrupted = plan.interrupted or (curve is not None and curve.interrupted)
    plan = replace(
        plan,
        options=asdict(asked),
        redundancy=curve,
        interrupted=interrupted,
        passed_over=_passed_over(fast, deployment),
    )
    wrong = verify_plan(plan)
    if wrong:
        raise AssertionError(f"the planner made an illegal plan, please report it: {wrong[0]}")
    return plan


def _passed_over(chosen: Placed, deployment: Deployment) -> str:
    """Say which layout is faster by the estimate, by more than anybody would overlook; empty if none is."""
    faster = chosen.passed_over
    if faster is None or faster.score.tok_s_per_gpu < chosen.score.tok_s_per_gpu * (1 + _OVERLOOKED):
        return ""
    layout = faster.candidate.layout
    ep = f"--ep {layout.ep} " if deployment.model.moe is not None else ""
    speed, gain = faster.score.tok_s_per_gpu, faster.score.tok_s_per_gpu / chosen.score.tok_s_per_gpu - 1
    return (
        f"{layout.short(moe=deployment.model.moe is not None)} is estimated at {speed:,.0f} tok/s/GPU "
        f"({gain:+.0%}): {ep}--tp {layout.tp} --stages {layout.stages}"
    )


def _curve(deployment: Deployment, loads: ExpertLoads | None, options: PlanOptions) -> RedundancyCurve:
    """Throughput against copies, of a model with experts."""
    from placement.redundancy import choose_redundant

    if loads is None:
        raise InputError(
            f"--redundant auto: {deployment.model.name} has no experts to copy; leave --redundant out."
        )
    return choose_redundant(deployment, loads, options)


def choose_layout(
    deployment: Deployment,
    loads: ExpertLoads | None,
    options: PlanOptions,
    layouts: Sequence[Fitted] | None = None,
    known: Known | None = None,
) -> Placed:
    """Return the simplest layout, its experts placed the fast way, that is about as fast as the fastest.

    Candidates come with their score under perfect balance, fastest first. They are placed in that order until
    none can be faster than the best of those placed. Those alike to it are tried from the simplest on, until
    one is still alike with experts really placed. ``layouts`` are those of
    :func:`placement.search.fitted_layouts`, if they are known already; ``known`` keeps fast placements for
    another choice on the same cluster and loads.

    Raises
    ------
    InfeasibleError
        If nothing fits in HBM, or with experts really placed nothing meets the time per token.
    """
    if layouts is None:
        layouts = fitted_layouts(deployment, options.copies, options.spread)
    if not layouts:
        refuse_capacity(deployment, options.copies, options.spread)
    asked = [fit for fit in layouts if options.admits(fit.layout)]
    if not asked:
        refuse_layout(deployment, options, layouts)
    found = candidates(deployment, asked, options.tpot_s)
    if not found:
        refuse_speed(deployment, options, fastest_step_s(asked))
    known = {} if known is None else known
    best = _fastest(found, loads, options, known)
    enough = (1 - options.alike) * best.score.tok_s_per_gpu
    for candidate in sorted(found, key=lambda candidate: candidate.simplicity):
        if candidate is best.candidate or candidate.score.tok_s_per_gpu < enough:
            continue
        if candidate.simplicity >= best.candidate.simplicity:
            break
        trial = _place(candidate, loads, options, known=known)
        meets = options.tpot_s is None or trial.score.tpot_s <= options.tpot_s
        if meets and trial.score.tok_s_per_gpu >= enough:
            return replace(trial, passed_over=best)
    return best


def _fastest(
    found: Sequence[Candidate], loads: ExpertLoads | None, options: PlanOptions, known: Known
) -> Placed:
    """Return the fastest of the first candidates with experts really placed; no placement beats perfect balance.

    Raises
    ------
    InfeasibleError
        If with experts really placed nothing meets the time per token.
    """
    best: Placed | None = None
    missed: list[Placed] = []
    for candidate in found[:MOST_PLACED]:
        if best is not None and candidate.score.tok_s_per_gpu <= best.score.tok_s_per_gpu:
            break
        trial = _place(candidate, loads, options, known=known)
        if options.tpot_s is not None and trial.score.tpot_s > options.tpot_s:
            missed.append(trial)
        elif best is None or trial.score.tok_s_per_gpu > best.score.tok_s_per_gpu:
            best = trial
    if best is None:
        nearest = min(missed, key=lambda trial: trial.score.tpot_s)
        refuse_speed(nearest.candidate.deployment, options, nearest.score.tpot_s)
    return best


def _place(
    candidate: Candidate,
    loads: ExpertLoads | None,
    options: PlanOptions,
    *,
    time_limit_s: float = 0.0,
    thorough: bool = False,
    on_progress: OnProgress | None = None,
    known: Known | None = None,
) -> Placed:
    """Place the experts of a candidate, see :func:`placement.placing.place_group`.

    ``known`` holds fast placements: layouts that differ elsewhere share them.
    """
    deployment, layout = candidate.deployment, candidate.layout
    experts: list[Assignment | None] = [None] * layout.stages
    results = []
    groups = [] if loads is None else stage_groups(candidate, options)
    for group in groups:
        result = None if known is None else known.get(group.key)
        if result is None and loads is not None:
            result = place_group(
                deployment,
                group,
                loads,
                options,
                time_limit_s=time_limit_s / len(groups),
                thorough=thorough,
                on_progress=on_progress,
            )
            if known is not None:
                known[group.key] = result
        if result is not None:
            results.append(result)
            for index, part in group.by_stage(result.assignment):
                experts[index] = part
    # an LP is never behind an even split, and takes too long for every layout that is tried
    split = "even" if options.split == "lp" and not thorough else options.split
    candidate = _within_tpot(candidate, experts, loads, options.tpot_s, split)
    score, balancedness = score_placement(candidate.deployment, layout, experts, loads, split)
    return Placed(candidate, tuple(experts), tuple(groups), tuple(results), score, balancedness)


def _cut_short(fast: Placed, loads: ExpertLoads | None, options: PlanOptions) -> Placed:
    """Return the placement that chose the layout, judged as the one wanted would be."""
    if loads is None:
        return fast
    results = tuple(
        cut_short(group, loads, options, result)
        for group, result in zip(fast.groups, fast.results, strict=True)
    )
    deployment, layout = fast.candidate.deployment, fast.candidate.layout
    score, balancedness = score_placement(deployment, layout, fast.experts, loads, options.split)
    return replace(fast, results=results, score=score, balancedness=balancedness)


def _within_tpot(
    candidate: Candidate,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads | None,
    tpot_s: float | None,
    split: Split,
) -> Candidate:
    """Return the candidate at the largest batch that meets the time per token with its experts as placed."""
    if tpot_s is None or candidate.fitted.fixed:
        return candidate
    scorer = placement_scorer(candidate.deployment, candidate.layout, experts, loads, split)
    batch = candidate.deployment.workload.batch
    if scorer.at(batch).tpot_s <= tpot_s:
        return candidate
    within = last_where(1, batch, lambda fewer: scorer.at(fewer).tpot_s <= tpot_s)
    return replace(candidate, deployment=candidate.deployment.with_batch(within))


def _finish(placed: Placed, loads: ExpertLoads | None, options: PlanOptions, say: Say) -> Plan:
    candidate = placed.candidate
    notes = [note for result in placed.results for note in result.log]
    interrupted = any(result.interrupted for result in placed.results)
    scenarios = None
    if loads is not None and len(loads.tokens) > 1 and placed.results and not interrupted:
        from placement.left_out import check_scenarios

        say("leaving out each of the loads")
        scenarios, interrupted = check_scenarios(candidate, placed.groups, placed.experts, loads, options)
    plan = Plan(
        deployment=candidate.deployment,
        layout=candidate.layout,
        experts=placed.experts,
        loads=loads,
        score=placed.score,
        balancedness=placed.balancedness,
        proof=_proof(placed.results),
        baselines={**_baselines(placed, loads, options), **_without_spread(placed, loads, options)},
        notes=tuple(dict.fromkeys(notes)),
        options=asdict(options),
        interrupted=interrupted,
        scenarios=scenarios,
    )
    say("losing GPUs, nodes and racks")
    try:
        return replace(plan, failures=find_failures(plan))
    except KeyboardInterrupt:
        return replace(plan, interrupted=True)


def _proof(results: Sequence[ExpertResult]) -> Proof:
    """Join the proofs: objective and bound are means over all layers."""
    if not results:
        return Proof("OPTIMAL", 1.0, 1.0, 0.0)
    objective = float(np.concatenate([result.max_load for result in results]).mean())
    bound = float(np.concatenate([result.bound for result in results]).mean())
    status = "OPTIMAL" if all(result.status == "OPTIMAL" for result in results) else "FEASIBLE"
    return Proof(status, objective, bound, max(0.0, 1 - bound / objective))


def _without_spread(
    placed: Placed, loads: ExpertLoads | None, options: PlanOptions
) -> dict[str, BaselineScore]:
    """Score what would be without failure domains, so that everybody sees what the rule costs."""
    if options.spread == "gpu" or loads is None or not placed.results:
        return {}
    free = _place(placed.candidate, loads, replace(options, spread="gpu"), thorough=len(loads.tokens) > 1)
    deployment, layout = placed.candidate.deployment, placed.candidate.layout
    score, balancedness = score_placement(deployment, layout, free.experts, loads, options.split)
    return {"without_spread": BaselineScore("", balancedness, score)}


def _baselines(placed: Placed, loads: ExpertLoads | None, options: PlanOptions) -> dict[str, BaselineScore]:
    """Score each rival under the same layout, batch, loads and split."""
    if not placed.results or loads is None:
        return {}
    deployment, layout = placed.candidate.deployment, placed.candidate.layout
    scored = {}
    for name in placed.results[0].baselines:
        experts: list[Assignment | None] = list(placed.experts)
        reason = ""
        for group, result in zip(placed.groups, placed.results, strict=True):
            rival = result.baselines[name]
            if rival.assignment is None:
                reason = rival.reason
                break
            for index, part in group.by_stage(rival.assignment):
                experts[index] = part
        if reason:
            scored[name] = BaselineScore(reason)
            continue
        score, balancedness = score_placement(deployment, layout, experts, loads, options.split)
        scored[name] = BaselineScore("", balancedness, score)
    return scored
