"""What cannot be read exactly is refused in one line that names the place, the value and the remedy."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.config.build import model_from_config
from cost.resolve import resolve_model
from topology.errors import InputError

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
KIMI, K3, M3, GEMMA4, GLM53 = (SMALL[name] for name in ("kimi", "k3", "m3", "gemma4", "glm53"))
BASES = [DENSE, MOE, MLA, OSS, V4, NEXT, SCOUT, *SMALL.values()]
DROP = object()


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
    (changed(DENSE, hidden_size=DROP), "hidden_size is missing"),
    (changed(DENSE, hidden_size=None), "hidden_size is null"),
    (changed(DENSE, num_hidden_layers=DROP), "num_hidden_layers is missing"),
    (changed(DENSE, vocab_size=DROP), "vocab_size is missing"),
    (changed(DENSE, intermediate_size=DROP), "intermediate_size is missing"),
    (changed(DENSE, num_attention_heads=DROP), "num_attention_heads is missing"),
    (changed(DENSE, model_type=DROP), "model_type is missing, and a model cannot be read without it"),
    (changed(MOE, num_experts_per_tok=DROP), "num_experts_per_tok is missing"),
    (changed(MOE, moe_intermediate_size=DROP), "moe_intermediate_size is missing"),
    (changed(MOE, num_experts=DROP), "num_local_experts is missing"),
    (changed(DENSE, model_type="qwen3"), "head_dim is missing"),
    (changed(MLA, kv_lora_rank=DROP), "kv_lora_rank is missing"),
    (changed(MLA, q_lora_rank=DROP), "q_lora_rank is missing"),
    (changed(MLA, n_shared_experts=DROP), "n_shared_experts is missing"),
    (changed(MLA, first_k_dense_replace=DROP), "first_k_dense_replace is missing"),
    (changed(OSS, layer_types=DROP), "layer_types is missing"),
    (changed(OSS, sliding_window=None), "sliding_window is null"),
    (changed(V4, compress_ratios=DROP), "compress_ratios is missing"),
    (changed(NEXT, full_attention_interval=DROP), "full_attention_interval is missing"),
    (changed(DENSE, model_type="mistral"), "sliding_window is missing"),
    # impossible values
    (changed(DENSE, hidden_size=0), "hidden_size: 0 must be a whole number from 1 to"),
    (changed(DENSE, hidden_size=-64), "hidden_size: -64"),
    (changed(DENSE, hidden_size="64"), "hidden_size: '64' must be a whole number"),
    (changed(DENSE, hidden_size=64.0), "hidden_size: 64.0 must be a whole number"),
    (changed(DENSE, hidden_size=True), "hidden_size: True must be a whole number"),
    (changed(DENSE, hidden_size=[64]), "hidden_size: [64]"),
    (changed(DENSE, hidden_size=float("nan")), "hidden_size: nan"),
    (changed(DENSE, hidden_size=float("inf")), "hidden_size: inf"),
    (changed(DENSE, hidden_size=10**12), "hidden_size: 1000000000000"),
    (
        changed(DENSE, num_hidden_layers=10**9),
        "num_hidden_layers: 1000000000 must be a whole number from 1 to 10000",
    ),
    (changed(DENSE, num_hidden_layers=0), "num_hidden_layers: 0"),
    (changed(DENSE, tie_word_embeddings="no"), "tie_word_embeddings: 'no' must be true or false"),
    (changed(DENSE, tie_word_embeddings=1), "tie_word_embeddings: 1"),
    (changed(DENSE, attention_bias="false"), "attention_bias: 'false'"),
    (changed(DENSE, model_type=7), "model_type: 7 must be a text"),
    (
        changed(DENSE, torch_dtype="float8_e4m3fn"),
        "torch_dtype: 'float8_e4m3fn' must be one of bfloat16",
    ),
    (changed(DENSE, torch_dtype=16), "torch_dtype: 16"),
    (changed(DENSE, num_attention_heads=7), "num_key_value_heads must divide num_attention_heads"),
    (changed(DENSE, num_attention_heads=6), "num_attention_heads must divide hidden_size"),
    (changed(DENSE, num_key_value_heads=3), "num_key_value_heads must divide num_attention_heads"),
    (changed(DENSE, num_key_value_heads=16), "num_key_value_heads must divide num_attention_heads"),
    (changed(MOE, num_experts_per_tok=9), "a token uses 9 experts, but there are only 8"),
    (changed(MOE, num_experts_per_tok=0), "num_experts_per_tok: 0"),
    (changed(MOE, num_experts=0), "num_experts: 0"),
    (changed(MOE, num_local_experts=16), "num_experts: 8 must be the same as num_local_experts"),
    (changed(MOE, mlp_only_layers=[0, 1, 2, 3]), "leave no layer with experts"),
    (changed(MOE, mlp_only_layers=[4]), "mlp_only_layers: [4] must be a list of layer ids from 0 to 3"),
    (changed(MOE, mlp_only_layers="none"), "mlp_only_layers: 'none' must be a list"),
    (changed(MOE, decoder_sparse_step=0), "decoder_sparse_step: 0"),
    (changed(MLA, topk_group=5), "topk_group: 5 must be no more than n_group (4)"),
    (changed(MLA, n_group=3), "n_group must divide the number of experts"),
    (changed(MLA, num_experts_per_tok=5), "large enough for 5 experts a token"),
    (
        changed(MLA, first_k_dense_replace=4),
        "first_k_dense_replace: 4 must be less than the number of layers",
    ),
    (changed(MLA, first_k_dense_replace=-1), "first_k_dense_replace: -1"),
    (changed(MLA, moe_layer_freq=[0, 1]), "moe_layer_freq has 2 entries for 4 layers"),
    (changed(MLA, qk_head_dim=99), "qk_head_dim: 99 must be qk_nope_head_dim + qk_rope_head_dim (12)"),
    (changed(OSS, layer_types=["full_attention"]), "layer_types has 1 entries for 4 layers"),
    (changed(OSS, layer_types=["mamba"] * 4), "layer_types[0] is 'mamba', which is not modelled"),
    (changed(OSS, layer_types=[True] * 4), "layer_types[0] is True"),
    (changed(OSS, layer_types={"0": "full_attention"}), "must be a list"),
    (changed(OSS, sliding_window=0), "sliding_window: 0"),
    (changed(OSS, experts_per_token=3), "experts_per_token: 3 must be the same as num_experts_per_tok"),
    (changed(V4, compress_ratios=[0, 4, 64]), "compress_ratios[2] is 64, which is not modelled"),
    (changed(V4, compress_ratios=[0]), "one entry for each of 3 layers"),
    (changed(V4, num_key_value_heads=2), "num_key_value_heads: 2 must be 1"),
    (changed(V4, o_groups=3), "o_groups must divide num_attention_heads"),
    (changed(V4, num_hash_layers=9), "num_hash_layers: 9 must be at most"),
    (
        changed(NEXT, layer_types=["linear_attention"] * 4),
        "full_attention_interval: 4 must be what layer_types",
    ),
    (changed(NEXT, linear_num_value_heads=3), "linear_num_key_heads must divide linear_num_value_heads"),
    # delta attention
    (changed(KIMI, linear_attn_config=DROP), "linear_num_heads is missing"),
    (within(KIMI, "linear_attn_config", num_heads=DROP), "linear_attn_config: num_heads is missing"),
    (within(KIMI, "linear_attn_config", kda_layers=DROP), "linear_attn_config: kda_layers is missing"),
    (within(KIMI, "linear_attn_config", full_attn_layers=[3]), "must be the layers from 1 to 4"),
    (within(KIMI, "linear_attn_config", full_attn_layers=["4"]), "must be the layers from 1 to 4"),
    (within(KIMI, "linear_attn_config", kda_layers=[0, 1, 2, 3]), "must be the layers from 1 to 4"),
    (within(KIMI, "linear_attn_config", num_v_heads=8), "num_v_heads is 8, and a kimi_linear model"),
    (changed(KIMI, num_experts_per_token=DROP), "num_experts_per_tok is missing"),
    (
        changed(KIMI, num_experts_per_tok=3),
        "num_experts_per_tok: 3 must be the same as num_experts_per_token",
    ),
    (changed(KIMI, num_shared_experts=DROP), "n_shared_experts is missing"),
    (changed(KIMI, layer_types=["mamba"] * 4), "layer_types[0] is 'mamba'"),
    (within(K3, "text_config", latent_moe_use_norm=DROP), "latent_moe_use_norm is missing"),
    (within(K3, "text_config", routed_expert_hidden_size=0), "routed_expert_hidden_size: 0"),
    (changed(GLM53, index_kpool=3), "index_kpool must divide index_topk"),
    (changed(GLM53, mhc=False), "mhc: False must be true"),
    (changed(GLM53, index_kpool_compress=False), "index_kpool_compress: False must be true"),
    (changed(GLM53, layer_types=DROP), "layer_types is missing"),
    # an index over blocks
    (
        within(M3, "text_config", "sparse_attention_config", sparse_block_size=DROP),
        "sparse_block_size is missing",
    ),
    (
        within(M3, "text_config", "sparse_attention_config", sparse_attention_freq=[0, 1]),
        "has 2 entries for 3 layers",
    ),
    (
        within(M3, "text_config", "sparse_attention_config", sparse_num_index_heads=1),
        "the index has 1 heads for 2 key-value heads",
    ),
    (
        within(M3, "text_config", "sparse_attention_config", sparse_init_block=1),
        "sparse_init_block: 1 must be 0: blocks at the start",
    ),
    (
        within(M3, "text_config", "sparse_attention_config", sparse_disable_index_value=[0, 0, 1]),
        "must be 1 in every sparse layer: values of the index are not modelled",
    ),
    (
        within(M3, "text_config", "sparse_attention_config", sparse_score_type="mean"),
        "sparse_score_type: 'mean'",
    ),
    (
        within(M3, "text_config", "sparse_attention_config", sparse_stride=2),
        "sparse_stride is 2, and a minimax_m3 model is not known to have it",
    ),
    (
        within(M3, "text_config", "sparse_attention_config", sparse_local_block=5),
        "the index keeps 5 latest blocks, but a query reads only 4",
    ),
    (within(M3, "text_config", sparse_attention_config=DROP), "layer_types is missing"),
    (within(M3, "text_config", moe_layer_freq=DROP), "moe_layer_freq is missing"),
    (within(M3, "text_config", attention_output_gate=True), "a gate of attention's output"),
    (within(M3, "text_config", index_topk_freq=2), "index_topk_freq is 2, and a minimax_m3 model"),
    (within(M3, "text_config", n_shared_experts=2), "n_shared_experts: 2 must be 1"),
    # Gemma 4
    (
        within(GEMMA4, "text_config", hidden_size_per_layer_input=DROP),
        "hidden_size_per_layer_input is missing",
    ),
    (
        within(GEMMA4, "text_config", hidden_size_per_layer_input=8, vocab_size_per_layer_input=DROP),
        "vocab_size_per_layer_input is missing",
    ),
    (within(GEMMA4, "text_config", global_head_dim=DROP), "global_head_dim is missing"),
    (within(GEMMA4, "text_config", sliding_window=DROP), "sliding_window is missing"),
    (within(GEMMA4, "text_config", num_experts=None), "num_experts is null"),
    (
        within(GEMMA4, "text_config", layer_types=["full_attention", "sliding_attention"] * 2),
        "in the last layer",
    ),
    (
        within(GEMMA4, "text_config", num_kv_shared_layers=3),
        "num_kv_shared_layers: 3 must be few enough",
    ),
    (
        within(GEMMA4, "text_config", num_kv_shared_layers=4),
        "num_kv_shared_layers: 4 must be a whole number from 0 to 3",
    ),
    (within(GEMMA4, "text_config", use_bidirectional_attention="all"), "does not decode"),
    (within(GEMMA4, "text_config", attention_bias=True), "attention_bias: True must be false"),
    (within(GEMMA4, "text_config", per_layer_config={"1": {}}), "per_layer_config is"),
    # indices of DeepSeek-V3.2 and its kin, rates of V4
    (changed(V4, compress_rates={"compressed_sparse_attention": 0}), "compressed_sparse_attention: 0"),
    (changed(V4, compress_rates=[4]), "compress_rates: expected a mapping of keys to values"),
    # parts that are not modelled, and keys that do not belong
    (changed(DENSE, model_type="nsa"), "'nsa' is not modelled: native sparse attention in three branches"),
    (
        changed(DENSE, model_type="deepseek_v41"),
        "'deepseek_v41' is not modelled: compressed attention with rates",
    ),
    (changed(DENSE, model_type="mamba2"), "'mamba2' is not modelled: state-space (Mamba) layers"),
    (changed(DENSE, model_type="jamba"), "state-space (Mamba) layers"),
    (changed(DENSE, model_type="t5"), "an encoder with cross-attention"),
    (changed(DENSE, model_type="bert"), "an encoder, which does not decode"),
    (changed(DENSE, model_type="rwkv"), "recurrent layers"),
    (changed(DENSE, model_type="llamma"), "The nearest known: llama"),
    (changed(DENSE, model_type="zzzzzz"), "'zzzzzz' is not modelled. `rackplan catalog models`"),
    (changed(DENSE, is_encoder_decoder=True), "is_encoder_decoder is true"),
    (changed(DENSE, add_cross_attention=True), "add_cross_attention is true"),
    (
        changed(DENSE, architectures=["LlamaForSequenceClassification"]),
        "only a language model with an output head",
    ),
    (changed(DENSE, architectures=["LlamaForCausalLMEagle3"]), "only a language model with an output head"),
    (changed(DENSE, architectures=[3]), "architectures: [3] must be a list of class names"),
    (changed(DENSE, num_experts=8), "num_experts is 8, and a llama model is not known to have it"),
    (changed(DENSE, num_local_experts=8, num_experts_per_tok=2), "a llama model is not known to have it"),
    (changed(DENSE, kv_lora_rank=512), "kv_lora_rank is 512"),
    (changed(DENSE, layer_types=["full_attention"] * 4), "layer_types is"),
    (changed(DENSE, sliding_window=4096), "sliding_window is 4096"),
    (changed(DENSE, hybrid_override_pattern="M-M*"), "hybrid_override_pattern is 'M-M*'"),
    (changed(DENSE, mamba_d_state=128), "mamba_d_state is 128"),
    (changed(DENSE, block_configs=[{"ffn": 1}]), "block_configs is"),
    (changed(DENSE, num_kv_shared_layers=2), "num_kv_shared_layers is 2"),
    (changed(MOE, n_shared_experts=1), "n_shared_experts is 1"),
    (changed(MOE, use_qk_norm=False), "use_qk_norm: False"),
    (changed(MLA, index_topk=2048), "index_topk is 2048"),
    (
        changed(DENSE, model_type="qwen2", layer_types=["sliding_attention"] * 4),
        "use_sliding_window: None must be true",
    ),
    # wrappers
    (changed(SCOUT, text_config=[1]), "text_config: expected a mapping of keys to values"),
    (changed(SCOUT, text_config={"hidden_size": 4}), "text_config: model_type is missing"),
    (changed(SCOUT, llm_config={"model_type": "llama"}), "llm_config"),
    (
        changed(SCOUT, text_config={**SCOUT["text_config"], "model_type": "whatever"}),
        "'whatever' is not modelled",
    ),
    (
        changed(
            SCOUT,
            tie_word_embeddings=True,
            text_config={**SCOUT["text_config"], "tie_word_embeddings": False},
        ),
        "must be what the outer config says (True)",
    ),
]


@pytest.mark.parametrize(
    ("config", "words"), BAD, ids=[f"{i}-{words[:40]}" for i, (_, words) in enumerate(BAD)]
)
def test_refused_in_one_line(config, words):
    with pytest.raises(InputError) as caught:
        model_from_config(config, name="odd")
    message = str(caught.value)
    assert message.startswith("odd")
    assert words in message
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize("config", [[], None, "llama", 3])
def test_not_an_object(config):
    with pytest.raises(InputError, match="odd: a config is a JSON object"):
        model_from_config(config, name="odd")


def test_unknown_but_harmless_keys_are_noted_not_refused():
    model = model_from_config(changed(DENSE, wurzel=3, rope_theta=1e6, bos_token_id=1), name="odd")
    assert model.notes == ("wurzel=3 is not known and was taken to have no effect",)
    assert model.total_params == model_from_config(DENSE, name="odd").total_params


@pytest.mark.parametrize("value", [None, 0, False, [], {}, ""])
def test_keys_that_switch_nothing_on_do_not_matter(value):
    model = model_from_config(changed(DENSE, sliding_window=value, num_experts=value), name="odd")
    assert model == model_from_config(changed(DENSE, sliding_window=value, num_experts=value), name="odd")
    assert model.moe is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.wide
@settings(deadline=None, max_examples=300)
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


@pytest.mark.parametrize(
    "keys",
    [{"first_k_dense_replace": 3}, {"multi_query": True}, {"use_mla": True}, {"cla_share_factor": 2}],
    ids=str,
)
def test_structure_of_other_families_is_refused(keys):
    mixtral = resolve_model("mixtral-8x7b").config
    with pytest.raises(InputError, match=f"{next(iter(keys))} is .* not known to have it"):
        model_from_config({**mixtral, **keys}, name="odd")
