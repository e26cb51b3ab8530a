"""Re-plan a whole plan: new loads, lost GPUs, a budget; the new plan, and the steps from the old one to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cost.assignment import Assignment
from cost.dispatch import DispatchPolicy
from cost.dtypes import bytes_per_param
from cost.loads import ExpertLoads
from cost.model import MoeFfn
from placement.arrays import Experts
from placement.bounds import lower_bound
from placement.failure_domains import require_apart, stage_domains
from placement.failures import find_failures
from placement.migrate.degraded import Degraded, degraded, lost_gpus
from placement.migrate.front import CurvePoint
from placement.migrate.migration import Migration, OnProgress, migrate
from placement.migrate.steps import Step, Transfers, in_order, nearest_sources, transfers
from placement.migrate.task import MigrationTask, migration_task
from placement.options import Objective, Spread
from placement.pack import EMPTY
from placement.plan import BaselineScore, Plan, Proof
from placement.problem import Problem, make_problem
from placement.scoring import moe_rows, score_placement, score_rivals, stage_speed
from placement.verify import verify_plan
from topology.errors import InputError


@dataclass(frozen=True)
class ReplanOptions:
    """What a user may ask of a re-plan.

    Attributes
    ----------
    lost:
        Ids of GPUs, nodes, racks or domains that are gone.
    max_moves, max_bytes:
        Budget over all layers and replicas; None: no limit.
    spread, objective:
        As in a plan; None: those of the old plan.
    time_limit_s:
        Seconds to search; 0 for one deterministic pass.
    """

    lost: tuple[str, ...] = ()
    max_moves: int | None = None
    max_bytes: float | None = None
    spread: Spread | None = None
    objective: Objective | None = None
    time_limit_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (
            ("`max_moves`", self.max_moves),
            ("`max_bytes`", self.max_bytes),
            ("`time_limit`", self.time_limit_s),
            ("`seed`", self.seed),
        ):
            if value is not None and (not np.isfinite(value) or value < 0):
                raise InputError(f"{name} {value:g}: expected a finite number from 0 up.")


@dataclass(frozen=True, eq=False)
class Replanned:
    """A new plan and the way to it; counts are over all layers and replicas.

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
    copies:
        Copies in the new plan, of which the moves are a part.
    lost_copies:
        Copies that lay on lost GPUs.
    front:
        From the fewest moves to the best balance, moves over all replicas.
    transfer:
        What the moves ask of the links.
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
    copies: int
    lost_copies: int
    front: tuple[CurvePoint, ...]
    transfer: Transfers

    @property
    def moves(self) -> int:
        """Moves in all."""
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
    plan: Plan, loads: ExpertLoads | None, options: ReplanOptions, *, on_progress: OnProgress | None = None
) -> Replanned:
    """Return ``plan`` changed for ``loads`` (None: its own) and for what is lost, with few moves.

    Without a budget: with GPUs lost, the fewest moves that restore every expert; else the fewest within
    :data:`placement.migrate.migration.KNEE` of a fresh placement's balancedness. All of it under the plan's split.
    ``on_progress`` as in :func:`placement.migrate.migration.migrate`.

    Raises
    ------
    InputError
        If the model has no experts, an id of what is lost is not known, or the loads do not fit.
    InfeasibleError
        If what is left cannot hold the experts, or the budget is too small to restore them.
    """
    loads = plan.loads if loads is None else loads
    if loads is None:
        raise InputError(f"{plan.deployment.model.name} has no routed experts: there is nothing to re-plan.")
    spread, objective = options.spread or plan.spread, options.objective or plan.objective
    lost = lost_gpus(plan, options.lost)
    left = degraded(plan, lost)
    tasks = _tasks(left, loads, spread, objective, plan.split)
    replicas = len(left.layout.replicas)
    size = _expert_bytes(plan)
    most = _budget(options, replicas, max(size.values()))
    found = migrate(
        list(tasks.values()),
        max_moves=most,
        only_restore=bool(lost) and most is None,
        time_limit_s=options.time_limit_s,
        seed=options.seed,
        on_progress=on_progress,
    )
    placed = {stage: result.slot_expert for stage, result in zip(tasks, found.placements, strict=True)}
    start = {stage: result.start for stage, result in zip(tasks, found.placements, strict=True)}
    fresh = {stage: result.fresh for stage, result in zip(tasks, found.placements, strict=True)}
    new = _plan(plan, left, loads, tasks, placed)
    before, afresh = _scored(new, tasks, start), _scored(new, tasks, fresh)
    new = replace(
        new,
        options={
            **{name: value for name, value in plan.options.items() if name != "imported"},
            "spread": spread,
            "objective": objective,
            "seed": options.seed,
            "copies_together": False,
        },
        notes=(*left.notes, *found.log),
        interrupted=found.interrupted,
        baselines={
            **score_rivals(new.deployment, new.layout, new.experts, loads, new.split),
            "old plan" if not lost else "restored": before,
            "fresh plan": afresh,
        },
    )
    try:
        new = replace(new, failures=find_failures(new))
    except KeyboardInterrupt:
        new = replace(new, interrupted=True)
    wrong = verify_plan(new)
    if wrong:
        raise AssertionError(f"the re-plan is illegal, please report it: {wrong[0]}")
    steps = _steps(plan, new, tasks, placed, size)
    return Replanned(
        plan=new,
        steps=tuple(steps),
        expert_bytes=size,
        before=None if lost else _mean(before.balancedness),
        restored=_mean(before.balancedness),
        after=_mean(new.balancedness),
        fresh=_mean(afresh.balancedness),
        needed=replicas * _moves(tasks, start),
        fresh_moves=replicas * _moves(tasks, fresh),
        copies=replicas * sum(rows.size for rows in placed.values()),
        lost_copies=left.lost_copies,
        front=_scaled(found, replicas),
        transfer=transfers(new.deployment.cluster, steps, lambda layer: size[layer]),
    )


