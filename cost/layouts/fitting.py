"""Layouts of arrangements that fit, and what their steps take at batches: stages, then pipelines, then layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.deployment import USABLE_HBM
from cost.layouts.candidates import (
    STEPS,
    Arrangement,
    LayoutTable,
    Variant,
    batches_of,
    layouts_of,
    most_that_fit,
)
from cost.layouts.lines import pipeline_seconds, runs_of
from cost.layouts.partition import variants_of
from cost.layouts.stages import Columns, Pipelines, Pricer, pipelines_of
from cost.layouts.units import Widths
from cost.memory import batch_room

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FittingLayouts:
    """Layouts that fit, ``[layouts]``, of the ``variants`` of some arrangements.

    Attributes
    ----------
    most:
        The largest batch of each layout: what fits HBM and the chunk.
    shortage_bytes:
        HBM bytes per GPU that the layout nearest to fitting one sequence lacks; 0 where something fits.
    imbalance:
        As in :func:`cost.layouts.sweep`.
    """

    pricer: Pricer
    variants: Sequence[Variant]
    pipelines: Pipelines
    table: LayoutTable
    most: Array
    shortage_bytes: float
    imbalance: float | None

    @classmethod
    def of(
        cls,
        pricer: Pricer,
        arranged: Sequence[Arrangement],
        *,
        cut_experts: bool,
        chunk_tokens: float | None,
        imbalance: float | None,
    ) -> FittingLayouts | None:
        """Return every layout of ``arranged`` that fits; None where none is legal."""
        variants = variants_of(pricer, arranged)
        pipelines = pipelines_of(pricer, variants)
        table = layouts_of(pricer.deployment.model, variants, pricer.redundant, cut_experts=cut_experts)
        if not len(table):
            return None
        table, most, shortage = _fitting(pricer, table, pipelines, chunk_tokens)
        return cls(pricer, variants, pipelines, table, most, shortage, imbalance)

    def price(self, layout: Index, batch: Array) -> Columns:
        """Layouts of their replicas: the slowest says how long a step takes, all of them count for throughput."""
        table, pipelines = self.table, self.pipelines
        asked = Widths(table.tp[layout], table.moe_tp[layout], batch, self.imbalance)
        of, pipeline, step_s = pipeline_seconds(self.pricer, pipelines, table.variant[layout], asked)
        tokens = batch[of] * self.pricer.deployment.workload.tokens_per_step
        tok_s = pipelines.alike[pipeline] * pipelines.gpus[pipeline] * tokens / step_s
        replicas = runs_of(of)
        found = {
            "layout": layout,
            "batch": batch,
            "step_s": replicas.max(step_s),
            "tok_s": replicas.sum(tok_s),
        }
        return Columns(len(layout), {(name, ""): values for name, values in found.items()})

    def grid(self, chosen: NDArray[np.bool_] | None = None, steps: float = STEPS) -> tuple[Index, Array]:
        """Return the ``chosen`` layouts, or all, at every batch of the grid (:func:`batches_of`)."""
        which = np.arange(len(self.most)) if chosen is None else np.flatnonzero(chosen)
        layout, batch = batches_of(self.most[which], self.table.tp[which], steps)
        return which[layout], batch

    def largest_within(self, found: Columns, step_s: float) -> Columns:
        """Price the largest batch of each layout whose step takes at most ``step_s``, where it is not in ``found``.

        It lies between the last batch priced that is within and the first that is not: bisection, all layouts at
        once.
        """
        order = np.lexsort((found["batch"], found["layout"]))
        layout, batch = found["layout"][order], found["batch"][order]
        within = found["step_s"][order] <= step_s
        first = np.flatnonzero((layout[1:] == layout[:-1]) & within[:-1] & ~within[1:])
        layout, before, after = layout[first], batch[first], batch[first + 1]
        # of whole sequences: each GPU's, or below one each a group's
        unit = np.where(before < 1, self.table.tp[layout], 1)
        least, high = np.round(before * unit), np.round(after * unit)
        low = least
        while np.any(open_ := high - low > 1):
            middle = (low + high) // 2
            priced = self.price(layout[open_], middle[open_] / unit[open_])
            able = np.zeros(len(layout), dtype=bool)
            able[open_] = priced["step_s"] <= step_s
            low, high = np.where(open_ & able, middle, low), np.where(open_ & ~able, middle, high)
        new = low > least
        return self.price(layout[new], low[new] / unit[new])


def _fitting(
    pricer: Pricer, table: LayoutTable, pipelines: Pipelines, chunk_tokens: float | None
) -> tuple[LayoutTable, Array, float]:
    """Return the layouts that fit, the largest batch of each, and the bytes that are lacking where none does."""
    room, shortage = _room(pricer, table, pipelines)
    chosen = room * table.tp >= 1
    table, room = table.rows(chosen), room[chosen]
    most = most_that_fit(room, table.tp)
    workload = pricer.deployment.workload
    if chunk_tokens is not None and not workload.decodes:
        prompts = max(1.0, chunk_tokens // workload.tokens_per_pass)
        most = np.minimum(most, most_that_fit(prompts / table.tp, table.tp))
    return table, most, 0.0 if chosen.any() else max(0.0, float(shortage))


def _room(pricer: Pricer, table: LayoutTable, pipelines: Pipelines) -> tuple[Array, np.float64]:
    """Sequences per GPU that fit each layout, and bytes that the one nearest to fitting its smallest batch lacks."""
    of, pipeline = pipelines.of(table.variant)
    line, rows = pipelines.rows(pipeline)
    owner = of[line]
    stages, tp = pipelines.stages, table.tp[owner]
    shape = pricer.shape(stages, rows, tp=tp, moe_tp=table.moe_tp[owner], batch=np.zeros(len(rows)))
    memory = pricer.memory(stages, rows, shape, stages.held(pricer.deployment, rows))
    hbm, runs = stages.hbm_bytes[rows], runs_of(owner)
    short = runs.max(np.asarray(memory[0] + memory[1] / tp - USABLE_HBM * hbm))
    return runs.min(np.asarray(batch_room(memory, hbm))), np.min(short, initial=np.inf)
