"""The search within a time limit: never worse, legal, reported, and stopped at any time."""

from __future__ import annotations

import numpy as np
import pytest

from placement.budget import Budget
from placement.experts.bounds import lower_bound
from placement.experts.counts import replicate
from placement.experts.pack import pack
from placement.experts.problem import (
    Problem,
    keep_better,
    make_problem,
    proven,
    spread_slots,
)
from placement.experts.solve import search

WIDE = make_problem(np.random.default_rng(0).dirichlet(np.full(64, 0.3), size=6), spread_slots(64, 64, 64))


def start(problem: Problem) -> np.ndarray:
    return pack(problem, replicate(problem))


@pytest.mark.wide
@pytest.mark.parametrize("layers", [6, 2])
def test_it_improves_every_wide_layer(layers: int) -> None:
    problem = WIDE.rows(np.arange(layers))
    rows = start(problem)
    budget = Budget(1.5)
    found, log = search(problem, rows, lower_bound(problem), budget, seed=3)
    assert problem.legal(found).all()
    assert not budget.interrupted
    assert (problem.evaluate(found) < 0.95 * problem.evaluate(rows)).all()
    assert any("other copy counts" in line for line in log)


def test_gaps() -> None:
    problem = Problem(np.array([[3.0, 1.0], [1.0, 1.0]]), np.array([1, 1]))
    rows = np.array([[0, 1], [1, 0]], dtype=np.int32)
    load = problem.evaluate(rows)
    assert load.tolist() == [1.5, 1.0]
    assert proven(load, np.array([1.4, 1.0])).tolist() == [False, True]


def test_only_what_is_better_is_kept() -> None:
    problem = Problem(np.array([[2.0, 1.0, 1.0], [2.0, 1.0, 1.0]]), np.array([2, 2]))
    rows = np.array([[0, 1, 2, 0], [0, 1, 0, 2]], dtype=np.int32)
    others = np.array([[0, 1, 1, 2], [0, 1, 1, 2]], dtype=np.int32)
    before = rows.copy()
    assert keep_better(problem, rows, np.array([0, 1]), others) == 0  # 2.5 of 2 against 2 of 2
    assert (rows == before).all()
    assert keep_better(problem, others, np.array([1]), before[1:]) == 1
    assert others.tolist() == [[0, 1, 1, 2], [0, 1, 0, 2]]
