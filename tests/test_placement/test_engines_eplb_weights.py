"""Loads under which EPLB makes a placement: against EPLB as its paper says it, slot by slot."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engines.eplb_weights import copies_of, eplb_places, weights_for


def eplb(loads: list[int], slots: int, ranks: int) -> list[list[int]]:
    """Copy the most loaded, give the heaviest copy to the least busy rank that has room: exact numbers."""
    copies = [1] * len(loads)
    held = list(range(len(loads)))
    for _ in range(slots - len(loads)):
        shares = [Fraction(load, count) for load, count in zip(loads, copies, strict=True)]
        held.append(shares.index(max(shares)))
        copies[held[-1]] += 1
    placed: list[list[int]] = [[] for _ in range(ranks)]
    busy = [Fraction(0)] * ranks
    for expert in sorted(held, key=lambda one: -Fraction(loads[one], copies[one])):
        rank = min((r for r in range(ranks) if len(placed[r]) < slots // ranks), key=lambda r: (busy[r], r))
        placed[rank].append(expert)
        busy[rank] += Fraction(loads[expert], copies[expert])
    return placed


@st.composite
def placements(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Each expert somewhere, none twice on a rank, room for a few copies."""
    ranks, each = draw(st.integers(2, 6)), draw(st.integers(2, 6))
    experts = draw(st.integers(max(each, ranks * each - 2 * ranks), ranks * each))
    order = draw(st.permutations(range(experts)))
    held: list[list[int]] = [list(order[rank::ranks]) for rank in range(ranks)]
    for row in held:
        others = draw(st.permutations([expert for expert in range(experts) if expert not in row]))
        row.extend(others[: each - len(row)])
    return np.array(held), experts


@settings(deadline=None, max_examples=150)
@given(case=placements())
def test_eplb_puts_together_what_the_placement_has_together(case: tuple[np.ndarray, int]) -> None:
    held, experts = case
    ranks, each = held.shape
    found = weights_for(held, experts)
    if found is None:
        assert held.size > experts or each < 2  # one copy of each: always
        return
    theirs = [sorted(row) for row in eplb(found.tolist(), held.size, ranks)]
    assert sorted(theirs) == sorted(map(sorted, held.tolist()))
    assert theirs == np.sort(eplb_places(found.astype(float), held.size, ranks).reshape(held.shape)).tolist()
    assert copies_of(found).tolist() == np.bincount(held.reshape(-1), minlength=experts).tolist()


def test_the_ranks_keep_their_order_where_slots_are_many() -> None:
    random = np.random.default_rng(3)
    for _ in range(5):
        order = random.permutation(64)
        held = np.concatenate([order.reshape(8, 8), order[:8].reshape(8, 1)[::-1]], axis=1)
        if any(len(set(row)) < 9 for row in held.tolist()):
            continue
        found = weights_for(held, 64)
        assert found is not None
        placed = eplb_places(found.astype(float), 72, 8).reshape(held.shape)
        assert np.array_equal(np.sort(placed, axis=1), np.sort(held, axis=1))


def test_copies_that_no_rounds_keep_apart() -> None:
    every = np.array(
        [[0, 1], [1, 2], [2, 0]]
    )  # three experts of two copies each, one in two of them at each GPU
    assert weights_for(every, 3) is None
    assert weights_for(np.array([[0], [1]]), 2) is None
