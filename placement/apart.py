"""Which copies must lie apart: the failure domains as what holds each expert once at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.errors import InfeasibleError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement.problem import ExpertProblem

__all__ = ["domain_slots", "each_alone", "legal"]


def domain_slots(problem: ExpertProblem) -> NDArray[np.int64]:
    """Slots of each failure domain, int64 ``[domains]``.

    A domain holds each expert once at most, as a GPU does: any distinct experts of a domain can be dealt out
    to its GPUs, so that what can be placed at all is decided by these numbers alone.

    Raises
    ------
    InfeasibleError
        If a domain has more slots than there are experts: it would hold two copies of one.
    """
    slots: NDArray[np.int64] = np.bincount(problem.failure_domain, weights=problem.slots_per_gpu).astype(
        np.int64
    )
    worst = int(np.argmax(slots))
    if slots[worst] > problem.experts:
        raise InfeasibleError(
            f"a failure domain of {int((problem.failure_domain == worst).sum())} GPUs has {int(slots[worst])} "
            f"slots for {problem.experts} experts, so it would hold two copies of one: spread over smaller "
            f"domains (--spread node or gpu), or give it at most {problem.experts} slots."
        )
    return slots


def each_alone(problem: ExpertProblem) -> bool:
    """Whether each GPU is a failure domain of its own."""
    return problem.spread is None or int(problem.failure_domain.max()) + 1 == problem.gpus


def legal(problem: ExpertProblem, slot_expert: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each row of ``slot_expert`` ``[layers, slots]`` has every expert, and none twice in a domain."""
    known = ((slot_expert >= 0) & (slot_expert < problem.experts)).all(axis=1)
    held = np.sort(slot_expert + problem.failure_domain[problem.slot_gpu] * problem.experts, axis=1)
    apart = (held[:, 1:] != held[:, :-1]).all(axis=1)
    found = np.sort(slot_expert, axis=1)
    distinct = 1 + (found[:, 1:] != found[:, :-1]).sum(axis=1)
    fine: NDArray[np.bool_] = known & apart & (distinct == problem.experts)
    return fine
