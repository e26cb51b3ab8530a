"""Migrations against all placements and all choices of points; what moves between any two plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from helpers import few_layers
from placement.budget import Budget
from placement.experts.counts import replicate
from placement.experts.failure_domains import spread_row
from placement.experts.local_search import swap_down
from placement.experts.pack import EMPTY, pack
from placement.experts.problem import Problem, make_problem, spread_slots
from placement.experts.solve import solve
from placement.migrate import fewest
from placement.migrate.fewest import fewest_moves, least_moves
from placement.migrate.front import Front, Point, paying, reaching, within
from placement.migrate.least import proven_moves
from placement.migrate.migration import Migration, migrate
from placement.migrate.moved import moved, why_not_counted
from placement.migrate.split_front import all_placements
from placement.migrate.task import MigrationTask
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.verify import verify_experts
from tiny_cases import legal_placements, tiny_problem, ways_to_fill
from topology import build_cluster, resolve_cluster
from topology.base.errors import InfeasibleError, InputError
from topology.changes.overrides import overrides
from topology.spec import Fault


def degraded(seed: int, *, even: bool = False) -> tuple[MigrationTask, np.ndarray] | None:
    """A task and all legal placements; what runs breaks the rule, lost copies or a GPU, or is no placement at all."""
    problem, rng = tiny_problem(seed), np.random.default_rng(seed)
    problem = problem.even if even else problem
    legal = legal_placements(problem)
    if len(legal) == 0:
        return None
    ways = ways_to_fill(problem.experts, problem.slots_per_gpu)
    old = (ways if seed % 4 == 0 else legal)[rng.integers(len(legal))].copy()
    if seed % 4 == 1:
        old[rng.random(old.size) < 0.3] = EMPTY
    elif seed % 4 == 2:
        old[problem.slot_gpu == rng.integers(problem.gpus)] = EMPTY
    elif seed % 4 == 3:
        old = rng.integers(EMPTY, problem.experts, old.size).astype(np.int32)
    return MigrationTask(problem, old[None]), legal


@pytest.mark.parametrize(
    "seed", [*range(12), 28, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(1000, 1040))]
)
def test_fewest_and_best(seed: int) -> None:
    case = degraded(seed)
    if case is None:
        return
    task, legal = case
    each = task.rows(np.zeros(len(legal), dtype=int))
    moves, value = each.moves(legal), each.problem.evaluate(legal)
    for budget in (int(moves.min()), int(moves.min()) + 2):
        migration = migrate([task], max_moves=budget)
        row = migration.placements[0].slot_expert
        assert task.problem.legal(row).all(), seed
        assert task.moves(row)[0] <= budget, seed
        if all_placements(task.problem) is not None:
            assert task.problem.evaluate(row)[0] <= value[moves <= budget].min() * (1 + 1e-6), seed
    assert migrate([task], only_restore=True).moves == moves.min(), seed
    if moves.min():
        with pytest.raises(InfeasibleError, match=f"allow {moves.min()}"):
            migrate([task], max_moves=int(moves.min()) - 1)


def over_two_racks() -> tuple[Problem, MigrationTask, np.ndarray]:
    """24 experts, the first 7 three times in one rack, and a legal placement far from that."""
    problem = make_problem(np.arange(1.0, 25)[None], np.full(6, 7), spread=np.arange(6) // 3)
    old = np.concatenate([np.tile(np.arange(7), 3), np.arange(7, 24), np.arange(7, 11)]).astype(np.int32)
    return problem, MigrationTask(problem, old[None]), spread_row(24, np.full(6, 7), np.arange(6) // 3)[None]


def test_both_models_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, task, start = over_two_racks()
    by_domain, bound = fewest_moves(task, start, Budget())
    monkeypatch.setattr(fewest, "_filled", lambda *_: None)
    by_gpu, again = fewest_moves(task, start, Budget())
    assert problem.legal(by_domain).all()
    assert problem.legal(by_gpu).all()
    moves = [int(task.moves(rows)[0]) for rows in (by_domain, by_gpu)]
    assert moves == [bound[0], again[0]]
    assert least_moves(task)[0] < bound[0] == again[0] < task.moves(start)[0]


def drift(
    seed: int, *, layers: int, experts: int, gpus: int, redundant: int, scenarios: int = 1
) -> MigrationTask:
    """A placement for lognormal loads, and other loads to come."""
    rng = np.random.default_rng(seed)
    slots = spread_slots(experts, gpus, redundant)
    before = rng.lognormal(0, 0.6, (layers, experts))
    after = before * rng.lognormal(0, 0.5, (scenarios, layers, experts))
    problem = make_problem(before, slots)
    old = swap_down(problem, pack(problem, replicate(problem)))
    return MigrationTask(make_problem(after, slots), old)


def checked(task: MigrationTask, migration: Migration) -> np.ndarray:
    """The answer, after what must hold of any."""
    placed = migration.placements[0]
    assert verify_experts(task.problem.assignment(placed.slot_expert), task.problem) == []
    assert migration.moves == task.moves(placed.slot_expert).sum() == (placed.slot_expert != task.old).sum()
    assert (task.problem.evaluate(placed.slot_expert) <= task.problem.evaluate(placed.start) + 1e-12).all()
    return placed.slot_expert


def test_loads_that_did_not_change_move_nothing() -> None:
    task = drift(1, layers=3, experts=32, gpus=8, redundant=8)
    same = MigrationTask(task.problem, solve(task.problem).assignment.slot_expert)
    migration = migrate([same])
    assert migration.moves == 0
    assert np.array_equal(checked(same, migration), same.old)


@pytest.mark.parametrize(
    ("tokens", "old", "words"),
    [
        (np.ones((1, 1, 4)), np.zeros((1, 5)), "old placement has shape"),
        (np.ones((1, 1, 4)), np.array([[0, 1, 2, 4]]), "not in 0..3"),
        (-np.ones((1, 1, 4)), np.array([[0, 1, 2, 3]]), "not a token count"),
    ],
)
def test_bad_input(tokens: np.ndarray, old: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        MigrationTask(make_problem(tokens, [2, 2]), old.astype(np.int32))


NOTHING = np.zeros(0, dtype=np.int32)


@st.composite
def fronts(draw: st.DrawFn) -> Front:
    """Up to four layers of up to four points, moves rising and objective falling."""
    layers = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 4))
        size = {"min_size": count, "max_size": count, "unique": True}
        moves = sorted(draw(st.lists(st.integers(0, 12), **size)))
        values = sorted(draw(st.lists(st.integers(100, 300), **size)), reverse=True)
        layers.append([Point(m, v / 100, 100 / v, NOTHING) for m, v in zip(moves, values, strict=True)])
    return Front(layers)


def totals(front: Front, chosen: Sequence[int]) -> tuple[int, float, float]:
    """Moves, objective and balancedness of a choice."""
    picked = [points[index] for points, index in zip(front.points, chosen, strict=True)]
    return (
        sum(point.moves for point in picked),
        sum(point.value for point in picked),
        sum(point.balancedness for point in picked) / len(picked),
    )


@settings(max_examples=30)
@given(front=fronts(), spare=st.integers(0, 30))
def test_a_budget_is_spent_as_well_as_it_can_be(front: Front, spare: int) -> None:
    allowed = sum(points[0].moves for points in front.points) + spare
    every = [totals(front, chosen) for chosen in product(*(range(len(points)) for points in front.points))]
    best = min(value for moves, value, _ in every if moves <= allowed)
    moves, value, _ = totals(front, within(front, allowed))
    assert moves <= allowed
    assert value == pytest.approx(best, abs=1e-9)


@settings(max_examples=60)
@given(front=fronts(), price=st.floats(1e-3, 1.0))
def test_every_move_is_made_that_is_worth_its_price(front: Front, price: float) -> None:
    def cost(chosen: Sequence[int]) -> float:
        moves, value, _ = totals(front, chosen)
        return value / len(front.points) + price * moves

    every = product(*(range(len(points)) for points in front.points))
    assert cost(paying(front, price)) == pytest.approx(min(map(cost, every)), abs=1e-9)


@settings(max_examples=30)
@given(front=fronts(), part=st.floats(0.0, 1.0))
def test_a_balancedness_within_reach_is_reached_and_no_layer_could_go_back(front: Front, part: float) -> None:
    low = totals(front, [0] * len(front.points))[2]
    high = totals(front, [len(points) - 1 for points in front.points])[2]
    wanted = low + part * (high - low)
    chosen = reaching(front, wanted)
    assert totals(front, chosen)[2] >= wanted - 1e-9
    for layer, index in enumerate(chosen):
        if index:
            less = [*chosen[:layer], index - 1, *chosen[layer + 1 :]]
            assert totals(front, less)[2] < wanted + 1e-9


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(1000, 1190), marks=pytest.mark.wide)])
def test_no_placement_as_balanced_moves_less(seeds: range) -> None:
    sharp = above = 0
    for seed in seeds:
        if (tiny := degraded(seed, even=True)) is None:
            continue
        task, legal = tiny
        every = task.rows(np.zeros(len(legal), dtype=int))
        moves, value = every.moves(legal), every.problem.evaluate(legal)
        for answer in (int(value.argmin()), int(np.random.default_rng(seed).integers(len(legal)))):
            proof = proven_moves([task], [legal[[answer]]], [1], Budget())
            fewest = moves[value <= value[answer] * (1 + 1e-9)].min()
            assert proof.moves <= fewest, seed
            assert proof.layers == 1
            sharp += proof.moves == fewest
            above += proof.moves > least_moves(task)[0]
    assert sharp > 0.5 * len(seeds)
    assert above > 0.05 * len(seeds)


LAYERS = 4


@cache
def plan_of(cluster: str, seed: int = 0, model: str = "mixtral-8x7b", **asked: int) -> Plan:
    deployment = Deployment(resolve_cluster(cluster), few_layers(model, LAYERS), Workload(2048, 8))
    moe = deployment.model.moe
    loads = None
    if moe is not None:
        tokens = np.random.default_rng(seed).lognormal(4, 0.7, (1, LAYERS, moe.experts))
        loads = ExpertLoads(tokens, ("made",), synthetic=False)
    return make_plan(deployment, loads, PlanOptions(time_limit_s=0.0, **asked))  # type: ignore[arg-type]


def holdings(plan: Plan) -> set[tuple[str, int, int]]:
    """GPU, layer and expert of every copy."""
    moves = set()
    for stages in plan.layout.replicas:
        for stage, part in zip(stages, plan.experts, strict=True):
            assert part is not None
            for row, layer in enumerate(stage.layers):
                for slot, gpu in enumerate(part.slot_gpu):
                    name = plan.deployment.cluster.gpus[stage.gpus[gpu]].id
                    moves.add((name, layer, int(part.slot_expert[row, slot])))
    return moves


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({"seed": 0, "redundant": 8}, {"seed": 1, "redundant": 8}),
        ({"ep": 8}, {"ep": 4}),
        ({"stages": 2}, {"stages": 1}),
        ({"ep": 2, "stages": 2}, {"ep": 8, "stages": 1}),
        ({"redundant": 0, "ep": 8}, {"redundant": 16, "ep": 8}),
    ],
)
def test_moves_are_counted_as_sets_say(before: dict[str, int], after: dict[str, int]) -> None:
    old, new = plan_of("hgx-h100", **before), plan_of("hgx-h100", **after)
    moves = moved(old, new)
    held, wanted = holdings(old), holdings(new)
    assert moves.moves == len(wanted - held)
    assert moves.left == len(held - wanted)
    assert moves.copies == len(wanted)
    for layer, count in moves.of_layer.items():
        assert count == len({copy for copy in wanted - held if copy[1] == layer})
    assert moves.bytes == pytest.approx(sum(moves.transfer.bytes_by_distance.values()))
    assert (moves.transfer.seconds == 0) == (moves.moves == 0)


def test_figures_and_faults_do_not_make_another_machine() -> None:
    plan = plan_of("hgx-h100")
    spec = plan.deployment.cluster.spec
    faster = overrides([build_cluster(spec)], ["gpu.hbm_bytes_per_s=2x"])[0]
    slower = build_cluster(replace(spec, faults=(Fault(gpu="d0.n0.g3", factor=0.5),)))
    for cluster in (faster, slower):
        other = replace(plan, deployment=replace(plan.deployment, cluster=cluster))
        assert moved(plan, other).moves == 0


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"cluster": "hgx-h100@16"}, "the clusters differ: hgx-h100 and hgx-h100@16"),
        ({"cluster": "hgx-h200"}, "the clusters differ: hgx-h100 and hgx-h200"),
        (
            {"cluster": "hgx-h100", "model": "olmoe-1b-7b"},
            "few layers has different experts",
        ),
    ],
)
def test_what_cannot_be_counted_says_why(other: dict[str, str], why: str) -> None:
    plans = plan_of("hgx-h100"), plan_of(**other)
    assert why_not_counted(*plans).startswith(why)
    with pytest.raises(InputError, match=f"cannot be counted: {why}"):
        moved(*plans)
