"""Score a plan under changes: with the same batch, the same layout, and with other layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost.experts.assignment import Assignment
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.layouts import Sweep, sweep
from cost.layouts.candidates import Arrangement
from cost.layouts.idle_gpus import arranged_in
from cost.layouts.stages import Pricer
from cost.memory.batches import batch_of, whole_batch
from cost.step.score import LayoutScorer, Score
from placement.analysis.layouts import PlacedLayout, placed_experts
from placement.analysis.lever import Kind, Lever, Reached, ServiceLevel, rate_of
from placement.experts.placing import Known
from placement.layouts.choose import batch_within
from placement.layouts.price import LayoutKey, first_tokens, key_of, keys_of
from placement.plan import ROUNDING, Plan
from placement.scoring import NONE_UNLIKE, ExpertPlacement, placement_scorer
from topology.base.errors import InfeasibleError, InputError

TENTH_FROM = 5
"""Sequences of which a tenth more is not a whole one."""
MOST_PLACED = 16
"""Layouts whose experts are placed before the best of them is taken as the best."""


@dataclass(eq=False)
class Bench:
    """A plan under changes."""

    plan: Plan
    free: bool
    level: ServiceLevel = field(init=False)
    rate: str = field(init=False)
    ttft_s: float | None = field(init=False)
    _known: Known = field(default_factory=dict, init=False)
    _first: list[tuple[Deployment, Mapping[LayoutKey, float]]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.level = ServiceLevel.of(self.plan)
        self.rate = rate_of(self.plan)
        self.ttft_s = self.plan.request.ttft_s if self.plan.deployment.workload.decodes else None

    def unchanged(self) -> Lever:
        """Return the unchanged plan, and the best layout at its service level."""
        plan = self.plan
        held, grown = self._reached(plan.deployment, plan.layout, plan.experts)
        best = self.best_of(self.base, grown) if self.free else None
        return Lever("nothing", "layout", "", "", held, grown, best)

    def placed(self, placed: PlacedLayout | str) -> tuple[Reached | str, Reached | str]:
        """Return what another layout reaches at the plan's batch and its largest batch, or why not."""
        return (placed, placed) if isinstance(placed, str) else self._reached(self.plan.deployment, *placed)

    def row(self, name: str, kind: Kind, change: str, to: str, changed: Deployment | str) -> Lever:
        """Return one lever; ``changed`` is the changed deployment, or why it is not possible."""
        if isinstance(changed, str):
            return Lever(name, kind, change, to, changed, changed, changed if self.free else None)
        held, grown = self._reached(changed, self.plan.layout, self.plan.experts)
        best = self.freed(changed, grown) if self.free else None
        return Lever(name, kind, change, to, held, grown, best)

    @cached_property
    def batches(self) -> dict[str, float]:
        """Return other batches by their relation to the plan's: a tenth (or a sequence a group) more, twice, half."""
        tp = self.plan.layout.group_gpus
        sequences = round(self.plan.score.batch * tp)
        larger = max(sequences + 1, round(1.1 * sequences))
        counts = {"+10%" if sequences >= TENTH_FROM else "+1": larger, "x2": 2 * sequences}
        counts |= {"half": sequences // 2} if sequences > 1 else {}
        return {change: batch_of(count, tp) for change, count in counts.items()}

    def _reached(
        self, deployment: Deployment, layout: Layout, experts: Sequence[Assignment | None]
    ) -> tuple[Reached | str, Reached | str]:
        """Return what a placement reaches at the plan's batch, and at the largest within the service level."""
        batch = self.plan.score.batch
        held = self.at(deployment, layout, experts, batch)
        if not deployment.workload.decodes or self.rate == "tok_s_per_user":
            return held, held
        try:
            scorer = self._scorer(deployment.with_batch(batch), layout, experts)
            limit = scorer.max_batch
            least = batch_of(1, layout.group_gpus)
            if not limit:
                scorer.at(least)
            largest = batch_within(scorer, limit, self.level.tpot_s)
            if late := self._late(deployment, layout):
                return held, late
            if not largest:
                return (
                    held,
                    f"even one sequence a group takes {scorer.at(least).tpot_s * 1e3:,.1f} ms per token",
                )
            return held, self._of(scorer.at(largest), layout)
        except (InfeasibleError, InputError) as error:
            return held, str(error)

    def _scorer(
        self, deployment: Deployment, layout: Layout, experts: Sequence[Assignment | None]
    ) -> LayoutScorer:
        """Return what scores a placement; of the plan's own layout with what its other replicas hold."""
        plan = self.plan
        unlike = plan.unlike if layout is plan.layout else NONE_UNLIKE
        placed = ExpertPlacement(deployment, layout, experts, plan.loads, plan.split, unlike)
        return placement_scorer(placed)[0]

    def at(
        self, deployment: Deployment, layout: Layout, experts: Sequence[Assignment | None], batch: float
    ) -> Reached | str:
        """Return what a placement reaches at a batch."""
        batch = whole_batch(batch, layout.group_gpus)
        try:
            scorer = self._scorer(deployment.with_batch(batch), layout, experts)
            score = scorer.at(batch)
        except (InfeasibleError, InputError) as error:
            return str(error)
        if late := self._late(deployment, layout):
            return late
        limit = self.level.tpot_s
        if self.level.asked and limit is not None and score.tpot_s > limit * (1 + ROUNDING):
            return f"{score.tpot_s * 1e3:,.1f} ms a token at batch {batch:,}; the plan is for {limit * 1e3:,.4g} ms"
        return self._of(score, layout)

    def _of(self, score: Score, layout: Layout) -> Reached:
        moe = self.plan.deployment.model.moe is not None
        return Reached(
            score.tok_s_per_gpu,
            score.tok_s_per_gpu_used,
            score.tok_s_per_user,
            score.step_s,
            score.batch,
            layout.short(moe=moe),
            getattr(score, self.rate) / getattr(self.plan.score, self.rate) - 1,
        )

    @cached_property
    def base(self) -> Sweep:
        """All layouts of the plan's deployment, at all batches considered."""
        return self._sweep(self.plan.deployment, self.plan.request.copies, list(self.batches.values()))

    def _sweep(self, deployment: Deployment, copies: int | None, batches: Sequence[float] = ()) -> Sweep:
        limit = self.level.tpot_s
        return sweep(
            deployment,
            redundant=copies,
            cut_experts=False,
            speeds=() if limit is None else (1 / limit,),
            batches=batches,
            arranged=self._arranged,
        )

    @cached_property
    def _arranged(self) -> list[Arrangement]:
        """The groups of GPUs of all sweeps: a change is of all GPUs, so unlike domains keep their order."""
        return arranged_in(Pricer(self.plan.deployment, self.plan.request.copies))

    def freed(
        self, deployment: Deployment, result: Reached | str, copies: int | None = None
    ) -> Reached | str:
        """Return the best layout under a change; ``result`` is the result of the plan's layout."""
        copies = self.plan.request.copies if copies is None else copies
        try:
            return self.best_of(self._sweep(deployment, copies), result, copies=copies)
        except InputError as error:
            return str(error)

    def best_of(
        self,
        swept: Sweep,
        result: Reached | str,
        *,
        which: NDArray[np.bool_] | None = None,
        batch: float | None = None,
        copies: int | None = None,
    ) -> Reached | str:
        """Return the best layout within the service level, with placed experts.

        A sweep's figures are of balanced experts, which no placement beats (but where tokens are so few that some
        experts are not read): layouts are placed in their order until none can be better. ``result`` is one.
        ``which`` are those that may be taken; of a ``batch`` that is asked for, a time per token that the plan just
        has is no limit.
        """
        able, why = self._able(swept, which, batch, copies)
        if not able.any():
            return result if isinstance(result, Reached) else why
        limit = self._limit(batch)
        best: Reached | str = result
        rows = np.flatnonzero(able)
        tried: set[tuple[object, ...]] = set()
        rate, plan_rate = getattr(swept, self.rate), getattr(self.plan.score, self.rate)
        for row in rows[np.argsort(-rate[rows], kind="stable")].tolist():
            bound = float(rate[row]) / plan_rate - 1
            layout = int(swept.layout[row]), *swept.widths_of(row).values()
            if len(tried) == MOST_PLACED or (isinstance(best, Reached) and bound <= best.gain):
                break
            if layout in tried:
                continue
            tried.add(layout)
            trial = self._place(swept, row, self.plan.request.copies if copies is None else copies, limit)
            if isinstance(trial, Reached) and not (isinstance(best, Reached) and best.gain >= trial.gain):
                best = trial
        return best

    def _limit(self, batch: float | None) -> float | None:
        """The time per token that binds; a plan's own is no limit at a batch that is asked for."""
        return self.level.tpot_s if self.level.asked or batch is None else None

    def _able(
        self, swept: Sweep, which: NDArray[np.bool_] | None, batch: float | None, copies: int | None
    ) -> tuple[NDArray[np.bool_], str]:
        """Return the configurations that hold the service level, and why there is none."""
        if not len(swept):
            lacks = swept.shortage_bytes / 1e9
            return np.zeros(0, dtype=bool), f"no layout fits; the closest lacks {lacks:.1f} GB per GPU"
        able = np.ones(len(swept), dtype=np.bool_) if batch is None else swept.batch == batch
        able = able if which is None else able & which
        if not able.any():
            return (
                able,
                "no layout that fits allows it" if batch is None else f"no layout takes batch {batch:,}",
            )
        limit = self._limit(batch)
        if limit is not None:
            fastest = 1e3 / float(swept.tok_s_per_user[able].max())
            able = able & (swept.tok_s_per_user >= (1 - ROUNDING) / limit)
            if not able.any():
                return (
                    able,
                    f"no layout is within {limit * 1e3:,.4g} ms a token; the fastest takes {fastest:,.1f} ms",
                )
        if self.ttft_s is not None:
            first_s_of = self._first_tokens(swept.deployment, copies)
            able = able & np.array([first_s_of.get(key, np.inf) <= self.ttft_s for key in keys_of(swept)])
        return able, "no layout meets the time to first token"

    def _first_tokens(self, deployment: Deployment, copies: int | None) -> Mapping[LayoutKey, float]:
        """Return the seconds to the first token by shape, found once for each deployment."""
        known = next((first_s_of for owner, first_s_of in self._first if owner is deployment), None)
        if known is None:
            known = first_tokens(deployment, copies)
            self._first.append((deployment, known))
        return known

    def _late(self, deployment: Deployment, layout: Layout) -> str:
        """Return why a layout is too late with the first token; empty where it is not, or nobody asked."""
        limit = self.ttft_s
        if limit is None:
            return ""
        seconds = self._first_tokens(deployment, self.plan.request.copies).get(key_of(layout), np.inf)
        if seconds <= limit:
            return ""
        if np.isinf(seconds):
            return "its time to first token is unknown, since the layout is not deployable"
        return f"the first token after {seconds * 1e3:,.0f} ms; the plan is for {limit * 1e3:,.4g} ms"

    def _place(self, swept: Sweep, row: int, copies: int | None, limit: float | None) -> Reached | str:
        """Return what a layout of a sweep reaches with its experts placed, at the largest batch up to the sweep's."""
        plan, layout, limit_batch = self.plan, swept.layout_of(row), float(swept.batch[row])
        deployment = swept.deployment.with_batch(limit_batch)
        placed = placed_experts(plan, deployment, layout, copies, self._known)
        if isinstance(placed, str):
            return placed
        scorer, _ = placement_scorer(ExpertPlacement(deployment, layout, placed, plan.loads, plan.split))
        limit_batch = min(limit_batch, scorer.max_batch)
        batch = batch_within(scorer, limit_batch, limit) if limit_batch else 0
        return self._of(scorer.at(batch), layout) if batch else "too slow with placed experts"
