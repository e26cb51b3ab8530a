"""Batches worth pricing: a grid of whole sequences of each group, finer where the frontier may pass."""

from __future__ import annotations

import numpy as np

from cost.layouts.arrays import Array, Bools, Index, expand
from cost.layouts.front import pareto

STEPS = 8
"""Batches between one and its double."""
MOST_BETWEEN = 1024
"""Batches priced between two neighbours of the grid at most: every whole one up to about 11,000 sequences."""
_ROUNDING = 1e-9


def batch_grid(most: float, steps: float = STEPS) -> Array:
    """Return whole numbers from 1 to ``most``, about ``steps`` of them between each and its double."""
    if most < 1:
        return np.zeros(0)
    octaves = np.arange(int(np.ceil(np.log2(most) * steps)) + 1)
    grid = np.unique(np.round(2.0 ** (octaves / steps)))
    return grid[grid <= most]


def most_that_fit(room: Array, tp: Index) -> Array:
    """Return the largest batch: whole sequences per GPU, or of a group of ``tp`` GPUs where one each is too many."""
    whole = np.floor(room)
    return np.where(whole >= 1, whole, np.maximum(0.0, np.floor(room * tp)) / tp)


def batches_of(most: Array, tp: Index, steps: float = STEPS) -> tuple[Index, Array]:
    """Return the batches of each layout: its index and the sequences per GPU, both ``[configurations]``.

    An attention group of ``tp`` GPUs works on whole sequences, so the least batch is ``1 / tp``. From one sequence
    per GPU on they are whole numbers; the largest that fits is always among them.
    """
    whole = batch_grid(float(most.max(initial=0.0)), steps)
    few = np.unique(batch_grid(int(tp.max(initial=1)), steps)[:, None] / np.unique(tp))
    few = few[few < 1]
    sequences = few * tp[:, None]
    fits = (few <= most[:, None]) & (np.abs(sequences - np.round(sequences)) < _ROUNDING)
    under, column = np.nonzero(fits)
    many = np.searchsorted(whole, most, side="right")
    from_one, place = expand(np.zeros_like(many), many, np.arange(len(many)))
    on_grid = np.where(
        many > 0, np.append(whole, 0.0)[many - 1] == most, np.any(few == most[:, None], axis=1)
    )
    missing = np.flatnonzero((most > 0) & ~on_grid)
    layouts = np.concatenate([under, from_one, missing])
    batch = np.concatenate([few[column], whole[place], most[missing]])
    order = np.argsort(layouts, kind="stable")
    return layouts[order], batch[order]


def units_of(batch: Array, tp: Index) -> Index:
    """Return what a batch counts whole sequences of: one GPU, or where it has less than one, a group of ``tp``."""
    return np.where(batch < 1, tp, 1)


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
    unit = units_of(batch[first], tp[first])
    low, high = np.round(batch[first] * unit), np.round(batch[first + 1] * unit)
    many = np.minimum(high - low - 1, most).astype(np.int64)
    owner, place = expand(np.ones_like(many), many, np.arange(len(many)))
    step = (high - low)[owner] / (many[owner] + 1)
    sequences = low[owner] + np.round(place * step)
    return layout[first][owner], sequences / unit[owner]
