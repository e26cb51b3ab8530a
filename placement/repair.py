"""Make a rival's placement legal: move every second copy of an expert on one GPU to another GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement.pack import EMPTY, make_room
from placement.replicate import counts_fit, room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement.problem import ExpertProblem

__all__ = ["distinct_copies"]


def distinct_copies(
    problem: ExpertProblem, slot_expert: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return ``[layers, slots]`` without two copies on one GPU, counts unchanged, and where that is possible.

    A layer with more copies of an expert than GPUs (or counts that fit the slots in no other way) is returned
    as it came, and False in the second array ``[layers]``.
    """
    fits = counts_fit(problem.assignment(slot_expert).copies, room(problem.slots_per_gpu))
    repaired = slot_expert.astype(np.int32)
    for layer in np.flatnonzero(fits):
        _repair(problem, repaired[layer])
    return repaired, fits


def _repair(problem: ExpertProblem, row: NDArray[np.int32]) -> None:
    """Take the second copies out of one layer, in place, and put each where its expert is not yet."""
    taken: list[int] = []
    for gpu in range(problem.gpus):
        here = row[problem.first_slot[gpu] : problem.first_slot[gpu + 1]]
        kept = list(dict.fromkeys(here.tolist()))
        if len(kept) == here.size:
            continue
        second = list(here.tolist())
        for expert in kept:
            second.remove(expert)
        taken += second
        here[: len(kept)] = kept
        here[len(kept) :] = EMPTY
    for expert in sorted(taken):
        gpu = make_room(problem, row, expert)
        here = row[problem.first_slot[gpu] : problem.first_slot[gpu + 1]]
        here[np.argmax(here == EMPTY)] = expert
