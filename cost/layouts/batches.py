"""Batches worth pricing: a grid of whole sequences of each group, finer where the frontier may pass."""

from __future__ import annotations

import numpy as np

from cost.layouts.arrays import Array, Bools, Index, expand
from cost.layouts.front import pareto

STEPS = 8
"""Batches between one and its double."""
MOST_BETWEEN = 1024
"""Batches priced between two neighbours of the grid at most: every one up to about 11,000 sequences of a group."""
_ROUNDING = 1e-9


def batch_grid(most: float, steps: float = STEPS) -> Array:
    """Return whole numbers from 1 to ``most``, about ``steps`` of them between each and its double."""
    if most < 1:
        return np.zeros(0)
    octaves = np.arange(int(np.ceil(np.log2(most) * steps)) + 1)
    grid = np.unique(np.round(2.0 ** (octaves / steps)))
    return grid[grid <= most]


def batches_of(most: Array, tp: Index, steps: float = STEPS) -> tuple[Index, Array]:
    """Return the batches of each layout: its index and the sequences per GPU, both ``[configurations]``.

    An attention group of ``tp`` GPUs works on whole sequences, ``batch * tp`` of them; the most that fit are always
    among them.
    """
    held = np.rint(most * tp)
    grid = batch_grid(float(held.max(initial=0.0)), steps)
    many = np.searchsorted(grid, held, side="right")
    layout, place = expand(np.zeros_like(many), many, np.arange(len(many)))
    missing = np.flatnonzero((held > 0) & (np.append(grid, 0.0)[many - 1] != held))
    layouts = np.concatenate([layout, missing])
    sequences = np.concatenate([grid[place], held[missing]])
    order = np.argsort(layouts, kind="stable")
    return layouts[order], (sequences / tp[layouts])[order]


def may_be_best(speed: Array, rate: Array, others: tuple[Array, Array] | None = None) -> Bools:
    """Return whether what lies between neighbours, ``[configurations - 1]``, may be on the frontier.

    Parameters
    ----------
    speed, rate:
        Tokens per second of a sequence and of a GPU; those of a layout next to each other by growing batch.
    others:
        The same of other configurations that are known.

    Notes
    -----
    A larger batch takes no shorter step and yields no lower rate, so that what lies between two neighbours is no
    faster than the first and yields no more than the second: where one configuration does both, none is needed.
    """
    speeds, rates = (
        (speed, rate) if others is None else map(np.concatenate, zip((speed, rate), others, strict=True))
    )
    edge = pareto(speeds, rates)[::-1]  # the fastest first: at any speed the last that is as fast yields most
    as_fast = np.searchsorted(-speeds[edge], -speed[:-1] * (1 - _ROUNDING), side="right") - 1
    return np.asarray(rates[edge][as_fast] < rate[1:] * (1 - _ROUNDING))


def batches_between(
    layout: Index, batch: Array, tp: Index, able: Bools, most: int = MOST_BETWEEN
) -> tuple[Index, Array]:
    """Return the batches between neighbours of the grid that may lie on the frontier: layouts, and batches.

    Without them a chip with more memory could lose to one whose largest batch happens to lie between two steps.

    Parameters
    ----------
    layout, batch, tp:
        Configurations ``[configurations]``, those of a layout next to each other by growing batch.
    able:
        Whether what lies between one and the next may be on it (:func:`may_be_best`).
    most:
        Batches between two neighbours at most, evenly spread where there are more.
    """
    first = np.flatnonzero(able & (layout[1:] == layout[:-1]))
    low, high = np.rint(batch[first] * tp[first]), np.rint(batch[first + 1] * tp[first])
    many = np.minimum(high - low - 1, most).astype(np.int64)
    owner, place = expand(np.ones_like(many), many, np.arange(len(many)))
    step = (high - low)[owner] / (many[owner] + 1)
    sequences = low[owner] + np.round(place * step)
    return layout[first][owner], sequences / tp[first][owner]
