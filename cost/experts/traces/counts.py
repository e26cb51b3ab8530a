"""A recording as every reader gives it, what a model needs of one, and counts of experts from counts of slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.arrays import pieces as pieces_of
from topology.base.errors import InputError

_MOST_CELLS = 2**23
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
        whole = f" or [{self.layers}, {self.experts}]" if self.layers != len(self.moe_layers) else ""
        return f"{moe}{whole} (MoE layers, or all layers with the dense ones zero; windows may come first)"


@dataclass(frozen=True, eq=False)
class Recording:
    """Tokens per expert in ``windows`` (steps, passes, scenarios), read anew by each call of ``pieces``.

    ``pieces()`` yields arrays ``[some windows, rows, experts]`` in order, of any dtype. ``layer_ids`` are the
    rows' absolute layers where the file says them; else rows are the MoE layers, or all layers, in order.
    ``filled`` says of each window whether it holds tokens, or is empty where that is not known yet.
    ``names`` has a label for each window, or is empty. ``windows`` is None where it takes a reading to know.
    ``per_token`` says that it is a routing trace as well (:mod:`cost.experts.traces.routing_files`).
    """

    path: str
    kind: str
    rows: int
    experts: int
    pieces: Callable[[], Iterator[NDArray[Any]]]
    windows: int | None
    layer_ids: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    filled: tuple[bool, ...] = ()
    per_token: bool = False

    def __post_init__(self) -> None:
        if self.rows * self.experts > _MOST_CELLS:
            raise InputError(
                f"{self.path}: has {self.rows:,} layers of {self.experts:,} experts, more than any model; "
                "is it a recording?"
            )

    @property
    def of_steps(self) -> bool:
        """Whether a window is a single forward pass or iteration, as those recorders dump them."""
        return self.kind in _OF_STEPS

    @property
    def shape(self) -> list[int]:
        """Windows where known and not one, rows, experts."""
        first = [] if self.windows in {None, 1} else [self.windows]
        return [*(n for n in first if n is not None), self.rows, self.experts]


def of_array(path: str, kind: str, array: NDArray[Any], wanted: Wanted | None) -> Recording:
    """Return the recording of ``[rows, experts]`` or ``[windows, rows, experts]``.

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
            f"the model needs {wanted.words}" if wanted else "loads have [layers, experts] or windows before"
        )
        raise InputError(f"{path}: has shape {shape}; {needs}.")
    if 0 in shape:
        what = ("scenario", "layer", "expert")[shape.index(0) + 3 - len(shape)]
        raise InputError(f"{path}: has shape {shape}: no {what} in it; give at least one.")

    def pieces() -> Iterator[NDArray[Any]]:
        yield from pieces_of(array if len(shape) == 3 else array[None])

    windows = shape[0] if len(shape) == 3 else 1
    return Recording(path, kind, shape[-2], shape[-1], pieces, windows)


def experts_of_map(path: str, slots: NDArray[Any], experts: int | None) -> int:
    """Return the number of experts that a map ``[layers, slots]`` of slots to experts knows.

    Raises
    ------
    InputError
        If an entry is no expert (-1 is an unused slot), or the model's ``experts`` is another number.
    """
    if slots.dtype.kind not in "iu" or slots.ndim != 2 or not slots.size:
        raise InputError(
            f"{path}: its map of slots to experts is {slots.dtype} {list(slots.shape)}, not [layers, slots]."
        )
    least, most = int(slots.min()), int(slots.max())
    if least < -1 or most >= slots.size or most < 0:
        raise InputError(
            f"{path}: its map of slots names expert {least if least < -1 else most}, which cannot be."
        )
    if experts is not None and most + 1 != experts:
        raise InputError(f"{path}: its map of slots has experts 0..{most}; the model has 0..{experts - 1}.")
    return most + 1


def to_experts(
    path: str, where: str, counts: NDArray[Any], slots: NDArray[Any], experts: int
) -> NDArray[np.float64]:
    """Add up ``counts [layers, slots]`` by expert, ``[layers, experts]``.

    Raises
    ------
    InputError
        If the shapes differ, a count is no number from 0, or an unused slot has tokens.
    """
    if counts.shape != slots.shape:
        raise InputError(
            f"{path}, {where}: counts {list(counts.shape)} for a map of slots {list(slots.shape)}; "
            "they must have the same layers and slots."
        )
    values = counts.astype(np.float64)
    bad = ~np.isfinite(values) | (values < 0) | ((slots < 0) & (values != 0))
    if bad.any():
        layer, slot = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{path}, {where}: row {layer}, slot {slot}: {counts[layer, slot]} is not a count of tokens of an expert."
        )
    rows = len(slots)
    cell = np.arange(rows)[:, None] * experts + np.maximum(slots, 0)
    summed = np.bincount(cell.ravel(), values.ravel(), rows * experts)
    return summed.astype(np.float64, copy=False).reshape(rows, experts)
