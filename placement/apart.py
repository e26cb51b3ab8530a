"""Which copies must lie apart: what a failure domain may hold, of an expert one copy or an even part of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.problem import ExpertProblem
from placement.verify import most_in_domain
from topology.errors import InfeasibleError

_CELLS = 1 << 22  # of [layers, domains, experts] in one part


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


def can_be_apart(problem: ExpertProblem) -> bool:
    """Whether the slots can be filled with no expert twice in a failure domain: the rule where copies are few."""
    slots = np.bincount(problem.failure_domain, weights=problem.slots_per_gpu)
    return bool(slots.max() <= problem.experts)


def domains_used(problem: ExpertProblem) -> int:
    """Failure domains that have slots."""
    return int(np.unique(problem.failure_domain[problem.slots_per_gpu > 0]).size)


def in_domains(problem: ExpertProblem, slot_expert: NDArray[np.int32]) -> NDArray[np.int64]:
    """Copies of each expert in each failure domain, int64 ``[layers, domains, experts]``, of ``[layers, slots]``."""
    domains = int(problem.failure_domain.max()) + 1
    rows = np.arange(len(slot_expert))[:, None] * domains
    key = (rows + problem.failure_domain[problem.slot_gpu]) * problem.experts + slot_expert
    count = np.bincount(key.ravel(), minlength=len(slot_expert) * domains * problem.experts)
    return count.reshape(-1, domains, problem.experts)


def over_cap(problem: ExpertProblem, slot_expert: NDArray[np.int32]) -> NDArray[np.int64]:
    """Copies above :func:`placement.verify.most_in_domain` and second ones of a GPU, ``[layers]``; 0 where legal.

    ``slot_expert`` ``[layers, slots]`` names experts that exist, each at least once.
    """
    size = max(1, _CELLS // ((int(problem.failure_domain.max()) + 1) * problem.experts))
    parts = [
        _over_cap(problem, slot_expert[first : first + size]) for first in range(0, len(slot_expert), size)
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _over_cap(problem: ExpertProblem, slot_expert: NDArray[np.int32]) -> NDArray[np.int64]:
    there = in_domains(problem, slot_expert)
    most = most_in_domain(there.sum(axis=1), domains_used(problem))
    over: NDArray[np.int64] = np.maximum(there - most[:, None], 0).sum(axis=(1, 2))
    held = np.sort(slot_expert + problem.slot_gpu.astype(np.int64) * problem.experts, axis=1)
    twice: NDArray[np.int64] = (held[:, 1:] == held[:, :-1]).sum(axis=1)
    return over + twice
