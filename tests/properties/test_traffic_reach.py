"""What tokens reach, against a recount token by token; choices and places are checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import script
from placement.traffic.parts import reach_of_tokens
from placement.traffic.places import Places
from placement.traffic.reach import held_in, reach, slot_share, used_domain
from placement.traffic.tokens import Tokens
from topology.base.errors import InputError

least_domains = script("benchmarks/domains_per_token.py").least_domains


def naive(choices: list[list[int]], slot_expert: list[int], places: Places) -> tuple[float, float, float]:
    """Domains, crossings and nodes per token, each token from every domain once, by the rule in words."""
    domains = crossings = nodes = 0
    for number, token in enumerate(choices):
        for source in range(places.domains):
            seen, machines = set(), set()
            for expert in token:
                slots = [j for j, held in enumerate(slot_expert) if held == expert]
                holders = sorted({int(places.slot_domain[j]) for j in slots})
                far = [d for d in range(places.domains) if d not in holders]
                home = source if source in holders else holders[far.index(source) % len(holders)]
                mine = [j for j in slots if places.slot_domain[j] == home]
                seen.add(home)
                machines.add(int(places.slot_node[mine[(number + source) % len(mine)]]))
            domains += len(seen)
            crossings += len(seen - {source})
            nodes += len(machines)
    times = len(choices) * places.domains
    return domains / times, crossings / times, nodes / times


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3), st.integers(0, 6))
def test_reach_is_what_a_recount_by_hand_says(seed: int, domains: int, gpus: int, spare: int) -> None:
    rng = np.random.default_rng(seed)
    experts, total = 8, domains * gpus
    slots = np.bincount(rng.integers(0, total, experts + spare), minlength=total)
    places = Places.of(slots, np.arange(total) // gpus, np.arange(total) * 2 // gpus)
    slot_expert = rng.permutation(np.concatenate((np.arange(experts), rng.integers(0, experts, spare))))
    choices = np.argsort(rng.random((5, experts)), axis=1)[:, :3]
    found = reach(Tokens.of(choices, experts), slot_expert.astype(np.int32), places)
    by_hand = naive(np.sort(choices, axis=1).tolist(), slot_expert.tolist(), places)
    assert (found.domains, found.crossings, found.nodes) == pytest.approx(by_hand)


def test_loads_follow_the_copies_that_are_used() -> None:
    # expert 0 in domains 0 and 1; far domains 2 and 3 take them in turn: half of its tokens each
    places = Places.of([2, 2, 1, 1], [0, 1, 2, 3])
    slot_expert = np.array([0, 1, 0, 2, 3, 4], dtype=np.int32)
    held = held_in(slot_expert, places, 5)
    assert used_domain(held > 0)[0].tolist() == [0, 1, 0, 1]
    share = slot_share(slot_expert, places, held, used_domain(held > 0))
    assert share.tolist() == [0.5, 1, 0.5, 1, 1, 1]
    load = np.array([[4.0, 1, 1, 1, 1]])
    found = reach(Tokens.of([[0, 1]], 5), slot_expert, places, load)
    assert found.gpu_load[0] == pytest.approx(np.array([3, 3, 1, 1]) / 2)


def test_loads_are_even_where_faster_gpus_take_more() -> None:
    places = Places.of([1, 1], [0, 1], speed=[3, 1])
    found = reach(Tokens.of([[0], [0], [0], [1]], 2), np.array([0, 1], dtype=np.int32), places)
    assert found.gpu_peak == pytest.approx(1.0)


def test_many_domains_take_several_words_of_bits() -> None:
    tokens = Tokens.of([[0, 64, 128, 129]], 130)
    assert reach_of_tokens(tokens, np.arange(130), 130).tolist() == [4]
    assert reach_of_tokens(tokens, np.arange(130) % 64, 64).tolist() == [2]  # 0, 64 and 128; 129


def test_a_missing_choice_counts_nowhere_and_a_repeated_one_once() -> None:
    tokens = Tokens.of([[3, -1, 3], [-1, -1, -1], [0, 1, 2]], 4)
    assert len(tokens) == 2
    assert tokens.load.tolist() == [1, 1, 1, 1]
    assert reach_of_tokens(tokens, np.array([0, 0, 1, 1]), 2).tolist() == [1, 2]


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([1, 1], [0, 1, 2]), "domains of 3"),
        (([1, 1], [0, 1], [0, 0]), "more than one domain"),
        (([0, 0], [0, 1]), "some above"),
        (([1, -1], [0, 1]), "from 0"),
        (([1, 1], [0, 1], None, [1, 0]), "above 0"),
    ],
)
def test_places_are_checked(arguments: tuple[list[int], ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Places.of(*arguments)


def test_bound_of_experts_that_are_always_together_is_reached() -> None:
    tokens = Tokens.of([[0, 1], [2, 3]] * 10, 4)
    assert least_domains(tokens, 2) == 1.0
    assert least_domains(tokens, 1) == 2.0
