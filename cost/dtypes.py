"""Formats of weights and caches: bytes per element with block scales, and the unit that multiplies them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from topology.base.errors import InputError, MissingFigureError
from topology.base.reading import nearest
from topology.base.units import added
from topology.spec import GpuSpec

# What a chip falls back to when it cannot multiply a type: the next wider one.
_WIDER = {"fp4": "fp8", "fp8": "bf16", "int8": "bf16"}
_SHARE_ERROR = 1e-4  # shares are written with four digits


@dataclass(frozen=True)
class Dtype:
    """A storage format.

    Attributes
    ----------
    bits:
        Bits of one element, without scales.
    scale_bits:
        Bits of scales (and zero points) that one block of ``block`` elements carries.
    multiplies_as:
        ``bf16``, ``fp8``, ``int8`` or ``fp4``: the multiply unit that the format is made for.
    source:
        Where the layout is written down.
    mixed:
        Of a mixture, its formats and the share of the weights that each has; ``bits`` are then their mean, and
        ``multiplies_as`` is empty.
    """

    name: str
    bits: float
    scale_bits: float
    block: int
    multiplies_as: str
    source: str
    mixed: tuple[tuple[Dtype, float], ...] = ()

    @property
    def parts(self) -> tuple[tuple[Dtype, float], ...]:
        """The formats of a mixture with their shares, or this one alone."""
        return self.mixed or ((self, 1.0),)

    def rate(self, peaks: Mapping[str, float]) -> float:
        """Return the flop/s of a mixture, whose formats are multiplied one after the other, from those of each."""
        return 1 / sum(share / peaks[part.name] for part, share in self.parts)

    @property
    def bytes_per_param(self) -> float:
        """Bytes of one element, its share of the block's scale included."""
        return (self.bits + self.scale_bits / self.block) / 8


_OCP = "OCP Microscaling Formats (MX) Specification v1.0: blocks of 32 share one 8-bit exponent"
_GPTQ = "group-wise INT4, weights only: one 16-bit scale a group"


def _int4(group: int, *, zero_points: bool) -> Dtype:
    """INT4 in groups of ``group`` along the input; ``zero_points``: packed 4-bit ones, as GPTQ keeps."""
    name = f"int4-g{group}" + ("-zp" if zero_points else "")
    source = _GPTQ + (" and one packed 4-bit zero point" if zero_points else "")
    return Dtype(name, 4, 16 + (4 if zero_points else 0), group, "bf16", source)


_TABLE = (
    Dtype("bf16", 16, 0, 1, "bf16", "bfloat16: 8 exponent and 7 fraction bits"),
    Dtype("fp16", 16, 0, 1, "bf16", "IEEE 754 binary16; same multiply rate as BF16"),
    Dtype("fp32", 32, 0, 1, "bf16", "IEEE 754 binary32; cast to BF16 before it multiplies"),
    Dtype(
        "fp8", 8, 32, 128 * 128, "fp8", "DeepSeek-V3 report, section 3.3.2: one FP32 scale per 128x128 block"
    ),
    Dtype("fp8-row", 8, 0, 1, "fp8", "FP8 with one scale a row or tensor: under 0.1 %, not counted"),
    Dtype("mxfp8", 8, 8, 32, "fp8", _OCP),
    Dtype("mxfp4", 4, 8, 32, "fp4", _OCP),
    Dtype(
        "nvfp4", 4, 8, 16, "fp4", "NVIDIA NVFP4: blocks of 16 share one FP8 scale, one FP32 scale a tensor"
    ),
    Dtype("nvfp4-a16", 4, 8, 16, "bf16", "NVFP4 weights alone, activations stay in BF16"),
    Dtype(
        "int8",
        8,
        0,
        1,
        "int8",
        "INT8, one scale a row (not counted); cast to BF16 where the INT8 peak is not known",
    ),
    Dtype("int4-row", 4, 0, 1, "bf16", "INT4, one scale a row (not counted), weights only"),
    *(_int4(group, zero_points=zp) for group in (32, 64, 128) for zp in (False, True)),
)

