"""What is not modelled: keys that no row reads, and architectures that are refused by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cost.config.facts import Facts
from topology.base.errors import InputError
from topology.base.reading import shown

_LIST = Path(__file__).with_name("harmless.txt")
_HARMLESS_FORMS = re.compile(
    r".*(_ids?|_token_index|_token|_dropout|_pdrop|_dropout_prob|_coef|_implementation|_init|_loss_weight)$"
    r"|dropout.*|(init|initializer|mup|unsloth|summary|tokenizer|generation|yarn|training|transformers)_.*|_.*"
)
# Words in a key that mean weights, caches or what a token is multiplied with.
_STRUCTURE = re.compile(
    r"expert|moe|lora|adapter|mamba|ssm|state|conv|index|linear|layer|block|pattern|window|chunk|head|hidden|size"
    r"|inter|ffn|mlp|d_model|n_embd|dim|bias|qk_|altup|laurel|cross|parallel|kv|shared|gate|router|sink|hash|engram"
    r"|compress|hc_|hyper|group|memory|recurren|sparse|depth|width|vision|audio|image|video|encoder|decoder|rank|ratio"
    r"|topk|top_k|num_|n_|tower|projector|attn|attention|norm|embed|rate|alpha|interval|freq|mtp|draft|medusa|ple|dense|feed_forward|multi_query|mla|_cla|cla_|learned"
)

_MIN_TWIN = 64  # a small number may be equal by chance


@cache
def _harmless() -> frozenset[str]:
    """Return the harmless keys that are known by name."""
    lines = _LIST.read_text(encoding="utf-8").splitlines()
    return frozenset(" ".join(line for line in lines if not line.startswith("#")).split())


def is_harmless(key: str) -> bool:
    """Whether no count depends on ``key``."""
    return key in _harmless() or _HARMLESS_FORMS.fullmatch(key) is not None


def _inactive(value: object) -> bool:
    """Whether the value switches nothing on: null, false, 0, empty."""
    if isinstance(value, (Mapping, list, str)):
        return not value
    return value is None or (isinstance(value, (bool, int, float)) and value == 0)


def _twin(facts: Facts, key: str) -> str | None:
    """Return a read key that ``key`` repeats: one name holds the other, and both the same large number."""
    value = facts.data[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < _MIN_TWIN:
        return None
    for read_key in sorted(facts.known):
        if facts.data.get(read_key) == value and (read_key in key or key in read_key):
            return read_key
    return None


def check_unread(facts: Facts, family: str) -> tuple[str, ...]:
    """Return notes on unread keys that look harmless but are not known.

    Raises
    ------
    InputError
        If an unread key would change the architecture: then the counts would be wrong.
    """
    notes = []
    for key, value in facts.data.items():
        if key in facts.known or _inactive(value) or is_harmless(key):
            continue
        twin = _twin(facts, key)
        if twin:
            notes.append(
                f"{key[:60]}={shown(value)} was taken as another name of {twin}, which says the same"
            )
            continue
        if _STRUCTURE.search(key.lower()):
            raise InputError(
                f"{facts.where}: {key} is {shown(value)}, and a {family} model is not known to have it; "
                "the part it describes is not modelled. Remove the key if it has no effect."
            )
        notes.append(f"{key[:60]}={shown(value)} is not known and was taken to have no effect")
    return tuple(notes)


# Architectures that are known and not modelled, with the part that is missing, for the message.
_PARTS = {
    "state-space (Mamba) layers": (
        "mamba mamba2 falcon_mamba jamba zamba zamba2 falcon_h1 plamo2 hymba samba"
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
    "native sparse attention in three branches, which no serving engine runs": "nsa",
    "compressed attention with rates of its own (DeepSeek-V4.1)": "deepseek_v41 deepseek_v41_text",
    "per-layer embeddings and layers that share keys and values": "gemma3n gemma3n_text",
    "n-gram embeddings": "longcat_flash_ngram",
    "layers that share latents, and an index with norms of its own": "mistral_large4_text",
    "n-gram embeddings, and an index over grouped queries": "qwen4_exp_text",
    "residual streams around indexed attention": "hy_v4",
    "cross-attention layers to a vision tower": "mllama mllama_text_model",
    "layers that differ one by one (block_configs)": "deci nemotron-nas",
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
