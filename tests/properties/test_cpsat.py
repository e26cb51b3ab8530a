"""The exact model: each constraint both ways, and whole layers and groups of GPUs against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from ortools.sat.python import cp_model

from placement.budget import Budget
from placement.experts import cpsat
from placement.experts.counts import replicate
from placement.experts.cpsat import Choices, choose, few_gpus, finish_small, is_small, whole_layer
from placement.experts.pack import pack
from placement.experts.problem import Problem, make_problem
from tiny_cases import least_objective, tiny_problem

PAIR = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)  # patterns on two GPUs
SMALL = Choices(
    patterns=PAIR,
    allowed=np.ones((3, 3), dtype=bool),
    load=np.array([[[6, 0, 3], [4, 0, 2], [2, 0, 1]], [[0, 6, 3], [0, 4, 2], [0, 2, 1]]]),
    scenario=np.zeros(2, dtype=np.int64),
    slots=np.array([2, 2]),
    votes=np.ones(1, dtype=np.int64),
    start=np.array([2, 0, 1]),
    second_first=True,
    homogeneous=True,
)


def status(built: cpsat.ChoiceModel, chosen: list[int], peak: int = 7) -> str:
    """Feasible or not, with every expert's pattern and the peak given."""
    for row, pattern in zip(built.chosen, chosen, strict=True):
        for number, var in row.items():
            built.model.add(var == int(number == pattern))
    built.model.add(built.peak[0] == peak)
    solver = cp_model.CpSolver()
    solver.parameters.catch_sigint_signal = False
    solver.parameters.num_workers = 1
    return str(solver.status_name(solver.solve(built.model)))


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (cpsat.fill_slots, [2, 0, 1], [2, 0, 0]),
        (cpsat.bound_peak_by_loads, [2, 0, 1], [0, 0, 1]),
        (cpsat.fix_heaviest, [0, 1, 1], [1, 0, 0]),
    ],
)
def test_a_constraint_alone(constraint: object, good: list[int], bad: list[int]) -> None:
    for chosen, wanted in ((good, "OPTIMAL"), (bad, "INFEASIBLE")):
        built = cpsat.variables(SMALL)
        constraint(built, SMALL)  # type: ignore[operator]
        assert status(built, chosen) == wanted


def test_one_pattern_each() -> None:
    built = cpsat.variables(SMALL)
    cpsat.choose_one_pattern(built)
    assert status(built, [0, 1, 2]) == "OPTIMAL"
    built = cpsat.variables(SMALL)
    cpsat.choose_one_pattern(built)
    assert status(built, [0, 1, 9]) == "INFEASIBLE"


def test_second_copies_before_third_ones() -> None:
    three = replace(
        SMALL, patterns=np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool), slots=np.array([2, 2, 2])
    )
    for chosen, wanted in (([2, 0, 1], "INFEASIBLE"), ([2, 1, 1], "OPTIMAL"), ([1, 0, 0], "OPTIMAL")):
        built = cpsat.variables(three)
        cpsat.second_before_third(built, three)
        assert status(built, chosen) == wanted


def test_nothing_below_what_is_worth_seeking() -> None:
    """7 is what the incumbent has."""
    for least, peak, wanted in (
        (5, 5, "OPTIMAL"),
        (5, 4, "INFEASIBLE"),
        (99, 7, "OPTIMAL"),
        (5, 8, "INFEASIBLE"),
    ):
        some = replace(SMALL, least=least)
        built = cpsat.variables(some)
        cpsat.bound_objective(built, some)
        assert status(built, [2, 0, 1], peak) == wanted


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
    found, bound, _ = finish_small(problem, start, np.full(1, 0.1), Budget(), seed=0)
    assert problem.legal(found).all()
    value = problem.evaluate(found)[0]
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


def test_what_is_small() -> None:
    """Not 288 slots; as many layers as there are."""
    assert is_small(tiny_problem(1))
    assert is_small(make_problem(np.ones((2000, 4)), [2, 2, 2]))
    assert not is_small(make_problem(np.ones((1, 256)), np.full(72, 4)))
    assert not is_small(make_problem(np.ones((1, 36)), np.full(9, 4)))
    assert not is_small(make_problem(np.ones((1, 16)), np.full(4, 5)))


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
