"""Failure domains: what fails together, and how many copies of an expert may lie in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from cost.deployment import Deployment
from placement.arrays import Bools, Experts, Ints
from placement.options import Spread
from placement.problem import Problem
from topology.cluster import Gpu
from topology.errors import InfeasibleError

_CELLS = 1 << 22  # of [layers, domains, experts] in one part


def domain_slots(problem: Problem) -> Ints:
    """Slots of each failure domain, int64 ``[domains]``.

    A domain holds each expert once at most, as a GPU does: any distinct experts of a domain can be dealt out
    to its GPUs, so that what can be placed at all is decided by these numbers alone.

    Raises
    ------
    InfeasibleError
        If a domain has more slots than there are experts: it would hold two copies of one.
    """
    slots: Ints = np.bincount(problem.failure_domain, weights=problem.slots_per_gpu).astype(np.int64)
    worst = int(np.argmax(slots))
    if slots[worst] > problem.experts:
        raise InfeasibleError(
            f"a failure domain of {int((problem.failure_domain == worst).sum())} GPUs has {int(slots[worst])} "
            f"slots for {problem.experts} experts, so it would hold two copies of one: spread over smaller "
            f"domains (`spread` node or gpu), or give it at most {problem.experts} slots."
        )
    return slots


def each_alone(problem: Problem) -> bool:
    """Whether each GPU is a failure domain of its own."""
    return problem.spread is None or int(problem.failure_domain.max()) + 1 == problem.gpus


def legal(problem: Problem, slot_expert: Experts) -> Bools:
    """Whether each row of ``slot_expert`` ``[layers, slots]`` has every expert, and none twice in a domain."""
    known = ((slot_expert >= 0) & (slot_expert < problem.experts)).all(axis=1)
    held = np.sort(slot_expert + problem.failure_domain[problem.slot_gpu] * problem.experts, axis=1)
    apart = (held[:, 1:] != held[:, :-1]).all(axis=1)
    found = np.sort(slot_expert, axis=1)
    distinct = 1 + (found[:, 1:] != found[:, :-1]).sum(axis=1)
    fine: Bools = known & apart & (distinct == problem.experts)
    return fine


def can_be_apart(problem: Problem) -> bool:
    """Whether the slots can be filled with no expert twice in a failure domain: the rule where copies are few."""
    slots = np.bincount(problem.failure_domain, weights=problem.slots_per_gpu)
    return bool(slots.max() <= problem.experts)


def domains_used(problem: Problem) -> int:
    """Failure domains that have slots."""
    return int(np.unique(problem.failure_domain[problem.slots_per_gpu > 0]).size)


def in_domains(problem: Problem, slot_expert: Experts) -> Ints:
    """Copies of each expert in each failure domain, int64 ``[layers, domains, experts]``, of ``[layers, slots]``."""
    domains = int(problem.failure_domain.max()) + 1
    rows = np.arange(len(slot_expert))[:, None] * domains
    key = (rows + problem.failure_domain[problem.slot_gpu]) * problem.experts + slot_expert
    count = np.bincount(key.ravel(), minlength=len(slot_expert) * domains * problem.experts)
    return count.reshape(-1, domains, problem.experts)


def over_cap(problem: Problem, slot_expert: Experts) -> Ints:
    """Copies above :func:`most_in_domain` and second ones of a GPU, ``[layers]``; 0 where legal.

    ``slot_expert`` ``[layers, slots]`` names experts that exist, each at least once.
    """
    size = max(1, _CELLS // ((int(problem.failure_domain.max()) + 1) * problem.experts))
    parts = [
        _over_cap(problem, slot_expert[first : first + size]) for first in range(0, len(slot_expert), size)
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _over_cap(problem: Problem, slot_expert: Experts) -> Ints:
    there = in_domains(problem, slot_expert)
    most = most_in_domain(there.sum(axis=1), domains_used(problem))
    over: Ints = np.maximum(there - most[:, None], 0).sum(axis=(1, 2))
    held = np.sort(slot_expert + problem.slot_gpu.astype(np.int64) * problem.experts, axis=1)
    twice: Ints = (held[:, 1:] == held[:, :-1]).sum(axis=1)
    return over + twice


def domain_name(gpu: Gpu, spread: Spread) -> str:
    """Return the id of what ``gpu`` fails with: itself, its node, or its rack (its node where none is named)."""
    return {"gpu": gpu.id, "node": gpu.node, "rack": gpu.rack}[spread]


def stage_domains(deployment: Deployment, members: Sequence[Sequence[int]], spread: Spread) -> Ints | None:
    """Return the failure domain of each GPU of a stage in all its replicas, int64 ``[gpus]``; None: each is one.

    ``members`` are the GPUs of the stage in each replica. All hold the same experts, so two of its places are in one
    failure domain where they are in some replica.
    """
    if spread == "gpu":
        return None
    number = deployment.numbered(spread)
    table = np.unique(number[np.array(members)], axis=0)
    joined = np.unique(table[0], return_inverse=True)[1].astype(np.int64).reshape(-1)
    while True:
        before = joined
        for row in table:
            least = np.full(int(row.max()) + 1, joined.size)
            np.minimum.at(least, row, joined)
            joined = least[row]
        if np.array_equal(before, joined):
            return joined


def require_apart(
    experts: int, slots_per_gpu: Ints, domains: Ints | None, word: str = "`spread`", *, once: bool = False
) -> None:
    """Check that the slots can be filled with copies spread evenly over failure domains.

    They can with no expert twice in a domain exactly where no domain has more slots than there are experts
    (``once``: that alone will do). Else, of D domains with slots, an expert of c copies has at most
    ``ceil(c / D) <= (c + D - 1) / D`` in each: summed over experts, that is what the largest domain can take.

    Raises
    ------
    InfeasibleError
        If they cannot: in one domain, with the most copies that would go.
    """
    if domains is None:
        return
    per_domain = np.bincount(domains, weights=slots_per_gpu).astype(np.int64)
    most = int(per_domain.max())
    used = int((per_domain > 0).sum())
    if most <= experts:
        return
    if used > 1 and not once:
        total = int(per_domain.sum())
        room = (total + (used - 1) * experts) // used
        if most > room:
            raise InfeasibleError(
                f"{word}: of {total} slots per layer one of {used} failure domains has {most}, and with the copies "
                f"of {experts} experts spread evenly it can take {room}: give fewer `redundant`, use a narrower "
                "`spread`, or an `ep` with failure domains that are more alike."
            )
    else:
        over = f"these {used} domains" if used > 1 else "one domain"
        raise InfeasibleError(
            f"{word}: a failure domain has {most} slots per layer for {experts} experts, so that one would have two "
            f"copies in it; over {over} at most `redundant` {experts * (used - 1)} goes, or use a "
            "narrower `spread` or a wider `ep`."
        )


_Copies = TypeVar("_Copies", int, "Ints")


def most_in_domain(copies: _Copies, domains: int) -> _Copies:
    """Most copies of an expert with ``copies`` of them in one of ``domains`` failure domains that have slots.

    One where there are enough domains, else an even part of them, rounded up: ``ceil(copies / domains)``. In a
    single domain one, so that a second copy, which would not outlive it, is never legal there.
    """
    return -(-copies // (domains if domains > 1 else copies + (copies == 0)))
