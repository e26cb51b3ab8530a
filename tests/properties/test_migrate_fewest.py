"""Migrations of tiny problems: the fewest moves, and the best balance within a budget, against all placements."""

from __future__ import annotations

import numpy as np
import pytest

from placement.experts.failure_domains import spread_row
from placement.experts.pack import EMPTY
from placement.experts.problem import Problem, make_problem
from placement.migrate import fewest
from placement.migrate.fewest import fewest_moves, least_moves
from placement.migrate.migration import migrate
from placement.migrate.split_front import all_placements
from placement.migrate.task import MigrationTask
from tiny_cases import legal_placements, tiny_problem, ways_to_fill
from topology.base.errors import InfeasibleError, NoAnswerError


def degraded(seed: int) -> tuple[MigrationTask, np.ndarray] | None:
    """A task and all legal placements; what runs breaks the rule, lost copies or a GPU, or is no placement at all."""
    problem, rng = tiny_problem(seed), np.random.default_rng(seed)
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


def check(seed: int) -> None:
    case = degraded(seed)
    if case is None:
        return
    task, legal = case
    each = task.rows(np.zeros(len(legal), dtype=int))
    moves, value = each.moves(legal), each.problem.evaluate(legal)
    for budget in (int(moves.min()), int(moves.min()) + 2):
        found = migrate([task], max_moves=budget)
        row = found.placements[0].slot_expert
        assert task.problem.legal(row).all(), seed
        assert task.moves(row)[0] <= budget, seed
        if all_placements(task.problem) is not None:
            assert task.problem.evaluate(row)[0] <= value[moves <= budget].min() * (1 + 1e-6), seed
    assert migrate([task], only_restore=True).moves == moves.min(), seed
    if moves.min():
        with pytest.raises(InfeasibleError, match=f"allow {moves.min()}"):
            migrate([task], max_moves=int(moves.min()) - 1)


@pytest.mark.parametrize("seed", [*range(12), 28])
def test_fewest_and_best(seed: int) -> None:
    check(seed)


@pytest.mark.wide
@pytest.mark.parametrize("start", range(1000, 1040, 20))
def test_fewest_and_best_of_many(start: int) -> None:
    for seed in range(start, start + 20):
        check(seed)


def over_two_racks() -> tuple[Problem, MigrationTask, np.ndarray]:
    """24 experts, the first 7 three times in one rack, and a legal placement far from that."""
    problem = make_problem(np.arange(1.0, 25)[None], np.full(6, 7), spread=np.arange(6) // 3)
    old = np.concatenate([np.tile(np.arange(7), 3), np.arange(7, 24), np.arange(7, 11)]).astype(np.int32)
    return problem, MigrationTask(problem, old[None]), spread_row(24, np.full(6, 7), np.arange(6) // 3)[None]


def test_both_models_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, task, start = over_two_racks()
    by_domain, bound = fewest_moves(task, start)
    monkeypatch.setattr(fewest, "_filled", lambda *_: None)
    by_gpu, again = fewest_moves(task, start)
    assert problem.legal(by_domain).all()
    assert problem.legal(by_gpu).all()
    moves = [int(task.moves(rows)[0]) for rows in (by_domain, by_gpu)]
    assert moves == [bound[0], again[0]]
    assert least_moves(task)[0] < bound[0] == again[0] < task.moves(start)[0]


def test_no_proof_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewest, "_WORK", 0.0)
    _, task, _ = over_two_racks()
    with pytest.raises(NoAnswerError, match="may not be enough"):
        migrate([task], max_moves=1)
