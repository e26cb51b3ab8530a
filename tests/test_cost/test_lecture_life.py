"""The pipeline's bubble, and equal spending over a model's life."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.lecture import bubble_share, bubble_slowdown, equal_spend
from topology import InputError

MONTH_S = 365.25 / 12 * 24 * 3600


def simulated_s(stages: int, micro_batches: int) -> int:
    """Ticks of a pipeline, micro-batch after micro-batch, each stage one tick for each."""
    free = [0] * stages
    for _ in range(micro_batches):
        ready = 0
        for stage in range(stages):
            ready = free[stage] = max(ready, free[stage]) + 1
    return free[-1]


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 5), (4, 1), (4, 16), (8, 3)])
def test_bubble_against_a_simulation(stages: int, micro_batches: int) -> None:
    total = simulated_s(stages, micro_batches)
    assert bubble_slowdown(stages, micro_batches) == total / micro_batches
    assert bubble_share(stages, micro_batches) == pytest.approx((total - micro_batches) / total)


@given(st.integers(1, 64), st.integers(1, 512))
@settings(deadline=None, max_examples=50)
def test_more_micro_batches_shrink_the_bubble(stages: int, micro_batches: int) -> None:
    assert bubble_share(stages, micro_batches + 1) <= bubble_share(stages, micro_batches)
    assert bubble_share(stages + 1, micro_batches) > bubble_share(stages, micro_batches)
    assert bubble_slowdown(stages, micro_batches) == pytest.approx(
        1 / (1 - bubble_share(stages, micro_batches))
    )


@pytest.mark.parametrize(("stages", "micro_batches", "name"), [(0, 1, "stages"), (1, 0, "micro_batches")])
def test_bubble_of_nothing(stages: int, micro_batches: int, name: str) -> None:
    with pytest.raises(InputError, match=name):
        bubble_share(stages, micro_batches)
    with pytest.raises(InputError, match=name):
        bubble_slowdown(stages, micro_batches)


def test_a_hundred_times_chinchilla() -> None:
    spend = equal_spend(100e9, 50e6 * 2 * MONTH_S, decode_efficiency=1 / 3, trained=1.0)
    assert spend.inference_tokens == pytest.approx(2.6e14, rel=0.02)
    assert spend.pretraining_tokens == pytest.approx(spend.inference_tokens)
    assert spend.over_training == pytest.approx(131, rel=0.01)
    assert 100 / 1.5 < spend.over_training < 100 * 1.5


def test_the_three_cost_the_same() -> None:
    spend = equal_spend(1e9, 1e12, decode_efficiency=0.25, trained=0.5)
    per_generated = 2e9 / 0.25
    assert spend.training_flop == pytest.approx(per_generated * spend.inference_tokens)
    assert spend.training_flop == pytest.approx(6e9 * spend.pretraining_tokens)
    assert spend.training_flop == pytest.approx((per_generated + 0.5 * 6e9) * spend.rl_tokens)


@given(st.floats(1e6, 1e13), st.floats(1e6, 1e18), st.floats(0.01, 0.9), st.floats(0, 0.9))
@settings(deadline=None, max_examples=50)
def test_efficient_decode_and_more_training_leave_fewer_tokens(
    active: float, served: float, efficiency: float, trained: float
) -> None:
    spend = equal_spend(active, served, decode_efficiency=efficiency, trained=trained)
    better = equal_spend(active, served, decode_efficiency=efficiency * 1.1, trained=trained)
    more = equal_spend(active, served, decode_efficiency=efficiency, trained=trained + 0.1)
    twice = equal_spend(active, 2 * served, decode_efficiency=efficiency, trained=trained)
    assert better.over_training < spend.over_training
    assert more.rl_tokens < spend.rl_tokens <= spend.inference_tokens * (1 + 1e-9)
    assert twice.over_training == pytest.approx(2 * spend.over_training)


@pytest.mark.parametrize(
    ("active", "served", "efficiency", "trained", "name"),
    [
        (0.0, 1.0, 0.5, 0.5, "active_params"),
        (1.0, float("inf"), 0.5, 0.5, "inference_tokens"),
        (1.0, 1.0, 0.0, 0.5, "decode_efficiency"),
        (1.0, 1.0, 1.1, 0.5, "decode_efficiency"),
        (1.0, 1.0, 0.5, -0.1, "trained"),
        (1.0, 1.0, 0.5, float("nan"), "trained"),
    ],
)
def test_spending_that_cannot_be(
    active: float, served: float, efficiency: float, trained: float, name: str
) -> None:
    with pytest.raises(InputError, match=name):
        equal_spend(active, served, decode_efficiency=efficiency, trained=trained)
