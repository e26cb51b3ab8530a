"""Placements of layers that are proven best: one expert a GPU, or few ways to fill the GPUs."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linear_sum_assignment

from placement.arrays import Floats, Ints
from placement.traffic.tiers import Tiers

MOST_WAYS = 13_000
"""Ways to fill the GPUs of one layer that are all tried, layer by layer."""


def ways(slots: Ints) -> int:
    """Return in how many ways the GPUs of a layer can be filled."""
    return math.factorial(int(slots.sum())) // math.prod(math.factorial(int(n)) for n in slots)


def exact_layers(weights: Floats, slots: Ints, tiers: Tiers) -> Ints | None:
    """Return a placement ``[layers, experts]`` of the least price, or None where that is not known to be quick.

    With one expert a GPU and one price, each hop is an assignment problem of its own: names of GPUs may change from
    layer to layer. With few ways to fill a layer, the cheapest way to each is carried from layer to layer.
    """
    layers, experts = len(weights) + 1, weights.shape[1]
    if slots.size == 1 or not tiers.price.any():
        return np.tile(np.repeat(np.arange(slots.size), slots), (layers, 1))
    if tiers.uniform and (slots == 1).all():
        place = np.tile(np.arange(experts), (layers, 1))
        for hop, flow in enumerate(weights):
            rows, columns = linear_sum_assignment(flow, maximize=True)
            place[hop + 1, columns] = place[hop, rows]
        return place
    if ways(slots) > MOST_WAYS:
        return None
    return _all_ways(weights, slots, tiers)


def _all_ways(weights: Floats, slots: Ints, tiers: Tiers) -> Ints:
    fills = _fills(slots)
    # one column for each expert and GPU: 1 where it lies
    chosen = (fills[:, :, None] == np.arange(slots.size)).astype(np.float64)
    least = np.zeros(len(fills))
    before: list[Ints] = []
    for hop in weights:
        # what each fill of a layer costs with expert j of the next on GPU h
        met = np.einsum("ij,wig,gh->wjh", hop, chosen, tiers.price, optimize=True).reshape(len(fills), -1)
        after = np.empty(len(fills))
        came = np.empty(len(fills), dtype=np.int64)
        step = max(1, 2**24 // len(fills))
        for first in range(0, len(fills), step):
            costs = met @ chosen[first : first + step].reshape(-1, met.shape[1]).T + least[:, None]
            came[first : first + step] = costs.argmin(axis=0)
            after[first : first + step] = costs.min(axis=0)
        before.append(came)
        least = after
    way = int(least.argmin())
    path = [way]
    for came in reversed(before):
        way = int(came[way])
        path.append(way)
    return fills[path[::-1]]


def _fills(slots: Ints) -> Ints:
    """Return every way to fill the GPUs of a layer, ``[ways, experts]``."""
    rows = np.zeros((1, 0), dtype=np.int64)
    left = slots[None]
    for _ in range(int(slots.sum())):
        row, gpu = np.nonzero(left)
        rows = np.column_stack([rows[row], gpu])
        left = left[row]
        left[np.arange(len(row)), gpu] -= 1
    return rows
