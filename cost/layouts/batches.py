"""Batches worth pricing: whole sequences of each attention group, denser where they are few or decide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STEPS = 8
"""Batches between one and its double."""
MOST_BETWEEN = 1024
"""Batches priced between two neighbours of the grid at most: every whole one up to about 11,000 sequences."""
_ALIKE = 1e-9


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


def batches_between(
    layout: NDArray[np.int64],
    batch: NDArray[np.float64],
    tp: NDArray[np.int64],
    *,
    speed: NDArray[np.float64],
    rate: NDArray[np.float64],
    most: int = MOST_BETWEEN,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the batches between neighbours of the grid that may lie on the frontier: layouts, and batches.

    Without them a chip with more memory could lose to one whose largest batch happens to lie between two steps.

    Parameters
    ----------
    layout, batch, tp, speed, rate:
        Configurations ``[configurations]``, those of a layout next to each other by growing batch: tokens per second
        of a sequence and of a GPU.
    most:
        Batches between two neighbours at most, evenly spread where there are more.

    Notes
    -----
    A larger batch takes no shorter step and yields no lower rate, so that what lies between two neighbours is no
    faster than the first and yields no more than the second: where one configuration does both, none is needed.
    """
    first = np.flatnonzero(layout[1:] == layout[:-1])
    second = first + 1
    order = np.argsort(-speed, kind="stable")
    best = np.maximum.accumulate(rate[order])
    as_fast = np.searchsorted(-speed[order], -speed[first] * (1 - _ALIKE), side="right") - 1
    needed = best[as_fast] < rate[second] * (1 - _ALIKE)
    first, second = first[needed], second[needed]
    unit = np.where(
        batch[first] < 1, tp[first], 1
    )  # of whole sequences: each GPU's, or below one each a group's
    low, high = np.round(batch[first] * unit), np.round(batch[second] * unit)
    many = np.minimum(high - low - 1, most).astype(np.int64)
    owner = np.repeat(np.arange(len(first)), many)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(many) - many, many) + 1
    step = (high - low)[owner] / (many[owner] + 1)
    sequences = low[owner] + np.round(place * step)
    return layout[first][owner], sequences / unit[owner]
