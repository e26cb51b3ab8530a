"""EPLB's policies and linear placement on the slots of a plan made otherwise: re-planned, or read from a file."""

from __future__ import annotations

from collections.abc import Sequence

from cost.assignment import Assignment
from cost.deployment import Deployment
from cost.dispatch import Split
from cost.layout import Layout
from cost.loads import ExpertLoads
from placement.baselines import Baseline, baselines
from placement.plan import BaselineScore, moe_rows, score_placement, stage_speed
from placement.problem import expert_problem


def score_rivals(
    deployment: Deployment,
    layout: Layout,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads,
    split: Split,
) -> dict[str, BaselineScore]:
    """Return each rival's score by name, on the slots per GPU of ``experts`` and planned on the mean of ``loads``.

    Where a policy does not apply in some stage, its entry holds the reason.
    """
    moe = deployment.model.moe
    found: list[dict[str, Baseline] | None] = []
    for stage, assignment in zip(layout.replicas[0], experts, strict=True):
        if assignment is None or moe is None:
            found.append(None)
            continue
        slots = assignment.slots_per_gpu
        problem = expert_problem(
            loads.mean[moe_rows(deployment, stage.layers)], slots, stage_speed(deployment, stage, slots)
        )
        found.append(baselines(problem, eplb_groups=moe.groups, nodes=len(deployment.domain_set(stage))))
    scored = {}
    for name in next((entry for entry in found if entry is not None), {}):
        rivals = [None if entry is None else entry[name] for entry in found]
        reason = next(
            (rival.reason for rival in rivals if rival is not None and rival.assignment is None), ""
        )
        if reason:
            scored[name] = BaselineScore(reason)
            continue
        parts = [None if rival is None else rival.assignment for rival in rivals]
        score, balancedness = score_placement(deployment, layout, parts, loads, split)
        scored[name] = BaselineScore("", balancedness, score)
    return scored
