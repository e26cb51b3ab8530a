"""Which slots can be filled with copies spread evenly: against all ways, and at size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placement.experts.failure_domains import can_spread, require_apart, spread_row
from placement.experts.problem import Problem
from tiny_cases import MOST_WAYS, ways_to_fill
from topology.base.errors import InfeasibleError


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
