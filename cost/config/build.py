"""From a ``config.json`` to a :class:`cost.model.Model`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cost.config.facts import Facts
from cost.config.families import FAMILIES
from cost.config.family import Decoder
from cost.config.positions import most_positions
from cost.config.precision import read_precision
from cost.config.unmodelled import check_unread, is_harmless, why_refused
from cost.model import Model
from topology.base.errors import InputError
from topology.base.reading import parse_json, read_text, shown

_INNER = ("text_config", "llm_config", "language_config", "thinker_config")
_TOWERS = {
    "vision_config": "vision tower",
    "vit_config": "vision tower",
    "audio_config": "audio tower",
    "vision_tower": "vision tower",
    "talker_config": "speech output",
}
_CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
# Where the language model inside a wrapper has the wrapper's own name.
_SAME_NAME = {
    "kimi_k25": "kimi_k2",
    "kimi_k3": "kimi_linear",
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
}
# Wrappers whose published configs do not name the type of the language model inside.
_UNNAMED = {"minimax_m3_vl": "minimax_m3"}
_SECTION = "rackplan"


def _unwrap(top: Facts) -> tuple[Facts, tuple[str, ...]]:
    """Return the language model's part of a multimodal config, and what is left out."""
    omitted = tuple(dict.fromkeys(name for key, name in _TOWERS.items() if top.has(key) and top.data[key]))
    inner = [key for key in _INNER if top.has(key)]
    if not inner:
        top.ignore(*_TOWERS)
        return top, omitted
    if len(inner) > 1:
        top.must_be(inner[1], f"absent, for {inner[0]} describes the language model")
    text = top.sub(inner[0])
    if inner[0] == "thinker_config":
        text, towers = _unwrap(text)
        return text, (*omitted, *towers)
    unnamed = _UNNAMED.get(str(top.data.get("model_type")))
    if unnamed is not None and "model_type" not in text.data:
        text.data = {**text.data, "model_type": unnamed}
    if "tie_word_embeddings" in top.data:
        outer, within = top.data["tie_word_embeddings"], text.data.get("tie_word_embeddings")
        if within is not None and within != outer:
            text.must_be("tie_word_embeddings", f"what the outer config says ({shown(outer)})")
        text.data = {**text.data, "tie_word_embeddings": outer}
    return text, omitted


def _check_kind(facts: Facts) -> None:
    """Reject what is no causal language model."""
    for key in ("is_encoder_decoder", "add_cross_attention"):
        if facts.flag(key, default=False):
            facts.refuse(f"{key} is true: an encoder with cross-attention is not modelled.")
    if not facts.has("architectures"):
        return
    names = facts.items("architectures")
    if not all(isinstance(name, str) for name in names):
        facts.must_be("architectures", "a list of class names")
    if names and not any(str(name).endswith(_CAUSAL) for name in names):
        facts.refuse(
            f"architectures is {shown(names)}: only a language model with an output head is modelled."
        )


def _row_name(text: Facts) -> str:
    """Return the model type of the row that describes the language model's part."""
    model_type = text.text("model_type")
    for name in (
        model_type,
        _SAME_NAME.get(model_type, ""),
        f"{model_type}_text",
        model_type.removesuffix("_text"),
    ):
        if name in FAMILIES:
            return name
    return text.refuse(why_refused(model_type, sorted(FAMILIES)))


def _trimmed(config: Mapping[str, object], *, keep: frozenset[str]) -> dict[str, object]:
    """Return the keys that counts or precision depend on; towers are left as markers."""
    trimmed: dict[str, object] = {}
    for key, value in config.items():
        if key in _TOWERS and value:
            trimmed[key] = {"omitted": True}
        elif key in _INNER and isinstance(value, Mapping):
            trimmed[key] = _trimmed(value, keep=keep)
        elif key in keep or not is_harmless(key):
            trimmed[key] = value
    return trimmed


# Harmless keys that are read all the same: by name, precision, or one family (positions that are weights).
_KEPT_KEYS = frozenset(
    {"model_type", "architectures", "torch_dtype", "dtype", "quantization_config", "tie_word_embeddings"}
    | {
        "topk_method",
        "num_experts_per_token",
        "alibi",
        "is_encoder_decoder",
        "hidden_act",
        "max_position_embeddings",
        "max_window_layers",
    }
)


def _parts(top: Facts) -> tuple[Facts, Decoder, tuple[str, ...], tuple[str, ...]]:
    """Return the language model's facts, its decoder, what is left out, and notes."""
    _check_kind(top)
    text, towers = _unwrap(top)
    if text is not top:
        _check_kind(text)
    name = _row_name(text)
    text.data = {**text.data, "model_type": name}
    decoder = FAMILIES[name].decoder(text)
    text.ignore("expert_dtype", "quantization_config")
    notes = check_unread(text, name)
    if decoder.parts > 1:
        notes += (
            f"plans number {decoder.parts} layers for each of the config's, {len(decoder.layers)} in all",
        )
    return text, decoder, (*decoder.omitted, *towers), notes


def model_from_config(config: Mapping[str, object], *, name: str, weights: str | None = None) -> Model:
    """Return the model that a config describes.

    Parameters
    ----------
    config:
        A ``config.json`` as a mapping, or :attr:`cost.model.Model.config` of a model read before.
    name:
        How the model is called in reports.
    weights:
        Precision of experts, shared, attention and dense weights, in place of the checkpoint's own
        (:func:`cost.config.precision.classes_given`).

    Raises
    ------
    InputError
        If a needed key is missing or impossible, or a part of the architecture is not modelled.
    """
    if not isinstance(config, Mapping):
        raise InputError(f"{name}: a config is a JSON object, not {shown(config)}.")
    value = config.get(_SECTION)
    previous: Mapping[str, object] = value if isinstance(value, Mapping) else {}
    if weights is None and isinstance(previous.get("weights"), str):
        weights = str(previous["weights"])
    top = Facts(config, name)
    text, decoder, omitted, notes = _parts(top)
    precision, precision_source = read_precision(top, text, decoder, weights)
    source = str(previous.get("source", name))
    trimmed = _trimmed(config, keep=_KEPT_KEYS)
    section: dict[str, object] = {"source": source, **({"weights": weights} if weights is not None else {})}
    most_context, where = most_positions(previous, text.data, source)
    if most_context is not None:
        section |= {"most_context": most_context, "most_context_source": where}
    trimmed[_SECTION] = section
    return Model(
        name=name,
        hidden=decoder.hidden,
        vocab=decoder.vocab,
        layers=decoder.layers,
        embedding_params=decoder.embedding_params,
        head_params=decoder.head_params,
        final_norm_params=decoder.final_norm_params,
        tied=decoder.tied,
        precision=precision,
        precision_source=precision_source,
        source=source,
        omitted=omitted,
        config=trimmed,
        weights_override=weights,
        notes=notes,
        most_context=most_context,
        most_context_source=where,
    )


def load_object(path: Path) -> dict[str, object]:
    """Return the JSON object in ``path``, a ``config.json``.

    Raises
    ------
    InputError
        If the file cannot be read or is not one JSON object.
    """
    where = str(path)
    if path.is_dir():
        raise InputError(f"{where} is a folder; give its config.json.")
    if not path.exists():
        raise InputError(f"{where}: there is no such file.")
    text = read_text(path, where)
    if not text.strip():
        raise InputError(f"{where} is empty.")

    content = parse_json(text, where, infinite=True)  # real configs hold infinity as a limit
    if not isinstance(content, dict):
        raise InputError(f"{where} holds a JSON {type(content).__name__}; a config.json is an object.")
    return content
