"""The precision of each class of weights: modules by class, names that patterns give them, quantisers' sections."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase

from cost.config.facts import Facts
from cost.config.family import Decoder
from cost.config.quantization import MATMUL_CLASSES, Scheme, read_scheme
from cost.dtypes import dtype, format_called, formats_of, mixture
from cost.model import MoeFfn
from topology.base.errors import InputError, called
from topology.base.reading import nearest

Module = tuple[str, ...]


def _attn(*names: str) -> Module:
    """Return the names below attention, which Ling's checkpoints call ``attention``."""
    return tuple(f"{block}.{name}" for block in ("self_attn", "attention") for name in names)


# Attention's projections by the key in `Attention.modules`, with the names that families give them.
_FUSED = ("self_attn.qkv_proj", "attention.query_key_value", "self_attention.query_key_value", "attn.c_attn")
_DENSE = ("self_attn.dense", "self_attention.dense", "attention.dense")
_OUT = ("self_attn.o_proj", "self_attn.out_proj", "mixer.o_proj", *_DENSE, "attn.c_proj")
_GROUPED: dict[str, Module] = {
    **{name: (f"self_attn.{name}_proj", f"mixer.{name}_proj", *_FUSED) for name in "qkv"},
    "o": _OUT,
    "index": ("self_attn.index_q_proj", "self_attn.index_k_proj", "self_attn.indexer.q_proj"),
}
_LATENT: dict[str, Module] = {
    "q_a": _attn("q_a_proj"),
    "q_b": _attn("q_b_proj", "q_proj"),
    "kv_a": _attn("kv_a_proj_with_mqa"),
    "kv_b": _attn("kv_b_proj"),
    "o": _attn("o_proj", "dense"),
    "gate": _attn("g_proj"),
    "index": _attn("indexer.wq_b", "indexer.wk"),
}
_LINEAR: dict[str, Module] = {
    "qkv": ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_qkv", *_FUSED),
    "z": ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_z", "attention.g_proj", "self_attn.output_gate"),
    "ba": ("linear_attn.in_proj_ba", "linear_attn.in_proj_b"),
    "out": ("linear_attn.out_proj", *_OUT),
}
_DELTA: dict[str, Module] = {
    **{name: _attn(f"{name}_proj") for name in "qkvo"},
    "decay": _attn("f_a_proj", "f_b_proj", "f_proj"),
    "beta": _attn("b_proj"),
    "gate": _attn("g_proj", "g_a_proj", "g_b_proj"),
}
_MAMBA: dict[str, Module] = {
    "in": ("mixer.in_proj", "mamba.in_proj", "conv.in_proj"),
    "mixed": ("mixer.out_proj", "mamba.out_proj", "conv.out_proj"),
}
_COMPRESSED: dict[str, Module] = {
    "q_a": ("self_attn.q_a_proj", "attn.wq_a"),
    "q_b": ("self_attn.q_b_proj", "attn.wq_b"),
    "kv": ("self_attn.kv_proj", "attn.wkv"),
    "o_a": ("self_attn.o_a_proj", "attn.wo_a"),
    "o_b": ("self_attn.o_b_proj", "attn.wo_b"),
    "compressors": ("self_attn.compressor.kv_proj", "attn.compressor.wkv"),
    "index": ("self_attn.compressor.indexer.q_b_proj", "attn.indexer.wq_b"),
}
_ATTENTIONS = (_GROUPED, _LATENT, _LINEAR, _DELTA, _MAMBA, _COMPRESSED)

_BLOCKS = ("mlp", "block_sparse_moe", "feed_forward", "ffn", "mixer")
_SHARED_NAMES = ("shared_experts", "shared_expert", "shared_mlp")
# A gated part is two thirds gate and up, one third down.
_GATE_UP = ("gate_proj", "gate_up_proj", "w1", "fc1", "up_proj", "c_fc")
_DOWN = ("down_proj", "w2", "fc2", "c_proj")
HEAD: Module = ("lm_head", "head")


def _below(*path: tuple[str, ...]) -> tuple[Module, Module]:
    """Return the names of the gate-and-up and of the down projection below every way through ``path``."""
    stems = [""]
    for choices in path:
        stems = [f"{stem}{choice}." for stem in stems for choice in choices]
    return tuple(s + n for s in stems for n in _GATE_UP), tuple(s + n for s in stems for n in _DOWN)


def _or_beside(names: tuple[Module, Module]) -> tuple[Module, Module]:
    """Add the names of Granite's part beside the experts, and of LongCat's."""
    up, down = names
    return (
        (*up, "shared_mlp.input_linear", "mlps.0.gate_proj", "mlps.0.up_proj"),
        (*down, "shared_mlp.output_linear", "mlps.0.down_proj"),
    )


_FFN = {
    "experts": _below(_BLOCKS, ("experts",), ("0",)),
    "shared": _or_beside(_below(_BLOCKS, _SHARED_NAMES)),
    "dense": _or_beside(_below(("mlp", "feed_forward", "ffn", "mixer"))),
}


