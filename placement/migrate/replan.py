"""Re-plan a whole plan: new loads, lost GPUs, a budget; the new plan, and the steps from the old one to it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import DispatchPolicy
from cost.experts.loads import ExpertLoads
from cost.step.score import Score
from placement.analysis.failures import FEW_TOKENS, find_failures
from placement.arrays import Experts
from placement.budget import Budget, Cancel
from placement.experts.failure_domains import require_apart, stage_domains
from placement.experts.pack import EMPTY
from placement.migrate.degraded import Degraded, cluster_without, degraded, described_anew
from placement.migrate.front import CurvePoint
from placement.migrate.least import LeastMoves, proven_moves
from placement.migrate.migration import migrate
from placement.migrate.moved import expert_bytes, holders
from placement.migrate.steps import Step, Transfers, in_order, nearest_sources, transfers
from placement.migrate.task import MigrationTask
from placement.plan import ROUNDING, BaselineScore, Plan
from placement.progress import OnProgress
from placement.scoring import (
    placement_proof,
    placement_scorer,
    routed_traffic,
    score_placement,
    score_rivals,
    stage_problem,
)
from placement.verify import verify_plan
from topology.base.errors import InputError, input_name
from topology.base.shown import Shown
from topology.base.units import mean_of
from topology.cluster import Cluster
from topology.spec import Fault


@dataclass(frozen=True)
class ReplanOptions:
    """Options of a re-plan.

    Attributes
    ----------
    lost:
        Names of GPUs, nodes, racks, domains, NICs, switches, planes or links that are gone
        (:func:`topology.changes.broken.lost_faults`).
    max_moves, max_bytes:
        Budget over all layers and replicas; None: no limit.
    horizon_s:
        How long the new placement is to serve, in seconds: without a budget every move is made that saves more in
        that time than it takes on the links. None: as :func:`replan_plan` says.
    time_limit_s:
        Seconds to search; 0 for one deterministic pass.
    """

    lost: tuple[str, ...] = ()
    max_moves: int | None = None
    max_bytes: float | None = None
    horizon_s: float | None = None
    time_limit_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_moves", "max_bytes", "horizon_s", "time_limit_s", "seed"):
            value = getattr(self, name)
            if value is not None and (not np.isfinite(value) or value < 0):
                raise InputError("expected a finite number of at least 0.", field=name, value=f"{value:g}")


@dataclass(frozen=True, eq=False, repr=False)
class Replanned(Shown):
    """A new plan and its moves; counts are over all layers and replicas.

    Attributes
    ----------
    steps:
        The moves in an order that a runtime can follow; GPU numbers are of the new plan's cluster.
    expert_bytes:
        Bytes of one expert by layer.
    before, restored, after, fresh:
        Balancedness under the new loads, mean over layers: of the old plan (None where GPUs were lost), of the
        placement with the fewest moves that restore every expert, of the new plan, of a placement made afresh.
    needed, fresh_moves:
        Moves that restoring takes, and that the fresh placement would take on the GPUs that hold most of it.
    least:
        What no placement does with fewer moves in which each layer is as balanced as in this one: a proof.
    copies:
        Copies in the new plan, of which the moves are a part.
    lost_gpus, lost_copies:
        GPUs that are lost, and the copies that lay on them.
    faults:
        Links that are broken or slow.
    front:
        From the fewest moves to the best balance, moves over all replicas.
    meets:
        The first point of it that keeps the plan's limit, by bisection; None where none does, or there is no limit.
    transfer:
        What the moves ask of the links.
    pool:
        The pool of ``plan`` that was re-planned, on whose cluster GPUs are counted; None where it has one.
    """

    plan: Plan
    steps: tuple[Step, ...]
    expert_bytes: Mapping[int, float]
    before: float | None
    restored: float
    after: float
    fresh: float
    needed: int
    fresh_moves: int
    least: LeastMoves
    copies: int
    lost_gpus: int
    lost_copies: int
    faults: tuple[Fault, ...]
    front: tuple[CurvePoint, ...]
    meets: CurvePoint | None
    transfer: Transfers
    pool: Plan | None = None

    @property
    def moved(self) -> Plan:
        """The plan of the pool whose copies move."""
        return self.plan if self.pool is None else self.pool

    def brief(self) -> str:
        """Return the moves and their effect in one line."""
        return f"{self.moves:,} of {self.copies:,} copies move, balancedness {self.after:.4f}: {self.plan.brief()}"

    @property
    def moves(self) -> int:
        """Total moves."""
        return len(self.steps)

    @property
    def bytes(self) -> float:
        """Bytes of all moves."""
        return sum(self.expert_bytes[step.layer] for step in self.steps)

    @property
    def bytes_per_move(self) -> float:
        """Bytes of one expert: the largest, where layers differ."""
        return max(self.expert_bytes.values())


def replan_plan(
    plan: Plan,
    loads: ExpertLoads | None,
    options: ReplanOptions,
    *,
    cluster: Cluster | None = None,
    on_progress: OnProgress | None = None,
    cancel: Cancel | None = None,
) -> Replanned:
    """Return ``plan`` adapted to ``loads`` (None: its own) and failures, with few moves.

    ``cluster`` describes the plan's cluster anew, with what is broken now; ``options`` say what is lost besides.
    Without a budget or a horizon: with GPUs lost, the fewest moves that restore every expert; else the fewest within
    :data:`placement.migrate.migration.KNEE` of a fresh placement's balancedness. All of it under the plan's split.
    ``on_progress`` is called with a :class:`placement.migrate.migration.State` and seconds; ``cancel`` ends the
    search as Ctrl-C does.

    Raises
    ------
    InputError
        If the model has no experts, a name of what is lost is not known, the GPUs of ``cluster`` are not those of
        the plan, or the loads do not fit.
    InfeasibleError
        If what is left cannot hold the experts, or the budget is too small to restore them.
    """
    plan.require_experts()
    loads = plan.loads if loads is None else loads
    assert loads is not None  # noqa: S101 - experts are placed by loads
    now = plan.deployment.cluster if cluster is None else described_anew(plan.deployment.cluster, cluster)
    left = degraded(plan, cluster_without(now, options.lost))
    lost = left.lost_gpus
    tasks = _Tasks(left, loads, plan.split, _tasks(plan, left, loads))
    size = expert_bytes(plan)
    times = [tasks.replicas(rest) for rest, _ in tasks.of_stage]
    unit = math.gcd(*times)
    limit = _budget(options, unit, max(size.values()))
    budget = Budget(options.time_limit_s, on_progress, cancel=cancel)
    migration = migrate(
        list(tasks.of_stage.values()),
        replicas=[count // unit for count in times],
        max_moves=limit,
        only_restore=bool(lost) and limit is None and options.horizon_s is None,
        price=None if options.horizon_s is None else partial(_price, plan, tasks, size, options.horizon_s),
        budget=budget,
        seed=options.seed,
    )
    with budget.keeping():
        placed = [task.slot_expert for task in migration.placements]
        start, fresh = (
            [task.start for task in migration.placements],
            [task.fresh for task in migration.placements],
        )
        old_score, restored = tasks.score(start)
        log = migration.log
        if loads.routing and old_score.step_s <= tasks.score(placed)[0].step_s:
            placed = start
            log = (
                *log,
                "moves for balance only are left out, since with the traces they would not shorten the step",
            )
        fresh_score, afresh = tasks.score(fresh)
        front = tuple(replace(point, moves=point.moves * unit) for point in migration.curve)
        meets = _first_within(plan.limit_s, front, lambda at: tasks.score(migration.placed(at))[0].tpot_s)
        new = _new_plan(plan, tasks, placed)
        new = replace(
            new,
            origin="replanned",
            request=replace(
                plan.request,
                seed=options.seed,
                time_limit_s=options.time_limit_s,
            ),
            notes=(*left.notes, *log),
            baselines={
                **score_rivals(new),
                "old plan" if not lost else "restored": BaselineScore("", restored, old_score),
                "fresh plan": BaselineScore("", afresh, fresh_score),
            },
        )
        with budget:
            few = replace(new, loads=loads.sampled(FEW_TOKENS))
            new = replace(new, failures=find_failures(few))
        wrong = verify_plan(new)
        if wrong:
            raise AssertionError(f"the re-plan is illegal, please report it: {wrong[0]}")
        least = proven_moves(list(tasks.of_stage.values()), placed, times, budget)
    new = replace(new, interrupted=budget.interrupted)
    steps = _steps(plan, tasks, placed, size)
    return Replanned(
        plan=new,
        steps=tuple(steps),
        expert_bytes=size,
        before=None if lost else mean_of(restored.values()),
        restored=mean_of(restored.values()),
        after=mean_of(new.balancedness.values()),
        fresh=mean_of(afresh.values()),
        needed=tasks.moves(start),
        fresh_moves=tasks.moves(fresh),
        least=least,
        copies=sum(count * rows.size for count, rows in zip(times, placed, strict=True)),
        lost_gpus=lost,
        lost_copies=left.lost_copies,
        faults=tuple(fault for fault in left.deployment.cluster.spec.faults if fault.link is not None),
        front=front,
        meets=meets,
        transfer=transfers(left.deployment.cluster, steps, size),
    )


def _first_within(
    limit_s: float | None, front: Sequence[CurvePoint], tpot_s: Callable[[int], float]
) -> CurvePoint | None:
    """Return the first point of the front within the limit: a step gets shorter from point to point."""
    if limit_s is None:
        return None
    at = bisect_left(range(len(front)), True, key=lambda at: tpot_s(at) <= limit_s * (1 + ROUNDING))
    return front[at] if at < len(front) else None


@dataclass(frozen=True, eq=False)
class _Tasks:
    """The task of each stage that has experts, of replicas that hold the same, by the number of those and the stage.

    Placements are one ``[layers, slots]`` for each task, in order.
    """

    left: Degraded
    loads: ExpertLoads
    split: DispatchPolicy
    of_stage: dict[tuple[int, int], MigrationTask]

    def replicas(self, rest: int) -> int:
        """Return how many replicas hold the same."""
        return len(self.left.rests[rest].replicas)

    def experts(self, rows: Sequence[Experts], rest: int = 0) -> tuple[Assignment | None, ...]:
        """Return a placement by stage: of the first replica, or of those of a number."""
        placed = {
            key: task.problem.assignment(row)
            for (key, task), row in zip(self.of_stage.items(), rows, strict=True)
            if key[0] == rest
        }
        return tuple(placed.get((rest, index)) for index in range(self.left.layout.stages))

    def unlike(self, rows: Sequence[Experts]) -> dict[int, tuple[Assignment | None, ...]]:
        """Return what replicas hold that do not hold what the first does."""
        placed: dict[int, tuple[Assignment | None, ...]] = {}
        for number, rest in enumerate(self.left.rests[1:], 1):
            own = self.experts(rows, number)
            placed |= dict.fromkeys(rest.replicas, own)
        return placed

    def score(self, rows: Sequence[Experts]) -> tuple[Score, dict[int, float]]:
        """Return the score and the balancedness by layer of a placement."""
        return score_placement(
            self.left.deployment,
            self.left.layout,
            self.experts(rows),
            self.loads,
            self.split,
            self.unlike(rows),
        )

    def objective(self, rows: Sequence[Experts]) -> float:
        """Return the mean over layers and replicas of largest over mean GPU load."""
        values = [task.judged(row)[0] for task, row in zip(self.of_stage.values(), rows, strict=True)]
        times = np.repeat(
            [self.replicas(rest) for rest, _ in self.of_stage], [len(layers) for layers in values]
        )
        return float(np.average(np.concatenate(values), weights=times))

    def moves(self, rows: Sequence[Experts]) -> int:
        """Return the moves that a placement takes, over all replicas."""
        return sum(
            self.replicas(rest) * int(task.moves(row).sum())
            for ((rest, _), task), row in zip(self.of_stage.items(), rows, strict=True)
        )


def _price(
    plan: Plan,
    tasks: _Tasks,
    size: Mapping[int, float],
    horizon_s: float,
    start: Sequence[Experts],
    fresh: Sequence[Experts],
) -> float:
    """Return by what a move must lower the mean objective to save in ``horizon_s`` the seconds that it takes.

    A step gets shorter in proportion to the objective, from ``start`` to ``fresh``; a move takes its part of the time
    that all moves to ``fresh`` take on the links.
    """
    steps = _steps(plan, tasks, fresh, size)
    moves_s = transfers(tasks.left.deployment.cluster, steps, size).seconds
    if moves_s is None:
        raise InputError(
            "the time of a move is unknown, since a link on its path has no published rate; limit moves with "
            f"{input_name('max_moves')} instead.",
            field="horizon_s",
            value=f"{horizon_s:g}",
        )
    slow, fast = (tasks.score(rows)[0].step_s for rows in (start, fresh))
    higher = tasks.objective(start) - tasks.objective(fresh)
    if slow <= fast or higher <= 0:
        return math.inf
    return moves_s / max(1, len(steps)) / (horizon_s * (slow - fast) / slow / higher + math.ulp(0.0))


def _new_plan(plan: Plan, tasks: _Tasks, placed: Sequence[Experts]) -> Plan:
    """Return ``plan`` with what is left and a new placement, scored; what was found for the old one is gone."""
    deployment, layout, experts = tasks.left.deployment, tasks.left.layout, tasks.experts(placed)
    unlike = tasks.unlike(placed)
    new = replace(
        plan, deployment=deployment, layout=layout, experts=experts, unlike=unlike, loads=tasks.loads
    )
    scorer, balancedness = placement_scorer(new)
    return replace(
        new,
        score=scorer.at(deployment.workload.batch),
        balancedness=balancedness,
        traffic=routed_traffic(deployment, layout, scorer, tasks.loads, deployment.workload.batch),
        by_traffic=None,
        proof=placement_proof(new),
        scenarios=None,
        failures=None,
        order=plan.order if layout == plan.layout else None,
        passed_over="",
        service_level="",
        requests=None,
        beside=(),
    )


def _budget(options: ReplanOptions, unit: int, largest_bytes: float) -> int | None:
    """Moves that the budget allows, in units of so many that go together; None without one."""
    limits = []
    if options.max_moves is not None:
        limits.append(options.max_moves)
    if options.max_bytes is not None:
        limits.append(int(options.max_bytes / largest_bytes * (1 + 1e-12)))
    return min(limits) // unit if limits else None


def _tasks(plan: Plan, left: Degraded, loads: ExpertLoads) -> dict[tuple[int, int], MigrationTask]:
    """The task of each stage that has experts, of each of the rests."""
    tasks = {}
    for number, rest in enumerate(left.rests):
        alike = [left.layout.replicas[replica] for replica in rest.replicas]
        for index, (stage, slots, held) in enumerate(zip(alike[0], rest.slots, rest.held, strict=True)):
            if slots is None or held is None:
                continue
            domains = stage_domains(left.deployment, [stages[index].gpus for stages in alike], plan.spread)
            require_apart(loads.tokens.shape[2], slots, domains)
            problem = stage_problem(left.deployment, stage, slots, loads, plan.objective, plan.split, domains)
            tasks[number, index] = MigrationTask(problem, held)
    return tasks


def _steps(
    old: Plan,
    tasks: _Tasks,
    placed: Sequence[Experts],
    size: Mapping[int, float],
) -> list[Step]:
    """The moves of all replicas, each with its source, in order."""
    steps, deployment = [], tasks.left.deployment
    for ((rest, index), task), rows in zip(tasks.of_stage.items(), placed, strict=True):
        problem = task.problem
        stages = [tasks.left.layout.replicas[replica][index] for replica in tasks.left.rests[rest].replicas]
        ids = [layer for layer in deployment.model.moe_layers if layer in stages[0].layers]
        for row, slot in np.argwhere(rows != task.old).tolist():
            gpu, before = int(problem.slot_gpu[slot]), int(task.old[row, slot])
            steps += [
                Step(
                    layer=ids[row],
                    gpu=stage.gpus[gpu],
                    slot=slot - int(problem.first_slot[gpu]),
                    expert=int(rows[row, slot]),
                    replaces=None if before == EMPTY else before,
                )
                for stage in stages
            ]
    return in_order(nearest_sources(deployment.cluster, steps, holders(old, deployment.cluster), size))
