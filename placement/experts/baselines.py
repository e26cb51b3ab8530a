"""Default placements of engines: linear, and EPLB's two policies reimplemented from their description.

References
----------
The README of DeepSeek's EPLB (https://github.com/deepseek-ai/EPLB): *balanced packing* puts items, heaviest
first, on the lightest pack that is not full, equally many items a pack; *replication* gives the next copy to
the expert with the largest load per copy; *global* replicates and packs once over all GPUs; *hierarchical*
packs expert groups to nodes, replicates inside each node, and packs each node's copies to its GPUs.
Neither looks at where other copies of an expert sit: a GPU may get two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cost.experts.assignment import Assignment
from placement.arrays import Floats, Index, Ints
from placement.experts.counts import folded_peak, folds, least_peak, replicate
from placement.experts.problem import Problem


@dataclass(frozen=True)
class Baseline:
    """A baseline's assignment, or None and the reason why its policy does not apply here."""

    assignment: Assignment | None
    reason: str = ""


class Baselines(Mapping[str, Baseline]):
    """``linear``, ``eplb_global`` and ``eplb_hierarchical`` for a problem, each made when it is asked for.

    Parameters
    ----------
    eplb_groups:
        The model's expert groups (None or 1 where routing has none).
    nodes:
        What the hierarchical policy calls nodes: the domains of the cluster.
    """

    def __init__(self, problem: Problem, *, eplb_groups: int | None, nodes: int) -> None:
        self._problem = problem
        self._policies: dict[str, Callable[[Problem], Baseline]] = {
            "linear": linear,
            "eplb_global": eplb_global,
            "eplb_hierarchical": partial(eplb_hierarchical, groups=eplb_groups or 1, nodes=nodes),
        }
        self._made: dict[str, Baseline] = {}

    def __getitem__(self, name: str) -> Baseline:
        if name not in self._made:
            self._made[name] = self._policies[name](self._problem)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    def of_rows(self, name: str, rows: Index) -> Baseline:
        """Return the same policy's placement for some layers only; layers are independent."""
        return self._policies[name](self._problem.rows(rows))

    def least(self, name: str, rows: Index) -> Floats:
        """Return what the policy's largest loads in ``rows`` cannot be below, by its counts alone, ``[rows]``."""
        problem, loads = self._problem, self._problem.mean[rows]
        if name == "linear":
            share = loads / np.maximum(np.bincount(np.arange(problem.slots) % problem.experts), 1)
            largest: Floats = share.max(axis=1) * (problem.gpus / problem.speed.max() / loads.sum(axis=1))
            return largest
        if name == "eplb_global" and not _unequal(problem):
            falling = np.ascontiguousarray(np.sort(loads, axis=1)[:, ::-1])
            same = replace(problem.without_spread(), loads=falling)
            return (folded_peak if folds(same) else least_peak)(same, replicate(same))
        return np.zeros(rows.size)


def linear(problem: Problem) -> Baseline:
    """Slot j holds expert j mod E."""
    row = np.arange(problem.slots, dtype=np.int32) % problem.experts
    return Baseline(problem.assignment(np.tile(row, (problem.layers, 1))))


def eplb_global(problem: Problem) -> Baseline:
    """EPLB's global policy; it applies where all GPUs have equally many slots."""
    reason = _unequal(problem)
    if reason:
        return Baseline(None, reason)
    placed = _packed(problem.mean, *_replicated(problem.mean, problem.slots), problem.gpus)
    return Baseline(problem.assignment(placed.astype(np.int32)))