def _expert_bytes(plan: Plan) -> dict[int, float]:
    """Bytes of one expert by layer with experts."""
    model = plan.deployment.model
    each = bytes_per_param(model.precision["experts"])
    found = {}
    for layer in model.moe_layers:
        ffn = model.layers[layer].ffn
        if isinstance(ffn, MoeFfn):
            found[layer] = ffn.expert_params * each
    return found


def _budget(options: ReplanOptions, replicas: int, largest_bytes: float) -> int | None:
    """Moves of one replica that the budget allows; None without one."""
    limits = []
    if options.max_moves is not None:
        limits.append(options.max_moves)
    if options.max_bytes is not None:
        limits.append(int(options.max_bytes / largest_bytes * (1 + 1e-12)))
    return min(limits) // replicas if limits else None


def _tasks(
    left: Degraded, loads: ExpertLoads, spread: Spread, objective: Objective, split: DispatchPolicy
) -> dict[int, MigrationTask]:
    """The task of each stage that has experts."""
    tasks = {}
    for index, (stage, slots, held) in enumerate(
        zip(left.layout.replicas[0], left.slots, left.held, strict=True)
    ):
        if slots is None or held is None:
            continue
        members = [stages[index].gpus for stages in left.layout.replicas]
        domains = stage_domains(left.deployment, members, spread)
        tokens = loads.normalised[:, moe_rows(left.deployment, stage.layers)]
        require_apart(tokens.shape[2], slots, domains)
        speed = stage_speed(left.deployment, stage, slots)
        problem = Problem(tokens.mean(axis=0), slots, speed, domains)
        nodes = left.deployment.numbered("node")[list(stage.gpus)]
        tasks[index] = migration_task(problem, tokens, held, objective, split=split, nodes=nodes)
    return tasks


def _assignments(
    tasks: Mapping[int, MigrationTask], rows: Mapping[int, Experts], plan: Plan
) -> tuple[Assignment | None, ...]:
    return tuple(
        tasks[index].problem.assignment(rows[index]) if index in rows else None
        for index in range(plan.layout.stages)
    )


def _moves(tasks: Mapping[int, MigrationTask], rows: Mapping[int, Experts]) -> int:
    return sum(int(task.moves(rows[index]).sum()) for index, task in tasks.items())


