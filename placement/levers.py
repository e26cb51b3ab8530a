"""What if: each lever of a plan pulled alone, and what the plan would then reach at the same service level.

A lever is scored three ways. With the batch kept, the plan's own placement runs its own batch on what changed. With
the layout kept, the placement stays and the batch is the largest within the service level. With the layout free, the
best layout of the sweep (:mod:`cost.layouts`) runs at its own largest batch, its experts placed the fast way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cost.assignment import Assignment
from cost.deployment import Deployment
from cost.layout import Layout
from cost.layouts import Sweep, sweep
from cost.score import Score
from placement.layout_choice import batch_within
from placement.lever_changes import machines, other_context, other_formats
from placement.lever_layouts import PlacedLayout, more_or_fewer_copies, other_widths, placed_experts
from placement.placing import Known
from placement.plan import Plan
from placement.scoring import placement_scorer
from topology.errors import InfeasibleError, InputError

Kind = Literal["hardware", "workload", "precision", "layout"]
FEW = 5
"""Sequences of which a tenth more is not a whole one."""
NEARLY = 1.05
"""How much larger the largest batch within a time may be than a plan's that was made for that time."""
NEAR = 1e-9
"""Part of a speed that rounding may cost."""
MOST_PLACED = 16
"""Layouts whose experts are placed before the best of them is taken as the best."""
WORTH = 5e-4
"""Gain below which a lever does nothing that anybody would see."""


@dataclass(frozen=True)
class ServiceLevel:
    """What a plan must keep under every change.

    Attributes
    ----------
    tpot_s:
        Longest time per output token; None: none was asked for, and the batch is the largest that fits.
    asked:
        Whether the plan was made for that time; otherwise it is the plan's own.
    """

    tpot_s: float | None
    asked: bool

    @classmethod
    def of(cls, plan: Plan) -> ServiceLevel:
        """Return the time per token that a plan was made for; its own where its batch was chosen otherwise."""
        if not plan.deployment.workload.decodes:
            return cls(None, asked=False)
        asked, full = plan.options.get("tpot_s"), plan.score.batch >= plan.score.max_batch
        if isinstance(asked, int | float):
            scorer, _ = placement_scorer(plan.deployment, plan.layout, plan.experts, plan.loads, plan.split)
            # a batch that was given, or one for the least latency, is well below what the time allows
            if full or batch_within(scorer, scorer.max_batch, float(asked)) <= 1 + NEARLY * plan.score.batch:
                return cls(float(asked), asked=True)
        return cls(None if full else plan.score.tpot_s, asked=False)


def rate_of(plan: Plan) -> str:
    """Return which rate of a score counts: per GPU of the cluster, or of those in use where a goal leaves some."""
    return "tok_s_per_gpu_used" if plan.options.get("goal") in ("gpus", "usd", "power") else "tok_s_per_gpu"


@dataclass(frozen=True)
class Reached:
    """What is reached under a change; ``gain`` is of tokens per second per GPU over the plan's, as a fraction.

    It is per GPU in use where the plan's goal leaves GPUs idle, else over all GPUs.
    """

    tok_s_per_gpu: float
    tok_s_per_gpu_used: float
    tok_s_per_user: float
    step_s: float
    batch: float
    layout: str
    gain: float


@dataclass(frozen=True)
class Lever:
    """One change; where it cannot be, a text says why in place of what is reached.

    Attributes
    ----------
    change, to:
        By how much (``x2``), and what it is then (``16 TB/s``).
    batch_kept, layout_kept, layout_free:
        With placement and batch as in the plan; with the placement; with neither (None: nobody looked).
    """

    name: str
    kind: Kind
    change: str
    to: str
    batch_kept: Reached | str
    layout_kept: Reached | str
    layout_free: Reached | str | None = None

    @property
    def gain(self) -> float:
        """Gain with the layout kept; where that cannot be, with the layout free; -1 where neither can."""
        for found in (self.layout_kept, self.layout_free):
            if isinstance(found, Reached):
                return found.gain
        return -1.0


@dataclass(frozen=True, eq=False)
class Levers:
    """The levers of a plan, the largest gain first.

    ``unchanged`` is the plan under no change.
    """

    plan: Plan
    level: ServiceLevel
    unchanged: Lever
    rows: tuple[Lever, ...]

    @property
    def largest(self) -> list[Lever]:
        """The best change of each lever besides layouts that gains anything with the layout kept, largest first."""
        found: dict[str, Lever] = {}
        for row in self.rows:
            if row.kind != "layout" and isinstance(row.layout_kept, Reached) and row.gain >= WORTH:
                found.setdefault(row.name, row)
        return list(found.values())


