"""Replicas that cost the same, side by side: their stages and hops, and how long a step of many at batches takes.

A sweep has hundreds of thousands of stages at batches, but few shapes of a step: each is priced once, for one layer
of each kind and for the head (:func:`cost.step.step.even_step` is linear in the layers), and the stages are
their sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost.layouts.arrays import Array, Index, expand, numbered, pairs, runs_of
from cost.layouts.partition import Variant
from cost.layouts.stages import Line, Pricer, Stage, StageTable, Widths
from cost.model import StageShard
from cost.step.step import even_step, measured, with_even_slots
from cost.terms.registry import TERMS
from topology.base.units import added

MAX_LINES = 10_000
"""Replicas of all variants; of more, equal ones are joined (a raw graph's domains are all different)."""
_ROUNDING = 1e-6
"""Of a sequence: batches of whole ones are kept as parts of a group's width."""


@dataclass(frozen=True, eq=False)
class Pipelines:
    """Replicas that cost the same, one entry each; arrays ``[pipelines]``.

    Attributes
    ----------
    variant:
        The variant that it is of; those of one variant follow each other.
    alike, gpus, depth:
        Replicas that cost the same, GPUs of one of them, its stages.
    stages, times:
        The distinct stages of all pipelines, one after the other, and how many of its pipeline each stands for.
    pipeline:
        Of which pipeline each row of ``stages`` is.
    fixed_s, slope_s:
        Seconds of all hops of a micro-batch by fabric: ``fixed_s + batch * slope_s``.
    peak_s:
        That slope at the links' peak, without latency, over all fabrics.
    """

    variant: Index
    alike: Array
    gpus: Array
    depth: Array
    stages: StageTable
    times: Array
    pipeline: Index
    fixed_s: dict[str, Array]
    slope_s: dict[str, Array]
    peak_s: Array

    @cached_property
    def _of_variant(self) -> tuple[Index, Index]:
        """The first pipeline of each variant, and how many it has."""
        length = np.bincount(self.variant)
        return np.cumsum(length) - length, length

    @cached_property
    def _of_pipeline(self) -> tuple[Index, Index]:
        """The first row of ``stages`` of each pipeline, and how many it has."""
        length = np.bincount(self.pipeline)
        return np.cumsum(length) - length, length

    def of(self, variants: Index) -> tuple[Index, Index]:
        """Pipelines of each entry of ``variants``: the entry's place, and the pipeline (:func:`expand`)."""
        return expand(*self._of_variant, variants)

    def rows(self, pipelines: Index) -> tuple[Index, Index]:
        """Rows of the stages of each entry of ``pipelines``: the entry's place, and the row (:func:`expand`)."""
        return expand(*self._of_pipeline, pipelines)

    def hops_s(self, pipeline: Index, batch: Array) -> dict[str, Array]:
        """Seconds of all hops of some pipelines by fabric, ``batch`` sequences per GPU in flight."""
        return {
            fabric: fixed_s[pipeline] + batch * self.slope_s[fabric][pipeline]
            for fabric, fixed_s in self.fixed_s.items()
        }


def pipelines_of(
    pricer: Pricer, variants: Sequence[Variant], lines: Sequence[Sequence[tuple[Line, int]]]
) -> Pipelines:
    """Return the pipelines of ``variants``; ``lines``: of each arrangement, its replicas (:meth:`Pricer.lines`)."""
    if sum(len(lines[candidate.number]) for candidate in variants) > MAX_LINES:
        lines = [_joined(group) for group in lines]
    replicas = [
        (at, line, count) for at, candidate in enumerate(variants) for line, count in lines[candidate.number]
    ]
    variant = np.array([at for at, _, _ in replicas], dtype=np.int64)
    depth = np.array([len(line.kinds) for _, line, _ in replicas], dtype=np.int64)
    pipeline = np.repeat(np.arange(len(replicas)), depth)
    kind = np.array([kind for _, line, _ in replicas for kind in line.kinds], dtype=np.int64)
    stop = np.array([layers.stop for at, _, _ in replicas for layers in variants[at].ranges], dtype=np.int64)
    end = np.cumsum(depth)
    start = np.roll(stop, 1)
    start[end - depth] = 0
    is_first, is_last = np.zeros((2, len(kind)))
    is_first[end - depth], is_last[end - 1] = 1.0, 1.0
    counts = _held(pricer, start, stop)
    # what each stage is and holds, as a number
    held = np.zeros(len(kind), dtype=np.int64)
    for column in counts.T:
        held = np.unique(pairs(held, column), return_inverse=True)[1].reshape(-1)
    stage = pairs(pairs(kind, held), (2 * is_first + is_last).astype(np.int64))
    _, at, times = np.unique(pairs(pipeline, stage), return_index=True, return_counts=True)
    order = np.argsort(at)
    at = at[order]
    table = StageTable.of(
        list(pricer.kinds), kind[at], counts[at].T.astype(np.float64), first=is_first[at], last=is_last[at]
    )
    hops = [{hop.fabric: hop for hop in line.hops} for _, line, _ in replicas]
    fabrics = dict.fromkeys(fabric for row in hops for fabric in row)
    return Pipelines(
        variant,
        alike=np.array([count for _, _, count in replicas], dtype=np.float64),
        gpus=np.array([line.gpus for _, line, _ in replicas], dtype=np.float64),
        depth=depth.astype(np.float64),
        stages=table,
        times=times[order].astype(np.float64),
        pipeline=pipeline[at],
        fixed_s={
            name: np.array([row[name].fixed_s if name in row else 0.0 for row in hops]) for name in fabrics
        },
        slope_s={
            name: np.array([row[name].slope_s if name in row else 0.0 for row in hops]) for name in fabrics
        },
        peak_s=np.array(
            [added(hop.peak_s for hop in line.hops) for _, line, _ in replicas], dtype=np.float64
        ),
    )


def _joined(lines: Sequence[tuple[Line, int]]) -> list[tuple[Line, int]]:
    """Return the replicas of an arrangement, equal ones as one."""
    count: Counter[Line] = Counter()
    for line, repeats in lines:
        count[line] += repeats
    return list(count.items())


def _held(pricer: Pricer, start: Index, stop: Index) -> Index:
    """Layers of each kind in runs of layers, ``[runs, kinds]``."""
    model = pricer.deployment.model
    cumulative = np.zeros((len(model.layers) + 1, len(model.kinds)), dtype=np.int64)
    cumulative[1:] = np.cumsum(np.array(model.kind_of)[:, None] == np.arange(len(model.kinds)), axis=0)
    return np.asarray(cumulative[stop] - cumulative[start])


def pipeline_seconds(
    pricer: Pricer, pipelines: Pipelines, variants: Index, widths: Widths
) -> tuple[Index, Index, Array]:
    """Return the seconds of a step of every pipeline of some configurations.

    ``variants``: the variant of each configuration.

    Returns
    -------
    Of which configuration each pipeline is, growing; which of ``pipelines``; and its seconds.
    """
    of, pipeline = pipelines.of(variants)
    line, rows = pipelines.rows(pipeline)
    seconds = stage_seconds(pricer, pipelines.stages, rows, of[line], widths)
    runs = runs_of(line)
    one_pass_s, slowest_s = runs.sum(pipelines.times[rows] * seconds), runs.max(seconds)
    hops_s = np.zeros(len(pipeline))
    for hop_s in pipelines.hops_s(pipeline, widths.batch[of]).values():
        hops_s = hops_s + hop_s
    # with the bubble of :func:`cost.terms.pipeline.bubble_seconds`; of equal pipelines none is slower by rounding
    return of, pipeline, np.maximum(one_pass_s + hops_s, pipelines.depth[pipeline] * slowest_s)


def stage_seconds(pricer: Pricer, stages: StageTable, rows: Index, of: Index, widths: Widths) -> Array:
    """Return the seconds of a step of the stages ``rows``, each of the configuration ``of`` (:class:`Widths`).

    They are those of :meth:`cost.layouts.stages.Pricer.seconds` but for rounding.
    """
    shapes: dict[Stage, int] = {}
    shape_of = np.array([shapes.setdefault(kind.shape, len(shapes)) for kind in pricer.kinds], dtype=np.int64)
    sequences = widths.batch * widths.tp  # of a group: whole but for the mean of a pool that others hold up
    rounded = np.rint(sequences).astype(np.int64)
    mean = bool(np.any(np.abs(sequences - rounded) > _ROUNDING))
    batch = np.unique(sequences, return_inverse=True)[1].reshape(-1) if mean else numbered(rounded)[1]
    width = numbered(widths.cut)[1]
    cut, configuration = numbered(pairs(width, batch))
    sample = np.zeros(len(cut), dtype=np.int64)
    sample[configuration] = np.arange(len(configuration))  # one of those that are equal
    units, unit = numbered(shape_of[stages.kind[rows]] * len(cut) + configuration[of])
    shape, row = units // max(len(cut), 1), sample[units % max(len(cut), 1)]
    total, sent = _unit_seconds(pricer, list(shapes), shape, widths.rows(row))
    seconds = _sums(total, stages, rows, unit)
    if not pricer.deployment.workload.overlap:
        return seconds
    sending = _sums(sent, stages, rows, unit)
    share = np.array([float(machine.efficiency["overlap"]) for machine in pricer.machines])
    hidden = share[stages.machine[rows]] * np.minimum(sending, seconds - sending)
    return np.asarray(2 * (seconds - hidden))  # two half batches (:func:`cost.step.step.overlapped`)


def _sums(units: Array, stages: StageTable, rows: Index, unit: Index) -> Array:
    """Seconds of stages: of each kind of layer as often as it is there, and of the head."""
    seconds = np.zeros(len(rows))
    for counts, unit_seconds in zip([*stages.counts, stages.last], units, strict=True):
        if counts.any():
            seconds += counts[rows] * unit_seconds[unit]
    return seconds


def _unit_seconds(
    pricer: Pricer, shapes: Sequence[Stage], shape_of: Index, widths: Widths
) -> tuple[Array, Array]:
    """Return seconds of one layer of each kind of the model, then of the head, and the part that is sending.

    ``[parts, units]`` each. ``shape_of``: the place of each unit among the ``shapes`` of stages. With half batches
    those of one of the two; only then is the part that is sending found.
    """
    model, overlap = pricer.deployment.model, pricer.deployment.workload.overlap
    table = StageTable.bare(shapes, len(model.kinds))
    shape = pricer.shape(table, shape_of, widths)
    shape = with_even_slots(shape)
    if overlap:
        shape = shape.halved
    held = [*(StageShard(((layer, 1.0),), last=0.0) for layer in model.kinds), StageShard((), last=1.0)]
    total, sent = np.zeros((2, len(held), len(shape_of)))
    for machine, where in pricer.by_machine(table.machine[shape_of]):
        measured_shape = measured(shape.rows(where), machine)
        for part, shard in enumerate(held):
            cost = even_step(model, measured_shape, machine, shard, bounds=False)
            total[part, where] = cost.total_s
            if overlap:
                sending = (seconds for (term, _), seconds in cost.parts_s.items() if TERMS[term].sends)
                sent[part, where] = added(sending)
    return total, sent
