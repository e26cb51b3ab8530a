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
from cost.principles.tiers import tiers_set
from cost.resolve import resolve_model
from topology import InputError, load_gpu, resolve_cluster


def board(model: str = "deepseek-v3", cluster: str = "lecture-72", **asked: object) -> Roofline:
    return Roofline(Deployment(resolve_cluster(cluster), resolve_model(model), Workload(**asked)))


# --- a step


def test_a_step_is_the_larger_of_computing_and_reading() -> None:
    assert step.compute_s(2400.0, 37e9, 64 * 2.4e15) == pytest.approx(2 * 2400 * 37e9 / (64 * 2.4e15))
    assert step.memory_s(671e9, 100 * 4096 * 70e3, 64 * 8e12) == pytest.approx(
        (671e9 + 100 * 4096 * 70e3) / 512e12
    )
    steps = board().steps(np.array([1.0, 1e6]))
    assert steps["lower_step_s"].tolist() == np.maximum(steps["compute_s"], steps["hbm_s"]).tolist()
    assert steps["flop_share"] == pytest.approx(steps["compute_s"] / steps["step_s"])
    shares = board(cluster="gb200-nvl72").figures
    ratio = shares["prefill_flop_share"] / shares["decode_flop_share"]  # prefill uses more of the peak
    assert shares["flop_share_ratio"] == pytest.approx(ratio)
    assert 2 < ratio < 5


def test_flop_per_byte_and_the_batch_that_balances() -> None:
    gpu = load_gpu("lecture")
    model = resolve_model("mixtral-8x7b")  # BF16: 300 x total / active
    assert step.balancing_batch(model, gpu) == pytest.approx(300 * model.total_params / model.active_params)
    assert board().figures["bf16_flop_per_byte"] == 300
    for cluster, ratio in (("hgx-a100", 153), ("hgx-h100", 295), ("gb200-nvl72", 312)):
        assert board(cluster=cluster).figures["bf16_flop_per_byte"] == pytest.approx(ratio, abs=0.6)
    assert lecture()["balancing_batch"].value == 300 * 256 / 32 == 2400
    figures = board().figures
    assert (figures["sweep_s"], figures["longest_wait_s"]) == (160e9 / 8e12, 0.04)
    assert figures["fill_s"] == pytest.approx(figures["balancing_batch"] / 20_000)
    assert figures["domain_tok_s"] == pytest.approx(figures["balancing_batch"] / 0.02)
    assert figures["domains_wanted"] == math.ceil(200e6 / figures["domain_tok_s"])
    alone = board("llama-3.1-70b", "hgx-h100").figures  # BF16: embeddings are read but not multiplied
    assert alone["unbatched_cost_ratio"] == pytest.approx(295, rel=0.01)


# --- experts within a domain, layers over domains


def test_one_domain_bounds_an_expert_layer() -> None:
    figures = board().figures
    assert figures["gpu_experts"] == 256 / 64 == 4
    assert [links.even_gpus(*sizes) for sizes in ((384, 72), (128, 576), (60, 8))] == [64, 128, 6]
    assert (
        figures["activation_bytes_per_token"] == 34 * 7168 * 61 == 61 * figures["reversible_bytes_per_token"]
    )
    assert [figures[f"leaving_{count}_share"] for count in (2, 4, 8)] == [0.5, 0.75, 0.875]
    assert figures["scale_up_rate_ratio"] == pytest.approx(8)
    assert figures["scale_up_links"] == 2
    assert figures["domain_hbm_bytes_per_s"] == 72 * 8e12
    tokens_each = figures["balancing_batch"] / 64
    seconds = 2 * 7168 * 2 * tokens_each * 8 * 63 / 64 / 900e9  # dispatch and combine of 8 copies in BF16
    assert figures["alltoall_inside_s"] == pytest.approx(seconds)
    assert figures["alltoall_across_s"] == pytest.approx(2 * 7168 * 2 * tokens_each * 8 / 2 / 112.5e9)
    assert board(cluster="hgx-h100").figures["scale_up_rate_ratio"] == pytest.approx(9)
    assert board(cluster="gb200-nvl72").figures["scale_up_rate_ratio"] == pytest.approx(18)


def test_stages_share_weights_and_not_the_cache() -> None:
    in_halves, in_quarters = (Roofline(board().deployment, stages).figures for stages in (2, 4))
    assert in_quarters["stage_weight_bytes"] == in_halves["stage_weight_bytes"] / 2
    assert in_quarters["stage_kv_bytes"] == in_halves["stage_kv_bytes"]
    assert in_halves["stage_links_ratio"] == pytest.approx(8 * 61 / 2 * 2 / 8)
    assert in_halves["hop_bytes_per_step"] == pytest.approx(in_halves["balancing_batch"] * 7168 * 2)
    assert (in_halves["lone_bubble_share"], in_quarters["lone_bubble_share"]) == (1 / 2, 3 / 4)  # (p-1)/p
    assert links.training_bubble(4, 16) == 3 / 19
    # a pipeline changes the latency of a token by its hops alone
    alone, halves = (Roofline(board().deployment, stages).predicted_s(1000.0) for stages in (1, 2))
    assert 0 < halves - alone < 0.01 * alone
    hosts = board(cluster="hgx-h100")  # as many stages as hold the weights
    assert (board().depth, hosts.depth) == (
        1,
        math.ceil(hosts.weight_bytes / (0.9 * 8 * load_gpu("h100-sxm").hbm_bytes)),
    )


# --- context


