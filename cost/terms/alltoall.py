"""Bytes of a hidden vector on its way to experts and back."""

from __future__ import annotations

from cost.dtypes import bytes_per_param, dtype
from topology.errors import InputError

SCALE_BYTES_PER_VALUE = 4 / 128
"""FP8 dispatch sends one FP32 scale for each 128 values (DeepEP: 7,168 values are 7,392 bytes)."""


WIRE_BYTES_PER_VALUE = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1 + SCALE_BYTES_PER_VALUE,
    "mxfp8": 1 + 1 / 32,
    "int8": 1 + SCALE_BYTES_PER_VALUE,
    "nvfp4": 1 / 2 + 1 / 16,
    "mxfp4": 1 / 2 + 1 / 32,
}
"""Bytes of one value of a hidden vector with its share of the scales. TensorRT-LLM tech blog 18 counts 7,392 bytes
for 7,168 values in MXFP8 and 4,032 in NVFP4; INT8 (CloudMatrix) is taken to carry as many scales as FP8."""

_SPELLINGS = {"bfloat16": "bf16", "float16": "fp16", "fp8_block": "fp8", "fp8-block": "fp8", "fp4": "nvfp4"}


def wire_bytes(hidden: int, fmt: str) -> float:
    """Bytes of one hidden vector sent as ``fmt``, scales included.

    Raises
    ------
    InputError
        If vectors are not known to be sent in that format.
    """
    key = fmt.strip().lower()
    key = _SPELLINGS.get(key, key)
    if key not in WIRE_BYTES_PER_VALUE:
        raise InputError(
            f"hidden vectors in {fmt!r}: format not known; choose one of {', '.join(WIRE_BYTES_PER_VALUE)}."
        )
    return hidden * WIRE_BYTES_PER_VALUE[key]


def vector_bytes(hidden: int, weights: str) -> tuple[float, float]:
    """Return the bytes of one hidden vector in dispatch and in combine.

    FP8 with block scales where experts are stored in 8 bits or fewer, else BF16; combine is always BF16.
    """
    combine = wire_bytes(hidden, "bf16")
    if dtype(weights).bits <= 8 * bytes_per_param("fp8"):  # scales apart: MXFP8 is 8 bits too
        return wire_bytes(hidden, "fp8"), combine
    return combine, combine
