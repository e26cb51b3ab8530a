"""How many GPUs and domains hold the experts of a token: against every choice of groups and of experts."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import Routing, TokenHits, expert_use, hit_chance, limited_hits
from topology.base.errors import InputError

SMALL = Routing(12, 3, 4, 2)


def hits_of(
    rows: np.ndarray, routing: Routing, domains: np.ndarray, load: np.ndarray | None = None
) -> TokenHits:
    """What is reached under ``rows`` ``[layers, slots]``, equally many slots on each GPU, each of which is a node."""
    gpus = len(domains)
    load = np.ones((1, len(rows), routing.experts)) if load is None else load
    each = np.repeat(np.arange(gpus), rows.shape[1] // gpus).astype(np.int32)
    assignment = Assignment(rows.astype(np.int32), each, routing.experts, gpus)
    names = tuple(f"load {i}" for i in range(len(load)))
    use = expert_use(assignment, ExpertLoads(load, names, synthetic=False), routing.top_k)
    limit = routing.groups, routing.topk_groups
    found = limited_hits(
        assignment, use.slot_share, load, routing.top_k, limit, nodes=np.arange(gpus), domains=domains
    )
    assert found is not None
    return found


def over_choices(where: np.ndarray, routing: Routing) -> np.ndarray:
    """Chance of each place by counting: ``where`` ``[experts]``, every choice of groups, every set of experts."""
    size = routing.experts // routing.groups
    reached = np.zeros(where.max() + 1)
    for groups in combinations(range(routing.groups), routing.topk_groups):
        able = [expert for group in groups for expert in range(group * size, (group + 1) * size)]
        for chosen in combinations(able, routing.top_k):
            reached[list({int(where[expert]) for expert in chosen})] += 1
    ways = comb(routing.groups, routing.topk_groups) * comb(routing.topk_groups * size, routing.top_k)
    return reached / ways


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_experts_anywhere_are_reached_as_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(12)[None]
    domains = np.array([0, 0, 1, 1, 1, 2])
    found = hits_of(rows, SMALL, domains)
    gpu = np.empty(12, dtype=int)
    gpu[rows[0]] = np.repeat(np.arange(6), 2)
    np.testing.assert_allclose(found.gpus[0, 0, 0], over_choices(gpu, SMALL), atol=1e-12)
    np.testing.assert_allclose(found.domains[0, 0, 0], over_choices(domains[gpu], SMALL), atol=1e-12)
    # GPU i is now what GPU order[i] was
    order = rng.permutation(6)
    moved = rows.reshape(6, 2)[order].reshape(1, -1)
    again = hits_of(moved, SMALL, domains[order])
    np.testing.assert_allclose(again.gpus[0, 0, 0], found.gpus[0, 0, 0, order], atol=1e-12)
    np.testing.assert_allclose(again.domains, found.domains, atol=1e-12)
    # a group is as good as another, and so is an expert in its group
    name = (rng.permutation(4)[:, None] * 3 + np.argsort(rng.random((4, 3)), axis=1)).ravel()
    renamed = hits_of(name[rows], SMALL, domains)
    np.testing.assert_allclose(renamed.gpus, found.gpus, atol=1e-12)


def test_busy_experts_are_reached_about_as_often_as_tokens_drawn_one_by_one() -> None:
    rng = np.random.default_rng(4)
    routing, domains = Routing(32, 4, 8, 4), np.repeat(np.arange(4), 2)
    load = np.exp(rng.normal(0, 0.4, 32))
    rows = np.concatenate([rng.permutation(32), np.argsort(-load)[:8]]).reshape(1, 40)
    rows = rows.reshape(5, 8).T.reshape(1, 40)  # five slots on each GPU, one of them of a copy
    # tokens: groups alike, then experts among theirs in proportion to load
    number = 20_000
    keep = np.argsort(rng.random((number, 8)), axis=1)[:, :4]
    mask = np.full((number, 8), -np.inf)
    np.put_along_axis(mask, keep, 0.0, axis=1)
    score = np.log(load) + rng.gumbel(size=(number, 32)) + np.repeat(mask, 4, axis=1)
    chosen = np.argpartition(-score, 3, axis=1)[:, :4]
    drawn = np.bincount(chosen.ravel(), minlength=32) / number
    copies = np.bincount(rows[0], minlength=32)
    gpu = np.repeat(np.arange(8), 5)
    part = np.zeros((32, 4))  # of an expert's tokens that go to each domain
    np.add.at(part, (rows[0], domains[gpu]), 1 / copies[rows[0]])
    missed = np.prod(1 - part[chosen], axis=1).mean(axis=0)
    found = hits_of(rows, routing, domains, drawn[None, None])
    np.testing.assert_allclose(found.domains[0, 0, 0], 1 - missed, rtol=0.03)


def test_without_a_limit_there_is_nothing_to_say() -> None:
    rows, each = np.arange(8, dtype=np.int32)[None], np.arange(8, dtype=np.int32)
    assignment, load = Assignment(rows, each, 8, 8), np.ones((1, 1, 8))
    use = expert_use(assignment, ExpertLoads(load, ("even",), synthetic=False), 2)
    where = np.arange(8)
    assert limited_hits(assignment, use.slot_share, load, 2, (0, 0), nodes=where, domains=where) is None


DEEPSEEK = Routing(256, 8, 8, 4)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize(("groups", "topk_groups"), [(0, 0), (3, 1), (3, 2), (4, 2), (4, 3), (6, 2)])
@pytest.mark.parametrize(
    ("part_gpus", "ep"), [(1, 12), (1, 6), (1, 4), (2, 12), (3, 6), (3, 12), (4, 12), (2, 4)]
)
def test_chance_against_all_choices(
    top_k: int, groups: int, topk_groups: int, part_gpus: int, ep: int
) -> None:
    # parts of 1 to 6 experts against groups of 2 to 4: some inside a group, some across, some over several
    if not groups or top_k <= topk_groups * 12 // groups:
        where = np.arange(12) * ep // 12 // part_gpus
        chance = over_choices(where, Routing(12, top_k, groups or 1, topk_groups or 1)).mean()
        assert hit_chance(Routing(12, top_k, groups, topk_groups), part_gpus, ep) == pytest.approx(chance)


@pytest.mark.parametrize(("nodes", "distinct"), [(4, 2.93), (8, 3.63), (9, 4.49), (18, 5.78)])
def test_distinct_nodes_under_the_group_limit(nodes, distinct):
    # 9 and 18 nodes cut groups apart: a token reaches more of them than of 8
    assert nodes * hit_chance(DEEPSEEK, 8, 8 * nodes) == pytest.approx(distinct, abs=0.005)


def test_random_tokens_agree_where_experts_do_not_divide():
    # 72 GPUs of 256 experts: GPU 0 holds experts 0, 1, 2 and five ninths of expert 3 (copies share the rest)
    rng = np.random.default_rng(3)
    chosen = rng.permuted(np.tile(np.arange(256), (20_000, 1)), axis=1)[:, :8]
    edges = np.arange(73) * 256 / 72
    position = chosen + rng.random(chosen.shape)
    gpus = [len(set(row)) for row in np.searchsorted(edges, position, side="right")]
    assert 72 * hit_chance(Routing(256, 8), 1, 72) == pytest.approx(np.mean(gpus), rel=2e-3)


def test_a_perfect_router_uses_as_many_gpus_as_it_can():
    routing = Routing(256, 8, spread=True)
    assert (np.array([4, 8, 64]) * hit_chance(routing, 1, [4, 8, 64])).tolist() == [4, 8, 8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 9), "top_k 9"),
        ((8, 0), "top_k 0"),
        ((8, 2, 4, 0), "give both"),
        ((8, 2, 4, 5), "cannot be chosen"),
        ((8, 2, 3, 2), "cannot be chosen"),
        ((8, 5, 4, 2), "cannot be chosen"),
    ],
)
def test_impossible_routing_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Routing(*arguments)
