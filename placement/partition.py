"""The pipeline partition: layers to stages in contiguous runs, exact, times and memory from the cost model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cost.deployment import USABLE_HBM, Deployment
from cost.dispatch import ExpertUse, balanced_use
from cost.layout import StageSpec
from cost.layouts.partition import best_cuts, run_sums
from cost.memory import layer_cache_bytes, layer_weight_bytes, replica_max_batch, replica_memory, weight_sizes
from cost.model import Layer, MoeFfn
from cost.step import batch_cost
from placement.arrays import Floats, Ints
from topology.errors import InfeasibleError, InputError


def last_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number from ``low`` to below ``high`` for which ``holds`` is true; after it, it is false.

    ``low`` is taken to hold and ``high`` not to; neither is tried.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


MEMORY_UNIT = 1024.0
"""Bytes are rounded up to whole kibibytes, so that what is accepted does fit."""


@dataclass(frozen=True, eq=False)
class StageProblem:
    """Consecutive layers to stages in a fixed order.

    Attributes
    ----------
    seconds:
        Time of each layer on each stage, ``[layers, stages]``.
    fixed_seconds:
        Time of each stage besides its layers (the output head on the last), ``[stages]``.
    memory:
        Bytes that each layer takes on a GPU of each stage, ``[layers, stages]``.
    fixed_memory:
        Bytes that each stage needs besides (embedding, head, workspace), ``[stages]``.
    capacity:
        Usable bytes of a GPU of each stage, ``[stages]``.
    """

    seconds: Floats
    fixed_seconds: Floats
    memory: Floats
    fixed_memory: Floats
    capacity: Floats

    def __post_init__(self) -> None:
        layers, stages = self.seconds.shape
        if layers < stages:
            raise InputError(f"{stages} stages for {layers} layers: a stage needs at least one layer.")

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.seconds.shape[0])

    @property
    def stages(self) -> int:
        """Number of stages."""
        return int(self.seconds.shape[1])

    def stage_seconds(self, ranges: tuple[range, ...]) -> Floats:
        """Time of each stage for these runs of layers, ``[stages]``."""
        rows = [self.seconds[list(r), s].sum() for s, r in enumerate(ranges)]
        return np.array(rows) + self.fixed_seconds

    def stage_memory(self, ranges: tuple[range, ...]) -> Floats:
        """Bytes per GPU of each stage for these runs of layers, ``[stages]``."""
        rows = [self.memory[list(r), s].sum() for s, r in enumerate(ranges)]
        return np.array(rows) + self.fixed_memory


def solve_stages(problem: StageProblem) -> tuple[range, ...]:
    """Return the run of layers of each stage of the split whose slowest stage is fastest, of those that fit: exact.

    Raises
    ------
    InfeasibleError
        If no contiguous split respects the memory of the stages.
    """
    units = run_sums(np.ceil(problem.memory.T / MEMORY_UNIT), np.zeros(problem.stages))
    room = (problem.capacity - problem.fixed_memory) // MEMORY_UNIT
    seconds = run_sums(problem.seconds.T, problem.fixed_seconds)
    least, found = best_cuts(np.where(units <= room[:, None, None], seconds, np.inf))
    if not np.isfinite(least):
        raise InfeasibleError(
            f"no split of {problem.layers} layers into {problem.stages} consecutive stages fits in HBM "
            f"({problem.capacity.min() / 1e9:.1f} GB usable on the smallest GPU)."
        )
    return found


Groups = Sequence[tuple[int, ...]]


def equal_ranges(layers: int, stages: int) -> tuple[range, ...]:
    """Cut layers into runs of nearly equal length."""
    cuts = [round(layers * stage / stages) for stage in range(stages + 1)]
    return tuple(range(a, b) for a, b in pairwise(cuts))


def stage_specs(groups: Groups, ranges: Sequence[range]) -> tuple[StageSpec, ...]:
    """Join groups of GPUs and runs of layers."""
    return tuple(StageSpec(gpus, layers) for gpus, layers in zip(groups, ranges, strict=True))


def largest_batch(deployment: Deployment, groups: Groups, *, tp: int, slots: Sequence[Ints]) -> int:
    """Return the largest batch for which some contiguous split fits in HBM; 0 where none does.

    For a fixed order of stages, filling each in turn as far as it goes finds a split if there is one.
    """
    if len(groups) == 1:
        stages = stage_specs(groups, [range(len(deployment.model.layers))])
        return replica_max_batch(replica_memory(deployment, stages, tp=tp, slots=slots))
    even = stage_specs(groups, equal_ranges(len(deployment.model.layers), len(groups)))
    most = replica_max_batch(replica_memory(deployment, even, tp=tp, slots=slots))
    low, high = most, max(4, 2 * most + 4)
    while _fits(deployment.with_batch(high), groups, tp=tp, slots=slots):
        low, high = high, 2 * high
    return last_where(
        low, high, lambda batch: _fits(deployment.with_batch(batch), groups, tp=tp, slots=slots)
    )


def _fits(deployment: Deployment, groups: Groups, *, tp: int, slots: Sequence[Ints]) -> bool:
    problem = stage_problem(deployment, groups, tp=tp, slots=slots, times=False)
    layer, layers, stages = 0, problem.layers, problem.stages
    for stage in range(stages):
        room = problem.capacity[stage] - problem.fixed_memory[stage]
        taken = 0
        while layers - layer > stages - stage - 1 and problem.memory[layer, stage] <= room:
            room -= problem.memory[layer, stage]
            layer += 1
            taken += 1
            if layer == layers:
                break
        if taken == 0:
            return False
    return layer == layers


def stage_problem(
    deployment: Deployment, groups: Groups, *, tp: int, slots: Sequence[Ints], times: bool = True
) -> StageProblem:
    """Return the split as a problem: seconds and bytes of each layer on each stage, experts balanced.

    ``slots[stage]`` are the slots of each GPU of the stage. ``times=False`` leaves the seconds zero.
    """
    model, batch = deployment.model, deployment.workload.batch
    layers, stages = len(model.layers), len(groups)
    shape = (layers, stages)
    seconds, memory = np.zeros(shape), np.zeros(shape)
    total = sum(len(group) for group in groups)
    trial = stage_specs(groups, equal_ranges(layers, stages))
    # on the safe side where GPUs differ: the most slots on the least HBM
    whole = replica_memory(deployment, trial, tp=tp, slots=slots, most=[int(row.max()) for row in slots])
    fixed = np.array([part.used(batch) for part in whole])
    fixed_s = np.zeros(stages)
    size, kind_of = weight_sizes(model), np.array(model.kind_of)
    for stage, group in enumerate(groups):
        sequences = batch * total / (stages * len(group))
        each = int(slots[stage].max())
        kind_seconds, kind_memory = np.zeros(len(model.kinds)), np.zeros(len(model.kinds))
        for kind, layer in enumerate(model.kinds):
            cache = batch * total / len(group) * layer_cache_bytes(layer, deployment.workload, tp)
            kind_memory[kind] = layer_weight_bytes(layer, size, tp=tp, slots=each) + cache
            if times:
                index = model.kind_of.index(kind)
                spec, use = StageSpec(group, range(index, index + 1)), _layer_use(layer, slots[stage])
                cost = batch_cost(deployment, spec, sequences, tp, use, last=False)
                kind_seconds[kind] = float(cost.total_s)
        seconds[:, stage], memory[:, stage] = kind_seconds[kind_of], kind_memory[kind_of]
        fixed[stage] -= memory[list(trial[stage].layers), stage].sum()
        if times and stage == stages - 1:
            none = StageSpec(group, range(0))
            fixed_s[stage] = float(batch_cost(deployment, none, sequences, tp, None, last=True).total_s)
    capacity = np.array([USABLE_HBM * part.capacity for part in whole])
    return StageProblem(seconds, fixed_s, memory, np.maximum(fixed, 0.0), capacity)


def _layer_use(layer: Layer, slots: Ints) -> ExpertUse | None:
    ffn = layer.ffn
    return balanced_use(1, slots, ffn.experts, ffn.top_k) if isinstance(ffn, MoeFfn) else None


def split_layers(
    deployment: Deployment, groups: Groups, *, tp: int, slots: Sequence[Ints]
) -> tuple[range, ...]:
    """Return the run of layers of each stage: the slowest stage as fast as memory allows, proven."""
    layers = len(deployment.model.layers)
    if len(groups) == 1:
        return (range(layers),)
    return solve_stages(stage_problem(deployment, groups, tp=tp, slots=slots))