def _plan(
    old: Plan,
    left: Degraded,
    loads: ExpertLoads,
    tasks: Mapping[int, MigrationTask],
    placed: Mapping[int, Experts],
) -> Plan:
    """The new plan, scored afresh, with its proof."""
    new = replace(
        old,
        deployment=left.deployment,
        layout=left.layout,
        loads=loads,
        scenarios=None,
        failures=None,
        passed_over="",
    )
    experts = _assignments(tasks, placed, new)
    score, balancedness = score_placement(left.deployment, left.layout, experts, loads, old.split)
    return replace(new, experts=experts, score=score, balancedness=balancedness, proof=_proof(tasks, placed))


def _proof(tasks: Mapping[int, MigrationTask], placed: Mapping[int, Experts]) -> Proof:
    """Objective and bound, means over all layers, of what any placement of these slots can reach."""
    value, bound = [], []
    for index, task in tasks.items():
        problem = task.problem
        value.append(task.value(placed[index]))
        scenarios = make_problem(
            task.tokens,
            problem.slots_per_gpu,
            speed=problem.gpu_speed,
            objective=task.objective,
            split=task.split,
        )  # failure domains left out: with copies spread evenly, counts have no limit but the GPUs
        bound.append(lower_bound(scenarios))
    return Proof.of_layers(np.concatenate(value), np.concatenate(bound))


def _scored(plan: Plan, tasks: Mapping[int, MigrationTask], rows: Mapping[int, Experts]) -> BaselineScore:
    experts = _assignments(tasks, rows, plan)
    score, balancedness = score_placement(plan.deployment, plan.layout, experts, plan.loads, plan.split)
    return BaselineScore("", balancedness, score)


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)


def _scaled(found: Migration, replicas: int) -> tuple[CurvePoint, ...]:
    return tuple(replace(point, moves=point.moves * replicas) for point in found.curve)


def _steps(
    old: Plan,
    new: Plan,
    tasks: Mapping[int, MigrationTask],
    placed: Mapping[int, Experts],
    size: Mapping[int, float],
) -> list[Step]:
    """The moves of all replicas, each with its source, in order."""
    steps = []
    for index, task in tasks.items():
        problem, rows = task.problem, placed[index]
        ids = [
            layer
            for layer in new.deployment.model.moe_layers
            if layer in new.layout.replicas[0][index].layers
        ]
        for row, slot in np.argwhere(rows != task.old).tolist():
            gpu, before = int(problem.slot_gpu[slot]), int(task.old[row, slot])
            steps += [
                Step(
                    layer=ids[row],
                    gpu=stages[index].gpus[gpu],
                    slot=slot - int(problem.first_slot[gpu]),
                    expert=int(rows[row, slot]),
                    replaces=None if before == EMPTY else before,
                )
                for stages in new.layout.replicas
            ]
    holders = _Holders(old, new)
    return in_order(nearest_sources(new.deployment.cluster, steps, holders.of, lambda layer: size[layer]))


class _Holders:
    """Which GPUs, by their number in the new plan, hold an expert in the old one, idle replicas too."""

    def __init__(self, old: Plan, new: Plan) -> None:
        number = {gpu.id: index for index, gpu in enumerate(new.deployment.cluster.gpus)}
        self._known: dict[tuple[int, int], list[int]] = {}
        for index, part in enumerate(old.experts):
            if part is None:
                continue
            stages = [replica[index] for replica in old.layout.replicas]
            layers = [layer for layer in old.deployment.model.moe_layers if layer in stages[0].layers]
            places = [
                [
                    number[old.deployment.cluster.gpus[stage.gpus[local]].id]
                    for stage in stages
                    if old.deployment.cluster.gpus[stage.gpus[local]].id in number
                ]
                for local in range(part.gpus)
            ]
            of_slot = part.slot_gpu.tolist()
            for layer, row in zip(layers, part.slot_expert.tolist(), strict=True):
                for slot, expert in enumerate(row):
                    self._known.setdefault((layer, expert), []).extend(places[of_slot[slot]])

    def of(self, layer: int, expert: int) -> list[int]:
        """GPUs that hold ``expert`` in ``layer``."""
        return self._known.get((layer, expert), [])
