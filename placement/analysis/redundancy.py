"""Number of copies: throughput of one layout as copies increase, with experts placed each time.

A copy evens out the load of the busiest GPU. It costs HBM that the KV cache would have, so that fewer sequences fit,
and in decode the reading of its weights: a GPU with more experts touches more of them in a step. Both are counted by
the same scorer as any plan's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.memory.batches import batch_of
from cost.memory.sizes import weight_sizes
from cost.step.score import Score
from placement.arrays import Ints
from placement.budget import Budget
from placement.experts.placing import place_stages
from placement.layouts.choose import Placed, batch_within, choose_layout
from placement.layouts.fitting import stage_slots, wanted_batch
from placement.layouts.shapes import Shape
from placement.options import PlanOptions
from placement.plans.findings import CurveLayout, RedundancyCurve, RedundancyPoint
from placement.progress import Say, silent
from placement.scoring import ExpertPlacement, moe_rows, placement_scorer
from topology.base.errors import InputError

_MORE_SLOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Slots per GPU above the fewest that are tried."""
_MOST_SLOTS = 3  # of a layer's, as a multiple of its experts
_STOP_BELOW = 0.985  # of the best throughput: after this, more copies are not tried


def choose_redundant(
    deployment: Deployment,
    loads: ExpertLoads,
    options: PlanOptions,
    budget: Budget | None = None,
    say: Say = silent,
) -> RedundancyCurve:
    """Return the curve of throughput against copies; its ``best`` is the choice.

    The layout is the one that is chosen without a number of copies. Every point places the experts of all
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
        raise InputError(
            f"{deployment.model.name} has no experts to replicate; leave it out.",
            field="redundant",
            value="auto",
        )
    fewest = replace(options, redundant=None)
    base = choose_layout(deployment, loads, fewest)
    layout = base.candidate.layout
    points: list[RedundancyPoint] = []
    budget, best = budget or Budget(), 0.0
    with budget:
        tried = list(_copies_tried(moe.experts, layout.ep))
        for number, redundant in enumerate(tried, 1):
            say(f"choosing the number of copies: {redundant}, {number} of {len(tried)}")
            slots = stage_slots(deployment, Shape.of(layout), redundant, options.spread)
            if slots is None:
                break
            point = _point(deployment, base, loads, fewest, redundant, slots)
            if point is None:
                continue
            points.append(point)
            best = max(best, point.tok_s_per_gpu)
            if point.tok_s_per_gpu < _STOP_BELOW * best:
                break
    if budget.interrupted:
        slots = base.candidate.slots  # those that chose the layout
        redundant_now = int(slots[0].sum()) - moe.experts
        points = points or [_scored(deployment, layout, redundant_now, slots, base.balancedness, base.score)]
    return RedundancyCurve(layout=CurveLayout(layout.ep, layout.tp, layout.stages), points=tuple(points))


def _copies_tried(experts: int, gpus: int) -> Iterator[int]:
    """Yield the numbers of copies above one of each expert that are looked at, rising.

    None, a quarter, half and all of what fills the GPUs' last slots, then whole slots on every GPU; at most 3 slots
    for each expert, and no more on a GPU than there are experts.
    """
    least = -(-experts // gpus)
    gap = least * gpus - experts
    wider = [(least + slots) * gpus - experts for slots in _MORE_SLOTS if least + slots <= experts]
    limit = (_MOST_SLOTS - 1) * experts
    yield from sorted(
        {0, gap // 4, gap // 2, gap, *(count for count in wider if count <= max(limit, wider[0]))}
    )


def _point(
    deployment: Deployment,
    base: Placed,
    loads: ExpertLoads,
    options: PlanOptions,
    redundant: int,
    slots: tuple[Ints, ...],
) -> RedundancyPoint | None:
    """Place and score one number of copies on the layout of ``base``; None where it does not fit or is too slow."""
    layout = base.candidate.layout
    experts, _, _ = place_stages(deployment, layout, slots, loads, options, thorough=True)
    placed = ExpertPlacement(deployment, layout, experts, loads, options.split)
    scorer, balance = placement_scorer(placed, fair=False)
    limit = wanted_batch(deployment.workload, scorer.max_batch, layout.group_gpus)
    if options.goal == "latency":
        limit = min(limit, batch_of(1, layout.group_gpus))
    if not 0 < limit <= scorer.max_batch:
        return None
    limit_s = base.candidate.limit_s
    batch = batch_within(scorer, limit, limit_s, least=limit if deployment.workload.batch else 0)
    if not batch:
        return None
    return _scored(deployment, layout, redundant, slots, balance, scorer.at(batch))


def _scored(
    deployment: Deployment,
    layout: Layout,
    redundant: int,
    slots: tuple[Ints, ...],
    balance: Mapping[int, float],
    score: Score,
) -> RedundancyPoint:
    moe = deployment.model.moe
    expert_bytes = 0.0 if moe is None else moe.expert_params * weight_sizes(deployment.model)["experts"]
    counts = (len(moe_rows(deployment, stage.layers)) for stage in layout.replicas[0])
    return RedundancyPoint(
        redundant,
        max(int(row.max()) for row in slots),
        float(np.mean(list(balance.values()))),
        score.batch,
        score.max_batch,
        score.tok_s_per_gpu,
        score.tpot_s,
        # of the fullest GPU of any stage
        max(count * int(row.max()) * expert_bytes for count, row in zip(counts, slots, strict=True)),
    )