def eplb_hierarchical(problem: Problem, *, groups: int, nodes: int) -> Baseline:
    """EPLB's hierarchical policy over ``groups`` expert groups and ``nodes`` nodes of equally many GPUs."""
    reason = _unequal(problem) or _indivisible(problem, groups, nodes)
    if reason:
        return Baseline(None, reason)
    layers, experts = problem.mean.shape
    size = experts // groups
    group_load = problem.mean.reshape(layers, groups, size).sum(axis=2)
    # Experts in the order of nodes: [layers, nodes, experts of a node].
    group = balanced_packing(group_load, nodes)
    expert = (group[:, :, None] * size + np.arange(size)).reshape(layers * nodes, experts // nodes)
    load = np.take_along_axis(problem.mean, expert.reshape(layers, experts), axis=1).reshape(expert.shape)
    slot = _packed(load, *_replicated(load, problem.slots // nodes), problem.gpus // nodes)
    placed = np.take_along_axis(expert, slot, axis=1).reshape(layers, problem.slots)
    return Baseline(problem.assignment(placed.astype(np.int32)))


def balanced_packing(weight: Floats, packs: int) -> Ints:
    """Put items ``[rows, items]``, heaviest first, on the lightest pack with room; equally many a pack.

    Returns the items in the order of packs, and in a pack in the order they came, ``[rows, items]``. Ties go
    to the lowest item and the lowest pack. With one item a pack nothing is to be balanced: item i is pack i.
    """
    rows, items = weight.shape
    room = items // packs
    if room == 1:
        return np.tile(np.arange(items), (rows, 1))
    order = np.argsort(-weight, axis=1, kind="stable")
    heavy = np.take_along_axis(weight, order, axis=1)
    load = np.zeros((rows, packs))
    fill = np.zeros(rows * packs, dtype=np.int64)
    placed = np.empty(rows * items, dtype=np.int64)
    first = np.arange(rows) * packs
    start = 0
    if packs <= items and heavy[:, packs - 1].min() > 0:  # one item room, while packs are empty
        start = packs
        load[:] = heavy[:, :packs]
        fill[:] = 1
        placed.reshape(rows, packs, room)[:, :, 0] = order[:, :packs]
    flat = load.ravel()
    for i in range(start, items):
        pack = first + load.argmin(axis=1)
        held = fill[pack]
        placed[pack * room + held] = order[:, i]
        fill[pack] = held + 1
        flat[pack] = np.where(held + 1 == room, np.inf, flat[pack] + heavy[:, i])
    return placed.reshape(rows, items)


def _replicated(load: Floats, slots: int) -> tuple[Ints, Floats]:
    """Return the expert of each copy, ``[rows, slots]``, the next by largest load per copy; and the copies."""
    rows, experts = load.shape
    index = np.arange(rows)
    copies = np.ones(load.shape)
    copy_expert = np.empty((rows, slots), dtype=np.int64)
    copy_expert[:, :experts] = np.arange(experts)
    for i in range(experts, slots):
        best = np.argmax(load / copies, axis=1)
        copy_expert[:, i] = best
        copies[index, best] += 1
    return copy_expert, copies


def _packed(load: Floats, copy_expert: Ints, copies: Floats, gpus: int) -> Ints:
    """Return the expert of each slot, ``[rows, slots]``, from the expert of each copy."""
    order = balanced_packing(np.take_along_axis(load / copies, copy_expert, axis=1), gpus)
    return np.take_along_axis(copy_expert, order, axis=1)


def _unequal(problem: Problem) -> str:
    if problem.slots_per_gpu.min() == problem.slots_per_gpu.max():
        return ""
    return f"EPLB packs the same number of copies per GPU; {problem.slots} slots are unequal over {problem.gpus} GPUs"


def _indivisible(problem: Problem, groups: int, nodes: int) -> str:
    for upper, lower, words in (
        (problem.experts, groups, f"{problem.experts} experts do not divide into {groups} groups"),
        (
            groups,
            nodes,
            f"{groups} expert group{'s do' if groups > 1 else ' does'} not divide over {nodes} nodes",
        ),
        (problem.gpus, nodes, f"{problem.gpus} GPUs do not divide over {nodes} nodes"),
    ):
        if upper % lower:
            return words
    return ""
