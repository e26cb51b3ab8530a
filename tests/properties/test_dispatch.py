"""How load splits over copies: against loops over ranks and brute-force LPs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from cost.experts.assignment import Assignment
from cost.experts.best_split import lp_level, lp_shares
from cost.experts.dispatch import DISPATCH_POLICIES, rank_shares, require_policy, slot_shares, source_shares
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import expert_use
from topology.base.errors import InputError


def drawn(seed: int, *, layers: int = 2, experts: int = 6, gpus: int = 4, slots: int = 3) -> Assignment:
    """Every expert somewhere, the rest of the slots at random; a GPU may hold an expert twice."""
    rng = np.random.default_rng(seed)
    rows = [
        rng.permutation(
            np.concatenate([np.arange(experts), rng.integers(experts, size=gpus * slots - experts)])
        )
        for _ in range(layers)
    ]
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
@settings(max_examples=30, deadline=None)
def test_source_shares_are_those_of_the_ranks_one_by_one(seed, per_node, gpus):
    assignment = drawn(seed, experts=5, gpus=gpus, slots=5)
    nodes = np.arange(gpus) // per_node
    np.testing.assert_allclose(source_shares(assignment, nodes), by_loops(assignment, nodes), atol=1e-15)


@given(seed=st.integers(0, 10**6), tp=st.sampled_from([1, 2, 4, 8]), groups=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
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
    np.testing.assert_allclose(rank_shares(assignment, tp), ranks / gpus, atol=1e-15)


@given(
    seed=st.integers(0, 10**6),
    gpus=st.integers(1, 5),
    slots=st.integers(2, 4),
    fast=st.booleans(),
)
@settings(max_examples=12, deadline=None)
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


@pytest.mark.parametrize("split", DISPATCH_POLICIES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_shares_of_an_expert_add_up_to_one(split, seed):
    assignment = drawn(seed)
    load = np.random.default_rng(seed).lognormal(0, 2, (2, 6))
    load[:, 1] = 0  # a dead expert has shares too
    shares = slot_shares(assignment, split, load=load, nodes=np.array([0, 0, 1, 1]))
    total = np.zeros((2, 6))
    np.add.at(total, (np.arange(2)[:, None], assignment.slot_expert), shares)
    np.testing.assert_allclose(total, 1.0)


def test_lp_of_huge_and_tiny_loads_and_of_all_on_one_expert():
    assignment = drawn(3, layers=1)
    load = np.random.default_rng(3).lognormal(0, 1, (1, 6))
    level = lp_level(assignment, load)
    for scale in (1e-300, 1e300, 2.0**60):
        np.testing.assert_allclose(lp_level(assignment, load * scale) / scale, level, rtol=1e-9)
    alone = np.array([[0, 0, 7.0, 0, 0, 0]])
    holders = len(set(assignment.slot_gpu[assignment.slot_expert[0] == 2].tolist()))
    assert lp_level(assignment, alone)[0] == pytest.approx(7.0 / holders)


@pytest.mark.parametrize("split", ["source", "lp"])
def test_use_follows_the_split(split):
    assignment = drawn(2)
    nodes = np.array([0, 0, 1, 1])
    loads = ExpertLoads(np.random.default_rng(2).lognormal(0, 1, (2, 2, 6)), ("a", "b"), synthetic=False)
    use = expert_use(assignment, loads, 2, split=split, nodes=nodes)
    np.testing.assert_allclose(use.share.sum(axis=2), 1.0)
    for scenario, fraction in enumerate(loads.normalised / 6):
        shares = slot_shares(assignment, split, load=fraction, nodes=nodes)
        np.testing.assert_allclose(use.share[scenario], assignment.gpu_load(fraction, shares))
        balance = assignment.balancedness(fraction, shares)
        np.testing.assert_allclose(balance, 1 / (4 * use.share[scenario].max(axis=1)))


def test_refusals():
    with pytest.raises(InputError, match=r"`split` odd: expected even, source, lp, rank, .* or rank-tp16"):
        require_policy("odd")
    with pytest.raises(InputError, match="depends on the loads"):
        slot_shares(drawn(0), "lp")
