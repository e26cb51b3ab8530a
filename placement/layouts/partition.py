"""The pipeline partition: layers to stages in contiguous runs, exact, times and memory from the cost model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Unpack

import numpy as np

from cost.experts.tokens.reach import balanced_use
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec, StageWidths
from cost.layouts.partition import Costs, best_cuts, ranges_of
from cost.memory.batches import batch_of, most_that_fit, sequences_of
from cost.memory.sizes import layer_cache_bytes, layer_weight_bytes, weight_sizes
from cost.memory.stages import StageMemory, replica_max_batch, replica_memory
from cost.model import MoeFfn
from cost.step.step import batch_cost
from placement.arrays import Floats, Ints
from topology.base.errors import InfeasibleError, InputError


def last_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number from ``low`` to below ``high`` for which ``holds`` is true; after it, it is false.

    ``low`` is taken to hold and ``high`` not to; neither is tried.
    """
    return low + bisect_left(range(low + 1, high), 1, key=lambda number: not holds(number))


def last_within(low: int, high: int, value: Callable[[int], float], limit: float) -> int:
    """Return the largest number from ``low`` to below ``high`` whose ``value`` is within ``limit``; it never falls.

    ``low`` is taken to be within and ``high`` not. A nearly straight line takes three or four tries: where it would
    cross the limit, and every third time the middle, for those that are not straight.
    """
    below, above, tries = value(low), value(high), 0
    while high - low > 1:
        tries += 1
        middle = (low + high) // 2
        if tries % 3 and above > below:
            middle = low + int((limit - below) / (above - below) * (high - low))
            middle = min(max(middle, low + 1), high - 1)
        reached = value(middle)
        if reached <= limit:
            low, below = middle, reached
        else:
            high, above = middle, reached
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


def solve_stages(problem: StageProblem) -> tuple[range, ...]:
    """Return the run of layers of each stage of the split whose slowest stage is fastest, of those that fit: exact.

    Raises
    ------
    InfeasibleError
        If no contiguous split respects the memory of the stages.
    """
    layers, stages = problem.layers, problem.stages
    units = Costs(np.ceil(problem.memory.T / MEMORY_UNIT)[:, None], np.zeros((stages, 1)))
    seconds = Costs(problem.seconds.T[:, None], problem.fixed_seconds[:, None]).runs(layers)
    room = (problem.capacity - problem.fixed_memory) // MEMORY_UNIT
    seconds[units.runs(layers) > room[:, None, None, None]] = np.inf
    slowest, stops = best_cuts(seconds, range(stages))
    if not np.isfinite(slowest[0]):
        raise InfeasibleError(
            f"no split of {problem.layers} layers into {problem.stages} consecutive stages fits in HBM "
            f"({problem.capacity.min() / 1e9:.1f} GB usable on the smallest GPU)."
        )
    return ranges_of(stops[:, 0].tolist())


Groups = Sequence[tuple[int, ...]]


def equal_ranges(layers: int, stages: int) -> tuple[range, ...]:
    """Cut layers into runs of nearly equal length."""
    cuts = [round(layers * stage / stages) for stage in range(stages + 1)]
    return tuple(range(a, b) for a, b in pairwise(cuts))


def stage_specs(groups: Groups, ranges: Sequence[range]) -> tuple[StageSpec, ...]:
    """Join groups of GPUs and runs of layers."""
    return tuple(StageSpec(gpus, layers) for gpus, layers in zip(groups, ranges, strict=True))


def largest_batch(
    deployment: Deployment, groups: Groups, *, slots: Sequence[Ints], **widths: Unpack[StageWidths]
) -> float:
    """Return the largest batch for which some contiguous split fits in HBM; 0 where none does.

    For a fixed order of stages, filling each in turn as far as it goes finds a split if there is one.
    """
    ranges, tp = equal_ranges(len(deployment.model.layers), len(groups)), widths["tp"]
    stages = stage_specs(groups, ranges)
    batch = replica_max_batch(replica_memory(deployment, stages, slots=slots, **widths), tp)
    if len(groups) == 1:
        return batch
    held = _stage_bytes(deployment, groups, slots=slots, **widths)
    low = sequences_of(batch, tp) or 0
    high, limit = 2 * low + 4, round(float(most_that_fit(held.trial[0].most, tp)) * tp)
    while high <= limit and _fits(held, high / tp):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    return batch_of(last_where(low, high, lambda sequences: _fits(held, sequences / tp)), tp)


@dataclass(frozen=True, eq=False)
class _StageBytes:
    """What layers take of the HBM of each stage, at any batch.

    Attributes
    ----------
    weights, cache:
        Bytes of :attr:`cost.memory.budget.Budget.usable` on a GPU of each stage of a layer of each kind, and for each
        sequence of it, ``[kinds, stages]``.
    sequences:
        Sequences that a GPU of each stage holds for each of the replica, ``[stages]``.
    trial:
        The stages with layers cut evenly, which say what they hold besides.
    ranges:
        The layers of those.
    kind_of:
        Kind of each layer, ``[layers]``.
    """

    weights: Floats
    cache: Floats
    sequences: Floats
    trial: Sequence[StageMemory]
    ranges: tuple[range, ...]
    kind_of: Ints

    @property
    def capacity(self) -> Floats:
        """Usable bytes of a GPU of each stage, ``[stages]``."""
        return np.array([part.budget.usable for part in self.trial])

    def at(self, batch: float) -> tuple[Floats, Floats]:
        """Return the bytes of each layer on each stage, ``[layers, stages]``, and what each stage needs besides."""
        memory = (self.weights + batch * self.sequences * self.cache)[self.kind_of]
        fixed = np.array([part.filled(batch) for part in self.trial])
        for stage, layers in enumerate(self.ranges):
            fixed[stage] -= memory[layers.start : layers.stop, stage].sum()
        return memory, np.maximum(fixed, 0.0)


