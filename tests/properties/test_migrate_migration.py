"""Few moves: against every placement of tiny problems, budgets, idempotence, real loads."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from placement.experts.counts import replicate
from placement.experts.local_search import swap_down
from placement.experts.pack import pack
from placement.experts.problem import make_problem, spread_slots
from placement.experts.solve import solve
from placement.migrate import search
from placement.migrate.migration import Migration, migrate
from placement.migrate.task import MigrationTask
from placement.options import Objective
from placement.verify import verify_experts
from topology.base.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.wide

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "expert_loads"


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search as long as small problems need."""
    monkeypatch.setattr(search, "_PASS", (100, 150))


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


@cache
def every_placement(experts: int, gpus: int, each: int) -> np.ndarray:
    """All placements of one layer, ``[placements, slots]``."""
    sets = list(combinations(range(experts), each))
    rows = [
        [expert for held in chosen for expert in held]
        for chosen in product(sets, repeat=gpus)
        if len(set().union(*chosen)) == experts
    ]
    return np.array(rows, dtype=np.int32)


def check(task: MigrationTask, found: Migration) -> np.ndarray:
    """The answer, after what must hold of any."""
    placed = found.placements[0]
    assert verify_experts(task.problem.assignment(placed.slot_expert), task.problem) == []
    assert found.moves == task.moves(placed.slot_expert).sum() == (placed.slot_expert != task.old).sum()
    assert (task.problem.evaluate(placed.slot_expert) <= task.problem.evaluate(placed.start) + 1e-12).all()
    return placed.slot_expert


@pytest.mark.usefixtures("brief")
def test_fronts_of_tiny_layers_are_those_of_all_placements() -> None:
    rows = every_placement(5, 3, 2)
    exact = 0
    for seed in range(3):
        task = drift(seed, layers=1, experts=5, gpus=3, redundant=1)
        many = task.rows(np.zeros(len(rows), dtype=np.intp))
        moves, value = many.moves(rows), many.problem.evaluate(rows)
        for most in (1, 2, 4):
            found = check(task, migrate([task], max_moves=most))
            best = value[moves <= most].min()
            assert task.problem.evaluate(found)[0] >= best - 1e-12
            exact += task.problem.evaluate(found)[0] <= best + 1e-9
    assert exact >= 8  # of 9


def test_loads_that_did_not_change_move_nothing() -> None:
    task = drift(1, layers=3, experts=32, gpus=8, redundant=8)
    same = MigrationTask(task.problem, solve(task.problem).assignment.slot_expert)
    found = migrate([same])
    assert found.moves == 0
    assert np.array_equal(check(same, found), same.old)


@settings(deadline=None, max_examples=2)
@example(seed=224, most=16)
@given(seed=st.integers(0, 1000), most=st.integers(0, 40))
def test_a_budget_is_kept_and_more_is_not_worse(seed: int, most: int) -> None:
    task = drift(seed, layers=2, experts=16, gpus=5, redundant=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_PASS", (20, 20))
        less, more = (migrate([task], max_moves=n) for n in (most, most + 7))
    assert less.moves <= most
    # a search this short may end .0002 above that of a smaller budget
    largest = [float(task.problem.evaluate(check(task, one)).mean()) for one in (less, more)]
    assert largest[1] <= largest[0] * 1.005


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_several_scenarios(objective: Objective) -> None:
    task = drift(6, layers=3, experts=32, gpus=8, redundant=8, scenarios=3)
    task = MigrationTask(replace(task.problem, objective=objective), task.old)
    found = migrate([task])
    better = task.problem.evaluate(check(task, found)).mean()
    assert better < task.problem.evaluate(task.old).mean()
    peaks = task.problem.peaks(found.placements[0].slot_expert)
    assert better == pytest.approx((peaks.max(axis=0) if objective == "worst" else peaks.mean(axis=0)).mean())


@pytest.mark.usefixtures("short")
def test_slow_gpus_and_unequal_slots() -> None:
    rng = np.random.default_rng(7)
    slots, speed = np.array([4, 3, 3, 2, 4, 0]), np.array([1.0, 1.0, 0.5, 1.0, 1.0, 1.0])
    loads = rng.lognormal(0, 0.6, (2, 12))
    problem = make_problem(loads, slots, speed)
    old = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 5]] * 2, dtype=np.int32)
    task = MigrationTask(problem, old)
    found = migrate([task])
    assert task.problem.evaluate(check(task, found)).mean() < task.problem.evaluate(old).mean()


