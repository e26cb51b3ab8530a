"""The pipeline partition: layers to stages so that times, or shares of the memory, are as equal as can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from cost.inputs.layout import StageSpec
from cost.layouts.arrays import Array, Index
from cost.layouts.candidates import Arrangement
from cost.layouts.stages import Line, Pricer, Stage, StageTable, Widths, single_parts
from topology.base.errors import InputError

Split = tuple[range, ...]

MAX_CELLS, MAX_CELLS_AT_ONCE = 1 << 27, 1 << 22
"""Runs of layers in the tables of one pipeline, and of as many as are cut at once."""
SPLIT_TOLERANCE = 1e-9
"""By how much the largest stage of a split may be above the smallest there is, where something else is balanced."""


def ranges_of(stops: Iterable[int]) -> Split:
    """Return the runs of layers between cuts, of which the first is 0."""
    return tuple(range(a, b) for a, b in pairwise(stops))


def _before(values: Array, width: int) -> Array:
    """Return what lies ``width`` places before each, one fewer and so on: ``[rows, width, pipelines, places]``.

    A view of ``values [rows, pipelines, width + places]``.
    """
    row, pipeline, place = values.strides
    shape = len(values), width, values.shape[1], values.shape[2] - width
    return np.ndarray(shape, buffer=values, strides=(row, place, pipeline, place))


def best_cuts(runs: Array, row_of: Sequence[int], combine: np.ufunc = np.maximum) -> tuple[Array, Index]:
    """Return how good the best split of each pipeline is, and where it cuts the layers, ``[stages + 1, pipelines]``.

    Parameters
    ----------
    runs:
        ``[rows, width, pipelines, layers + 1]``: what the ``width`` layers before ``j`` take on a kind of stage, then
        one fewer and so on; infinite where there are not so many or they have no room. No stage may have more than
        ``width`` layers. An infinite answer says that no split has room.
    row_of:
        The row of each stage, the same in all pipelines.
    combine:
        ``np.maximum``: the largest stage is as small as can be; ``np.add``: the sum of all is.

    Notes
    -----
    A dynamic programme over stages in their order, pipelines side by side: the best for the first ``j`` layers is the
    least, over where the last stage begins, of the best before combined with its own: ``stages * layers * width``
    steps, exact (Bokhari 1988, IEEE Transactions on Computers 37). Of equal splits the one with the earliest last
    cut.
    """
    width, pipelines, places = runs.shape[1:]
    length = np.arange(1, width + 1)
    # the first `width` columns stand for fewer than no layers
    best = np.full((max(1, len(row_of) - 1), pipelines, width + places), np.inf)
    reached = np.empty(runs.shape[1:])
    best[0][:, width + length] = runs[row_of[0]][width - length, :, length].T
    previous = _before(best, width)
    for stage, row in enumerate(row_of[1:-1]):
        combine(previous[stage], runs[row], out=reached).min(axis=0, out=best[stage + 1][:, width:])
    pipeline, back = np.arange(pipelines), np.arange(width)[:, None]
    stops, value = [np.full(pipelines, places - 1)], best[-1][:, -1]
    for stage in range(len(row_of) - 1, 0, -1):
        stop = stops[-1]
        totals = combine(best[stage - 1][pipeline, stop + back], runs[row_of[stage]][:, pipeline, stop])
        which = totals.argmin(axis=0)
        stops.append(np.maximum(stop - width + which, 0))
        if stage == len(row_of) - 1:
            value = totals[which, pipeline]
    return value, np.stack([np.zeros(pipelines, dtype=np.int64), *stops[::-1]])


@dataclass(frozen=True, eq=False)
class Costs:
    """Cost of layers on the stages of some pipelines, and the fixed cost of each stage.

    Attributes
    ----------
    layers:
        ``[rows, pipelines, layers]``: a row for each kind of stage of a pipeline.
    fixed:
        ``[rows, pipelines]``.
    """

    layers: Array
    fixed: Array

    @classmethod
    def joined(cls, costs: Sequence[Costs]) -> Costs:
        """Return the pipelines of several, one after the other."""
        return cls(
            np.concatenate([cost.layers for cost in costs], axis=1),
            np.concatenate([cost.fixed for cost in costs], axis=1),
        )

    def some(self, which: slice) -> Costs:
        """Some of the pipelines."""
        return Costs(self.layers[:, which], self.fixed[:, which])

    @cached_property
    def ends(self) -> Array:
        """Sums of the first layers, none of them first, ``[rows, pipelines, layers + 1]``."""
        return np.concatenate([np.zeros((*self.fixed.shape, 1)), np.cumsum(self.layers, axis=2)], axis=2)

    def runs(self, width: int) -> Array:
        """What runs of at most ``width`` layers take, as :func:`best_cuts` has them.

        Raises
        ------
        InputError
            If there are too many runs to keep.
        """
        ends = self.ends
        if ends[:, 0].size * width > MAX_CELLS:
            layers, rows = self.layers.shape[2], len(ends)
            raise InputError(
                f"{layers:,} layers on {rows} kinds of stages are too many to partition; use one stage."
            )
        none = np.full((*self.fixed.shape, width), -np.inf)
        runs: Array = ends[:, None] - _before(np.concatenate([none, ends], axis=2), width)
        runs += self.fixed[:, None, :, None]
        return runs

    def longest(self, row_of: Sequence[int]) -> int:
        """Layers of the longest run in any split that is no worse than the one into equally many layers."""
        layers, stages, rows = self.layers.shape[2], len(row_of), list(row_of)
        cuts = np.arange(stages + 1) * layers // stages
        even = self.ends[rows, :, cuts[1:]] - self.ends[rows, :, cuts[:-1]] + self.fixed[rows]
        limit = even.max(axis=0) * (1 + 2 * SPLIT_TOLERANCE)
        low, high = 1, layers
        while low < high:
            middle = (low + high) // 2
            longer = (self.ends[:, :, middle + 1 :] - self.ends[:, :, : -middle - 1]).min(axis=2) + self.fixed
            if np.all(longer > limit):
                high = middle
            else:
                low = middle + 1
        return low


def balanced_splits(costs: Costs, tie_costs: Costs, row_of: Sequence[int]) -> list[Split]:
    """Return the split of each pipeline whose largest stage is as small as can be, no stage empty.

    Parameters
    ----------
    costs, tie_costs:
        What is balanced, and what is balanced next: of the splits whose largest stage is as small as can be, the one
        whose largest stage is smallest in this.
    row_of:
        The row of each stage, the same in all pipelines.
    """
    width, pipelines = costs.longest(row_of), costs.fixed.shape[1]
    at_once = max(1, MAX_CELLS_AT_ONCE // (costs.ends[:, 0].size * width))
    splits: list[Split] = []
    for start in range(0, pipelines, at_once):
        part = slice(start, start + at_once)
        runs, tie_runs = costs.some(part).runs(width), tie_costs.some(part).runs(width)
        largest = best_cuts(runs, row_of)[0]
        tie_runs[runs > largest[:, None] * (1 + SPLIT_TOLERANCE)] = np.inf
        splits += [ranges_of(stops) for stops in best_cuts(tie_runs, row_of)[1].T.tolist()]
    return splits


TYPICAL_BATCHES = {
    "decode": ((1.0, True), (64.0, False), (64.0, True)),
    "prefill": ((1.0, False), (8.0, False)),
}
"""Sequences per GPU at which layers are weighed against each other and against the head, and whether all GPUs of a
stage are one tensor-parallel group then. What suits few sequences best need not suit many, and splits for one batch
alone would favour one chip over another by chance."""

SHORTER_SPLITS = 2
"""Layers fewer on the last stage than in any split that is balanced."""


@dataclass(frozen=True, eq=False)
class Variant:
    """An arrangement with its layers split: ``ranges[stage]``; ``number``: of the arrangement among those given."""

    number: int
    arrangement: Arrangement
    ranges: Split

    def stages(self, replica: int) -> tuple[StageSpec, ...]:
        """The stages of one replica."""
        groups = self.arrangement.replicas[replica]
        return tuple(StageSpec(gpus, layers) for gpus, layers in zip(groups, self.ranges, strict=True))


def variants_of(
    pricer: Pricer, arranged: Sequence[Arrangement], lines: Sequence[Line] | None = None
) -> list[Variant]:
    """Return arrangements, each with every split of its layers that is worth pricing; ``lines``: a replica of each.

    Layers are split so that the slowest stage is fastest, experts balanced, at each of :data:`TYPICAL_BATCHES`; so
    that the fullest GPU is least full, which leaves room for more sequences; and in the ways between these.
    """
    lines = [pricer.lines(arrangement)[0][0] for arrangement in arranged] if lines is None else lines
    kind_of = pricer.deployment.model.kind_of
    staged = [number for number, line in enumerate(lines) if len(line.kinds) > 1]
    balanced = dict(zip(staged, _balanced(pricer, [lines[number] for number in staged]), strict=True))
    variants: list[Variant] = []
    for number, (arrangement, line) in enumerate(zip(arranged, lines, strict=True)):
        splits: list[Split] = [(range(len(kind_of)),)]
        if number in balanced:
            middle = set(line.kinds[1:-1])
            splits = between(list(dict.fromkeys(balanced[number])), kind_of if len(middle) == 1 else ())
        variants += [Variant(number, arrangement, ranges) for ranges in splits]
    return variants


def _balanced(pricer: Pricer, lines: Sequence[Line]) -> list[list[Split]]:
    """Return the balanced splits of some replicas: at each of :data:`TYPICAL_BATCHES`, then of memory."""
    used = sorted({kind for line in lines for kind in line.kinds})
    all_kinds = list(pricer.kinds)
    weights = _weights(pricer, [all_kinds[kind] for kind in used]) if used else []
    place = {kind: number for number, kind in enumerate(used)}
    kind_of = np.array(pricer.deployment.model.kind_of)
    patterns: dict[tuple[int, ...], list[tuple[int, list[int]]]] = {}
    for number, line in enumerate(lines):
        last = len(line.kinds) - 1
        ends = [(place[kind], index == 0, index == last) for index, kind in enumerate(line.kinds)]
        rows = list(dict.fromkeys(ends))
        patterns.setdefault(tuple(map(rows.index, ends)), []).append((number, [kind for kind, _, _ in rows]))
    balanced: list[list[Split]] = [[] for _ in lines]
    for row_of, members in patterns.items():
        kinds = np.array([row for _, row in members]).T
        *times, memory = (weight.costs(kind_of, kinds, row_of) for weight in weights)
        primary, secondary = (
            Costs.joined([*times, memory]),
            Costs.joined([memory for _ in times] + times[-1:]),
        )
        splits = balanced_splits(
            primary, secondary, row_of
        )  # all at once: each call costs more than what it does
        for place_, (number, _) in enumerate(members):
            balanced[number] = splits[place_ :: len(members)]
    return balanced


def between(splits: list[Split], kind_of: Sequence[int] = ()) -> list[Split]:
    """Return splits and those on the way from one to the next: what suits a batch between theirs lies there.

    They are taken by the layers of the last stage, and every cut moves to that of the next in as many even steps as
    the cut that moves farthest has layers to go. :data:`SHORTER_SPLITS` more leave the last stage, which has the
    head, fewer layers than any: a chip with a little more compute must not lose the split that suits one with less.
    For the same reason stages on the way that are alike get equally many layers: those of one kind by ``kind_of``
    (empty: stages differ).
    """
    order = sorted(splits, key=lambda split: len(split[-1]))
    ways = dict.fromkeys([*_shorter(order[0]), order[0]])
    for start, end in pairwise(order):
        cuts = np.array([[stage.stop for stage in split] for split in (start, end)])
        steps = int(np.abs(cuts[1] - cuts[0]).max())
        for step in range(1, steps + 1):
            stops = [0, *np.round(cuts[0] + (cuts[1] - cuts[0]) * step / steps).astype(int).tolist()]
            ways[ranges_of(_evened(stops, kind_of))] = None
    return [split for split in ways if all(split)]


def _evened(stops: list[int], kind_of: Sequence[int]) -> list[int]:
    """Return the ends of stages with those between the first and the last as long as each other, if alike."""
    start, stop, middle = stops[1], stops[-2], len(stops) - 3
    if len(set(kind_of[start:stop])) != 1:
        return stops
    return [0, *(start + (stop - start) * index // middle for index in range(middle)), *stops[-2:]]


def _shorter(split: Split) -> list[Split]:
    """Return splits whose last stage has a layer fewer each, which the stage with fewest of the others gets."""
    shorter = []
    lengths = [len(stage) for stage in split]
    for _ in range(min(SHORTER_SPLITS, lengths[-1] - 1)):
        lengths[-1] -= 1
        lengths[lengths.index(min(lengths[:-1]))] += 1
        shorter.append(ranges_of(accumulate(lengths, initial=0)))
    return shorter


@dataclass(frozen=True, eq=False)
class _Weights:
    """What a layer of each kind, the embedding and the head take: ``kinds [kinds, stages]``, ``[stages]``."""

    kinds: Array
    first: Array
    last: Array

    def costs(self, kind_of: Index, stages: Index, row_of: Sequence[int]) -> Costs:
        """What layers take on the ``stages [rows, pipelines]``, in the order of ``row_of``."""
        ends = np.zeros((2, len(stages), 1))
        ends[0, row_of[0]], ends[1, row_of[-1]] = 1.0, 1.0
        layers = self.kinds[:, stages][kind_of].transpose(1, 2, 0)
        return Costs(np.ascontiguousarray(layers), self.first[stages] * ends[0] + self.last[stages] * ends[1])


def _weights(pricer: Pricer, stages: list[Stage]) -> list[_Weights]:
    """Seconds, and fractions of HBM, of everything that a stage may hold, on each kind of stage."""
    model, phase = pricer.deployment.model, pricer.deployment.workload.step_phase
    typical = [*TYPICAL_BATCHES[phase], (1.0, False)]  # the last for memory
    table = StageTable.bare(stages * len(typical), len(model.kinds))
    rows, held = single_parts(model, len(table.kind))
    batch, one_group = (np.repeat(column, len(stages))[rows] for column in zip(*typical, strict=True))
    # attention as wide as the group where it is one (as without experts), else one wide
    single, group = np.ones(len(rows), dtype=np.int64), table.gpus[rows].astype(np.int64)
    tp = group if model.moe is None else np.where(one_group, group, single)
    shape = pricer.shape(table, rows, Widths.plain(tp, batch))
    weights, cache = pricer.memory(table, rows, shape, held, buffers=False)
    budgets = pricer.budgets(table, rows, shape)
    step_s = pricer.seconds(table, rows, shape, held, bounds=False).step_s
    figures = np.stack([step_s, (weights + cache / budgets.part) / budgets.usable])
    times, memory = figures.reshape(2, -1, len(typical), len(stages)).swapaxes(1, 2)
    return [_Weights(values[:-2], values[-2], values[-1]) for values in (*times[:-1], memory[-1])]
