"""How load splits over copies, and what is used: against loops over ranks, LPs, enumeration and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from cost.experts.assignment import Assignment
from cost.experts.best_split import lp_level, lp_shares
from cost.experts.dispatch import rank_shares, require_policy, slot_shares
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import balanced_use, expert_use
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
@settings(max_examples=30)
def test_source_shares_are_those_of_the_ranks_one_by_one(seed, per_node, gpus):
    assignment = drawn(seed, experts=5, gpus=gpus, slots=5)
    nodes = np.arange(gpus) // per_node
    np.testing.assert_allclose(
        slot_shares(assignment, "source", nodes=nodes), by_loops(assignment, nodes), atol=1e-15
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
    np.testing.assert_allclose(rank_shares(assignment, tp), ranks / gpus, atol=1e-15)


@given(
    seed=st.integers(0, 10**6),
    gpus=st.integers(1, 5),
    slots=st.integers(2, 4),
    fast=st.booleans(),
)
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
    with pytest.raises(
        InputError, match=r"`split` odd: expected even, source, lp, quota, rank, .* or rank-tp16"
    ):
        require_policy("odd")
    with pytest.raises(InputError, match="depends on the loads"):
        slot_shares(drawn(0), "lp")


def loads(*scenarios):
    return ExpertLoads(
        np.array(scenarios, dtype=float), tuple(map(str, range(len(scenarios)))), synthetic=False
    )


def linear(layers, experts, gpus):
    slot_gpu = np.sort(np.arange(experts) % gpus).astype(np.int32)
    return Assignment(np.tile(np.arange(experts, dtype=np.int32), (layers, 1)), slot_gpu, experts, gpus)


@pytest.mark.parametrize(
    ("ranks", "distinct"), [(4, 3.61), (8, 5.29), (16, 6.52), (32, 7.27), (64, 7.68), (128, 7.89)]
)
def test_distinct_ranks_of_a_token(ranks, distinct):
    use = balanced_use(58, np.full(ranks, 256 // ranks), experts=256, top_k=8)
    assert use.token_share().sum() == pytest.approx(distinct, abs=0.005)
    measured = expert_use(linear(1, 256, ranks), loads(np.ones((1, 256))), 8)
    assert measured.token_share().sum() == pytest.approx(use.token_share().sum())


def test_touched_slots_by_enumeration():
    # Every choice of 2 of 4 experts by 2 tokens, 3 and 1 experts on 2 GPUs.
    owner = np.array([0, 0, 0, 1], dtype=np.int32)
    use = expert_use(Assignment(np.arange(4, dtype=np.int32)[None], owner, 4, 2), loads(np.ones((1, 4))), 2)
    choices = list(itertools.combinations(range(4), 2))
    touched = np.zeros(2)
    for one, other in itertools.product(choices, repeat=2):
        for expert in {*one, *other}:
            touched[owner[expert]] += 1 / len(choices) ** 2
    assert use.touched_slots(2)[0, 0] == pytest.approx(touched)


def test_shares_by_hand():
    # expert 0 (6 tokens of 9) has copies on GPUs 0 and 2, experts 1 and 2 one each
    assignment = Assignment(
        np.array([[0, 1, 2, 0]], dtype=np.int32), np.array([0, 0, 1, 2], dtype=np.int32), 3, 3
    )
    use = expert_use(assignment, loads([[6, 1, 2]], [[0, 3, 0]]), top_k=1)
    assert use.slot_share[0, 0] == pytest.approx([3 / 9, 1 / 9, 2 / 9, 3 / 9])
    assert use.share[:, 0] == pytest.approx(np.array([[4 / 9, 2 / 9, 3 / 9], [1, 0, 0]]))
    assert (use.gpus, use.repeats) == (3, 1)
    assert use.touched_slots(1)[1, 0] == pytest.approx([1, 0, 0])


@pytest.mark.parametrize(
    ("shape", "said"), [((1, 3, 4), "3 layers x 4"), ((1, 2, 5), "2 layers x 5"), ((2, 1, 4), "1 ")]
)
def test_loads_of_another_shape_are_refused(shape, said):
    with pytest.raises(
        InputError, match=f"loads of {said}.* do not fit an assignment of 2 layers x 4 experts"
    ):
        expert_use(linear(2, 4, 2), loads(*np.ones(shape)), 1)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 5))
def test_balanced_use_is_that_of_equal_loads(gpus, each, layers):
    experts = gpus * each
    top_k = min(2, experts)
    ideal = balanced_use(layers, np.full(gpus, each), experts, top_k)
    real = expert_use(linear(1, experts, gpus), loads(np.ones((1, experts))), top_k)
    assert ideal.repeats == layers
    assert ideal.share == pytest.approx(real.share)
    assert ideal.slot_share == pytest.approx(real.slot_share)
    assert ideal.touched_slots(17) == pytest.approx(real.touched_slots(17))


def test_balanced_use_over_unequal_slots_gives_every_gpu_the_same():
    use = balanced_use(1, np.array([2, 1, 1]), experts=3, top_k=1)
    assert use.share[0, 0] == pytest.approx([1 / 3] * 3)
    assert use.slot_share[0, 0] == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])
