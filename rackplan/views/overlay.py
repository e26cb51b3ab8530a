"""What a plan adds to the picture of its cluster: each GPU's stage, load and experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.inputs.layout import Layout, StageSpec
from placement.plan import Plan
from placement.scoring import split_use, stage_loads, stage_speed
from rackplan.views.pipeline import bubble_words, domain_words, hop_words, plan_hops
from topology.draw import Overlay

_MOST_LINES, _MOST_FIRST = 12, 4
_BALANCED = 0.02  # loads over their mean this close are one colour


def plan_overlay(plan: Plan) -> Overlay:
    """Return what each GPU does: its load over the mean of its stage, and the stage and replica it belongs to.

    The load is what the plan's split gives, over speed where GPUs differ, as in balancedness; it is averaged over
    layers and scenarios. The label of a GPU is the number of expert slots it has per
    layer. Where there are several stages or replicas, the tag of a GPU is ``S1`` (stage 1) or ``R2.S1``.
    """
    count = len(plan.deployment.cluster.gpus)
    values = np.zeros(count)
    labels = [""] * count
    experts = [""] * count
    firsts = [""] * count
    for r, stages in enumerate(plan.layout.replicas):
        for s, (stage, assignment) in enumerate(zip(stages, plan.held_by(r), strict=True)):
            gpus = list(stage.gpus)
            if assignment is None or plan.loads is None:
                continue
            if r == 0 or r in plan.unlike:
                values[gpus] = _busy(plan, stage, assignment, plan.loads)
            else:  # as the first
                values[gpus] = values[list(plan.layout.replicas[0][s].gpus)]
            for place, (gpu, slots) in enumerate(zip(gpus, assignment.slots_per_gpu, strict=True)):
                labels[gpu] = str(slots)
                held = assignment.slot_expert[0, assignment.slot_gpu == place]
                first, *others = sorted(held.tolist()) or [-1]
                experts[gpu] = " ".join(map(str, ["e" + str(first), *others])) if len(held) else "none"
                firsts[gpu] = f"e{first}{f'+{len(others)}' if others else ''}" if len(held) else "none"
    loaded, layer = plan.loads is not None, _first_layers(plan)
    return Overlay(
        values=values.tolist() if loaded else None,
        labels=labels,
        legend=f"expert load / mean{_range(values)}" if loaded else "",
        details=(firsts, experts) if any(experts) else (),
        cells=("slots per layer", f"first expert + how many more, of the {layer}", f"experts of the {layer}")
        if loaded
        else (),
        spans=(0.8, 1.2) if loaded else None,
        tags=_tags(plan.layout, count),
        key=_key(plan.layout, plan),
    )


def layout_overlay(layout: Layout, gpus: int) -> Overlay:
    """Return which stage and replica each of ``gpus`` GPUs belongs to, before any experts are placed."""
    return Overlay(values=None, labels=[""] * gpus, legend="", tags=_tags(layout, gpus), key=_key(layout))


def _tags(layout: Layout, count: int) -> list[str]:
    """Return the tag of each GPU, empty for those of no stage; none at all where there is one stage alone."""
    if len(layout.replicas) == 1 and layout.stages == 1:
        return []
    tags = [""] * count
    for r, stages in enumerate(layout.replicas):
        for s, stage in enumerate(stages):
            for gpu in stage.gpus:
                tags[gpu] = _tag(layout, r, s)
    return tags


def _range(values: NDArray[np.float64]) -> str:
    """Return the range of the loads, so that one colour everywhere is read as balance."""
    used = values[values > 0]
    if not len(used):
        return ""
    least, most = float(used.min()), float(used.max())
    return f", {least:.3g} to {most:.3g}{': balanced' if most - least < _BALANCED else ''}"


def _first_layers(plan: Plan) -> str:
    """Say of which layers the experts in the cells are: the first of each stage that has experts."""
    moe = plan.deployment.model.moe_layers
    firsts = [next((i for i in moe if i in stage.layers), None) for stage in plan.layout.replicas[0]]
    named = [str(first) for first in firsts if first is not None]
    if len(named) <= 1:
        return f"first of {len(moe)} layers with experts, layer {''.join(named)}"
    more = ", ..." if len(named) > _MOST_FIRST else ""
    return f"first layer of each stage that has any: {', '.join(named[:_MOST_FIRST])}{more}"


def spread(overlay: Overlay, gpus: Sequence[str], all_gpus: Sequence[str]) -> Overlay:
    """Return the overlay of some ``gpus`` (ids) for all GPUs of the cluster that they are a part of."""
    place = {gpu: number for number, gpu in enumerate(gpus)}
    known = [place.get(gpu) for gpu in all_gpus]
    values = overlay.values
    return replace(
        overlay,
        values=None if values is None else [0.0 if at is None else values[at] for at in known],
        labels=["" if at is None else overlay.labels[at] for at in known],
        details=[["" if at is None else texts[at] for at in known] for texts in overlay.details],
        tags=["" if at is None else overlay.tags[at] for at in known] if overlay.tags else (),
    )


def _busy(plan: Plan, stage: StageSpec, assignment: Assignment, loads: ExpertLoads) -> NDArray[np.float64]:
    """Return the load of each GPU of a stage over the mean one, ``[gpus]``."""
    mine = stage_loads(plan.deployment, loads.untraced, stage.layers)
    share = split_use(plan.deployment, stage, assignment, mine, plan.split).share
    speed = stage_speed(plan.deployment, stage, assignment.slots_per_gpu)
    busy = share if speed is None else share / speed
    over_mean: NDArray[np.float64] = busy.mean(axis=(0, 1)) / share.mean()
    return over_mean


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
    if len(replicas) == 1 and layout.stages == 1:
        return [f"One stage: {_layers(stages[0])}"]
    lines = [f"S{s}: {_layers(stage)}" for s, stage in enumerate(stages)] if layout.stages > 1 else []
    if lines and plan is not None:
        cluster, first = plan.deployment.cluster, "R0 " * (len(replicas) > 1)
        lines = [
            f"{line}, {first}on {domain_words(cluster, stage)}; to S{number % len(lines)} {hop_words(hop)}"
            for number, (line, stage, hop) in enumerate(zip(lines, stages, plan_hops(plan), strict=True), 1)
        ]
    if len(replicas) > 1:
        whole = f": {_layers(stages[0])}" if layout.stages == 1 else ""
        lines.insert(0, f"R0 to R{len(replicas) - 1}: replicas, each a copy of the model{whole}")
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 2], f"... {len(lines) - _MOST_LINES + 1} more", lines[-1]]
    if layout.stages > 1 and plan is not None:
        lines.append(f"Pipeline bubble: {bubble_words(plan)}")
    return lines


def _layers(stage: StageSpec) -> str:
    """Return the layers and the GPUs of a stage."""
    layers = stage.layers
    gpus = f"{len(stage.gpus)} GPU{'s' if len(stage.gpus) > 1 else ''}"
    if len(layers) == 1:
        return f"layer {layers[0]}, {gpus}"
    return f"layers {layers[0]} to {layers[-1]}, {gpus}"
