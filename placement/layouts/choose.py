"""Choose a layout: candidates under perfect balance, fastest first, then with placed experts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import DispatchPolicy
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.memory.batches import batch_of
from cost.serving.limits import relax_default_limits
from cost.step.score import LayoutScorer, Score
from placement.arrays import Ints
from placement.budget import Budget
from placement.experts.placing import Known, StageGroup, place_stages
from placement.experts.result import ExpertResult
from placement.layouts.apart import apart_fits
from placement.layouts.fitting import Fitted, fitted_layouts
from placement.layouts.goals import (
    Aim,
    aim_of,
    fewer_gpus,
    service_words,
    soon_enough,
    with_parts,
)
from placement.layouts.goals import (
    admitted as fits_among,
)
from placement.layouts.partition import last_within
from placement.layouts.price import LayoutKey, faster_splits, first_tokens, key_of, promised
from placement.layouts.refuse import fastest_step_s, refuse_capacity, refuse_layout, refuse_speed
from placement.layouts.shapes import of_one_kind
from placement.options import AUTO, OFF, PlanOptions, ServiceLevel
from placement.progress import Say, silent
from placement.scoring import ExpertPlacement, placement_scorer
from topology.base.units import plural

MOST_PLACED = 80
"""Fast layouts whose experts are really placed before the best of them is taken, or a time per token given up."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A candidate with its experts placed; ``results`` has one entry for each group of stages that are alike.

    ``passed_over`` is a better one that a simpler was taken for; None where there is none. ``service_level`` says in
    words what it was chosen for. ``most_tok_s`` is what no mix of layouts gives more of on the whole cluster, where
    throughput is the goal and layouts are free; else 0. ``apart`` is as of :attr:`placement.plan.Plan.apart`.
    """

    candidate: Candidate
    experts: tuple[Assignment | None, ...]
    groups: tuple[StageGroup, ...]
    results: tuple[ExpertResult, ...]
    score: Score
    balancedness: dict[int, float]
    passed_over: Placed | None = None
    service_level: str = ""
    most_tok_s: float = 0.0
    apart: str = ""

    @property
    def worth(self) -> tuple[float, float]:
        """As :attr:`Candidate.worth`, with the experts as placed."""
        return self.candidate.aim(self.candidate.layout, self.score)

    @property
    def meets(self) -> bool:
        """Whether it holds the time per token that the candidate must."""
        return self.candidate.limit_s is None or self.score.tpot_s <= self.candidate.limit_s


def choose_layout(
    deployment: Deployment,
    loads: ExpertLoads | None,
    options: PlanOptions,
    layouts: Sequence[Fitted] | None = None,
    known: Known | None = None,
    say: Say = silent,
) -> Placed:
    """Return the simplest layout within the tolerance of the best by the goal, with experts placed by the fast path.

    Candidates come with their score under perfect balance, best first. They are placed in that order until
    none can be better than the best of those placed. Those alike to it are tried from the simplest on, until
    one is still alike with experts really placed. Experts are whole, but where `ep` 1 is asked for, or HBM holds no
    layout of whole ones. ``layouts`` are those of
    :func:`placement.layouts.fitting.fitted_layouts`, if they are known already; ``known`` keeps fast placements for
    another choice on the same cluster and loads; ``say`` is told how many were tried. A time per token that nobody
    asked for gives way where no layout holds it, and the shape of layouts where none that is deployable fits, or has
    the widths that were asked for.

    Raises
    ------
    InputError
        If a limit does not apply, or no figure says what the goal counts.
    InfeasibleError
        If nothing fits in HBM, or with experts really placed nothing holds the limits.
    """
    level, fixed = options.service_level(deployment.workload), layouts is not None
    if layouts is None:
        layouts = fitted_layouts(deployment, options.copies, options.spread, cut_experts=options.cuts_experts)
        if not layouts and deployment.model.moe is not None and not options.cuts_experts:
            layouts = fitted_layouts(deployment, options.copies, options.spread, cut_experts=True)
    tries_apart = options.afd != OFF and deployment.workload.phase == "decode"
    admitted = [fit for fit in layouts if options.admits(fit.layout)]
    if tries_apart and options.afd != AUTO:
        admitted = []
    elif not admitted and not deployment.any_shape:
        any_shape = replace(deployment, any_shape=True) if layouts else deployment.for_want_of_deployable()
        return choose_layout(any_shape, loads, options, None, known, say)
    if not layouts and not tries_apart:
        refuse_capacity(deployment, options.copies, options.spread)
    if not admitted and not tries_apart:
        refuse_layout(deployment, options, layouts)
    aim = aim_of(deployment, options.goal)
    fast: Known = {} if known is None else known

    def within(level: ServiceLevel) -> Placed:
        apart, most_apart_tok_s = list[Fitted](), 0.0
        if tries_apart:
            apart, most_apart_tok_s = apart_fits(deployment, options, level.limit_s)
        offered, first_s_of = _offered(deployment, [*admitted, *apart], level, options)
        ranked, best, most_tok_s = _ranked(deployment, offered, level.limit_s, aim, options, loads, fast, say)
        if best is None:
            refuse_speed(deployment, level.limit_s, fastest_step_s(offered))
        if not best.meets:
            refuse_speed(best.candidate.deployment, level.limit_s, best.score.tpot_s)
        chosen = _simplest(best, ranked, loads, options, fast)
        fastest_s = fastest_step_s(offered) if level.usual and level.limit_s is None else 0.0
        first_s = first_s_of.get(key_of(chosen.candidate.layout))
        words = service_words(deployment, options, level.limit_s, fastest_s, first_s)
        free = deployment.workload.decodes and not (fixed or options.widths or deployment.workload.batch)
        most = max(most_tok_s, most_apart_tok_s) if free else 0.0
        words_apart = _other_kind(chosen, ranked)
        return replace(chosen, service_level=words, most_tok_s=most, apart=words_apart)

    return relax_default_limits(within, level, {"limit_s"} if level.usual else ())[0]


def _other_kind(chosen: Placed, ranked: Sequence[Candidate]) -> str:
    """Return what the best layout is estimated at with attention apart, or together where apart was chosen."""
    together = chosen.candidate.layout.apart is None
    others = [trial for trial in ranked if (trial.layout.apart is None) != together]
    if not others:
        return ""
    best, gain = others[0], others[0].score.tok_s_per_gpu / chosen.score.tok_s_per_gpu - 1
    turns = best.layout.apart and f" in {plural(best.layout.apart.micro_batches, 'micro-batch')}"
    kind = "attention apart from the experts" if together else "attention and experts on the same GPUs"
    return (
        f"The best layout with {kind}, {best.layout.short(moe=True)}{turns or ''}, is estimated at "
        f"{best.score.tok_s_per_gpu:,.0f} tok/s/GPU ({gain:+.1%}) for decode on these GPUs"
    )


def _offered(
    deployment: Deployment, admitted: Sequence[Fitted], level: ServiceLevel, options: PlanOptions
) -> tuple[list[Fitted], dict[LayoutKey, float]]:
    """Return the layouts that the goal chooses from, soon enough with the first token, and by shape how soon."""
    offered, first_s_of = list(admitted), dict[LayoutKey, float]()
    if options.goal == "gpus":
        offered += fewer_gpus(deployment, admitted, level.limit_s, options)
    elif options.goal in ("usd", "power"):
        # kinds together never cost less than the best of them
        offered += fits_among(deployment, of_one_kind(deployment), options)
    if level.first_s is not None:
        arranged = dict.fromkeys(cut for fit in offered if fit.shape and (cut := fit.shape.what))
        first_s_of = first_tokens(deployment, options.copies, list(arranged))
        offered = soon_enough(deployment, offered, first_s_of, level.first_s)
    return with_parts(deployment, offered, options.goal), first_s_of


def _ranked(
    deployment: Deployment,
    layouts: Sequence[Fitted],
    limit_s: float | None,
    aim: Aim,
    options: PlanOptions,
    loads: ExpertLoads | None,
    known: Known,
    say: Say,
) -> tuple[list[Candidate], Placed | None, float]:
    """Return the layouts that may be chosen, best first, and the best with experts placed; None where nothing is.

    And the tok/s that all GPUs would give as the best layout gives on those that it uses: 0 where nobody knows.
    For throughput a sweep says first what each can be at best; those that are behind what was found are left out.
    """
    promise = np.full(len(layouts), np.inf)
    if aim.goal == "throughput":
        promise = promised(deployment, layouts, limit_s, options.copies)
    finite = promise[np.isfinite(promise)]
    floor = (1 - LOOKED_AT_FIRST) * float(finite.max(initial=0.0))
    count = len(deployment.cluster.gpus)
    alone = (
        rate * count**2 / fit.layout.gpus_used for fit, rate in zip(layouts, promise.tolist(), strict=True)
    )
    most_tok_s = max(filter(math.isfinite, alone), default=0.0)
    while True:
        able = [fit for fit, rate in zip(layouts, promise.tolist(), strict=True) if rate >= floor]
        ranked = _candidates(deployment, able, limit_s, aim, options)
        best = _best(ranked, loads, options, known, say) if ranked else None
        needed = 0.0
        if best is not None and best.meets:
            needed = (1 - PROMISE_OFF) * (1 - options.tolerance) * best.worth[1]
        if len(able) == len(layouts) or floor <= needed:
            return ranked, best, most_tok_s
        floor = needed


def _candidates(
    deployment: Deployment, layouts: Sequence[Fitted], limit_s: float | None, aim: Aim, options: PlanOptions
) -> list[Candidate]:
    """Return the layouts that may be chosen, best first, those of several stages split for the limit too."""
    ranked = candidates(deployment, layouts, limit_s, aim)
    if not ranked:
        return []
    level, value = ranked[0].worth
    enough = level, (1 - GAINED_AT_MOST) * value
    near = [candidate.fitted for candidate in ranked if candidate.worth >= enough]
    splits = faster_splits(deployment, near, limit_s, options.copies, fewest=aim.goal == "latency")
    split_again = with_parts(deployment, splits, aim.goal)
    best = max(candidate.score.tok_s_per_gpu for candidate in ranked)
    return sorted([*ranked, *candidates(deployment, split_again, limit_s, aim, best)], key=_order)


def _simplest(
    best: Placed, ranked: Sequence[Candidate], loads: ExpertLoads | None, options: PlanOptions, known: Known
) -> Placed:
    """Return the simplest candidate that with its experts placed is within the tolerance of ``best``."""
    level, value = best.worth
    enough = level, (1 - options.tolerance) * value
    for candidate in sorted(ranked, key=lambda candidate: candidate.simplicity):
        if candidate is best.candidate or candidate.worth < enough:
            continue
        if candidate.simplicity >= best.candidate.simplicity:
            break
        trial = place(candidate, loads, options, known=known)
        if trial.meets and trial.worth >= enough:
            return replace(trial, passed_over=best)
    return best


def _best(
    ranked: Sequence[Candidate], loads: ExpertLoads | None, options: PlanOptions, known: Known, say: Say
) -> Placed:
    """Return the best of the first candidates with experts really placed.

    No placement beats perfect balance, but where tokens are so few that some experts are not read. Where none of them
    holds the time per token, it is that which comes nearest.
    """
    best: Placed | None = None
    missed: list[Placed] = []
    tried = min(MOST_PLACED, len(ranked))
    for number, candidate in enumerate(ranked[:MOST_PLACED], 1):
        if best is not None and candidate.worth <= best.worth:
            break
        say(f"comparing layouts: experts of {number}, at most {tried} of {len(ranked)}")
        trial = place(candidate, loads, options, known=known)
        if not trial.meets:
            missed.append(trial)
        elif best is None or trial.worth > best.worth:
            best = trial
    return best or min(missed, key=lambda trial: trial.score.tpot_s)


def place(
    candidate: Candidate,
    loads: ExpertLoads | None,
    options: PlanOptions,
    *,
    budget: Budget | None = None,
    thorough: bool = False,
    known: Known | None = None,
) -> Placed:
    """Place the experts of a candidate (:func:`.place_stages`), at :func:`largest_batch_held`."""
    deployment, layout = candidate.deployment, candidate.layout
    experts: list[Assignment | None] = [None] * layout.stages
    groups: list[StageGroup] = []
    results: list[ExpertResult] = []
    if loads is not None and layout.moe_tp == 1:
        experts, groups, results = place_stages(
            deployment, layout, candidate.slots, loads, options, budget, thorough=thorough, known=known
        )
    # an LP is never behind an even split, and takes too long for every layout that is tried
    split = "even" if options.split == "lp" and not thorough else options.split
    candidate, score, balancedness = largest_batch_held(candidate, experts, loads, split, fair=thorough)
    return Placed(candidate, tuple(experts), tuple(groups), tuple(results), score, balancedness)


def largest_batch_held(
    candidate: Candidate,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads | None,
    split: DispatchPolicy,
    *,
    fair: bool,
) -> tuple[Candidate, Score, dict[int, float]]:
    """Return a candidate at the largest batch that holds its time per token with these experts, as they score there.

    That is up to :attr:`Candidate.most`, not up to the batch that perfect balance holds: where tokens are few, skewed
    loads leave some experts unread. It is the smallest where nothing holds the time. Balancedness is by layer.
    """
    limit, limit_s = candidate.most, candidate.limit_s
    while True:
        deployment = candidate.deployment
        batch = deployment.workload.batch
        placed = ExpertPlacement(deployment, candidate.layout, experts, loads, split)
        scorer, balancedness = placement_scorer(placed, fair=fair)
        held = batch
        if limit_s is not None and not candidate.fitted.fixed:
            held = _held_near(scorer, batch, min(limit, scorer.max_batch), limit_s)
        if held == batch:
            return candidate, scorer.at(batch), balancedness
        # how fast unlike GPUs are depends on the batch: score again, from here on only downwards
        candidate, limit = replace(candidate, deployment=deployment.with_batch(held)), held


def _held_near(scorer: LayoutScorer, batch: float, limit: float, limit_s: float) -> float:
    """As :func:`batch_within`, at least one sequence a group, where the answer is expected to be ``batch``."""
    if scorer.at(batch).tpot_s > limit_s:
        return batch_within(scorer, batch, limit_s) or batch_of(1, scorer.tp)
    larger = batch_of(1 + round(batch * scorer.tp), scorer.tp)
    if batch >= limit or scorer.at(larger).tpot_s > limit_s:
        return batch
    return batch_within(scorer, limit, limit_s, least=larger)


def batch_within(scorer: LayoutScorer, limit: float, tpot_s: float | None, *, least: float = 0.0) -> float:
    """Return the largest batch from ``least`` to ``limit`` whose step takes at most ``tpot_s``; 0 if none does.

    Attention groups have whole sequences, at least one.
    """
    if tpot_s is None or scorer.at(limit).tpot_s <= tpot_s:
        return limit
    tp = scorer.tp
    fewest, largest = max(1, math.ceil(least * tp)), round(limit * tp)

    def seconds(sequences: int) -> float:
        return scorer.at(batch_of(sequences, tp)).tpot_s

    if fewest >= largest or seconds(fewest) > tpot_s:
        return 0
    return batch_of(last_within(fewest, largest, seconds, tpot_s), tp)


LOOKED_AT_FIRST = 0.1
"""A layout that promises so much less than the best is looked at only where placement costs as much."""
PROMISE_OFF = 0.01
"""How far a score may be above what a sweep says: they are alike but for rounding."""
GAINED_AT_MOST = 0.4
"""A layout this far behind the best has its layers not split again: no split gains that much."""
LOST_AT_MOST = 0.4
"""A layout this far behind the best under perfect balance is not searched for its batch: imbalance seldom costs
the best that much."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A layout at a batch, with its score under perfect balance.

    ``limit_s`` is the time per token that it must hold, None for none; ``aim`` says how good it is by the goal.
    """

    fitted: Fitted
    deployment: Deployment
    score: Score
    limit_s: float | None
    aim: Aim

    @property
    def layout(self) -> Layout:
        """The layout."""
        return self.fitted.layout

    @cached_property
    def worth(self) -> tuple[float, float]:
        """Quality by the goal, larger is better: a level, and a figure within the level."""
        return self.aim(self.layout, self.score)

    @property
    def most(self) -> float:
        """The largest batch it may have: the user's or what HBM holds; for the least latency the smallest."""
        return batch_of(1, self.layout.group_gpus) if self.aim.goal == "latency" else self.fitted.batch

    @property
    def slots(self) -> tuple[Ints, ...]:
        """Slots of each GPU of each stage."""
        return self.fitted.slots

    @property
    def simplicity(self) -> tuple[int, int, bool, int, int, int]:
        """Smaller is simpler: as :attr:`Layout.simplicity`, of few copies; not where most would be redundant ones."""
        moe, slots_held = self.deployment.model.moe, max(int(slots.sum()) for slots in self.slots)
        tp, contexts, groups, stages = self.layout.simplicity
        return tp, contexts, moe is not None and slots_held > 2 * moe.experts, groups, stages, slots_held


