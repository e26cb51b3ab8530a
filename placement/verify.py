"""What a legal assignment is, written without any solver: every plan is checked against this."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cost.assignment import Assignment
    from placement.problem import ExpertProblem

__all__ = ["verify_experts"]


def verify_experts(assignment: Assignment, problem: ExpertProblem, *, together: bool = False) -> list[str]:
    """Return every way in which ``assignment`` breaks the rules of ``problem``, in words; empty if legal.

    The rules: the arrays have the problem's shape; every GPU has its number of slots; every slot holds an
    expert that exists; every expert has at least one copy in every layer; no failure domain (no GPU, where none are
    given) holds two copies of one. Layers are named by their row. ``together``: a GPU may hold two copies of one.
    """
    wrong = _shape_violations(assignment, problem)
    if wrong:
        return wrong
    wrong = _slot_violations(assignment, problem)
    for layer in range(problem.layers):
        wrong += _layer_violations(assignment, layer, together=together)
    if problem.spread is not None:
        wrong += _spread_violations(assignment, problem)
    return wrong


def _spread_violations(assignment: Assignment, problem: ExpertProblem) -> list[str]:
    """Experts with copies on several GPUs of one failure domain."""
    wrong = []
    domain = problem.failure_domain.tolist()
    for layer, row in enumerate(assignment.slot_expert.tolist()):
        seen: dict[tuple[int, int], int] = {}
        for expert, gpu in zip(row, assignment.slot_gpu.tolist(), strict=True):
            other = seen.setdefault((expert, domain[gpu]), gpu)
            if other != gpu:
                wrong.append(
                    f"row {layer}: GPUs {other} and {gpu}, of one failure domain, both hold expert {expert}"
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
