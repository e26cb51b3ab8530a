"""Where a migration begins: the old placement made whole, and a fresh one laid where most of it lies already.

Fewest moves: every expert that has no copy gets one in the slots that are left. Fresh: a plan's fast path for the new
loads says which experts lie together; which GPU holds which group is free among equal GPUs, and the permutation that
keeps most copies where they are is a linear assignment problem, here solved exactly. With failure domains of several
GPUs a whole domain goes to a domain, and its groups to GPUs inside it: first the best of each pair of domains, then
the assignment of domains, which is exact for such two-level permutations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cost.experts.dispatch import follows_loads
from placement.arrays import Experts, Floats, Index, Ints
from placement.experts.dispatch_refinement import fit_to_split
from placement.experts.excess import ExcessAnnealing
from placement.experts.pack import EMPTY
from placement.experts.problem import Problem
from placement.experts.solve import solve
from placement.migrate.task import MigrationTask

_SQUARINGS = 4  # a norm of power 16 over GPU loads chooses a slot
_FEWEST, _ROUNDS = 40, 320  # of cycles; more than the fewest while copies share a failure domain
_NOTABLY = 1e-3  # of the objective
_FREE = 0.3  # price of excess on all GPUs together: less than one move


def restore(task: MigrationTask, *, seed: int = 0) -> Experts:
    """Return ``[layers, slots]`` with a copy of every expert and no empty slot, after the fewest moves.

    An expert without a copy takes an empty slot, or where none is that of a copy whose expert has another one; a
    slot still empty takes a copy of the most loaded expert. None can do with fewer moves. Which slots, and then
    which cycles of as many moves, is for balance. Copies that share a failure domain are moved
    apart, as far as cycles of copies can.
    """
    slot_expert = task.old.copy()
    homeless = task.held.sum(axis=1) == 0
    lacking = homeless.any(axis=1) | (task.old == EMPTY).any(axis=1)
    for layer in np.flatnonzero(lacking):
        fill(task.problem, int(layer), slot_expert[layer])
    changed = np.flatnonzero((slot_expert != task.old).any(axis=1) | (task.problem.over_cap(slot_expert) > 0))
    if changed.size:
        part = task.rows(changed)
        target = np.ones((task.problem.scenarios, changed.size))
        rng = np.random.default_rng(seed)
        cycles = ExcessAnnealing(part.problem, slot_expert[changed], target, rng, part.old)
        for turn in range(_ROUNDS):
            if turn >= _FEWEST and not part.problem.over_cap(cycles.slot_expert).any():
                break
            cycles.cycle(_FREE / (part.problem.gpus * part.problem.scenarios), 0.9, exchange=turn % 2 == 0)
        slot_expert[changed] = cycles.slot_expert
    return slot_expert


def fill(problem: Problem, layer: int, row: Experts) -> None:
    """Place what has no copy, heaviest first, then fill what is empty, in ``row`` ``[slots]``."""
    load = problem.mean[layer]
    copies = np.bincount(row[row != EMPTY], minlength=problem.experts)
    lost = np.flatnonzero(copies == 0)
    for expert in lost[np.argsort(-load[lost], kind="stable")]:
        spare = np.flatnonzero(row == EMPTY)  # to be filled in any case
        if spare.size == 0:
            spare = np.flatnonzero(copies[row] > 1)
        _put(problem, row, load, copies, (int(expert), spare))
    for slot in np.flatnonzero(row == EMPTY):
        here = row[problem.slot_gpu == problem.slot_gpu[slot]]
        share = load / copies
        share[here[here != EMPTY]] = -1.0
        _put(problem, row, load, copies, (int(np.argmax(share)), np.array([slot])))


def _put(problem: Problem, row: Experts, load: Floats, copies: Ints, what: tuple[int, Index]) -> None:
    """Put an expert into the one of the slots after which the GPU loads are most even; keeps ``copies``."""
    expert, slots = what
    copies[expert] += 1
    rows = np.tile(row, (slots.size, 1))
    rows[np.arange(slots.size), slots] = expert
    counts = np.tile(copies, (slots.size, 1))
    replaced = row[slots]
    counts[np.flatnonzero(replaced != EMPTY), replaced[replaced != EMPTY]] -= 1
    share = np.pad(load / np.maximum(counts, 1), ((0, 0), (0, 1)))  # EMPTY is -1: the last one
    weight = np.take_along_axis(share, rows.astype(np.int64), axis=1)
    bins = np.arange(slots.size)[:, None] * problem.gpus + problem.slot_gpu
    gpu = np.bincount(bins.ravel(), weights=weight.ravel(), minlength=slots.size * problem.gpus)
    gpu_load = gpu.reshape(slots.size, problem.gpus) / problem.speed
    norm = gpu_load / gpu_load.max()
    for _ in range(_SQUARINGS):
        norm *= norm
    best = int(np.argmin(norm.sum(axis=1)))
    row[slots[best]] = expert
    copies[:] = counts[best]


def relabel(task: MigrationTask, target: Experts) -> Experts:
    """Return ``target`` ``[layers, slots]`` with its groups on other GPUs, so that the fewest copies move.

    Groups change places among GPUs with equal slots and speed alone, and within or with whole failure domains. Copies
    that stay keep their slots. Deterministic.
    """
    problem = task.problem
    groups = np.stack([_assign(problem, table) for table in kept_copies(task, target)])
    offset = np.arange(problem.slots) - problem.first_slot[problem.slot_gpu]
    slots = problem.first_slot[groups[:, problem.slot_gpu]] + offset
    return align_slots(task, np.take_along_axis(target, slots, axis=1))


def kept_copies(task: MigrationTask, target: Experts) -> Ints:
    """Copies that stay if a GPU takes a group of ``target``, int64 ``[layers, gpus, groups]``."""
    wanted = task.problem.on_gpus(target).astype(np.float32)
    kept: Ints = np.rint(task.held.astype(np.float32) @ wanted.transpose(0, 2, 1)).astype(np.int64)
    return kept


def align_slots(task: MigrationTask, slot_expert: Experts) -> Experts:
    """Reorder the copies within each GPU of ``[layers, slots]`` so that those which stay keep their slot."""
    goes = replace(task, old=slot_expert).new(task.old)
    aligned = np.where(goes, EMPTY, task.old).astype(np.int32)
    came = task.new(slot_expert)
    for layer in np.flatnonzero(came.any(axis=1)):
        # both in the order of GPUs, and as many of either on each GPU
        aligned[layer, aligned[layer] == EMPTY] = slot_expert[layer, came[layer]]
    return aligned


def _assign(problem: Problem, kept: Ints) -> Ints:
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
    for same in np.unique(kind):
        gpus, groups = np.flatnonzero(kind == same), np.flatnonzero(group_kind == same)
        table = kept[np.ix_(gpus, groups)]
        row, column = linear_sum_assignment(table, maximize=True)
        taken[gpus[row]] = groups[column]
        total += int(table[row, column].sum())
    return taken, total


def _by_domain(kind: Ints, domain: Ints, kept: Ints) -> Ints:
    """Assign domains to domains with the same kinds of GPUs, and groups to GPUs inside."""
    from scipy.optimize import linear_sum_assignment

    members = [np.flatnonzero(domain == number) for number in range(int(domain.max()) + 1)]
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


class Fresh(NamedTuple):
    """Fresh placements near the old one, ``[layers, slots]``: for an even split, and for the one that runs."""

    even: Experts
    fitted: Experts


def fresh_near(task: MigrationTask, *, seed: int = 0) -> Fresh:
    """Return a plan's fast path for the loads, its groups on the GPUs that hold most of them already.

    By source the split depends on which GPU is on which node, so the even placement is relabelled first and then
    fitted; a layer that a plan without relabelling fits notably better takes that one. A split by loads does not ask
    where GPUs are: the fitted placement is relabelled.
    """
    problem = task.problem
    result = solve(problem.even, seed=seed)
    even = relabel(task, result.assignment.slot_expert)
    if problem.split == "even":
        return Fresh(even, even)
    plan = solve(problem, seed=seed).assignment.slot_expert
    if follows_loads(problem.split):
        return Fresh(even, relabel(task, plan))
    near = fit_to_split(even, problem)
    better = problem.evaluate(plan) * (1 + _NOTABLY) < problem.evaluate(near)
    return Fresh(even, np.where(better[:, None], plan, near))