def candidates(
    deployment: Deployment, layouts: Sequence[Fitted], limit_s: float | None, aim: Aim, best: float = 0.0
) -> list[Candidate]:
    """Return the layouts that may be chosen, best first by ``aim``.

    Every layout is scored with ideally balanced experts, which no placement beats unless tokens are so few that some
    experts get none: one that loses even so need not be placed. With a limit on the time per token each takes its
    largest batch within it, for the least latency the smallest; those that cannot come near the best, of these or
    ``best`` tok/s/GPU, are left out.
    """

    def at(fit: Fitted, batch: float) -> Candidate:
        return Candidate(fit, deployment.with_batch(batch), fit.scorer.at(batch), limit_s, aim)

    if aim.goal == "latency":
        scored = [at(fit, batch_of(1, fit.layout.group_gpus)) for fit in layouts]
        scored = [trial for trial in scored if limit_s is None or trial.score.tpot_s <= limit_s]
        return sorted(scored, key=_order)
    scored = sorted((at(fit, fit.batch) for fit in layouts), key=_order)
    if limit_s is None:
        return scored
    within: list[Candidate] = []
    for candidate in scored:
        fit, least = candidate.fitted, 0.0
        if aim.goal == "throughput":
            sequences = (1 - LOST_AT_MOST) * best * limit_s * len(deployment.cluster.gpus)
            # beyond its batch there is none, however long the limit
            least = min(sequences / fit.layout.gpus_used, fit.batch + 1)
        batch = batch_within(fit.scorer, fit.batch, limit_s, least=fit.batch if fit.fixed else least)
        if batch:
            within.append(at(fit, batch))
            best = max(best, within[-1].score.tok_s_per_gpu)
    return sorted(within, key=_order)


def _order(candidate: Candidate) -> tuple[float, float, tuple[int, int, bool, int, int, int]]:
    level, value = candidate.worth
    return -level, -value, candidate.simplicity
