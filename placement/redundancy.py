"""How many copies: the throughput of one layout with more and more of them, experts really placed each time.

A copy evens out the load of the busiest GPU. It costs HBM that the KV cache would have, so that fewer sequences fit,
and in decode the reading of its weights: a GPU with more experts touches more of them in a step. Both are counted by
the same scorer as any plan's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cost.assignment import Assignment
from cost.deployment import Deployment
from cost.dispatch import ExpertUse
from cost.layout import Layout
from cost.loads import ExpertLoads
from cost.memory import weight_sizes
from cost.score import LayoutScorer
from placement.bisection import last_where
from placement.figures import AtLeastOne, Count, Fraction, NotNegative
from placement.layouts import Shape
from placement.options import PlanOptions
from placement.placing import place_group, stage_groups
from placement.plan import moe_rows, stage_speed, stage_use, use_balancedness
from placement.planner import choose_layout
from placement.search import stage_slots
from topology.errors import InputError

if TYPE_CHECKING:
    from placement.planner import Placed


ALIKE_COPIES = 0.01
"""The knee is the fewest copies whose throughput is within this fraction of the best."""

_MORE_SLOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Slots per GPU above the fewest that are tried."""
_MOST_SLOTS = 3  # of a layer's, as a multiple of its experts
_FALLEN = 0.985  # of the best throughput: after this, more copies are not tried


@dataclass(frozen=True)
class RedundancyPoint:
    """One number of copies.

    Attributes
    ----------
    redundant:
        Copies per layer above one of each expert.
    slots_per_gpu:
        Slots of the fullest GPU.
    balancedness:
        Mean over max GPU load, mean over layers and loads, under the split that will run.
    batch, max_batch:
        Sequences per GPU scored, and the most that fit.
    tok_s_per_gpu, tpot_s:
        Score at ``batch``, as in :class:`cost.score.Score`.
    expert_bytes:
        Weights of the experts on the fullest GPU.
    """

    redundant: Count
    slots_per_gpu: AtLeastOne
    balancedness: Fraction
    batch: AtLeastOne
    max_batch: AtLeastOne
    tok_s_per_gpu: NotNegative
    tpot_s: NotNegative
    expert_bytes: NotNegative


@dataclass(frozen=True)
class RedundancyCurve:
    """Throughput against copies, of one layout.

    Attributes
    ----------
    points:
        By rising number of copies; those that fit in HBM and meet the time per token.
    ep, tp, stages:
        The layout.
    interrupted:
        Whether Ctrl-C ended it: the points are those so far.
    """

    points: tuple[RedundancyPoint, ...]
    ep: int
    tp: int
    stages: int
    interrupted: bool = False

    @property
    def best(self) -> RedundancyPoint:
        """The most throughput; of equals the fewest copies."""
        return max(self.points, key=lambda point: (point.tok_s_per_gpu, -point.redundant))

    @property
    def knee(self) -> RedundancyPoint:
        """The fewest copies within :data:`ALIKE_COPIES` of the best."""
        enough = (1 - ALIKE_COPIES) * self.best.tok_s_per_gpu
        return next(point for point in self.points if point.tok_s_per_gpu >= enough)

    def asked(self, options: PlanOptions) -> PlanOptions:
        """Return ``options`` with the best number of copies, on the layout that it was found for.

        Where the curve was interrupted, nobody waits for a search: the fast path is asked for.
        """
        copies = self.best.redundant
        asked = replace(options, redundant=copies, ep=self.ep, tp=self.tp, stages=self.stages)
        return replace(asked, time_limit_s=0.0) if self.interrupted else asked

    def to_dict(self) -> dict[str, Any]:
        """The curve as JSON-able values, with the choice and the knee."""
        return {
            "layout": {"ep": self.ep, "tp": self.tp, "stages": self.stages},
            "chosen": self.best.redundant,
            "knee": self.knee.redundant,
            "points": [asdict(point) for point in self.points],
        }


def choose_redundant(deployment: Deployment, loads: ExpertLoads, options: PlanOptions) -> RedundancyCurve:
    """Return the curve of throughput against copies; its ``best`` is the choice.

    The layout is the one that is chosen with the fewest copies that divide. Every point places the experts of all
    layers the fast way, at the largest batch within the time per token of ``options`` (or the user's batch). Ctrl-C
    ends the curve at the points so far; before the first, at the placement that chose the layout.

    Raises
    ------
    InputError
        If the model has no experts.
    InfeasibleError
        If nothing fits in HBM, or nothing meets the time per token.
    """
    moe = deployment.model.moe
    if moe is None:
        raise InputError(f"--redundant auto: {deployment.model.name} has no experts to copy; leave it out.")
    fewest = replace(options, redundant=None)
    base = choose_layout(deployment, loads, fewest)
    layout = base.candidate.layout
    points: list[RedundancyPoint] = []
    interrupted, best = False, 0.0
    try:
        for redundant in copies_tried(moe.experts, layout.ep):
            slots = _slots(deployment, layout, redundant, options)
            if slots is None:
                break
            point = _point(deployment, base, loads, fewest, redundant, slots)
            if point is None:
                continue
            points.append(point)
            best = max(best, point.tok_s_per_gpu)
            if point.tok_s_per_gpu < _FALLEN * best:
                break
    except KeyboardInterrupt:
        interrupted = True
        points = points or [_point_of(deployment, base, moe.experts)]
    return RedundancyCurve(tuple(points), layout.ep, layout.tp, layout.stages, interrupted)


