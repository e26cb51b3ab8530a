"""Layers placed by their tokens: exact slots, limits of loads, and what holds on other tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.traffic.place import (
    Places,
    domains_by_tokens,
    in_domains,
    shares_of,
    whole_groups,
)
from placement.traffic.tokens import Tokens


def topical(
    seed: int = 0, experts: int = 24, k: int = 4, tokens: int = 1500, strength: float = 3.0
) -> Tokens:
    """Tokens of six topics; without strength they choose independently."""
    rng = np.random.default_rng(seed)
    own = np.argsort(rng.random(experts)) % 6 == np.arange(6)[:, None]
    taste = own * strength + rng.standard_normal(experts) * 0.3
    score = taste[rng.integers(0, 6, tokens)] + rng.gumbel(size=(tokens, experts))
    return Tokens.of(np.argsort(-score, axis=1)[:, :k], experts)


def domains_of(domains: int, gpus: int, slots: int) -> Places:
    """Domains of ``gpus`` GPUs."""
    total = domains * gpus
    return Places.of(shares_of(np.ones(total, dtype=np.int64), slots), np.arange(total) // gpus)


def peaks(load: np.ndarray, part: np.ndarray, domains: int) -> np.ndarray:
    """Largest load of a domain over the mean, of each scenario."""
    found = np.stack([np.bincount(part, row, domains) for row in load])
    return found.max(axis=1) / found.mean(axis=1)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(2, 4), st.integers(0, 9))
def test_slots_are_exact(seed: int, domains: int, gpus: int, spare: int) -> None:
    tokens, places = topical(seed, tokens=200), domains_of(domains, gpus, 24 + spare)
    load = np.random.default_rng(seed).lognormal(0, 0.5, (2, 24))
    part = domains_by_tokens(tokens, places, load, share=0.05)
    assert np.bincount(part, minlength=domains).tolist() == shares_of(places.domain_slots, 24).tolist()
    empty = np.full((1, 24 + spare), -1, dtype=np.int32)
    (row,) = in_domains([part], load[:, None], places, empty)
    for domain in range(domains):
        assert set(row[places.slot_domain == domain].tolist()) == set(np.flatnonzero(part == domain).tolist())
    gpu = np.repeat(np.arange(domains * gpus), places.slots_per_gpu)
    assert len(set(zip(gpu.tolist(), row.tolist(), strict=True))) == row.size


def test_topics_are_kept_together_under_the_limit_and_hold_on_other_tokens() -> None:
    tokens = topical(tokens=4000)
    train, test = tokens.rows(slice(0, 2000)), tokens.rows(slice(2000, None))
    part = domains_by_tokens(train, domains_of(4, 2, 24), train.load[None], slack=0.1, share=0.05)
    assert peaks(train.load[None], part, 4)[0] <= 1.1
    reached = train.reach(part, 4).mean()
    assert reached < 0.75 * train.reach(np.arange(24) % 4, 4).mean()
    assert test.reach(part, 4).mean() == pytest.approx(reached, rel=0.05)


def test_less_balance_buys_fewer_domains() -> None:
    tokens = topical(7)
    places = domains_of(4, 2, 24)
    tight, loose = (
        domains_by_tokens(tokens, places, tokens.load[None], slack=slack, share=0.05) for slack in (0.0, 1e6)
    )
    assert tokens.reach(loose, 4).sum() < tokens.reach(tight, 4).sum()
    assert peaks(tokens.load[None], tight, 4) < peaks(tokens.load[None], loose, 4)


def test_every_scenario_keeps_the_limit() -> None:
    load = np.random.default_rng(0).lognormal(0, 0.4, (3, 24))
    part = domains_by_tokens(topical(9), domains_of(3, 2, 24), load, slack=0.15, share=0.05)
    assert (peaks(load, part, 3) <= 1.15).all()


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
    assert len(set(part.reshape(8, 4)[:, 0].tolist())) == 4
    assert (part.reshape(8, 4) == part.reshape(8, 4)[:, :1]).all()
    assert whole_groups(load, 8, 3) is None
    found = domains_by_tokens(tokens, domains_of(4, 2, 32), load[None], slack=1e6, groups=8, share=0.05)
    assert tokens.reach(found, 4).sum() <= tokens.reach(part, 4).sum()
