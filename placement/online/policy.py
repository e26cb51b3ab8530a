"""Interface of online policies: they receive the load of each window and return the next placement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import DispatchPolicy
from placement.arrays import Experts, Floats, Ints
from placement.experts.problem import Problem, make_problem
from placement.migrate.start import align_slots
from placement.migrate.task import MigrationTask


@dataclass(frozen=True, eq=False)
class Group:
    """One EP group: the layers of one pipeline stage, and what a policy may know of them beforehand.

    Attributes
    ----------
    slots_per_gpu:
        int64 ``[gpus]``.
    experts:
        Logical experts of a layer.
    start:
        int32 ``[layers, slots]``, slots in the order of GPUs: what lies there before the first window.
    nodes, domains:
        int64 ``[gpus]``: node and scale-up domain of each GPU.
    expert_groups:
        Groups of experts of group-limited routing; 1 without.
    split:
        How the engine splits an expert's tokens over its copies.
    speed:
        float64 ``[gpus]``: relative speeds; None: all equal.
    scenarios:
        float64 ``[scenarios, layers, experts]``: stored loads, known before the first window; None: none.
    move_steps:
        What a move costs: the steps that lose as much where largest over mean GPU load of a layer is 1 higher.
    """

    slots_per_gpu: Ints
    experts: int
    start: Experts
    nodes: Ints
    domains: Ints
    expert_groups: int = 1
    split: DispatchPolicy = "even"
    speed: Floats | None = None
    scenarios: Floats | None = None
    move_steps: float = 0.0

    @property
    def gpus(self) -> int:
        """GPUs of the group."""
        return int(self.slots_per_gpu.size)

    @property
    def layers(self) -> int:
        """Layers of the group."""
        return int(self.start.shape[0])

    @cached_property
    def linear(self) -> Experts:
        """As engines begin: slot j of a layer with expert j mod E."""
        return np.tile(np.arange(self.slot_gpu.size, dtype=np.int32) % self.experts, (self.layers, 1))

    @cached_property
    def slot_gpu(self) -> Experts:
        """The GPU of each slot, int32 ``[slots]``."""
        return np.repeat(np.arange(self.gpus, dtype=np.int32), self.slots_per_gpu)

    @property
    def equal_slots(self) -> bool:
        """Whether every GPU has as many slots."""
        return bool((self.slots_per_gpu == self.slots_per_gpu[0]).all())

    def problem(self, loads: Floats) -> Problem:
        """Return the placement problem of ``loads``, ``[scenarios, layers, experts]`` or of one.

        Raises
        ------
        InputError
            If the loads are none of this group.
        """
        return make_problem(loads, self.slots_per_gpu, self.speed, split=self.split, nodes=self.nodes)

    @cached_property
    def _uniform(self) -> Problem:
        return self.problem(np.ones((self.layers, self.experts)))

    def assignment(self, slot_expert: Experts) -> Assignment:
        """Return the placement ``[layers, slots]`` on the GPUs of this group."""
        return self._uniform.assignment(slot_expert)

    def task(self, old: Experts) -> MigrationTask:
        """Return what is asked of the links where ``old`` ``[layers, slots]`` runs, whatever the loads."""
        return MigrationTask(self._uniform, old)

    def kept_in_place(self, old: Experts, new: Experts) -> Experts:
        """Return ``new`` with the copies that stay on their GPU in the slots they have in ``old``."""
        task = self.task(old)
        twice = replace(task, old=new).problem.over_cap(new) > 0  # an expert twice on a GPU has no one slot
        aligned = new.astype(np.int32)
        apart = np.flatnonzero(~twice)
        if apart.size:
            aligned[apart] = align_slots(task.rows(apart), new[apart])
        return aligned


class Policy(Protocol):
    """An online policy at work on one EP group."""

    def observe(self, window: Floats) -> None:
        """See the load of the window that has just ended, tokens ``[layers, experts]``; of every window, in order."""

    def place(self, old: Experts) -> Experts:
        """Return where experts shall lie from the next window on, int32 ``[layers, slots]``; they lie as ``old``."""


MakePolicy = Callable[[Group], Policy]
"""Policies keep what they saw: each EP group of each replay has its own."""
