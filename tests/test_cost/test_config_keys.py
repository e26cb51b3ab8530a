"""Keys of configs: one architecture in its several spellings; what cannot be read exactly is refused in one line."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.config.build import model_from_config
from cost.resolve import resolve_model
from topology.base.errors import InputError

DENSE = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MOE = {
    "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "moe_intermediate_size": 24, "num_experts": 8,
    "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 100,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MLA = {
    "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 8, "intermediate_size": 96, "moe_intermediate_size": 24, "n_routed_experts": 8,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "vocab_size": 100, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
OSS = {
    "model_type": "gpt_oss", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "num_local_experts": 8,
    "num_experts_per_tok": 2, "attention_bias": True, "sliding_window": 32, "vocab_size": 100,
    "layer_types": ["sliding_attention", "full_attention"] * 2, "tie_word_embeddings": False,
}  # fmt: skip
V4 = {
    "model_type": "deepseek_v4", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8, "head_dim": 16,
    "num_key_value_heads": 1, "q_lora_rank": 16, "o_groups": 2, "o_lora_rank": 8, "sliding_window": 8,
    "compress_ratios": [0, 4, 128], "hc_mult": 2, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 4,
    "moe_intermediate_size": 24, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "num_hash_layers": 1, "vocab_size": 100, "tie_word_embeddings": False,
}  # fmt: skip
NEXT = {
    "model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 8,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24,
    "vocab_size": 100, "tie_word_embeddings": False,
}  # fmt: skip
SCOUT = {
    "model_type": "llama4", "vision_config": {"hidden_size": 8}, "text_config": {
        "model_type": "llama4_text", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 32, "intermediate_size_mlp": 64,
        "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
        "attention_chunk_size": 8, "vocab_size": 100,
    },
}  # fmt: skip
SMALL = json.loads(Path(__file__).with_name("small_configs.json").read_text())
KIMI, K3, M3, GEMMA4, GLM53, NEMOTRON, DSA = (
    SMALL[name] for name in ("kimi", "k3", "m3", "gemma4", "glm53", "nemotron", "dsa")
)
STEP = dict(resolve_model("step-3.7-flash").config)
COUNTED = json.loads(Path(__file__).with_name("counted_by_transformers.json").read_text())["small"]
GRANITE, LING, LONGCAT, LAGUNA, LFM2 = (
    next(row["config"] for row in COUNTED if row["config"]["model_type"] == name)
    for name in ("granitemoehybrid", "bailing_hybrid", "longcat_flash", "laguna", "lfm2")
)
BASES = [DENSE, MOE, MLA, OSS, V4, NEXT, SCOUT, *SMALL.values(), GRANITE, LING, LONGCAT, LAGUNA, LFM2]
DROP = object()
GEMMA2 = {
    "model_type": "gemma2", "attention_bias": False, "head_dim": 256, "hidden_size": 3584, "intermediate_size": 14336,
    "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
    "sliding_window": 4096, "torch_dtype": "bfloat16", "vocab_size": 256000,
}  # fmt: skip


def changed(base: dict, **keys: object) -> dict:
    config = copy.deepcopy(base)
    for key, value in keys.items():
        if value is DROP:
            config.pop(key)
        else:
            config[key] = value
    return config


def within(base: dict, *path: str, **keys: object) -> dict:
    """Return ``base`` with the keys changed of the section that ``path`` leads to."""
    first, *rest = path
    return {**base, first: within(base[first], *rest, **keys) if rest else changed(base[first], **keys)}


@pytest.mark.parametrize("base", BASES, ids=[base["model_type"] for base in BASES])
def test_the_bases_are_good(base):
    assert model_from_config(base, name="base").total_params > 0


BAD = [
    # missing keys
    (changed(DENSE, hidden_size=DROP), "hidden_size"),
    (changed(DENSE, hidden_size=None), "hidden_size"),
    (changed(DENSE, model_type=DROP), "model_type"),
    (changed(MOE, num_experts=DROP), "num_local_experts"),
    (changed(MLA, q_lora_rank=DROP), "q_lora_rank"),
    (changed(OSS, layer_types=DROP), "layer_types"),
    (changed(V4, compress_ratios=DROP), "compress_ratios"),
    (changed(NEXT, full_attention_interval=DROP), "full_attention_interval"),
    # impossible values
    (changed(DENSE, hidden_size=0), "hidden_size"),
    (changed(DENSE, hidden_size="64"), "hidden_size"),
    (changed(DENSE, hidden_size=True), "hidden_size"),
    (changed(DENSE, hidden_size=float("nan")), "hidden_size"),
    (changed(DENSE, num_hidden_layers=10**9), "num_hidden_layers"),
    (changed(DENSE, tie_word_embeddings="no"), "tie_word_embeddings"),
    (changed(DENSE, torch_dtype="float8_e4m3fn"), "torch_dtype"),
    (changed(DENSE, num_attention_heads=6), "num_attention_heads"),
    (changed(DENSE, num_key_value_heads=3), "num_key_value_heads"),
    (changed(MOE, num_experts_per_tok=9), "num_experts_per_tok"),
    (changed(MOE, num_local_experts=16), "num_local_experts"),
    (changed(MOE, mlp_only_layers=[0, 1, 2, 3]), "mlp_only_layers"),
    (changed(MLA, topk_group=5), "topk_group"),
    (changed(MLA, n_group=3), "n_group"),
    (changed(MLA, first_k_dense_replace=4), "first_k_dense_replace"),
    (changed(MLA, moe_layer_freq=[0, 1]), "moe_layer_freq"),
    (changed(OSS, layer_types=["mamba"] * 4), "layer_types"),
    (changed(V4, o_groups=3), "o_groups"),
    (changed(NEXT, linear_num_value_heads=3), "linear_num_key_heads"),
    (within(KIMI, "linear_attn_config", full_attn_layers=[3]), "full_attn_layers"),
    (within(K3, "text_config", latent_moe_use_norm=DROP), "latent_moe_use_norm"),
    (changed(GLM53, index_kpool=3), "index_kpool"),
    (within(M3, "text_config", "sparse_attention_config", sparse_block_size=DROP), "sparse_block_size"),
    (within(GEMMA4, "text_config", num_kv_shared_layers=4), "num_kv_shared_layers"),
    (changed(NEMOTRON, hybrid_override_pattern="ME*EMX"), r"layers_block_type[5]"),
    (changed(NEMOTRON, hybrid_override_pattern="ME*E"), "layers_block_type"),
    (changed(NEMOTRON, hybrid_override_pattern=DROP), "layers_block_type"),
    (changed(NEMOTRON, mamba_ssm_cache_dtype="float8"), "mamba_ssm_cache_dtype"),
    (changed(NEMOTRON, n_groups=3), "n_groups"),
    (changed(NEMOTRON, mamba_proj_bias=True), "mamba_proj_bias"),
    (changed(NEMOTRON, sliding_window=4096), "sliding_window"),
    (changed(GRANITE, layer_types=["mamba", "moe", "mamba"]), "layers_block_type[1]"),
    (changed(GRANITE, mamba_proj_bias=True), "mamba_proj_bias"),
    (changed(LING, layer_group_size=3), "layer_group_size"),
    (changed(LING, gated_attention_proj_granularity_type="element_wise"), "granularity"),
    (changed(LONGCAT, moe_topk=4), "moe_topk"),
    (changed(LONGCAT, zero_expert_type="copy"), "zero_expert_type"),
    (changed(LAGUNA, gating="per-element"), "gating"),
    (changed(LAGUNA, gating_types=5), "gating_types"),
    (changed(LAGUNA, num_attention_heads_per_layer=[4, 5, 4]), "num_attention_heads_per_layer"),
    (changed(LAGUNA, num_attention_heads_per_layer=[4, 6]), "num_attention_heads_per_layer"),
    (changed(LFM2, block_ffn_dim_multiplier=1.5), "block_ffn_dim_multiplier"),
    (changed(LFM2, layer_types=DROP), "full_attn_idxs"),
    (changed(DSA, index_topk_pattern="FS"), "one F"),
    (changed(DSA, index_topk_pattern="FSXF"), "one F"),
    (changed(DSA, index_topk_pattern=["full"]), "1 entries for 4"),
    (changed(DSA, index_topk_pattern=["F"] * 4), "which is not modelled"),
    (within(STEP, "text_config", attention_other_setting=None), "attention_other_setting is null"),
    (within(STEP, "text_config", "attention_other_setting", head_dim=64), "must be that of the other layers"),
    (within(STEP, "text_config", "attention_other_setting", sink_dim=64), "sink_dim is 64"),
    (within(STEP, "text_config", moe_layers_enum="3,x"), "must be a list of layer ids"),
    (within(STEP, "text_config", moe_layers_enum=None), "moe_layers_enum is null"),
    (within(STEP, "text_config", moe_top_k=8, num_experts_per_tok=4), "must be the same as moe_top_k"),
    # two keys of one meaning
    (changed(DENSE, dtype="float16"), "dtype"),
    (changed(GEMMA2, sliding_window_size=1024), "sliding_window_size is 1024"),
    (
        within(
            {**SCOUT, "quantization_config": {"quant_method": "fp8"}},
            "text_config",
            quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128},
        ),
        "quantization_config",
    ),
    # parts that are not modelled, and keys that do not belong
    (changed(DENSE, model_type="mamba2"), "mamba2"),
    (changed(DENSE, model_type="t5"), "t5"),
    (changed(DENSE, model_type="llamma"), "llama"),
    (changed(DENSE, is_encoder_decoder=True), "is_encoder_decoder"),
    (changed(DENSE, architectures=["LlamaForSequenceClassification"]), "LlamaForSequenceClassification"),
    (changed(DENSE, num_experts=8), "num_experts"),
    (changed(DENSE, sliding_window=4096), "sliding_window"),
    (changed(DENSE, mamba_d_state=128), "mamba_d_state"),
    (changed(MLA, index_topk=2048), "index_topk"),
    # wrappers
    (changed(SCOUT, text_config=[1]), "text_config"),
    (changed(SCOUT, text_config={"hidden_size": 4}), "model_type"),
]


@pytest.mark.parametrize(("config", "key"), BAD, ids=[f"{i}-{key}" for i, (_, key) in enumerate(BAD)])
def test_refused_in_one_line(config, key):
    with pytest.raises(InputError) as caught:
        model_from_config(config, name="odd")
    message = str(caught.value)
    assert message.startswith("odd")
    assert key in message
    assert "\n" not in message


@pytest.mark.parametrize("config", [[], None, "llama", 3])
def test_not_an_object(config):
    with pytest.raises(InputError, match="odd: a config is a JSON object"):
        model_from_config(config, name="odd")


def test_a_key_that_repeats_another_is_a_note() -> None:
    model = model_from_config(changed(GEMMA2, sliding_window_size=4096), name="gemma2")
    assert round(model.total_params / 1e9, 1) == 9.2  # published: 9B, 9.24 B with the tied embedding once
    assert any("sliding_window_size" in note for note in model.notes)


def test_whole_numbers_may_be_written_with_a_point():
    written = {key: float(value) if type(value) is int else value for key, value in DENSE.items()}
    assert model_from_config(written, name="odd").layers == model_from_config(DENSE, name="odd").layers


def test_unknown_but_harmless_keys_are_noted_not_refused():
    model = model_from_config(changed(DENSE, wurzel=3, rope_theta=1e6, bos_token_id=1), name="odd")
    assert model.notes == ("wurzel=3 is not known and was taken to have no effect",)
    assert model.total_params == model_from_config(DENSE, name="odd").total_params


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.wide
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_value_under_any_key_is_read_or_refused(data):
    base = data.draw(st.sampled_from(BASES))
    config = copy.deepcopy(base)
    target = config["text_config"] if "text_config" in config and data.draw(st.booleans()) else config
    key = data.draw(st.sampled_from(sorted(target)))
    target[key] = data.draw(JSON)
    problem = ""
    try:
        model = model_from_config(config, name="odd")
    except InputError as error:
        problem = str(error)
    else:
        assert model.active_params_with_embedding > 0
        assert model_from_config(json.loads(json.dumps(model.config)), name="odd").layers == model.layers
    assert "\n" not in problem


# --- one architecture in its several spellings


def layers_of(config: dict) -> tuple:
    return model_from_config(config, name="one").layers


def own_indices(config: dict) -> str:
    return "".join("F" if layer.attention.own_index else "S" for layer in layers_of(config))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, "FFFF"),
        ({"index_topk_pattern": "FSFS"}, "FSFS"),
        ({"index_topk_pattern": ["full", "shared", "full", "shared"]}, "FSFS"),
        ({"indexer_types": ["full", "shared", "shared", "full"], "index_topk_pattern": "FFFF"}, "FSSF"),
        ({"index_topk_freq": 2, "index_skip_topk_offset": 1}, "FSFS"),
        ({"index_topk_freq": 3}, "FFSS"),
        ({"index_topk_freq": None}, "FFFF"),
    ],
)
def test_layers_share_an_index_in_every_spelling(keys, expected):
    assert own_indices({**DSA, **keys}) == expected
    shared = layers_of({**DSA, **keys})[expected.index("S")] if "S" in expected else None
    assert shared is None or "index" not in shared.attention.modules


def test_rates_of_compressed_attention_are_those_of_the_config():
    kinds = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    by_kind = {"compressed_sparse_attention": 2, "heavily_compressed_attention": 64}
    assert [layer.attention.rate for layer in layers_of(V4)] == [0, 4, 128]
    named = {**V4, "layer_types": kinds}
    assert layers_of(named) == layers_of(V4)
    for keys in ({"compress_rates": by_kind}, {"compress_rate_csa": 2, "compress_rate_hca": 64}):
        assert [layer.attention.rate for layer in layers_of({**named, **keys})] == [0, 2, 64]
        assert [layer.attention.kind for layer in layers_of({**named, **keys})] == ["swa", "csa", "hca"]


def test_the_dtype_of_experts_may_stand_in_the_quantiser_s_section():
    section = {"quant_method": "fp8", "weight_block_size": [128, 128], "expert_dtype": "fp4"}
    model = model_from_config({**V4, "quantization_config": section}, name="v4")
    assert (model.precision["experts"], model.precision["shared"]) == ("mxfp4", "fp8")
    assert model.precision_source == "quantization_config (fp8), expert_dtype fp4"


def test_block_sparse_keys_in_a_section_or_flat():
    flat = {
        **M3["text_config"],
        "sparse_attention_config": None,
        "moe_layer_freq": None,
        "model_type": "minimax_m3_vl_text",
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_block_size": 8,
        "index_topk_blocks": 4,
        "index_local_blocks": 1,
        "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    }
    assert layers_of(flat) == layers_of(M3)
    assert [layer.attention.kind for layer in layers_of(M3)] == ["gqa", "bsa", "bsa"]
    assert layers_of(M3)[1].attention.chosen == 32


def test_block_sparse_attention_switched_off_is_plain():
    section = {**M3["text_config"]["sparse_attention_config"], "use_sparse_attention": False}
    off = within(M3, "text_config", sparse_attention_config=section)
    assert {layer.attention.kind for layer in layers_of(off)} == {"gqa"}


def test_delta_keys_in_a_section_or_flat():
    flat = {
        **KIMI,
        "linear_attn_config": None,
        "linear_num_heads": 4,
        "linear_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    }
    assert layers_of(flat) == layers_of(KIMI)
    assert [layer.attention.kind for layer in layers_of(KIMI)] == ["kda"] * 3 + ["mla"]


def test_what_kimi_k3_adds_by_hand():
    plain, more = layers_of(KIMI), layers_of(K3)
    assert more[3].attention.modules["gate"] == 64 * 4 * 8
    assert more[0].attention.modules["gate"] - plain[0].attention.modules["gate"] == 64 * 64 - (64 + 64) * 16
    assert [layer.norm_params - 2 * 64 for layer in more] == [4 * 64] * 4
    assert more[1].ffn.expert_params == 3 * 32 * 24
    assert more[1].ffn.shared_params - plain[1].ffn.shared_params == 2 * 64 * 32 + 32
    wide, narrow = (model_from_config(one, name="k3") for one in (KIMI, K3))
    assert (wide.expert_hidden, narrow.expert_hidden) == (64, 32)
    assert narrow.final_norm_params == 3 * 64
    assert narrow.omitted == ("vision tower",)


def test_glm_5_3_pools_its_index_and_mixes_streams():
    linear, picked = layers_of(GLM53)[0], layers_of(GLM53)[3]
    assert (linear.attention.kind, picked.attention.kind, picked.attention.pool) == ("kda", "dsa", 4)
    assert picked.attention.modules["index"] == 16 * 2 * 8 + 64 * (2 * 8 + 2)
    assert picked.attention.other_params == 16 + 16 + 2 * 8 + 4 * 8
    assert picked.norm_params == 2 * 64 + 2 * ((2 + 2) * 2 * (2 * 64 + 1) + 3)
    assert picked.attention.cache_bytes(100, 2) == 100 * (16 * 2 + (8 + 4 * 8 / 128) / 4)


def test_gemma_4_with_embeddings_a_layer_and_shared_keys_by_hand():
    keys = {"hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2, "use_double_wide_mlp": True}
    config = within(GEMMA4, "text_config", enable_moe_block=False, attention_k_eq_v=False, **keys)
    model = model_from_config(config, name="e2b")
    first, last = model.layers[1], model.layers[3]
    assert first.ffn.params == 3 * 64 * 96 + 3 * 64 * 8
    assert last.ffn.params == 3 * 64 * 192 + 3 * 64 * 8
    assert (first.attention.kv_heads, first.attention.modules["v"]) == (2, 64 * 2 * 32)
    assert [layer.attention.own_cache for layer in model.layers] == [True, True, False, False]
    assert model.embedding_params == 100 * 64 + 100 * 4 * 8
    assert model.head_params == 100 * 64
    assert model.final_norm_params == 64 + 8
    assert sum(layer.attention.cache_bytes(100, 2) for layer in model.layers) == 2 * 2 * 2 * (
        16 * 8 + 32 * 100
    )


def test_step_has_more_heads_where_it_has_a_window():
    layers = layers_of(STEP)
    assert [(one.attention.heads, one.attention.window) for one in layers[:4]] == [(64, None)] + [
        (96, 512)
    ] * 3
    # a token of cache: 8 heads of 128, keys and values, in 12 layers; 512 tokens of it in the other 33
    assert (
        sum(one.attention.cache_bytes(4096, 2) for one in layers) == (12 * 4096 + 33 * 512) * 2 * 8 * 128 * 2
    )
    assert sum(one.attention.modules["q"] for one in layers[:2]) == 4096 * (64 + 96) * (128 + 1)


@pytest.mark.parametrize(
    ("key", "most", "count"),
    [
        ("num_hidden_layers", 1_000, 10_000),
        ("num_hidden_layers", 1_000, 1_000_000),
        ("num_attention_heads", 4_096, 4_104),
        ("num_key_value_heads", 4_096, 1 << 20),
        ("num_experts", 4_096, 5_000),
        ("vocab_size", 1 << 22, 10**9),
    ],
)
def test_counts_that_no_model_has_are_refused_at_once(key, most, count):
    begun = time.process_time()
    with pytest.raises(InputError, match=f"{key}: {count} must be a whole number from 1 to {most}"):
        model_from_config(changed(MOE, **{key: count}), name="made up")
    assert time.process_time() - begun < 0.1
    assert model_from_config(changed(MOE, num_hidden_layers=1_000), name="deep").layers[999]
