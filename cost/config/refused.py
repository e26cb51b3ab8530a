"""Architectures that are known and not modelled, with the part that is missing, for the message."""

from __future__ import annotations

import difflib

_PARTS = {
    "state-space (Mamba) layers": (
        "mamba mamba2 falcon_mamba jamba zamba zamba2 bamba falcon_h1 nemotron_h "
        "granitemoehybrid plamo2 hymba samba"
    ),
    "an encoder with cross-attention": (
        "t5 mt5 umt5 longt5 t5gemma bart mbart pegasus pegasus_x bigbird_pegasus "
        "switch_transformers nllb-moe nllb_moe whisper m2m_100 marian led blenderbot encoder-decoder ul2 "
        "prophetnet fsmt speech_to_text seamless_m4t"
    ),
    "an encoder, which does not decode token by token": (
        "bert roberta distilbert electra deberta deberta-v2 albert xlm-roberta modernbert "
        "nomic_bert mpnet camembert ernie eurobert clip siglip vit dinov2 swin"
    ),
    "recurrent layers": "rwkv rwkv5 rwkv6 rwkv7 xlstm recurrent_gemma",
    "lightning (linear) attention": "minimax minimax_text_01 minimax_m1 bailing_moe_linear bailing_hybrid",
    "native sparse attention in three branches, which no serving engine runs": "nsa",
    "compressed attention with rates of its own (DeepSeek-V4.1)": "deepseek_v41 deepseek_v41_text",
    "short convolution layers": "lfm2 lfm2_moe",
    "per-layer embeddings and layers that share keys and values": "gemma3n gemma3n_text",
    "two attentions a layer and experts without weights": "longcat_flash",
    "cross-attention layers to a vision tower": "mllama mllama_text_model",
    "layers that differ one by one (block_configs)": "deci nemotron-nas",
    "heads that differ by layer, and a gate a head": "step3p5 step3p7 laguna",
    "a serving tool's own conversion; its model_type does not say which DeepSeek it is": "deepseek_ref",
    "the remote code that defines it": (
        "chatglm baichuan qwen internlm2 phi3small phi-msft grok-1 arctic openelm minicpm minicpm3"
    ),
}


def why_refused(model_type: str, known: list[str]) -> str:
    """Return one line: what part of ``model_type`` is not modelled, or which known type is nearest."""
    key = model_type.lower()
    for part, names in _PARTS.items():
        if key in names.split():
            return f"model_type {model_type!r} is not modelled: {part}."
    near = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
    hint = f" The nearest known: {', '.join(near)}." if near else ""
    return f"model_type {model_type!r} is not modelled.{hint} `rackplan catalog models` lists models by name."
