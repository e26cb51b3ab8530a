"""What a legal assignment is, written without any solver: every plan is checked against this."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.assignment import Assignment
from placement.problem import ExpertProblem

_Copies = TypeVar("_Copies", int, "NDArray[np.int64]")


def most_in_domain(copies: _Copies, domains: int) -> _Copies:
    """Most copies of an expert with ``copies`` of them in one of ``domains`` failure domains that have slots.

    One where there are enough domains, else an even part of them, rounded up: ``ceil(copies / domains)``. In a
    single domain one, so that a second copy, which would not outlive it, is never legal there.
    """
    return -(-copies // (domains if domains > 1 else copies + (copies == 0)))


def verify_experts(
    assignment: Assignment, problem: ExpertProblem, *, together: bool = False, domains: int | None = None
) -> list[str]:
    """Return every way in which ``assignment`` breaks the rules of ``problem``, in words; empty if legal.

    The rules: the arrays have the problem's shape; every GPU has its number of slots; every slot holds an
    expert that exists; every expert has at least one copy in every layer; no GPU holds two copies of one, and no
    failure domain more than :func:`most_in_domain`. Layers are named by their row. ``together``: a GPU may hold two
    copies of one. ``domains``: failure domains that copies are to be spread over; None: those with slots.
    """
    wrong = _shape_violations(assignment, problem)
    if wrong:
        return wrong
    wrong = _slot_violations(assignment, problem)
    for layer in range(problem.layers):
        wrong += _layer_violations(assignment, layer, together=together)
    if problem.spread is not None:
        wrong += _spread_violations(assignment, problem, domains)
    return wrong


def _spread_violations(assignment: Assignment, problem: ExpertProblem, domains: int | None) -> list[str]:
    """Experts with copies on more GPUs of one failure domain than may be."""
    wrong = []
    domain = problem.failure_domain.tolist()
    used = len(set(problem.failure_domain[problem.slots_per_gpu > 0].tolist()))
    for layer, row in enumerate(assignment.slot_expert.tolist()):
        copies = Counter(row)
        seen: dict[tuple[int, int], list[int]] = {}
        for expert, gpu in zip(row, assignment.slot_gpu.tolist(), strict=True):
            holders = seen.setdefault((expert, domain[gpu]), [])
            if gpu in holders:
                continue
            holders.append(gpu)
            most = most_in_domain(copies[expert], used if domains is None else domains)
            if len(holders) <= most:
                continue
            if most == 1:
                wrong.append(
                    f"row {layer}: GPUs {holders[0]} and {gpu}, of one failure domain, both hold expert {expert}"
                )
            elif len(holders) == most + 1:
                wrong.append(
                    f"row {layer}: GPUs {', '.join(map(str, holders))}, of one failure domain, hold expert {expert}: "
                    f"{most} of its {copies[expert]} copies at most may lie there"
                )
    return wrong


def _shape_violations(assignment: Assignment, problem: ExpertProblem) -> list[str]:
    wrong = []
    for word, got, wanted in (
        ("experts", assignment.experts, problem.experts),
        ("GPUs", assignment.gpus, problem.gpus),
        ("shape of slot_expert", assignment.slot_expert.shape, (problem.layers, problem.slots)),
        ("shape of slot_gpu", assignment.slot_gpu.shape, (problem.slots,)),
    ):
        if got != wanted:
            wrong.append(f"{word}: {got}, but the problem has {wanted}")
    for word, array in (("slot_expert", assignment.slot_expert), ("slot_gpu", assignment.slot_gpu)):
        if not np.issubdtype(array.dtype, np.integer):
            wrong.append(f"{word} holds {array.dtype}, not integers")
    return wrong


def _slot_violations(assignment: Assignment, problem: ExpertProblem) -> list[str]:
    wrong = []
    slot_gpu = [int(gpu) for gpu in assignment.slot_gpu]
    if slot_gpu != sorted(slot_gpu):
        wrong.append("slots are not in the order of their GPUs")
    for gpu in range(problem.gpus):
        got, wanted = slot_gpu.count(gpu), int(problem.slots_per_gpu[gpu])
        if got != wanted:
            wrong.append(f"GPU {gpu} has {got} slots, but the problem gives it {wanted}")
    return wrong


def _layer_violations(assignment: Assignment, layer: int, *, together: bool) -> list[str]:
    wrong = []
    row = assignment.slot_expert[layer]
    absent = set(range(assignment.experts)) - {int(expert) for expert in row}
    wrong += [f"row {layer}: expert {expert} has no copy" for expert in sorted(absent)]
    seen: set[tuple[int, int]] = set()
    for slot, (expert, gpu) in enumerate(zip(row.tolist(), assignment.slot_gpu.tolist(), strict=True)):
        if not 0 <= expert < assignment.experts:
            wrong.append(f"row {layer}, slot {slot}: expert {expert} is not in 0..{assignment.experts - 1}")
        elif (expert, gpu) in seen and not together:
            wrong.append(f"row {layer}: GPU {gpu} holds expert {expert} more than once")
        seen.add((expert, gpu))
    return wrong
