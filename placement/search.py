"""Cost every layout of a model on a cluster, experts balanced, and keep those that fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.dispatch import ExpertUse, balanced_use
from cost.layout import Layout
from cost.memory import StageMemory, replica_memory
from cost.model import MoeFfn
from cost.score import LayoutScorer, Score
from placement.bisection import last_where
from placement.failure_domains import domain_name, require_apart, stage_domains
from placement.layouts import Shape, enumerate_shapes
from placement.options import Spread
from placement.plan import stage_speed
from placement.split import equal_ranges, largest_batch, split_layers, stage_specs
from placement.unequal import gpu_hbm_bytes, hbm_differs, slots_of_stage
from topology.errors import InfeasibleError, InputError

LOST_AT_MOST = 0.4
"""A layout this far behind the best under perfect balance is not searched for its batch: imbalance seldom costs
the best that much."""


@dataclass(frozen=True)
class Fitting:
    """A shape that fits: the slots of each GPU of each stage, and the largest batch."""

    shape: Shape
    slots: tuple[NDArray[np.int64], ...]
    max_batch: int


@dataclass(frozen=True, eq=False)
class Fitted:
    """A layout that fits at ``batch``: the user's, or the largest.

    ``scorer`` scores it as if its experts were perfectly balanced. ``fixed``: the batch is not ours to lower.
    """

    layout: Layout
    slots: tuple[NDArray[np.int64], ...]
    scorer: LayoutScorer
    batch: int
    fixed: bool


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
    def slots(self) -> tuple[NDArray[np.int64], ...]:
        """Slots of each GPU of each stage."""
        return self.fitted.slots

    @property
    def simplicity(self) -> tuple[int, bool, int, int]:
        """Smaller is simpler: as :attr:`Layout.simplicity`, but not where most copies would be redundant ones."""
        moe = self.deployment.model.moe
        crowded = moe is not None and any(int(slots.sum()) > 2 * moe.experts for slots in self.slots)
        tp, groups, stages = self.layout.simplicity
        return tp, crowded, groups, stages


def stage_slots(
    deployment: Deployment,
    shape: Shape,
    redundant: int | None,
    spread: Spread = "gpu",
    *,
    equal: bool = False,
) -> tuple[NDArray[np.int64], ...] | None:
    """Return the slots of each GPU of each stage, ``[gpus]`` each; None where the shape cannot hold them.

    ``spread``: the failure domains that copies are spread over. ``equal``: as
    :func:`placement.unequal.slots_of_stage` takes it.
    """
    moe = deployment.model.moe
    groups = shape.replicas[0]
    ranges = equal_ranges(len(deployment.model.layers), len(groups))
    try:
        slots = tuple(
            slots_of_stage(deployment, groups, ranges, stage, tp=shape.tp, redundant=redundant, equal=equal)
            for stage in range(len(groups))
        )
        if moe is not None:
            for members, row in zip(zip(*shape.replicas, strict=True), slots, strict=True):
                # left to a rule, copies are as many as lie in different failure domains: one of each always does
                domains = stage_domains(deployment, members, spread)
                require_apart(moe.experts, row, domains, once=redundant is None)
    except InputError:
        return None
    except InfeasibleError:
        return stage_slots(deployment, shape, 0, spread, equal=equal) if redundant is None else None
    return slots


def fitting_shapes(
    deployment: Deployment, redundant: int | None, spread: Spread = "gpu"
) -> Iterator[Fitting]:
    """Yield the shapes of which at least batch 1 fits in HBM; where HBM differs, with equal slots and by free HBM."""
    for shape in enumerate_shapes(deployment.cluster, deployment.model):
        found: dict[tuple[bytes, ...], None] = {}
        for equal in (True, False) if hbm_differs(deployment) else (True,):
            slots = stage_slots(deployment, shape, redundant, spread, equal=equal)
            if slots is None or (key := tuple(row.tobytes() for row in slots)) in found:
                continue
            found[key] = None
            batch = min(
                largest_batch(deployment.with_batch(1), groups, tp=shape.tp, slots=slots)
                for groups in _kinds_of_replicas(deployment, shape)
            )
            if batch >= 1:
                yield Fitting(shape, slots, batch)


def _kinds_of_replicas(deployment: Deployment, shape: Shape) -> Iterable[tuple[tuple[int, ...], ...]]:
    """Return one replica of each kind of HBM that it lies on."""
    if not hbm_differs(deployment):
        return shape.replicas[:1]
    kinds = {
        tuple(gpu_hbm_bytes(deployment, group).tobytes() for group in groups): groups
        for groups in reversed(shape.replicas)
    }
    return kinds.values()


def tightest(
    deployment: Deployment, redundant: int | None, spread: Spread = "gpu"
) -> tuple[Shape, StageMemory]:
    """Return the shape that comes nearest to fitting batch 1, and the memory of its fullest stage.

    Raises
    ------
    InputError
        If no shape can hold the experts at all.
    InfeasibleError
        If none can with the copies of each expert spread over failure domains.
    """
    layers = len(deployment.model.layers)
    best: tuple[float, Shape, StageMemory] | None = None
    for shape in enumerate_shapes(deployment.cluster, deployment.model):
        slots = stage_slots(deployment, shape, redundant, spread)
        if slots is None:
            continue
        groups = shape.replicas[0]
        stages = stage_specs(groups, equal_ranges(layers, len(groups)))
        sums = [int(row.sum()) for row in slots]
        memories = replica_memory(deployment, stages, tp=shape.tp, slots=sums, per_gpu=slots)
        fullest = max(memories, key=lambda memory: memory.used(1) - memory.usable)
        over = fullest.used(1) - fullest.usable
        if best is None or over < best[0]:
            best = over, shape, fullest
    if best is None:
        moe = deployment.model.moe
        if spread != "gpu":
            _refuse_spread(deployment, redundant, spread)
        experts = moe.experts if moe else 0
        raise InputError(
            f"--redundant {redundant}: no group of {deployment.cluster.name}'s GPUs can hold {experts} experts and "
            f"{redundant} more copies without two copies of one on a GPU; give fewer."
        )
    return best[1], best[2]


def _refuse_spread(deployment: Deployment, redundant: int | None, spread: Spread) -> None:
    """Raise InfeasibleError where some shape could hold the experts, if copies may share a failure domain."""
    moe = deployment.model.moe
    if moe is None:
        return
    names = {domain_name(gpu, spread) for gpu in deployment.cluster.gpus}
    for shape in enumerate_shapes(deployment.cluster, deployment.model):
        slots = stage_slots(deployment, shape, redundant)
        if slots is not None:
            for members, row in zip(zip(*shape.replicas, strict=True), slots, strict=True):
                domains = stage_domains(deployment, members, spread)
                word = (
                    f"--spread {spread} ({deployment.cluster.name} has {len(names)} "
                    f"{spread}{'s' * (len(names) > 1)})"
                )
                require_apart(moe.experts, row, domains, word)


def fitted_layouts(deployment: Deployment, redundant: int | None, spread: Spread = "gpu") -> list[Fitted]:
    """Return every layout that fits, its layers split, at the user's batch or else its largest."""
    found = []
    for fitting in fitting_shapes(deployment, redundant, spread):
        batch = deployment.workload.wanted_batch(fitting.max_batch)
        if batch > fitting.max_batch:
            continue
        shape, at_batch = fitting.shape, deployment.with_batch(batch)
        try:
            ranges = split_layers(at_batch, shape.replicas[0], tp=shape.tp, slots=fitting.slots)
        except InfeasibleError:
            continue  # fits to within a rounded kibibyte only
        layout = Layout(tuple(stage_specs(groups, ranges) for groups in shape.replicas), shape.tp)
        scorer = LayoutScorer(deployment, layout, _balanced_uses(at_batch, layout, fitting.slots))
        if batch <= scorer.max_batch:
            found.append(Fitted(layout, fitting.slots, scorer, batch, bool(deployment.workload.batch)))
    return found


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
        batch = _largest_within(
            fit, tpot_s, (1 - LOST_AT_MOST) * best * tpot_s * len(deployment.cluster.gpus)
        )
        if batch:
            score = fit.scorer.at(batch)
            best = max(best, score.tok_s_per_gpu)
            found.append(Candidate(fit, deployment.with_batch(batch), score))
    return sorted(found, key=lambda c: (-c.score.tok_s_per_gpu, c.simplicity))


