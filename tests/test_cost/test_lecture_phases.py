"""Output tokens against input tokens, and the context at which a price steps up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.attention.sparse import as_if_sparse
from cost.lecture import (
    Roofline,
    batch_for_output_price,
    kv_bytes_from_price_step,
    model_price_step_context,
    output_over_input,
    prefill_cost_per_token,
    price_step_context,
)
from cost.resolve import resolve_model
from topology import InputError, MissingFigureError, load_domain, load_gpu

LINE = Roofline(load_domain("lecture-72"), 800e9, 100e9, "fp8", 1.0, 32 / 256, 2000.0, 200_000.0)
CHUNK = 8192.0


def test_a_price_that_steps_up_at_200k_tokens_says_2_kb() -> None:
    gpu = load_gpu("lecture")
    kv = kv_bytes_from_price_step(gpu, "fp8", 100e9, 200e3)
    assert kv == pytest.approx(100e9 / (300 * 200e3))  # the lecture's form: active / (300 * context)
    assert round(kv / 1e3) == 2
    assert price_step_context(gpu, "fp8", 100e9, kv) == pytest.approx(200e3)


def test_at_the_step_both_take_as_long() -> None:
    line = replace(LINE, kv_bytes_per_token=kv_bytes_from_price_step(LINE.domain.gpu, "fp8", 100e9, 200e3))
    assert line.cache_s_per_sequence == pytest.approx(line.compute_s_per_token)
    assert replace(line, context=400e3).best_cost_per_token() == pytest.approx(2 * line.best_cost_per_token())
    assert replace(line, context=100e3).best_cost_per_token() == pytest.approx(line.best_cost_per_token())


def test_price_step_of_a_model_dense_and_as_if_sparse() -> None:
    gpu, model = load_gpu("gb200"), resolve_model("deepseek-v3")
    kv = 61 * 576 * 2
    dense = price_step_context(gpu, "fp8", model.active_params, kv)
    assert model_price_step_context(model, gpu, "bf16") == pytest.approx(dense)
    assert model_price_step_context(model, gpu, "fp8") == pytest.approx(2 * dense)
    # the square root reads as much at the square of the context, a limit below it never
    assert model_price_step_context(as_if_sparse(model, "sqrt"), gpu, "bf16") == pytest.approx(dense**2)
    assert model_price_step_context(as_if_sparse(model, "10000"), gpu, "bf16") == pytest.approx(dense)
    assert model_price_step_context(as_if_sparse(model, "1000"), gpu, "bf16") == math.inf


def test_price_step_needs_figures() -> None:
    with pytest.raises(MissingFigureError, match="fp4"):
        kv_bytes_from_price_step(load_gpu("h100-sxm"), "fp4", 100e9, 200e3)
    for active, context in ((0.0, 1.0), (1e9, 0.0), (1e9, float("nan"))):
        with pytest.raises(InputError, match="above 0"):
            kv_bytes_from_price_step(load_gpu("lecture"), "fp8", active, context)
    with pytest.raises(InputError, match="kv_bytes_per_token"):
        price_step_context(load_gpu("lecture"), "fp8", 1e9, -1.0)


def test_prefill_is_bound_by_compute_in_chunks_and_by_weights_below() -> None:
    assert prefill_cost_per_token(LINE, CHUNK) == pytest.approx(2 * 100e9 / 4.8e15)
    small = replace(LINE, active_params=800e9, routed_fraction=1.0)
    assert prefill_cost_per_token(small, 10.0) == pytest.approx((800e9 + 4e8) / 8e12 / 10)
    both = prefill_cost_per_token(LINE, np.array([10.0, CHUNK]))
    assert both[1] == pytest.approx(prefill_cost_per_token(LINE, CHUNK))


def test_output_over_input_by_hand() -> None:
    # a token computes 1/1.728 us on the rack, its caches take 1.2 times that; weights 2,400 times
    ratios = output_over_input(LINE, np.array([480.0, 2400.0, 1e9]), chunk=CHUNK)
    assert ratios == pytest.approx([1.2 + 5.0, 1.2 + 1.0, 1.2], rel=1e-4)
    assert output_over_input(replace(LINE, context=0.0), 480.0, chunk=CHUNK) == pytest.approx(5.0)


def test_five_times_the_price_is_a_batch() -> None:
    batch = batch_for_output_price(LINE, 5.0, chunk=CHUNK)
    assert batch == pytest.approx(2400 / (5 - 1.2))
    assert batch_for_output_price(LINE, 1e9, chunk=CHUNK) == 1.0
    with pytest.raises(InputError, match=r"more than 1\.2 times"):
        batch_for_output_price(LINE, 1.1, chunk=CHUNK)


@given(st.floats(1, 1e7), st.floats(1, 100), st.floats(0, 1e6))
@settings(deadline=None, max_examples=50)
def test_small_batches_and_long_contexts_make_output_dearer(
    batch: float, times: float, context: float
) -> None:
    line = replace(LINE, context=context)
    ratio = output_over_input(line, batch, chunk=CHUNK)
    assert ratio >= 1 - 1e-9
    assert output_over_input(line, batch * times, chunk=CHUNK) <= ratio * (1 + 1e-9)
    assert output_over_input(replace(line, context=context * times), batch, chunk=CHUNK) >= ratio * (1 - 1e-9)


@pytest.mark.parametrize("chunk", [0.0, float("inf")])
def test_a_chunk_that_is_none(chunk: float) -> None:
    with pytest.raises(InputError, match="chunk"):
        output_over_input(LINE, 1.0, chunk=chunk)
