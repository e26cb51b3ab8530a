"""Exchanges of experts: what each changes is exact, and what is found is best on cases small enough to try all."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.arrays import Ints
from placement.traffic.exchange import Exchange, partition
from placement.traffic.tokens import Partition, Tokens


def drawn(seed: int, experts: int, k: int, tokens: int = 60) -> Tokens:
    """Tokens of three topics, some with fewer experts than others."""
    rng = np.random.default_rng(seed)
    taste = rng.standard_normal((3, experts)) * 2
    score = taste[rng.integers(0, 3, tokens)] + rng.gumbel(size=(tokens, experts))
    choices = np.argsort(-score, axis=1)[:, :k]
    choices[: tokens // 10, -1] = -1
    return Tokens.of(choices, experts)


def free(tokens: Tokens, size: list[int], limit: float = np.inf) -> Partition:
    return Partition.of(
        tokens, np.array(size), tokens.load[None], np.full(len(size), min(limit, 1e6) / len(size))
    )


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(1, 5))
def test_every_change_is_what_a_recount_says(seed: int, parts: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = drawn(seed, 9, k)
    task = free(tokens, [9 // parts + (d < 9 % parts) for d in range(parts)], limit=1.1)
    search = Exchange(task, rng.permutation(task.in_order()))
    for _ in range(6):
        part = search.part[:-1].astype(np.int64)
        change = search.changes(np.arange(9), 0.5)
        before = task.reached(part) + 0.5 * task.excess(part)
        for one, two in rng.integers(0, 9, (4, 2)):
            after = part.copy()
            after[[one, two]] = part[[two, one]]
            if part[one] == part[two]:
                assert change[one, two] == np.inf
            else:
                expected = task.reached(after) + 0.5 * task.excess(after) - before
                assert change[one, two] == pytest.approx(expected, abs=1e-9)
        one, two = np.unravel_index(rng.permutation(np.flatnonzero(np.isfinite(change)))[0], change.shape)
        search.exchange(int(one), int(two))
        fresh = Exchange(task, search.part[:-1].astype(np.int64))
        assert search.reached == fresh.reached
        assert np.array_equal(search.count, fresh.count)
        assert np.array_equal(search.alone[:-1], fresh.alone[:-1])
        assert np.array_equal(search.first[:-1, :-1], fresh.first[:-1, :-1])


def all_parts(size: list[int]) -> Ints:
    """Every way to put experts into parts of these sizes."""
    row = np.repeat(np.arange(len(size)), size)
    return np.array(sorted(set(permutations(row.tolist()))))


@pytest.mark.wide
@pytest.mark.parametrize(("size", "k"), [([3, 2, 2], 3), ([3, 4], 2)])
def test_found_is_best_of_all_and_the_bound_below_it(size: list[int], k: int) -> None:
    for seed in (0, 1):
        tokens = drawn(seed, sum(size), k)
        task = free(tokens, size, limit=1.0 + 0.3 * seed)
        ways = all_parts(size)
        excess = np.array([task.excess(way) for way in ways])
        reached = np.array([task.reached(way) for way in ways])
        best = reached[excess <= excess.min() + 1e-9].min()
        part = partition(task, np.random.default_rng(seed), share=0.4)
        assert np.bincount(part).tolist() == size
        if excess.min() < 1e-9:
            assert task.excess(part) < 1e-9
            assert task.reached(part) == best
