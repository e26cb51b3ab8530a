"""The exact model: each constraint both ways, and whole layers and groups of GPUs against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from placement.budget import Budget
from placement.experts import cpsat
from placement.experts.counts import replicate
from placement.experts.cpsat import choose, few_gpus, finish_small, whole_layer
from placement.experts.pack import pack
from placement.experts.problem import Problem, make_problem
from tiny_cases import least_objective, tiny_problem


@pytest.mark.parametrize("seed", range(60))
def test_whole_layers_against_brute_force(seed: int) -> None:
    """From any legal placement: the best of all, and proven."""
    problem = tiny_problem(seed)
    best = least_objective(problem, second_first=False)
    if best is None or not problem.can_be_apart:
        return
    start = pack(problem.average, replicate(problem.average))
    if not problem.legal(start).all() or (problem.spread is not None and problem.split == "lp"):
        return
    rule = best if problem.spread is None else least_objective(problem)
    found, bound, _ = finish_small(problem, start, np.full(1, 0.1), Budget(), seed=0)
    assert problem.legal(found).all()
    value = problem.evaluate(found)[0]
    slack = 1e-3 if problem.split == "lp" else 1e-7
    assert value <= rule * (1 + slack)
    assert value >= best * (1 - 1e-9)
    assert bound[0] <= rule * (1 + 1e-7)
    assert bound[0] >= best * (1 - 1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_a_group_of_gpus_against_brute_force(seed: int) -> None:
    """Speeds, failure domains and what other GPUs of a domain hold; counts stay."""
    rng = np.random.default_rng(seed)
    on = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1], [0, 1, 0]], dtype=bool)
    slots = np.array([2, 3, 2, 2])
    speed, spread = rng.uniform(0.5, 1.5, 4), np.array([0, 1, 1, 2]) if seed % 2 else None
    problem = make_problem(np.ones((1, 9)), slots, speed, spread)
    barred = np.zeros_like(on)
    barred[2, 1] = seed % 3 == 0
    share = rng.uniform(0.1, 0.9, 5)
    choices = few_gpus(problem, np.arange(3), on, share, barred, 0.0)

    def largest(held: np.ndarray) -> float:
        return float((share @ held / problem.speed[:3]).max())

    best = largest(on)
    for bits in product((False, True), repeat=on.size):
        held = np.array(bits).reshape(on.shape)
        same = (held.sum(axis=1) == on.sum(axis=1)).all() and (held.sum(axis=0) == on.sum(axis=0)).all()
        apart = spread is None or held[:, 1:].sum(axis=1).max() <= 1
        as_it_was = (held == on).all(axis=1)  # an expert may stay as it is
        if same and not (held & barred).any() and (apart or as_it_was[held[:, 1:].sum(axis=1) > 1].all()):
            best = min(best, largest(held))
    chosen, _, _ = choose(choices, Budget(20.0), most_s=20.0)
    found = on if chosen is None else choices.patterns[chosen]
    assert largest(found) == pytest.approx(best)


def test_votes_count() -> None:
    """Two of three scenarios alike share a vote: the model's objective is the problem's."""
    rng = np.random.default_rng(5)
    loads = rng.lognormal(0, 1, (3, 1, 5))
    loads[2] = loads[1] * (1 + 1e-4 * np.arange(5))
    problem: Problem = make_problem(loads, [3, 3, 2]).by_votes
    assert problem.votes is not None
    row = pack(problem.average, replicate(problem.average))[0]
    choices = whole_layer(problem, row, 0.1)
    value = choices.value(choices.start) / (cpsat.STEPS * choices.votes.sum())
    assert value == pytest.approx(problem.evaluate(row[None])[0], abs=1e-6)
