"""Every rule of a legal assignment, broken one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from placement.experts.problem import Problem
from placement.verify import verify_experts

PROBLEM = Problem(np.ones((2, 3)), np.array([2, 2]))
ROWS = [[0, 1, 2, 0], [2, 1, 0, 1]]
GPUS = [0, 0, 1, 1]


def assignment(rows: object = ROWS, gpus: object = GPUS, experts: int = 3, count: int = 2) -> Assignment:
    return Assignment(np.array(rows), np.array(gpus), experts, count)


def test_a_legal_one_has_no_violations() -> None:
    assert verify_experts(assignment(), PROBLEM) == []


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


def test_copies_in_one_failure_domain_are_named() -> None:
    """GPUs 0 and 1 are one node; expert 0 is on both."""
    spread = Problem(np.ones((1, 3)), np.array([1, 1, 2]), spread=np.array([7, 7, 3]))
    gpus = [0, 1, 2, 2]
    assert verify_experts(assignment([[0, 1, 0, 2]], gpus, count=3), spread) == []
    found = verify_experts(assignment([[0, 0, 1, 2]], gpus, count=3), spread)
    assert found == ["row 0: GPUs 0 and 1, of one failure domain, both hold expert 0"]
    twice = verify_experts(assignment([[0, 1, 2, 2]], gpus, count=3), spread)
    assert twice == ["row 0: GPU 2 holds expert 2 more than once"]