def test_a_wall_where_reading_a_cache_takes_longer_than_computing() -> None:
    contexts = 2.0 ** np.arange(0, 24, 0.5)
    # the lecture: 2 kB a token and 100 B active weights of 300 flop per byte, one operation a weight
    assert step.wall(2 * 1667 * contexts, contexts, 100e9, 300) == pytest.approx(200e3, rel=1e-3)
    assert step.wall(0 * contexts, contexts, 100e9, 300) is None
    figures = board().figures
    assert figures["sparse_wall_context"] == figures["wall_context"] ** 2
    kv = figures["kv_bytes_per_token"]
    assert figures["wall_context"] == pytest.approx(
        2 * 37.55e9 / (600 * kv), rel=0.03
    )  # FP8: 600 flop per byte
    assert figures["equal_context"] == pytest.approx(
        figures["weight_bytes"] / (figures["balancing_batch"] * kv)
    )
    near, far = board(context=4096).figures, board(context=8192).figures
    assert near["compute_per_token_s"] == far["compute_per_token_s"]
    assert far["cache_read_per_token_s"] == pytest.approx(2 * near["cache_read_per_token_s"])


# --- prices


def economics(**asked: object) -> Economics:
    return rackplan.economics(**asked)


def test_the_bytes_behind_a_price() -> None:
    assert prices.kv_bytes_behind(100e9, 200e3, 300, 1.0) == pytest.approx(1667, abs=1)
    figures = economics().figures
    assert figures["price_kv_bytes"] == pytest.approx(100e9 / (200e3 * 312.5))
    assert figures["price_kv_flop_bytes"] == 2 * figures["price_kv_bytes"]
    assert (figures["output_over_input"], figures["input_over_cached"]) == (5, pytest.approx(10))
    assert (figures["long_premium"], figures["covered_context"]) == (2, 400e3)


def test_a_cached_token_is_computed_again_or_kept() -> None:
    prices_now = economics(prices={"gb200": 3.6})
    usd = 2 * 100e9 / (5e15 * prices_now.roofline.figures["prefill_flop_share"]) * 3.6 / 3600
    assert prices_now.computing_usd == pytest.approx(usd, rel=0.02)
    hbm = prices_now.kept[0]
    assert hbm.usd[0] == pytest.approx(1e6 * 2000 * 3.6 / 3600 * (300 / 186e9 + 1 / 8e12), rel=0.1)
    held = hbm.cheaper_than_computing_s
    assert hbm.tier.usd(prices_now.kv_bytes, held) == pytest.approx(prices_now.computing_usd)
    unpriced = economics(cluster="lecture-72")
    assert unpriced.computing_usd is None
    assert unpriced.kept[0].usd == (None, None)


def test_tokens_over_a_life() -> None:
    figures = economics().figures
    assert training.inference_tokens(500e6, 2) == pytest.approx(2600e12, rel=0.02)
    assert figures["served_tokens"] == pytest.approx(200e12, rel=0.06)
    assert figures["chinchilla_tokens"] == 2e12
    assert figures["overtraining"] == pytest.approx(100, rel=0.06)
    flop = (
        "pretrain_flop_per_token",
        "inference_flop_per_token",
        "low_rl_flop_per_token",
        "high_rl_flop_per_token",
    )
    assert [figures[key] for key in flop] == [6e11, 2e11, 2e11, 6e11]
    # 6 N D at 3 times the utilisation costs as much as 2 N D
    assert training.equal_cost_tokens(90.0, 6.0, 3.0) == 90
    assert figures["high_equal_rl_tokens"] == figures["served_tokens"]


def test_a_smaller_model_is_as_good_and_costs_less() -> None:
    best = training.smaller(100e9, 200e12)
    assert training.loss(best.params, best.tokens) == pytest.approx(training.loss(100e9, 2e12))
    assert best.params < 100e9
    assert best.tokens > 2e12
    life = best.params * (6 * best.tokens + 2 * 200e12)
    assert 1 - life / (100e9 * (6 * 2e12 + 2 * 200e12)) == pytest.approx(best.saved_share)
    nearby = [best.params * part for part in (0.9, 1.1)]
    for params in nearby:
        left = (
            training.loss(100e9, 2e12) - training.LOSS - training.WEIGHTS[0] / params ** training.WEIGHTS[1]
        )
        tokens = (training.TOKENS[0] / left) ** (1 / training.TOKENS[1])
        assert params * (6 * tokens + 2 * 200e12) > life


# --- what cannot be


def test_what_a_faster_mode_costs() -> None:
    """Of a step of 10 s, 2 s of it weights: in 5 s there is room for 3 of 8 sequences; at 2 s for none."""
    assert step.faster(2, 10.0, 2.0) == (5, pytest.approx(1 / 2 / (3 / 8)))
    assert step.faster(5, 10.0, 2.0) == (5, None)


def test_questions_that_cannot_be() -> None:
    for asked in ({"price_in": -1}, {"price_long": "6@0"}, {"months": 0}, {"active": "nan"}, {"tok_s": 0}):
        with pytest.raises(InputError, match=next(iter(asked))):
            economics(**asked)
    for asked in ({"phase": "both"}, {"stages": -1}, {"batches": "none"}, {"req_s": 0}):
        with pytest.raises(InputError, match=next(iter(asked))):
            rackplan.roofline("deepseek-v3", "lecture-72", **asked)
    for line in ("ddr6.usd_per_h=1 USD/h", "ddr5.price=1", "ddr5.usd_per_h=-1 USD/h"):
        with pytest.raises(InputError, match="ddr"):
            tiers_set([line])
