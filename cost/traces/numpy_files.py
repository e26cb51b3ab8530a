"""``.npy`` files and the array ``loads`` of ``.npz`` files, read in pieces."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from cost.traces.file_array import FileArray, Place
from cost.traces.recording import Recording, Wanted, of_array, one_line
from topology.errors import InputError

KEY = "loads"
# What NumPy and the zip reader raise on files that are cut short or are something else.
_BROKEN = (
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npy(path: Path, wanted: Wanted | None) -> Recording:
    """Open an ``.npy`` file.

    Raises
    ------
    InputError
        If it is not one, is cut short, or does not hold numbers in two or three axes.
    """
    return of_array(str(path), "NumPy array", npy_array(path), wanted)


def npy_array(path: Path) -> FileArray:
    """Return the array of an ``.npy`` file, of whatever numbers in whatever shape.

    Raises
    ------
    InputError
        If it is not one, holds Python objects, or is cut short.
    """
    with path.open("rb") as file:
        if file.read(2) == b"PK":
            raise InputError(f"{path}: holds a zip archive, not one array; name it .npz if it is one.")
        file.seek(0)
        try:
            return _header(file, Place(path, 0, path.stat().st_size))
        except _BROKEN as error:
            raise InputError(f"{path}: not a whole .npy file of numbers ({one_line(error)}).") from error


def read_npz(path: Path, wanted: Wanted | None) -> Recording:
    """Open the array ``loads`` of an ``.npz`` file, compressed or not.

    Raises
    ------
    InputError
        As `read_npy`, and if there is no such array.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if KEY not in names:
                keys = ", ".join(names)[:200] or "nothing"
                raise InputError(f"{path}: has no array {KEY!r}, only {keys}; save it under that key.")
            member = archive.getinfo(f"{KEY}.npy" if f"{KEY}.npy" in archive.namelist() else KEY)
            with archive.open(member) as file:
                array = _header(file, Place(path, 0, member.file_size, member.filename))
    except _BROKEN as error:
        raise InputError(f"{path}: not a whole .npz file of numbers ({one_line(error)}).") from error
    return of_array(str(path), "NumPy archive", array, wanted)


def _header(file: IO[bytes], place: Place) -> FileArray:
    """Read the header of an ``.npy`` file; ``place`` is the whole of it."""
    version = np.lib.format.read_magic(file)
    if version not in {(1, 0), (2, 0), (3, 0)}:
        raise ValueError(f"version {version}")
    # version 3 is version 2 with a header in UTF-8, which only names of fields need
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(file)
    except ValueError as error:
        if "malformed" in str(error):  # by an address that differs each time
            raise ValueError("a header of other than plain values") from error
        raise
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    offset = file.tell()
    strides = [1] * len(shape)
    order = range(len(shape)) if fortran else range(len(shape) - 1, -1, -1)
    stride = 1
    for axis in order:
        strides[axis] = stride
        stride *= max(1, shape[axis])
    inner = Place(place.path, place.offset + offset, place.size - offset, place.member)
    return FileArray(inner, dtype, tuple(int(n) for n in shape), tuple(strides))