@pytest.mark.usefixtures("short")
def test_copies_in_one_failure_domain_are_moved_to_others() -> None:
    rng = np.random.default_rng(8)
    loads = rng.lognormal(0, 0.4, (2, 6))
    problem = make_problem(loads, np.full(4, 2), None, np.array([0, 0, 1, 1]))
    old = np.array([[0, 1, 0, 2, 3, 4, 5, 3], [0, 1, 2, 3, 4, 5, 0, 1]], dtype=np.int32)
    task = MigrationTask(problem, old)
    assert task.problem.over_cap(old).tolist() == [2, 0]
    found = migrate([task], only_restore=True)
    assert task.problem.over_cap(check(task, found)).tolist() == [0, 0]
    assert found.moves == 1  # expert 0 gives a copy to expert 3, of whose three copies a domain may hold two


@pytest.mark.usefixtures("short")
def test_two_stages_share_one_budget() -> None:
    tasks = [drift(seed, layers=2, experts=24, gpus=6, redundant=6) for seed in (10, 11)]
    found = migrate(tasks, max_moves=25)
    moves = [
        int(task.moves(placed.slot_expert).sum())
        for task, placed in zip(tasks, found.placements, strict=True)
    ]
    assert sum(moves) == found.moves <= 25
    assert all(moves)


def test_a_budget_too_small_to_restore_is_infeasible() -> None:
    task = drift(14, layers=1, experts=8, gpus=4, redundant=4)
    old = task.old.copy()
    gone = (old == 2) | (old == 5)
    old[gone] = -1
    with pytest.raises(InfeasibleError, match=f"{gone.sum()} moves are needed"):
        migrate([MigrationTask(task.problem, old)], max_moves=1)


def test_a_budget_that_only_restores_is_as_good_as_restoring_alone() -> None:
    task = drift(14, layers=6, experts=16, gpus=8, redundant=8)
    old = task.old.copy()
    old[(old == 2) | (old == 5)] = -1
    lost = MigrationTask(task.problem, old)
    alone = migrate([lost], only_restore=True)
    assert migrate([lost], max_moves=alone.moves).curve == alone.curve


@pytest.mark.parametrize(
    ("tokens", "old", "words"),
    [
        (np.ones((1, 2, 4)), np.zeros((1, 4)), "old placement has shape"),
        (np.ones((1, 1, 4)), np.zeros((1, 5)), "old placement has shape"),
        (np.ones((1, 1, 4)), np.array([[0, 1, 2, 4]]), "not in 0..3"),
        (np.ones(4), np.array([[0, 1, 2, 3]]), "give \\[scenarios, layers, experts\\]"),
        (-np.ones((1, 1, 4)), np.array([[0, 1, 2, 3]]), "not a token count"),
    ],
)
def test_bad_input(tokens: np.ndarray, old: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        MigrationTask(make_problem(tokens, [2, 2]), old.astype(np.int32))


def test_real_loads_within_one_percent_with_at_most_a_quarter_moved() -> None:
    files = sorted(REAL.glob("*.npy"))
    if not files:
        pytest.skip("no real expert loads beside the repository")
    slots, share, ratio = spread_slots(256, 72, 32), [], []
    for a, b in ((0, 3), (1, 4)):
        before, after = (np.load(files[i])[::15].astype(float) for i in (a, b))
        old = solve(make_problem(before, slots)).assignment.slot_expert
        task = MigrationTask(make_problem(after, slots), old)
        found = migrate([task])
        share.append(found.moves / task.old.size)
        fresh = task.judged(found.placements[0].fresh)[1].mean()
        ratio.append(task.judged(check(task, found))[1].mean() / fresh)
    assert np.mean(ratio) >= 0.99
    assert np.mean(share) <= 0.25


def test_an_old_placement_with_two_copies_of_an_expert_on_a_gpu(short: None) -> None:
    """As EPLB makes them: the second copy is a slot to fill."""
    del short
    rng = np.random.default_rng(3)
    old = np.array([[0, 0, 1, 2, 3, 3], [0, 1, 2, 2, 1, 3]], dtype=np.int32)
    task = MigrationTask(make_problem(rng.lognormal(0, 0.5, (2, 4)), spread_slots(4, 2, 2)), old)
    assert task.held.sum() == 10
    found = migrate([task])
    placed = check(task, found)
    assert found.moves >= 2
    for row in placed:
        assert len(set(row[:3])) == len(set(row[3:])) == 3
