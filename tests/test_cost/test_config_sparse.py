"""One architecture in its several spellings: indices that layers share, rates, sections and flat keys."""

import json
from pathlib import Path

import pytest

from cost.config.build import model_from_config
from cost.resolve import resolve_model
from topology.base.errors import InputError

SMALL = json.loads(Path(__file__).with_name("small_configs.json").read_text())
KIMI, K3, M3, GEMMA4, GLM53, DSA = (SMALL[name] for name in ("kimi", "k3", "m3", "gemma4", "glm53", "dsa"))
V4 = {**resolve_model("deepseek-v4-pro").config, "num_hidden_layers": 3, "compress_ratios": [0, 4, 128]}
V4 = {key: value for key, value in V4.items() if key not in {"num_nextn_predict_layers", "expert_dtype"}}


def with_text(config: dict, **keys: object) -> dict:
    return {**config, "text_config": {**config["text_config"], **keys}}


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


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("FS", "one F"), ("FSXF", "one F"), (["full"], "1 entries for 4"), (["F"] * 4, "which is not modelled")],
)
def test_patterns_that_do_not_fit_are_refused(pattern, words):
    with pytest.raises(InputError, match=words):
        model_from_config({**DSA, "index_topk_pattern": pattern}, name="odd")


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
    off = with_text(M3, sparse_attention_config=section)
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
    config = with_text(GEMMA4, enable_moe_block=False, attention_k_eq_v=False, **keys)
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
    config = dict(resolve_model("step-3.7-flash").config)
    layers = layers_of(config)
    assert [(one.attention.heads, one.attention.window) for one in layers[:4]] == [(64, None)] + [
        (96, 512)
    ] * 3
    # a token of cache: 8 heads of 128, keys and values, in 12 layers; 512 tokens of it in the other 33
    assert (
        sum(one.attention.cache_bytes(4096, 2) for one in layers) == (12 * 4096 + 33 * 512) * 2 * 8 * 128 * 2
    )
    assert sum(one.attention.modules["q"] for one in layers[:2]) == 4096 * (64 + 96) * (128 + 1)
    other = config["text_config"]["attention_other_setting"]
    for keys, words in (
        ({"attention_other_setting": None}, "attention_other_setting is null"),
        ({"attention_other_setting": {**other, "head_dim": 64}}, "must be that of the other layers"),
        ({"attention_other_setting": {**other, "sink_dim": 64}}, "sink_dim is 64"),
        ({"moe_layers_enum": "3,x"}, "moe_layers_enum: .* must be a list of layer ids"),
        ({"moe_layers_enum": None}, "moe_layers_enum is null"),
        ({"moe_top_k": 8, "num_experts_per_tok": 4}, "must be the same as moe_top_k"),
    ):
        with pytest.raises(InputError, match=words):
            layers_of(with_text(config, **keys))
