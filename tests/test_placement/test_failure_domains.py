"""Failure domains: what is in which, what is legal, which slots can be filled with copies apart, and how they are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.experts.anti_affinity import any_spread
from placement.experts.failure_domains import can_spread, require_apart, spread_row, stage_domains
from placement.experts.problem import Problem, make_problem, spread_slots
from placement.experts.solve import solve
from placement.verify import verify_experts
from tiny_cases import MOST_WAYS, ways_to_fill
from topology import resolve_cluster
from topology.base.errors import InfeasibleError

SETTING = Deployment(resolve_cluster("gb200-nvl72@144"), resolve_model("gpt-oss-20b"), Workload(batch=1))


def test_places_in_one_domain_of_some_replica_are_in_one() -> None:
    # the second replica begins in the middle of a node: places 0, 1 | 2, 3, 4, 5 | 6, 7
    found = stage_domains(SETTING, [range(8), range(10, 18)], "node")
    assert set(found.tolist()) == {0}
    apart = stage_domains(SETTING, [[0, 4, 8, 12], [16, 17, 20, 24]], "node")
    assert [bool(apart[a] == apart[b]) for a, b in ((0, 1), (0, 2), (1, 2), (2, 3))] == [
        True,
        False,
        False,
        False,
    ]


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
    ways, used = (
        ways_to_fill(experts, slots) * 9 + np.repeat(domains, slots),
        np.unique(domains[slots > 0]).size,
    )
    if (np.diff(np.sort(ways, axis=1), axis=1) > 0).all(axis=1).any():  # no expert twice in a domain
        require_apart(experts, slots, domains, once=True)
    else:
        with pytest.raises(InfeasibleError, match=f"at most `redundant` {experts * (used - 1)} goes"):
            require_apart(experts, slots, domains, once=True)
    return any_legal


def drawn(seed: int) -> bool | None:
    rng = np.random.default_rng(seed)
    experts, gpus = int(rng.integers(1, 6)), int(rng.integers(1, 8))
    slots = rng.integers(0, min(experts, 4) + 1, gpus)
    if slots.sum() < experts or math.prod(math.comb(experts, each) for each in slots.tolist()) > MOST_WAYS:
        return None
    spread = rng.integers(0, int(rng.integers(1, 5)), gpus)
    return check(experts, slots, np.unique(spread, return_inverse=True)[1].reshape(-1))


def test_against_all_ways() -> None:
    found = [drawn(seed) for seed in range(150)]
    assert True in found
    assert False in found


def test_no_gpu_twice_may_bind_alone() -> None:
    """No domain has more slots than its part, but each GPU of two slots must hold both experts."""
    slots, domains = np.array([2, 2, 1, 2, 2, 2]), np.array([0, 0, 0, 1, 1, 2])
    assert not check(2, slots, domains)
    with pytest.raises(InfeasibleError, match=r"no two of one on a GPU; .* 5/4/2 slots: with 1 slot "):
        require_apart(2, slots, domains)


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


# --- copies spread over few domains


def hot(experts: int = 40, layers: int = 3, seed: int = 0, sigma: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0, sigma, (layers, experts))


def test_what_is_wrong_is_named() -> None:
    problem = Problem(np.ones((1, 2)), np.array([1, 1, 1, 2]), spread=np.array([0, 0, 0, 1]))
    row = np.array([[0, 0, 0, 0, 1]])
    assert verify_experts(problem.assignment(row), problem) == [
        "row 0: GPUs 0, 1, 2, of one failure domain, hold expert 0: 2 of its 4 copies at most are allowed there"
    ]


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


def test_a_second_copy_of_every_expert_before_third_ones() -> None:
    nodes = np.arange(24) // 4
    loads = hot(40, sigma=0.6)
    problem = make_problem(loads, spread_slots(40, 24, 56), spread=nodes)
    found, free = solve(problem), solve(problem.without_spread())
    assert verify_experts(found.assignment, problem) == []
    assert free.assignment.copies.min() == 1
    assert found.assignment.copies.min() == 2
    assert found.objective < 1.02 * free.objective


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
    found = solve(problem)
    assert verify_experts(found.assignment, problem) == []
    copies = found.assignment.copies
    assert (copies.min() > 1) if redundant >= 40 else (copies.max() == 2)
    assert (found.bound <= found.max_load * (1 + 1e-9)).all()
    for row, layer in zip(found.assignment.slot_expert, copies, strict=True):
        there = [set(nodes[found.assignment.slot_gpu[row == one]].tolist()) for one in range(40)]
        assert all(len(there[one]) >= min(layer[one], 2) for one in range(40))


def test_domains_too_unequal() -> None:
    """Of 24 slots 22 in one domain: of 4 experts it may hold 2 more than the other at most."""
    problem = make_problem(hot(4), np.full(12, 2), spread=np.array([0] * 11 + [1]))
    with pytest.raises(InfeasibleError, match=r"has 22, .* it can take 14: at most `redundant` 0 goes"):
        solve(problem)
