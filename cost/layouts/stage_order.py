"""Assign layers to GPU groups in any order: the run of each group, and the order of groups.

Where groups are homogeneous the order does not matter (:mod:`cost.layouts.partition`). Where they differ in size,
GPU or distance, it does: the embedding and the head take time and memory on two of them, dense layers come first, and
each hand-over goes over its own links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from cost.layouts.arrays import Array, Index
from cost.layouts.partition import Split
from topology.base.errors import InputError

Order = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class OrderProblem:
    """Runs of consecutive layers to ``stages`` of some groups of GPUs, in any order.

    Attributes
    ----------
    kind_of:
        Kind of each layer, in the order of the layers, int64 ``[layers]``.
    seconds:
        Time of a micro-batch in a layer of each kind on each group, ``[kinds, groups]``.
    first_seconds, last_seconds:
        Time that the first stage takes besides (embedding), and the last (head), on each group, ``[groups]``.
    memory:
        Bytes that a layer of each kind takes on a GPU of each group, the cache of all micro-batches in flight
        counted, ``[kinds, groups]``.
    fixed_memory, first_memory, last_memory:
        Bytes on a GPU besides: of any stage (workspace), of the first and of the last one, ``[groups]``.
    capacity:
        Usable bytes of a GPU of each group, ``[groups]``.
    hop_seconds:
        Time of handing a micro-batch from one group to the next, ``[groups, groups]``.
    back_seconds:
        Time of handing sampled tokens from the last stage's group to the first's, ``[groups, groups]``.
    stages:
        Groups to use, each once; as many micro-batches are in flight.

    Raises
    ------
    InputError
        If shapes do not agree, a figure is negative or not a number, or there are fewer groups or layers than stages.
    """

    kind_of: Index
    seconds: Array
    first_seconds: Array
    last_seconds: Array
    memory: Array
    fixed_memory: Array
    first_memory: Array
    last_memory: Array
    capacity: Array
    hop_seconds: Array
    back_seconds: Array
    stages: int

    def __post_init__(self) -> None:
        kinds, groups = self.seconds.shape
        shapes: dict[str, tuple[int, ...]] = {"memory": (kinds, groups)}
        shapes |= dict.fromkeys(("hop_seconds", "back_seconds"), (groups, groups))
        shapes |= dict.fromkeys(("first_seconds", "last_seconds", "fixed_memory", "first_memory"), (groups,))
        shapes |= dict.fromkeys(("last_memory", "capacity"), (groups,))
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise InputError(f"{name}: shape {list(getattr(self, name).shape)}; expected {list(shape)}.")
        for name in ("seconds", *shapes):
            values = getattr(self, name)
            if not np.isfinite(values).all() or (name != "capacity" and (values < 0).any()):
                raise InputError(f"{name}: figures must be finite numbers, and not below 0.")
        if self.layers and not 0 <= self.kind_of.min() <= self.kind_of.max() < kinds:
            raise InputError(f"kind_of: kinds are 0 to {kinds - 1}.")
        if not 1 <= self.stages <= groups:
            raise InputError(f"{self.stages} stages on {groups} groups: give 1 to {groups}.")
        if self.layers < self.stages:
            raise InputError(
                f"{self.stages} stages for {self.layers} layers: a stage needs at least one layer."
            )

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.kind_of.shape[0])

    @property
    def groups(self) -> int:
        """Number of groups to choose from."""
        return int(self.seconds.shape[1])

    @cached_property
    def before(self) -> Index:
        """Layers of each kind before each cut, int64 ``[kinds, layers + 1]``."""
        kinds = np.arange(self.seconds.shape[0])[:, None]
        ends: Index = np.cumsum(self.kind_of[None, :] == kinds, axis=1)
        return np.concatenate([np.zeros_like(ends[:, :1]), ends], axis=1)

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """For each group the first that may change places with it: equal figures, and equal hops to all others."""
        columns = np.concatenate(
            [
                *(self.seconds, self.memory),
                *(row[None, :] for row in (self.first_seconds, self.last_seconds, self.capacity)),
                *(row[None, :] for row in (self.fixed_memory, self.first_memory, self.last_memory)),
            ]
        )
        leaders: list[int] = []
        for group in range(self.groups):
            same = (leader for leader in dict.fromkeys(leaders) if self._exchangeable(columns, group, leader))
            leaders.append(next(same, group))
        return tuple(leaders)

    def _exchangeable(self, columns: Array, group: int, twin: int) -> bool:
        if not (columns[:, group] == columns[:, twin]).all():
            return False
        swapped = np.arange(self.groups)
        swapped[[group, twin]] = twin, group
        return all(
            bool((hops == hops[np.ix_(swapped, swapped)]).all())
            for hops in (self.hop_seconds, self.back_seconds)
        )

    def counts(self, ranges: Split) -> Index:
        """Layers of each kind in each run, int64 ``[kinds, stages]``."""
        starts, stops = [run.start for run in ranges], [run.stop for run in ranges]
        return self.before[:, stops] - self.before[:, starts]

    def stage_seconds(self, order: Sequence[int], ranges: Split) -> Array:
        """Time of each stage, ``[stages]``."""
        groups = list(order)
        seconds = (self.counts(ranges) * self.seconds[:, groups]).sum(axis=0)
        seconds[0] += self.first_seconds[groups[0]]
        seconds[-1] += self.last_seconds[groups[-1]]
        return np.asarray(seconds)

    def stage_memory(self, order: Sequence[int], ranges: Split) -> Array:
        """Bytes on a GPU of each stage, ``[stages]``."""
        groups = list(order)
        memory = (self.counts(ranges) * self.memory[:, groups]).sum(axis=0) + self.fixed_memory[groups]
        memory[0] += self.first_memory[groups[0]]
        memory[-1] += self.last_memory[groups[-1]]
        return np.asarray(memory)

    def fits(self, order: Sequence[int], ranges: Split) -> bool:
        """Whether every stage has room."""
        return bool((self.stage_memory(order, ranges) <= self.capacity[list(order)]).all())

    def tour_seconds(self, order: Sequence[int]) -> float:
        """Time of all hand-overs of a micro-batch that goes round once; one stage has none."""
        if len(order) == 1:
            return 0.0
        forward = sum(float(self.hop_seconds[a, b]) for a, b in pairwise(order))
        return forward + float(self.back_seconds[order[-1], order[0]])

    def step_seconds(self, order: Sequence[int], ranges: Split) -> float:
        """Seconds of a step (:func:`cost.terms.pipeline.bubble_seconds`).

        ``stages`` micro-batches go round: the slowest stage serves each of them once, or one of them passes every
        stage and hop, whichever takes longer.
        """
        seconds = self.stage_seconds(order, ranges)
        return float(max(len(order) * seconds.max(), seconds.sum() + self.tour_seconds(order)))


@dataclass(frozen=True)
class StageOrder:
    """The groups in their order, the run of layers of each, and how good that is.

    Attributes
    ----------
    order:
        Groups by index, in the order of the layers.
    ranges:
        The run of layers of each.
    step_s, bound_s:
        Seconds of a step, and what no order and no split can be below.
    status:
        ``OPTIMAL`` (the step is the bound, to the rounding of the solver's integers) or ``FEASIBLE``.
    search:
        What ran, in words.
    """

    order: tuple[int, ...]
    ranges: Split
    step_s: float
    bound_s: float
    status: str
    search: str = ""

    @classmethod
    def of(cls, problem: OrderProblem, order: Sequence[int], ranges: Split) -> StageOrder:
        """Return a split in order, of which nothing is proven."""
        return cls(tuple(order), ranges, problem.step_seconds(order, ranges), 0.0, "FEASIBLE")

    @property
    def gap(self) -> float:
        """Part of the step that is not proven to be needed."""
        return 0.0 if self.step_s <= 0 else max(0.0, 1 - self.bound_s / self.step_s)
