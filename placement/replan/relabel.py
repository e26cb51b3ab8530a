"""Give each group of a target placement the GPU that holds most of it already: exact linear assignment.

A target says which experts lie together; which GPU holds which group is free among GPUs that are alike. The
permutation that keeps most copies where they are is a linear assignment problem, here solved exactly. With
failure domains of several GPUs a whole domain goes to a domain, and its groups to GPUs inside it: first the best
of each pair of domains, then the assignment of domains, which is exact for such two-level permutations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.pack import EMPTY
from placement.problem import ExpertProblem
from placement.replan.task import ReplanTask

Ints = NDArray[np.int64]


def relabel(task: ReplanTask, target: NDArray[np.int32], *, per_layer: bool = True) -> NDArray[np.int32]:
    """Return ``target`` ``[layers, slots]`` with its groups on other GPUs, so that the fewest copies move.

    ``per_layer`` relabels each layer on its own; otherwise one permutation serves all layers. Groups change places
    among GPUs with equal slots and speed alone, and within or with whole failure domains. Copies that stay keep
    their slots. Deterministic.
    """
    problem = task.problem
    kept = kept_copies(task, target)
    if not per_layer:
        kept = kept.sum(axis=0, keepdims=True)
    groups = np.stack([_assign(problem, table) for table in kept])
    slots = _slots_of(problem, groups)
    moved = np.take_along_axis(target, np.broadcast_to(slots, target.shape), axis=1)
    return align_slots(task, moved)


def kept_copies(task: ReplanTask, target: NDArray[np.int32]) -> Ints:
    """Copies that stay if a GPU takes a group of ``target``, int64 ``[layers, gpus, groups]``."""
    problem = task.problem
    wanted = np.zeros(task.held.shape, dtype=np.float32)
    wanted[np.arange(problem.layers)[:, None], problem.slot_gpu[None, :], target] = 1.0
    held = task.held.astype(np.float32)
    kept: Ints = np.rint(held @ wanted.transpose(0, 2, 1)).astype(np.int64)
    return kept


def align_slots(task: ReplanTask, slot_expert: NDArray[np.int32]) -> NDArray[np.int32]:
    """Reorder the copies within each GPU of ``[layers, slots]`` so that those which stay keep their slot."""
    problem, old = task.problem, task.old
    aligned = np.where(_stays(task, slot_expert), old, EMPTY).astype(np.int32)
    came = ~task.held[np.arange(problem.layers)[:, None], problem.slot_gpu[None, :], slot_expert]
    for layer in np.flatnonzero(came.any(axis=1)):
        # both in the order of GPUs, and as many of either on each GPU
        aligned[layer, aligned[layer] == EMPTY] = slot_expert[layer, came[layer]]
    return aligned


def _stays(task: ReplanTask, slot_expert: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether what a slot holds now is on its GPU in the new placement too, ``[layers, slots]``."""
    problem = task.problem
    wanted = np.zeros(task.held.shape, dtype=bool)
    rows = np.arange(problem.layers)[:, None]
    wanted[rows, problem.slot_gpu[None, :], slot_expert] = True
    stays: NDArray[np.bool_] = wanted[rows, problem.slot_gpu[None, :], task.old] & (task.old != EMPTY)
    return stays


def _assign(problem: ExpertProblem, kept: Ints) -> Ints:
    """Return the group that each GPU takes, ``[gpus]``, for ``kept`` ``[gpus, groups]``."""
    pairs = np.stack([problem.slots_per_gpu.astype(np.float64), problem.speed], axis=1)
    kind: Ints = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    domain = problem.failure_domain
    if np.bincount(domain).max() == 1:
        return _within(kind, kind, kept)[0]
    return _by_domain(kind, domain, kept)


def _within(kind: Ints, group_kind: Ints, kept: Ints) -> tuple[Ints, int]:
    """Assign groups to GPUs of their kind; return the group of each GPU, and the copies that stay."""
    from scipy.optimize import linear_sum_assignment

    taken = np.zeros(kind.size, dtype=np.int64)
    total = 0
    for each in np.unique(kind):
        gpus, groups = np.flatnonzero(kind == each), np.flatnonzero(group_kind == each)
        table = kept[np.ix_(gpus, groups)]
        row, column = linear_sum_assignment(table, maximize=True)
        taken[gpus[row]] = groups[column]
        total += int(table[row, column].sum())
    return taken, total


def _by_domain(kind: Ints, domain: Ints, kept: Ints) -> Ints:
    """Assign domains to domains with the same kinds of GPUs, and groups to GPUs inside."""
    from scipy.optimize import linear_sum_assignment

    members = [np.flatnonzero(domain == each) for each in range(int(domain.max()) + 1)]
    makeup = [tuple(sorted(kind[gpus].tolist())) for gpus in members]
    taken = np.zeros(kind.size, dtype=np.int64)
    for shape in dict.fromkeys(makeup):
        alike = [gpus for gpus, own in zip(members, makeup, strict=True) if own == shape]
        inner = [
            [_within(kind[gpus], kind[groups], kept[np.ix_(gpus, groups)]) for groups in alike]
            for gpus in alike
        ]
        table = np.array([[total for _, total in row] for row in inner])
        for a, b in zip(*linear_sum_assignment(table, maximize=True), strict=True):
            taken[alike[a]] = alike[b][inner[a][b][0]]
    return taken


def _slots_of(problem: ExpertProblem, groups: Ints) -> Ints:
    """Slots from which each slot takes its expert, ``[layers, slots]``; ``groups`` ``[layers, gpus]``."""
    offset = np.arange(problem.slots) - problem.first_slot[problem.slot_gpu]
    return problem.first_slot[groups[:, problem.slot_gpu]] + offset
