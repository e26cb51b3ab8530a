"""Tokens, what they reach, and exchanges of experts: against a recount, and best on cases small enough to try all."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.arrays import Ints
from placement.traffic.exchange import Exchange, partition
from placement.traffic.place import Places, in_domains
from placement.traffic.tokens import Partition, Tokens
from topology.base.errors import InputError


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


@settings(max_examples=12)
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


def test_a_layer_that_does_not_fit_its_domains_stays_as_it_was() -> None:
    places = Places.of(np.array([2, 2]), np.arange(2))
    even, crowded = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])
    otherwise = np.array([[3, 2, 1, 0]] * 2, dtype=np.int32)
    found = in_domains([even, crowded], np.ones((1, 2, 4)), places, otherwise)
    assert sorted(found[0][:2]) == [0, 1]
    assert found[1].tolist() == [3, 2, 1, 0]


def test_many_domains_take_several_words_of_bits() -> None:
    tokens = Tokens.of([[0, 64, 128, 129]], 130)
    assert tokens.reach(np.arange(130), 130).tolist() == [4]
    assert tokens.reach(np.arange(130) % 64, 64).tolist() == [2]  # 0, 64 and 128; 129
    tokens = Tokens.of([[3, -1, 3], [-1, -1, -1], [0, 1, 2]], 4)  # missing, and chosen twice
    assert tokens.load.tolist() == [1, 1, 1, 1]
    assert tokens.reach(np.array([0, 0, 1, 1]), 2).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("choices", "experts", "says"),
    [
        ([[0, 5]], 4, "expert 5 is not one of the 4"),
        ([[0.5, 1]], 4, "float64"),
        ([[-1]], 4, "no token chose"),
        ([[0]], 0, "expected 1 to 4096"),
    ],
)
def test_choices_are_checked(choices: list[object], experts: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Tokens.of(np.array(choices), experts)
