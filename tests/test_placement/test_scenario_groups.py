"""Alike scenarios share a vote: who is alike, what a search listens to, and what must not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placement.experts.problem import make_problem
from placement.experts.scenario_groups import ALIKE_DISTANCE, MOST_HEARD, distances, group_scenarios, votes
from placement.experts.solve import solve


def windows(steps: int, *, noise: float = 0.0) -> np.ndarray:
    """Loads that walk from one workload to another, ``[steps, 2, 32]``, of mean 1."""
    rng = np.random.default_rng(0)
    first, last = rng.lognormal(0, 0.7, (2, 2, 32))
    part = np.linspace(0, 1, steps)[:, None, None]
    found = ((1 - part) * first + part * last) * rng.lognormal(0, noise, (steps, 2, 32))
    return found / found.mean(axis=2, keepdims=True)


def test_a_chain_of_alike_windows_is_several_groups_and_all_of_one_are_alike() -> None:
    loads = windows(40)
    apart = distances(loads)
    np.testing.assert_allclose(apart[0, 5], np.sqrt(((loads[0] - loads[5]) ** 2).mean()), atol=1e-6)
    group, part = group_scenarios(loads)
    assert apart[0, 1] < ALIKE_DISTANCE < apart[0, -1]
    assert 2 < group.max() + 1 <= MOST_HEARD
    for each in range(group.max() + 1):
        inside = np.flatnonzero(group == each)
        assert apart[np.ix_(inside, inside)].max() < ALIKE_DISTANCE
        assert votes(group)[inside].sum() == pytest.approx(1 / (group.max() + 1))
    assert part.max() + 1 <= MOST_HEARD
    assert all(np.unique(group[part == each]).size == 1 for each in range(part.max() + 1))


def test_a_rare_workload_is_heard_beside_many_alike() -> None:
    gains = []
    for seed in range(1, 9):
        rng = np.random.default_rng(seed)
        common, rare = rng.lognormal(0, 0.8, (2, 3, 56))
        tokens = np.stack([common * rng.lognormal(0, 0.02, common.shape) for _ in range(9)] + [rare])
        grouped = make_problem(tokens, np.full(16, 4))
        shared, plain = (
            solve(replace(grouped, grouped=votes)).assignment.balancedness(rare).mean()
            for votes in (True, False)
        )
        gains.append(shared - plain)
    assert np.mean(gains) > 0.01
