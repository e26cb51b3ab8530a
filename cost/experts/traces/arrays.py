"""Arrays of ``.npy`` and ``.npz`` files, and large arrays in pieces."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from topology.base.errors import InputError, one_line
from topology.base.npy import load_npy

PIECE_BYTES = 32 * 2**20
"""Bytes that are worked on at once: a few copies of it, some of them as float64, stay far below 1 GB."""
ARCHIVED_BYTES = 2**31
"""Of an array in an archive, which is read whole."""
BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
"""What the zip reader raises on archives that are cut short or broken."""
KEY = "loads"


def pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield runs along the first axis, in order, each about `PIECE_BYTES` at most."""
    if array.size:
        step = max(1, PIECE_BYTES // (array.size // len(array) * max(8, array.itemsize)))
        yield from (array[first : first + step] for first in range(0, len(array), step))


def npy_array(path: Path) -> NDArray[Any]:
    """Return the array of an ``.npy`` file, which stays in it until its numbers are used.

    Raises
    ------
    InputError
        If it is not one, holds Python objects, or is cut short.
    """
    return load_npy(path, str(path))


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays in an ``.npz`` file.

    Raises
    ------
    InputError
        If it is not a whole one.
    """
    with _archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def npz_array(path: Path, key: str = KEY) -> NDArray[Any]:
    """Return the array ``key`` of an ``.npz`` file, compressed or not.

    Raises
    ------
    InputError
        As `npy_array`; if there is no such array, or it has more than `ARCHIVED_BYTES`.
    """
    with _archive(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if names.count(key) != 1:
            keys = ", ".join(names)[:200] or "nothing"
            raise InputError(
                f"{path}: expected one array {key!r}, found {keys}; save it under that key, once."
            )
        member = archive.infolist()[names.index(key)]
        if (size := member.file_size) > ARCHIVED_BYTES:
            raise InputError(
                f"{path}: {key} has {size:,} bytes; save so many in an .npy, which is read in pieces."
            )
        with archive.open(member) as file:
            return load_npy(file, f"{path}: {key}")


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (*BROKEN_ZIP, ValueError) as error:
        raise InputError(f"{path}: not a whole .npz file of numbers ({one_line(error)}).") from error
