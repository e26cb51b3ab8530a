"""Work of attention, dense weights and experts: flop and bytes by hand, on 100 Tflop/s and 1 TB/s."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from cost.experts.tokens.reach import balanced_use
from cost.inputs.machine import Unit, stage_rates
from cost.inputs.workload import StepShape
from cost.resolve import resolve_model
from cost.terms.attention import attention_works
from cost.terms.dense import dense_work
from cost.terms.experts import DRAFT_SPREAD, _touched, even_expert_work, placed_expert_work


@pytest.fixture
def rates(toy):
    return stage_rates(toy.cluster(4), range(4), ["bf16", "fp8"])


def works_of(toy, shape, rates, *, kv="bf16", weights="bf16"):
    return attention_works(toy.attention, shape, hidden=64, kv_dtype=kv, weights=weights, rates=rates)


def test_dense_flop_and_bytes(rates):
    # 2 flop a weight and token; 2 bytes a weight once, cut by tp, while tp times the tokens keep the flop alike
    work = dense_work(1e6, tokens=10, tp=1, hidden=64, weights="bf16", rates=rates)
    assert work.compute_s == pytest.approx(2e7 / 1e14)
    assert work.memory_s == pytest.approx(2e6 / 1e12)
    assert (work.term, work.units, work.hbm) == ("dense", (Unit("gemm.bf16"),), "hbm.weights")
    assert work.columns == pytest.approx(64 * 3), "100 flop per byte fill three times as easily as 300"
    cut = dense_work(1e6, tokens=10, tp=4, hidden=64, weights="bf16", rates=rates)
    assert cut.compute_s == work.compute_s
    assert cut.memory_s == pytest.approx(work.memory_s / 4)
    assert cut.columns == pytest.approx(16 * 3)
    eight = dense_work(1e6, tokens=10, tp=1, hidden=64, weights="fp8", rates=rates, term="head")
    assert (eight.term, [unit.fraction for unit in eight.units]) == ("head", ["gemm.fp8"])
    assert eight.columns == pytest.approx(64 * 1.5)
    assert eight.compute_s == pytest.approx(2e7 / 2e14)
    assert eight.memory_s == pytest.approx(1e6 * (1 + 4 / 128**2) / 1e12)


@pytest.mark.parametrize(
    ("tp", "weights", "cache"), [(1, 24_576, 38_400), (2, 12_288, 38_400), (4, 6_144, 76_800)]
)
def test_grouped_attention(toy, rates, tp, weights, cache):
    # 12,288 weights. 3 tokens x 100 cached x 2 heads x 32 elements x 2 bytes = 38,400 bytes; four ranks share two
    # KV heads, so each holds half of what four times the sequences need.
    shape = StepShape(tp=tp, sequences=3, context=100)
    projections, scores = works_of(toy, shape, rates)
    assert projections.compute_s == pytest.approx(2 * 12_288 * 3 / 1e14)
    assert projections.memory_s == pytest.approx(weights / 1e12)
    assert projections.columns == pytest.approx(3 * 64 / tp)
    assert scores.compute_s == pytest.approx(3 * 100 * 2 * 4 * 32 / 1e14)
    assert scores.memory_s == pytest.approx(cache / 1e12)
    assert (scores.units, scores.hbm) == ((Unit("attention.decode.bf16"),), "hbm.cache")


def test_scores_multiply_in_the_format_of_the_cache_where_the_chip_can(toy):
    shape = StepShape(sequences=3, context=100)
    both = stage_rates(toy.cluster(4), range(4), ["bf16", "fp8"])
    projections, scores = works_of(toy, shape, both, kv="fp8", weights="fp8")
    assert projections.compute_s == pytest.approx(2 * 12_288 * 3 / 2e14)
    assert projections.memory_s == pytest.approx(12_288 * (1 + 4 / 128**2) / 1e12)
    assert scores.compute_s == pytest.approx(76_800 / 2e14)
    assert scores.memory_s == pytest.approx(19_200 / 1e12)
    # BF16 kernels on the same cache: half of the peak
    assert scores.units == (Unit("attention.decode.fp8", (("attention.decode.bf16", 0.5),)),)
    old = stage_rates(toy.cluster(toy.domain(4, chip=toy.gpu(fp8=0))), range(4), ["bf16", "fp8"])
    assert works_of(toy, shape, old, kv="fp8")[1].compute_s == pytest.approx(76_800 / 1e14)


def test_a_prompt_computes_tokens_times_half_its_length(toy, rates):
    # 6 tokens of prompts of 100: each sees 50 on average, 2 x 4 heads x 32 flop for each
    projections, scores = works_of(toy, StepShape(prompt_tokens=6, prompt_length=100), rates)
    assert projections.compute_s == pytest.approx(2 * 12_288 * 6 / 1e14)
    assert scores.compute_s == pytest.approx(6 * 50 * 2 * 4 * 32 / 1e14)
    assert scores.memory_s == 0
    assert scores.units == (Unit("attention.prefill"),)
    longer = works_of(toy, StepShape(prompt_tokens=6, prompt_length=200), rates)[1]
    assert longer.compute_s == pytest.approx(2 * scores.compute_s)


def test_a_mixed_step_has_both_kinds_of_scores(toy, rates):
    shape = StepShape(sequences=3, context=100, prompt_tokens=6, prompt_length=100)
    projections, decoding, prompts = works_of(toy, shape, rates)
    assert projections.compute_s == pytest.approx(2 * 12_288 * 9 / 1e14)
    assert decoding.compute_s == works_of(toy, replace(shape, prompt_tokens=0.0), rates)[1].compute_s
    assert prompts.compute_s == works_of(toy, replace(shape, sequences=0.0), rates)[1].compute_s


def test_placed_experts_compute_their_pairs_and_read_what_is_touched(toy, rates):
    # 12 tokens x top 2 over 4 GPUs: 6 pairs each; 2 slots a GPU, each missed by 12 tokens with chance 0.75 ** 12
    use = balanced_use(2, np.full(4, 2), experts=8, top_k=2)
    work = placed_expert_work(toy.moe.ffn, use, tokens=12, weights="bf16", rates=rates)
    assert work.compute_s.shape == work.memory_s.shape == (1, 1, 4)
    assert work.compute_s == pytest.approx(2 * 3_000 * 6 / 1e14)
    assert work.memory_s == pytest.approx(2 * (1 - 0.75**12) * 3_000 * 2 / 1e12)


@pytest.mark.parametrize(
    ("changed", "pairs", "read", "columns"),
    [
        ({"ep": 4}, 6, 2 * (1 - 0.75**12), 3 * 16),
        # 16 slots of 8 experts: 4 a GPU, a token uses a slot with chance 2/16
        ({"ep": 4, "slots": 16}, 6, 4 * (1 - 0.875**12), 3 * 16),
        # 2 groups of 2 GPUs: 4 experts a group, each cut in two
        ({"ep": 2, "moe_tp": 2}, 12 / 2, 4 * (1 - 0.75**12) / 2, 3 * 16 / 2),
        # flop of the busiest GPU
        ({"ep": 4, "imbalance": 1.5}, 1.5 * 6, 2 * (1 - 0.75**12), 3 * 16),
    ],
)
def test_even_experts_compute_and_read(toy, rates, changed, pairs, read, columns):
    shape = StepShape(attention_dp=4, sequences=3, **changed)
    work = even_expert_work(toy.moe.ffn, shape, weights="bf16", rates=rates)
    assert work.compute_s == pytest.approx(2 * 3_000 * pairs / 1e14)
    assert work.memory_s == pytest.approx(read * 3_000 * 2 / 1e12)
    assert work.columns == columns


def test_the_rest_of_a_prompt_attends_to_its_cached_part(toy, rates):
    # 40 new tokens after 60 cached ones see 60.5 to 99.5 of them, 80 on average; 2 x 4 heads x 32 flop for each
    shape = StepShape(prompt_tokens=40.0, prompt_length=100.0, prompt_cached=60.0)
    scores = works_of(toy, shape, rates)[-1]
    assert scores.compute_s == pytest.approx(40 * 80 * 4 * 2 * 32 / 1e14)
    # the 60 are read once: 2 heads x 32 elements x 2 bytes
    assert scores.memory_s == pytest.approx(60 * 2 * 32 * 2 / 1e12)
    whole = works_of(toy, StepShape(prompt_tokens=100.0, prompt_length=100.0), rates)[-1]
    first = works_of(toy, StepShape(prompt_tokens=60.0, prompt_length=60.0), rates)[-1]
    assert scores.compute_s == pytest.approx(whole.compute_s - first.compute_s)


def test_mla_rebuilds_keys_and_values_of_the_cached_part(rates):
    latent = resolve_model("deepseek-v3").layers[0].attention
    one = {"hidden": 7168, "kv_dtype": "bf16", "weights": "bf16", "rates": rates}
    shape = StepShape(prompt_tokens=1.0, prompt_length=1001.0, prompt_cached=1000.0)
    scores = attention_works(latent, shape, **one)[-1]
    seen = 2 * 128 * (192 + 128) * (1001**2 - 1000**2) / 2
    rebuilt = 1000 * 2 * 512 * 128 * 256
    assert scores.compute_s == pytest.approx((seen + rebuilt) / 1e14)
    assert scores.memory_s == pytest.approx(1000 * 576 * 2 / 1e12)


@pytest.mark.parametrize("skew", [0.63, 1.0, 1.4])
@pytest.mark.parametrize("tokens", [1, 8, 64, 1000, 30_000])
def test_experts_of_unequal_use_as_by_brute_force(skew, tokens):
    # 100,000 experts at even steps of the normal distribution: each token uses each with its own chance
    chance = 8 / 256
    use = np.exp(skew * norm.ppf((np.arange(100_000) + 0.5) / 100_000) - skew**2 / 2)
    expected = np.mean(1 - (1 - np.minimum(chance * use, 1.0)) ** tokens)
    assert _touched(chance, tokens, skew) == pytest.approx(expected, rel=1e-3 if skew <= 1 else 0.01)


def test_drafts_of_a_sequence_use_its_experts_again_where_use_is_unequal(toy, rates):
    # 2 sequences of 3 tokens on 4 GPUs with 8 experts, top 2: 24 tokens, of which unequal use counts 16
    shape = StepShape(attention_dp=4.0, ep=4.0, sequences=2.0, queries=3.0)
    work = {
        skew: even_expert_work(toy.moe.ffn, replace(shape, skew=skew), weights="bf16", rates=rates)
        for skew in (0.0, 1.0)
    }
    byte_s = 2 * 3000 / 1e12
    assert DRAFT_SPREAD == 0.5
    assert work[0.0].memory_s == pytest.approx(2 * (1 - 0.75**24) * byte_s)
    assert work[1.0].memory_s == pytest.approx(2 * float(_touched(0.25, 16.0, 1.0)) * byte_s)
    assert work[1.0].compute_s == pytest.approx(work[0.0].compute_s), "all tokens are computed"


@pytest.mark.parametrize(
    ("shape", "uneven"),
    [
        ({"attention_dp": 8.0, "sequences": 4.0}, np.sqrt(2 * np.log(8) / 4)),
        ({"attention_dp": 8.0, "sequences": 2.0, "tp": 2.0}, np.sqrt(2 * np.log(8) / 4)),
        ({"attention_dp": 8.0, "sequences": 0.1}, np.sqrt(2 * np.log(8))),  # a request at least
        ({"attention_dp": 2.0, "sequences": 1.0}, 1.0),  # not more than both requests on one rank
        ({"attention_dp": 1.0, "sequences": 4.0, "tp": 8.0}, 0.0),
        ({"attention_dp": 8.0, "sequences": 4.0, "random": 0.0}, 0.0),
    ],
)
def test_ranks_with_more_than_their_share_of_requests(toy, rates, shape, uneven):
    projections, scores = works_of(toy, StepShape(context=100.0, **shape), rates)
    assert float(scores.uneven) == pytest.approx(float(uneven))
    assert projections.uneven == 0.0


@pytest.mark.parametrize("share", [0.25, 0.96875])
def test_a_mixture_takes_the_time_of_its_formats_one_after_the_other(toy, share):
    name = f"fp8*{share}+bf16*{1 - share}"
    rates = stage_rates(toy.cluster(4), range(4), [name, "fp8", "bf16"])
    reach = toy.coefficients(gemm__fp8=0.4, gemm__bf16=0.7, hbm__weights=0.8)

    def seconds(weights, params):
        work = dense_work(params, tokens=10, tp=1, hidden=64, weights=weights, rates=rates)
        return [*work.seconds(reach), work.least_compute_s]

    parts = zip(seconds("fp8", share * 1e6), seconds("bf16", (1 - share) * 1e6), strict=True)
    assert seconds(name, 1e6) == pytest.approx([one + other for one, other in parts])