def _stage_bytes(
    deployment: Deployment, groups: Groups, *, slots: Sequence[Ints], **widths: Unpack[StageWidths]
) -> _StageBytes:
    model, total = deployment.model, sum(len(group) for group in groups)
    ranges, size = equal_ranges(len(model.layers), len(groups)), weight_sizes(model)
    # on the safe side where GPUs differ: the most slots on the least HBM
    largest = [int(row.max()) for row in slots]
    trial = replica_memory(deployment, stage_specs(groups, ranges), slots=slots, most=largest, **widths)
    dcp, pcp, moe_tp = widths.get("dcp", 1), widths.get("pcp", 1), widths.get("moe_tp", 1)
    tp = widths["tp"] // pcp
    part = model.moe.experts / moe_tp if model.moe is not None and moe_tp > 1 else None
    weights = {
        count: [
            float(layer_weight_bytes(layer, size, tp=tp, slots=count if part is None else part))
            for layer in model.kinds
        ]
        for count in set(largest)
    }
    cache = pcp * np.array(
        [float(layer_cache_bytes(layer, deployment.workload, tp, dcp=dcp)) for layer in model.kinds]
    )
    return _StageBytes(
        weights=np.array([weights[count] for count in largest]).T,
        cache=cache[:, None] / [memory.budget.part for memory in trial],
        sequences=np.array([total / len(group) for group in groups]),
        trial=trial,
        ranges=ranges,
        kind_of=np.array(model.kind_of),
    )


def _fits(held: _StageBytes, batch: float) -> bool:
    """Whether layers fit at ``batch``, each stage in turn filled as far as it goes."""
    memory, fixed = held.at(batch)
    (layers, stages), layer = memory.shape, 0
    for stage, room in enumerate((held.capacity - fixed).tolist()):
        free, start = room, layer
        for size in memory[layer : layers - (stages - stage - 1), stage].tolist():
            if size > free:
                break
            free -= size
            layer += 1
        if layer == start:
            return False
    return bool(layer == layers)


def stage_problem(
    deployment: Deployment, groups: Groups, *, slots: Sequence[Ints], **widths: Unpack[StageWidths]
) -> StageProblem:
    """Return the split as a problem: seconds and bytes of each layer on each stage, experts balanced.

    ``slots[stage]`` are the slots of each GPU of the stage.
    """
    model, batch = deployment.model, deployment.workload.batch
    held = _stage_bytes(deployment, groups, slots=slots, **widths)
    memory, fixed = held.at(batch)
    stages, total = len(groups), sum(len(group) for group in groups)
    seconds, fixed_s = np.zeros((len(model.kinds), stages)), np.zeros(stages)
    known: dict[object, Floats] = {}
    for stage, group in enumerate(groups):
        sequences = batch * total / (stages * len(group))
        key = deployment.context(StageSpec(group, range(0))).kind, slots[stage].tobytes()
        if key not in known:
            known[key] = _kind_seconds(deployment, group, slots[stage], sequences, **widths)
        seconds[:, stage] = known[key]
        if stage == stages - 1:
            none = StageSpec(group, range(0))
            fixed_s[stage] = float(batch_cost(deployment, none, sequences, None, last=True, **widths).total_s)
    return StageProblem(seconds[held.kind_of], fixed_s, memory, fixed, held.capacity)


def _kind_seconds(
    deployment: Deployment,
    group: tuple[int, ...],
    slots: Ints,
    sequences: float,
    **widths: Unpack[StageWidths],
) -> Floats:
    """Seconds of a layer of each kind on ``group``, ``[kinds]``."""
    seconds = []
    for kind, layer in enumerate(deployment.model.kinds):
        index = deployment.model.kind_of.index(kind)
        spec, ffn, use = StageSpec(group, range(index, index + 1)), layer.ffn, None
        if isinstance(ffn, MoeFfn) and slots.any():
            use = balanced_use(1, slots, ffn.experts, ffn.top_k)
        cost = batch_cost(deployment, spec, sequences, use, last=False, **widths)
        seconds.append(float(cost.total_s))
    return np.array(seconds)


def split_layers(
    deployment: Deployment, groups: Groups, *, slots: Sequence[Ints], **widths: Unpack[StageWidths]
) -> tuple[range, ...]:
    """Return the run of layers of each stage: the slowest stage as fast as memory allows, proven."""
    layers = len(deployment.model.layers)
    if len(groups) == 1:
        return (range(layers),)
    return solve_stages(stage_problem(deployment, groups, slots=slots, **widths))
