"""The lecture's identities, by hand."""

from __future__ import annotations

import math

import pytest

from cost import resolve_model
from cost.lecture import (
    Roofline,
    balancing_batch,
    experts_per_gpu,
    flop_per_byte,
    hbm_read_s,
    leaving_share,
    pipeline_hop_ratio,
    spanning_slowdown,
    tokens_per_s,
    train_wait_s,
)
from topology import InputError, MissingFigureError, load_domain, load_gpu, load_scale_out


@pytest.mark.parametrize(
    ("gpu", "dtype", "ratio"),
    [
        ("h100-sxm", "bf16", 295.4),
        ("gb200", "bf16", 312.5),
        ("gb200", "fp8", 625.0),
        ("lecture", "bf16", 300.0),
    ],
)
def test_flop_per_byte_is_about_300_in_bf16(gpu: str, dtype: str, ratio: float) -> None:
    assert flop_per_byte(load_gpu(gpu), dtype) == pytest.approx(ratio, rel=1e-3)


def test_flop_per_byte_without_the_unit_raises() -> None:
    with pytest.raises(MissingFigureError, match="fp4"):
        flop_per_byte(load_gpu("h100-sxm"), "fp4")


def test_balancing_batch_is_300_times_the_sparsity() -> None:
    gpu = load_gpu("lecture")
    assert balancing_batch(gpu, "bf16", 256, 32, 2.0) == pytest.approx(2400)
    # FP8 halves the bytes and doubles the flop/s: the same batch
    assert balancing_batch(gpu, "fp8", 256, 32, 1.0) == pytest.approx(2400)
    model = resolve_model("deepseek-v3")
    own = balancing_batch(gpu, "bf16", model.total_params, model.active_params, 2.0)
    assert own == pytest.approx(300 * 671 / 36.6, rel=2e-3)


def test_reading_hbm_once_takes_20_ms() -> None:
    assert hbm_read_s(load_gpu("lecture")) == pytest.approx(0.020)
    assert hbm_read_s(load_gpu("h100-sxm")) == pytest.approx(0.0255, rel=2e-3)  # 85.5 GB at 3.35 TB/s


def test_tokens_of_a_rack() -> None:
    assert tokens_per_s(2400, 0.020) == pytest.approx(120_000)
    assert tokens_per_s(2000, 1 / 64) == pytest.approx(128_000)


def test_a_batch_leaves_as_a_train_does() -> None:
    mean, longest = train_wait_s(0.020)
    assert (mean, longest) == pytest.approx((0.030, 0.040))
    # by hand: whoever arrives a part of a step after one began waits for the rest of it and rides one more
    arrivals = [(part + 0.5) / 1000 for part in range(1000)]
    waits = [(1 - part) * 0.020 + 0.020 for part in arrivals]
    assert sum(waits) / 1000 == pytest.approx(mean)
    assert max(waits) == pytest.approx(longest, rel=1e-3)


@pytest.mark.parametrize(("experts", "each", "used"), [(256, 4, 64), (72, 1, 72), (288, 4, 72), (7, 1, 7)])
def test_experts_go_on_gpus_that_divide_them(experts: int, each: int, used: int) -> None:
    assert experts_per_gpu(experts, load_domain("lecture-72")) == (each, used)


def test_half_the_traffic_leaves_and_takes_4_or_4_and_a_half_times_as_long() -> None:
    domain, out = load_domain("lecture-72"), load_scale_out("lecture-72").scale_out_bytes_per_s
    assert leaving_share(2) == 0.5
    assert spanning_slowdown(2, domain, out) == pytest.approx((4.0, 4.5))
    assert spanning_slowdown(1, domain, out) == pytest.approx((1.0, 1.0))


def test_pipeline_hop_is_small_beside_the_stage() -> None:
    domain, out = load_domain("lecture-72"), load_scale_out("lecture-72").scale_out_bytes_per_s
    assert pipeline_hop_ratio(8, 4, domain, out) == pytest.approx(8 * 2 * 4 / 8)


def test_roofline_is_the_larger_of_compute_and_memory() -> None:
    line = Roofline(load_domain("lecture-72"), 256e9, 32e9, "bf16", 2.0, 32 / 256)
    balance = balancing_batch(load_gpu("lecture"), "bf16", 256, 32, 2.0)
    assert line.step_s(balance) == pytest.approx(line.compute_s(balance))
    assert line.memory_s(balance) == pytest.approx(line.compute_s(balance), rel=1e-6)
    assert line.step_s(balance / 2) == pytest.approx(line.memory_s(balance / 2))
    assert line.params_read(1) == pytest.approx(32e9)
    assert line.params_read(1e4) == pytest.approx(256e9)


def test_batch_1_costs_hundreds_of_times_the_best() -> None:
    model = resolve_model("deepseek-v3")
    line = Roofline(load_domain("lecture-72"), model.total_params, model.active_params, "bf16", 2.0, 8 / 256)
    assert line.cost_per_token(1.0) / line.best_cost_per_token() == pytest.approx(300, rel=1e-6)
    assert line.cost_per_token(1e6) == pytest.approx(line.best_cost_per_token())


@pytest.mark.parametrize("batch", [0.0, -1.0, math.nan, math.inf])
def test_roofline_refuses_a_batch_that_is_none(batch: float) -> None:
    with pytest.raises(InputError, match="batch"):
        Roofline(load_domain("lecture-72"), 1e9, 1e9, "bf16", 2.0).step_s(batch)
