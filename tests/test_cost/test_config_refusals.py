"""What cannot be read exactly is refused in one line that names the place, the value and the remedy."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.config.build import model_from_config
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
KIMI, K3, M3, GEMMA4, GLM53, NEMOTRON = (
    SMALL[name] for name in ("kimi", "k3", "m3", "gemma4", "glm53", "nemotron")
)
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
