"""From counts of physical slots to counts of experts, by the map of slots that the engine wrote beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topology.errors import InputError


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
