"""How loads split over copies, which GPUs and domains tokens reach, skew and drift: by enumeration, LPs, by hand."""

from __future__ import annotations

import itertools
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from cost.experts.assignment import Assignment
from cost.experts.best_split import lp_shares
from cost.experts.dispatch import rank_shares, slot_shares
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import Routing, TokenHits, balanced_use, expert_use, hit_chance, limited_hits
from cost.experts.traces.statistics import chance_distance, distance, load_statistics
from topology.base.errors import InputError


def drawn(seed: int, *, layers: int = 2, experts: int = 6, gpus: int = 4, slots: int = 3) -> Assignment:
    """Every expert somewhere, the rest of the slots at random; a GPU may hold an expert twice."""
    rng = np.random.default_rng(seed)
    more = rng.integers(experts, size=(layers, gpus * slots - experts))
    rows = [rng.permutation([*range(experts), *extra]) for extra in more]
    slot_gpu = np.repeat(np.arange(gpus, dtype=np.int32), slots)
    return Assignment(np.array(rows, dtype=np.int32), slot_gpu, experts, gpus)


def by_loops(assignment: Assignment, nodes: np.ndarray) -> np.ndarray:
    """Each rank asks for one copy of each expert in turn."""
    ranks = np.zeros(assignment.slot_expert.shape)
    for layer, row in enumerate(assignment.slot_expert.tolist()):
        for expert in range(assignment.experts):
            copies = [slot for slot, held in enumerate(row) if held == expert]
            turn = 0
            for rank in range(assignment.gpus):
                own = [slot for slot in copies if assignment.slot_gpu[slot] == rank]
                near = [slot for slot in copies if nodes[assignment.slot_gpu[slot]] == nodes[rank]]
                if own:
                    slot = own[0]
                elif 0 < len(near) < len(copies):
                    slot = near[0]
                else:
                    slot = copies[turn % len(copies)]
                    turn += 1
                ranks[layer, slot] += 1
    return ranks / assignment.gpus


def lp_by_highs(row: np.ndarray, slot_gpu: np.ndarray, load: np.ndarray, speed: np.ndarray) -> float:
    slots, gpus = row.size, speed.size
    held = np.zeros((gpus, slots + 1))
    held[slot_gpu, np.arange(slots)] = 1
    held[:, -1] = -speed
    whole = np.zeros((load.size, slots + 1))
    whole[row, np.arange(slots)] = 1
    cost = np.zeros(slots + 1)
    cost[-1] = 1
    return float(linprog(cost, A_ub=held, b_ub=np.zeros(gpus), A_eq=whole, b_eq=load).fun)


@given(seed=st.integers(0, 10**6), per_node=st.sampled_from([1, 2, 3, 4]), gpus=st.integers(1, 6))
@settings(max_examples=30)
def test_source_shares_are_those_of_the_ranks_one_by_one(seed, per_node, gpus):
    assignment = drawn(seed, experts=5, gpus=gpus, slots=5)
    nodes = np.arange(gpus) // per_node
    assert slot_shares(assignment, "source", nodes=nodes) == pytest.approx(
        by_loops(assignment, nodes), abs=1e-15
    )


@given(seed=st.integers(0, 10**6), tp=st.sampled_from([1, 2, 4, 8]), groups=st.integers(1, 3))
@settings(max_examples=30)
def test_rank_shares_are_those_of_the_ranks_one_by_one(seed, tp, groups):
    gpus = tp * groups
    assignment = drawn(seed, experts=5, gpus=gpus, slots=5)
    ranks = np.zeros(assignment.slot_expert.shape)
    for layer, row in enumerate(assignment.slot_expert.tolist()):
        for rank in range(gpus):
            for expert in range(5):
                copies = [slot for slot, held in enumerate(row) if held == expert]
                wanted = rank if tp == 1 else rank % tp + rank // tp + expert
                ranks[layer, copies[wanted % len(copies)]] += 1
    assert rank_shares(assignment, tp) == pytest.approx(ranks / gpus, abs=1e-15)


