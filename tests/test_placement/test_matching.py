"""Copies matched to GPUs by sorting: legal for any slots and speeds, and a best matching where one can be listed."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.experts.counts import replicate
from placement.experts.matching import matched
from placement.experts.problem import Problem, make_problem


def drawn(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    gpus, experts = int(rng.integers(2, 9)), int(rng.integers(3, 14))
    slots = rng.integers(0, 5, gpus)
    slots[0] += max(0, experts - int(slots.sum()))
    speed = rng.choice([0.7, 1.0, 1.5], gpus) if seed % 3 == 0 else None
    return make_problem(rng.lognormal(0, 1.5, (3, experts)), np.minimum(slots, experts), speed)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_matched_copies_are_legal_each_layer_by_itself(seed: int) -> None:
    """Few, many, unequal slots; fast and slow GPUs; and rounds make nothing worse than packing alone."""
    try:
        problem = drawn(seed)
    except ValueError:  # fewer slots than experts
        return
    copies, enough = replicate(problem), np.ones(3)
    found = matched(problem, copies, enough, 4)
    assert problem.legal(found).all()
    assert (problem.assignment(found).copies == copies).all()
    one = matched(problem.rows(np.array([1])), copies[[1]], enough[:1], 4)
    assert (one == found[1]).all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("speeds", [False, True])
def test_a_round_gives_copies_back_in_the_best_order(seed: int, speeds: bool) -> None:
    """One more round of five GPUs cannot be beaten by any other order of what it moved, with all as fast."""
    rng = np.random.default_rng(seed)
    speed = rng.uniform(0.5, 2.0, 5) if speeds else None
    problem = make_problem(rng.lognormal(0, 1, (1, 10)), np.full(5, 2), speed)
    copies, nothing = replicate(problem), np.zeros(1)
    levels = [problem.evaluate(matched(problem, copies, nothing, rounds))[0] for rounds in range(5)]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(levels))
    if speed is None:  # two slots each: the best of all ways to pair the larger half with the smaller
        load = np.sort(problem.mean[0])
        best = min((load[:5] + load[5:][list(order)]).max() for order in permutations(range(5)))
        assert levels[0] == pytest.approx(best * 5 / load.sum())
