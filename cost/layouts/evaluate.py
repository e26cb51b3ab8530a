"""Price all layouts at all batches: stages first, then pipelines, then layouts, each as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cost.deployment import USABLE_HBM, Deployment
from cost.layouts.candidates import (
    Arrangement,
    LayoutTable,
    Variant,
    batches_between,
    batches_of,
    layouts_of,
    left_over,
    most_that_fit,
)
from cost.layouts.front import pareto
from cost.layouts.lines import Details, pipeline_seconds, runs_of
from cost.layouts.partition import variants_of
from cost.layouts.result import Sweep
from cost.layouts.stages import Columns, Pipelines, Pricer, pairs, pipelines_of
from cost.layouts.units import Widths, numbered
from cost.layouts.unlike_stages import with_free_orders
from cost.memory import batch_room
from cost.workload import CHUNK_TOKENS
from topology.errors import InputError

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def sweep(
    deployment: Deployment,
    *,
    redundant: int | None = None,
    cut_experts: bool = True,
    imbalance: float | None = 1.0,
    chunk_tokens: float | None = CHUNK_TOKENS,
    speeds: Sequence[float] = (),
    batches: Sequence[int] = (),
    arranged: Sequence[Arrangement] | None = None,
) -> Sweep:
    """Price every parallel layout of a model on a cluster at every batch that fits.

    Parameters
    ----------
    deployment:
        Cluster, model and workload; the workload's batch plays no part.
    redundant:
        Extra expert copies per layer; None: the fewest that divide.
    cut_experts:
        Also price layouts that cut each expert into parts (which plans cannot have).
    imbalance:
        Busiest GPU's expert load over the mean, 1: experts balanced. None: the usual one of groups of
        :data:`cost.workload.IMBALANCE_FROM_EP` GPUs or more, and unequal use of experts everywhere.
    chunk_tokens:
        Prefill: prompt tokens that an attention group takes in one step, cached ones not counted, but at least one
        whole prompt; None: all that fit. A longer prompt takes several chunks, which are counted at what the prompt
        costs at once.
    speeds:
        Tokens per second of one sequence at which each layout is priced at its largest batch, besides the grid.
    batches:
        Whole sequences per GPU at which each layout that holds so many is priced, besides the grid.
    arranged:
        Groups of GPUs to price in place of all that the cluster allows.

    Notes
    -----
    Groups of GPUs inside a domain and of whole domains (:func:`cost.layouts.candidates.group_sizes`), every
    tensor-parallel width that stays in a domain and divides the heads, numbers of stages up to
    :data:`cost.layouts.candidates.MOST_STAGES`, as many replicas as there is room for, some GPUs left over where that
    is better; batches on a grid, and near the frontier every one (:mod:`cost.layouts.candidates`); at each batch the
    fastest split of the layers (:mod:`cost.layouts.partition`). A layout costs what :class:`cost.score.LayoutScorer`
    says for balanced experts. Where nothing fits the sweep is empty and says how much is missing.

    Raises
    ------
    InputError
        If no group of GPUs can hold the redundant experts, the imbalance is below 1, or a speed is not above 0.
    """
    for speed in speeds:
        if not (math.isfinite(speed) and speed > 0):
            raise InputError(f"`speeds` {speed:g}: a speed per user is above 0 tok/s.")
    if imbalance is not None and not (np.isfinite(imbalance) and imbalance >= 1):
        raise InputError(f"`imbalance` {imbalance:g}: the busiest GPU over the mean is 1 or more.")
    pricer = Pricer(deployment, redundant)
    if arranged is None:
        arranged = arranged_in(pricer, imbalance=imbalance, chunk_tokens=chunk_tokens)
    variants = variants_of(pricer, arranged)
    pipelines = pipelines_of(pricer, variants)
    table = layouts_of(deployment.model, variants, redundant, cut_experts=cut_experts)
    if not len(table):
        if redundant is None:
            raise InputError(
                f"{deployment.model.name} has no legal layout on {deployment.cluster.name}: no group of its GPUs "
                "divides the heads and holds every expert in equally many slots."
            )
        raise InputError(
            f"`redundant` {redundant}: no group of {deployment.cluster.name}'s GPUs can hold that many more copies "
            "without two copies of one expert on a GPU; give fewer."
        )
    table, most, lacking = _fitting(pricer, table, pipelines, chunk_tokens)
    layout, batch = batches_of(most, table.tp)
    found = _price(pricer, table, pipelines, layout, batch, imbalance)
    more = batches_between(layout, batch, table.tp[layout], speed=1 / found["step_s"], rate=found["tok_s"])
    if len(more[0]):
        found = found.joined(_price(pricer, table, pipelines, *more, imbalance))
    for step_s in dict.fromkeys(deployment.workload.tokens_per_step / speed for speed in speeds):
        exact = _largest_within(pricer, table, pipelines, found, step_s, imbalance)
        found = found.joined(exact) if exact.rows else found
    for many in dict.fromkeys(batches):
        able = np.setdiff1d(np.flatnonzero(most >= many), found["layout"][found["batch"] == many])
        if len(able):
            found = found.joined(
                _price(pricer, table, pipelines, able, np.full(len(able), float(many)), imbalance)
            )
    found = found.take(_best_splits(table, variants, found))
    return _result(pricer, variants, table, pipelines, found, most, shortage=lacking, imbalance=imbalance)


NEAR, MOST_NEAR = 0.05, 16
"""How much less than the best at its speed an arrangement that leaves GPUs idle may yield, coarsely priced, and still
be worth pricing; and how many are at most, the nearest of them."""


def arranged_in(
    pricer: Pricer,
    *,
    imbalance: float | None = 1.0,
    chunk_tokens: float | None = CHUNK_TOKENS,
    alone: bool = True,
) -> list[Arrangement]:
    """Return every arrangement worth pricing; of those that leave GPUs over, those that come near the frontier.

    Which do is seen at few batches, with few splits of the layers; ``imbalance`` and ``chunk_tokens`` as in
    :func:`sweep`. So one GPU more never takes a layout away, and what stays far behind costs little. With
    ``alone`` also those near in what a GPU in use yields: pools have some of their replicas.
    """
    found = pricer.deployment.once(
        lambda: _arranged(pricer, imbalance, chunk_tokens),
        "arranged",
        pricer.redundant,
        imbalance,
        chunk_tokens,
    )
    return found[alone]


def _arranged(pricer: Pricer, imbalance: float | None, chunk_tokens: float | None) -> list[list[Arrangement]]:
    """What is worth pricing on the whole cluster, and that with what is where some replicas stand alone."""
    deployment = pricer.deployment
    base = with_free_orders(pricer)
    more = left_over(deployment.cluster, deployment.model)
    if not more:
        return [base, base]
    every = [*base, *more]
    variants = variants_of(pricer, every, few=True)
    pipelines = pipelines_of(pricer, variants)
    table = layouts_of(deployment.model, variants, pricer.redundant, cut_experts=False)
    if not len(table):
        return [base, base]
    table, most, _ = _fitting(pricer, table, pipelines, chunk_tokens)
    layout, batch = batches_of(most, table.tp, steps=1)
    if not len(layout):
        return [base, base]
    found = _price(pricer, table, pipelines, layout, batch, imbalance)
    what = [one.arrangement for one in variants]
    of = table.variant[layout]
    used = np.array([one.gpus_used for one in what], dtype=np.float64)[of]
    known, kept = {id(one) for one in base}, []
    for rate in (found["tok_s"], found["tok_s"] / used):
        behind = _behind(found["step_s"], rate)
        nearest: dict[int, float] = {}
        for place in np.flatnonzero(behind <= NEAR).tolist():
            one = id(what[of[place]])
            nearest[one] = min(nearest.get(one, np.inf), float(behind[place]))
        others = [one for one in nearest if one not in known]
        kept.append(set(sorted(others, key=lambda one: nearest[one])[:MOST_NEAR]))
    whole, alone = kept
    return [base + [one for one in more if id(one) in near] for near in (whole, whole | alone)]


def _behind(step_s: Array, rate: Array) -> Array:
    """How much less than the best at its speed each of some configurations yields, as a logarithm."""
    speed, height = -np.log(step_s), np.log(rate)
    front = pareto(speed, height)
    return np.asarray(np.interp(speed, speed[front], height[front]) - height)


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


def _largest_within(
    pricer: Pricer,
    table: LayoutTable,
    pipelines: Pipelines,
    found: Columns,
    step_s: float,
    imbalance: float | None,
) -> Columns:
    """Price the largest batch of each layout whose step takes at most ``step_s``, where it is not in ``found``.

    It lies between the last batch priced that is within and the first that is not: bisection, all layouts at once.
    """
    order = np.lexsort((found["batch"], found["layout"]))
    layout, batch = found["layout"][order], found["batch"][order]
    within = found["step_s"][order] <= step_s
    first = np.flatnonzero((layout[1:] == layout[:-1]) & within[:-1] & ~within[1:])
    layout, before, after = layout[first], batch[first], batch[first + 1]
    # of whole sequences: each GPU's, or below one each a group's
    unit = np.where(before < 1, table.tp[layout], 1)
    least, high = np.round(before * unit), np.round(after * unit)
    low = least
    while np.any(open_ := high - low > 1):
        middle = (low + high) // 2
        priced = _price(pricer, table, pipelines, layout[open_], middle[open_] / unit[open_], imbalance)
        able = np.zeros(len(layout), dtype=bool)
        able[open_] = priced["step_s"] <= step_s
        low, high = np.where(open_ & able, middle, low), np.where(open_ & ~able, middle, high)
    new = low > least
    return _price(pricer, table, pipelines, layout[new], low[new] / unit[new], imbalance)


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


def _best_splits(table: LayoutTable, variants: Sequence[Variant], found: Columns) -> Index:
    """Rows by layout and batch, without those that another split of the layers beats on the same GPUs and batch."""
    layout, batch, step_s = found["layout"], found["batch"], found["step_s"]
    number: dict[int, int] = {}
    arrangement = np.array(
        [number.setdefault(id(v.arrangement), len(number)) for v in variants], dtype=np.int64
    )
    cut = numbered(pairs(arrangement[table.variant], pairs(table.tp, table.moe_tp)))[1]
    sequences = np.rint(batch * table.tp[layout]).astype(np.int64)
    alike = numbered(pairs(cut[layout], sequences))[1]
    fastest = np.full(int(alike.max(initial=-1)) + 1, np.inf)
    np.minimum.at(fastest, alike, step_s)
    able = np.flatnonzero(step_s == fastest[alike])
    kept = np.full(len(fastest), len(layout))
    np.minimum.at(kept, alike[able], able)
    return np.asarray(kept[np.lexsort((batch[kept], layout[kept]))])


def _price(
    pricer: Pricer,
    table: LayoutTable,
    pipelines: Pipelines,
    layout: Index,
    batch: Array,
    imbalance: float | None,
) -> Columns:
    """Layouts of their replicas: the slowest says how long a step takes, all of them count for throughput."""
    asked = Widths(table.tp[layout], table.moe_tp[layout], batch, imbalance)
    of, pipeline, step_s = pipeline_seconds(pricer, pipelines, table.variant[layout], asked)
    tokens = batch[of] * pricer.deployment.workload.tokens_per_step
    tok_s = pipelines.alike[pipeline] * pipelines.gpus[pipeline] * tokens / step_s
    replicas = runs_of(of)
    found = {"layout": layout, "batch": batch, "step_s": replicas.max(step_s), "tok_s": replicas.sum(tok_s)}
    return Columns(len(layout), {(name, ""): values for name, values in found.items()})


def _result(
    pricer: Pricer,
    variants: Sequence[Variant],
    table: LayoutTable,
    pipelines: Pipelines,
    found: Columns,
    most: Array,
    *,
    shortage: float,
    imbalance: float | None,
) -> Sweep:
    deployment, layout = pricer.deployment, found["layout"]
    variant = table.variant[layout]
    what = [one.arrangement for one in variants]
    figures = [(one.group, one.gpus_used, len(one.replicas), one.stages) for one in what]
    group, used, replicas, stages = np.array(figures, dtype=np.int64)[variant].T
    tp, moe_tp = table.tp[layout], table.moe_tp[layout]
    return Sweep(
        deployment=deployment,
        layout=variant,
        tp=tp,
        attention_dp=group // tp,
        ep=group // moe_tp if deployment.model.moe is not None else np.ones_like(group),
        moe_tp=moe_tp,
        stages=stages,
        replicas=replicas,
        gpus=used // replicas,
        batch=found["batch"],
        max_batch=most[layout],
        step_s=found["step_s"],
        tok_s=found["tok_s"],
        parts_of=Details(pricer, table, pipelines, layout, found["batch"], imbalance),
        variants=tuple(variants),
        shortage_bytes=shortage,
        imbalance=imbalance,
    )
