"""Counts against transformers' own modules, and against what the authors publish."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.config.build import model_from_config
from cost.config.families import FAMILIES
from cost.model import Model, MoeFfn
from cost.resolve import model_names, published, resolve_model
from topology.base.errors import InputError

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "data" / "model_configs"
COUNTED = json.loads((HERE / "counted_by_transformers.json").read_text())
SMALL = COUNTED["small"]
# Adapters without a class of their own in transformers (remote code), or with the class of another one.
ELSEWHERE = {
    "deepseek",
    "kimi_k2",
    "bailing_moe",
    "bailing_moe_v2",
    "internlm",
    "mimo",
    "minimax_m3",
    "step3p7",
    "bailing_moe_linear",
    "minimax_text_01",
    "minimax_m1",
}
VISION = {name for name in FAMILIES if re.search("_vl|omni|4v", name)}


def attention_params(model: Model) -> int:
    return sum(layer.attention.matmul_params + layer.attention.other_params for layer in model.layers)


def expert_params(model: Model) -> int:
    ffns = [layer.ffn for layer in model.layers]
    return sum(ffn.experts * ffn.expert_params for ffn in ffns if isinstance(ffn, MoeFfn))


def test_counts_are_those_of_the_modules():
    for row in SMALL:
        kind = row["config"]["model_type"]
        model = model_from_config(row["config"], name="small")
        assert model.total_params == row["total"], kind
        assert attention_params(model) == row["attention"], kind
        assert expert_params(model) == row["experts"], kind
        for layer in model.layers:
            assert sum(layer.attention.modules.values()) == layer.attention.matmul_params, kind
        assert model_from_config(json.loads(json.dumps(model.config)), name="small") == model, kind


def test_every_family_is_counted_somewhere():
    counted = {row["config"]["model_type"] for row in SMALL}
    assert set(FAMILIES) == counted | ELSEWHERE | VISION


@pytest.mark.parametrize("name", sorted(COUNTED["published_configs"]))
def test_published_configs_are_counted_exactly(name):
    path = SHARED / f"{name}.json"
    if not path.is_file():
        pytest.skip("the reference configs are not beside this checkout")
    model = resolve_model(str(path))
    assert model.total_params == COUNTED["published_configs"][name]
    assert model.notes == ()


def number(text: str) -> tuple[float, float]:
    """Value of a printed count, and half a unit of its last digit (trailing zeros of whole numbers say nothing)."""
    digits, unit = re.fullmatch(r"([\d.]+)([BT])", text).groups()
    scale = {"B": 1e9, "T": 1e12}[unit]
    decimals = len(digits.split(".")[1]) if "." in digits else len(digits.rstrip("0")) - len(digits)
    last = 10.0**-decimals
    return float(digits) * scale, last * scale / 2


# Vision towers and projectors, counted by transformers (Llama 4: with the published hidden size of 1,408).
TOWERS = {
    "qwen3.5-397b-a17b": 456_010_480,
    "llama-4-scout": 890_913_280,
    "llama-4-maverick": 890_913_280,
    "minimax-m3": 865_567_232,
}


def as_counted(model: Model, counts: str, value: int) -> float:
    """Our count with what the authors' figure adds or leaves out."""
    indices = [layer.attention.modules.get("index", 0) for layer in model.layers]
    index = sum(indices)
    adds = {
        "with input embedding": model.embedding_params,
        "with vision tower": TOWERS.get(model.name, 0),
        "without output head": -model.head_params,
        "without sparse index": -index,
        "with an index in every layer": max(indices) * len(indices) - index,
        "without embedding and head": -model.head_params - model.embedding_params,
        "with one draft layer": max(layer.total_params for layer in model.layers),
        "rounded down": 0,
    }
    return value + sum(adds[part] for part in counts.split(", ") if part)


def agrees(ours: float, printed: str, counts: str) -> bool:
    """Whether ``ours`` is what is ``printed``, rounded to its last digit."""
    value, half = number(printed)
    return value <= ours < value + 2 * half if "rounded down" in counts else abs(ours - value) <= half


