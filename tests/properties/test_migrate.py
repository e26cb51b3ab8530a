"""Migrations against all placements and all choices of points; what moves between any two plans."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.budget import Budget
from placement.experts.failure_domains import spread_row
from placement.experts.pack import EMPTY
from placement.experts.problem import make_problem
from placement.migrate import fewest
from placement.migrate.fewest import fewest_moves, least_moves
from placement.migrate.front import Front, Point, paying, reaching, within
from placement.migrate.least import proven_moves
from placement.migrate.migration import migrate
from placement.migrate.moved import moved, why_not_counted
from placement.migrate.split_front import all_placements
from placement.migrate.task import MigrationTask
from placement.plan import Plan
from test_placement.builders import deployed, loads_for, quick
from tiny_cases import legal_placements, tiny_problem, ways_to_fill
from topology.base.errors import InfeasibleError, InputError


def degraded(seed: int, *, even: bool = False) -> tuple[MigrationTask, np.ndarray] | None:
    """A task and all legal placements; what runs breaks the rule, lost copies or a GPU, or is no placement at all.

    With an even split it is legal, or lost copies.
    """
    problem, rng = tiny_problem(seed), np.random.default_rng(seed)
    problem = problem.even if even else problem
    legal = legal_placements(problem)
    if len(legal) == 0:
        return None
    ways = ways_to_fill(problem.experts, problem.slots_per_gpu)
    kind = ("lost" if seed % 3 == 0 else "") if even else ("rule", "lost", "gpu", "none")[seed % 4]
    old = (ways if kind == "rule" else legal)[rng.integers(len(legal))].copy()
    if kind == "lost":
        old[rng.random(old.size) < 0.3] = EMPTY
    elif kind == "gpu":
        old[problem.slot_gpu == rng.integers(problem.gpus)] = EMPTY
    elif kind == "none":
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
    assert above > 0.2 * len(seeds)


@cache
def plan_of(cluster: str, seed: int = 0, model: str = "mixtral-8x7b", **asked: int) -> Plan:
    deployment = deployed(model, cluster, 4, context=2048, batch=8)
    return quick(deployment, loads_for(deployment.model, "lognormal:0.7", seed=seed), **asked)


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
        ({"seed": 0, "redundant": 8}, {"seed": 1, "redundant": 8}),
        ({"ep": 8}, {"ep": 4}),
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


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"cluster": "hgx-h100@16"}, "the clusters differ: hgx-h100 and hgx-h100@16"),
        ({"cluster": "hgx-h100", "model": "olmoe-1b-7b"}, "few layers has different experts"),
    ],
)
def test_what_cannot_be_counted_says_why(other: dict[str, str], why: str) -> None:
    plans = plan_of("hgx-h100"), plan_of(**other)
    assert why_not_counted(*plans).startswith(why)
    with pytest.raises(InputError, match=f"cannot be counted: {why}"):
        moved(*plans)


def test_both_models_of_the_fewest_moves_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 experts, the first 7 three times in one of two racks, and a legal placement far from that."""
    problem = make_problem(np.arange(1.0, 25)[None], np.full(6, 7), spread=np.arange(6) // 3)
    old = np.concatenate([np.tile(np.arange(7), 3), np.arange(7, 24), np.arange(7, 11)]).astype(np.int32)
    task, start = (
        MigrationTask(problem, old[None]),
        spread_row(24, problem.slots_per_gpu, problem.spread)[None],
    )
    by_domain, bound = fewest_moves(task, start, Budget())
    monkeypatch.setattr(fewest, "_filled", lambda *_: None)
    by_gpu, again = fewest_moves(task, start, Budget())
    assert problem.legal(np.concatenate([by_domain, by_gpu])).all()
    moves = [int(task.moves(rows)[0]) for rows in (by_domain, by_gpu)]
    assert moves == [bound[0], again[0]]
    assert least_moves(task)[0] < bound[0] == again[0] < task.moves(start)[0]
