"""Derive the other two EPLB maps from the expert of each slot, and keep the slots of copies that stay."""

from __future__ import annotations

import numpy as np

from placement.arrays import Experts, Ints, count_copies


def logical_count(phy2log: Ints, experts: int) -> Ints:
    """Count the copies of each expert, int64 ``[layers, experts]``, of ``[layers, slots]``."""
    return count_copies(phy2log, np.zeros(1, dtype=np.int64), 1, experts)[:, 0]


def logical_to_physical(phy2log: Ints, experts: int, width: int | None = None) -> Ints:
    """Return the slots of each expert in ascending order, padded with -1: int64 ``[layers, experts, width]``.

    ``width``: the largest number of copies of an expert in any layer, unless told otherwise.
    """
    layers, slots = phy2log.shape
    count = logical_count(phy2log, experts)
    width = int(count.max()) if width is None else width
    order = np.argsort(phy2log, axis=1, kind="stable")
    expert = np.take_along_axis(phy2log, order, axis=1)
    starts = np.cumsum(count, axis=1) - count
    copy = np.arange(slots) - np.take_along_axis(starts, expert, axis=1)
    slots_of = np.full((layers, experts, width), -1, dtype=np.int64)
    slots_of[np.arange(layers)[:, None], expert, copy] = order
    return slots_of


def keep_slots(old: Experts, new: Experts, ranks: int) -> Experts:
    """Reorder the copies within each rank of ``new`` ``[layers, slots]`` so that unmoved copies keep their slot.

    Engines compare slot by slot; vllm-ascend puts back a layer where a copy that stays has another slot. Either may
    hold an expert twice on a rank, and ``old`` -1 where nothing lies.
    """
    experts = int(max(old.max(), new.max())) + 1
    names = _names(old, ranks, experts), _names(new, ranks, experts)
    stays, came = np.isin(names[0], names[1]), ~np.isin(names[1], names[0])
    kept_slots = new.copy()
    kept_slots[stays] = old[stays]
    kept_slots[~stays] = new[came]  # both in the order of ranks, and as many of either on each
    return kept_slots


def _names(slot_expert: Experts, ranks: int, experts: int) -> Ints:
    """Return a number for each copy, ``[layers, slots]``: layer, rank, expert, how many of it lie before."""
    layers, slots = slot_expert.shape
    size = slots // ranks
    held = slot_expert.reshape(layers * ranks, size).astype(np.int64)
    earlier = np.tril(held[:, :, None] == held[:, None, :], -1).sum(axis=2)
    row = np.arange(len(held))[:, None]
    names: Ints = (row * (experts + 1) + held + 1) * size + earlier
    return names.reshape(layers, slots)
