"""Seconds of many stages from those of one layer of each kind: a stage takes the sum of what it holds.

A sweep has hundreds of thousands of stages at batches, but few shapes of a step: each is priced once, for one layer
of each kind and for the head (:func:`cost.step.even_step` is linear in the layers), and the stages are their sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.layouts.stages import MOST_ROWS, Pricer, Stage, StageTable, pairs
from cost.model import StageShard
from cost.step import even_step
from cost.terms.registry import TERMS
from cost.terms.work import StepCost
from topology.base.units import added

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_MOST_MARKED = 1 << 23
"""Numbers up to which which of them occur is marked in an array; beyond, they are sorted."""


@dataclass(frozen=True, eq=False)
class Widths:
    """How configurations cut their stages and what they process, each array ``[configurations]``.

    ``imbalance`` as in :func:`cost.layouts.sweep`.
    """

    tp: Index
    moe_tp: Index
    batch: Array
    imbalance: float | None

    def rows(self, which: Index) -> Widths:
        """Those of some configurations."""
        return Widths(self.tp[which], self.moe_tp[which], self.batch[which], self.imbalance)


def numbered(values: Index) -> tuple[Index, Index]:
    """Return the distinct of some numbers of 0 and above, growing, and the place of each value among them."""
    most = int(values.max(initial=0))
    if most >= max(_MOST_MARKED, 4 * len(values)):
        found, place = np.unique(values, return_inverse=True)
        return found, place.reshape(-1)
    there = np.zeros(most + 1, dtype=bool)
    there[values] = True
    found = np.flatnonzero(there)
    number = np.zeros(most + 1, dtype=np.int64)
    number[found] = np.arange(len(found))
    return found, number[values]


def stage_seconds(pricer: Pricer, stages: StageTable, rows: Index, of: Index, asked: Widths) -> Array:
    """Return the seconds of a step of the stages ``rows``, each of the configuration ``of`` (:class:`Widths`).

    They are those of :meth:`cost.layouts.stages.Pricer.seconds` but for rounding.
    """
    kind_of = np.array(pricer.shape_of, dtype=np.int64)
    sequences = np.rint(asked.batch * asked.tp).astype(np.int64)  # of a group, always whole
    width = numbered(pairs(asked.tp, asked.moe_tp))[1]
    cut, configuration = numbered(pairs(width, numbered(sequences)[1]))
    sample = np.zeros(len(cut), dtype=np.int64)
    sample[configuration] = np.arange(len(configuration))  # one of those that are alike
    shapes, unit = numbered(kind_of[stages.kind[rows]] * len(cut) + configuration[of])
    kind, one = shapes // max(len(cut), 1), sample[shapes % max(len(cut), 1)]
    total, sent = _unit_seconds(pricer, pricer.shapes, kind, asked.rows(one))
    seconds = _sums(total, stages, rows, unit)
    if sent is None:
        return seconds
    sending = _sums(sent, stages, rows, unit)
    share = np.array([float(machine.efficiency["overlap"]) for machine in pricer.machines])
    hidden = share[stages.machine[rows]] * np.minimum(sending, seconds - sending)
    return np.asarray(2 * (seconds - hidden))  # two half batches (:func:`cost.step.overlapped`)


def _sums(units: list[Array], stages: StageTable, rows: Index, unit: Index) -> Array:
    """Seconds of stages: of each kind of layer as often as it is there, and of the head."""
    seconds = np.zeros(len(rows))
    for counts, each in zip([*stages.counts, stages.last], units, strict=True):
        if counts.any():
            seconds += counts[rows] * each[unit]
    return seconds


def _unit_seconds(
    pricer: Pricer, kinds: list[Stage], kind: Index, asked: Widths
) -> tuple[list[Array], list[Array] | None]:
    """Return seconds of one layer of each kind of the model, then of the head, ``[shapes]`` each.

    ``kind``: the place of each shape among the ``kinds`` of stages. With half batches those of one of the two, and
    the part of them that is sending.
    """
    deployment = pricer.deployment
    model, overlap = deployment.model, deployment.workload.overlap
    table = StageTable.bare(kinds, len(model.kinds))
    tp, moe_tp, batch = asked.tp, asked.moe_tp, asked.batch
    shape = pricer.shape(table, kind, tp=tp, moe_tp=moe_tp, batch=batch, imbalance=asked.imbalance)
    shape = replace(shape, slots=np.ceil(shape.slots / shape.ep) * shape.ep)
    if overlap:
        shape = shape.halved
    held = [*(StageShard(((layer, 1.0),), last=0.0) for layer in model.kinds), StageShard((), last=1.0)]
    total, sent = (np.zeros((len(held), len(kind))) for _ in range(2))
    machine = table.machine[kind]
    for index, what in enumerate(pricer.machines):
        mine = np.flatnonzero(machine == index)
        for start in range(0, len(mine), MOST_ROWS):
            where = mine[start : start + MOST_ROWS]
            some = shape.rows(where)
            for part, shard in enumerate(held):
                cost = even_step(model, some, what, shard)
                total[part, where] = cost.total_s
                if overlap:
                    sent[part, where] = _sending(cost)
    return list(total), list(sent) if overlap else None


def _sending(cost: StepCost) -> Array | float:
    return added(seconds for (term, _), seconds in cost.parts_s.items() if TERMS[term].sends)
