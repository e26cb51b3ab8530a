"""Arrays of ``.npy`` files: plain values alone, no Python objects."""

from __future__ import annotations

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
                    raise InputError(f"{where}: a zip archive, not one array; name it .npz if it is one.")
            with np.errstate(over="ignore"):  # a size beyond 64 bits does not fit the shape then
                return np.asarray(np.lib.format.open_memmap(file, mode="r"))
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except _BROKEN as error:
        raise InputError(f"{where}: not a whole .npy file of numbers ({one_line(error)}).") from error
    return array