@given(seed=st.integers(0, 10**6), gpus=st.integers(1, 5), slots=st.integers(2, 4), fast=st.booleans())
@settings(max_examples=12)
def test_lp_is_that_of_highs(seed, gpus, slots, fast):
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(1, gpus * slots + 1))
    assignment = drawn(seed, layers=1, experts=experts, gpus=gpus, slots=slots)
    load = rng.lognormal(0, 1.5, (1, experts)) * (rng.random((1, experts)) > 0.2)
    load[0, 0] += 1.0
    speed = rng.uniform(0.5, 2, gpus) if fast else np.ones(gpus)
    best = lp_by_highs(assignment.slot_expert[0], assignment.slot_gpu, load[0], speed)
    shares, level = lp_shares(assignment, load, speed)
    assert level[0] == pytest.approx(best, rel=1e-7)
    reached = (assignment.gpu_load(load, shares) / speed).max(axis=1)
    assert reached[0] == pytest.approx(best, rel=1e-6)
    assert shares.min() >= 0
    assert np.bincount(assignment.slot_expert[0], shares[0]) == pytest.approx(np.ones(experts))


def loads(*scenarios):
    return ExpertLoads(
        np.array(scenarios, dtype=float), tuple(map(str, range(len(scenarios)))), synthetic=False
    )


def linear(layers, experts, gpus):
    slot_gpu = np.sort(np.arange(experts) % gpus).astype(np.int32)
    return Assignment(np.tile(np.arange(experts, dtype=np.int32), (layers, 1)), slot_gpu, experts, gpus)


def test_touched_slots_by_enumeration():
    # Every choice of 2 of 4 experts by 2 tokens, 3 and 1 experts on 2 GPUs.
    owner = np.array([0, 0, 0, 1], dtype=np.int32)
    use = expert_use(Assignment(np.arange(4, dtype=np.int32)[None], owner, 4, 2), loads(np.ones((1, 4))), 2)
    choices = list(itertools.combinations(range(4), 2))
    touched = np.zeros(2)
    for first, second in itertools.product(choices, repeat=2):
        for expert in {*first, *second}:
            touched[owner[expert]] += 1 / len(choices) ** 2
    assert use.touched_slots(2)[0, 0] == pytest.approx(touched)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 5))
def test_balanced_use_is_that_of_equal_loads(gpus, slots, layers):
    experts = gpus * slots
    top_k = min(2, experts)
    ideal = balanced_use(layers, np.full(gpus, slots), experts, top_k)
    real = expert_use(linear(1, experts, gpus), loads(np.ones((1, experts))), top_k)
    assert ideal.repeats == layers
    assert ideal.share == pytest.approx(real.share)
    assert ideal.slot_share == pytest.approx(real.slot_share)
    assert ideal.touched_slots(17) == pytest.approx(real.touched_slots(17))


SMALL = Routing(12, 3, 4, 2)


