"""Layers placed by their tokens: exact slots, limits, names that decide nothing, no structure that costs nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.traffic.grouping import Work
from placement.traffic.groups import whole_groups
from placement.traffic.place import front, place
from placement.traffic.places import Places
from placement.traffic.reach import reach
from placement.traffic.spare import copies_for_traffic, shares_of
from placement.traffic.task import Rates, TrafficTask
from placement.traffic.tokens import Tokens
from topology.base.errors import InputError

QUICK = Work(0.05)


def topical(
    seed: int = 0, experts: int = 24, k: int = 4, tokens: int = 1500, strength: float = 3.0
) -> Tokens:
    """Tokens of six topics; without strength they choose independently."""
    rng = np.random.default_rng(seed)
    own = np.argsort(rng.random(experts)) % 6 == np.arange(6)[:, None]
    taste = own * strength + rng.standard_normal(experts) * 0.3
    score = taste[rng.integers(0, 6, tokens)] + rng.gumbel(size=(tokens, experts))
    return Tokens.of(np.argsort(-score, axis=1)[:, :k], experts)


def two_per_node(domains: int, nodes: int, slots: int) -> Places:
    """Domains of ``nodes`` nodes of two GPUs."""
    gpus = domains * nodes * 2
    return Places.of(
        shares_of(np.ones(gpus, dtype=np.int64), slots), np.arange(gpus) // (nodes * 2), np.arange(gpus) // 2
    )


def legal(slot_expert: np.ndarray, places: Places, experts: int) -> bool:
    """Whether every expert has a slot, and no GPU one expert twice."""
    pairs = set(zip(places.slot_gpu.tolist(), slot_expert.tolist(), strict=True))
    return len(pairs) == places.slots and set(slot_expert.tolist()) == set(range(experts))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 3), st.integers(0, 9))
def test_slots_are_exact_and_the_reach_is_of_them(seed: int, domains: int, nodes: int, spare: int) -> None:
    tokens = topical(seed, tokens=200)
    places = two_per_node(domains, nodes, 24 + spare)
    load = np.random.default_rng(seed).lognormal(0, 0.5, (2, 24))
    task = TrafficTask(tokens, places, load)
    found = place(task, work=QUICK)
    assert legal(found.slot_expert, places, 24)
    again = reach(tokens, found.slot_expert, places, task.loads)
    assert (again.domains, again.nodes, again.crossings) == pytest.approx(
        (found.reach.domains, found.reach.nodes, found.reach.crossings)
    )
    assert again.gpu_peak == pytest.approx(found.reach.gpu_peak)
    if found.reason:
        assert found.reach is found.balanced


def test_topics_are_kept_together_under_the_limit_and_hold_on_other_tokens() -> None:
    tokens = topical(tokens=4000)
    train, test = tokens.rows(slice(0, 2000)), tokens.rows(slice(2000, None))
    places = two_per_node(4, 1, 24)
    found = place(TrafficTask(train, places, slack=0.1), work=QUICK)
    assert not found.reason
    assert found.held
    assert found.reach.domain_peak <= 1.1
    assert found.reach.domains < 0.75 * found.balanced.domains
    assert reach(test, found.slot_expert, places).domains == pytest.approx(found.reach.domains, rel=0.05)


def test_a_front_trades_balance_for_domains() -> None:
    tokens = topical(7)
    points = front(TrafficTask(tokens, two_per_node(4, 1, 24)), (0.0, 0.05, 0.3, np.inf), work=QUICK)
    reached = [point.reach.crossings for point in points]
    assert reached == sorted(reached, reverse=True)
    assert [point.limit.domain for point in points[:3]] == [1.0, 1.05, 1.3]
    assert points[1].held
    assert reached[-1] < reached[0]


def test_every_scenario_keeps_the_limit() -> None:
    tokens = topical(9)
    load = np.random.default_rng(0).lognormal(0, 0.4, (3, 24))
    found = place(TrafficTask(tokens, two_per_node(3, 1, 24), load, slack=0.15), work=QUICK)
    assert not found.reason
    assert found.reach.domain_load.shape == (3, 3)
    assert found.held


def test_spare_copies_save_crossings_and_never_lie_twice_on_a_gpu() -> None:
    tokens, places = topical(4), two_per_node(2, 2, 32)
    alone = place(TrafficTask(tokens, two_per_node(2, 2, 24)), work=QUICK)
    cheap = place(TrafficTask(tokens, places, rates=Rates(0.0, 1.0)), work=QUICK)
    assert legal(cheap.slot_expert, places, 24)
    assert cheap.reach.crossings < alone.reach.crossings - 0.1


def test_a_copy_saves_what_it_was_said_to() -> None:
    """Two experts always together, in two domains: a copy of either saves one crossing of two."""
    tokens = Tokens.of([[0, 1]] * 50 + [[2, 3]] * 50, 4)
    held = np.array([[1, 0], [0, 1], [1, 0], [1, 0]])
    load, limit = tokens.load[None] / 200, np.array([0.8, 0.8])
    found = copies_for_traffic(tokens, held, np.array([0, 1]), load, limit, most=1, own=0.0)
    assert found.sum() == 5
    assert found[0, 1] == 1  # tokens from domain 1 need domain 0 no more
    tight = copies_for_traffic(tokens, held, np.array([0, 1]), load, np.array([0.8, 0.2]), most=1, own=0.0)
    assert tight.sum() == 4  # its load would be too much there


def drawn_tokens(load: np.ndarray, k: int, groups: int, chosen: int, number: int) -> Tokens:
    """Tokens that choose ``k`` experts of the best ``chosen`` of ``groups`` groups (DeepSeek-V3 report, 2.1.2)."""
    rng = np.random.default_rng(0)
    score = np.log(load) + rng.gumbel(size=(number, load.size))
    two = np.sort(score.reshape(number, groups, -1), axis=2)[:, :, -2:].sum(axis=2)
    keep = np.zeros((number, groups), dtype=bool)
    np.put_along_axis(keep, np.argsort(-two, axis=1)[:, :chosen], values=True, axis=1)
    score = np.where(np.repeat(keep, load.size // groups, axis=1), score, -np.inf)
    return Tokens.of(np.argsort(-score, axis=1)[:, :k], load.size)


def test_group_limited_tokens_keep_to_their_groups() -> None:
    load = np.random.default_rng(0).lognormal(0, 0.5, 32)
    tokens = drawn_tokens(load, 4, 8, 2, number=500)
    assert tokens.k == 4
    assert max(len(set(row)) for row in (tokens.choices // 4).tolist()) == 2
    part = whole_groups(load, 8, 4)
    assert part is not None
    assert len(set(part.reshape(8, 4)[:, 0].tolist())) == 4
    assert (part.reshape(8, 4) == part.reshape(8, 4)[:, :1]).all()
    assert whole_groups(load, 8, 3) is None
    task = TrafficTask(tokens, two_per_node(4, 1, 32), slack=np.inf, groups=8)
    assert (
        place(task, work=QUICK).reach.domains
        <= reach(tokens, np.argsort(part, kind="stable").astype(np.int32), task.places).domains
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"slack": -0.1}, "balance slack -0.1"),
        ({"places": Places.of([12, 11], [0, 1])}, "23 slots for 24 experts"),
        ({"groups": 5}, "5 groups of 24"),
        ({"load": np.full((1, 24), np.nan)}, "finite"),
    ],
)
def test_tasks_are_checked(change: dict[str, object], says: str) -> None:
    task = TrafficTask(topical(), two_per_node(2, 1, 24))
    with pytest.raises(InputError, match=says):
        replace(task, **change)
