"""Whole layers by sets of GPUs against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from placement.budget import Budget
from placement.experts.counts import replicate
from placement.experts.exact import few_sets, finish
from placement.experts.pack import pack
from placement.experts.problem import make_problem
from tiny_cases import least_objective, tiny_problem


def solved_from_a_poor_start(seed: int) -> None:
    """Whole layers of every kind from any legal placement: the best of all, and proven."""
    problem = tiny_problem(seed)
    best = least_objective(problem, second_first=False)
    if best is None or not problem.can_be_apart:
        return
    start = pack(problem.average, replicate(problem.average))
    if not problem.legal(start).all() or (problem.spread is not None and problem.split == "lp"):
        return
    rule = best if problem.spread is None else least_objective(problem)
    placement, bound, _ = finish(problem, start, np.full(1, 0.1), Budget(), worth_s=0.0, seed=0)
    assert problem.legal(placement).all()
    value = problem.evaluate(placement)[0]
    slack = 1e-3 if problem.split == "lp" else 1e-7
    assert rule is not None
    assert value <= rule * (1 + slack)
    assert value >= best * (1 - 1e-9)
    assert bound[0] <= rule * (1 + 1e-7)
    assert bound[0] >= best * (1 - 1e-7)


@pytest.mark.parametrize("start", [0, 20, 40])
def test_whole_layers_against_brute_force(start: int) -> None:
    for seed in range(start, start + 20):
        solved_from_a_poor_start(seed)


def test_what_is_small() -> None:
    """Not 288 slots; as many layers as there are."""
    assert few_sets(tiny_problem(1))
    assert few_sets(make_problem(np.ones((2000, 4)), [2, 2, 2]))
    assert not few_sets(make_problem(np.ones((1, 256)), np.full(72, 4)))
    assert not few_sets(make_problem(np.ones((1, 36)), np.full(9, 4)))
    assert not few_sets(make_problem(np.ones((1, 16)), np.full(4, 5)))


def test_votes_count() -> None:
    """Two of three scenarios alike share a vote: what is proven least is the problem's objective."""
    loads = np.random.default_rng(5).lognormal(0, 1, (3, 1, 5))
    loads[2] = loads[1] * (1 + 1e-4 * np.arange(5))
    problem = make_problem(loads, [3, 3, 2]).by_votes
    assert problem.votes is not None
    start = pack(problem.average, replicate(problem.average))
    placement, bound, _ = finish(problem, start, np.full(1, 0.1), Budget(), worth_s=0.0, seed=0)
    assert bound[0] == pytest.approx(least_objective(problem), abs=1e-6)
    assert problem.evaluate(placement)[0] == pytest.approx(bound[0], abs=1e-6)
