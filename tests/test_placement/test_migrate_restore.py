"""Restoring experts without a copy: always, and with the fewest moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.migrate.start import restore
from placement.migrate.task import migration_task
from placement.pack import EMPTY
from placement.problem import make_problem
from placement.verify import verify_experts


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), gpus=st.integers(2, 5), each=st.integers(2, 4), empty=st.booleans())
def test_every_expert_is_back_after_one_move_each(seed: int, gpus: int, each: int, empty: bool) -> None:
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(each, gpus * each + 1))
    loads = rng.random((2, experts)) + 0.01
    old = np.array(
        [np.concatenate([rng.permutation(experts)[:each] for _ in range(gpus)]) for _ in range(2)],
        dtype=np.int32,
    )
    if empty:
        old[:, rng.integers(gpus * each)] = EMPTY
    task = migration_task(make_problem(loads, np.full(gpus, each)), old)
    restored = restore(task)
    assert verify_experts(task.problem.assignment(restored), task.problem) == []
    lost = (~task.held.any(axis=1)).sum(axis=1)
    vacant = (old == EMPTY).sum(axis=1)
    assert (task.moves(restored) == np.maximum(lost, vacant)).all()


def test_a_complete_placement_stays() -> None:
    task = migration_task(make_problem(np.ones((1, 4)), [2, 2]), np.array([[3, 0, 1, 2]], dtype=np.int32))
    assert restore(task).tolist() == [[3, 0, 1, 2]]


def test_of_the_slots_that_may_go_the_one_that_balances_best_does() -> None:
    # expert 3 is lost; either copy of 0 may go, and GPU 1 has less to do
    loads = np.array([[2.0, 5.0, 1.0, 3.0]])
    old = np.array([[0, 1, 0, 2]], dtype=np.int32)
    restored = restore(migration_task(make_problem(loads, [2, 2]), old))
    assert restored.tolist() == [[0, 1, 3, 2]]
    assert pytest.approx(5.0 + 2.0) == loads[0, restored[0, :2]].sum()
