"""Place the experts of a layout: equal stages together, over all loads, for the engine's split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from cost.experts.assignment import Assignment, numbered
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from placement.arrays import Floats, Index, Ints
from placement.budget import Budget
from placement.experts.failure_domains import stage_domains
from placement.experts.problem import Problem, make_problem
from placement.experts.result import ExpertResult
from placement.experts.solve import solve
from placement.options import PlanOptions
from placement.scoring import moe_rows, split_places, stage_speed

Known = dict[tuple[object, ...], ExpertResult]
"""Fast placements by :attr:`StageGroup.key`."""


@dataclass(frozen=True, eq=False)
class StageGroup:
    """Stages with experts whose slots, speeds and failure domains are the same: their layers are placed together.

    Attributes
    ----------
    stages:
        Their numbers.
    rows:
        Of each, the rows of the loads that it holds.
    slots, speed, spread:
        As :class:`placement.experts.problem.Problem` takes them.
    nodes:
        What the split goes by of each GPU, of the first stage and replica (:func:`placement.scoring.split_places`).
    domains:
        Scale-up domains of a stage: what EPLB's hierarchical policy calls nodes.
    quota_slots:
        Slots of each GPU that are filled for each batch.
    """

    stages: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    slots: Ints
    speed: Floats | None
    spread: Ints | None
    nodes: Ints
    domains: int
    quota_slots: int = 0

    @property
    def held(self) -> Index:
        """Rows of the loads that the stages hold."""
        return np.array([row for rows in self.rows for row in rows], dtype=np.intp)

    @property
    def key(self) -> tuple[object, ...]:
        """What a placement depends on besides the loads: layouts that differ elsewhere share it."""
        arrays = (self.slots, self.held, self.speed, self.spread)
        return (*(None if array is None else array.tobytes() for array in arrays), self.domains)

    def by_stage(self, assignment: Assignment) -> Iterator[tuple[int, Assignment]]:
        """Yield each stage and its part of ``assignment``, whose layers are those of all stages."""
        cuts = np.cumsum([0, *(len(part) for part in self.rows)])
        for stage, (a, b) in zip(self.stages, pairwise(cuts), strict=True):
            part = assignment.slot_expert[a:b]
            yield stage, Assignment(part, assignment.slot_gpu, assignment.experts, assignment.gpus)


def stage_groups(
    deployment: Deployment, layout: Layout, slots_of_stages: Sequence[Ints], options: PlanOptions
) -> list[StageGroup]:
    """Return the stages with experts of a layout, those that are alike together."""
    alike: dict[tuple[object, ...], list[StageGroup]] = {}
    for index, slots in enumerate(slots_of_stages):
        stage = layout.replicas[0][index]
        rows = tuple(moe_rows(deployment, stage.layers))
        if not rows:
            continue
        speed = stage_speed(deployment, stage, slots)
        spread = None
        if options.spread != "gpu":
            members = [stages[index].gpus for stages in layout.replicas]
            spread = stage_domains(deployment, members, options.spread)
        nodes = numbered(split_places(deployment, stage, options.split))
        domains = len(deployment.domain_set(stage))
        group = StageGroup(
            (index,), (rows,), slots, speed, spread, nodes, domains, deployment.workload.quota_slots
        )
        # an even split does not ask where the nodes are
        arrays = (slots, speed, spread, nodes if options.split != "even" else None)
        key = tuple(None if array is None else array.tobytes() for array in arrays)
        alike.setdefault(key, []).append(group)
    return [
        replace(
            groups[0],
            stages=tuple(stage for group in groups for stage in group.stages),
            rows=tuple(part for group in groups for part in group.rows),
        )
        for groups in alike.values()
    ]


def group_problem(group: StageGroup, loads: ExpertLoads, options: PlanOptions) -> Problem:
    """Return the problem of a group over all loads, for the engine's split."""
    return make_problem(
        loads.normalised[:, group.held],
        group.slots,
        group.speed,
        group.spread,
        objective=options.objective,
        split=options.split,
        nodes=group.nodes,
        quota_slots=group.quota_slots,
    )


def place_stages(
    deployment: Deployment,
    layout: Layout,
    slots_of_stages: Sequence[Ints],
    loads: ExpertLoads,
    options: PlanOptions,
    budget: Budget | None = None,
    *,
    thorough: bool,
    known: Known | None = None,
) -> tuple[list[Assignment | None], list[StageGroup], list[ExpertResult]]:
    """Place the experts of a layout: the assignment of each stage, the groups and their results.

    ``thorough``: search under all loads at once and for the split that will run, small layers exactly, as a plan
    needs it; else for their mean and an even split, which tells layouts apart. ``known`` holds fast placements:
    layouts that differ elsewhere share them.
    """
    experts: list[Assignment | None] = [None] * layout.stages
    groups = stage_groups(deployment, layout, slots_of_stages, options)
    moe = deployment.model.moe
    results = []
    for group in groups:
        result = None if known is None else known.get(group.key)
        if result is None:
            share = None if budget is None else budget.part(1 / len(groups))
            problem = group_problem(group, loads, options)
            result = solve(
                problem if thorough else problem.average.even,
                share,
                seed=options.seed,
                eplb_groups=None if moe is None else moe.groups,
                nodes=group.domains,
                exact=thorough,
            )
        if known is not None:
            known[group.key] = result
        results.append(result)
        for index, part in group.by_stage(result.assignment):
            experts[index] = part
    return experts, groups, results
