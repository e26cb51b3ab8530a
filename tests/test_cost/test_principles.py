"""First principles: every figure of the lecture by hand, and what must hold of any model and cluster."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rackplan
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.principles import links, prices, step, training
from cost.principles.economics import Economics
from cost.principles.lecture import lecture
from cost.principles.roofline import Roofline
from cost.principles.tiers import cache_tiers, tiers_set
from cost.resolve import resolve_model
from topology import resolve_cluster
from topology.base.errors import InputError
from topology.catalog import load_gpu


def board(model: str = "deepseek-v3", cluster: str = "lecture-72", **asked: object) -> Roofline:
    return Roofline(Deployment(resolve_cluster(cluster), resolve_model(model), Workload(**asked)))


# --- a step


def test_a_step_is_the_larger_of_computing_and_reading() -> None:
    assert step.compute_s(2400.0, 37e9, 64 * 2.4e15) == pytest.approx(2 * 2400 * 37e9 / (64 * 2.4e15))
    assert step.memory_s(671e9, 100 * 4096 * 70e3, 64 * 8e12) == pytest.approx(
        (671e9 + 100 * 4096 * 70e3) / 512e12
    )
    found = board().steps(np.array([1.0, 1e6]))
    assert found["lower_step_s"].tolist() == np.maximum(found["compute_s"], found["hbm_s"]).tolist()
    assert found["flop_share"] == pytest.approx(found["compute_s"] / found["step_s"])


def test_flop_per_byte_and_the_batch_that_balances() -> None:
    gpu = load_gpu("lecture")
    model = resolve_model("mixtral-8x7b")  # BF16: 300 x total / active
    assert step.balancing_batch(model, gpu) == pytest.approx(300 * model.total_params / model.active_params)
    assert board().figures["bf16_flop_per_byte"] == 300
    for cluster, ratio in (("hgx-a100", 153), ("hgx-h100", 295), ("gb200-nvl72", 312)):
        assert board(cluster=cluster).figures["bf16_flop_per_byte"] == pytest.approx(ratio, abs=0.6)
    assert lecture()["balancing_batch"].value == 300 * 256 / 32 == 2400


def test_waits_are_two_sweeps_of_hbm() -> None:
    found = board().figures
    assert found["sweep_s"] == 160e9 / 8e12 == 0.02
    assert found["longest_wait_s"] == 0.04
    assert found["fill_s"] == pytest.approx(found["balancing_batch"] / 20_000)
    assert found["domain_tok_s"] == pytest.approx(found["balancing_batch"] / 0.02)
    assert found["domains_wanted"] == math.ceil(200e6 / found["domain_tok_s"])
    assert lecture()["domain_tok_s"].value == pytest.approx(2400 / 0.01875)


def test_a_token_alone_costs_as_often_as_much_as_a_chip_has_flop_per_byte() -> None:
    found = board("llama-3.1-70b", "hgx-h100").figures  # BF16 alone: embeddings are read but not multiplied
    assert found["unbatched_cost_ratio"] == pytest.approx(295, rel=0.01)
    assert 250 <= board(cluster="hgx-h100").figures["unbatched_cost_ratio"] <= 300


def test_a_faster_mode_has_a_price_and_an_end() -> None:
    # HBM in 20 ms, weights in 4: at 2.5 times the speed a quarter of the sequences share 8 ms
    mode = step.faster(2.5, 0.020, 0.004)
    assert mode.most == pytest.approx(5)
    assert mode.price == pytest.approx((8 / 0.25) / (20 / 1))
    assert step.faster(6, 0.020, 0.004).price is None
    assert lecture()["faster_price_ratio"].value == 6


# --- experts within a domain, layers over domains


@pytest.mark.parametrize(
    ("parts", "gpus", "even"), [(256, 72, 64), (384, 72, 64), (128, 576, 128), (60, 8, 6)]
)
def test_experts_divide_over_the_most_gpus(parts: int, gpus: int, even: int) -> None:
    assert links.even_gpus(parts, gpus) == even


def test_one_domain_bounds_an_expert_layer() -> None:
    found = board().figures
    assert found["gpu_experts"] == 256 / 64 == 4
    assert [found[f"leaving_{count}_share"] for count in (2, 4, 8)] == [0.5, 0.75, 0.875]
    assert found["scale_up_rate_ratio"] == pytest.approx(8)
    assert found["scale_up_links"] == 2
    assert found["domain_hbm_bytes_per_s"] == 72 * 8e12
    each = found["balancing_batch"] / 64
    one = 2 * 7168 * 2 * each * 8 * 63 / 64 / 900e9  # dispatch and combine of 8 copies in BF16
    assert found["alltoall_inside_s"] == pytest.approx(one)
    assert found["alltoall_across_s"] == pytest.approx(2 * 7168 * 2 * each * 8 / 2 / 112.5e9)
    assert board(cluster="hgx-h100").figures["scale_up_rate_ratio"] == pytest.approx(9)
    assert board(cluster="gb200-nvl72").figures["scale_up_rate_ratio"] == pytest.approx(18)


def test_stages_share_weights_and_not_the_cache() -> None:
    one, four = (Roofline(board().deployment, stages).figures for stages in (2, 4))
    assert four["stage_weight_bytes"] == one["stage_weight_bytes"] / 2
    assert four["stage_kv_bytes"] == one["stage_kv_bytes"]
    assert one["stage_links_ratio"] == pytest.approx(8 * 61 / 2 * 2 / 8)
    assert one["hop_bytes_per_step"] == pytest.approx(one["balancing_batch"] * 7168 * 2)
    assert (one["lone_bubble_share"], four["lone_bubble_share"]) == (1 / 2, 3 / 4)  # (p-1)/p
    assert links.training_bubble(4, 16) == 3 / 19
    # a pipeline changes the latency of a token by its hops alone
    alone, halves = (Roofline(board().deployment, stages).predicted_s(1000.0) for stages in (1, 2))
    assert 0 < halves - alone < 0.01 * alone


def test_as_many_stages_as_hold_the_weights() -> None:
    assert board().depth == 1
    assert board(cluster="hgx-h100").depth == math.ceil(
        board().weight_bytes / (0.9 * 8 * load_gpu("h100-sxm").hbm_bytes)
    )


# --- context


def test_a_wall_where_reading_a_cache_takes_longer_than_computing() -> None:
    contexts = 2.0 ** np.arange(0, 24, 0.5)
    # the lecture: 2 kB a token and 100 B active weights of 300 flop per byte, one operation a weight
    assert step.wall(2 * 1667 * contexts, contexts, 100e9, 300) == pytest.approx(200e3, rel=1e-3)
    assert step.wall(0 * contexts, contexts, 100e9, 300) is None
    found = board().figures
    assert found["sparse_wall_context"] == found["wall_context"] ** 2
    kv = found["kv_bytes_per_token"]
    assert found["wall_context"] == pytest.approx(
        2 * 37.55e9 / (600 * kv), rel=0.03
    )  # FP8: 600 flop per byte
    assert found["equal_context"] == pytest.approx(found["weight_bytes"] / (found["balancing_batch"] * kv))
    near, far = board(context=4096).figures, board(context=8192).figures
    assert near["compute_per_token_s"] == far["compute_per_token_s"]
    assert far["cache_read_per_token_s"] == pytest.approx(2 * near["cache_read_per_token_s"])


def test_activations_of_one_layer_where_layers_run_backwards() -> None:
    found = board().figures
    assert found["activation_bytes_per_token"] == 34 * 7168 * 61
    assert found["reversible_bytes_per_token"] == 34 * 7168
    assert step.dense_equivalent(64.0, 1.0) == pytest.approx(4)


def test_prefill_uses_more_of_the_peak() -> None:
    found = board(cluster="gb200-nvl72").figures
    assert found["flop_share_ratio"] == pytest.approx(
        found["prefill_flop_share"] / found["decode_flop_share"]
    )
    assert 2 < found["flop_share_ratio"] < 5
    prompts = board(phase="prefill").steps(np.array([1e5]))
    assert prompts["hbm_s"] == pytest.approx(board().figures["weights_read_s"])


# --- prices


def economics(**asked: object) -> Economics:
    return rackplan.economics(**asked)


def test_the_bytes_behind_a_price() -> None:
    assert prices.kv_bytes_behind(100e9, 200e3, 300, 1.0) == pytest.approx(1667, abs=1)
    found = economics().figures
    assert found["price_kv_bytes"] == pytest.approx(100e9 / (200e3 * 312.5))
    assert found["price_kv_flop_bytes"] == 2 * found["price_kv_bytes"]
    assert (found["output_over_input"], found["input_over_cached"]) == (5, pytest.approx(10))
    assert (found["long_premium"], found["covered_context"]) == (2, 400e3)


def test_tiers_cost_alike_after_the_time_that_draining_takes() -> None:
    tiers = cache_tiers(load_gpu("gb200"))
    assert tiers[0].usd(1.0, 1.0) is None
    ddr5, flash = tiers[1:3]
    assert ddr5.drain_s == pytest.approx(64 * 2**30 / 51.2e9)
    once, waits = flash.usd(1e6, 0.0), flash.usd(1e6, flash.drain_s)
    assert waits == pytest.approx(2 * once)
    after = ddr5.beaten_s(flash)
    assert ddr5.usd(1.0, after) == pytest.approx(flash.usd(1.0, after))
    assert flash.beaten_s(ddr5) is None


def test_a_cached_token_is_computed_again_or_kept() -> None:
    found = economics(prices={"gb200": 3.6})
    usd = 2 * 100e9 / (5e15 * found.roofline.figures["prefill_flop_share"]) * 3.6 / 3600
    assert found.computing_usd == pytest.approx(usd, rel=0.02)
    hbm = found.kept[0]
    assert hbm.usd[0] == pytest.approx(1e6 * 2000 * 3.6 / 3600 * (300 / 186e9 + 1 / 8e12), rel=0.1)
    held = hbm.cheaper_than_computing_s
    assert hbm.tier.usd(found.kv_bytes, held) == pytest.approx(found.computing_usd)
    unpriced = economics(cluster="lecture-72")
    assert unpriced.computing_usd is None
    assert unpriced.kept[0].usd == (None, None)


def test_tokens_over_a_life() -> None:
    found = economics().figures
    assert training.inference_tokens(500e6, 2) == pytest.approx(2600e12, rel=0.02)
    assert found["served_tokens"] == pytest.approx(200e12, rel=0.06)
    assert found["chinchilla_tokens"] == 2e12
    assert found["overtraining"] == pytest.approx(100, rel=0.06)
    flop = (
        "pretrain_flop_per_token",
        "inference_flop_per_token",
        "low_rl_flop_per_token",
        "high_rl_flop_per_token",
    )
    assert [found[key] for key in flop] == [6e11, 2e11, 2e11, 6e11]
    # 6 N D at 3 times the utilisation costs as much as 2 N D
    assert training.equal_cost_tokens(90.0, 6.0, 3.0) == 90
    assert found["high_equal_rl_tokens"] == found["served_tokens"]


def test_a_smaller_model_is_as_good_and_costs_less() -> None:
    found = training.smaller(100e9, 200e12)
    assert training.loss(found.params, found.tokens) == pytest.approx(training.loss(100e9, 2e12))
    assert found.params < 100e9
    assert found.tokens > 2e12
    life = found.params * (6 * found.tokens + 2 * 200e12)
    assert 1 - life / (100e9 * (6 * 2e12 + 2 * 200e12)) == pytest.approx(found.saved_share)
    nearby = [found.params * part for part in (0.9, 1.1)]
    for params in nearby:
        left = (
            training.loss(100e9, 2e12) - training.LOSS - training.WEIGHTS[0] / params ** training.WEIGHTS[1]
        )
        tokens = (training.TOKENS[0] / left) ** (1 / training.TOKENS[1])
        assert params * (6 * tokens + 2 * 200e12) > life


# --- what cannot be


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ddr6.usd_per_h=1 USD/h", "ddr5"),
        ("ddr5.price=1", "usd_per_h"),
        ("ddr5.usd_per_h=-1 USD/h", "ddr5.usd_per_h"),
    ],
)
def test_figures_of_tiers_that_are_none(line: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        tiers_set([line])


@pytest.mark.parametrize(
    "asked",
    [
        {"price_in": -1},
        {"price_long": "6@0"},
        {"price_long": "6"},
        {"months": 0},
        {"active": "nan"},
        {"tok_s": 0},
    ],
)
def test_prices_that_cannot_be(asked: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(asked))) as refused:
        economics(**asked)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "asked",
    [{"phase": "both"}, {"stages": -1}, {"batches": "none"}, {"batches": "0"}, {"context": 0}, {"req_s": 0}],
)
def test_questions_that_cannot_be(asked: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(asked))):
        rackplan.roofline("deepseek-v3", "lecture-72", **asked)
