"""What tokens reach, against a recount token by token; choices and places are checked."""

from __future__ import annotations

import numpy as np
import pytest

from placement.traffic.place import Places, in_domains
from placement.traffic.tokens import Tokens
from topology.base.errors import InputError


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
