"""Copies spread evenly over few failure domains: the rule, the repair, and what plans make of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.experts.anti_affinity import spread_evenly
from placement.experts.counts import replicate
from placement.experts.fast_path import fast_placement
from placement.experts.pack import pack
from placement.experts.problem import Problem, make_problem, most_in_domain, spread_slots
from placement.experts.result import ExpertResult, checked_result
from placement.experts.solve import solve
from placement.verify import verify_experts
from topology.base.errors import InfeasibleError

if TYPE_CHECKING:
    pass

RACK, THIRD = np.arange(24) // 12, np.arange(24) // 8


def place_apart(problem: Problem) -> ExpertResult:
    """No expert twice in a failure domain, whatever that costs."""
    return checked_result(problem, fast_placement(problem)[0], (), {}, interrupted=False)


def placed(problem: Problem) -> ExpertResult:
    return solve(problem)


def hot(experts: int = 40, layers: int = 3, seed: int = 0, sigma: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0, sigma, (layers, experts))


def test_most_in_a_domain() -> None:
    assert [most_in_domain(copies, 3) for copies in range(1, 8)] == [1, 1, 1, 2, 2, 2, 3]
    assert most_in_domain(5, 1) == 1
    assert most_in_domain(np.array([1, 2, 3, 4, 5]), 2).tolist() == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("domain", [(0, 0, 1, 1), (0, 0, 0, 1), (0, 1, 2, 2), (5, 5, 5, 5)])
def test_verify_is_the_rule(domain: tuple[int, ...]) -> None:
    """All ways to fill four GPUs of one and two slots with three experts."""
    problem = Problem(np.ones((1, 3)), np.array([1, 2, 1, 2]), spread=np.array(domain))
    gpu, legal = problem.slot_gpu, 0
    used = len(set(domain))
    for row in product(range(3), repeat=6):
        copies = Counter(row)
        on_gpu = Counter(zip(row, gpu.tolist(), strict=True))
        there = Counter((expert, domain[g]) for expert, g in zip(row, gpu.tolist(), strict=True))
        fine = len(copies) == 3 and max(on_gpu.values()) == 1
        for (expert, _), count in there.items():
            fine &= count <= (np.ceil(copies[expert] / used) if used > 1 else 1)
        found = verify_experts(problem.assignment(np.array([row])), problem)
        assert (found == []) == fine, (row, found)
        legal += fine
    assert (legal > 0) == (used > 1)


def test_what_is_wrong_is_named() -> None:
    problem = Problem(np.ones((1, 2)), np.array([1, 1, 1, 2]), spread=np.array([0, 0, 0, 1]))
    row = np.array([[0, 0, 0, 0, 1]])
    assert verify_experts(problem.assignment(row), problem) == [
        "row 0: GPUs 0, 1, 2, of one failure domain, hold expert 0: 2 of its 4 copies at most are allowed there"
    ]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_repair_is_legal_or_says_so(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus, experts = int(rng.integers(2, 9)), int(rng.integers(2, 12))
    slots = rng.integers(0, min(experts, 5) + 1, gpus) if seed % 2 else np.full(gpus, min(experts, 4))
    if slots.sum() < experts:
        return
    free = Problem(rng.lognormal(0, 1, (2, experts)), slots, rng.uniform(0.5, 2, gpus) if seed % 3 else None)
    start = pack(free, replicate(free))
    problem = replace(free, spread=rng.integers(0, int(rng.integers(1, gpus + 1)), gpus))
    again, fine = spread_evenly(problem, start)
    for layer in range(2):
        wrong = verify_experts(problem.assignment(again[[layer]]), problem.rows(np.array([layer])))
        assert (wrong == []) == fine[layer]
        if not fine[layer]:
            assert (again[layer] == start[layer]).all()
    names = rng.permutation(experts).astype(np.int32)
    other = replace(problem, loads=problem.mean[:, np.argsort(names)])
    renamed, fine_too = spread_evenly(other, names[start])
    assert (fine_too == fine).all()
    np.testing.assert_array_equal(renamed, names[again])


def test_even_loads_keep_anti_affinity() -> None:
    problem = make_problem(np.ones((2, 40)), spread_slots(40, 24, 8), spread=RACK)
    strict = place_apart(problem)
    np.testing.assert_array_equal(placed(problem).assignment.slot_expert, strict.assignment.slot_expert)


@pytest.mark.parametrize("domains", [2, 3])
def test_more_slots_in_a_domain_than_experts(domains: int) -> None:
    """Where copies suffice, every expert has one in two domains, and none is lost with one."""
    spread = np.arange(24) * domains // 24
    problem = make_problem(hot(16), np.full(24, 3), spread=spread)
    found = placed(problem)
    assert verify_experts(found.assignment, problem) == []
    assert found.objective < 1.05
    for row in found.assignment.slot_expert:
        where = spread[found.assignment.slot_gpu]
        there = np.stack([np.bincount(row[where == each], minlength=16) for each in range(domains)])
        assert ((there > 0).sum(axis=0) >= 2).all()


def test_a_second_copy_of_every_expert_before_third_ones() -> None:
    nodes = np.arange(24) // 4
    loads = hot(40, sigma=0.6)
    problem = make_problem(loads, spread_slots(40, 24, 56), spread=nodes)
    found, free = placed(problem), placed(problem.without_spread())
    assert verify_experts(found.assignment, problem) == []
    assert free.assignment.copies.min() == 1
    assert found.assignment.copies.min() == 2
    assert found.objective < 1.02 * free.objective
    assert "second copies before third copies" in " ".join(found.log)


@pytest.mark.parametrize(
    ("redundant", "split", "several", "objective"),
    [
        (1, "source", 3, "mean"),
        (39, "even", 1, "mean"),
        (39, "lp", 3, "worst"),
        (41, "even", 3, "worst"),
        (41, "source", 1, "mean"),
        (56, "lp", 3, "mean"),
    ],
)
def test_second_copies_come_first_whatever_they_cost(
    redundant: int, split: str, several: int, objective: str
) -> None:
    nodes = np.arange(24) // 4
    loads = np.stack([hot(40, 2, seed, sigma=1.6) for seed in range(several)])
    problem = make_problem(
        loads, spread_slots(40, 24, redundant), spread=nodes, objective=objective, split=split, nodes=nodes
    )
    found = placed(problem)
    assert verify_experts(found.assignment, problem) == []
    copies = found.assignment.copies
    assert (copies.min() > 1) if redundant >= 40 else (copies.max() == 2)
    assert (found.bound <= found.max_load * (1 + 1e-9)).all()
    for row, layer in zip(found.assignment.slot_expert, copies, strict=True):
        there = [set(nodes[found.assignment.slot_gpu[row == one]].tolist()) for one in range(40)]
        assert all(len(there[one]) >= min(layer[one], 2) for one in range(40))


@pytest.mark.parametrize("seed", range(12))
def test_few_slots_against_brute_force(seed: int) -> None:
    """All placements of four experts on six GPUs of one slot, or on three of two, with second copies first."""
    slots, spread = (np.ones(6, dtype=int), np.arange(6) // 2) if seed % 2 else (np.full(3, 2), np.arange(3))
    problem = make_problem(hot(4, 1, seed), slots, spread=spread)
    best = np.inf
    for row in product(range(4), repeat=6):
        counts = np.bincount(row, minlength=4)
        if counts.min() == 1 and counts.max() == 2:
            assignment = problem.assignment(np.array([row]))
            if not verify_experts(assignment, problem):
                best = min(best, float(problem.evaluate(assignment)[0]))
    assert placed(problem).objective == pytest.approx(best)


def test_domains_too_unequal() -> None:
    """Of 24 slots 22 in one domain: of 4 experts it may hold 2 more than the other at most."""
    problem = make_problem(hot(4), np.full(12, 2), spread=np.array([0] * 11 + [1]))
    with pytest.raises(InfeasibleError, match=r"has 22, .* it can take 14: at most `redundant` 0 goes"):
        placed(problem)


def test_over_cap_counts() -> None:
    problem = Problem(np.ones((2, 3)), np.array([2, 2, 2]), spread=np.array([0, 0, 1]))
    rows = np.array([[0, 1, 0, 2, 1, 2], [0, 1, 1, 2, 0, 1]], dtype=np.int32)
    assert problem.over_cap(rows).tolist() == [1, 0]
