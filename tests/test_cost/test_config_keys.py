"""Keys of configs in their several spellings; what cannot be read exactly is refused in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cost.config.build import model_from_config
from cost.config.positions import most_positions
from cost.resolve import resolve_model
from helpers import changed
from topology.base.errors import InputError

SMALL = json.loads(Path(__file__).with_name("small_configs.json").read_text())
DENSE, MOE, MLA, OSS, V4, NEXT, SCOUT, GEMMA2 = (
    SMALL[name] for name in ("dense", "moe", "mla", "oss", "v4", "next", "scout", "gemma2")
)
KIMI, K3, M3, GEMMA4, GLM53, NEMOTRON, DSA = (
    SMALL[name] for name in ("kimi", "k3", "m3", "gemma4", "glm53", "nemotron", "dsa")
)
STEP = dict(resolve_model("step-3.7-flash").config)
COUNTED = json.loads(Path(__file__).with_name("counted_by_transformers.json").read_text())["small"]
GRANITE, LING, LONGCAT, LAGUNA, LFM2 = (
    next(row["config"] for row in COUNTED if row["config"]["model_type"] == name)
    for name in ("granitemoehybrid", "bailing_hybrid", "longcat_flash", "laguna", "lfm2")
)


BAD = [
    # missing keys
    (changed(DENSE, "hidden_size"), "hidden_size"),
    (changed(DENSE, "model_type"), "model_type"),
    (changed(MLA, "q_lora_rank"), "q_lora_rank"),
    # impossible values
    (changed(DENSE, "hidden_size", to=0), "hidden_size"),
    (changed(DENSE, "hidden_size", to=True), "hidden_size"),
    (changed(DENSE, "num_hidden_layers", to=10_000), "10000 must be a whole number from 1 to 1000"),
    (changed(DENSE, "torch_dtype", to="float8_e4m3fn"), "torch_dtype"),
    (changed(DENSE, "num_attention_heads", to=6), "num_attention_heads"),
    (changed(MOE, "num_experts_per_tok", to=9), "num_experts_per_tok"),
    (changed(MOE, "num_local_experts", to=16), "num_local_experts"),
    (changed(MOE, "mlp_only_layers", to=[0, 1, 2, 3]), "mlp_only_layers"),
    (changed(MLA, "topk_group", to=5), "topk_group"),
    (changed(MLA, "n_group", to=3), "n_group"),
    (changed(MLA, "first_k_dense_replace", to=4), "first_k_dense_replace"),
    (changed(MLA, "moe_layer_freq", to=[0, 1]), "moe_layer_freq"),
    (changed(OSS, "layer_types", to=["mamba"] * 4), "layer_types"),
    (changed(V4, "o_groups", to=3), "o_groups"),
    (changed(NEXT, "linear_num_value_heads", to=3), "linear_num_key_heads"),
    (changed(KIMI, "linear_attn_config", "full_attn_layers", to=[3]), "full_attn_layers"),
    (changed(K3, "text_config", "latent_moe_use_norm"), "latent_moe_use_norm"),
    (changed(GLM53, "index_kpool", to=3), "index_kpool"),
    (changed(M3, "text_config", "sparse_attention_config", "sparse_block_size"), "sparse_block_size"),
    (changed(GEMMA4, "text_config", "num_kv_shared_layers", to=4), "num_kv_shared_layers"),
    (changed(NEMOTRON, "hybrid_override_pattern", to="ME*EMX"), r"layers_block_type[5]"),
    (changed(NEMOTRON, "hybrid_override_pattern"), "layers_block_type"),
    (changed(NEMOTRON, "mamba_ssm_cache_dtype", to="float8"), "mamba_ssm_cache_dtype"),
    (changed(NEMOTRON, "mamba_proj_bias", to=True), "mamba_proj_bias"),
    (changed(GRANITE, "layer_types", to=["mamba", "moe", "mamba"]), "layers_block_type[1]"),
    (changed(LING, "layer_group_size", to=3), "layer_group_size"),
    (changed(LING, "gated_attention_proj_granularity_type", to="element_wise"), "granularity"),
    (changed(LONGCAT, "moe_topk", to=4), "moe_topk"),
    (changed(LONGCAT, "zero_expert_type", to="copy"), "zero_expert_type"),
    (changed(LAGUNA, "gating", to="per-element"), "gating"),
    (changed(LAGUNA, "num_attention_heads_per_layer", to=[4, 5, 4]), "num_attention_heads_per_layer"),
    (changed(LFM2, "block_ffn_dim_multiplier", to=1.5), "block_ffn_dim_multiplier"),
    (changed(LFM2, "layer_types"), "full_attn_idxs"),
    (changed(DSA, "index_topk_pattern", to="FS"), "one F"),
    (changed(DSA, "index_topk_pattern", to=["F"] * 4), "which is not modelled"),
    (changed(STEP, "text_config", "attention_other_setting", to=None), "attention_other_setting is null"),
    (changed(STEP, "text_config", "attention_other_setting", "head_dim", to=64), "that of the other layers"),
    (changed(STEP, "text_config", "attention_other_setting", "sink_dim", to=64), "sink_dim is 64"),
    (changed(STEP, "text_config", "moe_layers_enum", to="3,x"), "must be a list of layer ids"),
    # two keys of one meaning
    (changed(GEMMA2, "sliding_window_size", to=1024), "sliding_window_size is 1024"),
    (
        changed(
            {**SCOUT, "quantization_config": {"quant_method": "fp8"}},
            *("text_config", "quantization_config"),
            to={"quant_method": "gptq", "bits": 4, "group_size": 128},
        ),
        "quantization_config",
    ),
    # parts that are not modelled, and keys that do not belong
    (changed(DENSE, "model_type", to="mamba2"), "mamba2"),
    (changed(DENSE, "model_type", to="llamma"), "llama"),
    (
        changed(DENSE, "architectures", to=["LlamaForSequenceClassification"]),
        "LlamaForSequenceClassification",
    ),
    (changed(DENSE, "num_experts", to=8), "num_experts"),
    (changed(DENSE, "is_encoder_decoder", to=True), "is_encoder_decoder"),
    (changed(LAGUNA, "gating_types", to=5), "gating_types"),
    (changed(LFM2, "layer_types", to="conv"), "layer_types"),
    (changed(MLA, "index_topk", to=2048), "index_topk"),
    # wrappers
    (changed(SCOUT, "text_config", to=[1]), "text_config"),
    ("llama", "a config is a JSON object"),
    (changed(SCOUT, "text_config", to={"hidden_size": 4}), "model_type"),
]


@pytest.mark.parametrize(("config", "key"), BAD)
def test_refused_in_one_line(config, key):
    with pytest.raises(InputError, match=r"^odd.*" + re.escape(key)) as caught:
        model_from_config(config, name="odd")
    assert "\n" not in str(caught.value)


def test_a_key_that_repeats_another_is_a_note() -> None:
    model = model_from_config({**GEMMA2, "sliding_window_size": 4096}, name="gemma2")
    assert round(model.total_params / 1e9, 1) == 9.2  # published: 9B, 9.24 B with the tied embedding once
    assert any("sliding_window_size" in note for note in model.notes)


def test_unknown_but_harmless_keys_are_noted_not_refused():
    written = {key: float(value) if type(value) is int else value for key, value in DENSE.items()}
    model = model_from_config({**written, "wurzel": 3, "rope_theta": 1e6, "bos_token_id": 1}, name="odd")
    assert model.notes == ("wurzel=3 is not known and was taken to have no effect",)
    assert model.layers == model_from_config(DENSE, name="odd").layers


# --- one architecture in its several spellings


def layers_of(config: dict) -> tuple:
    return model_from_config(config, name="one").layers


def own_indices(config: dict) -> str:
    return "".join("F" if layer.attention.own_index else "S" for layer in layers_of(config))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"index_topk_pattern": "FSFS"}, "FSFS"),
        ({"indexer_types": ["full", "shared", "shared", "full"], "index_topk_pattern": "FFFF"}, "FSSF"),
        ({"index_topk_freq": 2, "index_skip_topk_offset": 1}, "FSFS"),
        ({"index_topk_freq": 3}, "FFSS"),
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


def test_keys_in_a_section_or_flat():
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
    delta = {
        "linear_attn_config": None,
        "linear_num_heads": 4,
        "linear_head_dim": 16,
        "linear_conv_kernel_dim": 4,
    }
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    assert layers_of({**KIMI, **delta, "layer_types": kinds}) == layers_of(KIMI)
    assert layers_of(M3)[1].attention.chosen == 32
    off = changed(M3, "text_config", "sparse_attention_config", "use_sparse_attention", to=False)
    assert {layer.attention.kind for layer in layers_of(off)} == {"gqa"}, "switched off, it is plain"


def test_glm_5_3_pools_its_index_and_mixes_streams():
    linear, picked = layers_of(GLM53)[0], layers_of(GLM53)[3]
    assert (linear.attention.kind, picked.attention.kind, picked.attention.pool) == ("kda", "dsa", 4)
    assert picked.attention.modules["index"] == 16 * 2 * 8 + 64 * (2 * 8 + 2)
    assert picked.attention.other_params == 16 + 16 + 2 * 8 + 4 * 8
    assert picked.norm_params == 2 * 64 + 2 * ((2 + 2) * 2 * (2 * 64 + 1) + 3)
    assert picked.attention.cache_bytes(100, 2) == 100 * (16 * 2 + (8 + 4 * 8 / 128) / 4)


def test_step_has_more_heads_where_it_has_a_window():
    layers = layers_of(STEP)
    assert [(layer.attention.heads, layer.attention.window) for layer in layers[:4]] == [(64, None)] + [
        (96, 512)
    ] * 3
    # a token of cache: 8 heads of 128, keys and values, in 12 layers; 512 tokens of it in the other 33
    assert (
        sum(layer.attention.cache_bytes(4096, 2) for layer in layers)
        == (12 * 4096 + 33 * 512) * 2 * 8 * 128 * 2
    )
    assert sum(layer.attention.modules["q"] for layer in layers[:2]) == 4096 * (64 + 96) * (128 + 1)


def scaled(stated: int, kind: str, factor: float, original: int) -> dict[str, object]:
    scaling = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": original}
    return {"max_position_embeddings": stated, "rope_scaling": scaling}


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({}, None),
        ({"n_positions": 1024}, 1024),
        # keys that are not of the model's positions
        ({"max_length": 20, "model_max_length": 512, "sliding_window": 128}, None),
        # placeholders and slips
        ({"max_position_embeddings": 1e30}, None),
        # the length after scaling is stated
        (scaled(163840, "yarn", 40, 4096), 163840),
        # the length before scaling is stated
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 4}}, 8192),
        # scaling that says nothing
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": float("nan")}}, 2048),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": ["linear"], "factor": 4}}, 2048),
        ({"max_position_embeddings": 2048, "rope_parameters": {"full": {"rope_type": "linear"}}}, 2048),
    ],
)  # fmt: skip
def test_positions(config, tokens):
    context, where = most_positions({}, config, "here")
    assert context == tokens
    assert where.startswith("here: ") if tokens else where == ""
    own = {"most_context": 100, "most_context_source": "there"}
    assert most_positions(own, config, "here") == (100, "there")
