"""Make a rival's placement legal: move every second copy of an expert in one failure domain to another one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.apart import domain_slots
from placement.pack import EMPTY, make_room
from placement.problem import ExpertProblem
from placement.replicate import counts_fit, room


def distinct_copies(
    problem: ExpertProblem, slot_expert: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return ``[layers, slots]`` without two copies in one failure domain, counts unchanged, and where that fits.

    A layer with more copies of an expert than domains (or counts that fit the slots in no other way) is returned
    as it came, and False in the second array ``[layers]``.
    """
    fits = counts_fit(problem.assignment(slot_expert).copies, room(domain_slots(problem)))
    repaired = slot_expert.astype(np.int32)
    for layer in np.flatnonzero(fits & _twice(problem, repaired)):
        _repair(problem, repaired[layer])
    return repaired, fits


def _twice(problem: ExpertProblem, slot_expert: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether some failure domain holds an expert twice, ``[layers]``."""
    held = np.sort(slot_expert + problem.failure_domain[problem.slot_gpu] * problem.experts, axis=1)
    twice: NDArray[np.bool_] = (held[:, 1:] == held[:, :-1]).any(axis=1)
    return twice


def _repair(problem: ExpertProblem, row: NDArray[np.int32]) -> None:
    """Take the second copies out of one layer, in place, and put each where its expert is not yet."""
    domain = problem.failure_domain[problem.slot_gpu]
    seen: set[tuple[int, int]] = set()
    taken: list[int] = []
    for slot, expert in enumerate(row.tolist()):
        where = int(domain[slot]), expert
        if where in seen:
            taken.append(expert)
            row[slot] = EMPTY
        seen.add(where)
    for gpu in range(problem.gpus):  # each GPU's copies stay in its first slots
        here = row[problem.first_slot[gpu] : problem.first_slot[gpu + 1]]
        here[:] = here[np.argsort(here == EMPTY, kind="stable")]
    for expert in sorted(taken):
        gpu = make_room(problem, row, expert)
        here = row[problem.first_slot[gpu] : problem.first_slot[gpu + 1]]
        here[np.argmax(here == EMPTY)] = expert
