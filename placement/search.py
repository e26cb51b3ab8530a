"""Cost every layout of a model on a cluster, experts balanced, and keep those that fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cost.expert_use import balanced_use
from cost.layout import Layout
from cost.memory import replica_memory
from cost.model import MoeFfn
from cost.score import score_layout
from placement.layouts import enumerate_shapes
from placement.problem import spread_slots
from placement.split import equal_ranges, largest_batch, split_layers, stage_specs
from topology.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cost.expert_use import ExpertUse
    from cost.memory import StageMemory
    from cost.score import Score
    from cost.setting import Setting
    from placement.layouts import Shape
    from placement.options import PlanOptions

__all__ = ["ALIKE", "Candidate", "Fitting", "balanced_uses", "candidates", "fitting_shapes", "stage_slots", "tightest"]

ALIKE = 0.10
"""Of layouts within this fraction of the fastest the simplest is chosen: the published ranges of kernel
efficiency (:mod:`cost.efficiency`) are wider than that, so closer layouts cannot be told apart."""


@dataclass(frozen=True)
class Fitting:
    """A shape that fits: the slots of each GPU of each stage, and the largest batch."""

    shape: Shape
    slots: tuple[NDArray[np.int64], ...]
    max_batch: int


@dataclass(frozen=True)
class Candidate:
    """A layout at a batch, scored as if its experts were perfectly balanced.

    ``fixed_batch``: the batch is the user's, not ours to lower.
    """

    layout: Layout
    slots: tuple[NDArray[np.int64], ...]
    setting: Setting
    score: Score
    fixed_batch: bool


def stage_slots(setting: Setting, shape: Shape, redundant: int | None) -> tuple[NDArray[np.int64], ...] | None:
    """Return the slots of each GPU of each stage, ``[gpus]`` each; None where the shape cannot hold them."""
    moe = setting.model.moe
    groups = shape.replicas[0]
    if moe is None:
        return tuple(np.zeros(len(group), dtype=np.int64) for group in groups)
    try:
        return tuple(spread_slots(moe.experts, len(group), redundant) for group in groups)
    except InputError:
        return None


def fitting_shapes(setting: Setting, redundant: int | None) -> list[Fitting]:
    """Return the shapes of which at least batch 1 fits in HBM."""
    found = []
    for shape in enumerate_shapes(setting.cluster, setting.model):
        slots = stage_slots(setting, shape, redundant)
        if slots is None:
            continue
        batch = largest_batch(setting.with_batch(1), shape.replicas[0], tp=shape.tp, slots=slots)
        if batch >= 1:
            found.append(Fitting(shape, slots, batch))
    return found


def tightest(setting: Setting, redundant: int | None) -> tuple[Shape, StageMemory]:
    """Return the shape that comes nearest to fitting batch 1, and the memory of its fullest stage.

    Raises
    ------
    InputError
        If no shape can hold the experts at all.
    """
    layers = len(setting.model.layers)
    best: tuple[float, Shape, StageMemory] | None = None
    for shape in enumerate_shapes(setting.cluster, setting.model):
        slots = stage_slots(setting, shape, redundant)
        if slots is None:
            continue
        groups = shape.replicas[0]
        stages = stage_specs(groups, equal_ranges(layers, len(groups)))
        sums = [int(row.sum()) for row in slots]
        memories = replica_memory(setting, stages, tp=shape.tp, slots=sums)
        fullest = max(memories, key=lambda memory: memory.used(1) - memory.usable)
        over = fullest.used(1) - fullest.usable
        if best is None or over < best[0]:
            best = over, shape, fullest
    if best is None:
        moe = setting.model.moe
        experts = moe.experts if moe else 0
        raise InputError(
            f"--redundant {redundant}: no group of {setting.cluster.name}'s GPUs can hold {experts} experts and "
            f"{redundant} more copies without two copies of one on a GPU; give fewer."
        )
    return best[1], best[2]


def candidates(setting: Setting, options: PlanOptions) -> list[Candidate]:
    """Return the layouts that meet the workload, fastest first (output tokens per second over all GPUs).

    Every layout is scored with ideally balanced experts, which no placement beats: one that loses even so
    need not be placed. With a fixed batch only layouts that hold it count; with a limit on the time per
    token, each takes its largest batch within it.
    """
    found = []
    for fitting in fitting_shapes(setting, options.redundant):
        candidate = _candidate(setting, fitting, options.tpot_s)
        if candidate is not None:
            found.append(candidate)
    return sorted(found, key=lambda c: (-c.score.tok_s_per_gpu, c.layout.tp, c.layout.stages))


def _candidate(setting: Setting, fitting: Fitting, tpot_s: float | None) -> Candidate | None:
    batch = setting.workload.batch or fitting.max_batch
    if batch > fitting.max_batch:
        return None
    shape, at_batch = fitting.shape, setting.with_batch(batch)
    try:
        ranges = split_layers(at_batch, shape.replicas[0], tp=shape.tp, slots=fitting.slots)
    except InfeasibleError:
        return None  # fits to within a rounded kibibyte only
    layout = Layout(tuple(stage_specs(groups, ranges) for groups in shape.replicas), shape.tp)
    uses = balanced_uses(at_batch, layout, fitting.slots)
    score = score_layout(at_batch, layout, uses)
    if tpot_s is not None and score.step_s > tpot_s:
        if setting.workload.batch:
            return None
        batch = _largest_within(setting, layout, uses, tpot_s, batch)
        if batch == 0:
            return None
        at_batch = setting.with_batch(batch)
        score = score_layout(at_batch, layout, uses)
    return Candidate(layout, fitting.slots, at_batch, score, bool(setting.workload.batch))


def _largest_within(
    setting: Setting, layout: Layout, uses: Sequence[Sequence[ExpertUse | None]], tpot_s: float, too_large: int
) -> int:
    """Return the largest batch below ``too_large`` whose step takes at most ``tpot_s``; 0 where none does."""
    low, high = 0, too_large
    while high - low > 1:
        middle = (low + high) // 2
        if score_layout(setting.with_batch(middle), layout, uses).step_s <= tpot_s:
            low = middle
        else:
            high = middle
    return low


def balanced_uses(
    setting: Setting, layout: Layout, slots: Sequence[NDArray[np.int64]]
) -> list[list[ExpertUse | None]]:
    moe = setting.model.moe
    moe_layers = np.array(setting.model.moe_layers)
    uses: list[ExpertUse | None] = []
    for stage, row in zip(layout.replicas[0], slots, strict=True):
        count = int(np.isin(moe_layers, list(stage.layers)).sum())
        use = None
        if isinstance(moe, MoeFfn) and count:
            use = balanced_use(count, row, moe.experts, moe.top_k)
        uses.append(use)
    return [uses] * len(layout.replicas)
