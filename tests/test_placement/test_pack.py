"""Replication, packing, repair and pair exchanges: legal for any slots, never worse, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.experts.counts import replicate
from placement.experts.local_search import swap_down
from placement.experts.pack import pack
from placement.experts.problem import Problem, make_problem
from placement.verify import verify_experts
from topology.base.errors import InputError


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    experts = draw(st.integers(1, 9))
    slots = draw(
        st.lists(st.integers(0, experts), min_size=1, max_size=7).filter(lambda s: sum(s) >= experts)
    )
    load = st.integers(0, 5) | st.floats(0, 1e18)
    rows = st.lists(load, min_size=experts, max_size=experts).filter(any)
    layers = draw(st.lists(rows, min_size=1, max_size=4))
    return Problem(np.array(layers, dtype=float), np.array(slots))


@pytest.mark.wide
@settings(deadline=None, max_examples=60)
@given(problems())
def test_any_problem_gets_a_legal_placement(problem: Problem) -> None:
    copies = replicate(problem)
    assert problem.counts_fit(copies).all()
    packed = pack(problem, copies)
    assert verify_experts(problem.assignment(packed), problem) == []
    assert (problem.assignment(packed).copies == copies).all()
    swapped = swap_down(problem, packed)
    assert verify_experts(problem.assignment(swapped), problem) == []
    assert (problem.assignment(swapped).copies == copies).all()
    before, after = (
        problem.evaluate(problem.assignment(packed)),
        problem.evaluate(problem.assignment(swapped)),
    )
    assert (after <= before * (1 + 1e-12)).all()


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
