"""Bring back what was lost: a copy of every expert that has none, in the slots that are left."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.pack import EMPTY
from placement.replan.cycles import Cycles
from placement.replan.task import ReplanTask

_POWER = 16  # of the norm of GPU loads that chooses a slot
_ROUNDS = 40
_TRIES = 8  # as many times as many, while copies share a failure domain
_FREE = 1e-4  # price of excess: all of it together weighs less than one move


def restore(task: ReplanTask, *, seed: int = 0) -> NDArray[np.int32]:
    """Return ``[layers, slots]`` with a copy of every expert and no empty slot, after the fewest moves.

    An expert without a copy takes an empty slot, or where none is that of a copy whose expert has another one; a
    slot still empty takes a copy of the most loaded expert. None can do with fewer moves. Which slots, and then
    which cycles of as many moves, is for balance. Copies that share a failure domain are moved
    apart, as far as cycles of copies can.
    """
    slot_expert = task.old.copy()
    for layer in np.flatnonzero(_lacking(task)):
        _fill(task, int(layer), slot_expert[layer])
    changed = np.flatnonzero((slot_expert != task.old).any(axis=1) | (task.sharing(slot_expert) > 0))
    if changed.size:
        part = task.rows(changed)
        target = np.ones((task.scenarios, changed.size))
        cycles = Cycles(part, slot_expert[changed], target, np.random.default_rng(seed))
        for _ in range(_TRIES):
            cycles.run(_ROUNDS, _FREE, 0.9)
            if not part.sharing(cycles.slot_expert).any():
                break
        slot_expert[changed] = cycles.slot_expert
    return slot_expert


def _lacking(task: ReplanTask) -> NDArray[np.bool_]:
    """Whether a layer has an expert without a copy or an empty slot, ``[layers]``."""
    alive = task.held.sum(axis=1)
    lacking: NDArray[np.bool_] = (alive == 0).any(axis=1) | (task.old == EMPTY).any(axis=1)
    return lacking


def _fill(task: ReplanTask, layer: int, row: NDArray[np.int32]) -> None:
    """Place what has no copy, heaviest first, then fill what is empty, in place."""
    problem = task.problem
    load = problem.loads[layer]
    copies = np.bincount(row[row != EMPTY], minlength=problem.experts)
    lost = np.flatnonzero(copies == 0)
    for expert in lost[np.argsort(-load[lost], kind="stable")]:
        spare = np.flatnonzero(row == EMPTY)  # to be filled in any case
        if spare.size == 0:
            spare = np.flatnonzero(copies[row] > 1)
        _put(task, row, load, copies, (int(expert), spare))
    for slot in np.flatnonzero(row == EMPTY):
        here = row[problem.slot_gpu == problem.slot_gpu[slot]]
        share = load / copies
        share[here[here != EMPTY]] = -1.0
        _put(task, row, load, copies, (int(np.argmax(share)), np.array([slot])))


def _put(
    task: ReplanTask,
    row: NDArray[np.int32],
    load: NDArray[np.float64],
    copies: NDArray[np.int64],
    what: tuple[int, NDArray[np.intp]],
) -> None:
    """Put an expert into the one of the slots after which the GPU loads are most even; keeps ``copies``."""
    problem, (expert, slots) = task.problem, what
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
    best = int(np.argmin(((gpu_load / gpu_load.max()) ** _POWER).sum(axis=1)))
    row[slots[best]] = expert
    copies[:] = counts[best]
