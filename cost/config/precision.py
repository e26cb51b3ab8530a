"""The precision of each class of weights: from the quantiser's section, ``torch_dtype``, or an override."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost.config.modules import MATMUL_CLASSES, matches, module_names
from cost.config.quantization import read_scheme
from cost.dtypes import dtype

if TYPE_CHECKING:
    from cost.config.decoder import Decoder
    from cost.config.facts import Facts
    from cost.config.quantization import Scheme

__all__ = ["read_precision"]

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


def _by_scheme(scheme: Scheme, decoder: Decoder, stored: str) -> tuple[dict[str, str], list[str]]:
    """Return the precision of each matmul class, and notes on classes that are not uniform."""
    found, notes = {}, []
    for name, layers in module_names(decoder).items():
        formats = []
        for modules in layers:
            rule = next((r for r in scheme.rules if r.targets is None or matches(r.targets, modules)), None)
            taken = name in scheme.classes and rule is not None and not matches(scheme.kept, modules)
            formats.append(rule.dtype if rule is not None and taken else stored)
        counts = {one: formats.count(one) for one in dict.fromkeys(formats)}
        most = max(counts, key=lambda one: counts[one])
        found[name] = most
        if len(counts) > 1:
            others = ", ".join(f"{one} in {count}" for one, count in counts.items() if one != most)
            notes.append(f"{name} counted as {most} in all {len(layers)} layers ({others} of them)")
    return found, notes


def _section(top: Facts, text: Facts) -> Facts | None:
    """Return the quantiser's section, in the outer or the inner config."""
    for facts in (top, text):
        if facts.has("quantization_config") and facts.config["quantization_config"]:
            return facts.section("quantization_config")
    return None


def read_precision(
    top: Facts, text: Facts, decoder: Decoder, weights: str | None
) -> tuple[dict[str, str], str, tuple[str, ...]]:
    """Return the dtype name of each class of weights, where it was read, and notes.

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
        return precision, f"--weights {name}", ()
    section = _section(top, text)
    notes: list[str] = []
    if section is not None:
        scheme = read_scheme(section)
        found, notes = _by_scheme(scheme, decoder, stored)
        precision.update(found)
        if scheme.head is not None:
            precision["head"] = scheme.head
        source = f"quantization_config ({scheme.method})"
    elif stored_key:
        source = stored_key
    else:
        source = "assumed bf16: the config has no quantization_config, torch_dtype or dtype"
    if text.has("expert_dtype"):
        key = text.choice("expert_dtype", tuple(_EXPERT_DTYPES))
        precision["experts"] = _EXPERT_DTYPES[key]
        source += f", expert_dtype {key}"
    return precision, source, tuple(notes)
