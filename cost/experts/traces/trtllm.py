"""TensorRT-LLM's expert statistics: ``meta_info.json`` and ``rank{r}.safetensors`` in a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
_MAX_HEADER_BYTES = 100_000_000
"""Bytes of a header that its format allows."""


def is_statistics(path: Path) -> bool:
    """Return whether a folder holds such statistics, whole or not."""
    return (path / "meta_info.json").is_file() or any(_FILE.fullmatch(file.name) for file in path.iterdir())


def read_statistics(path: Path, model: Wanted | None) -> TokenCounts:
    """Open the statistics, summed over ranks; each iteration is a window, layers have the model's own ids."""
    experts = _experts(path)
    files = {
        int(named[1]): file
        for file in path.iterdir()
        if (named := _FILE.fullmatch(file.name)) is not None and file.is_file()
    }
    if not files:
        raise InputError(f"{path}: has no rank0.safetensors; give the folder of EXPERT_STATISTIC_PATH.")
    ranks: dict[int, dict[tuple[int, int], NDArray[Any]]] = {}
    for rank in sorted(files):
        ranks[rank] = _counts(files[rank], experts, model)
        experts = len(next(iter(ranks[rank].values())))
    iterations, layers = (sorted({pair[at] for counts in ranks.values() for pair in counts}) for at in (0, 1))
    recorded = {rank: len(counts) for rank, counts in ranks.items()}
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
    shape = (len(iterations), len(layers), experts or 0)

    def pieces() -> Iterator[NDArray[np.float64]]:
        for iteration in iterations:
            table = np.zeros((1, *shape[1:]))
            for row, layer in enumerate(layers):
                for counts in ranks.values():
                    table[0, row] += counts.get((iteration, layer), 0)
            yield table

    names = tuple(f"iteration {i}" for i in iterations)
    return TokenCounts(
        str(path), "TensorRT-LLM statistics", *shape, pieces, tuple(layers), names, tuple(notes)
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


def _counts(file: Path, experts: int | None, model: Wanted | None) -> dict[tuple[int, int], NDArray[Any]]:
    """Return the counts of a rank by iteration and layer, one or more, checked without reading them."""
    counts: dict[tuple[int, int], NDArray[Any]] = {}
    for key, array in _arrays(file):
        parts = _KEY.fullmatch(key)
        if parts is None:
            raise InputError(f"{file}: key {key[:40]!r} is not ITERATION_LAYER, as TensorRT-LLM writes.")
        if array.ndim != 1 or len(array) != (experts := experts or len(array)):
            shape = f"{array.dtype} {list(array.shape)}"
            raise InputError(f"{file}: {key} is {shape}, not one count for each of {experts} experts.")
        if (pair := (int(parts[1]), int(parts[2]))) in counts:
            raise InputError(f"{file}: duplicate counts of {key}.")
        counts[pair] = array
    if not counts or not experts:
        raise InputError(f"{file}: contains no counts; was EXPERT_STATISTIC_ITER_RANGE reached?")
    if model and experts != model.experts:
        raise InputError(f"{file}: counts of {experts} experts; the model has {model.experts}.")
    return counts


def _arrays(file: Path) -> list[tuple[str, NDArray[Any]]]:
    """Return the arrays of a safetensors file, still in the file."""
    try:
        return list(_mapped(np.asarray(np.memmap(file, np.uint8, "r"))))
    except (InputError, OSError, AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{file}: not a whole safetensors file of numbers ({one_line(error)}).") from error


def _mapped(content: NDArray[np.uint8]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield arrays by the length of the header, the header in JSON, and the data.

    https://huggingface.co/docs/safetensors#format
    """
    length = int.from_bytes(content[:8].tobytes(), "little")
    if len(content) < 8 or length > min(len(content) - 8, _MAX_HEADER_BYTES):
        raise ValueError("its header is cut")
    header, data = parse_json(content[8 : 8 + length].tobytes().decode(), "header"), content[8 + length :]
    header.pop("__metadata__", None)
    for key, entry in header.items():
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end <= len(data):
            raise ValueError(f"the data of {key} are beyond its end")
        yield key, data[begin:end].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
