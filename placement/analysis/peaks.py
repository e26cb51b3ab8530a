"""A plan with all kernels at data-sheet peaks: how much of its step is efficiency and delay."""

from __future__ import annotations

from dataclasses import replace

from cost.inputs.machine import PEAK
from cost.step.score import Score
from placement.plan import Plan
from placement.scoring import score_placement


def at_peaks(plan: Plan) -> Score:
    """Return the score of the same placement with every kernel at its data-sheet peak and without delay."""
    deployment = replace(plan.deployment, efficiency=PEAK)
    return score_placement(deployment, plan.layout, plan.experts, plan.loads, plan.split, plan.unlike)[0]
