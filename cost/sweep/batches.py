"""Batches worth pricing: whole sequences of each attention group, denser where they are few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["batch_grid", "batches_of", "most_that_fit"]

STEPS = 8
"""Batches between one and its double."""


def batch_grid(most: float, steps: int = STEPS) -> NDArray[np.float64]:
    """Return whole numbers from 1 to ``most``, about ``steps`` of them between each and its double."""
    if most < 1:
        return np.zeros(0)
    octaves = np.arange(int(np.ceil(np.log2(most) * steps)) + 1)
    grid = np.unique(np.round(2.0 ** (octaves / steps)))
    return grid[grid <= most]


def most_that_fit(room: NDArray[np.float64], tp: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the largest batch: whole sequences per GPU, or of a group of ``tp`` GPUs where one each is too many."""
    whole = np.floor(room)
    return np.where(whole >= 1, whole, np.maximum(0.0, np.floor(room * tp)) / tp)


def batches_of(
    most: NDArray[np.float64], tp: NDArray[np.int64], steps: int = STEPS
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the batches of each layout: its index and the sequences per GPU, both ``[configurations]``.

    An attention group of ``tp`` GPUs works on whole sequences, so the least batch is ``1 / tp``. From one sequence
    per GPU on they are whole numbers; the largest that fits is always among them.
    """
    wide = int(tp.max(initial=1))
    whole = batch_grid(float(most.max(initial=0.0)), steps)
    few = np.unique(batch_grid(wide, steps)[:, None] / np.unique(tp))
    grid = np.concatenate([few[few < 1], whole])
    sequences = grid[None, :] * tp[:, None]
    fits = (grid[None, :] <= most[:, None]) & (np.abs(sequences - np.round(sequences)) < 1e-9)
    layout, column = np.nonzero(fits)
    missing = np.flatnonzero((most > 0) & ~np.any(grid[None, :] == most[:, None], axis=1))
    layouts = np.concatenate([layout, missing])
    batch = np.concatenate([grid[column], most[missing]])
    order = np.lexsort((batch, layouts))
    return layouts[order], batch[order]
