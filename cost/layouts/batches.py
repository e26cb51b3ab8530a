"""Batches worth pricing: a grid of whole sequences of each group, finer where the frontier may pass."""

from __future__ import annotations

import numpy as np

from cost.layouts.arrays import Array, Bools, Index, expand
from cost.layouts.front import pareto

STEPS_PER_OCTAVE = 8
"""Batches between one and its double."""
MAX_BETWEEN = 1024
"""Batches priced between two neighbours of the grid at most: every one up to about 11,000 sequences of a group."""
_ROUNDING = 1e-9


def batch_grid(limit: float, steps: float = STEPS_PER_OCTAVE) -> Array:
    """Return whole numbers from 1 to ``limit``, about ``steps`` of them between each and its double."""
    if limit < 1:
        return np.zeros(0)
    octaves = np.arange(int(np.ceil(np.log2(limit) * steps)) + 1)
    grid = np.unique(np.round(2.0 ** (octaves / steps)))
    return grid[grid <= limit]


def batches_of(max_batch: Array, tp: Index, steps: float = STEPS_PER_OCTAVE) -> tuple[Index, Array]:
    """Return the batches of each layout: its index and the sequences per GPU, both ``[configurations]``.

    An attention group of ``tp`` GPUs works on whole sequences, ``batch * tp`` of them; the most that fit are always
    among them.
    """
    held = np.rint(max_batch * tp)
    grid = batch_grid(float(held.max(initial=0.0)), steps)
    counts = np.searchsorted(grid, held, side="right")
    layout, place = expand(np.zeros_like(counts), counts, np.arange(len(counts)))
    missing = np.flatnonzero((held > 0) & (np.append(grid, 0.0)[counts - 1] != held))
    layouts = np.concatenate([layout, missing])
    sequences = np.concatenate([grid[place], held[missing]])
    order = np.argsort(layouts, kind="stable")
    return layouts[order], (sequences / tp[layouts])[order]


def may_be_best(speed: Array, rate: Array, known: tuple[Array, Array] | None = None) -> Bools:
    """Return whether what lies between neighbours, ``[configurations - 1]``, may be on the frontier.

    Parameters
    ----------
    speed, rate:
        Tokens per second of a sequence and of a GPU; those of a layout next to each other by growing batch.
    known:
        The same of other configurations.

    Notes
    -----
    A larger batch takes no shorter step and yields no lower rate, so that what lies between two neighbours is no
    faster than the first and yields no more than the second: where one configuration does both, none is needed.
    """
    speeds, rates = (
        (speed, rate) if known is None else map(np.concatenate, zip((speed, rate), known, strict=True))
    )
    edge = pareto(speeds, rates)[::-1]  # the fastest first: at any speed the last that is as fast yields most
    as_fast = np.searchsorted(-speeds[edge], -speed[:-1] * (1 - _ROUNDING), side="right") - 1
    return np.asarray(rates[edge][as_fast] < rate[1:] * (1 - _ROUNDING))


def batches_between(
    layout: Index, batch: Array, tp: Index, able: Bools, limit: int = MAX_BETWEEN
) -> tuple[Index, Array]:
    """Return the batches between neighbours of the grid that may lie on the frontier: layouts, and batches.

    Without them a chip with more memory could lose to one whose largest batch happens to lie between two steps.

    Parameters
    ----------
    layout, batch, tp:
        Configurations ``[configurations]``, those of a layout next to each other by growing batch.
    able:
        Whether what lies between one and the next may be on it (:func:`may_be_best`).
    limit:
        Batches between two neighbours at most, evenly spread where there are more.
    """
    rows = np.flatnonzero(able & (layout[1:] == layout[:-1]))
    low, high = np.rint(batch[rows] * tp[rows]), np.rint(batch[rows + 1] * tp[rows])
    counts = np.minimum(high - low - 1, limit).astype(np.int64)
    owner, place = expand(np.ones_like(counts), counts, np.arange(len(counts)))
    step = (high - low)[owner] / (counts[owner] + 1)
    sequences = low[owner] + np.round(place * step)
    return layout[rows][owner], sequences / tp[rows][owner]
