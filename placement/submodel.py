"""A few GPUs of one layer as a CP-SAT model: deal out their copies again, for the smallest largest load.

One variable says whether an expert has a copy on a GPU, so that no GPU can hold two copies of one expert. A GPU's
load counts over its speed.
Every other rule is one function, which adds its constraint to the model.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


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
        int64 ``[experts]``, in steps: the load of one copy; ``[experts, gpus]`` where GPUs differ in speed.
    target:
        A largest load, in steps, below which nothing is gained.
    domain:
        int64 ``[gpus]``: failure domains, each of which holds an expert once at most; None: each GPU its own.
    barred:
        bool ``[experts, gpus]``: where an expert may not come, since another GPU of the domain holds it.
    """

    on: NDArray[np.bool_]
    load: NDArray[np.int64]
    target: int = 0
    domain: NDArray[np.int64] | None = None
    barred: NDArray[np.bool_] | None = None

    @property
    def gpu_loads(self) -> NDArray[np.int64]:
        """Load of a copy on each of the GPUs, int64 ``[experts, gpus]``, in steps."""
        loads = self.load if self.load.ndim == 2 else self.load[:, None]
        return np.broadcast_to(loads, self.on.shape)

    def peak_of(self, on: NDArray[np.bool_]) -> int:
        """Return the largest load of a packing ``[experts, gpus]``, in steps."""
        return int((self.gpu_loads * on).sum(axis=0).max())

    @property
    def alike(self) -> bool:
        """Whether the GPUs may change places."""
        return (
            self.load.ndim == 1
            and self.domain is None
            and self.barred is None
            and bool(self.slots.min() == self.slots.max())
        )

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
        return self.peak_of(self.on)

    @property
    def floor(self) -> int:
        """No packing is below the mean (as if all were as fast as the fastest), and none need be below the target."""
        least = self.gpu_loads.min(axis=1)
        mean = math.ceil(int(least @ self.copies) / self.slots.size)
        return min(max(mean, int(least.max()), self.target), self.peak)


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
    keep_apart(built, sub)
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


def keep_apart(built: SubModel, sub: SubPacking) -> None:
    """Let a failure domain hold each expert once at most, copies on GPUs outside the model included."""
    if sub.barred is not None:
        for expert, gpu in np.argwhere(sub.barred):
            built.model.add(built.x[expert][gpu] == 0)
    if sub.domain is not None:
        for domain in np.unique(sub.domain):
            gpus = np.flatnonzero(sub.domain == domain)
            if gpus.size > 1:
                for row in built.x:
                    built.model.add_at_most_one(row[gpu] for gpu in gpus)


def bound_peak_by_loads(built: SubModel, sub: SubPacking) -> None:
    """Keep the peak at or above the load of each GPU."""
    loads = sub.gpu_loads
    for gpu in range(sub.slots.size):
        built.model.add(
            built.peak >= sum(int(w) * row[gpu] for w, row in zip(loads[:, gpu], built.x, strict=True))
        )


def fix_heaviest(built: SubModel, sub: SubPacking) -> None:
    """Keep the heaviest expert where it is, among GPUs that are interchangeable."""
    if sub.alike:
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
    return on if sub.peak_of(on) < sub.peak else None


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
