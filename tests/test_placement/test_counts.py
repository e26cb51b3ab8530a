"""Counts of copies, packing and pair exchanges: against plain loops, legal for any slots, and never worse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.experts.counts import fold_counts, folded_peak, folds, least_peak, replicate
from placement.experts.local_search import exchange_down, swap_down
from placement.experts.pack import pack
from placement.experts.problem import Problem, make_problem, spread_slots
from placement.experts.solve import solve
from placement.verify import verify_experts
from topology.base.errors import InputError


def one_by_one(problem: Problem, load: np.ndarray) -> list[int]:
    copies = np.ones(load.size, dtype=np.int64)
    for _ in range(problem.slots - load.size):
        copies[np.argmax(np.where(copies < problem.most_copies, load / copies, -1.0))] += 1
    return copies.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("gpus", "redundant"), [(8, 8), (40, 208), (300, 268), (600, 568)])
@pytest.mark.parametrize("falling", [True, False])
def test_greedy_counts_give_one_copy_after_the_other(gpus: int, redundant: int, falling: bool) -> None:
    """Given by sorting where loads fall; else, of many spare copies, most are given at once."""
    loads = np.random.default_rng(redundant).lognormal(0, 1.2, (4, 32))
    loads[3, 5:] = 0.0
    loads[2] = np.round(loads[2] + 0.5)  # ties
    if falling:
        loads = -np.sort(-loads, axis=1)
    problem = make_problem(loads, spread_slots(32, gpus, redundant))
    for row, load in zip(replicate(problem), problem.mean, strict=True):
        assert row.tolist() == one_by_one(problem, load)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_no_packing_is_below_the_least_peak(seed: int) -> None:
    rng = np.random.default_rng(seed)
    experts, gpus = int(rng.integers(2, 10)), int(rng.integers(1, 7))
    slots = rng.integers(0, experts + 1, gpus)
    slots[0] = experts
    problem = make_problem(rng.lognormal(0, 1.5, (3, experts)), slots)
    copies = replicate(problem)
    assert (least_peak(problem, copies) <= problem.evaluate(pack(problem, copies)) * (1 + 1e-9)).all()


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6))
def test_searched_counts_are_legal_and_no_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus = int(rng.integers(2, 12))
    loads = -np.sort(-rng.lognormal(0, 1.5, (3, int(rng.integers(2, 2 * gpus + 1)))), axis=1)
    problem = make_problem(loads, np.full(gpus, 2))
    assert folds(problem)
    start = replicate(problem)
    found, peak = fold_counts(problem, start, np.ones(3))
    assert peak == pytest.approx(folded_peak(problem, found))
    assert (peak <= folded_peak(problem, start)).all()
    assert problem.counts_fit(found).all()
    assert (found.sum(axis=1) == problem.slots).all()
    assert found.min() >= 1
    assert problem.legal(pack(problem, found)).all()
    greedy = problem.evaluate(swap_down(problem, pack(problem, start)))
    assert (solve(problem).max_load <= greedy * (1 + 1e-9)).all()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_exchanged_copies_are_legal_and_no_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus, experts = int(rng.integers(2, 9)), int(rng.integers(4, 12))
    slots = rng.integers(0, 5, gpus)
    slots[:2] += -(-experts // 2)
    problem = make_problem(
        rng.lognormal(0, 2, (3, experts)), np.minimum(slots, experts), rng.random(gpus) + 0.5
    )
    start = pack(problem, replicate(problem))
    found = exchange_down(problem, start, np.ones(3))
    assert problem.legal(found).all()
    assert (problem.evaluate(found) <= problem.evaluate(start) * (1 + 1e-9)).all()


def test_exchanged_copies_share_out_what_greedy_counts_leave_whole() -> None:
    """Greedy counts make the largest copies small, and put two of middle size on many GPUs."""
    problem = make_problem(np.arange(1, 257.0)[None] ** -1.2, np.full(128, 3))
    start = pack(problem, replicate(problem))
    found = swap_down(problem, exchange_down(problem, start, np.ones(1)))
    assert problem.evaluate(swap_down(problem, start)) > 1.2
    assert problem.evaluate(found) < 1.03


def test_two_slots_per_gpu_gain_much() -> None:
    """Zipf loads, 576 slots on 288 GPUs: 1.14 with greedy counts, 1.035 by the search."""
    problem = make_problem(1 / np.arange(1.0, 257)[None], spread_slots(256, 288, 320))
    greedy = replicate(problem)
    before = problem.evaluate(swap_down(problem, pack(problem, greedy)))[0]
    assert before > 1.13
    assert solve(problem).max_load[0] < 1.035


# --- packing and pair exchanges


def test_no_exchange_with_the_hottest_gpu_is_left() -> None:
    rng = np.random.default_rng(3)
    problem = make_problem(np.exp(rng.normal(0, 1, (5, 20))), np.full(6, 4))
    end = swap_down(problem, pack(problem, replicate(problem)))
    for layer in range(5):
        alone = problem.rows(np.array([layer]))
        peak = alone.evaluate(alone.assignment(end[[layer]]))[0]
        gpu_load = alone.assignment(end[[layer]]).gpu_load(alone.mean)[0]
        hot = int(np.argmax(gpu_load))
        for mine in range(4 * hot, 4 * hot + 4):
            for other in range(problem.slots):
                row = end[[layer]].copy()
                row[0, mine], row[0, other] = row[0, other], row[0, mine]
                candidate = alone.assignment(row)
                if verify_experts(candidate, alone):
                    continue
                pair = candidate.gpu_load(alone.mean)[0][[hot, other // 4]]
                assert pair.max() >= gpu_load[hot] * (1 - 1e-9), (layer, mine, other, peak)


@pytest.mark.parametrize(
    ("loads", "words"),
    [
        ([[1.0, np.nan]], "row 0, expert 1: nan"),
        ([[1.0, 2.0], [-3.0, 1.0]], "row 1, expert 0: -3.0"),
        ([[1.0, 2.0], [0.0, 0.0]], "row 1: all zero"),
        ([1.0, 2.0], "shape"),
    ],
)
def test_loads_that_cannot_be(loads: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_problem(loads, [1, 1])  # type: ignore[arg-type]


def test_rows_are_scaled_to_mean_one_even_near_overflow() -> None:
    problem = make_problem([[1e308, 1e308, 0.0, 1e308], [1e-300, 3e-300, 0.0, 0.0]], [2, 2])
    assert problem.mean.mean(axis=1) == pytest.approx([1.0, 1.0])
    assert problem.mean[1].tolist() == pytest.approx([1.0, 3.0, 0.0, 0.0])
