"""Cross-validation: a placement under each of its loads, and one made without that load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import DispatchPolicy
from cost.experts.loads import ExpertLoads
from placement.arrays import Experts, Floats
from placement.budget import Budget
from placement.experts.placing import group_problem
from placement.experts.solve import solve
from placement.layouts.choose import Placed
from placement.options import PlanOptions
from placement.plans.findings import ScenarioReport, ScenarioRow
from placement.progress import Say, silent
from placement.scoring import stage_use, use_balancedness

EFFORT = 96
"""Loads planned on, summed over the plans that leave one out: of more loads fewer are left out."""
FEWEST_LEFT_OUT = 4
MOST_LAYERS = 6
"""Of a group: evenly spaced ones are planned without a load, what that costs them counts for all."""
LESS = 0.3
"""Of the steps of a plan, where some layers speak for all: balancedness then is a little low."""
MANY_NUMBERS, FEWEST_OF_MANY = 2**23, 1
"""Of so many loads (565 of 58 layers with 256 experts) a plan takes ten seconds, so one is made."""


def check_scenarios(
    placed: Placed, loads: ExpertLoads, options: PlanOptions, budget: Budget, say: Say = silent
) -> ScenarioReport:
    """Return the balancedness of ``placed`` under each load, and left out; Ctrl-C ends it at those so far.

    What is left out is planned the fast way on all other loads, in some layers (:data:`MOST_LAYERS`); of many loads,
    evenly spaced ones are left out. Balancedness is the mean over all layers.
    """
    inside = _balancedness(placed, placed.experts, loads, options.split)
    count = len(loads.tokens)
    fewest = FEWEST_LEFT_OUT if loads.tokens.size <= MANY_NUMBERS else FEWEST_OF_MANY
    most = min(count, max(fewest, EFFORT // count))
    tried = [i * count // most for i in range(most)]
    outside: dict[int, float] = {}
    with budget:
        for number, scenario in enumerate(tried, 1):
            say(f"leaving out each of the loads: {number} of {most}")
            outside[scenario] = _left_out(placed, loads, options, scenario)
    rows = tuple(
        ScenarioRow(name, float(layers.mean()), outside.get(index), float(layers.min()))
        for index, (name, layers) in enumerate(zip(loads.names, inside, strict=True))
    )
    groups = max(group_problem(group, loads, options).groups for group in placed.groups)
    return ScenarioReport(objective=options.objective, rows=rows, groups=groups)


def how_left_out(placed: Placed) -> str:
    """Return in words how left-out loads are estimated."""
    layers = [group.held.size for group in placed.groups]
    some = sum(min(MOST_LAYERS, count) for count in layers)
    if some == sum(layers):
        return "loads left out: re-planned without each by the fast path"
    return f"loads left out: {some} of {sum(layers)} layers planned again without each by {LESS:.0%} of the steps"


def _left_out(placed: Placed, loads: ExpertLoads, options: PlanOptions, scenario: int) -> float:
    """Balancedness under one load of what was planned on the others: of some layers, and so estimated for all."""
    without, changed, at = list(placed.experts), [], 0
    for group in placed.groups:
        problem = group_problem(group, loads, options).even.without(scenario)
        count = min(MOST_LAYERS, problem.layers)
        some = np.arange(count) * problem.layers // count
        replanned = solve(
            problem.rows(some), nodes=group.domains, effort=LESS if count < problem.layers else 1.0
        )
        own = np.concatenate([_held(placed, stage) for stage in group.stages])
        own[some] = replanned.assignment.slot_expert
        for stage, part in group.by_stage(problem.assignment(own)):
            without[stage] = part
        changed.append(at + some)
        at += problem.layers
    alone = replace(loads, tokens=loads.tokens[scenario : scenario + 1], names=(loads.names[scenario],))
    inside, outside = (
        _balancedness(placed, experts, alone, options.split)[0] for experts in (placed.experts, without)
    )
    rows = np.concatenate(changed)
    return float(inside.mean() + (outside[rows] - inside[rows]).mean())


def _held(placed: Placed, stage: int) -> Experts:
    """Return what a stage with experts holds, ``[layers, slots]``."""
    part = placed.experts[stage]
    if part is None:
        raise AssertionError(f"stage {stage} has no experts")
    return part.slot_expert


def _balancedness(
    placed: Placed, experts: Sequence[Assignment | None], loads: ExpertLoads, split: DispatchPolicy
) -> Floats:
    """Balancedness of every layer with experts, ``[scenarios, layers]``, under the split that will run."""
    deployment, stages = placed.candidate.deployment, placed.candidate.layout.replicas[0]
    balancedness = []
    for group in placed.groups:
        for stage in group.stages:
            entry = experts[stage]
            if entry is not None:
                use = stage_use(deployment, stages[stage], entry, loads.untraced, split)
                balancedness.append(use_balancedness(use, group.speed))
    return np.concatenate(balancedness, axis=1)