def copies_tried(experts: int, gpus: int) -> Iterator[int]:
    """Yield the numbers of copies above one of each expert that are looked at, rising.

    None, a quarter, half and all of what fills the GPUs' last slots, then whole slots on every GPU; at most 3 slots
    for each expert, and no more on a GPU than there are experts.
    """
    each = -(-experts // gpus)
    few = each * gpus - experts
    more = [(each + slots) * gpus - experts for slots in _MORE_SLOTS if each + slots <= experts]
    most = (_MOST_SLOTS - 1) * experts
    yield from sorted({0, few // 4, few // 2, few, *(count for count in more if count <= max(most, more[0]))})


def _slots(
    deployment: Deployment, layout: Layout, redundant: int, options: PlanOptions
) -> tuple[NDArray[np.int64], ...] | None:
    groups = tuple(tuple(stage.gpus for stage in stages) for stages in layout.replicas)
    return stage_slots(deployment, Shape(groups, layout.tp), redundant, options.spread)


def _point(
    deployment: Deployment,
    base: Placed,
    loads: ExpertLoads,
    options: PlanOptions,
    redundant: int,
    slots: tuple[NDArray[np.int64], ...],
) -> RedundancyPoint | None:
    """Place and score one number of copies on the layout of ``base``; None where it does not fit or is too slow."""
    layout = base.candidate.layout
    # of a candidate, only layout and slots are asked for where experts are placed
    candidate = replace(base.candidate, fitted=replace(base.candidate.fitted, slots=slots))
    experts: list[Assignment | None] = [None] * layout.stages
    for group in stage_groups(candidate, options):
        result = place_group(deployment, group, loads, options, time_limit_s=0.0, thorough=True)
        for index, part in group.by_stage(result.assignment):
            experts[index] = part
    uses: list[ExpertUse | None] = []
    balance: list[float] = []
    for stage, assignment in zip(layout.replicas[0], experts, strict=True):
        use = None if assignment is None else stage_use(deployment, stage, assignment, loads, options.split)
        uses.append(use)
        if use is not None:
            speed = stage_speed(deployment, stage, np.bincount(use.slot_gpu, minlength=use.gpus))
            balance += use_balancedness(use, speed).mean(axis=0).tolist()
    scorer = LayoutScorer(deployment, layout, [uses] * len(layout.replicas), synthetic=loads.synthetic)
    batch = deployment.workload.wanted_batch(scorer.max_batch)
    if batch < 1 or batch > scorer.max_batch:
        return None
    tpot_s = options.tpot_s
    if tpot_s is not None and scorer.at(batch).tpot_s > tpot_s:
        if deployment.workload.batch or scorer.at(1).tpot_s > tpot_s:
            return None
        batch = last_where(1, batch, lambda fewer: scorer.at(fewer).tpot_s <= tpot_s)
    score = scorer.at(batch)
    return RedundancyPoint(
        redundant,
        max(int(row.max()) for row in slots),
        float(np.mean(balance)),
        batch,
        score.max_batch,
        score.tok_s_per_gpu,
        score.tpot_s,
        _expert_bytes(deployment, layout, slots),
    )


def _point_of(deployment: Deployment, base: Placed, experts: int) -> RedundancyPoint:
    """Return the point of the placement that chose the layout: the fewest copies that divide."""
    candidate, score = base.candidate, base.score
    return RedundancyPoint(
        -(-experts // candidate.layout.ep) * candidate.layout.ep - experts,
        max(int(row.max()) for row in candidate.slots),
        float(np.mean(list(base.balancedness.values()))),
        score.batch,
        score.max_batch,
        score.tok_s_per_gpu,
        score.tpot_s,
        _expert_bytes(deployment, candidate.layout, candidate.slots),
    )


def _expert_bytes(deployment: Deployment, layout: Layout, slots: tuple[NDArray[np.int64], ...]) -> float:
    """Bytes of the experts' weights on the fullest GPU of any stage."""
    moe = deployment.model.moe
    each = 0.0 if moe is None else moe.expert_params * weight_sizes(deployment.model)["experts"]
    rows = (len(moe_rows(deployment, stage.layers)) for stage in layout.replicas[0])
    return max(count * int(row.max()) * each for count, row in zip(rows, slots, strict=True))
