"""How far choices are from independent: none where they are drawn so, exact where they can be listed."""

from __future__ import annotations

from itertools import combinations
from math import exp, factorial

import numpy as np
import pytest

from cost.experts.traces.routing import RoutingTrace
from cost.experts.traces.statistics import coactivation, independent_reach

TOKENS, EXPERTS, K = 4000, 24, 4
RNG = np.random.default_rng(2)


def trace_of(table: np.ndarray, *, repeated: bool = False) -> RoutingTrace:
    counts = np.array([np.bincount(layer.ravel(), minlength=EXPERTS) for layer in table])
    return RoutingTrace(table.astype(np.int16), counts, table.shape[1], "t", repeated)


def chosen(score: np.ndarray) -> np.ndarray:
    return np.argsort(-(score + RNG.gumbel(size=(TOKENS, EXPERTS))), axis=1)[:, :K]


def test_independent_choices_are_within_chance_however_popular_some_are() -> None:
    popular = RNG.standard_normal(EXPERTS)
    found = coactivation(trace_of(np.stack([chosen(popular), chosen(popular[::-1])])))
    assert found.within.beyond_chance_share < 0.02
    traced, alone = found.domains[4]
    assert traced == pytest.approx(alone, rel=0.02)


def test_topics_are_seen_within_a_layer() -> None:
    taste = 3 * RNG.standard_normal((4, EXPERTS))
    found = coactivation(trace_of(chosen(taste[RNG.integers(0, 4, TOKENS)])[None]))
    assert found.within.beyond_chance_share > 0.2


@pytest.mark.parametrize(("experts", "k", "parts"), [(6, 2, 2), (7, 3, 3), (5, 5, 2), (4, 1, 2)])
def test_independent_reach_is_that_of_all_sets(experts: int, k: int, parts: int) -> None:
    odds, part_of = RNG.lognormal(0, 0.5, experts), np.arange(experts) * parts // experts
    sets = list(combinations(range(experts), k))
    weight = np.array([np.prod(odds[list(one)]) for one in sets])
    weight /= weight.sum()
    used = [sum(w for w, one in zip(weight, sets, strict=True) if e in one) for e in range(experts)]
    reach = [
        sum(w for w, one in zip(weight, sets, strict=True) if part in part_of[list(one)])
        for part in range(parts)
    ]
    assert independent_reach(np.array([used]), part_of, k)[0] == pytest.approx(reach, abs=1e-6)


def test_what_chance_gives_is_the_mean_distance_of_poisson_counts() -> None:
    """Tokens of two of three experts, 6, 3 and 1 of each pair: every pair of pairs is counted in both orders."""
    table = np.repeat([[0, 1], [0, 2], [1, 2]], [6, 3, 1], axis=0)
    counts = np.array([np.bincount(table.ravel())])
    found = coactivation(RoutingTrace(table[None].astype(np.int16), counts, 10, "t")).within
    # experts are in 9, 7 and 4 pairs; as many pairs as there are, in proportion to the products
    products = np.array([9 * 7, 9 * 4, 7 * 4])
    means = products * 10 / products.sum()
    assert found.dependent_share == pytest.approx(np.abs(means - [6, 3, 1]).sum() / 20)
    chance = [
        sum(abs(times - mean) * exp(-mean) * mean**times / factorial(times) for times in range(80))
        for mean in means
    ]
    assert found.by_chance_share == pytest.approx(sum(chance) / 20)
