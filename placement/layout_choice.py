"""Choose a layout: candidates under perfect balance, fastest first, then with their experts really placed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cost.assignment import Assignment
from cost.deployment import Deployment
from cost.layout import Layout
from cost.loads import ExpertLoads
from cost.score import LayoutScorer, Score
from placement.arrays import Ints
from placement.fitting import Fitted, fitted_layouts
from placement.infeasible import fastest_step_s, refuse_capacity, refuse_layout, refuse_speed
from placement.options import PlanOptions
from placement.partition import last_within
from placement.placing import Known, StageGroup, place_stages
from placement.result import ExpertResult
from placement.scoring import placement_scorer
from placement.stop import Stop

MOST_PLACED = 80
"""Fast layouts whose experts are really placed before the best of them is taken, or a time per token given up."""


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
    :func:`placement.fitting.fitted_layouts`, if they are known already; ``known`` keeps fast placements for
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
        trial = place(candidate, loads, options, known=known)
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
        trial = place(candidate, loads, options, known=known)
        if options.tpot_s is not None and trial.score.tpot_s > options.tpot_s:
            missed.append(trial)
        elif best is None or trial.score.tok_s_per_gpu > best.score.tok_s_per_gpu:
            best = trial
    if best is None:
        nearest = min(missed, key=lambda trial: trial.score.tpot_s)
        refuse_speed(nearest.candidate.deployment, options, nearest.score.tpot_s)
    return best


def place(
    candidate: Candidate,
    loads: ExpertLoads | None,
    options: PlanOptions,
    *,
    stop: Stop | None = None,
    thorough: bool = False,
    known: Known | None = None,
) -> Placed:
    """Place the experts of a candidate (:func:`placement.placing.place_stages`).

    It has the largest batch, up to the candidate's, that meets the time per token with its experts as placed.
    """
    deployment, layout = candidate.deployment, candidate.layout
    experts: list[Assignment | None] = [None] * layout.stages
    groups: list[StageGroup] = []
    results: list[ExpertResult] = []
    if loads is not None:
        experts, groups, results = place_stages(
            deployment, layout, candidate.slots, loads, options, stop, thorough=thorough, known=known
        )
    # an LP is never behind an even split, and takes too long for every layout that is tried
    split = "even" if options.split == "lp" and not thorough else options.split
    scorer, balancedness = placement_scorer(deployment, layout, experts, loads, split)
    batch = deployment.workload.batch
    if options.tpot_s is not None and not candidate.fitted.fixed:
        batch = max(1, batch_within(scorer, batch, options.tpot_s))
    if batch != deployment.workload.batch:  # how fast unlike GPUs are depends on it
        candidate = replace(candidate, deployment=deployment.with_batch(batch))
        scorer, balancedness = placement_scorer(candidate.deployment, layout, experts, loads, split)
    return Placed(candidate, tuple(experts), tuple(groups), tuple(results), scorer.at(batch), balancedness)


def batch_within(scorer: LayoutScorer, most: int, tpot_s: float | None, *, least: int = 1) -> int:
    """Return the largest batch from ``least`` to ``most`` whose step takes at most ``tpot_s``; 0 if none does."""
    if tpot_s is None or scorer.at(most).tpot_s <= tpot_s:
        return most
    if least >= most or scorer.at(least).tpot_s > tpot_s:
        return 0
    return last_within(least, most, lambda batch: scorer.at(batch).tpot_s, tpot_s)


LOST_AT_MOST = 0.4
"""A layout this far behind the best under perfect balance is not searched for its batch: imbalance seldom costs
the best that much."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A layout at a batch, with its score under perfect balance."""

    fitted: Fitted
    deployment: Deployment
    score: Score

    @property
    def layout(self) -> Layout:
        """The layout."""
        return self.fitted.layout

    @property
    def slots(self) -> tuple[Ints, ...]:
        """Slots of each GPU of each stage."""
        return self.fitted.slots

    @property
    def simplicity(self) -> tuple[int, bool, int, int]:
        """Smaller is simpler: as :attr:`Layout.simplicity`, but not where most copies would be redundant ones."""
        moe = self.deployment.model.moe
        crowded = moe is not None and any(int(slots.sum()) > 2 * moe.experts for slots in self.slots)
        tp, groups, stages = self.layout.simplicity
        return tp, crowded, groups, stages


def candidates(deployment: Deployment, layouts: Sequence[Fitted], tpot_s: float | None) -> list[Candidate]:
    """Return the layouts that may be chosen, fastest first (output tokens per second over all GPUs).

    Every layout is scored with ideally balanced experts, which no placement beats: one that loses even so
    need not be placed. With a limit on the time per token each takes its largest batch within it; those that
    cannot come near the best are left out.
    """
    scored = [Candidate(fit, deployment.with_batch(fit.batch), fit.scorer.at(fit.batch)) for fit in layouts]
    scored.sort(key=lambda c: (-c.score.tok_s_per_gpu, c.simplicity))
    if tpot_s is None:
        return scored
    found: list[Candidate] = []
    best = 0.0
    for candidate in scored:
        fit = candidate.fitted
        sequences = (1 - LOST_AT_MOST) * best * tpot_s * len(deployment.cluster.gpus)
        least = fit.batch if fit.fixed else max(1, math.ceil(sequences / fit.layout.gpus_used))
        batch = batch_within(fit.scorer, fit.batch, tpot_s, least=least)
        if batch:
            score = fit.scorer.at(batch)
            best = max(best, score.tok_s_per_gpu)
            found.append(Candidate(fit, deployment.with_batch(batch), score))
    return sorted(found, key=lambda c: (-c.score.tok_s_per_gpu, c.simplicity))