@pytest.mark.parametrize("name", model_names())
def test_counts_match_the_published_rounding(name):
    model, facts = resolve_model(name), published(name)
    assert agrees(as_counted(model, facts.total_counts, model.total_params), facts.total, facts.total_counts)
    if facts.active:
        ours = as_counted(model, facts.active_counts, model.active_params)
        assert agrees(ours, facts.active, facts.active_counts)
        assert model.moe is not None


def test_deepseek_v3_by_hand():
    model = resolve_model("deepseek-v3")
    attention, moe = model.layers[3].attention, model.moe
    assert attention.matmul_params == 187_105_280
    assert moe.expert_params == 3 * 7168 * 2048
    assert (moe.experts, moe.top_k, moe.groups, moe.topk_groups) == (256, 8, 8, 4)
    assert model.moe_layers == tuple(range(3, 61))
    assert sum(layer.attention.cache_bytes(1, 2) for layer in model.layers) == 70_272
    assert sum(layer.attention.cache_bytes(1, 1) for layer in model.layers) == 35_136
    assert model.active_params_with_embedding - model.active_params == 129_280 * 7168
    assert model.omitted == ("1 draft (multi-token prediction) layer",)


LING_MINI = {
    "model_type": "bailing_moe", "architectures": ["BailingMoeV2ForCausalLM"], "num_hidden_layers": 20,
    "hidden_size": 2048, "intermediate_size": 5120, "first_k_dense_replace": 1, "moe_intermediate_size": 512,
    "moe_shared_expert_intermediate_size": 512, "num_shared_experts": 1, "num_experts": 256,
    "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "moe_router_enable_expert_bias": True,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "use_qk_norm": True,
    "vocab_size": 157184, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LING_LITE = {
    "model_type": "bailing_moe", "num_hidden_layers": 28, "hidden_size": 2048, "intermediate_size": 1408,
    "first_k_dense_replace": 0, "moe_intermediate_size": 1408, "num_shared_experts": 2, "num_experts": 64,
    "num_experts_per_tok": 6, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 126464,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK_MOE = {
    "model_type": "deepseek", "num_hidden_layers": 28, "hidden_size": 2048, "intermediate_size": 10944,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "moe_intermediate_size": 1408, "n_shared_experts": 2,
    "n_routed_experts": 64, "num_experts_per_tok": 6, "num_attention_heads": 16, "num_key_value_heads": 16,
    "vocab_size": 102400, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
INTERNLM = {
    "model_type": "internlm", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "intermediate_size": 11008, "bias": True, "vocab_size": 103168, "tie_word_embeddings": False,
    "torch_dtype": "float16",
}  # fmt: skip
MIMO = {
    "model_type": "mimo", "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 11008, "vocab_size": 151680,
    "attention_bias": True, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip


MAMBA = {f"mamba_{key}": value for key, value in {
    "n_heads": 128, "d_head": 64, "d_state": 128, "n_groups": 1, "d_conv": 4, "chunk_size": 256, "conv_bias": True,
}.items()}  # fmt: skip
GRANITE_H_SMALL = MAMBA | {
    "model_type": "granitemoehybrid", "num_hidden_layers": 40, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_local_experts": 72, "num_experts_per_tok": 10, "intermediate_size": 768,
    "shared_intermediate_size": 1536, "vocab_size": 100352, "tie_word_embeddings": True,
    "layer_types": ["attention" if index in {5, 15, 25, 35} else "mamba" for index in range(40)],
}  # fmt: skip
LONGCAT_FLASH = {
    "model_type": "longcat_flash", "num_layers": 28, "hidden_size": 6144, "ffn_hidden_size": 12288,
    "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "zero_expert_num": 256, "moe_topk": 12,
    "num_attention_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 131072, "num_nextn_predict_layers": 1,
}  # fmt: skip
RING_MINI_LINEAR = {
    **LING_MINI, "model_type": "bailing_moe_linear", "layer_group_size": 5, "group_norm_size": 4,
}  # fmt: skip
MINIMAX_01 = {
    "model_type": "minimax_text_01", "num_hidden_layers": 80, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
    "hidden_size": 6144, "intermediate_size": 9216, "num_local_experts": 32, "num_experts_per_tok": 2,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064,
    "shared_intermediate_size": 0, "postnorm": True, "layernorm_mlp_alpha": 3.5565588200778455,
}  # fmt: skip
LFM2_8B = {
    "model_type": "lfm2_moe", "num_hidden_layers": 24, "hidden_size": 2048, "intermediate_size": 7168,
    "moe_intermediate_size": 1792, "num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2,
    "num_attention_heads": 32, "num_key_value_heads": 8, "conv_L_cache": 3, "conv_bias": False,
    "full_attn_idxs": [2, 6, 10, 14, 18, 21], "use_expert_bias": True, "vocab_size": 65536, "tie_embedding": True,
}  # fmt: skip
QWEN3_OMNI = {
    "model_type": "qwen3_omni_moe", "talker_config": {"text_config": {}}, "thinker_config": {
        "audio_config": {"d_model": 1280}, "vision_config": {"depth": 27},
        "text_config": {**resolve_model("qwen3-30b-a3b").config, "model_type": "qwen3_omni_moe_text"},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [
        (GRANITE_H_SMALL, "32.2B", "9B"),  # model card of granite-4.0-h-small: 32B, 9B
        (LONGCAT_FLASH, "560B", "27B"),  # arXiv:2509.01322: 18.6B to 31.3B, 27B on average
        (RING_MINI_LINEAR, "16.4B", "1.6B"),  # model card of Ring-mini-linear-2.0
        (MINIMAX_01, "456B", ""),  # model card of MiniMax-Text-01: 45.9B active, without the head
        (LFM2_8B, "8.3B", ""),  # arXiv:2511.23404
        (QWEN3_OMNI, "30.5B", "3B"),  # the thinker of Qwen3-Omni-30B-A3B
        (LING_MINI, "16.3B", "1.4B"),  # model card of Ling-mini-2.0: 16.26B, 1.43B
        (LING_LITE, "16.8B", "2.75B"),  # model card of Ling-lite
        (DEEPSEEK_MOE, "16.4B", "2.8B"),  # arXiv:2401.06066
        (INTERNLM, "7.3B", ""),  # model card of internlm-7b: 7B
        (MIMO, "7.6B", ""),  # 7B without its draft layer
    ],
)
def test_remote_code_families_match_the_published_rounding(config, total, active):
    model = model_from_config(config, name="remote")
    value, half = number(total)
    assert abs(model.total_params - value) <= 2 * half
    if active:
        value, half = number(active)
        assert model.active_params <= value + half
        assert model.active_params_with_embedding >= value - half


def test_caches_of_states_and_of_two_attentions_a_layer():
    granite, longcat = (model_from_config(config, name="one") for config in (GRANITE_H_SMALL, LONGCAT_FLASH))
    held = [sum(layer.attention.cache_bytes(tokens, 2) for layer in granite.layers) for tokens in (0, 1)]
    # a state in FP32 and three inputs of 8,192 + 2 x 128 channels in BF16; keys and values of four layers
    assert held[0] == 36 * (128 * 64 * 128 * 4 + (8192 + 256) * 3 * 2)
    assert held[1] - held[0] == 4 * 2 * 8 * 128 * 2
    assert len(longcat.layers) == 2 * 28
    assert longcat.moe_layers == tuple(range(0, 56, 2))
    assert longcat.moe.top_k == 12 * 512 // 768
    assert sum(layer.attention.cache_bytes(1, 2) for layer in longcat.layers) == 56 * 576 * 2


GEMMA_3_4B = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"model_type": "siglip_vision_model", "num_hidden_layers": 27}, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_gemma_3_leaves_to_its_class_what_equals_the_default():
    model = model_from_config(GEMMA_3_4B, name="gemma-3-4b")
    assert model.total_params == pytest.approx(3.88e9, rel=0.001)  # model card: 4B with a tower of 0.4B
    assert [layer.attention.window for layer in model.layers[:6]] == [1024] * 5 + [None]
    assert model.tied
    assert model.omitted == ("vision tower",)


def test_hunyuan_lists_with_one_entry_a_layer():
    config = {
        "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 128167, "num_experts": 64,
        "moe_intermediate_size": [3072] * 32, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32,
        "cla_share_factor": 2, "use_cla": False, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    model = model_from_config(config, name="hunyuan-a13b")
    assert agrees(model.total_params, "80B", "")  # model card of Hunyuan-A13B: 80B, 13B active
    assert agrees(model.active_params, "13B", "")
    with pytest.raises(InputError, match="moe_topk"):
        model_from_config({**config, "moe_topk": [8] * 31 + [4]}, name="odd")


@settings(deadline=None, max_examples=20)
@given(
    layers=st.integers(1, 9),
    groups=st.integers(1, 4),
    kv_heads=st.integers(1, 4),
    dim=st.integers(1, 32),
    inner=st.integers(1, 99),
    vocab=st.integers(1, 999),
    tied=st.booleans(),
)
def test_llama_is_the_sum_of_its_matrices(layers, groups, kv_heads, dim, inner, vocab, tied):
    hidden = groups * kv_heads * dim
    shapes = [(hidden, hidden), (hidden, kv_heads * dim), (hidden, kv_heads * dim), (hidden, hidden)]
    shapes += [(hidden, inner)] * 3 + [(hidden, 1)] * 2
    outside = [(vocab, hidden), (hidden, 1)] + ([] if tied else [(vocab, hidden)])
    config = {
        "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "vocab_size": vocab,
        "num_attention_heads": groups * kv_heads, "num_key_value_heads": kv_heads, "intermediate_size": inner,
        "tie_word_embeddings": tied,
    }  # fmt: skip
    model = model_from_config(config, name="any")
    assert model.total_params == layers * sum(a * b for a, b in shapes) + sum(a * b for a, b in outside)
    assert model.active_params == model.total_params - (0 if tied else vocab * hidden)


def test_minimax_m3_is_its_checkpoint_to_the_element():
    # 427,040,140,160 elements in the 59 files of MiniMaxAI/MiniMax-M3, the vision tower among them.
    model = resolve_model("minimax-m3")
    assert model.total_params + TOWERS["minimax-m3"] == 427_040_140_160
    assert [layer.attention.kind for layer in model.layers] == ["gqa"] * 3 + ["bsa"] * 57
    assert model.omitted == ("7 draft (multi-token prediction) layers",)


def test_kimi_k3_is_its_checkpoint_to_the_element():
    # 1,503,647,073,024 elements in the 96 files of moonshotai/Kimi-K3: two FP4 weights are one, 32 have a scale, the
    # decay's scale is padded to 128 heads in the 69 delta layers, and the vision tower has 447,358,976.
    model = resolve_model("kimi-k3")
    experts = expert_params(model)
    assert experts == 92 * 896 * 3 * 3584 * 3072
    stored = model.total_params - experts + experts // 2 + experts // 32
    assert stored + 69 * (128 - 96) + 447_358_976 == 1_503_647_073_024
    assert model.precision["experts"] == "mxfp4"
    assert {model.precision[part] for part in ("shared", "attention", "dense", "head")} == {"bf16"}


def test_latent_moe_sends_the_narrow_vector():
    model = resolve_model("kimi-k3")
    assert (model.hidden, model.expert_hidden, model.moe.width) == (7168, 3584, 3584)
    assert model.moe.shared_params == 3 * 7168 * 2 * 3072 + 2 * 7168 * 3584 + 3584
    plain = resolve_model("kimi-linear-48b-a3b")
    assert plain.expert_hidden == plain.hidden == 2304
    assert resolve_model("llama-3.1-8b").expert_hidden == 4096
