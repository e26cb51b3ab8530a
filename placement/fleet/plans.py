"""Replicas with their experts placed: quickly, to price many, and as a plan on a cluster that is the GPUs of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.step.score import Score
from placement.analysis.failures import FEW_TOKENS
from placement.experts.placing import Known
from placement.fleet.options import PREFILL, Traffic
from placement.fleet.pricing import Column, with_figures
from placement.fleet.shapes import Group
from placement.layouts.choose import Candidate, Placed, place
from placement.layouts.fitting import Fitted, Fitting, batch_that_fits, fitted, stage_slots
from placement.layouts.goals import aim_of
from placement.layouts.shapes import Shape
from placement.options import NO_LIMIT, PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from topology.base.errors import InfeasibleError
from topology.cluster import ClusterView

_EVEN = 0.9
"""Balancedness of the worst layer below which a copy more on each GPU is tried."""

_Made = TypeVar("_Made", Plan, Placed)
_Make = Callable[[Deployment, PlanOptions, Fitted], _Made]


@dataclass(frozen=True, eq=False)
class PoolPlan:
    """The plan of a pool's first replica; None where none can be, with the reason."""

    plan: Plan | None
    reason: str = ""


@dataclass(eq=False)
class Placing:
    """Places the experts of replicas, their layout, GPUs and largest batch given, under the loads of the traffic.

    Where experts as placed would miss the limit of a replica, it has the largest batch that keeps it. A batch below
    one sequence per GPU is in no plan: such a replica stays as it is priced.
    """

    traffic: Traffic
    seed: int = 0
    _known: dict[int, Known] = field(default_factory=dict)
    _found: dict[tuple[object, ...], tuple[float, float, float] | None] = field(default_factory=dict)
    _parts: dict[tuple[object, ...], float] = field(default_factory=dict)
    _reached: dict[tuple[object, ...], float] = field(default_factory=dict)

    def price(self, column: Column, stages: tuple[Group, ...]) -> Column | None:
        """Return ``column`` at the rate that it has with its experts placed; None where they cannot be.

        One is placed of those that differ in the number of their stages, or in which domains they are, alone: they
        reach about the same part of their price.
        """
        cluster, widest = self.traffic.deployments[column.model][0].cluster, max(column.shape.sizes)
        chips = frozenset(cluster.domain_of(gpu).gpu.name for stage in stages for gpu in stage)
        crosses = widest > max(block.size for block in column.shape.blocks)
        what = column.tp, column.batch, frozenset(column.shape.sizes), crosses, chips
        key = (column.model, column.role, *what)
        if key not in self._parts:
            made = self.placed(column, stages)
            if made is None:
                return None
            self._parts[key] = made.tok_s / column.tok_s
        part = self._parts[key] * self._reached.get(_kind(column), 1.0)
        return with_figures(column, column.tok_s * part, column.batch, column.step_s) if part else None

    def placed(self, column: Column, stages: tuple[Group, ...]) -> Column | None:
        """Return ``column`` with what it costs on these GPUs, its experts placed the fast way, or None."""
        key = (column.model, column.role, column.tp, column.batch, column.limit_s, stages)
        if key not in self._found:
            known = self._known.setdefault(column.model, {})
            loads = self._loads(column)
            few = loads and loads.divided().sampled(FEW_TOKENS)

            def placed(deployment: Deployment, options: PlanOptions, layout: Fitted) -> Placed:
                workload = deployment.workload
                limit_s = options.service_level(workload).limit_s
                score = layout.scorer.at(workload.batch)
                aim = aim_of(deployment, "throughput")
                made = place(Candidate(layout, deployment, score, limit_s, aim), few, options, known=known)
                if not made.meets:
                    raise InfeasibleError("no batch meets the limit with placed experts")
                return made

            made = self._made(column, stages, placed)
            self._found[key] = None if isinstance(made, str) else _figures(made.score, column)
        found = self._found[key]
        return None if found is None else with_figures(column, *found)

    def plan(self, column: Column, stages: tuple[Group, ...]) -> PoolPlan:
        """Return the plan of a replica."""

        def planned(deployment: Deployment, options: PlanOptions, layout: Fitted) -> Plan:
            return make_plan(deployment, self._loads(column), options, layouts=[layout])

        made = self._made(column, stages, planned)
        return PoolPlan(None, made) if isinstance(made, str) else PoolPlan(made)

    def reaches(self, column: Column, part: float) -> None:
        """From now on let replicas such as ``column`` be priced at ``part`` of what they were."""
        self._reached[_kind(column)] = part * self._reached.get(_kind(column), 1.0)

    def _loads(self, column: Column) -> ExpertLoads | None:
        return None if self.traffic.loads is None else self.traffic.loads[column.model]

    def _made(self, column: Column, stages: tuple[Group, ...], make: _Make[_Made]) -> _Made | str:
        """Return what is made with the fewest copies that divide, or one more on each GPU, or why nothing is."""
        traffic = self.traffic
        everywhere = traffic.deployment(column.model, column.role)
        whole = everywhere.cluster
        members = [gpu for stage in stages for gpu in stage]
        number = {gpu: index for index, gpu in enumerate(sorted(members))}
        shape = Shape((tuple(tuple(number[gpu] for gpu in stage) for stage in stages),), column.tp)
        cluster = ClusterView(whole, [whole.gpus[gpu].id for gpu in members])
        workload = everywhere.workload.with_batch(column.batch)
        deployment = replace(everywhere, cluster=cluster, workload=workload)
        for there, here in zip(stages, shape.replicas[0], strict=True):
            # routes between GPUs are those of the whole cluster, and known from pricing
            known = deployment.context(StageSpec(here, range(0)))
            known.shared.machines[known.conditions, here] = everywhere.machine(StageSpec(there, range(0)))
        limit_s = None if column.limit_s == math.inf else column.limit_s * (1 + 1e-9)
        options = PlanOptions(redundant=traffic.redundant, time_limit_s=0.0, seed=self.seed, tp=column.tp)
        if column.role == PREFILL:
            options = replace(options, ttft_s=limit_s)
        else:
            options = replace(
                options, tpot_s=NO_LIMIT if limit_s is None else limit_s / workload.tokens_per_step
            )
        made = _with_copies(deployment, shape, options, make)
        moe = deployment.model.moe
        if isinstance(made, str) or traffic.redundant is not None or not moe:
            return made
        if min(made.balancedness.values(), default=1.0) < _EVEN:
            # one copy more on each GPU evens out what the fewest that divide cannot
            group = max(len(stage) for stage in stages)
            more = (-(-moe.experts // group) + 1) * group - moe.experts
            other = _with_copies(deployment, shape, replace(options, redundant=more), make)
            if not isinstance(other, str) and other.score.tok_s_per_gpu > made.score.tok_s_per_gpu:
                return other
        return made


def _with_copies(
    deployment: Deployment, shape: Shape, options: PlanOptions, make: _Make[_Made]
) -> _Made | str:
    """Return what is made with so many redundant copies, or why nothing can be."""
    slots = stage_slots(deployment, shape, options.copies)
    if slots is None:
        return "no slots for the experts on these GPUs"
    most = batch_that_fits(deployment, shape, slots)
    if not most:
        return "HBM does not hold one sequence a group"
    deployment = deployment.with_batch(min(deployment.workload.batch, most))
    found = fitted(deployment, Fitting(shape, slots, most))
    if found is None:
        return "HBM does not hold the batch when layers are rounded up to whole KiB"
    asked = replace(options, stages=found.layout.stages, ep=found.layout.ep)
    try:
        return make(deployment, asked, replace(found, fixed=False))
    except InfeasibleError as error:
        return str(error)


def _kind(column: Column) -> tuple[object, ...]:
    return column.model, column.role, column.shape, column.tp


def _figures(score: Score, column: Column) -> tuple[float, float, float]:
    """Tokens per second of a replica, sequences per GPU and seconds of a step."""
    return score.tok_s_per_gpu * column.shape.gpus, score.batch, score.step_s


def as_planned(column: Column, plan: Plan) -> Column:
    """Return ``column`` with what its plan says."""
    return with_figures(column, *_figures(plan.score, column))
