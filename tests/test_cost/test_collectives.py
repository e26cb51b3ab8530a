"""Tensor-parallel collectives: bounds, small and large messages, what in-switch reduction gains."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.terms.collectives import (
    DIRECT,
    IN_SWITCH,
    PROTOCOLS,
    all_gather_seconds,
    all_reduce_seconds,
    reduce_scatter_seconds,
)

H100 = 450e9


def test_large_all_reduce_runs_at_the_measured_rate():
    # 10 GB on 8 GPUs: bytes counted as 2 (n - 1) / n of each GPU's pass at about 370 GB/s, with SHARP at about 480
    size = 10e9
    ring = 2 * 7 / 8 * size / all_reduce_seconds(size, 8, up_bytes_per_s=H100)
    switch = 2 * 7 / 8 * size / all_reduce_seconds(size, 8, up_bytes_per_s=H100, in_switch=True)
    assert ring == pytest.approx(370e9, rel=0.01)
    assert switch == pytest.approx(480e9, rel=0.01)


def test_small_all_reduce_is_one_step():
    assert all_reduce_seconds(1024, 8, up_bytes_per_s=H100) == pytest.approx(7.2e-6, rel=0.01)


def test_gather_by_hand():
    # 45 MB over 8 GPUs, all at once: 7/8 of it at 370 GB/s, after 6.6 + 0.6 us
    assert all_gather_seconds(45e6, 8, up_bytes_per_s=H100) == pytest.approx(7.2e-6 + 7 / 8 * 45e6 / 370e9)
    assert reduce_scatter_seconds(45e6, 8, up_bytes_per_s=H100) == all_gather_seconds(
        45e6, 8, up_bytes_per_s=H100
    )


def test_one_gpu_needs_no_collective():
    sizes = np.array([1e3, 1e9])
    assert all_reduce_seconds(sizes, 1, up_bytes_per_s=H100, in_switch=True).tolist() == [0, 0]
    assert all_gather_seconds(sizes, 1, up_bytes_per_s=H100).tolist() == [0, 0]


def test_shapes_broadcast():
    assert all_reduce_seconds(np.ones((3, 1)), np.array([2, 4]), up_bytes_per_s=H100).shape == (3, 2)


def test_every_coefficient_has_a_source_and_no_fraction_exceeds_the_link():
    for protocol in (*PROTOCOLS, DIRECT, IN_SWITCH):
        assert 0 < protocol.fraction.value < 1
        assert all(figure.source for figure in protocol.figures().values())


@settings(deadline=None, max_examples=100)
@given(
    size=st.floats(1, 1e11),
    gpus=st.integers(2, 72),
    rate=st.floats(1e9, 2e12),
    more=st.floats(1, 8),
    in_switch=st.booleans(),
)
def test_bounds_of_an_all_reduce(size, gpus, rate, more, in_switch):
    found = all_reduce_seconds(size, gpus, up_bytes_per_s=rate, in_switch=in_switch)
    # every GPU's bytes leave it once at least; without a switch that adds up, 2 (n - 1) / n of them
    assert found >= (1 if in_switch else 2 * (gpus - 1) / gpus) * size / rate
    assert all_reduce_seconds(size, gpus, up_bytes_per_s=rate * more, in_switch=in_switch) <= found
    assert all_reduce_seconds(size * more, gpus, up_bytes_per_s=rate, in_switch=in_switch) >= found
    assert all_reduce_seconds(size, gpus, up_bytes_per_s=rate, in_switch=True) <= found
    assert found >= all_gather_seconds(size, gpus, up_bytes_per_s=rate)
