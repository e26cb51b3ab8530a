"""Every rule of a legal plan and of a legal assignment, broken one at a time; copies in failure domains."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.assignment import Assignment
from cost.inputs.layout import Layout, StageSpec
from placement.experts.anti_affinity import any_spread
from placement.experts.failure_domains import can_spread, require_apart, spread_row
from placement.experts.problem import Problem, make_problem, spread_slots
from placement.experts.solve import solve
from placement.plan import Plan
from placement.verify import verify_experts, verify_plan
from test_placement.builders import deployed, quick
from tiny_cases import MOST_WAYS, ways_to_fill
from topology.base.errors import InfeasibleError


@cache
def legal() -> Plan:
    return quick(deployed("mixtral-8x7b", "hgx-h100@16", 4, batch=2), "zipf:1", redundant=8)


def experts_of(rows: object, gpus: int = 8) -> Assignment:
    array = np.array(rows, dtype=np.int32)
    slot_gpu = np.repeat(np.arange(gpus, dtype=np.int32), array.shape[1] // gpus)
    return Assignment(array, slot_gpu, 8, gpus)


def one_copy(layers: int) -> Assignment:
    return experts_of(np.tile(np.arange(8), (layers, 1)))


def plan_with(
    replicas: list[list[tuple[range, range]]], *, tp: int = 1, experts: list[Assignment | None] | None = None
) -> Plan:
    """A plan whose stages are ``(gpus, layers)``, one copy of each expert unless given."""
    rows = tuple(tuple(StageSpec(tuple(gpus), layers) for gpus, layers in stages) for stages in replicas)
    placed = experts or [one_copy(len(layers)) for _, layers in replicas[0]]
    return replace(legal(), layout=Layout(rows, tp), experts=tuple(placed))


FIRST, SECOND, ALL = range(8), range(8, 16), range(4)
DOUBLE = experts_of([[0, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6]] * 4)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_with([[(FIRST, range(3))]]), r"replica 0: its stages hold layers \[0, 1, 2\], not 0 to 3"),
        (plan_with([[(FIRST, ALL)], [(range(7, 15), ALL)]]), r"GPU d0\.n0\.g7 is in two stages"),
        (plan_with([[(range(8, 24), ALL)]]), "GPU number 16 of 16"),
        (plan_with([[(FIRST, ALL)]], tp=3), r"TP 3 does not divide layers 0 to 3"),
        (plan_with([[(range(5, 13), ALL)]], tp=8), "into groups within a domain"),
        (plan_with([[(FIRST, ALL)]], experts=[None]), "no experts are placed"),
        (plan_with([[(FIRST, ALL)]], experts=[one_copy(3)]), r"shape of slot_expert: \(3, 8\)"),
        (plan_with([[(FIRST, ALL)]], experts=[DOUBLE]), "GPU 0 holds expert 0 more than once"),
    ],
)
def test_each_rule_is_checked(plan: Plan, words: str) -> None:
    wrong = verify_plan(plan)
    assert any(re.search(words, line) for line in wrong), wrong


def test_memory_is_checked_to_the_byte() -> None:
    """The largest batch of the score is legal, one more is not."""
    most = legal().score.max_batch
    assert verify_plan(replace(legal(), deployment=legal().deployment.with_batch(most))) == []
    assert verify_plan(replace(legal(), deployment=legal().deployment.with_batch(most + 1))) != []
    staged = plan_with([[(FIRST, range(1)), (SECOND, range(1, 4))]])
    full = verify_plan(replace(staged, deployment=staged.deployment.with_batch(10**6)))
    assert len([line for line in full if re.search(r"GB per GPU, [\d.]+ GB usable", line)]) == 2


# --- assignments

PROBLEM = Problem(np.ones((2, 3)), np.array([2, 2]))
ROWS = [[0, 1, 2, 0], [2, 1, 0, 1]]
GPUS = [0, 0, 1, 1]


def assignment(rows: object = ROWS, gpus: object = GPUS, experts: int = 3, count: int = 2) -> Assignment:
    return Assignment(np.array(rows), np.array(gpus), experts, count)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (assignment([[0, 1, 1, 0], ROWS[1]]), "row 0: expert 2 has no copy"),
        (assignment([ROWS[0], [2, 1, 0, 0]]), "row 1: GPU 1 holds expert 0 more than once"),
        (assignment([[0, 1, 2, 3], ROWS[1]]), "row 0, slot 3: expert 3 is not in 0..2"),
        (assignment(gpus=[0, 1, 1, 1]), "GPU 0 has 1 slots, but the problem gives it 2"),
        (assignment(gpus=[1, 1, 0, 0]), "slots are not in the order of their GPUs"),
        (assignment(rows=[ROWS[0]]), "shape of slot_expert: (1, 4), but the problem has (2, 4)"),
        (assignment(rows=[[0.0, 1.0, 2.0, 0.5], ROWS[1]]), "float64, not integers"),
    ],
)
def test_each_violation_is_named(broken: Assignment, words: str) -> None:
    assert any(words in violation for violation in verify_experts(broken, PROBLEM))


def check(experts: int, slots: np.ndarray, domains: np.ndarray) -> bool:
    """Hold the verdict, the message and the placement against all ways; whether there is one."""
    problem = Problem(np.ones((1, experts)), slots, spread=domains)
    any_legal = bool(problem.legal(ways_to_fill(experts, slots)).any())
    assert can_spread(experts, slots, domains) == any_legal
    if any_legal:
        require_apart(experts, slots, domains)
        assert problem.legal(spread_row(experts, slots, domains)[None]).all()
    else:
        with pytest.raises(InfeasibleError, match="goes"):
            require_apart(experts, slots, domains)
        with pytest.raises(ValueError, match="cannot be spread"):
            spread_row(experts, slots, domains)
    ways = ways_to_fill(experts, slots) * 9 + np.repeat(domains, slots)
    used = np.unique(domains[slots > 0]).size
    if (np.diff(np.sort(ways, axis=1), axis=1) > 0).all(axis=1).any():  # no expert twice in a domain
        require_apart(experts, slots, domains, once=True)
    else:
        with pytest.raises(InfeasibleError, match=f"at most `redundant` {experts * (used - 1)} goes"):
            require_apart(experts, slots, domains, once=True)
    return any_legal


def test_copies_can_be_apart_where_one_of_all_ways_is_legal() -> None:
    verdicts = set()
    for seed in range(150):
        rng = np.random.default_rng(seed)
        experts, gpus = int(rng.integers(1, 6)), int(rng.integers(1, 8))
        slots = rng.integers(0, min(experts, 4) + 1, gpus)
        ways = math.prod(math.comb(experts, held) for held in slots.tolist())
        if slots.sum() >= experts and ways <= MOST_WAYS:
            spread = rng.integers(0, int(rng.integers(1, 5)), gpus)
            domains = np.unique(spread, return_inverse=True)[1].reshape(-1)
            verdicts.add(check(experts, slots, domains))
    assert verdicts == {True, False}


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_legal_is_what_verify_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    experts, gpus = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    slots = rng.integers(0, experts + 1, gpus)
    slots[0] = experts
    spread = rng.integers(0, 3, gpus) if seed % 2 else None
    problem = Problem(np.ones((1, experts)), slots, spread=spread)
    row = rng.integers(-1 if seed % 5 == 0 else 0, experts + (seed % 7 == 0), (1, problem.slots))
    if seed % 3 == 0:  # distinct on each GPU, so that not all rows are illegal
        row[0] = np.concatenate([rng.permutation(experts)[:held] for held in slots])
    fine = verify_experts(problem.assignment(row), problem) == []
    assert problem.legal(row.astype(np.int32))[0] == fine
    if np.array_equal(np.unique(row), np.arange(experts)):
        assert (problem.over_cap(row.astype(np.int32))[0] == 0) == fine


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_copies_are_dealt_out_legally_wherever_that_can_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus, experts = int(rng.integers(2, 12)), int(rng.integers(2, 20))
    slots = rng.integers(0, experts + 1, gpus) if seed % 2 else np.full(gpus, min(experts, 4))
    domain = np.unique(rng.integers(0, int(rng.integers(1, gpus + 1)), gpus), return_inverse=True)[1]
    if slots.sum() < experts or not can_spread(experts, slots, domain):
        return
    problem = Problem(rng.lognormal(0, 1, (2, experts)), slots, spread=domain)
    dealt = any_spread(problem)
    assert verify_experts(problem.assignment(dealt), problem) == []
    names = rng.permutation(experts).astype(np.int32)
    renamed = any_spread(replace(problem, loads=problem.loads[:, :, np.argsort(names)]))
    np.testing.assert_array_equal(renamed, names[dealt])


@pytest.mark.parametrize(
    ("redundant", "split", "several", "objective"),
    [
        (1, "source", 3, "mean"),
        (39, "lp", 3, "worst"),
        (41, "even", 3, "worst"),
    ],
)
def test_second_copies_come_first_whatever_they_cost(
    redundant: int, split: str, several: int, objective: str
) -> None:
    nodes = np.arange(24) // 4
    loads = np.random.default_rng(0).lognormal(0, 1.6, (several, 2, 40))
    problem = make_problem(
        loads, spread_slots(40, 24, redundant), spread=nodes, objective=objective, split=split, nodes=nodes
    )
    found = solve(problem)
    assert verify_experts(found.assignment, problem) == []
    copies = found.assignment.copies
    assert (copies.min() > 1) if redundant >= 40 else (copies.max() == 2)
    assert (found.bound <= found.max_load * (1 + 1e-9)).all()
    for row, layer in zip(found.assignment.slot_expert, copies, strict=True):
        for expert in range(40):
            there = set(nodes[found.assignment.slot_gpu[row == expert]].tolist())
            assert len(there) >= min(layer[expert], 2)
