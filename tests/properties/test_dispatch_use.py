"""How an assignment shares tokens: shares, touched slots, distinct ranks; by hand, by enumeration, as invariants."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import balanced_use, expert_use
from topology.base.errors import InputError


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


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_invariants(data):
    experts, gpus = data.draw(st.integers(2, 16)), data.draw(st.integers(1, 6))
    top_k = data.draw(st.integers(1, experts))
    extra = data.draw(st.lists(st.integers(0, experts - 1), max_size=6))
    row = np.array([[*range(experts), *extra]], dtype=np.int32)
    slot_gpu = np.sort(data.draw(st.lists(st.integers(0, gpus - 1), min_size=row.size, max_size=row.size)))
    load = data.draw(st.lists(st.floats(0.01, 100), min_size=experts, max_size=experts))
    tokens = data.draw(st.integers(1, 500))
    assignment = Assignment(row, slot_gpu.astype(np.int32), experts, gpus)
    use = expert_use(assignment, loads([load]), top_k)
    assert use.share.sum() == pytest.approx(1.0)
    touched = use.touched_slots(tokens)
    assert (touched <= assignment.slots_per_gpu + 1e-9).all()
    assert (touched <= use.touched_slots(tokens + 1) + 1e-9).all()
    assert touched.sum() <= tokens * top_k * (1 + 1e-9)  # no more slots than pairs
    reached = use.token_share()
    assert ((reached >= -1e-12) & (reached <= 1 + 1e-12)).all()
    assert (reached <= top_k * use.share + 1e-9).all()  # no more copies than pairs
    assert reached.sum() >= 1 - 1e-9  # a token goes somewhere


@settings(deadline=None, max_examples=20)
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
