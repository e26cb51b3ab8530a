"""The expert placement problem: how much each expert is used, and how many slots each GPU has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from cost.assignment import Assignment
from placement.arrays import Bools, Experts, Floats, Index, Ints
from topology.errors import InputError


@dataclass(frozen=True, eq=False)
class ExpertProblem:
    """Experts of some layers, to be copied into the slots of one EP group.

    Attributes
    ----------
    loads:
        float64 ``[layers, experts]``, finite, not negative, no row all zero. :func:`expert_problem` scales
        each row to mean 1; only ratios within a row matter.
    slots_per_gpu:
        int64 ``[gpus]``, the same in every layer; a GPU may have none.
    gpu_speed:
        float64 ``[gpus]``, positive: tokens per second of each GPU, relative to their mean; None: all alike. A GPU's
        load counts as load over speed.
    spread:
        int64 ``[gpus]``: failure domain of each GPU (node, rack...); the copies of an expert lie in different ones,
        as far as there are enough. None: each GPU is one of its own.

    Raises
    ------
    InputError
        If the loads are not as above, if there are fewer slots than experts, or if a GPU has more slots than
        there are experts (it would hold two copies of one); if a speed is not positive or of another length.
    """

    loads: Floats
    slots_per_gpu: Ints
    gpu_speed: Floats | None = None
    spread: Ints | None = None

    def __post_init__(self) -> None:
        _check_loads(self.loads)
        _check_slots(self.slots_per_gpu, self.experts)
        _check_speed(self.gpu_speed, self.gpus)
        if self.spread is not None and self.spread.shape != (self.gpus,):
            raise InputError(
                f"{self.spread.size} failure domains for {self.gpus} GPUs: give one for each GPU."
            )

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.loads.shape[0])

    @property
    def experts(self) -> int:
        """Logical experts of a layer."""
        return int(self.loads.shape[1])

    @property
    def gpus(self) -> int:
        """GPUs of the EP group."""
        return int(self.slots_per_gpu.shape[0])

    @cached_property
    def speed(self) -> Floats:
        """Relative speed of each GPU, float64 ``[gpus]``, mean 1."""
        if self.gpu_speed is None:
            return np.ones(self.gpus)
        relative: Floats = self.gpu_speed / self.gpu_speed.mean()
        return relative

    @cached_property
    def failure_domain(self) -> Ints:
        """Failure domain of each GPU, int64 ``[gpus]``, numbered from 0."""
        if self.spread is None:
            return np.arange(self.gpus, dtype=np.int64)
        found: Ints = np.unique(self.spread, return_inverse=True)[1].astype(np.int64)
        return found

    @cached_property
    def slots(self) -> int:
        """Slots of a layer over all GPUs."""
        return int(self.slots_per_gpu.sum())

    @cached_property
    def slot_gpu(self) -> Experts:
        """The GPU of each slot, int32 ``[slots]``, non-decreasing."""
        return np.repeat(np.arange(self.gpus, dtype=np.int32), self.slots_per_gpu)

    @cached_property
    def first_slot(self) -> Ints:
        """The first slot of each GPU, int64 ``[gpus + 1]``; the last entry is ``slots``."""
        starts: Ints = np.concatenate(([0], np.cumsum(self.slots_per_gpu)))
        return starts

    def rows(self, which: Index | Bools) -> ExpertProblem:
        """Return the same problem for some of the layers."""
        return ExpertProblem(self.loads[which], self.slots_per_gpu, self.gpu_speed, self.spread)

    def assignment(self, slot_expert: Experts) -> Assignment:
        """Wrap ``[layers, slots]`` expert ids as an assignment to this problem's slots."""
        return Assignment(slot_expert.astype(np.int32), self.slot_gpu, self.experts, self.gpus)

    def max_load(self, assignment: Assignment) -> Floats:
        """Largest GPU load over mean GPU load, ``[layers]``, recomputed from the assignment alone.

        Of unequal GPUs: largest load over speed, relative to what all would take if they were equally busy.
        """
        per_gpu = assignment.gpu_load(self.loads) / self.speed
        ratio: Floats = per_gpu.max(axis=1) * self.gpus / self.loads.sum(axis=1)
        return ratio


def expert_problem(
    loads: ArrayLike, slots_per_gpu: ArrayLike, gpu_speed: Floats | None = None, spread: Ints | None = None
) -> ExpertProblem:
    """Check ``loads`` ``[layers, experts]`` and ``slots_per_gpu`` ``[gpus]``, and scale each row to mean 1.

    Raises
    ------
    InputError
        As :class:`ExpertProblem`.
    """
    raw = np.asarray(loads, dtype=np.float64)
    _check_loads(raw)
    scaled = raw / raw.max(axis=1, keepdims=True)  # first the largest: the sum of loads near 1e308 overflows
    return ExpertProblem(
        scaled / scaled.mean(axis=1, keepdims=True),
        np.asarray(slots_per_gpu, dtype=np.int64).copy(),
        gpu_speed,
        spread,
    )


