"""``quantization_config`` in its dialects: which format, and which modules stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cost.config.facts import Facts
from cost.dtypes import format_called, formats_of
from topology.base.errors import input_name
from topology.base.reading import shown

# The classes of weights that a token is multiplied with inside the layers; quantisers take these.
MATMUL_CLASSES = ("experts", "shared", "attention", "dense")


@dataclass(frozen=True)
class Rule:
    """Modules named in ``targets`` (None: all linear ones) are stored as ``dtype``."""

    dtype: str
    targets: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Scheme:
    """What a quantiser did: ``rules``, first match first, except ``kept`` modules, to ``classes`` of weights.

    ``takes_head`` says whether a rule without targets takes the output head too. Modules that a rule names stay
    with that rule, whatever ``kept`` says.
    """

    method: str
    rules: tuple[Rule, ...]
    kept: tuple[str, ...] = ()
    classes: tuple[str, ...] = MATMUL_CLASSES
    takes_head: bool = False


def _names(f: Facts, *keys: str) -> tuple[str, ...]:
    """Return the strings listed under the first of ``keys`` that is there."""
    for key in keys:
        if f.has(key):
            values = f.items(key)
            for value in values:
                if not isinstance(value, str):
                    f.must_be(key, "a list of module names")
            return tuple(str(value) for value in values)
    return ()


def _block(f: Facts, key: str) -> str:
    """Return the shape of the blocks that share a scale, as the table of formats writes it."""
    return "x".join(map(repr, f.items(key)))


def _fp8(f: Facts) -> Scheme:
    """DeepSeek's and transformers' FP8: 128 x 128 blocks, or one scale a tensor where no block is given."""
    excluded = _names(f, "modules_to_not_convert", "ignored_layers")
    block = _block(f, "weight_block_size") if f.has("weight_block_size") else "-"
    dtype = format_called(block, "weight_block_size")
    if dtype is None:
        f.must_be("weight_block_size", "[128, 128] or [1, 32]")
    if f.has("quantized_layers") and f.data["quantized_layers"]:
        return Scheme("fp8, some modules by modelopt", (*_by_module(f), Rule(dtype)), excluded)
    return Scheme("fp8", (Rule(dtype),), excluded)


def _fbgemm(f: Facts) -> Scheme:
    """FBGEMM's FP8: one scale a row."""
    return Scheme("fbgemm_fp8", (Rule("fp8-row"),), _names(f, "modules_to_not_convert"))


def _mxfp4(f: Facts) -> Scheme:
    """gpt-oss: the experts alone."""
    return Scheme("mxfp4", (Rule("mxfp4"),), _names(f, "modules_to_not_convert"), classes=("experts",))


def _weight_only(f: Facts, bits: int, group: int, *, zero_points: bool) -> str:
    """Return the format of weights in groups (-1: a whole row) that multiply in BF16."""
    dtype = format_called(f"{bits}:{group}{'-zp' if zero_points else ''}", "weight-only")
    if dtype is None:
        f.refuse(f"quantization_config: INT4 in groups of {group} is not known; known are 32, 64 and 128.")
    return dtype


def _bits(f: Facts, key: str) -> int:
    bits = f.count(key)
    if bits not in (4, 8):
        f.must_be(key, "4 or 8")
    return bits


def _gptq(f: Facts) -> Scheme:
    """GPTQ: packed zero points in every group."""
    if f.has("dynamic") and f.data["dynamic"]:
        f.refuse(
            f"quantization_config: GPTQ's per-module `dynamic` rules are not modelled; give {input_name('weights')}."
        )
    group = f.count("group_size", least=-1)
    dtype = _weight_only(f, _bits(f, "bits"), group, zero_points=True)
    excluded = _names(f, "modules_to_not_convert")
    return Scheme("gptq", (Rule(dtype),), excluded, takes_head=f.flag("lm_head", default=False))


def _awq(f: Facts) -> Scheme:
    """AWQ; older files call the keys ``w_bit`` and ``q_group_size``."""
    bits = "bits" if f.has("bits") else "w_bit"
    group = f.count("group_size" if f.has("group_size") else "q_group_size", least=-1)
    zero_points = f.flag("zero_point", default=True)
    dtype = _weight_only(f, _bits(f, bits), group, zero_points=zero_points)
    return Scheme("awq", (Rule(dtype),), _names(f, "modules_to_not_convert"))


def _compressed_dtype(f: Facts, group: Facts) -> str:
    """Return the format of one of compressed-tensors' groups."""
    weights = group.sub("weights")
    bits, kind = weights.count("num_bits"), weights.choice("type", ("float", "int"))
    strategy = weights.text("strategy", "tensor")
    size = weights.count("group_size", default=-1, least=-1)
    if (kind, bits) == ("int", 4):
        symmetric = weights.flag("symmetric", default=True)
        return _weight_only(f, bits, size if strategy == "group" else -1, zero_points=not symmetric)
    if (kind, bits, strategy) == ("float", 8, "block") and _block(weights, "block_structure") != "128x128":
        weights.must_be("block_structure", "[128, 128]")
    dtype = format_called(f"{kind}{bits}:{strategy}:{size}", "compressed-tensors")
    return dtype or weights.must_be("num_bits", "4 or 8 in a known grouping")


