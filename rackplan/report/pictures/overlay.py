"""Overlays on the drawing of a cluster: pool, stage, load and experts of each GPU of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cost.inputs.layout import Layout
from cost.terms.pipeline import BUBBLE
from placement.plan import Plan
from placement.pools import named_pools
from placement.scoring import gpu_load
from rackplan.report.notes import layer_words, stage_lines
from topology.base.units import format_quantity, plural
from topology.cluster import Cluster
from topology.draw import Overlay

_MAX_LINES, _MAX_LAYERS = 12, 4
_BALANCED_SPREAD = 0.02
"""Range of loads over their mean below which they are one colour."""


def plan_overlay(plan: Plan) -> Overlay:
    """Return the overlay of each GPU: load over the mean of its stage, and its stage and replica.

    The load is what the plan's split gives, over speed where GPUs differ, as in balancedness, averaged over
    scenarios, in the least balanced layer of the stage: each layer waits for its fullest GPU. The label of a GPU is
    the number of expert slots it has per layer. Where there are several stages or replicas, the tag of a GPU is
    ``S1`` (stage 1) or ``R2.S1``.
    """
    count = len(plan.deployment.cluster.gpus)
    values = np.zeros(count)
    labels = [""] * count
    experts = [""] * count
    firsts = [""] * count
    rows: dict[int, int] = {}  # the least balanced layer of each stage, of those with experts
    for r, stages in enumerate(plan.layout.replicas):
        for s, (stage, assignment) in enumerate(zip(stages, plan.held_by(r), strict=True)):
            gpus = list(stage.gpus)
            if assignment is None or plan.loads is None:
                continue
            if r == 0 or r in plan.unlike:
                load = gpu_load(plan, stage, assignment)
                row = rows.setdefault(s, int(load.max(axis=1).argmax()))
                values[gpus] = load[row]
            else:  # as the first
                row = rows[s]
                values[gpus] = values[list(plan.layout.replicas[0][s].gpus)]
            for place, (gpu, slots) in enumerate(zip(gpus, assignment.slots_per_gpu, strict=True)):
                labels[gpu] = str(slots)
                held = assignment.slot_expert[row, assignment.slot_gpu == place]
                lowest, *further = sorted(held.tolist()) or [-1]
                experts[gpu] = " ".join(map(str, ["e" + str(lowest), *further])) if len(held) else "none"
                firsts[gpu] = f"e{lowest}{f'+{len(further)}' if further else ''}" if len(held) else "none"
    alone, layer = layout_overlay(plan.layout, count, plan), _least_balanced(plan, rows)
    if not rows:
        return alone
    return replace(
        alone,
        values=values.tolist(),
        labels=labels,
        legend=f"expert load over the mean of the least balanced layer{_range(values)}",
        details=(firsts, experts),
        cells=("slots per layer", f"first expert + how many more, of {layer}", f"experts of {layer}"),
        spans=(0.8, 1.2),
    )


def drawn_plan(plan: Plan) -> tuple[Cluster, Overlay]:
    """Return the cluster of a plan and the overlay of its GPUs: with several pools the whole, each pool in its place.

    There the tag of a GPU begins with the letter of its pool: ``P`` prefills, ``D`` decodes, ``B`` does both.
    """
    if not plan.beside:
        return plan.deployment.cluster, plan_overlay(plan)
    fleet = plan.deployment.cluster.whole
    all_ids = [gpu.id for gpu in fleet.gpus]
    overlays, key = [], []
    for name, pool in zip(named_pools(plan), plan.pools, strict=True):
        overlay, cluster = plan_overlay(pool), pool.deployment.cluster
        letter = "".join([name[0].upper(), *name.split()[1:]])
        tags = [f"{letter}{tag}" for tag in overlay.tags] or [letter] * len(cluster.gpus)
        ids = [gpu.id for gpu in cluster.gpus]
        overlays.append(replace(overlay, tags=tags).over(ids, all_ids))
        short = pool.layout.short(moe=pool.deployment.model.moe is not None)
        pool_words = f"{name}, {pool.deployment.model.name}, {short}, {plural(pool.layout.gpus_used, 'GPU')}"
        key.append(f"{letter}: {pool_words}")
    if any("R" in tag or "S" in tag for overlay in overlays for tag in overlay.tags):
        key.append("R and S in a tag: replica and stage of the pool")
    # a pool of a dense model has no experts to show
    with_loads = [overlay for overlay in overlays if overlay.values is not None]
    lead, depth = (with_loads or overlays)[0], min(len(overlay.texts) for overlay in with_loads or overlays)
    texts = [
        [
            "".join(parts)
            for parts in zip(*(overlay.texts[at] for overlay in with_loads or overlays), strict=True)
        ]
        for at in range(depth)
    ]
    loads = [overlay.values for overlay in with_loads if overlay.values is not None]
    return fleet, replace(
        lead,
        values=np.sum(loads, axis=0).tolist() if loads else None,
        labels=texts[0],
        details=texts[1:],
        cells=[text.partition(", of layer")[0].partition(" of layer")[0] for text in lead.cells[:depth]],
        tags=["".join(tags) for tags in zip(*(overlay.tags for overlay in overlays), strict=True)],
        key=key[:_MAX_LINES] + ["..."] * (len(key) > _MAX_LINES),
    )


def layout_overlay(layout: Layout, gpus: int, plan: Plan | None = None) -> Overlay:
    """Return stage and replica of each of ``gpus`` GPUs, before experts are placed; more is known of a ``plan``."""
    return Overlay(
        values=None, labels=[""] * gpus, legend="", tags=_tags(layout, gpus), key=_key(layout, plan)
    )


def _tags(layout: Layout, count: int) -> list[str]:
    """Return the tag of each GPU, empty for those of no stage; none at all where there is one stage alone."""
    alone = len(layout.replicas) == 1 and layout.stages == 1
    if alone and layout.apart is None:
        return []
    tags = [""] * count
    for r, stages in enumerate(layout.replicas):
        for s, stage in enumerate(stages):
            for gpu in stage.gpus:
                tags[gpu] = "" if alone else _tag(layout, r, s)
        for name, stage in layout.pools_of(r):
            for gpu in stage.gpus:
                tags[gpu] = (
                    f"{name[0].upper()}{tags[gpu]}" if alone else f"{name[0].upper()} {_tag(layout, r, 0)}"
                )
    return tags


def _range(values: NDArray[np.float64]) -> str:
    """Return the range of the loads, so that one colour everywhere is read as balance."""
    used = values[values > 0]
    if not len(used):
        return ""
    lowest, highest = float(used.min()), float(used.max())
    return f", {lowest:.3g} to {highest:.3g}{': balanced' if highest - lowest < _BALANCED_SPREAD else ''}"


def _least_balanced(plan: Plan, rows: Mapping[int, int]) -> str:
    """Say of which layers the loads and the experts in the cells are; ``rows``: which of those with experts."""
    moe, stages = plan.deployment.model.moe_layers, plan.layout.replicas[0]
    named = [str([i for i in moe if i in stages[s].layers][row]) for s, row in rows.items()]
    if len(named) <= 1:
        return f"layer {''.join(named)}, the least balanced of {len(moe)} MoE layers"
    ellipsis = ", ..." if len(named) > _MAX_LAYERS else ""
    return f"the least balanced layer of each stage: {', '.join(named[:_MAX_LAYERS])}{ellipsis}"


def _tag(layout: Layout, replica: int, stage: int) -> str:
    """Return the tag of a stage of a replica, no longer than it must be."""
    if len(layout.replicas) == 1:
        return f"S{stage}"
    return f"R{replica}.S{stage}" if layout.stages > 1 else f"R{replica}"


def _key(layout: Layout, plan: Plan | None = None) -> list[str]:
    """Return what the tags mean, a line for each stage, as many as can be read.

    With a ``plan`` also the domains of each stage, what it hands on, and the bubble.
    """
    replicas, stages = layout.replicas, layout.replicas[0]
    if held := layout.pools_of(0):
        replicas_words = f"; R0 to R{len(replicas) - 1}: replicas" * (len(replicas) > 1)
        return [f"{name[0].upper()}: {name}, {layer_words(stage)}{replicas_words}" for name, stage in held]
    if len(replicas) == 1 and layout.stages == 1:
        return [f"One stage: {layer_words(stages[0])}"]
    lines = [f"S{s}: {layer_words(stage)}" for s, stage in enumerate(stages)] if layout.stages > 1 else []
    if lines and plan is not None:
        lines = stage_lines(plan.deployment, layout, plan.deployment.workload.batch)
    if len(replicas) > 1:
        layers = f": {layer_words(stages[0])}" if layout.stages == 1 else ""
        lines.insert(0, f"R0 to R{len(replicas) - 1}: replicas, each a copy of the model{layers}")
    if len(lines) > _MAX_LINES:
        lines = [*lines[: _MAX_LINES - 2], f"... {len(lines) - _MAX_LINES + 1} more", lines[-1]]
    if layout.stages > 1 and plan is not None:
        seconds = plan.score.terms_s.get(BUBBLE.name, 0.0)
        share = f"{seconds / plan.score.step_s:.1%}"
        lines.append(f"Pipeline bubble: {seconds * 1e3:.2f} ms per step ({share}): {BUBBLE.meaning}")
        least = format_quantity(plan.score.lower_step_s, "s", 3)
        lines.append(f"Lower bound of a step: {least}: each resource at its data-sheet peak, all at once")
    return lines
