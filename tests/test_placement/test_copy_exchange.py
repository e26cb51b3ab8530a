"""Other copy counts: the cases where greedy counts are not optimal, legality, and never worse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.copy_exchange import recount
from placement.local_search import swap_down
from placement.pack import pack
from placement.problem import Problem, make_problem, spread_slots
from placement.replication import replicate
from placement.solve import solve
from placement.budget import Budget
from placement.verify import verify_experts


@pytest.mark.parametrize(
    ("load", "gpus", "best"),
    [([4.0, 4.0, 1.0], 2, 4.5), ([1.0, 11.0, 1.0], 3, 14 / 3), ([5.0, 4.0, 2.0], 2, 6.0)],
)
def test_where_greedy_counts_are_not_optimal(load: list[float], gpus: int, best: float) -> None:
    problem = Problem(np.array([load]), np.full(gpus, 2))
    rows = swap_down(problem, pack(problem, replicate(problem)))
    greedy = problem.assignment(rows).gpu_load(problem.mean).max()
    recount(problem, rows, np.array([0]), rounds=5)
    found = problem.assignment(rows).gpu_load(problem.mean).max()
    assert verify_experts(problem.assignment(rows), problem) == []
    assert found == pytest.approx(best)
    assert found <= greedy


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_legal_and_never_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus = int(rng.integers(1, 7))
    experts = int(rng.integers(2, 12))
    slots = rng.integers(0, experts + 1, gpus)
    slots[0] = experts
    problem = make_problem(rng.lognormal(0, rng.uniform(0.1, 2.5), (3, experts)), slots)
    start = swap_down(problem, pack(problem, replicate(problem)))
    rows = start.copy()
    recount(problem, rows, np.array([0, 2]), rounds=6)
    assert verify_experts(problem.assignment(rows), problem) == []
    assert (rows[1] == start[1]).all()
    before, after = (problem.evaluate(problem.assignment(r)) for r in (start, rows))
    assert (after <= before * (1 + 1e-12)).all()


def test_it_stops_when_asked() -> None:
    problem = make_problem(np.random.default_rng(0).lognormal(0, 2, (4, 64)), spread_slots(64, 64, 64))
    start = swap_down(problem, pack(problem, replicate(problem)))
    rows = start.copy()
    recount(problem, rows, np.arange(4), rounds=9, keep_on=lambda _: False)
    assert (rows == start).all()
    recount(problem, rows, np.arange(4), rounds=9)
    assert (rows != start).any(axis=1).all()


@pytest.mark.wide
def test_two_slots_per_gpu_gain_much() -> None:
    """256 experts in 576 slots on 288 GPUs, Zipf loads: greedy counts and packing alone are 10 % worse."""
    ranks = np.random.default_rng(0).permuted(np.tile(np.arange(1.0, 257), (2, 1)), axis=1)
    problem = make_problem(1 / ranks, spread_slots(256, 288, 320))
    greedy = problem.evaluate(problem.assignment(swap_down(problem, pack(problem, replicate(problem)))))
    fast = solve(problem)
    timed = solve(problem, Budget(3))
    assert fast.objective < greedy.mean() - 0.04
    assert timed.objective < greedy.mean() - 0.08
