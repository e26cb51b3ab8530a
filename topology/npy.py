"""The header of a ``.npy`` file as text: nothing in it is evaluated, and no memory taken for what it promises."""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from topology.limits import NPY_HEADER_BYTES

_MAGIC = b"\x93NUMPY"
_VALUE = r"'[^']*'|\"[^\"]*\"|True|False|\(\s*\)|\(\s*(?:\d{1,19}L?\s*,\s*)+(?:\d{1,19}L?\s*)?\)"
_PAIR = rf"['\"](descr|fortran_order|shape)['\"]\s*:\s*({_VALUE})\s*"
_WHOLE = re.compile(rf"\s*\{{\s*{_PAIR},\s*{_PAIR},\s*{_PAIR},?\s*\}}\s*")
_DTYPE = re.compile(r"[<>|=]?[?biufcmMSUV]\d{0,4}(?:\[\d{0,4}[A-Za-z]{1,2}\])?")


def read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the first axis runs fastest, and type of the elements; the file is then at the first.

    Raises
    ------
    ValueError
        If it is no such header, or the elements are no plain values of some bytes each.
    """
    start = file.read(8)
    if start[:6] != _MAGIC:
        raise ValueError("it does not begin as one")
    version = tuple(start[6:])
    if version not in {(1, 0), (2, 0), (3, 0)}:
        raise ValueError(f"version {version}")
    form = "<H" if version == (1, 0) else "<I"
    counted = file.read(struct.calcsize(form))
    if len(counted) < struct.calcsize(form):
        raise ValueError("it ends in its header")
    (size,) = struct.unpack(form, counted)
    if size > NPY_HEADER_BYTES:
        raise ValueError(f"a header of {size:,} bytes; the most is {NPY_HEADER_BYTES:,}")
    # version 3 is version 2 with a header in UTF-8, which only names of fields need
    text = file.read(size)
    if len(text) < size:
        raise ValueError("it ends in its header")
    return _parsed(text.decode("latin-1"))


def map_npy(path: Path) -> NDArray[Any]:
    """Return the numbers of a ``.npy`` file, which stay in it until they are asked for.

    Raises
    ------
    ValueError
        If it is no such file, is cut short, or holds anything but numbers.
    OSError
        If it cannot be read.
    """
    with path.open("rb") as file:
        shape, fortran, dtype = read_npy_header(file)
        start = file.tell()
    size = path.stat().st_size - start
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{list(shape)} of {dtype} in {size:,} bytes; it is cut short")
    if dtype.kind not in "fiu":
        raise ValueError(f"it holds {dtype}, not numbers")
    if not math.prod(shape):
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")


def _parsed(text: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    if "'|O" in text:
        raise ValueError("it holds Python objects")
    found = _WHOLE.fullmatch(text)
    given = {} if found is None else dict(zip(found.groups()[::2], found.groups()[1::2], strict=True))
    name, fortran, shape = (given.get(key, "") for key in ("descr", "fortran_order", "shape"))
    if fortran not in ("True", "False") or not shape.startswith("(") or name[:1] not in ("'", '"'):
        raise ValueError("a header of other than plain values")
    if not _DTYPE.fullmatch(name[1:-1]):
        raise ValueError(f"its elements are {name[:40]}, not numbers")
    try:
        dtype = np.dtype(name[1:-1])
    except (TypeError, ValueError):
        raise ValueError(f"its elements are {name[:40]}, not numbers") from None
    if not dtype.itemsize:
        raise ValueError(f"its elements are {name[:40]}, of no bytes")
    lengths = tuple(int(digits) for digits in re.findall(r"\d+", shape))
    if any(length >= 2**62 for length in lengths) or math.prod(max(1, one) for one in lengths) >= 2**62:
        raise ValueError(f"its shape {shape[:40]} is larger than any file")
    return lengths, fortran == "True", dtype
