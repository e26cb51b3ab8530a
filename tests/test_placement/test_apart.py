"""Failure domains: their slots, and what a legal row is, beside the rules written out in verify."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.failure_domains import domain_slots, each_alone, legal, over_cap
from placement.problem import Problem
from placement.verify import verify_experts
from topology.errors import InfeasibleError


def test_slots_of_domains() -> None:
    problem = Problem(np.ones((1, 6)), np.array([2, 1, 3, 0]), spread=np.array([7, 7, 2, 2]))
    assert domain_slots(problem).tolist() == [3, 3]  # numbered by their ids: 2, then 7
    assert not each_alone(problem)
    assert each_alone(Problem(np.ones((1, 2)), np.array([1, 1]), spread=np.array([9, 4])))
    assert each_alone(Problem(np.ones((1, 2)), np.array([1, 1])))


def test_too_many_slots_in_a_domain() -> None:
    problem = Problem(np.ones((1, 3)), np.array([2, 2, 1]), spread=np.array([0, 0, 1]))
    with pytest.raises(InfeasibleError, match="2 GPUs has 4 slots for 3 experts"):
        domain_slots(problem)


@settings(deadline=None, max_examples=200)
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
    assert legal(problem, row.astype(np.int32))[0] <= fine
    if spread is None:
        assert legal(problem, row.astype(np.int32))[0] == fine
    if np.array_equal(np.unique(row), np.arange(experts)):
        assert (over_cap(problem, row.astype(np.int32))[0] == 0) == fine
