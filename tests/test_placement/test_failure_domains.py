"""Failure domains: what is in which, what a legal row is, and which copies cannot be in different ones."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.experts.failure_domains import require_apart, stage_domains
from placement.experts.problem import Problem
from placement.verify import verify_experts
from topology import resolve_cluster
from topology.base.errors import InfeasibleError

SETTING = Deployment(resolve_cluster("gb200-nvl72@144"), resolve_model("gpt-oss-20b"), Workload(batch=1))


def test_places_in_one_domain_of_some_replica_are_in_one() -> None:
    # the second replica begins in the middle of a node: places 0, 1 | 2, 3, 4, 5 | 6, 7
    found = stage_domains(SETTING, [range(8), range(10, 18)], "node")
    assert found is not None
    assert set(found.tolist()) == {0}
    apart = stage_domains(SETTING, [[0, 4, 8, 12], [16, 17, 20, 24]], "node")
    assert apart is not None
    assert [bool(apart[a] == apart[b]) for a, b in ((0, 1), (0, 2), (1, 2), (2, 3))] == [
        True,
        False,
        False,
        False,
    ]


SLOTS = [
    (1, 1, 1),
    (2, 1, 0),
    (2, 2, 0),
    (2, 2, 1),
    (3, 1, 1),
    (2, 2, 2),
    (3, 3, 1),
    (3, 3, 2),
    (3, 2, 1),
    (3, 3, 3),
]


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("slots", SLOTS)
def test_what_cannot_be_spread_is_refused_and_nothing_else(slots: tuple[int, ...], once: bool) -> None:
    """Against all ways of filling the slots of three GPUs, the first two in one domain, with three experts."""
    experts, domains = 3, np.array([0, 0, 1])
    where, gpu = np.repeat(domains, slots), np.repeat(np.arange(3), slots)
    used = 2 if slots[2] else 1

    def fine(row: tuple[int, ...]) -> bool:
        if set(row) != set(range(experts)) or len({*zip(row, gpu.tolist(), strict=True)}) < len(row):
            return False
        there = Counter(zip(row, where.tolist(), strict=True))
        if once or used == 1:
            return max(there.values()) == 1
        return all(count <= np.ceil(row.count(expert) / used) for (expert, _), count in there.items())

    if any(fine(row) for row in product(range(experts), repeat=sum(slots))):
        require_apart(experts, np.array(slots), domains, once=once)
    else:
        words = (
            f"at most `redundant` {3 * (used - 1)} goes" if once or used == 1 else "one of 2 failure domains"
        )
        with pytest.raises(InfeasibleError, match=words):
            require_apart(experts, np.array(slots), domains, once=once)


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