DTYPES = {entry.name: entry for entry in _TABLE}
_PATTERNS = (
    # By who writes it: globs of what is written, and the format; "" are people and publications.
    ("", "bfloat16", "bf16"),
    ("", "float16 half", "fp16"),
    ("", "float32", "fp32"),
    ("", "fp8-block block-fp8 w8a8-fp8 e4m3", "fp8"),
    ("", "fp4 nv-fp4", "nvfp4"),
    ("", "w8a8", "int8"),
    ("", "int4 int4-wo w4a16 awq gptq", "int4-g128"),
    ("torch_dtype", "bfloat16", "bf16"),
    ("torch_dtype", "float16", "fp16"),
    ("torch_dtype", "float32", "fp32"),
    ("expert_dtype", "fp4", "mxfp4"),
    ("expert_dtype", "fp8", "fp8"),
    ("expert_dtype", "bf16", "bf16"),
    # blocks of a scale, rows by columns; "-": none is given
    ("weight_block_size", "128x128", "fp8"),
    ("weight_block_size", "1x32", "mxfp8"),
    ("weight_block_size", "-", "fp8-row"),
    ("modelopt", "NVFP4 NVFP4_AWQ", "nvfp4"),
    ("modelopt", "W4A16_NVFP4", "nvfp4-a16"),
    ("modelopt", "FP8", "fp8-row"),
    ("modelopt", "FP8_PB_WO", "fp8"),
    ("modelopt", "MXFP4", "mxfp4"),
    ("modelopt", "MXFP8", "mxfp8"),
    # type and bits, strategy, size of a group (-1: none)
    ("compressed-tensors", "float8:block:*", "fp8"),
    ("compressed-tensors", "float8:*:32", "mxfp8"),
    ("compressed-tensors", "float8:*", "fp8-row"),
    ("compressed-tensors", "float4:*:16", "nvfp4"),
    ("compressed-tensors", "float4:*:32", "mxfp4"),
    ("compressed-tensors", "int8:*", "int8"),
    # type, scheme, size of a group (-1: none)
    ("quark", "fp4:per_group:32", "mxfp4"),
    ("quark", "fp8_e4m3:per_group:32", "mxfp8"),
    ("quark", "fp8_e4m3:per_tensor:* fp8_e4m3:per_channel:*", "fp8-row"),
    ("quark", "int8:per_tensor:* int8:per_channel:*", "int8"),
    ("quark", "int4:per_channel:*", "int4-row"),
    *(("quark", f"int4:per_group:{group}", f"int4-g{group}") for group in (32, 64, 128)),
    *(("quark", f"uint4:per_group:{group}", f"int4-g{group}-zp") for group in (32, 64, 128)),
    # bits, size of a group (-1: a whole row), zero points
    ("weight-only", "8:*", "int8"),
    ("weight-only", "4:-1*", "int4-row"),
    *(
        ("weight-only", f"4:{group}{zero_points}", f"int4-g{group}{zero_points}")
        for group in (32, 64, 128)
        for zero_points in ("", "-zp")
    ),
)


def format_called(text: str, by: str = "") -> str | None:
    """Return the format that ``text`` means, None where it means none.

    Parameters
    ----------
    by:
        Who writes it: a quantiser or a key of a config (the dialects of the table); "": people, who may write a
        mixture and the names of :data:`DTYPES` too.
    """
    if not by and (text in DTYPES or "*" in text):
        return text
    names = (
        name
        for dialect, globs, name in _PATTERNS
        if dialect == by and any(fnmatchcase(text, glob) for glob in globs.split())
    )
    return next(names, None)


def formats_of(by: str) -> list[str]:
    """Return what a quantiser, or a key of a config, may call a format."""
    return [glob for dialect, globs, _ in _PATTERNS if dialect == by for glob in globs.split()]


# A cache keeps its scales apart or has none; only plain element types are offered.
CACHE_DTYPES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp32": 4.0}


def mixture(shares: Mapping[str, float]) -> str:
    """Return the name of a mixture: ``shares`` of the weights (adding up to 1) in each format.

    One format alone keeps its own name; else ``nvfp4*0.6275+bf16*0.3725``, largest share first.
    """
    nonzero = {name: share for name, share in shares.items() if share > 0}
    if len(nonzero) == 1:
        return next(iter(nonzero))
    ordered = sorted(nonzero.items(), key=lambda item: (-item[1], item[0]))
    return "+".join(f"{name}*{share:.4f}" for name, share in ordered)


