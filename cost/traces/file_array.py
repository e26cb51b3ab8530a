"""Arrays that stay in their file: shape and strides are known, numbers are read in pieces."""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from topology.errors import InputError

PIECE_BYTES = 32 * 2**20
"""Bytes that are read at once: a few copies of it, some of them as float64, stay far below 1 GB."""
_WHOLE_BYTES = 2**27
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
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
            except _BROKEN as error:
                reason = " ".join(str(error).split())[:120] or type(error).__name__
                raise InputError(f"{self.path}: broken where it is compressed ({reason}).") from error


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
