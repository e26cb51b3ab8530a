"""Token counts by expert from every format, and the requirements of a model."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topology.base.errors import InputError, one_line
from topology.base.npy import load_npy
from topology.base.units import plural

PIECE_BYTES = 32 * 2**20
"""Bytes that are worked on at once: a few copies of it, some of them as float64, stay far below 1 GB."""
BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
"""What the zip reader raises on archives that are cut short or broken."""
_OF_STEPS = frozenset({"SGLang stat", "SGLang per_pass", "SGLang per_token", "TensorRT-LLM statistics"})


@dataclass(frozen=True)
class Wanted:
    """The rows and columns that the model needs; ``top_k``: experts of a token, for traces of tokens."""

    moe_layers: tuple[int, ...]
    layers: int
    experts: int
    top_k: int | None = None

    @property
    def words(self) -> str:
        """The shapes that can be used, for error messages."""
        moe = f"[{len(self.moe_layers)}, {self.experts}]"
        all_layers = f" or [{self.layers}, {self.experts}]" if self.layers != len(self.moe_layers) else ""
        return (
            f"{moe}{all_layers} (MoE layers, or all layers with the dense ones zero; windows may come first)"
        )


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """Tokens per expert in ``windows`` (steps, passes, scenarios), read anew by each call of ``pieces``.

    ``pieces()`` yields arrays ``[some windows, rows, experts]`` in order, of any dtype. ``layer_ids`` are the
    rows' absolute layers where the file says them; else rows are the MoE layers, or all layers, in order.
    ``names`` has a label for each window, or is empty.
    ``per_token`` says that it is a routing trace as well (:func:`cost.experts.traces.open.open_routing`).
    """

    path: str
    kind: str
    windows: int
    rows: int
    experts: int
    pieces: Callable[[], Iterator[NDArray[Any]]]
    layer_ids: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    per_token: bool = False

    @property
    def of_steps(self) -> bool:
        """Whether a window is a single forward pass or iteration, as those recorders dump them."""
        return self.kind in _OF_STEPS

    @property
    def shape(self) -> list[int]:
        """Windows where there are several, rows, experts."""
        return [*([self.windows] if self.windows > 1 else []), self.rows, self.experts]


def of_array(path: str, kind: str, array: NDArray[Any], model: Wanted | None) -> TokenCounts:
    """Return the counts of ``[rows, experts]`` or ``[windows, rows, experts]``.

    Raises
    ------
    InputError
        If the array has other axes, one of length 0, or does not hold numbers.
    """
    if array.dtype.kind not in "iuf":
        raise InputError(f"{path}: holds {array.dtype}, not numbers; give counts of tokens.")
    shape = list(array.shape)
    if len(shape) not in {2, 3}:
        needs = (
            f"the model needs {model.words}" if model else "loads have [layers, experts] or windows before"
        )
        raise InputError(f"{path}: has shape {shape}; {needs}.")
    if 0 in shape:
        axis = ("scenario", "layer", "expert")[shape.index(0) + 3 - len(shape)]
        raise InputError(f"{path}: has shape {shape}, without any {axis}; give at least one.")
    windows = array if len(shape) == 3 else array[None]
    count, rows, experts = windows.shape
    return TokenCounts(path, kind, count, rows, experts, lambda: pieces(windows))


def pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield runs along the first axis, in order, each about `PIECE_BYTES` at most."""
    if array.size:
        step = max(1, PIECE_BYTES // (array.size // len(array) * max(8, array.itemsize)))
        yield from (array[start : start + step] for start in range(0, len(array), step))


def npz_array(path: Path, key: str) -> NDArray[Any]:
    """Return the array ``key`` of an ``.npz`` file, compressed or not."""
    with npz_archive(path) as archive:
        if f"{key}.npy" not in archive.namelist():
            keys = ", ".join(archive.namelist()).replace(".npy", "")[:200] or "nothing"
            raise InputError(f"{path}: expected an array {key!r}, found {keys}; save it under that key.")
        with archive.open(f"{key}.npy") as file:
            return load_npy(file, f"{path}: {key}")


@contextmanager
def npz_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an ``.npz`` file; damage is reported in one line."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (*BROKEN_ZIP, ValueError) as error:
        raise InputError(f"{path}: not a complete .npz file of numbers ({one_line(error)}).") from error


def model_rows(
    path: str, tokens: NDArray[Any], model: Wanted, names: tuple[str, ...] = (), *, unused: int = 0
) -> tuple[list[int], tuple[str, ...]]:
    """Return which rows of ``tokens [scenarios, rows, experts]`` are the MoE layers, and notes.

    Rows are the MoE layers in order, or all layers of the model with the dense ones empty. ``names``: of the
    scenarios. ``unused``: experts of a dense layer that may have tokens all the same.
    """
    moe = list(model.moe_layers)
    dense = sorted(set(range(model.layers)) - set(moe)) if tokens.shape[1] == model.layers else []
    rows = moe if dense else list(range(len(moe)))
    used, empty = (tokens[:, dense] > 0).sum(axis=2) > unused, ~tokens[:, rows].any(axis=2)
    of_another = "is dense but has tokens; are they from another model?"
    unrecorded = "has experts, but all loads are 0; record for longer, or merge windows."
    for invalid, layers, problem in ((used, dense, of_another), (empty, moe, unrecorded)):
        if invalid.any():
            scenario, row = (int(i) for i in np.argwhere(invalid)[0])
            name = f"scenario {names[scenario]}, " if names else ""
            raise InputError(f"{path}: {name}layer {layers[row]} of the model {problem}")
    return rows, (f"{plural(len(dense), 'row')} of dense layers, all zero, dropped",) if dense else ()


def rank_notes(recorded: Mapping[int, int], all_records: int, records: str) -> list[str]:
    """Return notes on the ranks that were summed, and on what is missing; ``recorded``: records of each rank."""
    ranks = sorted(recorded)
    notes = [f"rank {ranks[0]} only, no other rank"]
    if len(ranks) > 1:
        notes = [f"summed over {len(ranks)} ranks, {ranks[0]} to {ranks[-1]}"]
    absent = sorted(set(range(ranks[-1])) - set(ranks))
    lacking = [rank for rank in ranks if recorded[rank] < all_records]
    for ranks_hit, problem in (
        (absent, "no file of rank {}: their tokens are missing"),
        (lacking, f"rank {{}}: some {records} of other ranks missing, counted as 0"),
    ):
        if ranks_hit:
            notes.append(problem.format(", ".join(map(str, ranks_hit[:8]))))
    return notes


# Engines count tokens by slot, and say which expert each slot holds.


def experts_of_map(path: str, slots: NDArray[Any], model: Wanted | None) -> int:
    """Return the number of experts that a map ``[layers, slots]`` of slots to experts knows; -1: an unused slot."""
    if slots.dtype.kind not in "iu" or slots.ndim != 2 or not slots.size:
        raise InputError(f"{path}: its slot map is {slots.dtype} {list(slots.shape)}, not [layers, slots].")
    least, highest = int(slots.min()), int(slots.max())
    if least < -1 or not 0 <= highest < slots.size:
        raise InputError(
            f"{path}: its slot map contains the invalid expert {least if least < -1 else highest}."
        )
    if model and highest + 1 != model.experts:
        raise InputError(
            f"{path}: its slot map has experts 0..{highest}; the model has 0..{model.experts - 1}."
        )
    return highest + 1


def to_experts(where: str, counts: NDArray[Any], slots: NDArray[Any], experts: int) -> NDArray[np.float64]:
    """Add up ``counts [layers, slots]`` by expert, ``[layers, experts]``."""
    if counts.shape != slots.shape:
        raise InputError(
            f"{where}: counts {list(counts.shape)} but a slot map of {list(slots.shape)}; layers and slots "
            "must match."
        )
    values = counts.astype(np.float64)
    invalid = ~np.isfinite(values) | (values < 0) | ((slots < 0) & (values != 0))
    if invalid.any():
        layer, slot = (int(i) for i in np.argwhere(invalid)[0])
        raise InputError(
            f"{where}: row {layer}, slot {slot}: {counts[layer, slot]} is not a token count of an expert."
        )
    rows = len(slots)
    cell = np.arange(rows)[:, None] * experts + np.maximum(slots, 0)
    summed = np.bincount(cell.ravel(), values.ravel(), rows * experts)
    return summed.astype(np.float64, copy=False).reshape(rows, experts)
