"""Arrays that stay in their file: shape and strides are known, numbers are read in pieces."""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from topology.errors import InputError, one_line
from topology.npy import read_npy_header

PIECE_BYTES = 32 * 2**20
"""Bytes that are read at once: a few copies of it, some of them as float64, stay far below 1 GB."""
_WHOLE_BYTES = 2**27
BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
"""What the zip reader raises on archives that are cut short or broken."""
_REPEATED = 2**24


@dataclass(frozen=True)
class Place:
    """Bytes in a file: ``size`` of them from ``offset``, or a compressed ``member`` of a zip archive."""

    path: Path
    offset: int
    size: int
    member: str | None = None

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Yield a file to seek in and to read from."""
        if self.member is None:
            with self.path.open("rb") as file:
                yield file
        else:
            try:
                with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as member:
                    yield member
            except BROKEN_ZIP as error:
                raise InputError(
                    f"{self.path}: broken where it is compressed ({one_line(error)})."
                ) from error


@dataclass(frozen=True)
class FileArray:
    """An array of ``shape`` in a file, its ``strides`` and ``first`` element counted in elements.

    ``bfloat16`` says that ``dtype`` is the 16 bits of one.
    """

    place: Place
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int = 0
    bfloat16: bool = False

    def __post_init__(self) -> None:
        name = self.place.path
        numbers = (*self.shape, *self.strides, self.first)
        if len(self.shape) != len(self.strides) or len(self.shape) > 8:
            raise InputError(
                f"{name}: an array in it has {len(self.shape)} axes, {len(self.strides)} strides."
            )
        if any(type(n) is not int or not 0 <= n < 2**62 for n in numbers):
            raise InputError(f"{name}: an array in it has an impossible shape or stride.")
        if (
            end := self._span(self.first, self.shape, self.strides)[1] * self.dtype.itemsize
        ) > self.place.size:
            raise InputError(
                f"{name}: an array {list(self.shape)} in it needs {end:,} bytes, and {self.place.size:,} are there; "
                "the file is cut short or broken."
            )
        if self.size > max(_REPEATED, self.place.size // self.dtype.itemsize):
            raise InputError(f"{name}: an array {list(self.shape)} in it repeats its few numbers too often.")

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @staticmethod
    def _span(first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
        """Return the first element that is used, and the one after the last."""
        if 0 in shape:
            return first, first
        return first, first + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))

    def whole(self) -> NDArray[Any]:
        """Return all of it; for small arrays.

        Raises
        ------
        InputError
            If it is larger than 128 MiB.
        """
        if self.size * self.dtype.itemsize > _WHOLE_BYTES:
            raise InputError(
                f"{self.place.path}: an array {list(self.shape)} in it is too large for what it is."
            )
        with self.place.open() as file:
            return self._read(file, self.first, self.shape, self.strides)

    def pieces(self) -> Iterator[NDArray[Any]]:
        """Yield runs along the first axis, in order, each about `PIECE_BYTES` at most."""
        if not self.size:
            return
        row_bytes = max(1, self.size // self.shape[0] * max(8, self.dtype.itemsize))
        step = max(1, PIECE_BYTES // row_bytes)
        with self.place.open() as file:
            for start in range(0, self.shape[0], step):
                shape = (min(step, self.shape[0] - start), *self.shape[1:])
                yield self._read(file, self.first + start * self.strides[0], shape, self.strides)

    def _read(
        self, file: IO[bytes], first: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> NDArray[Any]:
        start, end = self._span(first, shape, strides)
        length = (end - start) * self.dtype.itemsize
        if length > 4 * PIECE_BYTES and shape:  # far apart in the file: one index of the first axis at a time
            parts = [
                self._read(file, first + i * strides[0], shape[1:], strides[1:]) for i in range(shape[0])
            ]
            return np.stack(parts)
        file.seek(self.place.offset + start * self.dtype.itemsize)
        raw = file.read(length)
        if len(raw) != length:
            raise InputError(f"{self.place.path}: cut short while it was read.")
        flat = np.frombuffer(raw, dtype=self.dtype)
        values = np.lib.stride_tricks.as_strided(
            flat, shape, [stride * self.dtype.itemsize for stride in strides], writeable=False
        )
        if self.bfloat16:
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values


KEY = "loads"
# What NumPy raises besides on files that are cut short or are something else.
_BROKEN = (
    *BROKEN_ZIP,
    *(
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        MemoryError,
        struct.error,
    ),
)


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


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays in an ``.npz`` file.

    Raises
    ------
    InputError
        If it is not a whole one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except _BROKEN as error:
        raise InputError(f"{path}: not a whole .npz file of numbers ({one_line(error)}).") from error


def npz_array(path: Path, key: str = KEY) -> FileArray:
    """Return the array ``key`` of an ``.npz`` file, compressed or not.

    Raises
    ------
    InputError
        As `npy_array`, and if there is no such array.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if key not in names:
                keys = ", ".join(names)[:200] or "nothing"
                raise InputError(f"{path}: has no array {key!r}, only {keys}; save it under that key.")
            if names.count(key) > 1:
                raise InputError(f"{path}: has {names.count(key)} arrays {key!r}; keep one of them.")
            member = archive.getinfo(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key)
            with archive.open(member) as file:
                return _header(file, Place(path, 0, member.file_size, member.filename))
    except _BROKEN as error:
        raise InputError(f"{path}: not a whole .npz file of numbers ({one_line(error)}).") from error


def _header(file: IO[bytes], place: Place) -> FileArray:
    """Read the header of an ``.npy`` file; ``place`` is the whole of it."""
    shape, fortran, dtype = read_npy_header(file)
    offset = file.tell()
    strides = [1] * len(shape)
    order = range(len(shape)) if fortran else range(len(shape) - 1, -1, -1)
    stride = 1
    for axis in order:
        strides[axis] = stride
        stride *= max(1, shape[axis])
    inner = Place(place.path, place.offset + offset, place.size - offset, place.member)
    return FileArray(inner, dtype, tuple(int(n) for n in shape), tuple(strides))