def _largest_within(fit: Fitted, tpot_s: float, sequences: float) -> int:
    """Return the largest batch whose step takes at most ``tpot_s``; 0 if it holds fewer than ``sequences``."""
    if fit.scorer.at(fit.batch).tpot_s <= tpot_s:
        return fit.batch
    low = max(1, math.ceil(sequences / fit.layout.gpus_used))
    if fit.fixed or low > fit.batch or fit.scorer.at(low).tpot_s > tpot_s:
        return 0
    return last_where(low, fit.batch, lambda batch: fit.scorer.at(batch).tpot_s <= tpot_s)


def _balanced_uses(
    deployment: Deployment, layout: Layout, slots: Sequence[NDArray[np.int64]]
) -> list[list[ExpertUse | None]]:
    moe = deployment.model.moe
    moe_layers = np.array(deployment.model.moe_layers)
    uses: list[ExpertUse | None] = []
    for stage, row in zip(layout.replicas[0], slots, strict=True):
        count = int(np.isin(moe_layers, list(stage.layers)).sum())
        use = None
        if isinstance(moe, MoeFfn) and count:
            use = balanced_use(count, row, moe.experts, moe.top_k, stage_speed(deployment, stage, row))
        uses.append(use)
    return [uses] * len(layout.replicas)
