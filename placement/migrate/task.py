"""The task of a migration: what every GPU holds now, and the problem that a placement near it shall solve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placement.arrays import Bools, Experts, Floats, Index, Ints
from placement.experts.pack import EMPTY
from placement.experts.problem import Problem
from topology.base.errors import InputError


@dataclass(frozen=True, eq=False)
class MigrationTask:
    """A running placement, and the problem to solve next.

    Attributes
    ----------
    problem:
        The loads to come, the slots, and what every placement is judged by.
    old:
        int32 ``[layers, slots]``: what each slot holds now; :data:`placement.experts.pack.EMPTY` where nothing. A
        GPU's second copy of an expert, as EPLB makes them, counts as an empty slot: it is better filled with
        another.

    Raises
    ------
    InputError
        If the shapes do not agree, or a slot holds an expert that does not exist.
    """

    problem: Problem
    old: Experts

    def __post_init__(self) -> None:
        problem, old = self.problem, self.old
        if old.shape != (problem.layers, problem.slots):
            raise InputError(
                f"the old placement has shape {list(old.shape)}, not [{problem.layers}, {problem.slots}]."
            )
        if ((old != EMPTY) & ((old < 0) | (old >= problem.experts))).any():
            raise InputError(f"the old placement names an expert that is not in 0..{problem.experts - 1}.")
        filled = np.where(_second_copies(problem, old), EMPTY, old).astype(np.int32)
        object.__setattr__(self, "old", filled)

    @property
    def even(self) -> MigrationTask:
        """The same task for an engine that splits evenly."""
        return self if self.problem.split == "even" else replace(self, problem=self.problem.even)

    @cached_property
    def held(self) -> Bools:
        """Whether a GPU holds an expert now, ``[layers, gpus, experts]``."""
        return self.problem.on_gpus(self.old)

    def rows(self, which: Index | Bools) -> MigrationTask:
        """Return the same task for some of the layers, in any order, also repeated."""
        return MigrationTask(self.problem.rows(which), self.old[which])

    def new(self, slot_expert: Experts) -> Bools:
        """Whether a slot's GPU must hold its expert and does not hold it now, ``[layers, slots]``."""
        rows = np.arange(self.problem.layers)[:, None]
        new: Bools = ~self.held[rows, self.problem.slot_gpu[None, :], slot_expert]
        return new

    def moves(self, slot_expert: Experts) -> Ints:
        """Experts that a GPU must hold and does not hold now, int64 ``[layers]``, of ``[layers, slots]``."""
        moves: Ints = self.new(slot_expert).sum(axis=1)
        return moves

    def judged(self, slot_expert: Experts) -> tuple[Floats, Floats]:
        """Return the objective of each layer, and mean over largest GPU load: mean or worst of scenarios."""
        peaks = self.problem.peaks(slot_expert)
        balance = 1.0 / peaks
        worst = self.problem.objective == "worst"
        return self.problem.over_scenarios(peaks), balance.min(axis=0) if worst else balance.mean(axis=0)


def _second_copies(problem: Problem, old: Experts) -> Bools:
    """Which slots hold an expert that an earlier slot of their GPU holds, ``[layers, slots]``."""
    key = np.where(old == EMPTY, -1 - np.arange(problem.slots), old + problem.slot_gpu * problem.experts)
    order = np.argsort(key, axis=1, kind="stable")
    ordered = np.take_along_axis(key, order, axis=1)
    again = np.zeros(old.shape, dtype=bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return again
