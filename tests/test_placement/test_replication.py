"""Counts of copies: the greedy method and its family, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from placement.experts.problem import Problem, make_problem, spread_slots
from placement.experts.replication import divided, replicate


def one_by_one(problem: Problem, load: np.ndarray, rounding: float) -> list[int]:
    copies = np.ones(load.size, dtype=np.int64)
    for _ in range(problem.slots - load.size):
        score = np.where(copies < problem.most_copies, load / (copies + rounding), -1.0)
        copies[np.argmax(score)] += 1
    return copies.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("gpus", "redundant"), [(8, 8), (40, 208), (300, 268)])
@pytest.mark.parametrize("rounding", [0.0, 0.1, 0.7])
def test_a_divisor_method_gives_one_copy_after_the_other(gpus: int, redundant: int, rounding: float) -> None:
    """Of many spare copies most are given at once."""
    loads = np.random.default_rng(redundant).lognormal(0, 1.2, (4, 32))
    loads[3, 5:] = 0.0
    problem = make_problem(loads, spread_slots(32, gpus, redundant))
    found = divided(problem, problem.mean, np.full(4, rounding))
    for row, load in zip(found, problem.mean, strict=True):
        assert row.tolist() == one_by_one(problem, load, rounding)
    if rounding == 0.0:
        assert (replicate(problem) == found).all()
