"""Arrays of ``.npy`` files: plain values alone, no Python objects."""

from __future__ import annotations

import math
import os
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from topology.base.errors import InputError, one_line

_BROKEN = (ValueError, TypeError, LookupError, OverflowError, EOFError, MemoryError, SyntaxError, TokenError)
"""What NumPy raises on headers that are broken or promise more than there is."""


def load_npy(file: Path | IO[bytes], where: str) -> NDArray[Any]:
    """Return the array of a ``.npy`` file, of whatever values in whatever shape.

    Parameters
    ----------
    file:
        A path, whose numbers stay in the file until they are used, or an open file, which is read.
    where:
        What messages call it.

    Raises
    ------
    InputError
        If it is none, holds Python objects, or is cut short.
    OSError
        If it cannot be read.
    """
    try:
        if isinstance(file, Path):
            with file.open("rb") as opened:
                if opened.read(2) == b"PK":
                    raise InputError(
                        f"{where}: a zip archive, not a single array; rename it to .npz if it is one."
                    )
            with np.errstate(over="ignore"):  # a size beyond 64 bits does not fit the shape then
                return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
        _require_whole(file)
        array: NDArray[Any] = np.load(file, allow_pickle=False)
    except _BROKEN as error:
        raise InputError(f"{where}: not a complete .npy file of numbers ({one_line(error)}).") from error
    return array


def whole_numbers(array: NDArray[Any]) -> NDArray[np.int64]:
    """Return integers of any width and byte order as int64, so that -1 has room and sums do not wrap.

    What is beyond 64 signed bits becomes the largest that they hold, which no reader takes for an id.
    """
    if array.dtype.kind == "u":
        array = np.minimum(array, min(np.iinfo(array.dtype).max, np.iinfo(np.int64).max))
    return array.astype(np.int64, copy=False)


def _require_whole(file: IO[bytes]) -> None:
    """Reject a file that is shorter than its header says, before room is made for the array."""
    version = np.lib.format.read_magic(file)
    read_header = (
        np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(file)
    start = file.tell()
    needed, available = math.prod(shape) * dtype.itemsize, file.seek(0, os.SEEK_END) - start
    if needed > available:
        raise ValueError(f"{available:,} bytes of {needed:,}")
    file.seek(0)
