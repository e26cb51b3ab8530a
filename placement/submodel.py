"""A few GPUs of one layer as a CP-SAT model: deal out their copies again, for the smallest largest load.

One variable says whether an expert has a copy on a GPU, so that no GPU can hold two copies of one expert.
Every other rule is one function, which adds its constraint to the model.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from ortools.sat.python import cp_model

__all__ = [
    "SubModel",
    "SubPacking",
    "bound_peak_by_loads",
    "build",
    "cores",
    "fill_slots",
    "fix_heaviest",
    "hint_incumbent",
    "place_every_copy",
    "solve",
]

# The largest load may rise this far above the incumbent: a tighter domain loses the hint (solver rule).
_HEADROOM = 1.03


@dataclass(frozen=True, eq=False)
class SubPacking:
    """The copies on a few GPUs of one layer.

    Attributes
    ----------
    on:
        bool ``[experts, gpus]``: the incumbent, which experts have a copy on which of the GPUs.
    load:
        int64 ``[experts]``, in steps: the load of one copy.
    target:
        A largest load, in steps, below which nothing is gained.
    """

    on: NDArray[np.bool_]
    load: NDArray[np.int64]
    target: int = 0

    @property
    def copies(self) -> NDArray[np.int64]:
        """Copies of each expert on these GPUs."""
        copies: NDArray[np.int64] = self.on.sum(axis=1)
        return copies

    @property
    def slots(self) -> NDArray[np.int64]:
        """Slots of each GPU; all are full."""
        slots: NDArray[np.int64] = self.on.sum(axis=0)
        return slots

    @property
    def peak(self) -> int:
        """The incumbent's largest load, in steps."""
        return int((self.load @ self.on).max())

    @property
    def floor(self) -> int:
        """No packing is below the mean, and none need be below the target."""
        mean = math.ceil(int(self.load @ self.copies) / self.slots.size)
        return min(max(mean, int(self.load.max()), self.target), self.peak)


@dataclass(frozen=True, eq=False)
class SubModel:
    """The model and its variables: ``x[expert][gpu]`` and ``peak``."""

    model: cp_model.CpModel
    x: list[list[cp_model.IntVar]]
    peak: cp_model.IntVar


def build(sub: SubPacking) -> SubModel:
    """Return the model of ``sub`` with all its constraints, its objective and the incumbent as a hint."""
    built = variables(sub)
    place_every_copy(built, sub)
    fill_slots(built, sub)
    bound_peak_by_loads(built, sub)
    fix_heaviest(built, sub)
    hint_incumbent(built, sub)
    built.model.minimize(built.peak)
    return built


def variables(sub: SubPacking) -> SubModel:
    """Make the variables: whether each expert sits on each GPU, and the largest load."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    experts, gpus = sub.on.shape
    x = [[model.new_bool_var(f"expert{e}_on_gpu{g}") for g in range(gpus)] for e in range(experts)]
    return SubModel(model, x, model.new_int_var(sub.floor, math.ceil(sub.peak * _HEADROOM), "peak"))


def place_every_copy(built: SubModel, sub: SubPacking) -> None:
    """Make each expert keep its number of copies on these GPUs."""
    for row, copies in zip(built.x, sub.copies, strict=True):
        built.model.add(sum(row) == int(copies))


def fill_slots(built: SubModel, sub: SubPacking) -> None:
    """Make each GPU keep its number of copies."""
    for gpu, slots in enumerate(sub.slots):
        built.model.add(sum(row[gpu] for row in built.x) == int(slots))


def bound_peak_by_loads(built: SubModel, sub: SubPacking) -> None:
    """Keep the peak at or above the load of each GPU."""
    for gpu in range(sub.slots.size):
        built.model.add(
            built.peak >= sum(int(w) * row[gpu] for w, row in zip(sub.load, built.x, strict=True))
        )


def fix_heaviest(built: SubModel, sub: SubPacking) -> None:
    """Keep the heaviest expert where it is: GPUs of equally many slots are interchangeable."""
    if sub.slots.min() == sub.slots.max():
        heaviest = int(np.argmax(sub.load))
        for variable, here in zip(built.x[heaviest], sub.on[heaviest], strict=True):
            built.model.add(variable == int(here))


def hint_incumbent(built: SubModel, sub: SubPacking) -> None:
    """Start from the incumbent: a complete hint, the peak too."""
    for row, on in zip(built.x, sub.on, strict=True):
        for variable, here in zip(row, on, strict=True):
            built.model.add_hint(variable, bool(here))
    built.model.add_hint(built.peak, sub.peak)


def solve(sub: SubPacking, *, time_limit_s: float, seed: int) -> NDArray[np.bool_] | None:
    """Return a packing whose largest load is smaller than the incumbent's, ``[experts, gpus]``, or None.

    One worker without the linear relaxation: it proves 16 copies on 4 GPUs in a third of the time that it or
    two workers take with it (measured); cores are better spent on several layers at once.
    """
    from ortools.sat.python import cp_model

    built = build(sub)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 0
    solver.parameters.random_seed = seed
    # Python's own handler then raises KeyboardInterrupt after the solve; CP-SAT's would swallow it.
    solver.parameters.catch_sigint_signal = False
    status = solver.solve(built.model)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return None
    on = np.array([[solver.boolean_value(variable) for variable in row] for row in built.x])
    return on if int((sub.load @ on).max()) < sub.peak else None


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
