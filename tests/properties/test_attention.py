"""Cache bytes, reads and flop of each kind of attention, by hand and as invariants; what a query sees."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.attention import (
    BlockSparse,
    CompressedAttention,
    GatedDelta,
    GroupedQuery,
    IndexedLatent,
    KimiDelta,
    Latent,
    Lightning,
    Mamba2,
    NoAttention,
    ShortConv,
)
from cost.quantity import mean_prompt_span, span
from cost.resolve import resolve_model

V3 = Latent(hidden=7168, heads=128, q_rank=1536, kv_rank=512, nope=128, rope=64, value_dim=128)
V32 = IndexedLatent(
    hidden=7168, heads=128, q_rank=1536, kv_rank=512, nope=128, rope=64, value_dim=128,
    index_heads=64, index_dim=128, top_k=2048,
)  # fmt: skip
LLAMA = GroupedQuery(hidden=4096, heads=32, kv_heads=8, head_dim=128, value_dim=128)
WINDOW = GroupedQuery(hidden=4096, heads=32, kv_heads=8, head_dim=128, value_dim=128, window=128)
CHUNK = GroupedQuery(hidden=64, heads=4, kv_heads=2, head_dim=16, value_dim=16, window=256, chunked=True)
DELTA = GatedDelta(hidden=2048, key_heads=16, key_dim=128, value_heads=32, value_dim=128, kernel=4)
KDA = KimiDelta.of(hidden=2304, heads=32, head_dim=128, kernel=4)
M3 = BlockSparse(
    hidden=6144, heads=64, kv_heads=4, head_dim=128, value_dim=128, index_heads=4, index_dim=128, block=128,
    top_blocks=16,
)  # fmt: skip
POOLED = replace(V32, pool=4)
MAMBA = Mamba2(
    hidden=2688, heads=64, head_dim=64, state=128, groups=8, kernel=4, conv_bias=True, chunk=128, state_dtype_bytes=4
)  # fmt: skip
SWA = CompressedAttention(
    hidden=7168, heads=128, head_dim=512, q_rank=1536, o_groups=16, o_rank=1024, window=128, rate=0
)
HCA, CSA = replace(SWA, rate=128), replace(SWA, rate=4, index_heads=64, index_dim=128, top_k=1024)
LIGHT, CONV = Lightning(6144, 64, 128, other_params=0), ShortConv(2048, kernel=3)
ALL = {
    "mla": V3, "dsa": V32, "gqa": LLAMA, "swa": WINDOW, "chunked": CHUNK, "linear": DELTA, "csa": CSA, "hca": HCA,
    "v4-window": SWA, "kda": KDA, "bsa": M3, "dsa-pooled": POOLED, "mamba2": MAMBA, "none": NoAttention(),
    "lightning": LIGHT, "conv": CONV,
}  # fmt: skip


def test_mla_check_values():
    assert V3.matmul_params == 187_105_280
    assert V3.decode_flop(1) == 278_528
    assert V3.cache_bytes(4096, 2) == 4096 * 576 * 2
    assert V3.decode_flop(1000) / V3.read_bytes(1000, 2) == pytest.approx(241.8, abs=0.1)
    assert V3.prefill_flop(1000) == 40_960 * 1000
    assert [V3.kv_shards(tp) for tp in (1, 8)] == [1, 1]


def test_sparse_index_reads_keys_of_all_and_latents_of_some():
    context = 100_000
    assert V32.cache_bytes(context, 2) == context * (576 * 2 + 132)
    assert V32.cache_bytes(context, 1) == context * (656 + 132), "positions in BF16, scales"
    assert V32.read_bytes(context, 2) == context * 132 + 2048 * 576 * 2
    assert V32.decode_flop(context) == 2 * 64 * 128 * context + 278_528 * 2048
    assert V32.matmul_params - V3.matmul_params == 1536 * 64 * 128 + 7168 * (128 + 64)
    shared = replace(V32, own_index=False)
    assert shared.cache_bytes(10, 2) == V3.cache_bytes(10, 2)
    assert shared.decode_flop(10_000) == 278_528 * 2048
    assert POOLED.cache_bytes(context, 2) == context * (576 * 2 + 132 / 4), "a key for every four tokens"
    assert POOLED.decode_flop(context) == 2 * 64 * 128 * context / 4 + 278_528 * 2048


def test_gqa_check_values():
    assert LLAMA.cache_bytes(1, 2) == 2 * 8 * 128 * 2
    assert LLAMA.decode_flop(1) == 4 * 32 * 128
    assert LLAMA.decode_flop(10) / LLAMA.read_bytes(10, 2) == 2 * 32 / (8 * 2)
    for of in (
        lambda a, c: a.cache_bytes(c, 2),
        lambda a, c: a.read_bytes(c, 2),
        lambda a, c: a.decode_flop(c),
    ):
        assert of(WINDOW, 10_000) == of(WINDOW, 128) == of(LLAMA, 128)
    shared = replace(WINDOW, own_cache=False)
    assert (shared.cache_bytes(10_000, 2), shared.read_bytes(10_000, 2)) == (0, WINDOW.read_bytes(10_000, 2))
    assert [LLAMA.kv_shards(tp) for tp in (1, 4, 8, 16)] == [1, 4, 8, 8]
    assert resolve_model("llama-3.1-70b").layers[0].attention.cache_bytes(1, 2) * 80 == 327_680


def test_kimi_delta_by_hand():
    wide = 32 * 128
    state = 32 * 128 * 128 * 4 + 3 * wide * 3 * 2
    assert KDA.cache_bytes(1, 2) == KDA.cache_bytes(10**6, 1) == state
    assert KDA.read_bytes(5, 2) == 2 * state
    convolution = 2 * 4 * 3 * wide
    assert KDA.decode_flop(5) == 7 * 32 * 128 * 128 + convolution
    # arXiv:2510.26692, eq. 13, for a token: 6 d^2 + 3 C d + C^2 a head with C = 64
    assert KDA.prefill_flop(5) == 32 * (98_304 + 24_576 + 4_096) + convolution
    assert [KDA.kv_shards(tp) for tp in (1, 8, 64)] == [1, 8, 32]


def test_mamba2_by_hand():
    inner, channels = 64 * 64, 64 * 64 + 2 * 8 * 128
    assert MAMBA.cache_bytes(1, 2) == MAMBA.cache_bytes(10**6, 1) == inner * 128 * 4 + channels * 3 * 2
    assert MAMBA.read_bytes(5, 2) == 2 * MAMBA.cache_bytes(5, 2)
    convolution = 2 * 4 * channels
    assert MAMBA.decode_flop(5) == 5 * inner * 128 + convolution
    # arXiv:2405.21060, section 6.3, for a token in chunks of 128: 2 Q N a group, 2 Q P + 4 N P a head
    assert MAMBA.prefill_flop(5) == 8 * 32_768 + 64 * (16_384 + 32_768) + convolution
    assert [MAMBA.kv_shards(tp) for tp in (1, 8, 128)] == [1, 8, 64]


def test_block_sparse_reads_index_keys_of_all_and_blocks_of_some():
    context = 100_000
    pair = 2 * 4 * 128
    assert M3.cache_bytes(context, 2) == context * (pair + 128) * 2
    assert M3.read_bytes(context, 2) == (context * 128 + 2048 * pair) * 2
    assert M3.decode_flop(context) == 2 * 4 * 128 * context + 4 * 64 * 128 * 2048
    assert M3.read_bytes(1000, 2) == M3.cache_bytes(1000, 2)  # fewer tokens than 16 blocks: all are read
    # four ranks hold a key-value head each, and all of the index keys
    assert M3.cache_bytes(1, 2) / M3.kv_shards(4) == pytest.approx(2 * (pair / 4 + 128))
    assert M3.cache_bytes(context, 1) == context * (pair + 2 * 128)  # index keys stay in BF16


def test_deepseek_v4_cache_is_the_published_one():
    # vLLM's note on DeepSeek-V4 gives 9.62 GiB a sequence of 2^20 tokens with everything in BF16, index keys too.
    model, context = resolve_model("deepseek-v4-pro"), 2**20
    total = 0.0
    for layer in model.layers:
        attention = layer.attention
        total += attention.cache_bytes(context, 2) - attention.state_bytes - attention.index_bytes(context)
        total += attention.entries(context) * attention.index_dim * 2
    assert total / 2**30 == pytest.approx(9.62, abs=0.01)


@pytest.mark.parametrize("attention", ALL.values(), ids=ALL)
@given(context=st.integers(0, 10**6), more=st.integers(0, 10**6), kv_bytes=st.sampled_from([1.0, 2.0]))
def test_grows_with_context_and_reads_no_more_than_it_holds(attention, context, more, kv_bytes):
    later = context + more
    for of in (attention.decode_flop, attention.prefill_flop):
        assert 0 <= of(context) <= of(later) * (1 + 1e-12)
    assert attention.cache_bytes(context, kv_bytes) <= attention.cache_bytes(later, kv_bytes)
    assert attention.read_bytes(context, kv_bytes) <= 2 * attention.cache_bytes(context, kv_bytes)
    assert attention.cache_bytes(context, 1.0) <= attention.cache_bytes(context, 2.0)
    assert sum(attention.modules.values()) == attention.matmul_params
    assert 1 <= attention.kv_shards(4) <= 4


@given(context=st.integers(1, 300), window=st.one_of(st.none(), st.integers(1, 300)))
def test_mean_span_of_a_prompt_is_the_mean(context, window):
    # Token i (from 0) sees between i and i + 1 tokens; the formula takes the middle.
    low = sum(span(i, window) for i in range(context)) / context
    high = sum(span(i + 1, window) for i in range(context)) / context
    assert low <= mean_prompt_span(context, window) <= high
