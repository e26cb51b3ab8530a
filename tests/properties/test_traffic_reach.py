"""What tokens reach, against a recount token by token; choices and places are checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import script
from placement.traffic.place import Places, first_copies, in_domains, used_domain
from placement.traffic.tokens import Tokens
from topology.base.errors import InputError

_BENCHMARK = script("benchmarks/domains_per_token.py")
least_domains, reach, peak = _BENCHMARK.least_domains, _BENCHMARK.reach, _BENCHMARK.peak


def naive(choices: list[list[int]], held: np.ndarray) -> tuple[float, float]:
    """Domains and crossings per token, each token from every domain once, by the rule in words."""
    domains = crossings = 0
    for token in choices:
        for source in range(held.shape[1]):
            seen = set()
            for expert in token:
                holders = np.flatnonzero(held[expert]).tolist()
                far = [d for d in range(held.shape[1]) if d not in holders]
                seen.add(source if source in holders else holders[far.index(source) % len(holders)])
            domains += len(seen)
            crossings += len(seen - {source})
    times = len(choices) * held.shape[1]
    return domains / times, crossings / times


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_reach_is_what_a_recount_by_hand_says(seed: int, domains: int) -> None:
    rng = np.random.default_rng(seed)
    held = rng.random((8, domains)) < 0.4
    held[np.arange(8), rng.integers(0, domains, 8)] = True
    choices = np.argsort(rng.random((5, 8)), axis=1)[:, :3]
    assert reach(Tokens.of(choices, 8), held) == pytest.approx(naive(np.sort(choices, axis=1).tolist(), held))


def test_loads_follow_the_copies_that_are_used() -> None:
    # expert 0 in domains 0 and 1; far domains 2 and 3 take them in turn: half of its tokens each
    held = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=bool)
    assert used_domain(held)[0].tolist() == [0, 1, 0, 1]
    places = Places.of(np.array([2, 2, 1, 1]), np.arange(4))
    tokens = Tokens.of([[0]] * 4 + [[1], [2], [3], [4]], 5)
    assert peak(tokens, held, places) == pytest.approx(3 / 2)


def test_loads_are_even_where_faster_gpus_take_more() -> None:
    places = Places.of(np.array([1, 1]), np.arange(2), np.array([3.0, 1.0]))
    assert peak(Tokens.of([[0], [0], [0], [1]], 2), first_copies(np.arange(2), 2), places) == pytest.approx(
        1.0
    )


def test_a_layer_that_does_not_fit_its_domains_stays_as_it_was() -> None:
    places = Places.of(np.array([2, 2]), np.arange(2))
    even, crowded = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])
    otherwise = np.array([[3, 2, 1, 0]] * 2, dtype=np.int32)
    held = [first_copies(even, 2), first_copies(crowded, 2)]
    found = in_domains(held, np.ones((1, 2, 4)), places, otherwise)
    assert sorted(found[0][:2]) == [0, 1]
    assert found[1].tolist() == [3, 2, 1, 0]


def test_many_domains_take_several_words_of_bits() -> None:
    tokens = Tokens.of([[0, 64, 128, 129]], 130)
    assert tokens.reach(np.arange(130), 130).tolist() == [4]
    assert tokens.reach(np.arange(130) % 64, 64).tolist() == [2]  # 0, 64 and 128; 129


def test_a_missing_choice_counts_nowhere_and_a_repeated_one_once() -> None:
    tokens = Tokens.of([[3, -1, 3], [-1, -1, -1], [0, 1, 2]], 4)
    assert len(tokens) == 2
    assert tokens.load.tolist() == [1, 1, 1, 1]
    assert tokens.reach(np.array([0, 0, 1, 1]), 2).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("choices", "experts", "says"),
    [
        ([[0, 5]], 4, "expert 5 is not one of the 4"),
        ([[0, -2]], 4, "expert -2"),
        ([0, 1], 4, "[2]"),
        ([[0.5, 1]], 4, "float64"),
        ([[-1]], 4, "no token chose"),
        ([[0]], 0, "expected 1 to 4096"),
    ],
)
def test_choices_are_checked(choices: list[object], experts: int, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("[", r"\[").replace("]", r"\]")):
        Tokens.of(np.array(choices), experts)


def test_bound_of_experts_that_are_always_together_is_reached() -> None:
    tokens = Tokens.of([[0, 1], [2, 3]] * 10, 4)
    assert least_domains(tokens, 2) == 1.0
    assert least_domains(tokens, 1) == 2.0
