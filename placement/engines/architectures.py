"""The class of a model, as engines call it: from ``architectures`` of its config.json, else from its ``model_type``.

The catalog keeps what a model costs, not its class. The names are those under which transformers, vLLM 0.33.0
(``model_executor/models/registry.py``) and TensorRT-LLM register each type.
"""

from __future__ import annotations

from collections.abc import Mapping

CLASSES = {
    "dbrx": "DbrxForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "kimi_linear": "KimiLinearForCausalLM",
    "llama4": "Llama4ForConditionalGeneration",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
}
"""By ``model_type``."""
_WITH_VISION = {
    "kimi_k2": "KimiK25ForConditionalGeneration",
    "llama4_text": "Llama4ForConditionalGeneration",
    "qwen3_5_moe_text": "Qwen3_5MoeForConditionalGeneration",
}
"""By ``model_type`` of the text part, where a vision tower stands beside it."""


def architecture_of(config: Mapping[str, object]) -> str:
    """Return the class of a model from the facts of its config.json; empty where neither says it."""
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return named[0]
    kind, text = config.get("model_type"), config.get("text_config")
    if isinstance(kind, str):
        return CLASSES.get(kind, "")
    inner = text.get("model_type") if isinstance(text, Mapping) else None
    return _WITH_VISION.get(str(inner), "") if "vision_config" in config else CLASSES.get(str(inner), "")