def _attention_names(modules: frozenset[str]) -> dict[str, Module]:
    """Return the names of the one kind of attention that has all ``modules``."""
    return next(names for names in _ATTENTIONS if modules <= names.keys())


def modules_of(decoder: Decoder) -> dict[str, Counter[Module]]:
    """Return the modules of each matmul class with their weights; the names start at ``layers.N``."""
    classes: dict[str, Counter[Module]] = {name: Counter() for name in MATMUL_CLASSES}
    for index, layer in enumerate(decoder.layers):
        at, half = f"layers.{index // decoder.parts}.", index % decoder.parts
        attn = "self_attn" if decoder.parts == 1 else f"self_attn.{half}"
        weights = layer.attention.modules
        names = _attention_names(frozenset(weights))
        for key, count in weights.items():
            classes["attention"][tuple(at + name.replace("self_attn", attn) for name in names[key])] += count
        if isinstance(layer.ffn, MoeFfn):
            parts = {
                "experts": layer.ffn.experts * layer.ffn.expert_params,
                "shared": layer.ffn.shared_params,
            }
        else:
            parts = {"dense": layer.ffn.params}
        matrices = layer.ffn.matrices if isinstance(layer.ffn, MoeFfn) else 3
        for part, count in parts.items():
            gate_up, down = (
                tuple(at + name.replace("mlps.0", f"mlps.{half}") for name in names) for names in _FFN[part]
            )
            classes[part][gate_up] += count - count // matrices
            classes[part][down] += count // matrices
    return {name: +modules for name, modules in classes.items() if +modules}


_MAX_MATCHES = 1_000_000
"""Patterns that do not begin with a layer, times modules: 270 for the 3,700 of 61 layers take two seconds."""
_MAX_EXPRESSIONS = 64
_MAX_EXPRESSION_LENGTH = 200
_NESTED_REPEATS = re.compile(r"[*+}][^()]*\)[*+{]")
"""A repeated group with a repeat in it: Python's matcher may try every way to divide the text between the two."""
_PREFIXES = ("model.", "backbone.", "language_model.model.", "model.language_model.", "")
_STRIPPED = re.compile(r"^(model\.|language_model\.|transformer\.|backbone\.)+")


def _parts(pattern: str) -> list[str]:
    """Return the dotted parts of a pattern, from the layers on."""
    parts = [part for part in _STRIPPED.sub("", pattern).split(".") if part]
    if parts and parts[-1] in {"weight", "*"}:
        parts.pop()
    return parts


def _expression(text: str) -> re.Pattern[str]:
    if len(text) > _MAX_EXPRESSION_LENGTH:
        raise InputError(
            f"quantization_config: {text[:60]!r}... has more than {_MAX_EXPRESSION_LENGTH} characters; "
            "name the modules."
        )
    if _NESTED_REPEATS.search(text):
        raise InputError(
            f"quantization_config: {text!r} repeats a group that holds a repeat; name the modules."
        )
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"quantization_config: {text!r} is not a regular expression ({error}).") from None


