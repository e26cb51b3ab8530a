"""Copies to slots: largest first onto the least loaded GPU, never two copies of an expert on one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement.problem import ExpertProblem

__all__ = ["EMPTY", "make_room", "pack"]

EMPTY = -1  # a slot that holds nothing yet


def pack(problem: ExpertProblem, copies: NDArray[np.int64]) -> NDArray[np.int32]:
    """Place ``copies`` ``[layers, experts]`` and return the expert of each slot, int32 ``[layers, slots]``.

    All layers at once; copies go by falling load per copy, the copies of one expert together. Where every
    GPU with a free slot holds the expert already, :func:`make_room` moves others. Ties: the lowest id.

    Raises
    ------
    ValueError
        If the counts cannot be placed (:func:`placement.replicate.counts_fit` is false).
    """
    layers, first = problem.layers, problem.first_slot
    share = problem.loads / copies
    order = np.argsort(-share, axis=1, kind="stable")
    items = np.repeat(order.ravel(), np.take_along_axis(copies, order, axis=1).ravel()).reshape(layers, -1)
    weight = np.take_along_axis(share, items, axis=1)
    again = np.zeros(items.shape, dtype=bool)
    again[:, 1:] = items[:, 1:] == items[:, :-1]
    rows = np.arange(layers)
    slot_expert = np.full((layers, problem.slots), EMPTY, dtype=np.int32)
    fill = np.zeros((layers, problem.gpus), dtype=np.int64)
    # The load of a GPU that can still take a copy; infinite where it is full.
    key = np.tile(np.where(problem.slots_per_gpu > 0, 0.0, np.inf), (layers, 1))
    held = np.zeros(key.shape, dtype=bool)  # the GPUs that hold the expert whose turn it is
    for i in range(problem.slots):
        held[~again[:, i]] = False
        open_to = np.where(held, np.inf, key)
        gpu = np.argmin(open_to, axis=1)
        for row in rows[np.isinf(open_to[rows, gpu])]:
            gpu[row] = make_room(problem, slot_expert[row], int(items[row, i]))
            fill[row], key[row] = _state(problem, slot_expert[row], share[row])
        slot_expert[rows, first[gpu] + fill[rows, gpu]] = items[:, i]
        fill[rows, gpu] += 1
        held[rows, gpu] = True
        full = fill[rows, gpu] == problem.slots_per_gpu[gpu]
        key[rows, gpu] = np.where(full, np.inf, key[rows, gpu] + weight[:, i])
    return slot_expert


def make_room(problem: ExpertProblem, slot_expert: NDArray[np.int32], expert: int) -> int:
    """Free a slot on a GPU that does not hold ``expert``, and return that GPU.

    ``slot_expert`` ``[slots]`` is one layer, changed in place: each GPU's copies stay in its first slots.
    Copies move along a shortest chain of GPUs, each move to a GPU without that expert. Such a chain exists
    whenever the counts so far and one more of ``expert`` can be placed at all: it is an augmenting path of
    the flow from experts to GPUs. Where slots differ by one at most, one move is enough: a full GPU without
    ``expert`` holds at least as many experts as one with a free slot, and so one that the other lacks.

    Raises
    ------
    ValueError
        If there is no such chain.
    """
    gpus = problem.gpus
    holds = np.zeros((gpus, problem.experts), dtype=bool)
    filled = slot_expert != EMPTY
    holds[problem.slot_gpu[filled], slot_expert[filled]] = True
    free = holds.sum(axis=1) < problem.slots_per_gpu
    came_from: dict[int, tuple[int, int]] = {}  # GPU -> (previous GPU, expert that would move from there)
    seen = ~holds[:, expert] & (problem.slots_per_gpu > 0)
    frontier = [int(gpu) for gpu in np.flatnonzero(seen)]
    for gpu in frontier:  # grows while it is read: breadth first
        if free[gpu]:
            return _shift(problem, slot_expert, came_from, gpu)
        for moved in np.flatnonzero(holds[gpu]):
            fresh = np.flatnonzero(~holds[:, moved] & ~seen & (problem.slots_per_gpu > 0))
            seen[fresh] = True
            came_from.update((int(other), (gpu, int(moved))) for other in fresh)
            frontier.extend(int(other) for other in fresh)
    raise ValueError(f"no legal place for another copy of expert {expert}: its count does not fit the slots")


def _shift(
    problem: ExpertProblem, slot_expert: NDArray[np.int32], came_from: dict[int, tuple[int, int]], gpu: int
) -> int:
    """Move copies back along the chain that ends at ``gpu``, and return the GPU where it starts."""
    while gpu in came_from:
        source, moved = came_from[gpu]
        _insert(slot_expert[problem.first_slot[gpu] : problem.first_slot[gpu + 1]], moved)
        _remove(slot_expert[problem.first_slot[source] : problem.first_slot[source + 1]], moved)
        gpu = source
    return gpu


def _insert(slots: NDArray[np.int32], expert: int) -> None:
    slots[np.argmax(slots == EMPTY)] = expert


def _remove(slots: NDArray[np.int32], expert: int) -> None:
    used = int((slots != EMPTY).sum())
    slots[np.argmax(slots == expert)] = slots[used - 1]
    slots[used - 1] = EMPTY


def _state(
    problem: ExpertProblem, slot_expert: NDArray[np.int32], share: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Count the copies on each GPU, and sum its load (infinite where it is full), of one layer."""
    filled = slot_expert != EMPTY
    on = problem.slot_gpu[filled]
    fill = np.bincount(on, minlength=problem.gpus)
    load = np.bincount(on, weights=share[slot_expert[filled]], minlength=problem.gpus)
    return fill, np.where(fill < problem.slots_per_gpu, load, np.inf)