def hits_of(
    rows: np.ndarray, routing: Routing, domains: np.ndarray, load: np.ndarray | None = None
) -> TokenHits:
    """What is reached under ``rows`` ``[layers, slots]``, equally many slots on each GPU, each of which is a node."""
    gpus = len(domains)
    load = np.ones((1, len(rows), routing.experts)) if load is None else load
    slot_gpu = np.repeat(np.arange(gpus), rows.shape[1] // gpus).astype(np.int32)
    assignment = Assignment(rows.astype(np.int32), slot_gpu, routing.experts, gpus)
    use, limit = expert_use(assignment, loads(*load), routing.top_k), (routing.groups, routing.topk_groups)
    where = {"nodes": np.arange(gpus), "domains": domains}
    hits = limited_hits(assignment, use.slot_share, load, routing.top_k, limit, **where)
    assert hits is not None
    return hits


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
    hits = hits_of(rows, SMALL, domains)
    gpu = np.empty(12, dtype=int)
    gpu[rows[0]] = np.repeat(np.arange(6), 2)
    np.testing.assert_allclose(hits.gpus[0, 0, 0], over_choices(gpu, SMALL), atol=1e-12)
    np.testing.assert_allclose(hits.domains[0, 0, 0], over_choices(domains[gpu], SMALL), atol=1e-12)
    # GPU i is now what GPU order[i] was
    order = rng.permutation(6)
    moved = rows.reshape(6, 2)[order].reshape(1, -1)
    again = hits_of(moved, SMALL, domains[order])
    np.testing.assert_allclose(again.gpus[0, 0, 0], hits.gpus[0, 0, 0, order], atol=1e-12)
    np.testing.assert_allclose(again.domains, hits.domains, atol=1e-12)
    # a group is as good as another, and so is an expert in its group
    name = (rng.permutation(4)[:, None] * 3 + np.argsort(rng.random((4, 3)), axis=1)).ravel()
    renamed = hits_of(name[rows], SMALL, domains)
    np.testing.assert_allclose(renamed.gpus, hits.gpus, atol=1e-12)


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
    hits = hits_of(rows, routing, domains, drawn[None, None])
    np.testing.assert_allclose(hits.domains[0, 0, 0], 1 - missed, rtol=0.03)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize(("groups", "topk_groups"), [(0, 0), (3, 1), (3, 2), (4, 2), (4, 3), (6, 2)])
@pytest.mark.parametrize(
    ("part_gpus", "ep"), [(1, 12), (1, 6), (1, 4), (2, 12), (3, 6), (3, 12), (4, 12), (2, 4)]
)
def test_chance_against_all_choices(top_k, groups, topk_groups, part_gpus, ep):
    # parts of 1 to 6 experts against groups of 2 to 4: some inside a group, some across, some over several
    if not groups or top_k <= topk_groups * 12 // groups:
        where = np.arange(12) * ep // 12 // part_gpus
        chance = over_choices(where, Routing(12, top_k, groups or 1, topk_groups or 1)).mean()
        assert hit_chance(Routing(12, top_k, groups, topk_groups), part_gpus, ep) == pytest.approx(chance)


def test_a_perfect_router_uses_as_many_gpus_as_it_can():
    routing = Routing(256, 8, spread=True)
    assert (np.array([4, 8, 64]) * hit_chance(routing, 1, [4, 8, 64])).tolist() == [4, 8, 8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 9), "top_k 9"),
        ((8, 2, 4, 0), "give both"),
        ((8, 2, 4, 5), "cannot be chosen"),
        ((8, 5, 4, 2), "cannot be chosen"),
    ],
)
def test_impossible_routing_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Routing(*arguments)


def test_skew_by_hand():
    tokens = np.array([[[0, 0, 0, 0], [1, 1, 1, 5], [2, 2, 2, 2]]] * 2)
    statistics = load_statistics(tokens.astype(float))
    assert statistics.rows == (1, 2)
    assert statistics.max_over_mean.tolist() == [2.5, 1]
    assert statistics.variation == pytest.approx([np.sqrt(3) / 2, 0])  # 1, 1, 1, 5 have mean 2 and variance 3
    assert statistics.over_mean.tolist() == [[0.5, 0.5, 0.5, 2.5], [1, 1, 1, 1]]
    assert statistics.consecutive.moved_share == 0
    assert statistics.consecutive.correlation == pytest.approx(1)


def test_drift_by_hand():
    assert load_statistics(np.ones((1, 2, 4))).consecutive is None
    assert load_statistics(np.ones((2, 2, 4))).first_to_last.correlation is None
    before, after = np.array([[6.0, 2, 0, 0]]), np.array([[0.0, 1, 1, 2]])
    assert distance(before, after).tolist() == [0.75]
    statistics = load_statistics(np.stack([before, after, before]))
    assert statistics.consecutive.moved_share == pytest.approx(0.75)
    assert statistics.first_to_last.moved_share == 0
    # shares minus 1/4: (2, 0, -1, -1) / 4 and (-1, 0, 0, 1) / 4
    assert statistics.consecutive.correlation == pytest.approx(-3 / np.sqrt(6 * 2))


def test_the_distance_that_chance_gives():
    rng = np.random.default_rng(2)
    shares = rng.lognormal(0, 0.6, 256)
    shares /= shares.sum()
    a, b = rng.multinomial(20_000, shares, 40), rng.multinomial(5_000, shares, 40)
    assert distance(a, b).mean() == pytest.approx(chance_distance(a, b).mean(), rel=0.03)


def test_a_row_far_below_the_largest_one_is_not_lost():
    tokens = np.full((2, 2, 4), 1e308)
    tokens[:, 1] = [5e-324, 0, 0, 5e-324]
    statistics = load_statistics(tokens)
    assert statistics.rows == (0, 1)
    assert statistics.max_over_mean.tolist() == [1, 2]
