"""Layouts of arrangements that fit, what their steps take at batches, and the batches at which they are priced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from cost.inputs.deployment import Deployment
from cost.layouts.arrays import Array, Bools, Index, runs_of
from cost.layouts.batches import (
    MAX_BETWEEN,
    STEPS_PER_OCTAVE,
    batches_between,
    batches_of,
)
from cost.layouts.candidates import Arrangement, widths_of
from cost.layouts.contexts import context_widths
from cost.layouts.deployable import is_power_of_two
from cost.layouts.partition import Variant, variants_of
from cost.layouts.pipelines import Pipelines, pipeline_seconds, pipelines_of
from cost.layouts.stages import Budgets, Pricer, Widths
from cost.memory.batches import most_that_fit, smallest_share
from cost.memory.stages import CacheRoom, batch_room, weights_off
from cost.quantity import Quantity

SPREAD_PARTS, NEIGHBOURS = (0.25, 0.5, 0.75), np.array([-1, 1, 2])
"""Where batches are tried besides a guess: at these parts of what lies between two, and next to the guess."""


@dataclass(frozen=True, eq=False)
class Priced:
    """Layouts at batches (sequences per GPU): seconds of a step, tokens/s of all replicas, ``[configurations]``."""

    layout: Index
    batch: Array
    step_s: Array
    tok_s: Array

    def __len__(self) -> int:
        return len(self.layout)

    def take(self, which: Index) -> Priced:
        """Some of the rows, in this order."""
        return Priced(*(getattr(self, column.name)[which] for column in fields(self)))

    def joined(self, priced: Priced) -> Priced:
        """The rows of both, one after the other."""
        columns = ((getattr(self, column.name), getattr(priced, column.name)) for column in fields(self))
        return Priced(*map(np.concatenate, columns))


@dataclass(frozen=True, eq=False)
class FittingLayouts:
    """Layouts that fit, ``[layouts]``, of the ``variants`` of some arrangements.

    Attributes
    ----------
    variant, tp, moe_tp, dcp, pcp:
        The variant of each layout, its width of tensor parallelism, the parts that each expert is cut into, and its
        context parallelism (:class:`cost.inputs.layout.Layout`).
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
    variant: Index
    tp: Index
    moe_tp: Index
    dcp: Index
    pcp: Index
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
        lines = [pricer.lines(arrangement) for arrangement in arranged]
        variants = variants_of(pricer, arranged, [replicas[0][0] for replicas in lines])
        variant, *cut = _legal(pricer, arranged, variants, cut_experts=cut_experts)
        if not len(variant):
            return None
        pipelines, tp = pipelines_of(pricer, variants, lines), cut[0]
        room, short = _room(pricer, pipelines, variant, *cut)
        gpus = (list(map(len, arrangement.arrangement.replicas[0])) for arrangement in variants)
        run = np.array(list(map(smallest_share, gpus)))[variant]
        max_batch = np.asarray(
            most_that_fit(np.minimum(room, pricer.deployment.most_sequences * run / tp), tp)
        )
        workload = pricer.deployment.workload
        fits = max_batch > 0
        variant, tp, moe_tp, dcp, pcp = (column[fits] for column in (variant, *cut))
        max_batch = max_batch[fits]
        if chunk_tokens is not None and not workload.decodes:
            max_batch = np.minimum(max_batch, workload.prompts_at_once(chunk_tokens) / tp)
        shortage = 0.0 if fits.any() else max(0.0, short)
        return cls(pricer, variants, pipelines, variant, tp, moe_tp, dcp, pcp, max_batch, shortage, imbalance)

    def under(self, deployment: Deployment) -> FittingLayouts:
        """Return the same layouts priced under another workload of the cluster and model, whatever fits then."""
        arranged = {variant.number: variant.arrangement for variant in self.variants}
        pricer = Pricer(deployment, self.pricer.redundant)
        lines = {number: pricer.lines(arranged[number]) for number in sorted(arranged)}
        all_lines = [lines.get(number, []) for number in range(1 + max(lines, default=-1))]
        pipelines = pipelines_of(pricer, self.variants, all_lines)
        return replace(self, pricer=pricer, pipelines=pipelines)

    @property
    def room(self) -> Array:
        """Sequences per GPU that HBM has room for, whatever the chunk."""
        return _room(self.pricer, self.pipelines, self.variant, *self._cut)[0]

    @property
    def _cut(self) -> tuple[Index, Index, Index, Index]:
        """How each layout cuts its stages."""
        return self.tp, self.moe_tp, self.dcp, self.pcp

    def cache(self, layout: int, gpus: int, sequences: int | None) -> CacheRoom:
        """Return the cache of a replica of ``gpus`` GPUs of a layout, which has ``sequences`` at most, if any."""
        which, deployment = slice(layout, layout + 1), self.pricer.deployment
        layouts = (column[which] for column in (self.variant, *self._cut))
        _, budgets, (held, sequence_bytes) = _memory(self.pricer, self.pipelines, *layouts)
        pool, off = budgets.pool(held), weights_off(deployment.model) * held
        columns = np.broadcast_arrays(pool, budgets.part, budgets.less, budgets.more, off, sequence_bytes)
        fullest = int(np.argmin(pool / np.maximum(sequence_bytes, 1.0)))
        context = deployment.workload.cached
        room, part, shortfall, surplus, differ, kv = (float(column[fullest]) for column in columns)
        return CacheRoom.of(
            room, (part, shortfall, surplus), differ, kv, gpus=gpus, context=context, sequences=sequences
        )

    @property
    def arrangement(self) -> Index:
        """Number of the arrangement of each layout, among those given."""
        return np.array([variant.number for variant in self.variants], dtype=np.int64)[self.variant]

    def widths(self, layout: Index, batch: Array) -> Widths:
        """Configurations of layouts at batches."""
        tp, moe_tp, dcp, pcp = (column[layout] for column in self._cut)
        return Widths(tp, moe_tp, dcp, pcp, batch, self.imbalance)

    def price(self, layout: Index, batch: Array) -> Priced:
        """Layouts of their replicas: the slowest says how long a step takes, all of them count for throughput."""
        if not len(layout):
            return Priced(layout, batch, batch, batch)
        pipelines, widths = self.pipelines, self.widths(layout, batch)
        of, pipeline, step_s = pipeline_seconds(self.pricer, pipelines, self.variant[layout], widths)
        tokens = batch[of] * self.pricer.deployment.workload.tokens_per_step
        tok_s = pipelines.alike[pipeline] * pipelines.gpus[pipeline] * tokens / step_s
        replicas = runs_of(of)
        return Priced(layout, batch, replicas.max(step_s), replicas.sum(tok_s))

    def grid(self, chosen: Bools | None = None, steps: float = STEPS_PER_OCTAVE) -> tuple[Index, Array]:
        """Return the ``chosen`` layouts, or all, at every batch of the grid (:func:`batches_of`)."""
        which = np.arange(len(self.most)) if chosen is None else np.flatnonzero(chosen)
        layout, batch = batches_of(self.most[which], self.tp[which], steps)
        return which[layout], batch

    def price_apart(self, *queries: tuple[Index, Array]) -> list[Priced]:
        """Price several lists of layouts at batches: at once, since a call costs more than few rows do."""
        ends = np.cumsum([len(layout) for layout, _ in queries])
        priced = self.price(*map(np.concatenate, zip(*queries, strict=True)))
        return [priced.take(rows) for rows in np.split(np.arange(len(priced)), ends[:-1])]

    def between(self, priced: Priced, able: Bools, limit: int = MAX_BETWEEN) -> tuple[Index, Array]:
        """Return the batches between neighbours of ``priced``, at most so many, where what lies there is ``able``.

        ``priced`` is by layout and batch; ``able`` as :func:`batches_between` takes it.
        """
        return batches_between(priced.layout, priced.batch, self.tp[priced.layout], able, limit)

    def near(self, priced: Priced, step_s: float) -> tuple[Index, Array]:
        """Return batches near the largest of each layout whose step takes at most ``step_s``, unless that is known.

        It lies between the last of ``priced``, by layout and batch, that is within and the first that is not: some
        near where a straight line between the two reaches ``step_s``, and some evenly spread.
        """
        rows = _last_within(priced, step_s)
        layout, tp = priced.layout[rows], self.tp[priced.layout[rows]]
        low, high = np.rint(priced.batch[rows] * tp), np.rint(priced.batch[rows + 1] * tp)
        share = (step_s - priced.step_s[rows]) / (priced.step_s[rows + 1] - priced.step_s[rows])
        between = np.stack([np.floor(low + (high - low) * part) for part in (share, *SPREAD_PARTS)])
        tried = np.clip(np.concatenate([between, between[0] + NEIGHBOURS[:, None]]), low + 1, high - 1)
        unknown = high - low > 1
        return np.tile(layout[unknown], len(tried)), np.ravel((tried / tp)[:, unknown])

    def largest_within(self, priced: Priced, step_s: float) -> Priced:
        """Return the largest batch of each layout whose step takes at most ``step_s``, where a larger one fits.

        Between the last of ``priced`` that is within and the first that is not, :meth:`near` it, is priced until it
        is known, all layouts at once.
        """
        priced = priced.take(np.lexsort((priced.batch, priced.layout)))
        rows = _last_within(priced, step_s)
        nearer = self.near(priced, step_s)
        if not len(nearer[0]):
            return priced.take(rows)
        ends = priced.take(np.concatenate([rows, rows + 1]))
        return self.largest_within(ends.joined(self.price(*nearer)), step_s)