def find_levers(plan: Plan, *, free: bool = True, on_stage: Callable[[str], None] | None = None) -> Levers:
    """Return what each lever would bring.

    Parameters
    ----------
    free:
        Also look at other layouts: those levers, and each lever with the layout free.
    on_stage:
        Called with what is looked at.
    """
    bench = _Bench(plan, free=free)
    say = on_stage or (lambda _: None)
    rows: list[Lever] = []
    for name, made in (
        ("the machine", bench.hardware),
        ("the workload", bench.workload),
        ("the layout", bench.layouts),
    ):
        say(f"changing {name}")
        rows += made()
    rows.sort(key=lambda row: (-row.gain, row.name, row.change))
    return Levers(plan, bench.level, bench.unchanged(), tuple(rows))


@dataclass(eq=False)
class _Bench:
    """A plan under changes."""

    plan: Plan
    free: bool
    level: ServiceLevel = field(init=False)
    rate: str = field(init=False)
    _known: Known = field(default_factory=dict, init=False)
    _base: Sweep | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.level = ServiceLevel.of(self.plan)
        self.rate = rate_of(self.plan)

    def unchanged(self) -> Lever:
        """Return the plan as it is, and the best layout at its service level."""
        plan = self.plan
        kept, grown = self._kept(plan.deployment, plan.layout, plan.experts)
        there = self._best_of(self._unchanged, grown) if self.free else None
        return Lever("nothing", "layout", "", "", kept, grown, there)

    def hardware(self) -> Iterator[Lever]:
        """Yield the levers of the machine."""
        for one in machines(self.plan.deployment.cluster):
            changed = one.why or replace(self.plan.deployment, cluster=one.cluster)
            yield self._row(one.name, "hardware", one.change, one.to, changed)

    def workload(self) -> Iterator[Lever]:
        """Yield the levers of what is served: batch, context, formats."""
        plan, batch = self.plan, self.plan.score.batch
        for change, many in self._batches().items():
            kept = self._at(plan.deployment, plan.layout, plan.experts, many)
            there = self._best_of(self._unchanged, kept, batch=many) if self.free else None
            yield Lever("batch", "workload", change, f"{many:,} from {batch:,}", kept, kept, there)
        for name, change, to, changed in other_context(plan.deployment):
            yield self._row(name, "workload", change, to, changed)
        for name, change, to, changed in other_formats(plan.deployment):
            yield self._row(name, "precision", change, to, changed)

    def layouts(self) -> Iterator[Lever]:
        """Yield the levers of the layout: the next widths and numbers of stages, and copies."""
        if not self.free:
            return
        plan = self.plan
        for name, of, value, placed in other_widths(plan):
            now = getattr(plan.layout, of)
            kept, grown = self._placed(placed)
            there = self._best_of(self._unchanged, grown, which=getattr(self._unchanged, of) == value)
            yield Lever(name, "layout", _step(now, value), f"{value} from {now}", kept, grown, there)
        for copies, now, placed in more_or_fewer_copies(plan):
            kept, grown = self._placed(placed)
            there = self._freed(plan.deployment, grown, copies=copies)
            yield Lever("copies", "layout", _step(now, copies), f"{copies} from {now}", kept, grown, there)

    def _placed(self, placed: PlacedLayout | str) -> tuple[Reached | str, Reached | str]:
        return (placed, placed) if isinstance(placed, str) else self._kept(self.plan.deployment, *placed)

    def _row(self, name: str, kind: Kind, change: str, to: str, changed: Deployment | str) -> Lever:
        """Return one lever; ``changed`` is the deployment under it, or why it cannot be."""
        if isinstance(changed, str):
            return Lever(name, kind, change, to, changed, changed, changed if self.free else None)
        kept, grown = self._kept(changed, self.plan.layout, self.plan.experts)
        there = self._freed(changed, grown) if self.free else None
        return Lever(name, kind, change, to, kept, grown, there)

    def _batches(self) -> dict[str, int]:
        """Return other batches by what they are of the plan's: a tenth more (or one), twice, half."""
        batch = self.plan.score.batch
        found = {"+10%" if batch >= FEW else "+1": max(batch + 1, round(1.1 * batch)), "x2": 2 * batch}
        return found | ({"half": batch // 2} if batch > 1 else {})

    def _kept(
        self, deployment: Deployment, layout: Layout, experts: Sequence[Assignment | None]
    ) -> tuple[Reached | str, Reached | str]:
        """Return what a placement reaches at the plan's batch, and at the largest within the service level."""
        plan, batch = self.plan, self.plan.score.batch
        kept = self._at(deployment, layout, experts, batch)
        if not deployment.workload.decodes:
            return kept, kept
        try:
            scorer, _ = placement_scorer(
                deployment.with_batch(batch), layout, experts, plan.loads, plan.split
            )
            most = scorer.max_batch
            if most < 1:
                scorer.at(1)
            largest = batch_within(scorer, most, self.level.tpot_s)
            if not largest:
                return kept, f"even one sequence a GPU takes {scorer.at(1).tpot_s * 1e3:,.1f} ms a token"
            return kept, self._of(scorer.at(largest), layout)
        except (InfeasibleError, InputError) as error:
            return kept, str(error)

    def _at(
        self, deployment: Deployment, layout: Layout, experts: Sequence[Assignment | None], batch: int
    ) -> Reached | str:
        """Return what a placement reaches at a batch."""
        plan = self.plan
        try:
            scorer, _ = placement_scorer(
                deployment.with_batch(batch), layout, experts, plan.loads, plan.split
            )
            score = scorer.at(batch)
        except (InfeasibleError, InputError) as error:
            return str(error)
        limit = self.level.tpot_s
        if self.level.asked and limit is not None and score.tpot_s > limit * (1 + NEAR):
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

    @property
    def _unchanged(self) -> Sweep:
        """Every layout of the plan's deployment, at the batches that are looked at too."""
        if self._base is None:
            batches = list(self._batches().values())
            self._base = self._sweep(self.plan.deployment, self._copies, batches)
        return self._base

    def _sweep(self, deployment: Deployment, copies: int | None, batches: Sequence[int] = ()) -> Sweep:
        limit = self.level.tpot_s
        speeds = () if limit is None else (1 / limit,)
        return sweep(deployment, redundant=copies, cut_experts=False, speeds=speeds, batches=batches)

    def _freed(self, deployment: Deployment, kept: Reached | str, copies: int | None = None) -> Reached | str:
        """Return the best of all layouts under a change; ``kept`` is what the plan's own reaches."""
        copies = self._copies if copies is None else copies
        try:
            return self._best_of(self._sweep(deployment, copies), kept, copies=copies)
        except InputError as error:
            return str(error)

    @property
    def _copies(self) -> int | None:
        """Copies that the plan was asked for; None where they are left to a rule."""
        asked = self.plan.options.get("redundant")
        return asked if isinstance(asked, int) else None

    def _best_of(
        self,
        found: Sweep,
        kept: Reached | str,
        *,
        which: NDArray[np.bool_] | None = None,
        batch: int | None = None,
        copies: int | None = None,
    ) -> Reached | str:
        """Return the best layout within the service level, its experts placed.

        A sweep's figures are of balanced experts, which no placement beats: layouts are placed in their order until
        none can be better. ``kept`` is one of them. ``which`` are those that may be taken; of a ``batch`` that is
        asked for, a time per token that the plan just has is no limit.
        """
        if not len(found):
            return f"no layout fits: the nearest lacks {found.shortage_bytes / 1e9:.1f} GB per GPU"
        able = found.batch >= 1 if batch is None else found.batch == batch
        able = able if which is None else able & which
        if not able.any():
            return "no layout that fits can have it" if batch is None else f"no layout takes batch {batch:,}"
        limit = self.level.tpot_s if self.level.asked or batch is None else None
        if limit is not None:
            fast = able & (found.tok_s_per_user >= (1 - NEAR) / limit)
            if not fast.any():
                fastest = 1e3 / float(found.tok_s_per_user[able].max())
                return (
                    f"no layout is within {limit * 1e3:,.4g} ms a token; the fastest takes {fastest:,.1f} ms"
                )
            able = fast
        best: Reached | str = kept
        rows = np.flatnonzero(able)
        tried: set[tuple[int, int]] = set()
        rate, own = getattr(found, self.rate), getattr(self.plan.score, self.rate)
        for row in rows[np.argsort(-rate[rows], kind="stable")].tolist():
            bound = float(rate[row]) / own - 1
            layout = int(found.layout[row]), int(found.tp[row])
            if len(tried) == MOST_PLACED or (isinstance(best, Reached) and bound <= best.gain):
                break
            if layout in tried:
                continue
            tried.add(layout)
            trial = self._place(found, row, self._copies if copies is None else copies, limit)
            if isinstance(trial, Reached) and not (isinstance(best, Reached) and best.gain >= trial.gain):
                best = trial
        return best

    def _place(self, found: Sweep, row: int, copies: int | None, limit: float | None) -> Reached | str:
        """Return what a layout of a sweep reaches with its experts placed, at the largest batch up to the sweep's."""
        plan, layout, most = self.plan, found.layout_of(row), int(found.batch[row])
        deployment = found.deployment.with_batch(most)
        placed = placed_experts(plan, deployment, layout, copies, self._known)
        if isinstance(placed, str):
            return placed
        scorer, _ = placement_scorer(deployment, layout, placed, plan.loads, plan.split)
        most = min(most, scorer.max_batch)
        batch = batch_within(scorer, most, limit) if most else 0
        return self._of(scorer.at(batch), layout) if batch else "its experts placed, it is too slow"


def _step(now: int, value: int) -> str:
    return "next up" if value > now else "next down"
