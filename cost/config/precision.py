"""The precision of each class of weights: from the quantiser's section, ``torch_dtype``, or an override."""

from __future__ import annotations

from collections import Counter

from cost.config.facts import Facts
from cost.config.family import Decoder
from cost.config.modules import HEAD, MATMUL_CLASSES, Module, Patterns, modules_of
from cost.config.quantization import Scheme, read_scheme
from cost.dtypes import dtype, mixture

_CLASSES = (*MATMUL_CLASSES, "router", "embedding", "head", "norm")
_TORCH = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_EXPERT_DTYPES = {"fp4": "mxfp4", "fp8": "fp8", "bf16": "bf16"}


def _stored(top: Facts, text: Facts) -> tuple[str, str]:
    """Return the dtype of what is not quantised, and where it was read."""
    for facts in (text, top):
        for key in ("torch_dtype", "dtype"):
            if facts.has(key):
                value = facts.text(key).removeprefix("torch.")
                if value not in _TORCH:
                    facts.fail(key, f"one of {', '.join(_TORCH)}")
                return _TORCH[value], key
    return "bf16", ""


def _by_scheme(scheme: Scheme, decoder: Decoder, stored: str) -> dict[str, str]:
    """Return the precision of each matmul class, a mixture where its modules differ, and of the head."""
    kept = Patterns(scheme.kept)
    rules = [(rule.dtype, None if rule.targets is None else Patterns(rule.targets)) for rule in scheme.rules]

    def stored_as(names: Module, *, taken: bool) -> str:
        for name, targets in rules:
            if targets is None:
                return name if taken and not kept.name_one_of(names) else stored
            if targets.name_one_of(names):
                return name
        return stored

    found = {"head": stored_as(HEAD, taken=scheme.takes_head)}
    for name, modules in modules_of(decoder).items():
        weights: Counter[str] = Counter()
        for names, count in modules.items():
            weights[stored_as(names, taken=name in scheme.classes)] += count
        found[name] = mixture({one: count / weights.total() for one, count in weights.items()})
    return found


def _section(top: Facts, text: Facts) -> Facts | None:
    """Return the quantiser's section, in the outer or the inner config."""
    for facts in (top, text):
        if facts.has("quantization_config") and facts.config["quantization_config"]:
            return facts.section("quantization_config")
    return None


def read_precision(
    top: Facts, text: Facts, decoder: Decoder, weights: str | None
) -> tuple[dict[str, str], str]:
    """Return the dtype name of each class of weights, and where it was read.

    Parameters
    ----------
    top, text:
        The whole config and the language model's part of it (the same object where there is one).
    weights:
        Override for experts, shared, attention and dense; the quantiser's section is then not read.
    """
    stored, stored_key = _stored(top, text)
    precision = dict.fromkeys(_CLASSES, stored)
    if weights is not None:
        name = dtype(weights).name
        precision.update(dict.fromkeys(MATMUL_CLASSES, name))
        return precision, f"`weights` {name}"
    section = _section(top, text)
    explicit = False
    if section is not None:
        scheme = read_scheme(section)
        precision.update(_by_scheme(scheme, decoder, stored))
        source = f"quantization_config ({scheme.method})"
        explicit = any(rule.targets is not None for rule in scheme.rules)
    elif stored_key:
        source = stored_key
    else:
        source = "assumed bf16: the config has no quantization_config, torch_dtype or dtype"
    for facts in (text, section):
        if facts is not None and facts.has("expert_dtype") and not explicit:
            key = facts.choice("expert_dtype", tuple(_EXPERT_DTYPES))
            precision["experts"] = _EXPERT_DTYPES[key]
            source += f", expert_dtype {key}"
            break
    return precision, source
