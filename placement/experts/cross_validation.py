"""How a placement fares under each of its loads, and how one made without that load would: unseen workloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import DispatchPolicy
from cost.experts.loads import ExpertLoads
from placement.arrays import Floats
from placement.budget import Budget
from placement.experts.placing import group_problem
from placement.experts.solve import solve
from placement.findings import ScenarioReport, ScenarioRow
from placement.layout_choice import Placed
from placement.options import PlanOptions
from placement.progress import Say, silent
from placement.scoring import stage_use, use_balancedness

EFFORT = 96
"""Loads planned on, summed over the plans that leave one out: of more loads fewer are left out."""
FEWEST_LEFT_OUT = 4
MANY_NUMBERS, FEWEST_OF_MANY = 2**23, 1
"""Of so many loads (565 of 58 layers with 256 experts) a plan takes ten seconds, so one is made."""


def check_scenarios(
    placed: Placed, loads: ExpertLoads, options: PlanOptions, budget: Budget, say: Say = silent
) -> ScenarioReport:
    """Return the balancedness of ``placed`` under each load, and left out; Ctrl-C ends it at those so far.

    What is left out is planned the fast way on all other loads; of many loads, evenly spaced ones are left out.
    Balancedness is the mean over all layers.
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
    groups = None
    if options.scenario_weights == "grouped":
        groups = max(group_problem(group, loads, options).groups for group in placed.groups)
    return ScenarioReport(options.objective, rows, groups)


def _left_out(placed: Placed, loads: ExpertLoads, options: PlanOptions, scenario: int) -> float:
    """Balancedness under one load of what was planned on the others."""
    without = list(placed.experts)
    for group in placed.groups:
        problem = group_problem(group, loads, options).even.without(scenario)
        found = solve(problem, nodes=group.domains)
        for stage, part in group.by_stage(found.assignment):
            without[stage] = part
    alone = replace(loads, tokens=loads.tokens[scenario : scenario + 1], names=(loads.names[scenario],))
    return float(_balancedness(placed, without, alone, options.split).mean())


def _balancedness(
    placed: Placed, experts: Sequence[Assignment | None], loads: ExpertLoads, split: DispatchPolicy
) -> Floats:
    """Balancedness of every layer with experts, ``[scenarios, layers]``, under the split that will run."""
    deployment, stages = placed.candidate.deployment, placed.candidate.layout.replicas[0]
    found = []
    for group in placed.groups:
        for stage in group.stages:
            entry = experts[stage]
            if entry is not None:
                use = stage_use(deployment, stages[stage], entry, loads.untraced, split)
                found.append(use_balancedness(use, group.speed))
    return np.concatenate(found, axis=1)
