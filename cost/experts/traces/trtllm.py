"""TensorRT-LLM's expert statistics: ``meta_info.json`` and ``rank{r}.safetensors`` in a folder."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import TokenCounts, Wanted, rank_notes
from cost.experts.traces.text_files import parse_document
from topology.base.errors import InputError, one_line
from topology.base.reading import parse_json

_FILE = re.compile(r"rank(\d{1,6})\.safetensors")
_KEY = re.compile(r"(\d{1,12})_(\d{1,6})")
_TYPES = {f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
_TYPES |= {f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)}
"""Number formats of safetensors, as NumPy names them."""
_MOST_HEADER = 100_000_000
"""Bytes of a header that its format allows."""

Keys = dict[tuple[int, int], str]
"""The names of a rank's arrays by iteration and layer."""


def is_statistics(path: Path) -> bool:
    """Return whether a folder holds such statistics, whole or not."""
    return (path / "meta_info.json").is_file() or any(_FILE.fullmatch(file.name) for file in path.iterdir())


def read_statistics(path: Path, wanted: Wanted | None) -> TokenCounts:
    """Open the statistics, summed over ranks; each iteration is a window, layers have the model's own ids."""
    experts = _experts(path)
    files = {
        int(named[1]): file
        for file in path.iterdir()
        if (named := _FILE.fullmatch(file.name)) is not None and file.is_file()
    }
    if not files:
        raise InputError(f"{path}: has no rank0.safetensors; give the folder of EXPERT_STATISTIC_PATH.")
    keys: dict[int, Keys] = {}
    for rank in sorted(files):
        keys[rank], experts = _keys(files[rank], experts, wanted)
    pairs = {pair for own in keys.values() for pair in own}
    iterations, layers = sorted({i for i, _ in pairs}), sorted({layer for _, layer in pairs})
    count = experts or 0
    recorded = {rank: len(own) for rank, own in keys.items()}
    notes = rank_notes(recorded, len(iterations) * len(layers), "layers or iterations")
    if iterations[-1] - iterations[0] + 1 != len(iterations):
        span = f"{iterations[0]} to {iterations[-1]}"
        notes.append(f"iterations {span} are not contiguous: {len(iterations)} are present")
    if not (path / "meta_info.json").is_file():
        notes.append("meta_info.json is missing; using the number of experts of the arrays")
    if any(path.glob("rank*_raw.safetensors")):
        notes.append(
            "rank*_raw.safetensors (the experts of each token) not read, since the counts are equivalent"
        )

    def pieces() -> Iterator[NDArray[np.float64]]:
        with ExitStack() as stack:
            problem = "changed or broken while it was read"
            opened = [(stack.enter_context(_opened(files[rank], problem)), own) for rank, own in keys.items()]
            for iteration in iterations:
                table = np.zeros((1, len(layers), count))
                for arrays, own in opened:
                    for row, layer in enumerate(layers):
                        if (key := own.get((iteration, layer))) is not None:
                            table[0, row] += arrays.read(key)
                yield table

    return TokenCounts(
        str(path),
        "TensorRT-LLM statistics",
        len(iterations),
        len(layers),
        count,
        pieces,
        tuple(layers),
        tuple(f"iteration {i}" for i in iterations),
        tuple(notes),
    )


def _experts(path: Path) -> int | None:
    """Return ``num_experts`` of the meta file, None where there is no such file."""
    meta = path / "meta_info.json"
    if not meta.is_file():
        return None
    data = parse_document(meta, "a shorter one")
    experts = data.get("num_experts") if isinstance(data, dict) else None
    if type(experts) is not int or experts < 1:
        raise InputError(f"{meta}: has no num_experts above 0.")
    return experts


class _Arrays:
    """The arrays of a safetensors file: the length of its header, the header in JSON, and the data.

    https://huggingface.co/docs/safetensors#format
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file, size = file, os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MOST_HEADER):
            raise ValueError("its header is cut")
        self.start = 8 + length
        self.header: dict[str, Any] = parse_json(file.read(length).decode(), "header")
        self.header.pop("__metadata__", None)
        for key, entry in self.header.items():
            begin, end = entry["data_offsets"]
            kind, count = _TYPES.get(entry["dtype"]), math.prod(entry["shape"])
            if not 0 <= begin <= end <= size - self.start:
                raise ValueError(f"the data of {key} are beyond its end")
            if kind and end - begin != count * np.dtype(kind).itemsize:
                raise ValueError(f"the data of {key} are not as long as its shape says")

    def read(self, key: str) -> NDArray[Any]:
        """Return an array of one dimension."""
        entry = self.header[key]
        begin, end = entry["data_offsets"]
        self.file.seek(self.start + begin)
        return np.frombuffer(self.file.read(end - begin), _TYPES[entry["dtype"]])


@contextmanager
def _opened(file: Path, problem: str) -> Iterator[_Arrays]:
    try:
        with file.open("rb") as opened:
            yield _Arrays(opened)
    except (InputError, OSError, AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{file}: {problem} ({one_line(error)}).") from error


def _keys(file: Path, experts: int | None, wanted: Wanted | None) -> tuple[Keys, int]:
    """Return the arrays of a rank and their experts, all of them checked without reading the counts."""
    with _opened(file, "not a whole safetensors file") as arrays:
        header = arrays.header
    found: Keys = {}
    for key, entry in header.items():
        kind, shape = entry["dtype"], entry["shape"]
        parts = _KEY.fullmatch(key)
        if parts is None:
            raise InputError(f"{file}: key {key[:40]!r} is not ITERATION_LAYER, as TensorRT-LLM writes.")
        if kind not in _TYPES or len(shape) != 1 or shape[0] != (experts := experts or shape[0]):
            raise InputError(f"{file}: {key} is {kind} {shape}, not one count for each of {experts} experts.")
        if (pair := (int(parts[1]), int(parts[2]))) in found:
            raise InputError(f"{file}: duplicate counts of {key}.")
        found[pair] = key
    if not found or not experts:
        raise InputError(f"{file}: contains no counts; was EXPERT_STATISTIC_ITER_RANGE reached?")
    if wanted and experts != wanted.experts:
        raise InputError(f"{file}: counts of {experts} experts; the model has {wanted.experts}.")
    return found, experts
