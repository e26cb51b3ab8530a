"""The re-planning task: what every GPU holds now, the loads to come, and how a new placement is judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from cost.dispatch import DispatchPolicy, slot_shares
from placement.arrays import Bools, Experts, Floats, Index, Ints
from placement.failure_domains import each_alone, over_cap
from placement.pack import EMPTY
from placement.problem import Problem
from topology.errors import InputError

Objective = Literal["mean", "worst"]


@dataclass(frozen=True, eq=False)
class MigrationTask:
    """A placement that runs, and the loads that it shall serve from now on.

    Attributes
    ----------
    problem:
        Slots, speeds and failure domains of the GPUs; its loads are the mean over scenarios.
    tokens:
        float64 ``[scenarios, layers, experts]``, each row with mean 1.
    old:
        int32 ``[layers, slots]``: what each slot holds now; :data:`placement.pack.EMPTY` where nothing.
    objective:
        Whether a layer is judged by the mean or the worst over scenarios of largest over mean GPU load.
    split:
        How the engine splits an expert's tokens over its copies: what every placement is judged under.
    nodes:
        Node of each GPU, ``[gpus]``, for a split by source; None: each GPU is a node of its own.
    """

    problem: Problem
    tokens: Floats
    old: Experts
    objective: Objective = "mean"
    split: DispatchPolicy = "even"
    nodes: Ints | None = None

    @property
    def even(self) -> MigrationTask:
        """The same task for an engine that splits evenly."""
        return self if self.split == "even" else replace(self, split="even")

    @property
    def scenarios(self) -> int:
        """Number of scenarios."""
        return int(self.tokens.shape[0])

    @cached_property
    def held(self) -> Bools:
        """Whether a GPU holds an expert now, ``[layers, gpus, experts]``."""
        problem = self.problem
        held = np.zeros((problem.layers, problem.gpus, problem.experts), dtype=bool)
        row, slot = np.nonzero(self.old != EMPTY)
        held[row, problem.slot_gpu[slot], self.old[row, slot]] = True
        return held

    @cached_property
    def complete(self) -> bool:
        """Whether the old placement has no empty slot and lacks no expert."""
        alive = self.held.any(axis=1).all()
        return bool(alive and (self.old != EMPTY).all())

    def rows(self, which: Index | Bools) -> MigrationTask:
        """Return the same task for some of the layers, in any order, also repeated."""
        part = (self.problem.rows(which), self.tokens[:, which], self.old[which])
        return MigrationTask(*part, self.objective, self.split, self.nodes)

    def moves(self, slot_expert: Experts) -> Ints:
        """Experts that a GPU must hold and does not hold now, int64 ``[layers]``, of ``[layers, slots]``."""
        rows = np.arange(self.problem.layers)[:, None]
        fresh = ~self.held[rows, self.problem.slot_gpu[None, :], slot_expert]
        moves: Ints = fresh.sum(axis=1)
        return moves

    def sharing(self, slot_expert: Experts) -> Ints:
        """Copies above what their failure domain may hold of their expert, ``[layers]``, of ``[layers, slots]``."""
        problem = self.problem
        if not each_alone(problem):
            return over_cap(problem, slot_expert)
        place = slot_expert.astype(np.int64) * problem.gpus + problem.failure_domain[problem.slot_gpu]
        place.sort(axis=1)
        shared: Ints = (np.diff(place, axis=1) == 0).sum(axis=1)
        return shared

    def peaks(self, slot_expert: Experts) -> Floats:
        """Largest over mean GPU load under the split, ``[scenarios, layers]``, of ``[layers, slots]``."""
        problem = self.problem
        assignment = problem.assignment(slot_expert)
        if self.split == "lp":
            from cost.dispatch import lp_level

            largest = np.stack([lp_level(assignment, tokens, problem.speed) for tokens in self.tokens])
        else:
            shares = None if self.split == "even" else slot_shares(assignment, self.split, nodes=self.nodes)
            busy = [assignment.gpu_load(tokens, shares) / problem.speed for tokens in self.tokens]
            largest = np.stack(busy).max(axis=2)
        peaks: Floats = largest * problem.gpus / self.tokens.sum(axis=2)
        return peaks

    def value(self, slot_expert: Experts) -> Floats:
        """The objective of each layer, ``[layers]``: mean or worst over scenarios of :meth:`peaks`."""
        return self.judged(slot_expert)[0]

    def balancedness(self, slot_expert: Experts) -> Floats:
        """Mean over largest GPU load, ``[layers]``, the mean (or the worst) over scenarios."""
        return self.judged(slot_expert)[1]

    def judged(self, slot_expert: Experts) -> tuple[Floats, Floats]:
        """Return :meth:`value` and :meth:`balancedness`."""
        peaks = self.peaks(slot_expert)
        if self.objective == "worst":
            return peaks.max(axis=0), (1.0 / peaks).min(axis=0)
        return peaks.mean(axis=0), (1.0 / peaks).mean(axis=0)


def migration_task(
    problem: Problem,
    tokens: Floats,
    old: Experts,
    objective: Objective = "mean",
    *,
    split: DispatchPolicy = "even",
    nodes: Ints | None = None,
) -> MigrationTask:
    """Check and scale ``tokens`` ``[scenarios, layers, experts]``; take slots, speeds, domains of ``problem``.

    ``split`` and ``nodes`` as in :class:`MigrationTask`. A GPU's second copy of an expert in ``old``, as EPLB makes
    them, is taken for an empty slot: it is better filled with another expert.

    Raises
    ------
    InputError
        If the shapes do not agree, a load is no count of tokens, or a slot holds an expert that does not exist.
    """
    tokens = np.asarray(tokens, dtype=np.float64)
    if tokens.ndim != 3 or tokens.shape[0] == 0 or tokens.shape[1:] != (problem.layers, problem.experts):
        raise InputError(
            f"expert loads have shape {list(tokens.shape)}: the placement is of {problem.layers} layers x "
            f"{problem.experts} experts; give [scenarios, layers, experts]."
        )
    if old.shape != (problem.layers, problem.slots):
        raise InputError(
            f"the old placement has shape {list(old.shape)}, not [{problem.layers}, {problem.slots}]."
        )
    if ((old != EMPTY) & ((old < 0) | (old >= problem.experts))).any():
        raise InputError(f"the old placement names an expert that is not in 0..{problem.experts - 1}.")
    for scenario in tokens:
        Problem(scenario, problem.slots_per_gpu)  # its check of loads is the one for all
    scaled = tokens / tokens.max(axis=2, keepdims=True)  # the sum of loads near 1e308 overflows
    scaled /= scaled.mean(axis=2, keepdims=True)
    mean = Problem(scaled.mean(axis=0), problem.slots_per_gpu, problem.gpu_speed, problem.spread)
    once = _empty_doubles(old.astype(np.int32), problem.slots_per_gpu)
    return MigrationTask(mean, scaled, once, objective, split, nodes)


def _empty_doubles(held: Experts, slots_per_gpu: Ints) -> Experts:
    """Return ``held`` ``[layers, slots]`` with a GPU's second copies of an expert as empty slots."""
    gpu = np.repeat(np.arange(len(slots_per_gpu)), slots_per_gpu)
    key = np.where(held == EMPTY, -1 - np.arange(held.shape[1]), held + gpu * (int(held.max(initial=0)) + 1))
    order = np.argsort(key, axis=1, kind="stable")
    ordered = np.take_along_axis(key, order, axis=1)
    again = np.zeros(held.shape, dtype=bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    once: Experts = np.where(again, EMPTY, held).astype(np.int32)
    return once
