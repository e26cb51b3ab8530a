"""Work of attention, dense weights and experts: flop and bytes by hand, on 100 Tflop/s and 1 TB/s."""

import numpy as np
import pytest

from cost.expert_use import balanced_use
from cost.rates import stage_rates
from cost.resolve import resolve_model
from cost.terms.attention import attention_work
from cost.terms.dense import dense_work
from cost.terms.experts import expert_times
from cost.terms.work import Work
from topology import resolve_cluster


@pytest.fixture
def rates(toy):
    return stage_rates(toy.cluster(4), range(4), ["bf16", "fp8"])


def test_work_is_the_larger_of_computing_and_reading():
    work = Work(compute_s=2.0, memory_s=3.0)
    assert work.seconds(1.0, 1.0) == 3.0
    assert work.limit(1.0, 1.0) == "HBM bandwidth"
    assert work.seconds(0.5, 1.0) == 4.0  # half of the peak: twice as long
    assert work.limit(0.5, 1.0) == "compute"
    assert Work(1.0, 1.0).limit(1.0, 1.0) == "compute"


def test_dense_flop_and_bytes(rates):
    # 2 flop a weight and token; 2 bytes a weight once, cut by tp, while tp times the tokens keep the flop alike
    work = dense_work(1e6, tokens=10, tp=1, weights="bf16", rates=rates)
    assert work.compute_s == pytest.approx(2e7 / 1e14)
    assert work.memory_s == pytest.approx(2e6 / 1e12)
    cut = dense_work(1e6, tokens=10, tp=4, weights="bf16", rates=rates)
    assert cut.compute_s == work.compute_s
    assert cut.memory_s == pytest.approx(work.memory_s / 4)
    eight = dense_work(1e6, tokens=10, tp=1, weights="fp8", rates=rates)
    assert eight.compute_s == pytest.approx(2e7 / 2e14)
    assert eight.memory_s == pytest.approx(1e6 * (1 + 4 / 128**2) / 1e12)


@pytest.mark.parametrize(
    ("tp", "weights", "cache"), [(1, 24_576, 38_400), (2, 12_288, 38_400), (4, 6_144, 76_800)]
)
def test_grouped_attention(toy, rates, tp, weights, cache):
    # 12,288 weights. 3 tokens x 100 cached x 2 heads x 32 elements x 2 bytes = 38,400 bytes; four ranks share two
    # KV heads, so each holds half of what four times the sequences need.
    work = attention_work(
        toy.attention, tokens=3, tp=tp, context=100, kv_dtype="bf16", weights="bf16", rates=rates
    )
    assert work.compute_s == pytest.approx((2 * 12_288 * 3 + 3 * 100 * 2 * 4 * 32) / 1e14)
    assert work.memory_s == pytest.approx((weights + cache) / 1e12)


def test_scores_multiply_in_bf16_whatever_the_cache(toy, rates):
    eight = attention_work(
        toy.attention, tokens=3, tp=1, context=100, kv_dtype="fp8", weights="fp8", rates=rates
    )
    assert eight.compute_s == pytest.approx(2 * 12_288 * 3 / 2e14 + 76_800 / 1e14)
    assert eight.memory_s == pytest.approx((12_288 * (1 + 4 / 128**2) + 19_200) / 1e12)


def test_latent_attention_is_not_cut_by_tensor_parallelism():
    model, rates = (
        resolve_model("deepseek-v3"),
        stage_rates(resolve_cluster("hgx-h100"), range(8), ["fp8", "bf16"]),
    )
    shared = {"context": 4096, "kv_dtype": "bf16", "weights": "fp8", "rates": rates}
    works = {tp: attention_work(model.layers[0].attention, tokens=16, tp=tp, **shared) for tp in (1, 8)}
    stored = 187_107_328 * (1 + 4 / 128**2)  # 187.1 M weights with the norms of the latents
    cache = 16 * 4096 * 576 * 2
    assert works[1].memory_s * 3.35e12 == pytest.approx(stored + cache)
    assert works[8].memory_s * 3.35e12 == pytest.approx(stored / 8 + 8 * cache)
    assert works[1].compute_s == works[8].compute_s
    assert works[1].compute_s == pytest.approx(
        16 * 2 * 187_105_280 / 1979e12 + 16 * 278_528 * 4096 / 989.5e12
    )


def test_experts_compute_their_pairs_and_read_what_is_touched(toy, rates):
    # 12 tokens x top 2 over 4 GPUs: 6 pairs each; 2 slots a GPU, each missed by 12 tokens with chance 0.75 ** 12
    use = balanced_use(2, np.full(4, 2), experts=8, top_k=2)
    compute_s, read_s = expert_times(toy.moe.ffn, use, tokens=12, weights="bf16", rates=rates)
    assert compute_s.shape == read_s.shape == (1, 1, 4)
    assert compute_s == pytest.approx(2 * 3_000 * 6 / 1e14)
    assert read_s == pytest.approx(2 * (1 - 0.75**12) * 3_000 * 2 / 1e12)


def test_crossover_from_reading_to_computing_on_h100():
    # 295 tokens an expert: flop per byte of an H100 over 2 flop a weight, for one-byte weights at the FP8 peak
    moe = resolve_model("deepseek-v3").moe
    rates = stage_rates(resolve_cluster("hgx-h100"), range(8), ["fp8-row", "bf16"])
    use = balanced_use(1, np.full(8, 32), moe.experts, moe.top_k)
    for weights in ("fp8-row", "bf16"):
        tokens_per_expert = 295.4
        compute_s, read_s = expert_times(
            moe, use, tokens=tokens_per_expert * 256 / 8, weights=weights, rates=rates
        )
        assert compute_s / read_s == pytest.approx(1.0, abs=1e-3)
