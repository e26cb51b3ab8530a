"""What a dispatch or a combine takes: bytes of a vector on the wire, fixed parts, then the slower of two fabrics."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.dtypes import bytes_per_param, dtype
from cost.experts.tokens.volumes import Volumes
from topology.base.errors import InputError
from topology.base.figures import Figure

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

_DTYPE_SPELLINGS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8_block": "fp8",
    "fp8-block": "fp8",
    "fp4": "nvfp4",
}


def wire_bytes(hidden: int, fmt: str) -> float:
    """Bytes of one hidden vector sent as ``fmt``, scales included.

    Raises
    ------
    InputError
        If vectors are not known to be sent in that format.
    """
    key = fmt.strip().lower()
    key = _DTYPE_SPELLINGS.get(key, key)
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


@dataclass(frozen=True)
class Leg:
    """Coefficients of one direction (dispatch or combine) of a kernel; absent ones play no part in it.

    Attributes
    ----------
    alpha_up_s, alpha_out_s:
        Fixed seconds where all GPUs share a domain, and where vectors cross the scale-out fabric.
    floor_s:
        Least seconds, however few the bytes.
    peer_s:
        Seconds for each GPU of the group (flags to raise and to wait for), added to fixed part and floor.
    up, out:
        Fractions of the links' rate that the kernel reaches on each fabric.
    copy_bytes_per_s:
        Rate at which the kernel's cores move bytes between buffers, after the scale-up link has brought them:
        once inside a domain, twice where they forward what the scale-out fabric brought.
    scale_s:
        Seconds of the kernel's cores for each vector with scales that a GPU receives and each GPU of the group, while
        the links work: scales travel apart from their vectors.
    unpack_s:
        Seconds for each vector received, after the links' work.
    """

    alpha_up_s: Figure
    up: Figure
    alpha_out_s: Figure | None = None
    out: Figure | None = None
    floor_s: Figure | None = None
    peer_s: Figure | None = None
    copy_bytes_per_s: Figure | None = None
    scale_s: Figure | None = None
    unpack_s: Figure | None = None

    def figures(self) -> dict[str, Figure]:
        """All coefficients there are, by name."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: figure for name, figure in figures.items() if figure is not None}


def alltoall_seconds(
    leg: Leg,
    volumes: Volumes,
    *,
    vector_bytes: ArrayLike,
    up_bytes_per_s: ArrayLike,
    out_bytes_per_s: ArrayLike,
    ep: ArrayLike,
    scaled: ArrayLike = False,
) -> NDArray[np.float64]:
    """Return the seconds of one dispatch or combine, ``[...]`` as the arguments broadcast.

    Parameters
    ----------
    volumes:
        Vectors a GPU moves (:mod:`cost.experts.tokens.volumes`).
    vector_bytes:
        Bytes of one hidden vector with its scales.
    up_bytes_per_s, out_bytes_per_s:
        Peak bytes/s per GPU and direction of the two fabrics; ``out_bytes_per_s`` is not read where nothing
        crosses.
    ep:
        GPUs of the group.
    scaled:
        Whether vectors are sent with scales, in 8 bits or fewer.

    Notes
    -----
    ``max(floor, alpha + max(up, out, cores)) + unpack``: both fabrics and the kernel's cores work at the same
    time, chunk by chunk; never less than bytes over the links' peak. The form (alpha and beta a fabric, floor) is
    that of the fits in the project's collection of formulas; the coefficients are data with their own sources.

    Raises
    ------
    InputError
        If vectors cross the scale-out fabric and the kernel has no coefficients for that.
    """
    size = np.asarray(vector_bytes, dtype=np.float64)
    crosses = volumes.out > 0
    alpha = np.asarray(leg.alpha_up_s.value)
    over_out = np.zeros(())
    if crosses.any():
        if leg.alpha_out_s is None or leg.out is None:
            raise InputError(
                "all-to-all: this kernel was only measured inside a scale-up domain, and the group spans "
                "several; choose per-copy or per-node."
            )
        alpha = np.where(crosses, leg.alpha_out_s.value, alpha)
        rate = np.where(crosses, out_bytes_per_s, np.inf)
        over_out = volumes.out * size / (leg.out.value * rate)
    over_up = volumes.up * size / (leg.up.value * np.asarray(up_bytes_per_s, dtype=np.float64))
    if leg.copy_bytes_per_s is not None:
        over_up = over_up + np.where(crosses, 2, 1) * volumes.up * size / leg.copy_bytes_per_s.value
    slowest = np.maximum(over_up, over_out)
    if leg.scale_s is not None:
        apart = np.asarray(scaled, dtype=np.float64) * volumes.received * np.asarray(ep, dtype=np.float64)
        slowest = np.maximum(slowest, apart * leg.scale_s.value)
    peers = leg.peer_s.value * np.asarray(ep, dtype=np.float64) if leg.peer_s is not None else 0.0
    seconds = np.asarray(peers + alpha + slowest)
    if leg.floor_s is not None:
        seconds = np.maximum(peers + leg.floor_s.value, seconds)
    if leg.unpack_s is not None:
        seconds = seconds + volumes.received * leg.unpack_s.value
    return np.where((volumes.up > 0) | crosses, seconds, 0.0)