@cache
def _parse_mixture(name: str) -> Dtype:
    """Return a mixture: mean bits of its formats, each of which multiplies in its own unit."""
    parts = [part.partition("*") for part in name.split("+")]
    try:
        shares = [(dtype(form), float(share)) for form, _, share in parts]
    except ValueError:
        raise InputError(
            "no mixture of formats; write fp8*0.75+bf16*0.25.", field="weights", value=f"{name!r}"
        ) from None
    if not math.isclose(added(share for _, share in shares), 1, abs_tol=_SHARE_ERROR * len(shares)):
        raise InputError("the shares of a mixture do not add up to 1.", field="weights", value=f"{name!r}")
    bits = added(form.bytes_per_param * 8 * share for form, share in shares)
    return Dtype(name, bits, 0, 1, "", "; ".join(form.source for form, _ in shares), tuple(shares))


def dtype(name: str) -> Dtype:
    """Return the format called ``name`` (``fp4`` means NVFP4, ``int4`` groups of 128), or a mixture.

    Raises
    ------
    InputError
        If there is no such format; the nearest names are offered.
    """
    key = name.strip().lower()
    if "*" in key:
        return _parse_mixture(key)
    form = format_called(key)
    if form is None:
        raise InputError(
            f"no such format; {nearest(key, [*DTYPES, *formats_of('')])}", field="weights", value=f"{name!r}"
        )
    return DTYPES[form]


def bytes_per_param(name: str) -> float:
    """Bytes of one weight stored as ``name``, block scales included."""
    return dtype(name).bytes_per_param


def cache_bytes_per_element(name: str) -> float:
    """Bytes of one KV cache element stored as ``name`` (``bf16``, ``fp16``, ``fp8``, ``fp32``).

    Raises
    ------
    InputError
        If the cache cannot be kept in that format.
    """
    key = name.strip().lower()
    try:
        return CACHE_DTYPES[format_called(key) or key]
    except KeyError:
        raise InputError(
            f"no format of the KV cache; choose one of {', '.join(CACHE_DTYPES)}.",
            field="kv_dtype",
            value=f"{name!r}",
        ) from None


def wider_units(unit: str) -> tuple[str, ...]:
    """Return the units wider than ``unit``, the next wider first: ``fp4`` has ``fp8`` and ``bf16``."""
    units: list[str] = []
    while (unit := _WIDER.get(unit, "")) != "":
        units.append(unit)
    return tuple(units)


def multiply_dtype(name: str, gpu: GpuSpec) -> tuple[str, str | None]:
    """Return the unit (``bf16``, ``fp8``, ``int8``, ``fp4``) that multiplies weights of one format, and a note.

    What the chip cannot multiply runs at the next wider type it can; the note then says so.

    Raises
    ------
    MissingFigureError
        If the catalog has no peak for that type or any wider one.
    """
    stored = dtype(name)
    unit: str | None = stored.multiplies_as
    while unit is not None and not gpu.multiplies(unit):
        unit = _WIDER.get(unit)
    if unit is None:
        raise MissingFigureError(
            f"{gpu.name}: the catalog has no dense peak for {stored.multiplies_as} nor for a wider type; "
            f"{stored.name} weights cannot be scored. Give bf16_flop_per_s in a cluster YAML under `gpus:`."
        )
    if unit != stored.multiplies_as:
        return (
            unit,
            f"{gpu.name} has no {stored.multiplies_as} peak: {stored.name} weights multiply at {unit}",
        )
    if stored.bits < 16 and unit == "bf16":
        return unit, f"{stored.name} weights are stored in {stored.bits:g} bits and multiply at bf16"
    return unit, None


def multiply_units(names: Iterable[str], gpu: GpuSpec) -> tuple[str, ...]:
    """Return the units that multiply weights of some formats, those of mixtures too, each once in order."""
    formats = (part.name for name in names for part, _ in dtype(name).parts)
    return tuple(dict.fromkeys(multiply_dtype(name, gpu)[0] for name in formats))


def dense_flop_per_s(name: str, gpu: GpuSpec) -> float:
    """Return the dense peak in flop/s for weights stored as ``name``.

    Raises
    ------
    MissingFigureError
        If the catalog has no peak for a format or any wider one.
    """
    stored = dtype(name)
    return stored.rate(
        {part.name: gpu.dense_flop_per_s(multiply_dtype(part.name, gpu)[0]) for part, _ in stored.parts}
    )
