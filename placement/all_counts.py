"""Every way to share out the copies, where there are few: each is packed, and the best one kept."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from placement.apart import domain_slots
from placement.gaps import max_loads
from placement.pack import pack
from placement.problem import ExpertProblem
from placement.replicate import counts_fit, room
from placement.swap import swap_down

_FEW = 8000  # ways to share out the copies
_ROWS = 20_000  # placements at once
_MOST_ROWS = 10_000  # placements in all


def few_counts(problem: ExpertProblem) -> bool:
    """Whether there are few enough ways to give each expert a copy or more to try them all in all layers."""
    ways = math.comb(problem.slots - 1, problem.experts - 1)
    return ways <= _FEW and ways * problem.layers <= _MOST_ROWS


def best_of_all_counts(problem: ExpertProblem) -> NDArray[np.int32]:
    """Pack every legal choice of counts, swap, and return the best placement of each layer, ``[layers, slots]``.

    Not proven to be the best of all: packing with given counts is done by largest first and best swaps.
    """
    bars = np.array(list(combinations(range(1, problem.slots), problem.experts - 1)), dtype=np.int64)
    ways = math.comb(problem.slots - 1, problem.experts - 1)
    edges = np.pad(bars.reshape(ways, problem.experts - 1), ((0, 0), (1, 1)))
    edges[:, -1] = problem.slots
    counts = np.diff(edges, axis=1)
    counts = counts[counts_fit(counts, room(domain_slots(problem)))]
    size = max(1, _ROWS // counts.shape[0])
    best = []
    for start in range(0, problem.layers, size):
        layers = np.arange(start, min(start + size, problem.layers))
        many = problem.rows(np.repeat(layers, counts.shape[0]))
        rows = swap_down(many, pack(many, np.tile(counts, (layers.size, 1))))
        load = max_loads(many, rows).reshape(layers.size, -1)
        best.append(rows.reshape(layers.size, -1, problem.slots)[np.arange(layers.size), load.argmin(axis=1)])
    return np.concatenate(best)
