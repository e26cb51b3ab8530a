"""What a plan is replayed on: its EP groups, and what its steps and its moves cost on its cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np

from cost.experts.loads import ExpertLoads
from cost.step.score import LayoutScorer
from cost.terms.work import RESOURCES
from placement.arrays import Floats
from placement.layouts.fitting import balanced_uses
from placement.migrate.moved import expert_bytes
from placement.online.links import Links, fetched
from placement.online.policy import Group
from placement.online.simulate import Moves, Placed, Setting, Step
from placement.plan import Plan
from placement.scoring import moe_rows, of_first_kind, score_placement, stage_speed


def plan_setting(plan: Plan, steps_per_window: int, scenarios: ExpertLoads | None = None) -> Setting:
    """Return what ``plan`` is replayed on, of unlike replicas those like the first.

    ``scenarios`` are stored loads that policies of ours may know.

    Raises
    ------
    InputError
        If the model has no routed experts.
    """
    plan = of_first_kind(plan)
    costs, score = PlanCosts(plan), plan.score
    groups = tuple(replace(group, move_steps=costs.move_steps) for group in costs.groups(scenarios))
    tokens = score.tok_s_per_gpu * len(plan.deployment.cluster.gpus) * score.step_s
    copies = sum(group.start.size for group in groups) * len(plan.layout.replicas)
    return Setting(groups, costs, copies, steps_per_window, tokens)


class PlanCosts:
    """The costs of a plan: steps by its own score, moves over the links of its cluster; replicas move alike."""

    def __init__(self, plan: Plan) -> None:
        plan.require_experts()
        moe = plan.deployment.model.moe
        assert moe is not None  # noqa: S101 - it has experts that are placed
        self._plan, self._moe = plan, moe
        self._parts = {index: part for index, part in enumerate(plan.experts) if part is not None}
        layers = [plan.layout.replicas[0][index].layers for index in self._parts]
        self._rows = [moe_rows(plan.deployment, run) for run in layers]
        size = expert_bytes(plan)
        ids = plan.deployment.model.moe_layers
        self._bytes = [np.array([size[ids[row]] for row in rows]) for rows in self._rows]
        self._links = Links(plan.deployment.cluster)
        self._groups = self.groups(None)
        gpus, replicas = plan.deployment.cluster.gpus, plan.layout.replicas
        # then what a replica moves is on no link of another
        self._each_in_one_domain = all(
            len({gpus[gpu].domain for stage in stages for gpu in stage.gpus}) == 1 for stages in replicas
        )

    def groups(self, scenarios: ExpertLoads | None) -> tuple[Group, ...]:
        """Return the EP groups of one replica; of several the GPUs of the first."""
        plan, groups_of = self._plan, []
        for (index, part), rows in zip(self._parts.items(), self._rows, strict=True):
            stage = plan.layout.replicas[0][index]
            gpus = list(stage.gpus)
            groups_of.append(
                Group(
                    part.slots_per_gpu,
                    part.experts,
                    part.slot_expert,
                    plan.deployment.numbered("node")[gpus],
                    np.array([plan.deployment.cluster.gpus[gpu].domain for gpu in gpus]),
                    self._moe.groups,
                    plan.split,
                    stage_speed(plan.deployment, stage, part.slots_per_gpu),
                    None if scenarios is None else scenarios.tokens[:, rows],
                )
            )
        return tuple(groups_of)

    @cached_property
    def even_s(self) -> float:
        """Seconds of a step with experts perfectly balanced."""
        plan = self._plan
        slots = [np.zeros(0, dtype=np.int64) if part is None else part.slots_per_gpu for part in plan.experts]
        uses = balanced_uses(plan.deployment, plan.layout, slots)
        scorer = LayoutScorer(plan.deployment, plan.layout, uses, fair=True)
        return scorer.at(plan.deployment.workload.batch).step_s

    def step(self, window: Floats, placed: Placed) -> Step:
        """Return a step of the plan with other loads and another placement."""
        plan = self._plan
        experts = list(plan.experts)
        for index, group, rows in zip(self._parts, self._groups, placed, strict=True):
            experts[index] = group.assignment(rows)
        loads = ExpertLoads(window[None], ("window",), synthetic=False)
        score, balance = score_placement(plan.deployment, plan.layout, experts, loads, plan.split)
        links = sum(seconds for name, seconds in score.limits_s.items() if name not in RESOURCES)
        return Step(score.step_s, links, np.array(list(balance.values())))

    def moves(self, old: Placed, new: Placed) -> Moves:
        """Return what the moves of all replicas take; each fetches within itself, as engines do."""
        replicas = self._plan.layout.replicas
        parts, copies, total = [], 0, 0.0
        for index, group, current, next_placement, size in zip(
            self._parts, self._groups, old, new, self._bytes, strict=True
        ):
            task = group.task(current)
            part = fetched(task, next_placement, group.nodes, group.domains, size)
            copies += part.size.size * len(replicas)
            total += part.bytes * len(replicas)
            moving = replicas[: 1 if self._each_in_one_domain else None]
            parts += [part.on(np.array(stages[index].gpus)) for stages in moving]
        return Moves(copies, total, self._links.seconds(parts))

    @cached_property
    def move_steps(self) -> float:
        """What a move costs in every replica, in steps with largest over mean GPU load of a layer 1 higher.

        From the plan to an engine's own start, under the plan's loads; 0 where a rate of the links is unknown, and
        infinite where steps take no longer.
        """
        loads = self._plan.loads
        if loads is None:
            return 0.0
        start, linear = ([getattr(group, name) for group in self._groups] for name in ("start", "linear"))
        window = loads.tokens.mean(axis=0)
        fast, slow = self.step(window, start), self.step(window, linear)
        higher = float((1 / slow.balancedness).sum() - (1 / fast.balancedness).sum())
        longer, moves = slow.seconds - fast.seconds, self.moves(start, linear)
        lost = (moves.seconds or 0.0) * fast.shared * len(self._plan.layout.replicas)
        if not lost:
            return 0.0
        return lost / moves.copies / (longer / higher) if longer > 0 and higher > 0 else math.inf