def _last_within(priced: Priced, step_s: float) -> Index:
    """Rows whose step takes at most ``step_s`` and that of the next, of the same layout, does not."""
    within = priced.step_s <= step_s
    return np.flatnonzero((priced.layout[1:] == priced.layout[:-1]) & within[:-1] & ~within[1:])


def _legal(
    pricer: Pricer, arranged: Sequence[Arrangement], variants: Sequence[Variant], *, cut_experts: bool
) -> Index:
    """Return variant, width of tensor parallelism, parts of an expert, dcp and pcp of every layout, ``[5, layouts]``.

    Tensor parallelism stays in a domain and divides the query heads. A model without experts has one
    tensor-parallel group a stage. With ``cut_experts``, groups that lie in one domain may also cut each expert into
    ``moe_tp`` parts of whole columns and spread them over ``ep = group / moe_tp`` places. No GPU holds two copies of
    one expert. Both are powers of two unless any shape will do. Context parallelism: :func:`context_widths`.
    """
    model, legal = pricer.deployment.model, []
    for arrangement in arranged:
        widths, parts = widths_of(model, arrangement, cut_experts=cut_experts)
        if not pricer.deployment.any_shape:
            widths, parts = list(filter(is_power_of_two, widths)), list(filter(is_power_of_two, parts))
        if model.moe is not None:
            smallest = min(len(stage) for stage in arrangement.replicas[0])
            copies = model.moe.experts + (pricer.redundant or 0)
            parts = [part for part in parts if -(-copies // (smallest // part)) <= model.moe.experts]
        legal.append(
            [
                (tp, part, *context)
                for tp in widths
                for part in parts
                for context in context_widths(pricer.deployment, tp)
            ]
        )
    rows = [
        (number, *cut) for number, arrangement in enumerate(variants) for cut in legal[arrangement.number]
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, 5).T


def _memory(
    pricer: Pricer, pipelines: Pipelines, variant: Index, tp: Index, moe_tp: Index, dcp: Index, pcp: Index
) -> tuple[Index, Budgets, tuple[Quantity, Quantity]]:
    """Layout and budget of each stage of some layouts, and its memory (:func:`cost.memory.stages.even_memory`)."""
    of, pipeline = pipelines.of(variant)
    line, rows = pipelines.rows(pipeline)
    owner, stages = of[line], pipelines.stages
    widths = Widths(tp[owner], moe_tp[owner], dcp[owner], pcp[owner], np.zeros(len(rows)))
    shape = pricer.shape(stages, rows, widths)
    memory = pricer.memory(stages, rows, shape, stages.held(pricer.deployment, rows))
    return owner, pricer.budgets(stages, rows, shape), memory


def _room(
    pricer: Pricer, pipelines: Pipelines, variant: Index, tp: Index, *cut: Index
) -> tuple[Array, float]:
    """Sequences per GPU that fit each layout, and bytes that the one nearest to fitting its smallest batch lacks."""
    owner, budgets, memory = _memory(pricer, pipelines, variant, tp, *cut)
    runs, room = runs_of(owner), batch_room(memory, budgets.usable, budgets.part)
    short = runs.max(np.asarray(memory[1] / tp[owner] - budgets.pool(memory[0])))
    return runs.min(np.asarray(room)), float(np.min(short, initial=np.inf))