def _compressed(f: Facts) -> Scheme:
    """compressed-tensors: groups of targets, each with its format."""
    groups = f.sub("config_groups")
    rules = []
    for name in groups.names():
        group = groups.sub(name)
        targets = _names(group, "targets")
        if not group.has("weights"):
            continue
        everything = not targets or "Linear" in targets or "LinearBase" in targets
        rules.append(Rule(_compressed_dtype(f, group), None if everything else targets))
    if not rules:
        f.refuse("quantization_config has no config_groups with weights.")
    return Scheme("compressed-tensors", tuple(rules), _names(f, "ignore"), takes_head=True)


def _modelopt(f: Facts) -> Scheme:
    """NVIDIA ModelOpt, in ``quantization_config`` or in a file of its own (``hf_quant_config.json``)."""
    inner = f.sub("quantization") if f.has("quantization") else f
    if inner.has("quantized_layers") and inner.data["quantized_layers"]:
        return Scheme("modelopt, module by module", _by_module(inner))
    algorithm = inner.text("quant_algo")
    excluded = _names(inner, "exclude_modules", "ignore")
    return Scheme(f"modelopt {algorithm}", (Rule(_modelopt_dtype(inner)),), excluded)


def _modelopt_dtype(f: Facts) -> str:
    dtype = format_called(f.text("quant_algo"), "modelopt")
    if dtype is None:
        known = ", ".join(formats_of("modelopt"))
        f.must_be("quant_algo", f"one of {known} ({input_name('weights')} says the precision without it)")
    return dtype


def _by_module(f: Facts) -> tuple[Rule, ...]:
    """Return one rule a format from ModelOpt's table of modules."""
    table = f.sub("quantized_layers")
    targets: dict[str, list[str]] = {}
    for name in table.names():
        targets.setdefault(_modelopt_dtype(table.sub(name)), []).append(name)
    return tuple(Rule(dtype, tuple(names)) for dtype, names in targets.items())


def _quark_dtype(f: Facts) -> str | None:
    """Return the format of a part of AMD Quark's section, None where weights stay as they were."""
    if not f.has("weight") or f.data["weight"] is None:
        return None
    weight = f.sub("weight")
    size = (
        weight.count("group_size", default=-1, least=-1) if weight.data.get("group_size") is not None else -1
    )
    dtype = format_called(f"{weight.text('dtype')}:{weight.text('qscheme')}:{size}", "quark")
    return dtype or weight.must_be("dtype", f"one of {', '.join(formats_of('quark'))}, as TYPE:SCHEME:GROUP")


def _quark(f: Facts) -> Scheme:
    """AMD Quark: one format for all, others for modules by name, and modules that are left out.

    https://quark.docs.amd.com/latest/pytorch/user_guide_config_for_llm.html
    """
    if f.has("layer_type_quant_config") and f.data["layer_type_quant_config"]:
        f.refuse(
            "quantization_config: Quark's `layer_type_quant_config` is not modelled; give "
            f"{input_name('weights')} to say the precision yourself."
        )
    targets: dict[str, list[str]] = {}
    excluded = list(_names(f, "exclude"))
    if f.has("layer_quant_config"):
        layers = f.sub("layer_quant_config")
        for name in layers.names():
            dtype = _quark_dtype(layers.sub(name))
            (excluded if dtype is None else targets.setdefault(dtype, [])).append(name)
    rules = [Rule(dtype, tuple(names)) for dtype, names in targets.items()]
    if (default_dtype := _quark_dtype(f.sub("global_quant_config"))) is not None:
        rules.append(Rule(default_dtype))
    return Scheme("quark", tuple(rules), tuple(excluded), takes_head=True)


_READERS: dict[str, Callable[[Facts], Scheme]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed,
    "compressed_tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "quark": _quark,
}


def read_scheme(f: Facts) -> Scheme:
    """Read a quantiser's own section of the config.

    Raises
    ------
    InputError
        If the method is not known, or one of its keys is wrong: a precision is never guessed.
    """
    by_modelopt = f.has("quantization") or f.has("quant_algo")
    method = f.text("quant_method", "modelopt" if by_modelopt else "")
    if method not in _READERS:
        f.refuse(
            f"quant_method is {shown(f.data.get('quant_method'))}, which is not modelled (known: "
            f"{', '.join(sorted(_READERS))}); give {input_name('weights')} to say the precision yourself."
        )
    return _READERS[method](f)
