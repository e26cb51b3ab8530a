"""The search within a time limit: never worse, legal, told about, and stopped at any time."""

from __future__ import annotations

import time

import numpy as np
import pytest

from placement.bounds import lower_bound
from placement.failure_domains import legal
from placement.pack import pack
from placement.problem import (
    ExpertProblem,
    expert_problem,
    keep_better,
    max_loads,
    proven,
    spread_slots,
    wide_layers,
)
from placement.replication import replicate
from placement.timed import search

WIDE = expert_problem(np.random.default_rng(0).dirichlet(np.full(64, 0.3), size=6), spread_slots(64, 64, 64))


def start(problem: ExpertProblem) -> np.ndarray:
    return pack(problem, replicate(problem))


@pytest.mark.parametrize("layers", [6, 2])
def test_it_improves_every_wide_layer(layers: int) -> None:
    problem = WIDE.rows(np.arange(layers))
    rows = start(problem)
    found = search(problem, rows, lower_bound(problem), time_limit_s=1.5, seed=3)
    assert legal(problem, found.slot_expert).all()
    assert not found.interrupted
    assert (max_loads(problem, found.slot_expert) < 0.95 * max_loads(problem, rows)).all()
    assert any("other copy counts" in line for line in found.log)


def test_progress_comes_from_every_part_and_ctrl_c_keeps_the_counts_found() -> None:
    told: list[tuple[int, int, float, float, float]] = []

    def stop_later(*state: float) -> None:
        told.append(state)  # type: ignore[arg-type]
        if state[4] > 0.8:
            raise KeyboardInterrupt

    rows = start(WIDE)
    begun = time.monotonic()
    found = search(WIDE, rows, lower_bound(WIDE), time_limit_s=60.0, seed=0, on_progress=stop_later)
    assert found.interrupted
    assert time.monotonic() - begun < 20
    assert any("interrupted" in line for line in found.log)
    assert (max_loads(WIDE, found.slot_expert) < max_loads(WIDE, rows)).all()  # the search was not in vain
    done, layers, objective, bound, seconds = told[-1]
    assert 0 <= done <= layers == 6
    assert 0 < bound <= objective
    assert seconds > 0.8
    assert [state[4] for state in told] == sorted(state[4] for state in told)


def test_gaps() -> None:
    problem = ExpertProblem(np.array([[3.0, 1.0], [1.0, 1.0]]), np.array([1, 1]))
    rows = np.array([[0, 1], [1, 0]], dtype=np.int32)
    load = max_loads(problem, rows)
    assert load.tolist() == [1.5, 1.0]
    assert proven(load, np.array([1.4, 1.0])).tolist() == [False, True]
    assert wide_layers(problem, rows, np.array([1.4, 1.0])).tolist() == [0]
    assert wide_layers(problem, rows, np.array([1.4, 1.0]), gap=0.5).size == 0


def test_only_what_is_better_is_kept() -> None:
    problem = ExpertProblem(np.array([[2.0, 1.0, 1.0], [2.0, 1.0, 1.0]]), np.array([2, 2]))
    rows = np.array([[0, 1, 2, 0], [0, 1, 0, 2]], dtype=np.int32)
    others = np.array([[0, 1, 1, 2], [0, 1, 1, 2]], dtype=np.int32)
    before = rows.copy()
    assert keep_better(problem, rows, np.array([0, 1]), others) == 0  # 2.5 of 2 against 2 of 2
    assert (rows == before).all()
    assert keep_better(problem, others, np.array([1]), before[1:]) == 1
    assert others.tolist() == [[0, 1, 1, 2], [0, 1, 0, 2]]