def fewest_redundant(experts: int, gpus: int) -> int:
    """Fewest extra copies per layer that make slots divisible by the GPUs (256 experts, 72 GPUs: 32)."""
    return -experts % gpus


def spread_slots(experts: int, gpus: int, redundant: int | None = None) -> Ints:
    """Slots of each GPU, int64 ``[gpus]``, for ``redundant`` copies per layer above one of each expert.

    What does not divide gives the first GPUs one slot more. ``None`` means :func:`fewest_redundant`.

    Raises
    ------
    InputError
        If there is no GPU or no expert, or ``redundant`` is negative (fewer slots than experts).
    """
    if experts < 1 or gpus < 1:
        raise InputError(f"{experts} experts on {gpus} GPUs: both must be at least 1.")
    slots = experts + (fewest_redundant(experts, gpus) if redundant is None else redundant)
    each, more = divmod(slots, gpus)
    per_gpu = np.full(gpus, each, dtype=np.int64)
    per_gpu[:more] += 1
    _check_slots(per_gpu, experts)
    return per_gpu


def _check_speed(speed: Floats | None, gpus: int) -> None:
    if speed is None:
        return
    if speed.shape != (gpus,) or not (np.isfinite(speed) & (speed > 0)).all():
        raise InputError(
            f"speeds of {speed.size} GPUs for {gpus}: give one finite number above 0 for each GPU."
        )


def _check_loads(loads: Floats) -> None:
    if loads.ndim != 2 or 0 in loads.shape:
        raise InputError(
            f"expert loads have shape {list(loads.shape)}: give [layers, experts], neither of them 0."
        )
    bad = ~np.isfinite(loads) | (loads < 0)
    if bad.any():
        layer, expert = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"expert loads, row {layer}, expert {expert}: {loads[layer, expert]} is not a count of tokens; "
            "give finite numbers that are not negative."
        )
    dead = ~loads.any(axis=1)
    if dead.any():
        raise InputError(
            f"expert loads, row {int(np.argmax(dead))}: all zero, so no placement is better than another; "
            "give loads of MoE layers alone."
        )


def _check_slots(slots_per_gpu: Ints, experts: int) -> None:
    if slots_per_gpu.ndim != 1 or slots_per_gpu.size == 0 or int(slots_per_gpu.min()) < 0:
        raise InputError(
            f"slots per GPU {slots_per_gpu.tolist()}: give one count that is not negative for each GPU."
        )
    slots = int(slots_per_gpu.sum())
    gpus = slots_per_gpu.size
    if slots < experts:
        raise InputError(
            f"{slots} slots on {gpus} GPUs cannot hold {experts} experts: give more GPUs or a larger "
            f"`redundant` (0 or more: it counts copies above one of each expert)."
        )
    if int(slots_per_gpu.max()) > experts:
        most = int(slots_per_gpu.max())
        raise InputError(
            f"{most} slots on a GPU for {experts} experts: it would hold two copies of one; "
            f"give at most `redundant` {experts * (gpus - 1)} on {gpus} GPUs, or more GPUs."
        )


WIDE = 5e-3
"""The gap from which other copy counts are looked at."""


_EQUAL = 1e-9  # relative: the objective is the bound up to rounding


def max_loads(problem: ExpertProblem, slot_expert: Experts) -> Floats:
    """Return the largest over mean GPU load of ``slot_expert`` ``[layers, slots]``, ``[layers]``."""
    return problem.max_load(problem.assignment(slot_expert))


def wide_layers(problem: ExpertProblem, slot_expert: Experts, bound: Floats, gap: float = WIDE) -> Index:
    """Return the layers with a gap above ``gap`` to their bound."""
    return np.flatnonzero(max_loads(problem, slot_expert) > bound * (1 + gap))


def keep_better(problem: ExpertProblem, slot_expert: Experts, layers: Index, again: Experts) -> int:
    """Take the rows of ``again`` that are better than ``slot_expert[layers]``, in place; return how many."""
    part = problem.rows(layers)
    better = max_loads(part, again) < max_loads(part, slot_expert[layers])
    slot_expert[layers[better]] = again[better]
    return int(better.sum())


def proven(max_load: Floats, bound: Floats) -> Bools:
    """Whether a largest load is its bound, up to rounding, ``[layers]``."""
    reached: Bools = max_load <= bound * (1 + _EQUAL)
    return reached
