"""Make a plan: find the layout, split the layers, place the experts, compare with the rivals, verify."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from cost.assignment import Assignment
from placement.bisection import last_where
from placement.fit import fastest_step_s, refuse_capacity, refuse_layout, refuse_speed
from placement.plan import BaselineScore, Plan, Proof, moe_rows, placement_scorer, score_placement
from placement.problem import expert_problem
from placement.scenarios import over_scenarios
from placement.search import candidates, fitted_layouts
from placement.verify_plan import verify_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cost.loads import ExpertLoads
    from cost.score import Score
    from cost.setting import Setting
    from placement.experts import ExpertResult, OnProgress
    from placement.options import PlanOptions
    from placement.search import Candidate, Fitted

    Known = dict[tuple[bytes, bytes, int], ExpertResult]

__all__ = ["Placed", "choose_layout", "make_plan"]

MOST_PLACED = 80
"""Fast layouts whose experts are really placed before the best of them is taken, or a time per token given up."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A candidate with its experts placed; ``results`` has one entry for each distinct set of slots."""

    candidate: Candidate
    experts: tuple[Assignment | None, ...]
    results: tuple[ExpertResult, ...]
    score: Score
    balancedness: dict[int, float]


def make_plan(
    setting: Setting,
    loads: ExpertLoads | None,
    options: PlanOptions,
    *,
    on_progress: OnProgress | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Plan:
    """Return a verified plan.

    Raises
    ------
    InfeasibleError
        If nothing fits in HBM, or no layout meets the time per token: with the limit that binds, by how much,
        and what would fit.
    """
    say = on_stage or (lambda _: None)
    say("comparing layouts")
    chosen = choose_layout(setting, loads, options).candidate
    say("placing experts")
    placed = _place(chosen, loads, options, time_limit_s=options.time_limit_s, on_progress=on_progress)
    plan = _finish(placed, loads, options)
    wrong = verify_plan(plan)
    if wrong:
        raise AssertionError(f"the planner made an illegal plan, please report it: {wrong[0]}")
    return plan


def choose_layout(
    setting: Setting,
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
        layouts = fitted_layouts(setting, options.copies)
    if not layouts:
        refuse_capacity(setting, options.copies)
    asked = [fit for fit in layouts if options.admits(fit.layout)]
    if not asked:
        refuse_layout(setting, options, layouts)
    found = candidates(setting, asked, options.tpot_s)
    if not found:
        refuse_speed(setting, options, fastest_step_s(asked))
    known = {} if known is None else known
    best = _fastest(found, loads, options, known)
    enough = (1 - options.alike) * best.score.tok_s_per_gpu
    for candidate in sorted(found, key=lambda candidate: candidate.simplicity):
        if candidate is best.candidate or candidate.score.tok_s_per_gpu < enough:
            continue
        if candidate.simplicity >= best.candidate.simplicity:
            break
        trial = _place(candidate, loads, options, time_limit_s=0.0, known=known)
        meets = options.tpot_s is None or trial.score.tpot_s <= options.tpot_s
        if meets and trial.score.tok_s_per_gpu >= enough:
            return trial
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
        trial = _place(candidate, loads, options, time_limit_s=0.0, known=known)
        if options.tpot_s is not None and trial.score.tpot_s > options.tpot_s:
            missed.append(trial)
        elif best is None or trial.score.tok_s_per_gpu > best.score.tok_s_per_gpu:
            best = trial
    if best is None:
        nearest = min(missed, key=lambda trial: trial.score.tpot_s)
        refuse_speed(nearest.candidate.setting, options, nearest.score.tpot_s)
    return best


def _members(candidate: Candidate) -> list[list[int]]:
    """Stages with experts, those with the same slots together."""
    alike: dict[bytes, list[int]] = {}
    for index, slots in enumerate(candidate.slots):
        if moe_rows(candidate.setting, candidate.layout.replicas[0][index].layers):
            alike.setdefault(slots.tobytes(), []).append(index)
    return list(alike.values())


def _place(
    candidate: Candidate,
    loads: ExpertLoads | None,
    options: PlanOptions,
    *,
    time_limit_s: float,
    on_progress: OnProgress | None = None,
    known: Known | None = None,
) -> Placed:
    """Place the experts of a candidate; stages with the same slots are placed together.

    ``known`` holds fast placements by slots, layers and domains: layouts that differ elsewhere share them.
    """
    setting, layout = candidate.setting, candidate.layout
    moe = setting.model.moe
    experts: list[Assignment | None] = [None] * layout.stages
    results = []
    if moe is not None and loads is not None:
        from placement.experts import place_experts

        members = _members(candidate)
        for stages in members:
            rows = [moe_rows(setting, layout.replicas[0][index].layers) for index in stages]
            slots, held = candidate.slots[stages[0]], np.concatenate(rows)
            nodes = len(setting.domain_set(layout.replicas[0][stages[0]]))
            key = slots.tobytes(), held.tobytes(), nodes
            result = None if known is None else known.get(key)
            if result is None:
                result = place_experts(
                    expert_problem(loads.mean[held], slots),
                    time_limit_s=time_limit_s / len(members),
                    seed=options.seed,
                    eplb_groups=moe.groups,
                    nodes=nodes,
                    on_progress=on_progress,
                )
                if loads.tokens.shape[0] > 1:
                    result = over_scenarios(result, loads.normalised[:, held], slots)
                if known is not None:
                    known[key] = result
            results.append(result)
            for index, part in zip(stages, _by_stage(result.assignment, rows), strict=True):
                experts[index] = part
    candidate = _within_tpot(candidate, experts, loads, options.tpot_s)
    score, balancedness = score_placement(candidate.setting, layout, experts, loads)
    return Placed(candidate, tuple(experts), tuple(results), score, balancedness)


def _within_tpot(
    candidate: Candidate,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads | None,
    tpot_s: float | None,
) -> Candidate:
    """Return the candidate at the largest batch that meets the time per token with its experts as placed."""
    if tpot_s is None or candidate.fitted.fixed:
        return candidate
    scorer = placement_scorer(candidate.setting, candidate.layout, experts, loads)
    batch = candidate.setting.workload.batch
    if scorer.at(batch).tpot_s <= tpot_s:
        return candidate
    within = last_where(1, batch, lambda fewer: scorer.at(fewer).tpot_s <= tpot_s)
    return replace(candidate, setting=candidate.setting.with_batch(within))


def _by_stage(assignment: Assignment, rows: Sequence[Sequence[int]]) -> list[Assignment]:
    cuts = np.cumsum([0, *(len(part) for part in rows)])
    return [
        Assignment(assignment.slot_expert[a:b], assignment.slot_gpu, assignment.experts, assignment.gpus)
        for a, b in pairwise(cuts)
    ]


def _finish(placed: Placed, loads: ExpertLoads | None, options: PlanOptions) -> Plan:
    candidate = placed.candidate
    notes = [note for result in placed.results for note in result.log]
    return Plan(
        setting=candidate.setting,
        layout=candidate.layout,
        experts=placed.experts,
        loads=loads,
        score=placed.score,
        balancedness=placed.balancedness,
        proof=_proof(placed.results),
        baselines=_baselines(placed, loads),
        notes=tuple(dict.fromkeys(notes)),
        options=asdict(options),
        interrupted=any(result.interrupted for result in placed.results),
    )


def _proof(results: Sequence[ExpertResult]) -> Proof:
    """Join the proofs: objective and bound are means over all layers."""
    if not results:
        return Proof("OPTIMAL", 1.0, 1.0, 0.0)
    objective = float(np.concatenate([result.max_load for result in results]).mean())
    bound = float(np.concatenate([result.bound for result in results]).mean())
    status = "OPTIMAL" if all(result.status == "OPTIMAL" for result in results) else "FEASIBLE"
    return Proof(status, objective, bound, max(0.0, 1 - bound / objective))


def _baselines(placed: Placed, loads: ExpertLoads | None) -> dict[str, BaselineScore]:
    """Score each rival under the same layout, batch and loads."""
    if not placed.results or loads is None:
        return {}
    setting, layout = placed.candidate.setting, placed.candidate.layout
    scored = {}
    for name in placed.results[0].baselines:
        experts: list[Assignment | None] = list(placed.experts)
        reason = ""
        for result, stages in zip(placed.results, _members(placed.candidate), strict=True):
            rival = result.baselines[name]
            if rival.assignment is None:
                reason = rival.reason
                break
            rows = [moe_rows(setting, layout.replicas[0][index].layers) for index in stages]
            for index, part in zip(stages, _by_stage(rival.assignment, rows), strict=True):
                experts[index] = part
        if reason:
            scored[name] = BaselineScore(reason)
            continue
        score, balancedness = score_placement(setting, layout, experts, loads)
        scored[name] = BaselineScore("", balancedness, score)
    return scored
