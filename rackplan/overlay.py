"""What a plan adds to the picture of its cluster: each GPU's load and experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement.plan import stage_loads

if TYPE_CHECKING:
    from placement.plan import Plan
    from topology.draw import Overlay

__all__ = ["plan_overlay"]


def plan_overlay(plan: Plan) -> Overlay | None:
    """Return each GPU's load over the mean of its stage, averaged over layers and scenarios; None without experts.

    The label of a GPU is the number of expert slots it has per layer.
    """
    from topology.draw import Overlay

    if plan.loads is None:
        return None
    count = len(plan.setting.cluster.gpus)
    values = np.zeros(count)
    labels = [""] * count
    for stages in plan.layout.replicas:
        for stage, assignment in zip(stages, plan.experts, strict=True):
            if assignment is None:
                continue
            part = stage_loads(plan.setting, plan.loads, stage.layers)
            load = np.mean([assignment.gpu_load(scenario) for scenario in part.normalised], axis=(0, 1))
            values[list(stage.gpus)] = load / load.mean()
            for gpu, slots in zip(stage.gpus, assignment.slots_per_gpu, strict=True):
                labels[gpu] = str(slots)
    legend = "expert load / mean (in cells: slots per layer)"
    return Overlay(values=values.tolist(), labels=labels, legend=legend, spans=(0.8, 1.2))