class Patterns:
    """Names of modules as quantisers write them: literal, with ``*``, or ``re:`` and a regular expression.

    A literal, dotted or not, stands for every module in whose name its parts follow each other (``gate`` names
    ``mlp.gate``, not ``mlp.gate_proj``); ``*`` matches within one part.

    Raises
    ------
    InputError
        If a regular expression is broken or long, or there are more patterns than are tried.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = list(dict.fromkeys(patterns))
        if (count := sum(pattern.startswith("re:") for pattern in patterns)) > _MAX_EXPRESSIONS:
            raise InputError(
                f"quantization_config: {count:,} patterns with `re:`; at most {_MAX_EXPRESSIONS} are read."
            )
        self._literals: set[str] = set()
        self._globs: list[list[str]] = []
        self._by_start: dict[tuple[str, str], list[list[str]]] = {}
        self._expressions: list[re.Pattern[str]] = []
        for pattern in patterns:
            if pattern.startswith("re:"):
                self._expressions.append(_expression(pattern[3:]))
            elif parts := _parts(pattern):
                if "*" in pattern and len(parts) > 1 and not set("*?[") & {*parts[0], *parts[1]}:
                    self._by_start.setdefault((parts[0], parts[1]), []).append(parts)
                elif "*" in pattern:
                    self._globs.append(parts)
                else:
                    self._literals.add(".".join(parts))

    @property
    def tried(self) -> int:
        """Patterns that are tried on each name one by one."""
        return len(self._globs) + 4 * len(self._expressions)

    def name_one_of(self, names: Iterable[str]) -> bool:
        """Whether a pattern names one of ``names`` (each starting at ``layers.N`` or ``lm_head``)."""
        return any(self._matches(name) for name in names)

    def _matches(self, name: str) -> bool:
        parts = name.split(".")
        count = len(parts)
        if self._literals and any(
            ".".join(parts[start:end]) in self._literals
            for start in range(count)
            for end in range(start + 1, count + 1)
        ):
            return True
        for pattern in self._globs:
            starts = range(count - len(pattern) + 1)
            if any(all(map(fnmatchcase, parts[start:], pattern)) for start in starts):
                return True
        for start in range(count - 1):
            for pattern in self._by_start.get((parts[start], parts[start + 1]), ()):
                if len(pattern) <= count - start and all(map(fnmatchcase, parts[start:], pattern)):
                    return True
        return any(
            expression.match(prefix + name) for expression in self._expressions for prefix in _PREFIXES
        )


# The precision of each class: from the quantiser's section, `torch_dtype`, or an override.

_CLASSES = (*MATMUL_CLASSES, "router", "embedding", "head", "norm")


def _stored(top: Facts, text: Facts) -> tuple[str, str]:
    """Return the dtype of what is not quantised, and where it was read."""
    for facts in (text, top):
        key = facts.one_of("torch_dtype", "dtype")
        if facts.has(key):
            name = format_called(facts.text(key).removeprefix("torch."), "torch_dtype")
            return name or facts.must_be(key, f"one of {', '.join(formats_of('torch_dtype'))}"), key
    return "bf16", ""


def _by_scheme(scheme: Scheme, decoder: Decoder, stored: str) -> dict[str, str]:
    """Return the precision of each matmul class, a mixture where its modules differ, and of the head."""
    excluded = Patterns(scheme.kept)
    rules = [(rule.dtype, None if rule.targets is None else Patterns(rule.targets)) for rule in scheme.rules]

    def stored_as(names: Module, *, quantised: bool) -> str:
        for name, targets in rules:
            if targets is None:
                return name if quantised and not excluded.name_one_of(names) else stored
            if targets.name_one_of(names):
                return name
        return stored

    modules_by_class = modules_of(decoder)
    count = sum(
        map(len, (class_modules for modules in modules_by_class.values() for class_modules in modules))
    )
    tried = excluded.tried + sum(targets.tried for _, targets in rules if targets is not None)
    if count * tried > _MAX_MATCHES:
        raise InputError(
            f"quantization_config: {tried:,} patterns with `*` or `re:` for {count:,} modules; together at most "
            f"{_MAX_MATCHES:,} are tried."
        )
    precision = {"head": stored_as(HEAD, quantised=scheme.takes_head)}
    for name, modules in modules_by_class.items():
        weights: Counter[str] = Counter()
        for names, count in modules.items():
            weights[stored_as(names, quantised=name in scheme.classes)] += count
        precision[name] = mixture({form: count / weights.total() for form, count in weights.items()})
    return precision


def _section(top: Facts, text: Facts) -> Facts | None:
    """Return the quantiser's section, in the outer or the inner config."""
    key = "quantization_config"
    sections = [facts.sub(key) for facts in (top, text) if facts.has(key) and facts.data[key]]
    if sections and sections[0].data != sections[-1].data:
        text.must_be(key, "what the outer config says, or absent")
    return sections[0] if sections else None


def classes_given(weights: str | None) -> dict[str, str]:
    """Return the format of each class that ``weights`` overrides: ``nvfp4`` is of all, ``experts=nvfp4`` of one.

    ``nvfp4,attention=fp8``: a class alone goes before the format of all.

    Raises
    ------
    InputError
        If a format or a class is unknown, or is given twice.
    """
    forms: dict[str, str] = {}
    for text in [] if weights is None else weights.split(","):
        name, equals, form = (part.strip().lower() for part in text.rpartition("="))
        if equals and name not in MATMUL_CLASSES:
            hint = nearest(name, MATMUL_CLASSES)
            raise InputError(f"there is no class of weights {name!r}; {hint}", field="weights", value=weights)
        if name in forms:
            raise InputError(f"duplicate {name or form}; leave one out.", field="weights", value=weights)
        forms[name] = dtype(form).name
    of_all = forms.pop("", None)
    return ({} if of_all is None else dict.fromkeys(MATMUL_CLASSES, of_all)) | forms


def read_precision(
    top: Facts, text: Facts, decoder: Decoder, weights: str | None
) -> tuple[dict[str, str], str]:
    """Return the dtype name of each class of weights, and where it was read.

    Parameters
    ----------
    top, text:
        The whole config and the language model's part of it (the same object where there is one).
    weights:
        Override (:func:`classes_given`); of all four classes: the quantiser's section is then not read.
    """
    stored, stored_key = _stored(top, text)
    precision = dict.fromkeys(_CLASSES, stored)
    overrides = classes_given(weights)
    named = f"{called('weights')} {', '.join(dict.fromkeys(overrides.values()))}"
    if len(overrides) == len(MATMUL_CLASSES):
        return precision | overrides, named
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
            key = facts.choice("expert_dtype", formats_of("expert_dtype"))
            precision["experts"] = format_called(key, "expert_dtype") or key
            source += f", expert_dtype {key}"
            break
    return precision | overrides, f"{source}, {named}" if overrides else source
