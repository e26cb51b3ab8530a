"""What layouts of any shape would gain over those that engines deploy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rackplan import layouts
from rackplan.requests import PlanRequest, SweepRequest
from topology.base.errors import called

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from cost.layouts import Sweep
    from cost.serving.result import Pools
    from placement.plan import Plan


MIN_GAIN = 0.02
"""Share of tok/s/GPU below which the gain of layouts of any shape is not reported."""
MAX_GPUS = 128
"""Largest cluster (GPUs) for which layouts of any shape are searched, to keep commands quick."""


def plan_shape_notes(plan: Plan, request: PlanRequest) -> list[str]:
    """Return the gain of layouts of any shape over those that a plan was chosen from, with balanced experts."""
    from cost.layouts import sweep as sweep_layouts

    deployment = plan.deployment
    alone = plan.requests is None
    free = alone and request.goal == "throughput" and deployment.workload.decodes and not request.batch
    if not free or any(map(request.given, ("ep", "tp", "stages"))) or not _quick(deployment):
        return []
    speeds = () if plan.limit_s is None else (1 / plan.limit_s,)
    candidates = sweep_layouts(deployment, cut_experts=False, speeds=speeds)
    return shape_notes(candidates, speeds, cut_experts=False) if len(candidates) else []


def _quick(deployment: Deployment) -> bool:
    """Whether only deployable layouts were priced, and the cluster is small enough to price all others."""
    return not deployment.any_shape and len(deployment.cluster.gpus) <= MAX_GPUS


def shape_notes(sweep: Sweep, speeds: Sequence[float] = (), *, cut_experts: bool = True) -> list[str]:
    """Return the largest gain of layouts of any shape over those of a sweep at one of ``speeds``.

    Or a note that all layouts are of any shape, since no other holds the model. Empty for large clusters.
    """
    from cost.inputs.deployment import NONE_DEPLOYABLE
    from cost.layouts.any_shape import gain_of_any_shape

    if sweep.deployment.none_deployable:
        return [NONE_DEPLOYABLE]
    if not _quick(sweep.deployment):
        return []
    gain, speed, label = gain_of_any_shape(sweep, speeds, cut_experts=cut_experts)
    return _note(gain, f" at {speed:g} tok/s/user" * bool(speed) + f", {label}")


def _note(gain: float, detail: str = "") -> list[str]:
    """Return what layouts of any shape gain, if that is worth saying."""
    text = f"layouts of any shape ({called('any_shape')}): {gain:.1%} more tok/s/GPU{detail}"
    return [text] if gain >= MIN_GAIN else []


def any_shape_notes(result: Sweep | Pools, request: SweepRequest) -> list[str]:
    """Return the gain of layouts of any shape over those of a sweep, or over the best for whole requests."""
    from cost.serving.result import Pools

    if not isinstance(result, Pools):
        return shape_notes(result, request.speeds)
    deployment, best = result.serving.decode.deployment, result.best
    if best is None or not _quick(deployment) or result.serving.both is None:
        return []
    any_shape_best = layouts.served(replace(deployment, any_shape=True), request).serving.best(result.tpot_s)
    return _note(
        0.0 if any_shape_best is None else any_shape_best.output_tok_s_per_gpu / best.output_tok_s_per_gpu - 1
    )
