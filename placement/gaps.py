"""How far placements are from their bounds, layer by layer, and which of two is kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.problem import ExpertProblem

WIDE = 5e-3
"""The gap from which other copy counts are looked at."""

_EQUAL = 1e-9  # relative: the objective is the bound up to rounding


def max_loads(problem: ExpertProblem, slot_expert: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the largest over mean GPU load of ``slot_expert`` ``[layers, slots]``, ``[layers]``."""
    return problem.max_load(problem.assignment(slot_expert))


def wide_layers(
    problem: ExpertProblem,
    slot_expert: NDArray[np.int32],
    bound: NDArray[np.float64],
    gap: float = WIDE,
) -> NDArray[np.intp]:
    """Return the layers with a gap above ``gap`` to their bound."""
    return np.flatnonzero(max_loads(problem, slot_expert) > bound * (1 + gap))


def keep_better(
    problem: ExpertProblem,
    slot_expert: NDArray[np.int32],
    layers: NDArray[np.intp],
    again: NDArray[np.int32],
) -> int:
    """Take the rows of ``again`` that are better than ``slot_expert[layers]``, in place; return how many."""
    part = problem.rows(layers)
    better = max_loads(part, again) < max_loads(part, slot_expert[layers])
    slot_expert[layers[better]] = again[better]
    return int(better.sum())


def proven(max_load: NDArray[np.float64], bound: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether a largest load is its bound, up to rounding, ``[layers]``."""
    reached: NDArray[np.bool_] = max_load <= bound * (1 + _EQUAL)
    return reached
